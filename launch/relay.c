#include "launch/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"

enum {
    READ_BYTES = 64 << 10, /* at most so much from a stream in one turn, so that each gets one */
    SINK_FULL_BYTES = 256 << 10, /* above it, streams wait */
    WRITE_PIPE_BYTES = 4096,     /* poll() promises room for a page in a pipe */
    WRITE_FILE_BYTES = 1 << 20,
    WRITES_PER_TURN = 64,
    TAIL_BYTES = 4 << 10, /* of each rank's standard error, for the last words */
    TAIL_LINES = 8,
};

/* A growing queue of bytes: [start, end) are in it. */
struct queue {
    char *bytes;
    size_t start, end, cap;
};

struct stream {
    int fd; /* -1: at its end */
    int rank;
    struct sink *sink;
    bool has_prefix;
    char prefix[32];
    struct queue unfinished; /* the line that has not ended yet */
    size_t n_scanned;        /* so many bytes of it hold no end of a line */
    char *tail;              /* standard error only: the last TAIL_BYTES, oldest first */
    size_t n_tail;
};

struct sink {
    int fd;
    bool is_terminal, is_file;
    struct queue waiting;
    const struct stream *open_line; /* whose line has begun but not ended; NULL: none */
    bool ends_with_cr;              /* the open line went back to its start: a live line */
    int broken_errno;
};

struct launch_relay {
    int n_streams;
    struct stream *streams; /* of rank r: 2r is standard output, 2r + 1 standard error */
    struct sink sinks[2];
    struct sink *sink_of[2];
    struct stream own; /* stands for the launcher as a writer */
    bool passes_parts; /* one worker, no prefix: nothing can mix, so bytes go on as they come */
    bool is_finishing;
};

/* ---- queue ----------------------------------------------------------------------------------- */

static size_t queue_bytes(const struct queue *q)
{
    return q->end - q->start;
}

/* Makes room for `more` bytes at the end. */
static bool queue_reserve(struct queue *q, size_t more)
{
    if (q->start == q->end) q->start = q->end = 0;
    if (q->bytes != NULL && q->cap - q->end >= more) return true;
    size_t used = queue_bytes(q), wanted, cap = q->cap ? q->cap : READ_BYTES;
    if (!gmi_add_sizes(used, more, &wanted)) return false;
    if (q->bytes != NULL && wanted <= q->cap / 2) {
        memmove(q->bytes, q->bytes + q->start, used);
    } else {
        while (cap < wanted) {
            if (!gmi_mul_sizes(cap, 2, &cap)) return false;
        }
        char *bytes = gmi_alloc(cap, 1);
        if (bytes == NULL) return false;
        if (q->bytes != NULL) memcpy(bytes, q->bytes + q->start, used);
        gmi_free(q->bytes);
        q->bytes = bytes;
        q->cap = cap;
    }
    q->start = 0;
    q->end = used;
    return true;
}

static bool queue_put(struct queue *q, const char *bytes, size_t n)
{
    if (n == 0) return true;
    if (!queue_reserve(q, n)) return false;
    memcpy(q->bytes + q->end, bytes, n);
    q->end += n;
    return true;
}

static void queue_free(struct queue *q)
{
    gmi_free(q->bytes);
    *q = (struct queue){ 0 };
}

/* ---- sink ------------------------------------------------------------------------------------ */

static void sink_init(struct sink *s, int fd)
{
    struct stat st;
    *s = (struct sink){ .fd = fd, .is_terminal = isatty(fd) == 1 };
    s->is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static bool are_one_file(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino && sa.st_rdev == sb.st_rdev;
}

static bool sink_is_full(const struct sink *s)
{
    return s->broken_errno == 0 && queue_bytes(&s->waiting) >= SINK_FULL_BYTES;
}

static void sink_break(struct sink *s, int reason)
{
    s->broken_errno = reason;
    queue_free(&s->waiting);
}

static void sink_put(struct sink *s, const char *bytes, size_t n)
{
    if (s->broken_errno == 0 && !queue_put(&s->waiting, bytes, n)) sink_break(s, ENOMEM);
}

/* Adds a piece of a stream: a line with its end, or (`n` bytes without an end) a part of one. */
static void sink_put_piece(struct sink *s, const struct stream *from, const char *bytes, size_t n)
{
    if (n == 0) return;
    bool is_continued = s->open_line == from && !s->ends_with_cr;
    if (s->open_line != NULL && s->open_line != from) sink_put(s, "\n", 1);
    if (from->has_prefix && !is_continued) sink_put(s, from->prefix, strlen(from->prefix));
    sink_put(s, bytes, n);
    s->open_line = bytes[n - 1] == '\n' ? NULL : from;
    s->ends_with_cr = bytes[n - 1] == '\r';
}

static bool is_writable_now(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) > 0;
}

/* Writes while the descriptor takes something; at most a good piece, so that everybody has a turn.
 */
