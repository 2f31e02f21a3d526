/* Communicators made by splitting others: who is in which, collectives and messages in all of them
 * at once, failures and ends. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/ranks.h"

enum { STALL_MS = 400, COUNT = 20011 };

static int64_t sum_of(struct rank_self *self, gm_comm *comm, int64_t own)
{
    int64_t x = own;
    gm_status status = gm_all_reduce(comm, &x, &x, 1, GM_I64, GM_SUM);
    if (status != GM_OK) rank_fail(self, __FILE__, __LINE__, "%s", gm_comm_error(comm)->text);
    return x;
}

/* ---- who is in which ------------------------------------------------------------------------- */

/* Colours and keys by seed; every rank computes what everybody must find. */
static void split_by_seed(struct rank_self *self)
{
    rank_create(self);
    for (uint64_t seed = 0; seed < 12; seed++) {
        int      n = self->world_size, colour[RANKS_MAX], key[RANKS_MAX], size = 0, place = 0;
        gm_comm *split;
        for (int k = 0; k < n; k++) {
            colour[k] = (int)gmi_rng_below(seed, (uint64_t)k, 4) - 1;
            key[k] = (int)gmi_rng_below(seed, 100 + (uint64_t)k, 3) - 1;
        }
        int own = self->rank;
        rank_ok(self, gm_comm_split(self->comm, colour[own], key[own], &split));
        rank_check(self, (split == NULL) == (colour[own] < 0));
        if (split == NULL) continue;
        int64_t members = 0;
        for (int k = 0; k < n; k++) {
            if (colour[k] != colour[own]) continue;
            size++;
            members += INT64_C(1) << (4 * k);
            place += key[k] < key[own] || (key[k] == key[own] && k < own);
        }
        rank_check(self, gm_comm_size(split) == size && gm_comm_rank(split) == place);
        rank_check(self, sum_of(self, split, INT64_C(1) << (4 * own)) == members);
        gm_comm_destroy(split);
    }
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void members_and_their_order_follow_from_colour_and_key(void **state)
{
    for (int n = 1; n <= 5; n++) {
        struct ranks_job job = { .n_ranks = n, .body = split_by_seed };
        ranks_run(state, &job);
    }
    struct ranks_job job = { .n_ranks = 8, .body = split_by_seed };
    ranks_run(state, &job);
}

/* ---- side by side ---------------------------------------------------------------------------- */

/* Rows and columns of a grid 3 wide, the world reversed, and a split of a split, all used in turns.
 */
static void use_many(struct rank_self *self)
{
    int      n = self->world_size, r = self->rank;
    gm_comm *row, *column, *reversed, *pair;
    rank_create(self);
    rank_ok(self, gm_comm_split(self->comm, r / 3, r, &row));
    rank_ok(self, gm_comm_split(self->comm, r % 3, r, &column));
    rank_ok(self, gm_comm_split(self->comm, 0, -r, &reversed));
    rank_ok(self, gm_comm_split(row, gm_comm_rank(row) / 2, 0, &pair));
    int64_t row_sum = 0, column_sum = 0, all_sum = 0;
    for (int k = 0; k < n; k++) {
        all_sum += k;
        if (k / 3 == r / 3) row_sum += k;
        if (k % 3 == r % 3) column_sum += k;
    }
    for (int round = 0; round < 10; round++) {
        rank_check(self, sum_of(self, row, r) == row_sum);
        rank_check(self, sum_of(self, self->comm, r) == all_sum);
        rank_check(self, sum_of(self, column, r) == column_sum);
        rank_check(self, sum_of(self, reversed, r) == all_sum);
        int32_t b[COUNT] = { 0 }, from_right = -1, own = r;
        if (gm_comm_rank(reversed) == 0) b[COUNT - 1] = 77 + round;
        rank_ok(self, gm_broadcast(reversed, b, COUNT, GM_I32, 0));
        rank_check(self, b[COUNT - 1] == 77 + round);
        int size = gm_comm_size(row), place = gm_comm_rank(row);
        rank_ok(self, gm_sendrecv(row, &own, 1, (place + size - 1) % size, 0, &from_right, 1,
                                  (place + 1) % size, 0, GM_I32));
        rank_check(self, from_right == r / 3 * 3 + (place + 1) % size);
        rank_check(self, gm_comm_size(pair) <= 2);
        rank_ok(self, gm_barrier(pair));
    }
    gm_comm_destroy(row); /* in no particular order, the root before some */
    rank_destroy(self);
    rank_ok(self, gm_barrier(column));
    gm_comm_destroy(pair);
    gm_comm_destroy(column);
    gm_comm_destroy(reversed);
}

static void several_communicators_work_side_by_side(void **state)
{
    for (int n = 4; n <= 8; n += 2) {
        struct ranks_job job = { .n_ranks = n, .body = use_many };
        ranks_run(state, &job);
    }
}

struct user {
    struct rank_self *self;
    gm_comm          *comm;
    int64_t           n_calls;
};

static void *reduce_in_a_thread(void *user)
{
    struct user *u = user;
    for (int64_t i = 0; i < u->n_calls; i++) {
        int64_t size = gm_comm_size(u->comm);
        rank_check(u->self, sum_of(u->self, u->comm, i) == i * size);
    }
    return NULL;
}

static void use_by_threads(struct rank_self *self)
{
    pthread_t   threads[3];
    struct user users[3];
    gm_comm    *half, *all;
    rank_create(self);
    int n_threads = ranks_threads();
    rank_ok(self, gm_comm_split(self->comm, self->rank % 2, 0, &half));
    rank_ok(self, gm_comm_split(self->comm, 1, 0, &all));
    users[0] = (struct user){ self, self->comm, 200 };
    users[1] = (struct user){ self, half, 300 };
    users[2] = (struct user){ self, all, 250 };
    for (int i = 0; i < 3; i++)
        rank_check(self, pthread_create(&threads[i], NULL, reduce_in_a_thread, &users[i]) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    rank_check(self, ranks_threads() == n_threads); /* one service thread serves all */
    gm_comm_destroy(all);
    gm_comm_destroy(half);
    rank_destroy(self);
}

static void each_may_be_used_by_a_thread_of_its_own(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = use_by_threads };
    ranks_run(state, &job);
}

/* ---- asynchronous work ----------------------------------------------------------------------- */

static void start_in_both(struct rank_self *self)
{
    static double a[COUNT], b[COUNT];
    gm_comm *half;
    gm_work *first, *second;
    rank_create(self);
    rank_ok(self, gm_comm_split(self->comm, self->rank % 2, 0, &half));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNT; i++) a[i] = b[i] = 1;
        rank_ok(self, gm_all_reduce_start(half, a, a, COUNT, GM_F64, GM_SUM, &first));
        rank_ok(self, gm_all_reduce_start(self->comm, b, b, COUNT, GM_F64, GM_SUM, &second));
        while (gm_work_test(first) == GM_AGAIN || gm_work_test(second) == GM_AGAIN)
            usleep(200); /* nobody helps */
        rank_ok(self, gm_work_test(first));
        rank_ok(self, gm_work_test(second));
        rank_check(self, a[COUNT - 1] == gm_comm_size(half) && b[0] == self->world_size);
        gm_work_release(first);
        gm_work_release(second);
    }
    gm_comm_destroy(half);
    rank_destroy(self);
}

