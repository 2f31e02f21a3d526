#include "bench/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/limits_parts.h"
#include "net/socket.h"
#include "reduce/codec.h"

enum {
    KIB = 1024, MIB = 1024 * 1024,
    HEADER_BYTES = 8, ROUNDS = 7, MOST_ROUNDS = 21, SHORT_BYTES = 16 * KIB, LOOPS = 2000, WAKES = LOOPS / 4, BALL_BYTES = 80, /* as a header and a few values */
    REACH_MESSAGE_BYTES = 256 * KIB, MOST_BYTES = 64 * MIB, MOVED_BYTES = 16 * MIB, MOST_MESSAGES = 1000,
};

static const size_t message_sizes[BENCH_TURN_CALLS] = { BALL_BYTES, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB };
static const size_t walks[BENCH_TURN_REACHES] = { 512 * KIB, BENCH_TURN_WALKED_BYTES, 6 * MIB, 16 * MIB, 32 * MIB, MOST_BYTES };

/* A round of one member: how long it took, what of that it was in calls that moved something, and how often else it did what. */
struct round {
    double elapsed_us, busy_us;
    int    n_misses, n_yields;
};

/* What the two find out; shared. The least of all rounds, by member. */
struct findings {
    double       us[2];
    double       miss_us, yield_us;
    double       send_us[2], recv_us[2], add_us[2], add_kept_us[2];
    struct round rounds[2][MOST_ROUNDS]; /* of messages */
};

struct measurement {
    struct bench_pair  pair;
    int                cores[2];
    bool               on_one_core;
    bench_member_fn    work;
    size_t             walked_bytes, message_bytes;
    uint8_t           *arrays[2];
    struct findings   *found;
};

/* ---- parts --------------------------------------------------------------------------------------- */

static void bind_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* The first two cores that we may use. */
static void find_cores(int cores[2])
{
    cpu_set_t set;
    int       n = 0;
    cores[0] = cores[1] = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    for (int core = 0; core < CPU_SETSIZE && n < 2; core++)
        if (CPU_ISSET((size_t)core, &set)) cores[n++] = core;
    if (n == 1) cores[1] = cores[0];
}

static void never_wait(const struct bench_pair *pair)
{
    for (int i = 0; i < 2; i++) fcntl(pair->fds[i], F_SETFL, fcntl(pair->fds[i], F_GETFL) | O_NONBLOCK);
}

static void lesser(double *least, double value)
{
    if (value < *least) *least = value;
}

/* One call as a link makes it: *moved bytes of at most n_bytes, the first of which are a header. An errno; 0 if nothing could move. */
static int move(int fd, uint8_t *bytes, size_t n_bytes, bool is_sending, size_t *moved)
{
    size_t       head_bytes = n_bytes > HEADER_BYTES ? HEADER_BYTES : n_bytes;
    struct iovec parts[2] = { { bytes, head_bytes }, { bytes + head_bytes, n_bytes - head_bytes } };
    int          n_parts = n_bytes > head_bytes ? 2 : 1, sys_errno = 0;
    gm_status    status = is_sending ? gmi_socket_send_some(fd, parts, n_parts, moved, &sys_errno)
                                     : gmi_socket_recv_some(fd, parts, n_parts, moved, &sys_errno);
    if (status == GM_OK || status == GM_AGAIN) return 0;
    return sys_errno != 0 ? sys_errno : ECONNRESET;
}

/* Until something can be read, trying again and again. An errno. */
static int take(int fd, uint8_t *bytes, size_t n_bytes)
{
    int64_t until_ns = gmi_deadline_after_ms(BENCH_STALL_MS);
    for (;;) {
        size_t moved;
        int    failed = move(fd, bytes, n_bytes, false, &moved);
        if (failed || moved > 0) return failed;
        if (gmi_deadline_passed(until_ns)) return ETIMEDOUT;
    }
}

static int give(int fd, uint8_t *bytes, size_t n_bytes)
{
    size_t moved;
    int    failed = move(fd, bytes, n_bytes, true, &moved);
    return failed || moved == n_bytes ? failed : EPROTO;
}

/* ---- what finds nothing -------------------------------------------------------------------------- */

static int run_misses(struct bench_crew *crew, int member, void *job)
{
    struct measurement *m = job;
    struct findings    *f = m->found;
    uint8_t             bytes[BALL_BYTES];
    size_t              moved;
    (void)crew;
    bind_to(m->cores[member]);
    f->miss_us = f->yield_us = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_ns = gmi_now_ns();
        for (int i = 0; i < LOOPS; i++)
            if (move(m->pair.fds[0], bytes, sizeof bytes, false, &moved) != 0 || moved > 0) return EPROTO;
        int64_t middle_ns = gmi_now_ns();
        for (int i = 0; i < LOOPS; i++) sched_yield();
        lesser(&f->miss_us, (double)(middle_ns - begin_ns) / LOOPS / 1e3);
        lesser(&f->yield_us, (double)(gmi_now_ns() - middle_ns) / LOOPS / 1e3);
    }
    return 0;
}

