/* A rank dies, or aborts: every survivor is told who, within a second, whatever it and the dead one were doing
 * and wherever they stand in the ring. The measured times are printed. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { BIG_ELEMS = 1 << 21, SMALL_ELEMS = 500, BOUND_MS = 1000, READY = 0, DEAD = 1, TOLD = 2, DIES = 1 };

/* What everybody is doing when the victim dies. */
enum moment { IN_BIG_CALLS, IN_SMALL_CALLS, BEFORE_A_BARRIER, IN_USER_CODE, N_MOMENTS };
static const char *const moment_names[] = { "in big all-reduces", "in small all-reduces", "waiting in a barrier",
                                            "in the caller's code" };

struct plan {
    enum moment moment;
    int         victim;
    bool        is_encrypted;
    bool        exits; /* with status 0 and without a goodbye, instead of being killed */
};

static gm_status reduce_until_it_fails(struct rank_self *self, size_t elems)
{
    float *values = calloc(elems, sizeof *values);
    gm_status status;
    do {
        status = gm_all_reduce(self->comm, values, values, elems, GM_F32, GM_SUM);
    } while (status == GM_OK);
    free(values);
    return status;
}

static gm_status live_until_told(struct rank_self *self, enum moment moment)
{
    switch (moment) {
    case IN_BIG_CALLS: return reduce_until_it_fails(self, BIG_ELEMS);
    case IN_SMALL_CALLS: return reduce_until_it_fails(self, SMALL_ELEMS);
    case BEFORE_A_BARRIER: return gm_barrier(self->comm);
    default:
        rank_await(self, DEAD, 1);
        return gm_barrier(self->comm);
    }
}

static void check_record(struct rank_self *self, const struct plan *plan)
{
    const gm_error *e = gm_comm_error(self->comm);
    if (e->status == GM_ERR_PEER_LOST && e->culprit == plan->victim && e->rank == self->rank) return;
    rank_fail(self, __FILE__, __LINE__, "%s, culprit %d: %s", gm_status_name(e->status), e->culprit, e->text);
}

static void survive(struct rank_self *self, const struct plan *plan)
{
    gm_status status = live_until_told(self, plan->moment);
    rank_record(self, status);
    check_record(self, plan);
    gm_error first = *gm_comm_error(self->comm);
    int64_t  begin_ns = gmi_now_ns();
    rank_expect(self, GM_ERR_PEER_LOST, gm_barrier(self->comm));
    check_record(self, plan);
    rank_check(self, strcmp(first.text, gm_comm_error(self->comm)->text) == 0);
    rank_mark(self, TOLD);
    rank_destroy(self);
    rank_check(self, gmi_now_ns() - begin_ns < BOUND_MS * GMI_NS_PER_MS * ranks_slowness());
}

static void live(struct rank_self *self)
{
    const struct plan *plan = self->user;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_mark(self, READY);
    if (self->rank != plan->victim) {
        survive(self, plan);
        return;
    }
    if (plan->moment == IN_BIG_CALLS) reduce_until_it_fails(self, BIG_ELEMS);
    if (plan->moment == IN_SMALL_CALLS) reduce_until_it_fails(self, SMALL_ELEMS);
    rank_await(self, DIES, 2); /* never: it is killed here */
}

static void die_by_exit(struct rank_self *self)
{
    const struct plan *plan = self->user;
    rank_create(self);
    rank_meet(self, READY, self->world_size);
    if (self->rank != plan->victim) {
        survive(self, plan);
        return;
    }
    atomic_store(&self->shared->times_ns[DEAD], gmi_now_ns());
    _exit(0);
}

/* The longest time until a survivor knew, in ms. */
static int64_t worst_ms(struct ranks *r, int n_ranks, int victim)
{
    const struct ranks_shared *shared = ranks_shared(r);
    int64_t dead_ns = atomic_load(&shared->times_ns[DEAD]), worst = 0;
    for (int k = 0; k < n_ranks; k++) {
        if (k == victim) continue;
        int64_t took_ms = (shared->records[k].at_ns - dead_ns) / GMI_NS_PER_MS;
        if (took_ms > worst) worst = took_ms;
    }
    return worst;
}

static int64_t kill_one(void **state, int n_ranks, const struct plan *plan)
{
    struct ranks_job job = { .n_ranks = n_ranks, .body = live, .user = plan, .is_encrypted = plan->is_encrypted };
    struct ranks *r = ranks_start(state, &job);
    ranks_expect_signal(r, plan->victim, SIGKILL);
    ranks_await(r, READY, n_ranks);
    ranks_serve(r, plan->moment == IN_USER_CODE ? 1 : 8);
    atomic_store(&ranks_shared(r)->times_ns[DEAD], gmi_now_ns());
    ranks_signal(r, plan->victim, SIGKILL);
    ranks_serve(r, plan->moment == IN_USER_CODE ? 20 : 0);
    atomic_store(&ranks_shared(r)->marks[DEAD], 1);
    ranks_finish(r);
    return worst_ms(r, n_ranks, plan->victim);
}

static void kill_each(void **state, int n_ranks)
{
    for (int m = 0; m < N_MOMENTS; m++) {
        int64_t worst = 0;
        for (int victim = 0; victim < n_ranks; victim++) {
            struct plan plan = { .moment = (enum moment)m, .victim = victim };
            int64_t took_ms = kill_one(state, n_ranks, &plan);
            if (took_ms > worst) worst = took_ms;
        }
        print_message("# %d ranks, killed %s: all knew after %lld ms at the most\n", n_ranks, moment_names[m],
                      (long long)worst);
        assert_true(worst < BOUND_MS * ranks_slowness());
    }
}

