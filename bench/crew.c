#include "bench/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

double bench_now_s(void) { return (double)gmi_now_ns() * 1e-9; }

void *bench_shared_alloc(size_t size_bytes)
{
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void bench_shared_free(void *memory, size_t size_bytes)
{
    if (memory != NULL) munmap(memory, size_bytes);
}

static void nap(long us)
{
    struct timespec t = { .tv_nsec = us * 1000 };
    nanosleep(&t, NULL);
}

bool bench_crew_meet(struct bench_crew *crew)
{
    int64_t deadline_ns = gmi_deadline_after_ms(BENCH_STALL_MS);
    atomic_fetch_add(&crew->n_ready, 1);
    while (atomic_load(&crew->n_ready) < crew->n_members) {
        if (gmi_deadline_passed(deadline_ns)) return false;
        nap(50);
    }
    return true;
}

double bench_crew_elapsed_s(const struct bench_crew *crew)
{
    double slowest_s = 0;
    for (int m = 0; m < crew->n_members; m++)
        if (crew->elapsed_s[m] > slowest_s) slowest_s = crew->elapsed_s[m];
    return slowest_s;
}

/* ---- starting and ending ----------------------------------------------------------------------- */

static _Noreturn void be_member(struct bench_crew *shared, int member, bench_member_fn work,
                                void *job, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it had died before */
    int sys_errno = work(shared, member, job);
    shared->sys_errno[member] = sys_errno;
    _exit(sys_errno == 0 ? 0 : 1);
}

static void kill_members(const pid_t *pids, int n_members)
{
    for (int m = 0; m < n_members; m++)
        if (pids[m] > 0) kill(pids[m], SIGKILL);
}

/* Waits for all; when one fails or is killed, the others are killed. Returns the first that
 * failed, -1: none. It asks now and then rather than sleeping in waitpid, so that the order of
 * deaths is found out without a handler. */
static int reap_members(pid_t *pids, int n_members)
{
    int n_left = n_members, first_failed = -1;
    while (n_left > 0) {
        for (int m = 0; m < n_members; m++) {
            int   status;
            pid_t pid = pids[m] > 0 ? waitpid(pids[m], &status, WNOHANG) : 0;
            if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
            bool is_good = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            pids[m] = 0;
            n_left--;
            if (is_good || first_failed >= 0) continue;
            first_failed = m;
            kill_members(pids, n_members);
        }
        if (n_left > 0) nap(2000);
    }
    return first_failed;
}

static gm_status run_members(struct bench_crew *shared, bench_member_fn work, void *job,
                             gm_error *error)
{
    int   n_started = 0, n_members = shared->n_members;
    pid_t pids[BENCH_MAX_CREW] = { 0 }, parent = getpid();
    fflush(NULL); /* or what waits in stdio's buffers would be there twice */
    for (; n_started < n_members; n_started++) {
        pids[n_started] = fork();
        if (pids[n_started] == 0) be_member(shared, n_started, work, job, parent);
        if (pids[n_started] < 0) break;
    }
    int sys_errno = errno;
    if (n_started < n_members) kill_members(pids, n_started);
    int failed = reap_members(pids, n_started);
    if (n_started < n_members)
        return gmi_error_set_errno(error, sys_errno, "cannot start a process to measure with");
    if (failed < 0) return GM_OK;
    if (shared->sys_errno[failed] == 0)
        return gmi_error_set(error, GM_ERR_SYSTEM, "a process that measured was killed");
    return gmi_error_set_errno(error, shared->sys_errno[failed], "measuring failed");
}

gm_status bench_crew_run(struct bench_crew *crew, int n_members, bench_member_fn work, void *job,
                         gm_error *error)
{
    struct bench_crew *shared = bench_shared_alloc(sizeof *shared);
    if (shared == NULL) return gmi_error_set_errno(error, errno, "no memory to share");
    shared->n_members = n_members;
    gm_status status = run_members(shared, work, job, error);
    memcpy(crew, shared, sizeof *crew);
    bench_shared_free(shared, sizeof *shared);
    return status;
}
