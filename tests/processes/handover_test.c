/* Rank 0, over which all word travels, may leave before the others: another one takes its place, and a death after
 * that is still told to all, also to those who have no link to the dead one. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/ranks.h"

enum { N = 6, BOUND_MS = 1000, LONG_BOUND_MS = 6000, ROUNDS = 8, LATE_MS = 150, READY = 0, LEFT = 1, DIES = 2, TOLD = 3, MAY_LEAVE = 4 };

struct plan {
    int  n_leave; /* ranks 0 .. n_leave - 1, one after the other */
    int  victim;
    bool is_in_user_code; /* else each survivor waits for a message of another one */
};

/* Among those who neither leave nor die, the next one. */
static int next_survivor(const struct plan *plan, int rank)
{
    do {
        rank = (rank + 1) % N;
    } while (rank < plan->n_leave || rank == plan->victim);
    return rank;
}

static gm_status wait_for_news(struct rank_self *self, const struct plan *plan)
{
    int x = 0;
    if (plan->is_in_user_code) {
        rank_await(self, DIES, 1);
        nanosleep(&(struct timespec){ .tv_nsec = 500 * 1000000L }, NULL);
        int64_t   begin_ns = gmi_now_ns();
        gm_status status = gm_send(self->comm, &x, 1, GM_I32, next_survivor(plan, self->rank), 0);
        rank_check(self, gmi_now_ns() - begin_ns < 100 * GMI_NS_PER_MS * ranks_slowness());
        return status;
    }
    return gm_recv(self->comm, &x, 1, GM_I32, next_survivor(plan, self->rank), 0);
}

static void live(struct rank_self *self)
{
    const struct plan *plan = self->user;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_mark(self, READY);
    if (self->rank < plan->n_leave) {
        rank_await(self, LEFT, self->rank);
        rank_destroy(self);
        rank_mark(self, LEFT);
        return;
    }
    if (self->rank == plan->victim) rank_await(self, TOLD, N); /* never */
    gm_status status = wait_for_news(self, plan);
    rank_record(self, status);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(self->comm)->culprit == plan->victim);
    rank_mark(self, TOLD);
    rank_destroy(self);
}

static int64_t kill_and_time(void **state, const struct plan *plan, int after_ms)
{
    struct ranks_job job = { .n_ranks = N, .body = live, .user = plan };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, N);
    if (after_ms >= 0) ranks_serve(r, after_ms);
    else ranks_await(r, LEFT, plan->n_leave);
    ranks_expect_signal(r, plan->victim, SIGKILL);
    if (after_ms < 0) ranks_serve(r, 100);
    int64_t killed_ns = gmi_now_ns(), slowest_ms = 0;
    ranks_signal(r, plan->victim, SIGKILL);
    atomic_store(&ranks_shared(r)->marks[DIES], 1);
    ranks_finish(r);
    for (int k = plan->n_leave; k < N; k++) {
        int64_t took_ms = (ranks_shared(r)->records[k].at_ns - killed_ns) / GMI_NS_PER_MS;
        if (k != plan->victim && took_ms > slowest_ms) slowest_ms = took_ms;
    }
    print_message("%d left, rank %d killed: all know after %lld ms\n", plan->n_leave, plan->victim, (long long)slowest_ms);
    return slowest_ms;
}

static void a_death_after_rank_0_has_left_is_told_to_all(void **state)
{
    assert_true(kill_and_time(state, &(struct plan){ 1, 3, false }, -1) < BOUND_MS * ranks_slowness());
    assert_true(kill_and_time(state, &(struct plan){ 1, 5, true }, -1) < BOUND_MS * ranks_slowness());
}

static void so_it_is_after_the_next_ones_have_left_too(void **state)
{
    assert_true(kill_and_time(state, &(struct plan){ 2, 4, false }, -1) < BOUND_MS * ranks_slowness());
    assert_true(kill_and_time(state, &(struct plan){ 2, 3, true }, -1) < BOUND_MS * ranks_slowness());
}