static void the_other_of_two_names_the_dead_one(void **state) { kill_each(state, 2); }
static void all_of_four_name_the_dead_one(void **state) { kill_each(state, 4); }
static void all_of_five_name_the_dead_one(void **state) { kill_each(state, 5); }
static void all_of_eight_name_the_dead_one(void **state) { kill_each(state, 8); }

static void with_encryption_all_name_the_dead_one_as_soon(void **state)
{
    for (int m = 0; m < N_MOMENTS; m++) {
        struct plan plan = { .moment = (enum moment)m, .victim = m % 3, .is_encrypted = true };
        assert_true(kill_one(state, 3, &plan) < BOUND_MS * ranks_slowness());
    }
}

static void leaving_without_a_goodbye_is_a_loss(void **state)
{
    for (int victim = 0; victim < 3; victim++) {
        struct plan      plan = { .moment = BEFORE_A_BARRIER, .victim = victim };
        struct ranks_job job = { .n_ranks = 3, .body = die_by_exit, .user = &plan };
        assert_true(worst_ms(ranks_run(state, &job), 3, victim) < BOUND_MS * ranks_slowness());
    }
}

static void a_hand_started_job_survives_the_loss_of_rank_0_no_worse(void **state)
{
    struct plan      plan = { .moment = BEFORE_A_BARRIER, .victim = 0 };
    struct ranks_job job = { .n_ranks = 4, .body = die_by_exit, .user = &plan, .is_hand_started = true };
    assert_true(worst_ms(ranks_run(state, &job), 4, 0) < BOUND_MS * ranks_slowness());
}

/* ---- abort ---------------------------------------------------------------------------------------- */

static const char reason[] = "the loss is not a number";

static void check_abort(struct rank_self *self, int culprit)
{
    const gm_error *e = gm_comm_error(self->comm);
    rank_check(self, e->status == GM_ERR_ABORTED && e->culprit == culprit);
    rank_check(self, strstr(e->text, reason) != NULL && strchr(e->text, '\n') == NULL);
}

static void abort_one(struct rank_self *self)
{
    int culprit = *(const int *)self->user;
    rank_create(self);
    rank_meet(self, READY, self->world_size);
    if (self->rank == culprit) {
        atomic_store(&self->shared->times_ns[DEAD], gmi_now_ns());
        rank_ok(self, gm_comm_abort(self->comm, "the loss is not a number\nand more"));
        rank_ok(self, gm_comm_abort(self->comm, "a second reason, which is not the first"));
    }
    rank_expect(self, GM_ERR_ABORTED, gm_barrier(self->comm));
    rank_record(self, GM_ERR_ABORTED);
    check_abort(self, culprit);
    rank_expect(self, GM_ERR_ABORTED, gm_barrier(self->comm));
    check_abort(self, culprit);
    rank_destroy(self);
}

static void an_abort_fails_all_with_its_reason(void **state)
{
    for (int n = 1; n <= 5; n += 2) {
        for (int culprit = 0; culprit < n; culprit++) {
            struct ranks_job job = { .n_ranks = n, .body = abort_one, .user = &culprit };
            assert_true(worst_ms(ranks_run(state, &job), n, -1) < BOUND_MS * ranks_slowness());
        }
    }
}

static void *abort_it(void *user)
{
    struct rank_self *self = user;
    rank_await(self, READY, self->world_size);
    gm_comm_abort(self->comm, reason);
    return NULL;
}

/* Rank 1's own call is under way, and returns. */
static void abort_from_another_thread(struct rank_self *self)
{
    pthread_t thread;
    rank_create(self);
    if (self->rank == 1) rank_check(self, pthread_create(&thread, NULL, abort_it, self) == 0);
    rank_mark(self, READY);
    rank_expect(self, GM_ERR_ABORTED, reduce_until_it_fails(self, BIG_ELEMS));
    check_abort(self, 1);
    if (self->rank == 1) pthread_join(thread, NULL);
    rank_destroy(self);
}

static void an_abort_by_another_thread_ends_the_calls_in_progress(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = abort_from_another_thread };
    ranks_run(state, &job);
}

static void abort_nothing(struct rank_self *self)
{
    rank_create(self);
    rank_expect(self, GM_ERR_ARG, gm_comm_abort(NULL, reason));
    rank_expect(self, GM_ERR_ARG, gm_comm_abort(self->comm, NULL));
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void an_abort_without_a_reason_does_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = abort_nothing };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_other_of_two_names_the_dead_one),
        TEST(all_of_four_name_the_dead_one),
        TEST(all_of_five_name_the_dead_one),
        TEST(all_of_eight_name_the_dead_one),
        TEST(with_encryption_all_name_the_dead_one_as_soon),
        TEST(leaving_without_a_goodbye_is_a_loss),
        TEST(a_hand_started_job_survives_the_loss_of_rank_0_no_worse),
        TEST(an_abort_fails_all_with_its_reason),
        TEST(an_abort_by_another_thread_ends_the_calls_in_progress),
        TEST(an_abort_without_a_reason_does_nothing),
    };
    return cmocka_run_group_tests_name("death", tests, NULL, NULL);
}
