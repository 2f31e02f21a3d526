/* The stall limit: it ends a wait in which no byte moves, names the rank that has not come, and starts
 * anew whenever a byte has moved. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { QUICK_STALL_MS = 300, SLEEPER = 2, HANDS_OFF = 0, STOPPED = 1, OVER = 2, BIG_ELEMS = 1 << 22 };

static int stall_ms(void) { return QUICK_STALL_MS * (ranks_slowness() > 1 ? 4 : 1); }

static void nap_ms(int ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

static gm_status call(struct rank_self *self, gm_collective which)
{
    static float values[1000];
    switch (which) {
    case GM_ALL_REDUCE: return gm_all_reduce(self->comm, values, values, 1000, GM_F32, GM_SUM);
    case GM_BROADCAST: return gm_broadcast(self->comm, values, 1000, GM_F32, SLEEPER);
    default: return gm_barrier(self->comm);
    }
}

/* ---- a rank that does not come -------------------------------------------------------------------- */

static void wait_for_the_sleeper(struct rank_self *self)
{
    gm_collective which = *(const gm_collective *)self->user;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == SLEEPER) {
        rank_await(self, OVER, self->world_size - 1);
        /* It hears of it, too; at once, unless word has not come yet and all that it needs is there (a root's). */
        gm_status status = call(self, which);
        if (status == GM_OK) status = gm_barrier(self->comm);
        rank_expect(self, GM_ERR_TIMEOUT, status);
    } else {
        /* The limit is that of the first who has waited for so long; the others have begun a little later. */
        int64_t begin_ns = gmi_now_ns(), first_ns = 0;
        if (!atomic_compare_exchange_strong(&self->shared->times_ns[OVER], &first_ns, begin_ns)) begin_ns = first_ns;
        rank_expect(self, GM_ERR_TIMEOUT, call(self, which));
        int64_t took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
        const gm_error *e = gm_comm_error(self->comm);
        rank_say(self, "%lld ms: %s", (long long)took_ms, e->text);
        rank_check(self, took_ms >= stall_ms() - 1 && took_ms < 2 * stall_ms());
        rank_check(self, e->culprit == SLEEPER && e->op_seq == 2);
        rank_check(self, strstr(e->text, "has not entered") != NULL && strstr(e->text, "rank 2") != NULL);
        rank_mark(self, OVER);
    }
    rank_destroy(self);
}

static void a_rank_that_does_not_come_is_named_by_all(void **state)
{
    const gm_collective kinds[] = { GM_ALL_REDUCE, GM_BROADCAST, GM_BARRIER };
    const char *const   algorithms[] = { "auto", "ring" };
    for (int i = 0; i < 5; i++) {
        struct ranks_job job = { .n_ranks = i < 3 ? 5 : 4, .body = wait_for_the_sleeper, .user = &kinds[i % 3],
                                 .algorithm = algorithms[i / 3], .stall_limit_ms = stall_ms() };
        ranks_run(state, &job);
    }
}

/* Two do not come, and everybody hears of both. */
enum { SLOW_STALL_MS = 1500, OTHER_SLEEPER = 5 };

static void wait_for_two_sleepers(struct rank_self *self)
{
    int first = *(const int *)self->user;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == first || self->rank == OTHER_SLEEPER) {
        rank_await(self, OVER, self->world_size - 2);
    } else {
        char names[2][16];
        rank_expect(self, GM_ERR_TIMEOUT, call(self, GM_ALL_REDUCE));
        const char *text = gm_comm_error(self->comm)->text;
        int         culprit = gm_comm_error(self->comm)->culprit;
        rank_say(self, "%s", text);
        snprintf(names[0], sizeof names[0], "nor has rank %d", culprit == first ? OTHER_SLEEPER : first);
        snprintf(names[1], sizeof names[1], "nor has rank");
        rank_check(self, culprit == first || culprit == OTHER_SLEEPER);
        rank_check(self, strstr(text, names[0]) != NULL && strstr(strstr(text, names[1]) + 1, names[1]) == NULL);
        rank_mark(self, OVER);
    }
    rank_destroy(self);
}

static void all_who_are_missing_are_named(void **state)
{
    for (int first = 0; first <= 2; first += 2) { /* rank 0, to which all tell, may be the one that is missing */
        struct ranks_job job = { .n_ranks = 6, .body = wait_for_two_sleepers, .user = &first, .algorithm = first ? "ring" : "auto",
                                 .stall_limit_ms = SLOW_STALL_MS * ranks_slowness() };
        ranks_run(state, &job);
    }
}

/* ---- a rank that is stopped ----------------------------------------------------------------------- */

/* The root of a broadcast is through at once and waits in its next call for rank 2, who still waits for rank 1 in
 * the first: rank 1 is to blame. */
