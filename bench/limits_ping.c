/* limits_ping.c - half a round trip of four bytes: over a socket with a receiver that sleeps or
 * one that asks again and again, and through shared memory. What a collective of a few bytes
 * cannot be faster than. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/limits_parts.h"

enum { MAX_ROUNDS = 20000, LOOKS_BETWEEN_CLOCKS = 1 << 12, STOP = -1 };

struct match {
    const struct bench_limit *limit;
    struct bench_pair         pair;
    int                       n_rounds;
    double                    budget_s;
    struct bench_ping_times { /* shared */
        int    n;
        double us[MAX_ROUNDS];
    } *times;
};

/* ---- four bytes there -------------------------------------------------------------------------- */

static int put(const struct match *m, struct bench_crew *crew, int member, int32_t ball)
{
    if (m->limit->channel == BENCH_SHM) {
        atomic_store_explicit(member == 0 ? &crew->there : &crew->back, ball, memory_order_release);
        return 0;
    }
    ssize_t n = send(m->pair.fds[member], &ball, sizeof ball, MSG_NOSIGNAL);
    return n == sizeof ball ? 0 : n < 0 ? errno : EIO;
}

/* Now and then while spinning: is it time to give up, and has the other side, on a single core,
   had its turn? */
static int pause_spinning(int looks, int64_t *deadline_ns)
{
    if (looks % LOOKS_BETWEEN_CLOCKS != 0) return 0;
    if (*deadline_ns == 0) *deadline_ns = gmi_deadline_after_ms(BENCH_STALL_MS);
    sched_yield();
    return gmi_deadline_passed(*deadline_ns) ? ETIMEDOUT : 0;
}

static int take_from_memory(struct bench_crew *crew, int member, int32_t last, int32_t *ball)
{
    _Atomic int64_t *from = member == 0 ? &crew->back : &crew->there;
    int64_t          deadline_ns = 0;
    int              failed = 0;
    for (int looks = 1; !failed; looks++) {
        *ball = (int32_t)atomic_load_explicit(from, memory_order_acquire);
        if (*ball != last) return 0;
        failed = pause_spinning(looks, &deadline_ns);
    }
    return failed;
}

static int take_from_socket(const struct match *m, int member, int32_t *ball)
{
    size_t  taken = 0;
    int64_t deadline_ns = 0;
    for (int looks = 1; taken < sizeof *ball; looks++) {
        ssize_t n = recv(m->pair.fds[member], (char *)ball + taken, sizeof *ball - taken,
                         m->limit->is_spinning ? MSG_DONTWAIT : 0);
        if (n == 0) return ECONNRESET;
        if (n > 0) taken += (size_t)n;
        else if (errno != EAGAIN) return errno;
        else if (!m->limit->is_spinning) return ETIMEDOUT;
        int failed = pause_spinning(looks, &deadline_ns);
        if (failed) return failed;
    }
    return 0;
}

static int take(const struct match *m, struct bench_crew *crew, int member, int32_t last,
                int32_t *ball)
{
    return m->limit->channel == BENCH_SHM ? take_from_memory(crew, member, last, ball)
                                          : take_from_socket(m, member, ball);
}

/* ---- and back ---------------------------------------------------------------------------------- */

static int serve(const struct match *m, struct bench_crew *crew)
{
    double  end_s = bench_now_s() + m->budget_s;
    int32_t ball = 0;
    while (m->times->n < m->n_rounds) {
        double  begin_s = bench_now_s();
        int32_t last = ball;
        if (begin_s > end_s) break;
        int failed = put(m, crew, 0, last + 1);
        if (!failed) failed = take(m, crew, 0, last, &ball);
        if (failed) return failed;
        m->times->us[m->times->n++] = (bench_now_s() - begin_s) / 2 * 1e6;
    }
    return put(m, crew, 0, STOP);
}

static int give_back(const struct match *m, struct bench_crew *crew)
{
    int32_t ball = 0;
    for (;;) {
        int failed = take(m, crew, 1, ball, &ball);
        if (failed || ball == STOP) return failed;
        failed = put(m, crew, 1, ball);
        if (failed) return failed;
    }
}

static int run_match(struct bench_crew *crew, int member, void *job)
{
    const struct match *m = job;
    if (m->limit->channel != BENCH_SHM) close(m->pair.fds[1 - member]);
    if (!bench_crew_meet(crew)) return ETIMEDOUT;
    return member == 0 ? serve(m, crew) : give_back(m, crew);
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

gm_status bench_measure_ping(const struct bench_limit *limit, size_t amount_bytes,
                             double *median_us, double *p99_us, gm_error *error)
{
    struct bench_crew crew;
    struct match m = { .limit = limit,
                       .pair = { { -1, -1 } },
                       .n_rounds = MAX_ROUNDS,
                       .budget_s = 1,
                       .times = bench_shared_alloc(sizeof *m.times) };
    if (m.times == NULL) return gmi_error_set_errno(error, errno, "no memory to share");
    /* A round takes microseconds and moves almost nothing: about as long as the amount would
       take elsewhere. */
    if (amount_bytes / 8192 < MAX_ROUNDS) m.n_rounds = (int)(amount_bytes / 8192) + 1;
    gm_status status = limit->channel == BENCH_SHM ? GM_OK : bench_pair_open(&m.pair, limit, error);
    if (status == GM_OK) status = bench_crew_run(&crew, 2, run_match, &m, error);
    bench_pair_close(&m.pair);
    if (status == GM_OK) {
        int n = m.times->n;
        qsort(m.times->us, (size_t)n, sizeof m.times->us[0], compare_doubles);
        *median_us = m.times->us[n / 2];
        *p99_us = m.times->us[n * 99 / 100 < n ? n * 99 / 100 : n - 1];
    }
    bench_shared_free(m.times, sizeof *m.times);
    return status;
}