static void the_service_thread_moves_the_work_of_all(void **state)
{
    struct ranks_job job = { .n_ranks = 5, .body = start_in_both };
    ranks_run(state, &job);
}

/* ---- nothing is left ------------------------------------------------------------------------- */

static void split_again_and_again(struct rank_self *self)
{
    rank_create(self);
    int descriptors = 0;
    for (int i = 0; i < 20; i++) {
        gm_comm *split;
        rank_ok(self, gm_comm_split(self->comm, 0, self->rank * (i % 2 ? -1 : 1), &split));
        rank_check(self, sum_of(self, split, 1) == self->world_size);
        gm_comm_destroy(split);
        rank_ok(self, gm_barrier(self->comm)); /* all have */
        if (i == 2) descriptors = ranks_open_descriptors();
        if (i > 2) rank_check(self, ranks_open_descriptors() <= descriptors + 2 * self->world_size);
    }
    rank_destroy(self);
}

static void destroyed_splits_leave_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = split_again_and_again };
    ranks_run(state, &job);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Of 4 ranks 1 and 3 are in a split, in which they are 1 and 0. */
static gm_comm *odd_ones(struct rank_self *self)
{
    gm_comm *split;
    rank_create(self);
    rank_ok(self, gm_comm_split(self->comm, self->rank % 2, -self->rank, &split));
    rank_ok(self, gm_barrier(split));
    rank_ok(self, gm_barrier(self->comm));
    rank_meet(self, 0, self->world_size);
    return split;
}