static void be_a_call_ahead(struct rank_self *self)
{
    float values[10] = { 0 };
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == 1) {
        rank_await(self, OVER, 2);
    } else {
        gm_status status = gm_broadcast(self->comm, values, 10, GM_F32, 0);
        if (self->rank == 0) {
            rank_ok(self, status);
            status = gm_all_reduce(self->comm, values, values, 10, GM_F32, GM_SUM);
        }
        rank_expect(self, GM_ERR_TIMEOUT, status);
        rank_check(self, gm_comm_error(self->comm)->culprit == 1);
        rank_mark(self, OVER);
    }
    rank_destroy(self);
}

static void who_waits_in_a_later_call_does_not_blame_who_waits_in_an_earlier_one(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = be_a_call_ahead, .algorithm = "ring", .stall_limit_ms = stall_ms() };
    ranks_run(state, &job);
}

static void reduce_until_stopped(struct rank_self *self)
{
    int    stopped = *(const int *)self->user;
    float *values = calloc(BIG_ELEMS, sizeof *values);
    rank_create(self);
    rank_mark(self, HANDS_OFF);
    gm_status status;
    do {
        status = gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM);
    } while (status == GM_OK);
    int64_t at_ns = gmi_now_ns() - atomic_load(&self->shared->times_ns[STOPPED]);
    rank_say(self, "%lld ms after the stop: %s", (long long)(at_ns / GMI_NS_PER_MS), gm_comm_error(self->comm)->text);
    /* Some give up at the limit, others wait until its silence is explained; all name the same. */
    rank_check(self, status == GM_ERR_TIMEOUT || status == GM_ERR_PEER_LOST);
    if (self->rank != stopped) rank_check(self, gm_comm_error(self->comm)->culprit == stopped);
    rank_mark(self, OVER);
    rank_destroy(self);
    free(values);
}

/* Rank 0 too, which is the one that the others ask. */
static void stop(void **state, int stopped)
{
    struct ranks_job job = { .n_ranks = 4, .body = reduce_until_stopped, .user = &stopped, .stall_limit_ms = stall_ms() };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, HANDS_OFF, 4);
    ranks_serve(r, 20);
    atomic_store(&ranks_shared(r)->times_ns[STOPPED], gmi_now_ns());
    ranks_signal(r, stopped, SIGSTOP);
    ranks_await(r, OVER, 3);
    ranks_signal(r, stopped, SIGCONT);
    ranks_finish(r);
}

static void a_stopped_rank_is_named_and_hears_of_it_when_it_goes_on(void **state)
{
    stop(state, 2);
    stop(state, 0);
}

/* ---- a limit that starts anew --------------------------------------------------------------------- */

/* Far longer than the limit in all, but never still for so long. */
static void reduce_slowly(struct rank_self *self)
{
    float *values = calloc(BIG_ELEMS, sizeof *values);
    rank_create(self);
    rank_mark(self, HANDS_OFF);
    while (atomic_load(&self->shared->marks[OVER]) == 0) {
        rank_ok(self, gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM));
        float go_on = atomic_load(&self->shared->marks[OVER]) == 0;
        rank_ok(self, gm_all_reduce(self->comm, &go_on, &go_on, 1, GM_F32, GM_MIN)); /* all end alike */
        if (go_on == 0) break;
    }
    rank_destroy(self);
    free(values);
}

static void a_rank_that_crawls_is_not_given_up(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = reduce_slowly, .stall_limit_ms = stall_ms() };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, HANDS_OFF, 3);
    for (int i = 0; i < 4; i++) {
        ranks_signal(r, 1, SIGSTOP);
        ranks_serve(r, stall_ms() * 2 / 5);
        ranks_signal(r, 1, SIGCONT);
        ranks_serve(r, 2 * ranks_slowness());
    }
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
}

/* ---- signals are no progress ---------------------------------------------------------------------- */

static void on_alarm(int signal_number) { (void)signal_number; }

static void wait_under_alarms(struct rank_self *self)
{
    rank_create(self);
    if (self->rank == 0) {
        struct sigaction  action = { .sa_handler = on_alarm };
        struct itimerval  often = { .it_interval.tv_usec = 20000, .it_value.tv_usec = 20000 };
        const struct itimerval never = { 0 };
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &often, NULL);
        int64_t begin_ns = gmi_now_ns();
        rank_expect(self, GM_ERR_TIMEOUT, gm_barrier(self->comm));
        rank_check(self, gmi_now_ns() - begin_ns < 3 * stall_ms() * GMI_NS_PER_MS);
        setitimer(ITIMER_REAL, &never, NULL);
        rank_mark(self, OVER);
    } else {
        rank_await(self, OVER, 1);
    }
    rank_destroy(self);
}

