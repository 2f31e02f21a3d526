/* Ranks that leave: at the end of a good job it is no failure, in whatever order they go and however far the
 * others are; in the middle of one, the others are told who has left. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/ranks.h"

enum { N = 4, REPEATS = 50, TURN = 0, ENTERED = 1, QUICK_MS = 500 };

static void check_all_reduce(struct rank_self *self, size_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = self->rank + 1;
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F64, GM_SUM));
    double sum = self->world_size * (self->world_size + 1) / 2.0;
    for (size_t i = 0; i < count; i++) rank_check(self, values[i] == sum);
    free(values);
}

static void leave_quickly(struct rank_self *self)
{
    int64_t begin_ns = gmi_now_ns();
    rank_destroy(self);
    rank_check(self, gmi_now_ns() - begin_ns < QUICK_MS * GMI_NS_PER_MS * ranks_slowness());
}

/* ---- a good end ----------------------------------------------------------------------------------- */

/* The place of a rank in permutation number `index` of N. */
static int place_in(int index, int rank)
{
    int order[N], n_left = N;
    for (int i = 0; i < N; i++) order[i] = i;
    for (int place = 0; place < N; place++) {
        int pick = index % n_left, chosen = order[pick];
        index /= n_left;
        if (chosen == rank) return place;
        memmove(&order[pick], &order[pick + 1], (size_t)(N - 1 - pick) * sizeof order[0]);
        n_left--;
    }
    return -1;
}

static void leave_in_order(struct rank_self *self)
{
    int order = *(const int *)self->user;
    rank_create(self);
    check_all_reduce(self, (size_t)(order % 3) * 5000 + 3);
    if (order % 2 == 0) rank_ok(self, gm_barrier(self->comm));
    rank_await(self, TURN, place_in(order, self->rank));
    leave_quickly(self);
    rank_mark(self, TURN);
}

static void ranks_may_leave_in_any_order(void **state)
{
    for (int order = 0; order < 24; order++) {
        struct ranks_job job = { .n_ranks = N, .body = leave_in_order, .user = &order, .is_hand_started = order % 4 == 3 };
        ranks_run(state, &job);
    }
}

static void leave_at_once(struct rank_self *self)
{
    size_t count = *(const size_t *)self->user;
    rank_create(self);
    if (count > 0) check_all_reduce(self, count);
    leave_quickly(self);
}

static void a_very_short_job_ends_well_every_time(void **state)
{
    const size_t counts[] = { 0, 1, 5, 3000, 100000 };
    for (int i = 0; i < REPEATS; i++) {
        struct ranks_job job = { .n_ranks = 2 + i % 4, .body = leave_at_once, .user = &counts[i % 5] };
        ranks_run(state, &job);
    }
}

/* Some are through with their part of the last call, and gone, before others have begun theirs. */
static void be_late_for_the_last_broadcast(struct rank_self *self)
{
    int    round = *(const int *)self->user, root = round % self->world_size;
    size_t count = round % 2 ? 100 : 300000;
    float *values = calloc(count, sizeof *values);
    rank_create(self);
    if (self->rank == root) values[count - 1] = 42;
    struct timespec late = { .tv_nsec = (long)gmi_rng_below((uint64_t)round, (uint64_t)self->rank, 10) * 1000000 };
    nanosleep(&late, NULL);
    rank_ok(self, gm_broadcast(self->comm, values, count, GM_F32, root));
    rank_check(self, values[count - 1] == 42);
    leave_quickly(self);
    free(values);
}

static void who_is_through_does_not_disturb_who_is_not(void **state)
{
    for (int round = 0; round < 30; round++) {
        struct ranks_job job = { .n_ranks = 3 + round % 3, .body = be_late_for_the_last_broadcast, .user = &round };
        ranks_run(state, &job);
    }
}

/* ---- leaving too early ----------------------------------------------------------------------------- */

static void leave_too_early(struct rank_self *self)
{
    int leaver = *(const int *)self->user;
    rank_create(self);
    check_all_reduce(self, 10);
    rank_meet(self, TURN, self->world_size);
    if (self->rank == leaver) {
        /* Some wait in the next call already, some will only come to it. */
        rank_await(self, ENTERED, 1);
        leave_quickly(self);
        return;
    }
    if (self->rank == (leaver + 1) % self->world_size) rank_mark(self, ENTERED);
    int64_t   begin_ns = gmi_now_ns();
    gm_status status;
    do {
        status = gm_barrier(self->comm);
    } while (status == GM_OK);
    const gm_error *e = gm_comm_error(self->comm);
    rank_check(self, gmi_now_ns() - begin_ns < QUICK_MS * GMI_NS_PER_MS * ranks_slowness());
    rank_check(self, status == GM_ERR_PEER_LOST && e->culprit == leaver && e->op_seq == 2);
    rank_check(self, strstr(e->text, "has left") != NULL && strstr(e->text, "after call #1") != NULL);
    leave_quickly(self);
}

static void who_leaves_too_early_is_named(void **state)
{
    for (int n = 2; n <= N; n++) {
        for (int leaver = 0; leaver < n; leaver++) {
            struct ranks_job job = { .n_ranks = n, .body = leave_too_early, .user = &leaver };
            ranks_run(state, &job);
        }
    }
}

/* ---- a peer that does not answer the goodbye ------------------------------------------------------- */

static void leave_a_stopped_one(struct rank_self *self)
{
    rank_create(self);
    check_all_reduce(self, 10);
    rank_mark(self, ENTERED);
    if (self->rank == 1) {
        raise(SIGSTOP);
    } else {
        rank_await(self, TURN, 1);
    }
    int64_t begin_ns = gmi_now_ns();
    rank_destroy(self);
    rank_check(self, gmi_now_ns() - begin_ns < 3000 * GMI_NS_PER_MS);
    rank_mark(self, TURN);
}

static void a_goodbye_waits_two_seconds_at_the_most(void **state)
{
    if (getenv("GRADMESH_TEST_LONG") == NULL) skip();
    struct ranks_job job = { .n_ranks = 3, .body = leave_a_stopped_one };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, ENTERED, 3);
    ranks_serve(r, 50);
    atomic_store(&ranks_shared(r)->marks[TURN], 1);
    ranks_await(r, TURN, 3);
    ranks_signal(r, 1, SIGCONT);
    ranks_finish(r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(ranks_may_leave_in_any_order),
        TEST(a_very_short_job_ends_well_every_time),
        TEST(who_is_through_does_not_disturb_who_is_not),
        TEST(who_leaves_too_early_is_named),
        TEST(a_goodbye_waits_two_seconds_at_the_most),
    };
    return cmocka_run_group_tests_name("goodbye", tests, NULL, NULL);
}