/* ---- what is acknowledged ------------------------------------------------------------------------ */

/* Both ends in one process: how long receiving takes while messages go one way only, and while they go there and back. */
static int run_acks(struct bench_crew *crew, int member, void *job)
{
    struct measurement *m = job;
    uint8_t             ball[BALL_BYTES] = { 0 };
    (void)crew;
    bind_to(m->cores[member]);
    for (int returns = 0; returns < 2; returns++) {
        m->found->us[returns] = INFINITY;
        for (int round = 0; round < ROUNDS; round++) {
            int64_t recv_ns = 0;
            for (int i = 0; i < LOOPS; i++) {
                int from = returns ? i % 2 : 0;
                int failed = give(m->pair.fds[from], ball, sizeof ball);
                int64_t begin_ns = gmi_now_ns();
                if (!failed) failed = take(m->pair.fds[1 - from], ball, sizeof ball);
                if (failed) return failed;
                recv_ns += gmi_now_ns() - begin_ns;
            }
            lesser(&m->found->us[returns], (double)recv_ns / LOOPS / 1e3);
        }
    }
    return 0;
}

/* ---- waking -------------------------------------------------------------------------------------- */

static int sleep_until_readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int           n = poll(&p, 1, BENCH_STALL_MS);
    return n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ETIMEDOUT : errno;
}

/* A ball between two who sleep until it comes; half a round trip. */
static int run_wakes(struct bench_crew *crew, int member, void *job)
{
    struct measurement *m = job;
    int                 fd = m->pair.fds[member], failed = 0;
    uint8_t             ball[BALL_BYTES] = { 0 };
    double             *value = &m->found->us[member];
    bind_to(m->cores[m->on_one_core ? 0 : member]);
    *value = INFINITY;
    if (!bench_crew_meet(crew)) return ETIMEDOUT;
    for (int round = 0; round < ROUNDS && !failed; round++) {
        int64_t begin_ns = gmi_now_ns();
        for (int i = 0; i < WAKES && !failed; i++) {
            if (member == 0) failed = give(fd, ball, sizeof ball);
            if (!failed) failed = sleep_until_readable(fd);
            if (!failed) failed = take(fd, ball, sizeof ball);
            if (!failed && member == 1) failed = give(fd, ball, sizeof ball);
        }
        lesser(value, (double)(gmi_now_ns() - begin_ns) / (2.0 * WAKES) / 1e3);
    }
    return failed;
}

/* ---- messages ------------------------------------------------------------------------------------ */

/* One call; *busy_ns: if it moved something. *left goes down by that. */
static int move_some(int fd, uint8_t *end, size_t *left, bool is_sending, int64_t *busy_ns)
{
    int64_t begin_ns = gmi_now_ns();
    size_t  most = *left < MIB ? *left : MIB, moved;
    if (*left == 0) return 0;
    int failed = move(fd, end - *left, most, is_sending, &moved);
    if (moved == 0) return failed;
    *busy_ns += gmi_now_ns() - begin_ns;
    *left -= moved;
    return 0;
}

/* A message each way. Who can do nothing gives up the core: the other side may share it. */
static int move_messages(const struct measurement *m, int member, uint8_t *from, uint8_t *into, int64_t *send_ns, int64_t *recv_ns,
                         struct round *round)
{
    int64_t until_ns = gmi_deadline_after_ms(BENCH_STALL_MS);
    int     fd = m->pair.fds[member], failed = 0;
    size_t  out_left = m->message_bytes, in_left = out_left;
    while (!failed && (out_left > 0 || in_left > 0)) {
        size_t out_before = out_left, in_before = in_left;
        failed = move_some(fd, from + m->message_bytes, &out_left, true, send_ns);
        if (!failed) failed = move_some(fd, into + m->message_bytes, &in_left, false, recv_ns);
        round->n_misses += (out_before > 0 && out_left == out_before) + (in_before > 0 && in_left == in_before);
        if (out_left + in_left < out_before + in_before) continue;
        if (gmi_deadline_passed(until_ns)) return ETIMEDOUT;
        round->n_yields++;
        sched_yield();
    }
    return failed;
}

static size_t n_messages(const struct measurement *m)
{
    size_t n = MOVED_BYTES / m->message_bytes;
    if (n == 0) return 1;
    return n > MOST_MESSAGES ? MOST_MESSAGES : n;
}

/* Short ones are soon over, and often disturbed. */
static int n_rounds(const struct measurement *m) { return m->message_bytes <= SHORT_BYTES ? MOST_ROUNDS : ROUNDS; }

