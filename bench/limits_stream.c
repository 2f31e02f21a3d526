/* limits_stream.c - payload through sockets: one way between two processes, and both ways at
 * once.
 *
 * One way: blocking writes against blocking reads. Both ways: every process sends to the next
 * and receives from the one before, never blocking in either, asleep in poll when neither moves;
 * two processes share one connection, more have one connection for each link of a ring. Each
 * side walks an array, so that memory has its share as it has in a collective; nothing is added
 * up. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "bench/limits_parts.h"

struct stream {
    const struct bench_limit *limit;
    size_t                    amount_bytes;
    struct bench_pair         pairs[BENCH_MAX_CREW];
};

/* A place in an array that begins again at its end. */
struct walk {
    uint8_t *array;
    size_t   array_bytes, write_bytes;
    size_t   at, left_bytes;
};

static struct walk walk_begin(const struct stream *s, uint8_t *array)
{
    return (struct walk){ array, s->limit->array_bytes, s->limit->write_bytes, 0, s->amount_bytes };
}

static size_t walk_part(const struct walk *w)
{
    return gmi_min_size(gmi_min_size(w->write_bytes, w->array_bytes - w->at), w->left_bytes);
}

static void walk_moved(struct walk *w, size_t n_bytes)
{
    w->left_bytes -= n_bytes;
    w->at = (w->at + n_bytes) % w->array_bytes;
}

/* ---- one way ----------------------------------------------------------------------------------- */

static int send_or_take(struct bench_crew *crew, int member, struct stream *s, uint8_t *array)
{
    bool is_source = member == 0;
    int  fd = s->pairs[0].fds[member];
    close(s->pairs[0].fds[1 - member]); /* or the end of a dead source would never come */
    struct walk w = walk_begin(s, array);
    if (!bench_crew_meet(crew)) return ETIMEDOUT;
    double begin_s = bench_now_s();
    while (w.left_bytes > 0) {
        size_t  part = walk_part(&w);
        ssize_t n = is_source ? send(fd, array + w.at, part, MSG_NOSIGNAL)
                              : recv(fd, array + w.at, part, 0);
        if (n <= 0) return n == 0 ? ECONNRESET : errno == EAGAIN ? ETIMEDOUT : errno;
        walk_moved(&w, (size_t)n);
    }
    /* The source is done when the kernel has its bytes; only the sink knows that they have
       arrived. */
    crew->elapsed_s[member] = is_source ? 0 : bench_now_s() - begin_s;
    return 0;
}

static int run_oneway(struct bench_crew *crew, int member, void *job)
{
    struct stream *s = job;
    uint8_t       *array = gmi_alloc(s->limit->array_bytes, 1);
    int            failed = array != NULL ? send_or_take(crew, member, s, array) : ENOMEM;
    gmi_free(array);
    return failed;
}

/* ---- both ways --------------------------------------------------------------------------------- */

/* Moves what can move one way. 1: something did; 0: nothing can now; -1: errno. */
static int move_some(int fd, struct walk *w, bool is_sending)
{
    if (w->left_bytes == 0) return 0;
    size_t  part = walk_part(w);
    ssize_t n = is_sending ? send(fd, w->array + w->at, part, MSG_NOSIGNAL)
                           : recv(fd, w->array + w->at, part, 0);
    if (n < 0) return errno == EAGAIN ? 0 : -1;
    if (n == 0) {
        errno = ECONNRESET;
        return -1;
    }
    walk_moved(w, (size_t)n);
    return 1;
}

static int wait_for(int out, int in, const struct walk *sending, const struct walk *receiving)
{
    struct pollfd fds[2] = { { .fd = in, .events = receiving->left_bytes > 0 ? POLLIN : 0 },
                             { .fd = out, .events = sending->left_bytes > 0 ? POLLOUT : 0 } };
    if (in == out) fds[0].events |= fds[1].events;
    int n = poll(fds, in == out ? 1 : 2, BENCH_STALL_MS);
    return n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ETIMEDOUT : errno;
}

static int exchange(int out, int in, struct walk sending, struct walk receiving)
{
    while (sending.left_bytes > 0 || receiving.left_bytes > 0) {
        int sent = move_some(out, &sending, true);
        if (sent < 0) return errno;
        int received = move_some(in, &receiving, false);
        if (received < 0) return errno;
        if (sent || received) continue;
        int failed = wait_for(out, in, &sending, &receiving);
        if (failed) return failed;
    }
    return 0;
}

static int send_and_take(struct bench_crew *crew, int member, struct stream *s, uint8_t *from, uint8_t *to)
{
    int n = crew->n_members;
    int out = n == 2 ? s->pairs[0].fds[member] : s->pairs[member].fds[0];
    int in = n == 2 ? out : s->pairs[(member + n - 1) % n].fds[1];
    fcntl(out, F_SETFL, O_NONBLOCK);
    fcntl(in, F_SETFL, O_NONBLOCK);
    if (!bench_crew_meet(crew)) return ETIMEDOUT;
    double begin_s = bench_now_s();
    int    failed = exchange(out, in, walk_begin(s, from), walk_begin(s, to));
    crew->elapsed_s[member] = bench_now_s() - begin_s;
    return failed;
}

static int run_duplex(struct bench_crew *crew, int member, void *job)
{
    struct stream *s = job;
    uint8_t       *from = gmi_alloc(s->limit->array_bytes, 1), *to = gmi_alloc(s->limit->array_bytes, 1);
    int            failed = from != NULL && to != NULL ? send_and_take(crew, member, s, from, to) : ENOMEM;
    gmi_free(from);
    gmi_free(to);
    return failed;
}

/* ---- both -------------------------------------------------------------------------------------- */

static gm_status run(struct stream *s, int n_pairs, bench_member_fn work, double *gbps,
                     gm_error *error)
{
    struct bench_crew crew;
    gm_status         status = GM_OK;
    int               n_open = 0;
    for (; status == GM_OK && n_open < n_pairs; n_open++)
        status = bench_pair_open(&s->pairs[n_open], s->limit, error);
    if (status == GM_OK) status = bench_crew_run(&crew, s->limit->n_processes, work, s, error);
    for (int i = 0; i < n_open; i++) bench_pair_close(&s->pairs[i]);
    if (status == GM_OK) *gbps = (double)s->amount_bytes / bench_crew_elapsed_s(&crew) / 1e9;
    return status;
}

gm_status bench_measure_oneway(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                               gm_error *error)
{
    struct stream s = { .limit = limit, .amount_bytes = amount_bytes };
    return run(&s, 1, run_oneway, gbps, error);
}

gm_status bench_measure_duplex(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                               gm_error *error)
{
    struct stream s = { .limit = limit, .amount_bytes = amount_bytes };
    return run(&s, limit->n_processes == 2 ? 1 : limit->n_processes, run_duplex, gbps, error);
}
