/* A process that is stopped keeps its connections alive: its kernel acknowledges for it. The others notice by its
 * silence, look at it in /proc, and name it; one that is only slow is called a straggler and nothing else. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { N = 4, DEFAULT_LIMIT_MS = 300000, BOUND_MS = 3000, BIG_ELEMS = 1 << 21, READY = 0, FROZEN = 1, TOLD = 2, OVER = 3 };

enum moment { IN_BIG_CALLS, IN_A_BARRIER, IN_USER_CODE, IN_AN_ASYNC_WAIT };

struct plan {
    int         victim;
    enum moment moment;
};

static void nap_ms(int ms) { nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL); }

static gm_status call_until_told(struct rank_self *self, const struct plan *plan)
{
    static float values[BIG_ELEMS];
    gm_status    status = GM_OK;
    gm_work     *work;
    if (plan->moment == IN_A_BARRIER) return gm_barrier(self->comm);
    if (plan->moment == IN_AN_ASYNC_WAIT) {
        rank_ok(self, gm_all_reduce_start(self->comm, values, values, 1000, GM_F32, GM_SUM, &work));
        status = gm_work_wait(work, -1);
        gm_work_release(work);
        return status;
    }
    if (plan->moment == IN_USER_CODE) {
        /* The communicator is marked while nobody calls: then the next call fails at once. */
        rank_await(self, FROZEN, 1);
        nap_ms(BOUND_MS * ranks_slowness() - 100);
        int64_t begin_ns = gmi_now_ns();
        status = gm_barrier(self->comm);
        rank_check(self, gmi_now_ns() - begin_ns < 100 * GMI_NS_PER_MS * ranks_slowness());
        return status;
    }
    while (status == GM_OK) status = gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM);
    return status;
}

static void live(struct rank_self *self)
{
    const struct plan *plan = self->user;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_mark(self, READY);
    if (self->rank == plan->victim && plan->moment != IN_BIG_CALLS) rank_await(self, OVER, 1);
    gm_status status = call_until_told(self, plan);
    /* The victim may have found all that it needed for that call when it went on. */
    if (self->rank == plan->victim && status == GM_OK) status = gm_barrier(self->comm);
    rank_record(self, status);
    rank_say(self, "%lld ms after the stop: %s",
             (long long)((self->record->at_ns - atomic_load(&self->shared->times_ns[FROZEN])) / GMI_NS_PER_MS),
             gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(self->comm)->culprit == plan->victim);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "stopped") != NULL);
    rank_expect(self, GM_ERR_PEER_LOST, gm_barrier(self->comm));
    if (self->rank != plan->victim) rank_mark(self, TOLD);
    rank_destroy(self);
}

static void freeze(void **state, struct plan plan)
{
    struct ranks_job job = { .n_ranks = N, .body = live, .user = &plan, .stall_limit_ms = DEFAULT_LIMIT_MS };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, N);
    ranks_serve(r, 30);
    atomic_store(&ranks_shared(r)->times_ns[FROZEN], gmi_now_ns());
    ranks_signal(r, plan.victim, SIGSTOP);
    atomic_store(&ranks_shared(r)->marks[FROZEN], 1);
    ranks_await(r, TOLD, N - 1);
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_signal(r, plan.victim, SIGCONT);
    ranks_finish(r);
    int64_t slowest_ms = 0;
    for (int k = 0; k < N; k++) {
        int64_t took_ms = (ranks_shared(r)->records[k].at_ns - atomic_load(&ranks_shared(r)->times_ns[FROZEN])) / GMI_NS_PER_MS;
        if (k != plan.victim && took_ms > slowest_ms) slowest_ms = took_ms;
    }
    print_message("rank %d stopped, moment %d: all know after %lld ms\n", plan.victim, plan.moment, (long long)slowest_ms);
    assert_true(slowest_ms < BOUND_MS * ranks_slowness());
}

static void a_stopped_rank_is_named_by_all_within_three_seconds(void **state)
{
    freeze(state, (struct plan){ 2, IN_BIG_CALLS });
    freeze(state, (struct plan){ 1, IN_A_BARRIER });
}

static void so_is_rank_0_which_the_others_cannot_ask(void **state)
{
    freeze(state, (struct plan){ 0, IN_BIG_CALLS });
    freeze(state, (struct plan){ 0, IN_AN_ASYNC_WAIT });
}