/* Each sends messages out of one half of what it walks, and receives as many into the other. */
static int run_messages(struct bench_crew *crew, int member, void *job)
{
    struct measurement *m = job;
    struct findings    *f = m->found;
    size_t              half_bytes = m->walked_bytes / 2, n = n_messages(m), at = 0;
    bind_to(m->cores[m->on_one_core ? 0 : member]);
    f->send_us[member] = f->recv_us[member] = INFINITY;
    for (int i_round = 0; i_round < n_rounds(m); i_round++) {
        int64_t      send_ns = 0, recv_ns = 0;
        struct round round = { .n_yields = 0 };
        if (!bench_crew_meet(crew)) return ETIMEDOUT;
        int64_t begin_ns = gmi_now_ns();
        for (size_t i = 0; i < n; i++, at += m->message_bytes) {
            if (at + m->message_bytes > half_bytes) at = 0;
            uint8_t *part = m->arrays[member] + at;
            int      failed = move_messages(m, member, part, part + half_bytes, &send_ns, &recv_ns, &round);
            if (failed) return failed;
        }
        round.elapsed_us = (double)(gmi_now_ns() - begin_ns) / 1e3;
        round.busy_us = (double)(send_ns + recv_ns) / 1e3;
        f->rounds[member][i_round] = round;
        lesser(&f->send_us[member], (double)send_ns / 1e3 / (double)n);
        lesser(&f->recv_us[member], (double)recv_ns / 1e3 / (double)n);
    }
    return 0;
}

/* Adds what was received, or what lies in a cache, to the other half. */
static double add_once_us(const struct measurement *m, const struct gmi_codec *codec, int member, bool is_kept)
{
    size_t   half_bytes = m->walked_bytes / 2, part_bytes = 64 * KIB;
    uint8_t *array = m->arrays[member];
    int64_t  begin_ns = gmi_now_ns();
    for (size_t done = 0; done < MOVED_BYTES; done += part_bytes) {
        size_t at = done % half_bytes;
        gmi_codec_combine(codec, array + at, array + half_bytes + (is_kept ? at : 0), array + at, part_bytes / sizeof(float));
    }
    return (double)(gmi_now_ns() - begin_ns) / 1e3;
}

static int run_sums(struct bench_crew *crew, int member, void *job)
{
    struct measurement *m = job;
    struct findings    *f = m->found;
    struct gmi_codec    codec;
    bind_to(m->cores[member]);
    if (gmi_codec_find(&codec, GM_F32, GM_SUM) != GM_OK) return EINVAL;
    f->add_us[member] = f->add_kept_us[member] = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        if (!bench_crew_meet(crew)) return ETIMEDOUT;
        lesser(&f->add_us[member], add_once_us(m, &codec, member, false));
        if (!bench_crew_meet(crew)) return ETIMEDOUT;
        lesser(&f->add_kept_us[member], add_once_us(m, &codec, member, true));
    }
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static double mean(const double *values) { return (values[0] + values[1]) / 2; }

static void *sleep_on(void *nothing)
{
    (void)poll(NULL, 0, -1);
    return nothing;
}

static int run_beside_a_thread(struct bench_crew *crew, int member, void *job)
{
    const struct measurement *m = job;
    pthread_t                 thread;
    int                       failed = pthread_create(&thread, NULL, sleep_on, NULL);
    if (failed) return failed;
    failed = m->work(crew, member, job);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    return failed;
}

static gm_status run_pair(struct measurement *m, int n_members, bench_member_fn work, gm_error *error)
{
    const struct bench_limit plain = { .channel = BENCH_TCP, .congestion = "reno" }; /* as the library's within a host */
    struct bench_crew        crew;
    gm_status                status = bench_pair_open(&m->pair, &plain, error);
    if (status != GM_OK) return status;
    never_wait(&m->pair);
    m->work = work;
    status = bench_crew_run(&crew, n_members, run_beside_a_thread, m, error);
    bench_pair_close(&m->pair);
    return status;
}

/* On one core, all that one did in a round took the core from the other: what is left of its time was spent in changing
 * between them, and in finding caches as the other one had left them. */
static double turn_us(const struct findings *f)
{
    double least_us = INFINITY;
    for (int i = 0; i < MOST_ROUNDS; i++) {
        const struct round *a = &f->rounds[0][i], *b = &f->rounds[1][i];
        double moving_us = a->busy_us + b->busy_us + (a->n_misses + b->n_misses) * f->miss_us;
        if (a->n_yields + b->n_yields > 0) lesser(&least_us, (fmax(a->elapsed_us, b->elapsed_us) - moving_us) / (a->n_yields + b->n_yields));
    }
    return least_us;
}