static void sink_flush(struct sink *s)
{
    for (int turn = 0; turn < WRITES_PER_TURN && queue_bytes(&s->waiting); turn++) {
        if (!is_writable_now(s->fd)) return;
        size_t want = gmi_min_size(queue_bytes(&s->waiting),
                                   s->is_file ? WRITE_FILE_BYTES : WRITE_PIPE_BYTES);
        ssize_t sent = write(s->fd, s->waiting.bytes + s->waiting.start, want);
        if (sent >= 0) {
            s->waiting.start += (size_t)sent;
            continue;
        }
        if (errno == EAGAIN || errno == EINTR) return;
        sink_break(s, errno);
    }
}

/* ---- stream ---------------------------------------------------------------------------------- */

/* Keeps the last TAIL_BYTES of what was written. */
static void remember(struct stream *st, const char *bytes, size_t n)
{
    if (st->tail == NULL) return;
    if (n >= TAIL_BYTES) {
        memcpy(st->tail, bytes + n - TAIL_BYTES, TAIL_BYTES);
        st->n_tail = TAIL_BYTES;
        return;
    }
    size_t kept = gmi_min_size(st->n_tail, TAIL_BYTES - n);
    memmove(st->tail, st->tail + st->n_tail - kept, kept);
    memcpy(st->tail + kept, bytes, n);
    st->n_tail = kept + n;
}

/* The length of the first line in `bytes`, its end included; 0: none ends here. A carriage return
 * ends a line on a terminal, so that live lines are seen while they live; elsewhere it is a byte
 * like others. */
static size_t line_bytes(const char *bytes, size_t n, bool is_terminal)
{
    const char *newline = memchr(bytes, '\n', n);
    if (newline != NULL) n = (size_t)(newline - bytes) + 1;
    const char *back = is_terminal ? memchr(bytes, '\r', n) : NULL;
    if (back != NULL && back + 1 < bytes + n && back[1] == '\n') back = NULL;
    if (back != NULL) return (size_t)(back - bytes) + 1;
    return newline != NULL ? n : 0;
}

/* Hands complete lines from the stream's queue to its sink. */
static void pass_lines(struct stream *st, bool passes_parts)
{
    struct queue *q = &st->unfinished;
    while (queue_bytes(q)) {
        const char *bytes = q->bytes + q->start;
        size_t n = queue_bytes(q);
        size_t n_line = line_bytes(bytes + st->n_scanned, n - st->n_scanned, st->sink->is_terminal);
        if (n_line != 0) n_line += st->n_scanned;
        else if (passes_parts || n >= LAUNCH_LINE_MAX_BYTES) n_line = n;
        if (n_line == 0) {
            st->n_scanned = n;
            return;
        }
        sink_put_piece(st->sink, st, bytes, n_line);
        q->start += n_line;
        st->n_scanned = 0;
    }
}

static void stream_end(struct stream *st)
{
    struct queue *q = &st->unfinished;
    if (queue_bytes(q)) sink_put_piece(st->sink, st, q->bytes + q->start, queue_bytes(q));
    if (st->has_prefix && st->sink->open_line == st) sink_put_piece(st->sink, st, "\n", 1);
    queue_free(q);
    st->n_scanned = 0;
    close(st->fd);
    st->fd = -1;
}

static void stream_read(struct stream *st, bool passes_parts, bool ends_when_empty)
{
    struct queue *q = &st->unfinished;
    if (!queue_reserve(q, READ_BYTES)) {
        sink_break(st->sink, ENOMEM);
        stream_end(st);
        return;
    }
    ssize_t got = read(st->fd, q->bytes + q->end, READ_BYTES);
    if (got > 0) {
        remember(st, q->bytes + q->end, (size_t)got);
        q->end += (size_t)got;
        pass_lines(st, passes_parts);
        return;
    }
    if (got < 0 && errno == EINTR) return;
    if (got < 0 && errno == EAGAIN && !ends_when_empty) return;
    stream_end(st);
}

/* ---- relay ----------------------------------------------------------------------------------- */

static void make_prefix(struct stream *st, bool has_colour)
{
    static const int colours[] = {
        36, 33, 32, 35, 34, 31
    }; /* those that are read well on dark and light */
    int colour = colours[(size_t)st->rank % (sizeof colours / sizeof colours[0])];
    if (has_colour)
        snprintf(st->prefix, sizeof st->prefix, "\033[%dm[%d]\033[0m ", colour, st->rank);
    else snprintf(st->prefix, sizeof st->prefix, "[%d] ", st->rank);
}

