/* The wall clock jumps by an hour, forth and back, all the time: no wait may notice. Every rank reads its wall clock through
 * the functions below, which stand before those of libc. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { N = 3, HOUR_S = 3600, LIMIT_MS = 2500, LATE_MS = 800, READY = 0, OVER = 1 };

static atomic_uint n_reads;

/* ---- the clock ---------------------------------------------------------------------------------------- */

static time_t jump_s(void) { return atomic_fetch_add(&n_reads, 1) % 2 == 0 ? HOUR_S : -HOUR_S; }

static bool is_wall_clock(clockid_t which)
{
    return which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE || which == CLOCK_TAI;
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    int result = (int)syscall(SYS_clock_gettime, which, t);
    if (result == 0 && is_wall_clock(which)) t->tv_sec += jump_s();
    return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
    return result;
}

time_t time(time_t *t)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t != NULL) *t = now.tv_sec;
    return now.tv_sec;
}

/* ---- waits --------------------------------------------------------------------------------------------- */

static void nap_ms(int ms) { nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL); }

static int64_t ms_since(int64_t begin_ns) { return (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS; }

/* Rank 2 comes late, is late for a call, and then does not come at all. */
static void wait_for_the_late(struct rank_self *self)
{
    gm_traffic traffic;
    int        limit_ms = LIMIT_MS * ranks_slowness(), late_ms = LATE_MS;
    bool       is_late = self->rank == N - 1;
    if (is_late) nap_ms(late_ms);
    rank_create(self);
    if (is_late) nap_ms(late_ms);
    rank_ok(self, gm_barrier(self->comm));
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &traffic));
    rank_check(self, traffic.elapsed_ns >= 0 && traffic.elapsed_ns < (int64_t)HOUR_S / 2 * GMI_NS_PER_S);
    if (is_late) {
        rank_await(self, OVER, N - 1);
    } else {
        int64_t begin_ns = gmi_now_ns();
        rank_expect(self, GM_ERR_TIMEOUT, gm_barrier(self->comm));
        rank_check(self, ms_since(begin_ns) >= limit_ms / 2 && ms_since(begin_ns) < limit_ms * 3);
        rank_check(self, gm_comm_error(self->comm)->culprit == N - 1);
        rank_check(self, gm_comm_error(self->comm)->elapsed_ns < (int64_t)HOUR_S / 2 * GMI_NS_PER_S);
        rank_mark(self, OVER);
    }
    rank_destroy(self);
    time_t a = time(NULL), b = time(NULL); /* the clock does jump */
    rank_check(self, a - b > HOUR_S || b - a > HOUR_S);
}

static void no_limit_comes_early_or_late(void **state)
{
    struct ranks_job job = { .n_ranks = N, .body = wait_for_the_late, .stall_limit_ms = LIMIT_MS * ranks_slowness() };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(no_limit_comes_early_or_late),
    };
    return cmocka_run_group_tests_name("wall clock", tests, NULL, NULL);
}