static void a_timer_of_the_caller_does_not_put_the_limit_off(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = wait_under_alarms, .stall_limit_ms = stall_ms(), .limit_ms = 5000 };
    ranks_run(state, &job);
}

/* ---- no limit ------------------------------------------------------------------------------------- */

static void wait_without_limit(struct rank_self *self)
{
    self->options.stall_limit_ms = 0;
    rank_create(self);
    if (self->rank == 1) nap_ms(QUICK_STALL_MS + 100);
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void zero_is_no_limit(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = wait_without_limit };
    ranks_run(state, &job);
}

/* ---- limits that are changed ----------------------------------------------------------------------- */

static void change_limits(struct rank_self *self)
{
    rank_create(self);
    rank_check(self, gm_comm_set_stall_limit(self->comm, -1) == -1 && gm_comm_set_stall_limit(NULL, 5) == -1);
    rank_check(self, gm_comm_set_stall_limit(self->comm, stall_ms()) == self->options.stall_limit_ms);
    rank_check(self, gm_comm_set_call_limit(self->comm, 0) == 0);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == 0) {
        int64_t begin_ns = gmi_now_ns();
        rank_expect(self, GM_ERR_TIMEOUT, gm_barrier(self->comm));
        int64_t took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
        rank_check(self, took_ms >= stall_ms() - 1 && took_ms < stall_ms() + 1500);
        rank_mark(self, OVER);
    } else {
        rank_await(self, OVER, 1);
    }
    rank_destroy(self);
}

static void the_stall_limit_can_be_changed(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = change_limits };
    ranks_run(state, &job);
}

/* Rank 1 crawls: there is always a byte that has moved, so only the limit of the call can end this. */
static void take_too_long(struct rank_self *self)
{
    enum { HUGE_ELEMS = 1 << 24 };
    float *values = calloc(HUGE_ELEMS, sizeof *values);
    rank_create(self);
    gm_comm_set_call_limit(self->comm, 600);
    rank_mark(self, HANDS_OFF);
    int64_t   begin_ns;
    gm_status status;
    do {
        begin_ns = gmi_now_ns();
        status = gm_all_reduce(self->comm, values, values, HUGE_ELEMS, GM_F32, GM_SUM);
    } while (status == GM_OK);
    int64_t took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
    rank_say(self, "%lld ms: %s", (long long)took_ms, gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_TIMEOUT, status);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "longer than its limit of 600 ms") != NULL);
    rank_mark(self, OVER);
    rank_destroy(self);
    free(values);
}

static void a_call_limit_ends_a_call_that_is_slow_but_not_still(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = take_too_long };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, HANDS_OFF, 2);
    while (atomic_load(&ranks_shared(r)->marks[OVER]) == 0) {
        ranks_signal(r, 1, SIGSTOP);
        ranks_serve(r, 100);
        ranks_signal(r, 1, SIGCONT);
        ranks_serve(r, 1);
    }
    ranks_signal(r, 1, SIGCONT);
    ranks_finish(r);
}

/* Every blocking call ends by it: also a message, and the wait for a connection. */
static void wait_for_nobody(struct rank_self *self)
{
    int x = 0;
    rank_create(self);
    gm_comm_set_call_limit(self->comm, stall_ms());
    if (self->rank == 0) {
        int64_t begin_ns = gmi_now_ns();
        rank_expect(self, GM_ERR_TIMEOUT, gm_recv(self->comm, &x, 1, GM_I32, 1, 0));
        rank_check(self, gmi_now_ns() - begin_ns < (stall_ms() + 1500) * GMI_NS_PER_MS);
        rank_say(self, "%s", gm_comm_error(self->comm)->text);
        rank_check(self, strstr(gm_comm_error(self->comm)->text, "rank 0 waited for rank 1") != NULL);
        rank_mark(self, OVER);
    } else {
        rank_await(self, OVER, 1);
    }
    rank_destroy(self);
}

static void a_call_limit_ends_a_message_too(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = wait_for_nobody };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_rank_that_does_not_come_is_named_by_all),
        TEST(all_who_are_missing_are_named),
        TEST(who_waits_in_a_later_call_does_not_blame_who_waits_in_an_earlier_one),
        TEST(a_stopped_rank_is_named_and_hears_of_it_when_it_goes_on),
        TEST(a_rank_that_crawls_is_not_given_up),
        TEST(a_timer_of_the_caller_does_not_put_the_limit_off),
        TEST(zero_is_no_limit),
        TEST(the_stall_limit_can_be_changed),
        TEST(a_call_limit_ends_a_call_that_is_slow_but_not_still),
        TEST(a_call_limit_ends_a_message_too),
    };
    return cmocka_run_group_tests_name("stall limit", tests, NULL, NULL);
}