static void disagree_in_a_split(struct rank_self *self)
{
    gm_comm  *split = odd_ones(self);
    float     x[100] = { 0 };
    int64_t   begin_ns = gmi_now_ns();
    bool      is_odd = self->rank % 2 == 1;
    gm_status status = is_odd
                           ? gm_all_reduce(split, x, x, self->rank == 1 ? 10 : 100, GM_F32, GM_SUM)
                           : gm_barrier(self->comm);
    const gm_error *e = gm_comm_error(is_odd ? split : self->comm);
    rank_say(self, "%s", e->text);
    rank_expect(self, GM_ERR_MISMATCH, status);
    rank_check(self, gmi_now_ns() - begin_ns < 2000 * GMI_NS_PER_MS * ranks_slowness());
    rank_check(self, e->rank == self->rank &&
                         (e->culprit == 1 || e->culprit == 3)); /* as the root numbers them */
    rank_check(self,
               strstr(e->text, "rank 1 calls") != NULL && strstr(e->text, "rank 3 calls") != NULL);
    rank_check(self,
               strstr(e->text, ", 10 elems") != NULL && strstr(e->text, ", 100 elems") != NULL);
    rank_expect(self, GM_ERR_MISMATCH, gm_barrier(split)); /* what fails one fails all */
    rank_expect(self, GM_ERR_MISMATCH, gm_barrier(self->comm));
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void a_mismatch_in_a_split_fails_all_and_is_told_in_the_numbers_of_the_root(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = disagree_in_a_split };
    ranks_run(state, &job);
}

/* Algorithms without a link in common, so that only rank 0, which is in none of it, can tell. */
static void disagree_far_apart(struct rank_self *self)
{
    gm_comm *split;
    int32_t  x[8] = { 0 };
    rank_create(self);
    rank_ok(self, gm_comm_split(self->comm, self->rank == 0 ? -1 : 0, 0, &split));
    rank_meet(self, 0, self->world_size);
    gm_status status = self->rank == 0   ? gm_barrier(self->comm)
                       : self->rank == 3 ? gm_all_reduce(split, x, x, 8, GM_I32, GM_SUM)
                                         : gm_barrier(split);
    const gm_error *e = gm_comm_error(self->rank == 0 ? self->comm : split);
    rank_say(self, "%s", e->text);
    rank_expect(self, GM_ERR_MISMATCH, status);
    rank_check(self, strstr(e->text, "all_reduce") != NULL && strstr(e->text, "barrier") != NULL);
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void calls_of_a_split_that_differ_without_a_common_link_are_found(void **state)
{
    struct ranks_job job = { .n_ranks = 7, .body = disagree_far_apart };
    ranks_run(state, &job);
}

static void stall_in_a_split(struct rank_self *self)
{
    gm_comm *split = odd_ones(self);
    if (self->rank == 3) {
        rank_await(self, 1, 1);
        rank_expect(self, GM_ERR_TIMEOUT, gm_barrier(self->comm));
        rank_expect(self, GM_ERR_TIMEOUT, gm_barrier(split));
    } else {
        gm_status status = gm_barrier(self->rank == 1 ? split : self->comm);
        const gm_error *e = gm_comm_error(self->rank == 1 ? split : self->comm);
        rank_say(self, "%s", e->text);
        rank_expect(self, GM_ERR_TIMEOUT, status);
        rank_check(self, e->culprit == 3 && strstr(e->text, "waited for rank 3") != NULL);
        rank_mark(self, 1);
    }
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void who_does_not_come_to_a_split_is_named(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = stall_in_a_split, .stall_limit_ms = STALL_MS };
    ranks_run(state, &job);
}

static void die_in_a_split(struct rank_self *self)
{
    gm_comm *split = odd_ones(self);
    if (self->rank == 3) _exit(0);
    bool      is_odd = self->rank % 2 == 1;
    gm_status status = gm_barrier(is_odd ? split : self->comm);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(is_odd ? split : self->comm)->culprit == 3);
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void a_death_is_known_in_all_of_them(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = die_in_a_split };
    ranks_run(state, &job);
}

