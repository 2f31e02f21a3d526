/* Ranks whose processes the others cannot see, as on other hosts: each has a pid namespace of its own. A stopped one is
 * given up after five seconds of silence, or on the word of a rank of its host; a machine that is suspended accuses
 * nobody; and clocks that differ by hours mean nothing. Skipped where namespaces may not be made. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { N = 3, DEFAULT_LIMIT_MS = 300000, SEEN_MS = 3000, UNSEEN_MS = 5000, BEAT_MS = 500, PID = 0 };
enum mark { READY, STOPPED, TOLD, OVER };

static bool has_namespaces;

/* ---- hosts ---------------------------------------------------------------------------------------- */

static bool write_file(const char *path, const char *text)
{
    int  fd = open(path, O_WRONLY | O_CLOEXEC);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return is_written;
}

/* What a process may do in a namespace, this one may do from now on. */
static bool become_root(void)
{
    char uid_map[40], gid_map[40];
    snprintf(uid_map, sizeof uid_map, "0 %d 1", (int)getuid());
    snprintf(gid_map, sizeof gid_map, "0 %d 1", (int)getgid());
    if (unshare(CLONE_NEWUSER) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    return write_file("/proc/self/uid_map", uid_map) && write_file("/proc/self/gid_map", gid_map);
}

/* Stays behind, and ends as the rank does that went on. */
static _Noreturn void stay_behind(pid_t gone_on)
{
    int wait_status;
    while (waitpid(gone_on, &wait_status, 0) != gone_on) {}
    if (WIFSIGNALED(wait_status)) raise(WTERMSIG(wait_status));
    _exit(WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1);
}

/* The caller goes on as a process of another host. `flags`: which namespaces are that host's own. */
static void move_to_own_host(struct rank_self *self, int flags, long clock_offset_s)
{
    char offset[64];
    snprintf(offset, sizeof offset, "monotonic %ld 0\nboottime %ld 0\n", clock_offset_s, clock_offset_s);
    rank_check(self, unshare(flags) == 0);
    if (flags & CLONE_NEWTIME) rank_check(self, write_file("/proc/self/timens_offsets", offset));
    pid_t pid = fork();
    rank_check(self, pid >= 0);
    if (pid > 0) {
        self->record->numbers[PID] = (uint64_t)pid;
        stay_behind(pid);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static char host_ids[RANKS_MAX][16];
    snprintf(host_ids[self->rank], sizeof host_ids[0], "host%d", self->rank);
    self->options.host_id = host_ids[self->rank];
}

static void have_own_proc(struct rank_self *self)
{
    rank_check(self, mount("none", "/", "", MS_REC | MS_PRIVATE, NULL) == 0);
    rank_check(self, mount("proc", "/proc", "proc", 0, NULL) == 0);
}

static void signal_rank(struct ranks *r, int rank, int signal_number)
{
    pid_t moved = (pid_t)ranks_shared(r)->records[rank].numbers[PID];
    kill(moved != 0 ? moved : ranks_pid(r, rank), signal_number);
}

/* ---- a stopped process ------------------------------------------------------------------------------ */

struct plan {
    int         victim;
    int         only_mover;    /* who alone has a host of its own; -1: all have */
    bool        has_own_proc;  /* as a host has; else /proc tells of processes that it is not among */
    int         least_ms, most_ms;
    const char *says;
};

static void nap_ms(int ms) { nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL); }

static void live(struct rank_self *self)
{
    const struct plan *plan = self->user;
    gm_status          status = GM_OK;
    double             one = 1;
    if (plan->only_mover < 0 || self->rank == plan->only_mover) {
        move_to_own_host(self, CLONE_NEWPID | CLONE_NEWNS, 0);
        if (plan->has_own_proc) have_own_proc(self);
    }
    rank_create(self);
    rank_mark(self, READY);
    if (self->rank == plan->victim) rank_await(self, OVER, 1);
    while (status == GM_OK) status = gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_MAX);
    rank_record(self, status);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(self->comm)->culprit == plan->victim);
    if (self->rank != plan->victim) {
        rank_check(self, strstr(gm_comm_error(self->comm)->text, plan->says) != NULL);
        rank_mark(self, TOLD);
    }
    rank_destroy(self);
}

static void stop_one(void **state, struct plan plan)
{
    if (!has_namespaces) skip();
    struct ranks_job job = { .n_ranks = N, .body = live, .user = &plan, .stall_limit_ms = DEFAULT_LIMIT_MS };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, N);
    ranks_serve(r, 30);
    int64_t stopped_ns = gmi_now_ns(), slowest_ms = 0, quickest_ms = INT64_MAX;
    signal_rank(r, plan.victim, SIGSTOP);
    ranks_await(r, TOLD, N - 1);
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    signal_rank(r, plan.victim, SIGCONT);
    ranks_finish(r);
    for (int k = 0; k < N; k++) {
        int64_t took_ms = (ranks_shared(r)->records[k].at_ns - stopped_ns) / GMI_NS_PER_MS;
        if (k != plan.victim && took_ms > slowest_ms) slowest_ms = took_ms;
        if (k != plan.victim && took_ms < quickest_ms) quickest_ms = took_ms;
    }
    print_message("rank %d stopped: all know after %lld ms\n", plan.victim, (long long)slowest_ms);
    assert_true(quickest_ms >= plan.least_ms - BEAT_MS); /* silence counts from the last beat */
    assert_true(slowest_ms < plan.most_ms + (BEAT_MS + 500) * ranks_slowness());
}

static void a_stopped_rank_that_nobody_sees_is_given_up_after_five_seconds(void **state)
{
    stop_one(state, (struct plan){ .victim = 1, .only_mover = -1, .has_own_proc = true, .least_ms = UNSEEN_MS, .most_ms = UNSEEN_MS,
                                   .says = "and nobody on its host can tell why" });
}