static void the_one_that_took_over_dies(void **state)
{
    assert_true(kill_and_time(state, &(struct plan){ 1, 1, false }, -1) < BOUND_MS * ranks_slowness());
    assert_true(kill_and_time(state, &(struct plan){ 2, 2, true }, -1) < BOUND_MS * ranks_slowness());
}

/* In the middle of the handover the one that takes over may not have met everybody; heartbeats tell then. */
static void a_death_while_rank_0_leaves_is_not_lost(void **state)
{
    for (int i = 0; i < ROUNDS; i++) {
        int         victim = 1 + (int)gmi_rng_below(11, (uint64_t)i, N - 1);
        struct plan plan = { 1, victim, false };
        assert_true(kill_and_time(state, &plan, (int)gmi_rng_below(12, (uint64_t)i, 40)) < LONG_BOUND_MS * ranks_slowness());
    }
}

/* ---- who has not called the new middle yet ------------------------------------------------------------- */

/* Rank 0 leaves, and LATE_MS later it happens, while one rank is stopped. */
struct late_plan {
    int stopped, culprit;
    bool is_abort; /* else a death */
};

static void be_late(struct rank_self *self)
{
    const struct late_plan *plan = self->user;
    int x = 0;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_mark(self, READY);
    if (self->rank == 0) {
        rank_await(self, MAY_LEAVE, 1);
        rank_destroy(self);
        return;
    }
    if (self->rank == plan->culprit) {
        rank_await(self, DIES, 1);
        rank_ok(self, gm_comm_abort(self->comm, "the disk is full"));
        rank_destroy(self);
        return;
    }
    int from = self->rank == N - 1 ? 1 : self->rank + 1;
    if (from == plan->culprit) from = from == N - 1 ? 1 : from + 1;
    gm_status status = gm_recv(self->comm, &x, 1, GM_I32, from, 0);
    rank_record(self, status);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, plan->is_abort ? GM_ERR_ABORTED : GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(self->comm)->culprit == plan->culprit);
    rank_check(self, !plan->is_abort || strstr(gm_comm_error(self->comm)->text, "the disk is full") != NULL);
    rank_destroy(self);
}

/* Who is stopped for two seconds is lost: however slow all is, it must be less. */
static int late_slowness(void) { return ranks_slowness() < 6 ? ranks_slowness() : 6; }

static void move_late(void **state, const struct late_plan *plan)
{
    struct ranks_job job = { .n_ranks = N, .body = be_late, .user = plan };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, N);
    ranks_signal(r, plan->stopped, SIGSTOP);
    atomic_store(&ranks_shared(r)->marks[MAY_LEAVE], 1);
    ranks_serve(r, LATE_MS * late_slowness());
    if (plan->is_abort) {
        atomic_store(&ranks_shared(r)->marks[DIES], 1);
    } else {
        ranks_expect_signal(r, plan->culprit, SIGKILL);
        ranks_signal(r, plan->culprit, SIGKILL);
    }
    ranks_serve(r, LATE_MS);
    ranks_signal(r, plan->stopped, SIGCONT);
    ranks_finish(r);
}

static void who_calls_the_new_middle_late_hears_the_reason(void **state)
{
    move_late(state, &(struct late_plan){ .stopped = 3, .culprit = 4 });
    move_late(state, &(struct late_plan){ .stopped = 5, .culprit = 2, .is_abort = true });
}

static void who_fails_before_the_new_middle_takes_over_tells_it_the_reason(void **state)
{
    move_late(state, &(struct late_plan){ .stopped = 1, .culprit = 3, .is_abort = true });
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_death_after_rank_0_has_left_is_told_to_all),
        TEST(so_it_is_after_the_next_ones_have_left_too),
        TEST(the_one_that_took_over_dies),
        TEST(a_death_while_rank_0_leaves_is_not_lost),
        TEST(who_calls_the_new_middle_late_hears_the_reason),
        TEST(who_fails_before_the_new_middle_takes_over_tells_it_the_reason),
    };
    return cmocka_run_group_tests_name("handover", tests, NULL, NULL);
}