static void leave_a_split(struct rank_self *self)
{
    gm_comm *split = odd_ones(self);
    if (self->rank == 3) {
        gm_comm_destroy(split);
        split = NULL;
        rank_await(self, 1, 1); /* still a member of the root */
    } else if (self->rank == 1) {
        gm_status status = gm_barrier(split);
        rank_say(self, "%s", gm_comm_error(split)->text);
        rank_expect(self, GM_ERR_PEER_LOST, status);
        rank_check(self, gm_comm_error(split)->culprit == 3);
        rank_mark(self, 1);
    }
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void a_call_of_a_split_that_somebody_has_destroyed_fails(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = leave_a_split };
    ranks_run(state, &job);
}

/* Who has left the root is missed only by those who need it. */
static void go_on_without_one(struct rank_self *self)
{
    gm_comm *pair;
    int32_t  own = self->rank, other = -1;
    rank_create(self);
    rank_ok(self, gm_comm_split(self->comm, self->rank < 2 ? 0 : -1, 0, &pair));
    if (self->rank < 2) {
        rank_await(self, 1, 1);
        for (int i = 0; i < 20; i++) {
            rank_check(self, sum_of(self, pair, self->rank) == 1);
            rank_ok(self,
                    gm_sendrecv(self->comm, &own, 1, 1 - own, 3, &other, 1, 1 - own, 3, GM_I32));
            rank_check(self, other == 1 - own);
            rank_ok(self, gm_sendrecv(self->comm, &own, 1, own, 3, &other, 1, own, 3, GM_I32));
            rank_check(self, other == own);
        }
        rank_meet(self, 2, 2);
        rank_expect(self, GM_ERR_PEER_LOST, gm_barrier(self->comm));
        rank_check(self, strstr(gm_comm_error(self->comm)->text, "has left") != NULL);
        gm_comm_destroy(pair);
    } else {
        rank_destroy(self);
        rank_mark(self, 1);
        return;
    }
    rank_destroy(self);
}

static void who_has_left_is_missed_only_by_those_who_need_it(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = go_on_without_one };
    ranks_run(state, &job);
}

/* A process forked from a rank frees its copies, in any order, and nobody notices. */
static void fork_with_splits(struct rank_self *self)
{
    gm_comm *split;
    rank_create(self);
    rank_ok(self, gm_comm_split(self->comm, 0, 0, &split));
    rank_check(self, sum_of(self, split, 1) == self->world_size);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_refused = gm_barrier(split) == GM_ERR_STATE;
        if (self->rank % 2 == 0) gm_comm_destroy(split);
        gm_comm_destroy(self->comm);
        if (self->rank % 2 == 1) gm_comm_destroy(split);
        _exit(is_refused ? 0 : 1);
    }
    int status = -1;
    rank_check(self,
               waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rank_check(self, sum_of(self, split, 1) == self->world_size);
    rank_ok(self, gm_barrier(self->comm));
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void a_forked_child_may_destroy_its_copies(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = fork_with_splits };
    ranks_run(state, &job);
}

static void abort_a_split(struct rank_self *self)
{
    gm_comm *split = odd_ones(self);
    if (self->rank == 1) rank_ok(self, gm_comm_abort(split, "enough"));
    rank_expect(self, GM_ERR_ABORTED, gm_barrier(self->comm));
    rank_expect(self, GM_ERR_ABORTED, gm_barrier(split));
    rank_check(self, strstr(gm_comm_error(split)->text, "rank 1 aborted: enough") != NULL);
    gm_comm_destroy(split);
    rank_destroy(self);
}

static void an_abort_of_one_is_the_abort_of_all(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = abort_a_split };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(members_and_their_order_follow_from_colour_and_key),
        TEST(several_communicators_work_side_by_side),
        TEST(each_may_be_used_by_a_thread_of_its_own),
        TEST(the_service_thread_moves_the_work_of_all),
        TEST(destroyed_splits_leave_nothing),
        TEST(a_mismatch_in_a_split_fails_all_and_is_told_in_the_numbers_of_the_root),
        TEST(calls_of_a_split_that_differ_without_a_common_link_are_found),
        TEST(who_does_not_come_to_a_split_is_named),
        TEST(a_death_is_known_in_all_of_them),
        TEST(a_call_of_a_split_that_somebody_has_destroyed_fails),
        TEST(who_has_left_is_missed_only_by_those_who_need_it),
        TEST(a_forked_child_may_destroy_its_copies),
        TEST(an_abort_of_one_is_the_abort_of_all),
    };
    return cmocka_run_group_tests_name("splits", tests, NULL, NULL);
}