static void so_is_rank_0(void **state)
{
    stop_one(state, (struct plan){ .victim = 0, .only_mover = 0, .has_own_proc = true, .least_ms = UNSEEN_MS, .most_ms = UNSEEN_MS,
                                   .says = "and nobody on its host can tell why" });
}

/* The middle cannot see it, and asks one that can. */
static void a_rank_of_its_host_tells_that_it_is_stopped(void **state)
{
    stop_one(state, (struct plan){ .victim = 2, .only_mover = 0, .has_own_proc = true, .least_ms = 1500, .most_ms = SEEN_MS,
                                   .says = "is stopped (SIGSTOP or job control), as rank 1 sees" });
}

/* ---- what is no failure ------------------------------------------------------------------------------ */

/* Which namespaces each rank moves into. */
static const int own_processes[N] = { CLONE_NEWPID | CLONE_NEWNS, CLONE_NEWPID | CLONE_NEWNS, CLONE_NEWPID | CLONE_NEWNS };
/* Rank 2's /proc shows processes that started an hour later than rank 0's. */
static const int own_clocks[N] = { 0, CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWTIME, CLONE_NEWTIME };

static void reduce_through_all(struct rank_self *self)
{
    static const long clock_offsets_s[N] = { 0, 100000, 3600 };
    const int        *flags = self->user;
    double            go_on = 1;
    if (flags != NULL && flags[self->rank] != 0) {
        move_to_own_host(self, flags[self->rank], clock_offsets_s[self->rank]);
        if (flags[self->rank] & CLONE_NEWPID && self->rank != 1) have_own_proc(self); /* rank 1: not its own */
    }
    rank_create(self);
    rank_mark(self, READY);
    while (go_on != 0) {
        go_on = atomic_load(&self->shared->marks[OVER]) == 0;
        rank_ok(self, gm_all_reduce(self->comm, &go_on, &go_on, 1, GM_F64, GM_MIN)); /* all end alike */
        nap_ms(1);
    }
    gm_traffic traffic;
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &traffic));
    rank_check(self, traffic.elapsed_ns >= traffic.waiting_ns && traffic.elapsed_ns < 60000 * GMI_NS_PER_MS * ranks_slowness());
    rank_destroy(self);
}

static struct ranks *start_reducing(void **state, const int *flags, int limit_ms)
{
    struct ranks_job job = { .n_ranks = N, .body = reduce_through_all, .user = flags, .stall_limit_ms = limit_ms };
    struct ranks *r = ranks_start(state, &job);
    ranks_await(r, READY, N);
    ranks_serve(r, 30);
    return r;
}

static void end_well(struct ranks *r)
{
    ranks_serve(r, 1200); /* in which nobody is accused later either */
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
}

static void a_stop_of_four_seconds_under_a_limit_of_ten_is_survived(void **state)
{
    if (!has_namespaces) skip();
    struct ranks *r = start_reducing(state, own_processes, 10000 * ranks_slowness());
    signal_rank(r, 0, SIGSTOP);
    signal_rank(r, 1, SIGSTOP);
    ranks_serve(r, 4000);
    signal_rank(r, 1, SIGCONT);
    signal_rank(r, 0, SIGCONT);
    end_well(r);
}

/* All stop and go on, one after the other. Nobody knows how long he was away but by his own clock. */
static void suspend(struct ranks *r, int for_ms)
{
    for (int k = 0; k < N; k++) signal_rank(r, k, SIGSTOP);
    ranks_serve(r, for_ms);
    for (int k = 0; k < N; k++) {
        signal_rank(r, k, SIGCONT);
        ranks_serve(r, 200);
    }
}

static void machines_that_were_suspended_accuse_nobody(void **state)
{
    if (!has_namespaces) skip();
    struct ranks *r = start_reducing(state, own_processes, DEFAULT_LIMIT_MS);
    suspend(r, UNSEEN_MS + 1000);
    end_well(r);
}

/* The time that the stall limit counts is the time in which somebody could have moved. */
static void a_suspended_machine_has_not_stalled(void **state)
{
    struct ranks *r = start_reducing(state, NULL, 1500 * ranks_slowness());
    suspend(r, 3000 * ranks_slowness());
    end_well(r);
}

/* Each host counts its seconds from another start, and tells when a process was born by these. */
static void clocks_that_differ_by_hours_mean_nothing(void **state)
{
    if (!has_namespaces) skip();
    struct ranks *r = start_reducing(state, own_clocks, 10000 * ranks_slowness());
    signal_rank(r, 2, SIGSTOP); /* rank 0 looks at it in /proc */
    ranks_serve(r, 3000);
    signal_rank(r, 2, SIGCONT);
    end_well(r);
}

int main(void)
{
    has_namespaces = geteuid() == 0 || become_root();
    if (has_namespaces) { /* may such a process have namespaces, and a /proc? */
        pid_t pid = fork();
        int   status = 1;
        if (pid == 0) _exit(unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWTIME) == 0 ? 0 : 1);
        waitpid(pid, &status, 0);
        has_namespaces = status == 0;
    }
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_stopped_rank_that_nobody_sees_is_given_up_after_five_seconds),
        TEST(so_is_rank_0),
        TEST(a_rank_of_its_host_tells_that_it_is_stopped),
        TEST(a_stop_of_four_seconds_under_a_limit_of_ten_is_survived),
        TEST(machines_that_were_suspended_accuse_nobody),
        TEST(a_suspended_machine_has_not_stalled),
        TEST(clocks_that_differ_by_hours_mean_nothing),
    };
    return cmocka_run_group_tests_name("unseen ranks", tests, NULL, NULL);
}