static gm_status measure_calls(struct measurement *m, struct bench_turns *t, gm_error *error)
{
    gm_status status = GM_OK;
    for (int one_core = 0; one_core < 2; one_core++) {
        for (int i = 0; i < BENCH_TURN_CALLS && status == GM_OK; i++) {
            m->on_one_core = one_core;
            m->walked_bytes = BENCH_TURN_WALKED_BYTES;
            m->message_bytes = message_sizes[i];
            status = run_pair(m, 2, run_messages, error);
            if (one_core && i == 0) t->switch_us = fmax(turn_us(m->found) - t->yield_us, 0);
            t->calls[one_core][i] =
                (struct bench_turn_call){ (double)message_sizes[i], mean(m->found->send_us), mean(m->found->recv_us) };
        }
    }
    return status;
}

static gm_status measure_reaches(struct measurement *m, struct bench_turns *t, gm_error *error)
{
    const struct bench_turn_call *largest = &t->calls[0][BENCH_TURN_CALLS - 1];
    gm_status                     status = GM_OK;
    m->on_one_core = false;
    m->walked_bytes = BENCH_TURN_WALKED_BYTES;
    m->message_bytes = REACH_MESSAGE_BYTES;
    status = run_pair(m, 2, run_messages, error);
    double send_us = mean(m->found->send_us), recv_us = mean(m->found->recv_us);
    for (int i = 0; i < BENCH_TURN_REACHES && status == GM_OK; i++) {
        struct bench_turn_reach *reach = &t->reaches[i];
        m->walked_bytes = walks[i];
        m->message_bytes = REACH_MESSAGE_BYTES;
        status = run_pair(m, 2, run_messages, error);
        if (status == GM_OK) status = run_pair(m, 2, run_sums, error);
        *reach = (struct bench_turn_reach){ .walked_bytes = (double)walks[i],
                                            .send_factor = mean(m->found->send_us) / send_us,
                                            .recv_factor = mean(m->found->recv_us) / recv_us,
                                            .add_Bps = MOVED_BYTES / mean(m->found->add_us) * 1e6,
                                            .add_kept_Bps = MOVED_BYTES / mean(m->found->add_kept_us) * 1e6 };
        reach->deep_send_factor = reach->send_factor;
        reach->deep_recv_factor = reach->recv_factor;
        m->message_bytes = walks[i] / 2;
        if (m->message_bytes < MIB) continue;
        double n_largest = (double)m->message_bytes / largest->bytes;
        if (status == GM_OK) status = run_pair(m, 2, run_messages, error);
        reach->deep_send_factor = mean(m->found->send_us) / n_largest / largest->send_us;
        reach->deep_recv_factor = mean(m->found->recv_us) / n_largest / largest->recv_us;
    }
    return status;
}

static gm_status measure_misses(struct measurement *m, struct bench_turns *t, gm_error *error)
{
    gm_status status = run_pair(m, 1, run_misses, error);
    t->miss_us = m->found->miss_us;
    t->yield_us = m->found->yield_us;
    if (status == GM_OK) status = run_pair(m, 1, run_acks, error);
    t->ack_us = fmax(m->found->us[0] - m->found->us[1], 0.001);
    return status;
}

static gm_status measure_wakes(struct measurement *m, struct bench_turns *t, gm_error *error)
{
    gm_status status = GM_OK;
    for (int one_core = 0; one_core < 2 && status == GM_OK; one_core++) {
        const struct bench_turn_call *ball = &t->calls[one_core][0];
        m->on_one_core = one_core;
        status = run_pair(m, 2, run_wakes, error);
        t->wake_us += fmax(m->found->us[0] - ball->send_us - ball->recv_us, 0) / 2;
    }
    return status;
}

static gm_status measure_all(struct measurement *m, struct bench_turns *t, gm_error *error)
{
    gm_status status = measure_misses(m, t, error);
    if (status == GM_OK) status = measure_calls(m, t, error);
    if (status == GM_OK) status = measure_wakes(m, t, error);
    return status == GM_OK ? measure_reaches(m, t, error) : status;
}

gm_status bench_turns_measure(struct bench_turns *turns, gm_error *error)
{
    struct measurement m = { .pair = { { -1, -1 } } };
    find_cores(m.cores);
    m.found = bench_shared_alloc(sizeof *m.found);
    m.arrays[0] = bench_shared_alloc(MOST_BYTES);
    m.arrays[1] = bench_shared_alloc(MOST_BYTES);
    *turns = (struct bench_turns){ .miss_us = 0 };
    gm_status status = m.found == NULL || m.arrays[0] == NULL || m.arrays[1] == NULL
                           ? gmi_error_set(error, GM_ERR_NOMEM, "no memory to measure what turns on a core cost")
                           : measure_all(&m, turns, error);
    if (m.found != NULL) bench_shared_free(m.found, sizeof *m.found);
    for (int i = 0; i < 2; i++)
        if (m.arrays[i] != NULL) bench_shared_free(m.arrays[i], MOST_BYTES);
    return status;
}