struct launch_relay *launch_relay_create(const struct launch_relay_options *options)
{
    struct launch_relay *relay = gmi_alloc(1, sizeof *relay);
    if (relay == NULL) return NULL;
    relay->own = (struct stream){ .fd = -1, .rank = -1 };
    for (int kind = 0; kind < 2; kind++) {
        sink_init(&relay->sinks[kind], options->fds[kind]);
        relay->sink_of[kind] = &relay->sinks[kind];
    }
    if (options->stdout_to_stderr ||
        are_one_file(options->fds[LAUNCH_STDOUT], options->fds[LAUNCH_STDERR])) {
        relay->sink_of[LAUNCH_STDOUT] = &relay->sinks[LAUNCH_STDERR];
    }
    relay->passes_parts = options->n_workers == 1;
    relay->streams = gmi_alloc((size_t)options->n_workers, 2 * sizeof *relay->streams);
    if (relay->streams == NULL) {
        launch_relay_destroy(relay);
        return NULL;
    }
    relay->n_streams = 2 * options->n_workers;
    bool has_memory = true;
    for (int i = 0; i < relay->n_streams; i++) {
        struct stream *st = &relay->streams[i];
        int kind = i % 2;
        *st = (struct stream){ .fd = -1,
                               .rank = i / 2,
                               .sink = relay->sink_of[kind],
                               .has_prefix = options->has_prefix[kind] };
        make_prefix(st, options->has_colour[kind]);
        if (kind != LAUNCH_STDERR) continue;
        st->tail = gmi_alloc(TAIL_BYTES, 1);
        has_memory = has_memory && st->tail != NULL;
    }
    if (has_memory) return relay;
    launch_relay_destroy(relay);
    return NULL;
}

void launch_relay_destroy(struct launch_relay *relay)
{
    if (relay == NULL) return;
    for (int i = 0; i < relay->n_streams; i++) {
        struct stream *st = &relay->streams[i];
        if (st->fd >= 0) close(st->fd);
        queue_free(&st->unfinished);
        gmi_free(st->tail);
    }
    for (int kind = 0; kind < 2; kind++) queue_free(&relay->sinks[kind].waiting);
    gmi_free(relay->streams);
    gmi_free(relay);
}

void launch_relay_attach(struct launch_relay *relay, int rank, enum launch_stream kind, int fd)
{
    fcntl(fd, F_SETFL, O_NONBLOCK); /* our end alone: the worker's is another open file */
    relay->streams[2 * rank + (int)kind].fd = fd;
}

void launch_relay_sayv(struct launch_relay *relay, const char *format, va_list args)
{
    char line[4096];
    int n = vsnprintf(line, sizeof line - 1, format, args);
    if (n < 0) return;
    if ((size_t)n > sizeof line - 2) n = (int)sizeof line - 2;
    line[n] = '\n';
    sink_put_piece(relay->sink_of[LAUNCH_STDERR], &relay->own, line, (size_t)n + 1);
}

void launch_relay_say(struct launch_relay *relay, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    launch_relay_sayv(relay, format, args);
    va_end(args);
}

void launch_relay_watch(struct launch_relay *relay, struct gmi_poller *poller)
{
    for (int i = 0; i < relay->n_streams; i++) {
        const struct stream *st = &relay->streams[i];
        if (st->fd >= 0 && !sink_is_full(st->sink)) gmi_poller_add(poller, st->fd, GMI_READABLE);
    }
    for (int kind = 0; kind < 2; kind++) {
        const struct sink *s = &relay->sinks[kind];
        if (queue_bytes(&s->waiting)) gmi_poller_add(poller, s->fd, GMI_WRITABLE);
    }
}

void launch_relay_step(struct launch_relay *relay, const struct gmi_poller *poller)
{
    for (int i = 0; i < relay->n_streams; i++) {
        struct stream *st = &relay->streams[i];
        if (st->fd < 0 || sink_is_full(st->sink)) continue;
        bool is_ready = relay->is_finishing || (gmi_poller_ready(poller, st->fd) & GMI_READABLE);
        bool passes_parts = relay->passes_parts && !st->has_prefix;
        if (is_ready) stream_read(st, passes_parts, relay->is_finishing);
    }
    for (int kind = 0; kind < 2; kind++) sink_flush(&relay->sinks[kind]);
}

void launch_relay_finish(struct launch_relay *relay)
{
    relay->is_finishing = true;
}

bool launch_relay_is_idle(const struct launch_relay *relay)
{
    for (int i = 0; i < relay->n_streams; i++) {
        if (relay->streams[i].fd >= 0) return false;
    }
    return queue_bytes(&relay->sinks[0].waiting) == 0 && queue_bytes(&relay->sinks[1].waiting) == 0;
}

int launch_relay_broken(const struct launch_relay *relay, enum launch_stream kind)
{
    return relay->sink_of[kind]->broken_errno;
}

int launch_relay_last_lines(const struct launch_relay *relay, int rank,
                            void (*line)(void *user, const char *text, int n_bytes), void *user)
{
    const struct stream *st = &relay->streams[2 * rank + LAUNCH_STDERR];
    size_t end = st->n_tail;
    while (end && (st->tail[end - 1] == '\n' || st->tail[end - 1] == '\r')) end--;
    size_t start = end;
    for (int n_lines = 0; start > 0; start--) {
        if (st->tail[start - 1] == '\n' && ++n_lines == TAIL_LINES) break;
    }
    int n_lines = 0;
    while (start < end) {
        const char *newline = memchr(st->tail + start, '\n', end - start);
        size_t n = newline != NULL ? (size_t)(newline - (st->tail + start)) : end - start;
        line(user, st->tail + start, (int)n);
        n_lines++;
        start += n + 1;
    }
    return n_lines;
}