static void those_in_their_own_code_find_the_communicator_marked(void **state)
{
    freeze(state, (struct plan){ 3, IN_USER_CODE });
}

/* ---- what is no failure --------------------------------------------------------------------------- */

static void reduce_through_a_pause(struct rank_self *self)
{
    rank_create(self);
    rank_mark(self, READY);
    double go_on = 1;
    while (go_on != 0) {
        go_on = atomic_load(&self->shared->marks[OVER]) == 0;
        rank_ok(self, gm_all_reduce(self->comm, &go_on, &go_on, 1, GM_F64, GM_MIN)); /* all end alike */
        nap_ms(1);
    }
    rank_destroy(self);
}

static void a_stop_shorter_than_the_limit_that_was_set_is_survived(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = reduce_through_a_pause, .stall_limit_ms = 10000 * ranks_slowness() };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, 3);
    for (int victim = 0; victim < 3; victim += 2) { /* rank 0 too */
        ranks_signal(r, victim, SIGSTOP);
        ranks_serve(r, 3500);
        ranks_signal(r, victim, SIGCONT);
        ranks_serve(r, 200);
    }
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
}

/* As a debugger does, also the service thread, which beats. Returns how many. */
static int hold_all_threads(pid_t pid, pid_t *threads, int max_threads)
{
    char path[64];
    int  n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && n < max_threads && (e = readdir(dir)) != NULL;) {
        pid_t thread = (pid_t)atoi(e->d_name);
        if (thread <= 0 || ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) continue;
        ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
        waitpid(thread, NULL, __WALL);
        threads[n++] = thread;
    }
    if (dir != NULL) closedir(dir);
    return n;
}

/* A debugger holds the process: somebody is looking at it, and will let it go on. */
static void a_rank_in_a_debugger_is_a_straggler_and_no_failure(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = reduce_through_a_pause, .stall_limit_ms = DEFAULT_LIMIT_MS };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, 3);
    pid_t threads[8];
    int   n_threads = hold_all_threads(ranks_pid(r, 1), threads, 8);
    ranks_serve(r, 3500);
    for (int i = 0; i < n_threads; i++) ptrace(PTRACE_DETACH, threads[i], NULL, NULL);
    ranks_serve(r, 200);
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
    if (n_threads == 0) skip(); /* tracing is not allowed here */
    assert_non_null(strstr(ranks_said(r, 0), "its process is stopped by a debugger: a straggler"));
}

/* Slow in its own code: it beats on. Those who wait hear its name; nobody is blamed. */
static void dawdle(struct rank_self *self)
{
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == 2) rank_await(self, OVER, 1);
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static bool all_but_rank_2_said(const struct ranks *r, const char *text)
{
    for (int k = 0; k < 4; k++) {
        if (k != 2 && strstr(ranks_said(r, k), text) == NULL) return false;
    }
    return true;
}

static void a_rank_that_is_slow_in_its_own_code_is_named_as_a_straggler(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = dawdle, .stall_limit_ms = DEFAULT_LIMIT_MS };
    struct ranks *r = ranks_start(state, &job);
    for (int i = 0; i < 100 * ranks_slowness() && !all_but_rank_2_said(r, "straggler: barrier #2"); i++) ranks_serve(r, 100);
    ranks_serve(r, 500);
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
    for (int k = 0; k < 4; k++) { /* on those that wait, and on rank 0; once in ten seconds */
        const char *line = strstr(ranks_said(r, k), "straggler: barrier #2");
        if (k == 2) continue;
        assert_non_null(line);
        assert_non_null(strstr(line, "for rank 2 (in its own code"));
        assert_null(strstr(line + 1, "straggler:"));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_stopped_rank_is_named_by_all_within_three_seconds),
        TEST(so_is_rank_0_which_the_others_cannot_ask),
        TEST(those_in_their_own_code_find_the_communicator_marked),
        TEST(a_stop_shorter_than_the_limit_that_was_set_is_survived),
        TEST(a_rank_in_a_debugger_is_a_straggler_and_no_failure),
        TEST(a_rank_that_is_slow_in_its_own_code_is_named_as_a_straggler),
    };
    return cmocka_run_group_tests_name("frozen ranks", tests, NULL, NULL);
}
