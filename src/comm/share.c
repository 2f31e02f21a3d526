/* share.c - from a connection between two ranks to the link that collectives use.
 *
 *     handshake done
 *       |
 *       +-- they may not share memory ------------------> TCP link; with encryption: after a TLS handshake
 *       |
 *       +-- they may: the caller makes a segment and ---> shared-memory link, with the connection
 *           two bells and passes them on                  as its lifeline
 *           (rendezvous/passing.h)
 *             |
 *             +-- not to be had, and both know it ------> TCP link, and a line in the log;
 *                                                         with "shm": the failure of all
 *
 * Whether two ranks may share memory follows from the table that rank 0 has sent to all, so both
 * ends of a connection know it. By the service thread, under the lock; nothing blocks. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "net/socket.h"
#include "rendezvous/passing.h"
#include "transport/shm_segment.h"

enum {
    GIVER = 0, TAKER = 1, /* sides of the segment */
    N_PASSED = 3,         /* the memory, the giver's bell, the taker's bell */
    TAKE_TIMEOUT_MS = 10000,
    MAX_CAPACITY_BYTES = 1 << 20, TRIO_CAPACITY_BYTES = 1 << 18, MIN_CAPACITY_BYTES = 1 << 16, BUDGET_BYTES = 1 << 24,
};

struct gmi_share {
    int                    fd; /* the connection */
    int                    side;
    uint64_t               sent_bytes, recv_bytes; /* of the handshake */
    struct gmi_passing     passing;
    struct gmi_shm_segment segment;
    int                    memory_fd, bell_fds[2]; /* -1: none */
    struct gmi_link       *securing; /* a TLS link in its handshake, which has `fd` then; else NULL */
    uint8_t                key[GMI_TLS_KEY_BYTES];
};

/* ---- links ----------------------------------------------------------------------------------- */

static void attach(struct gmi_line *line, struct gmi_link *link, uint64_t sent_bytes,
                   uint64_t recv_bytes)
{
    struct gm_comm *comm = line->comm, *root = comm->root;
    int             rank = gmi_line_peer(line);
    if (link == NULL) {
        struct gmi_failure f = { .status = GM_ERR_NOMEM,
                                 .culprit = root->rank,
                                 .reporter = root->rank };
        snprintf(f.cause, sizeof f.cause, "rank %d has no memory for its link to rank %d",
                 root->rank, rank);
        gmi_control_fail(&root->control, &f);
        return;
    }
    line->port->link = link;
    comm->traffic[GM_COLLECTIVE_END].protocol_sent_bytes += sent_bytes;
    comm->traffic[GM_COLLECTIVE_END].protocol_recv_bytes += recv_bytes;
    gmi_log(&root->log, GM_LOG_DEBUG, "rank %d exchanges %s with rank %d by %s", root->rank,
            line->lane == GMI_LANE_DATA ? "data" : "messages", rank, link->ops->name);
    gmi_caller_wake(comm);
}

/* ---- making and ending a share --------------------------------------------------------------- */

/* One link may have so much; many share a budget, since each may come to touch all of its own. Three ranks are faster with
 * less: what is under way stays in the caches. docs/tuning.md */
static size_t capacity_for(int n_ranks)
{
    size_t capacity = n_ranks == 3 ? TRIO_CAPACITY_BYTES : MAX_CAPACITY_BYTES;
    while (capacity > MIN_CAPACITY_BYTES && capacity * 2 * (size_t)n_ranks > BUDGET_BYTES)
        capacity /= 2;
    return capacity;
}

/* Memory and bells; 0, or why not. */
static int make_resources(struct gmi_share *s, size_t capacity_bytes)
{
    int sys_errno = 0;
    if (gmi_shm_segment_create(&s->segment, capacity_bytes, &s->memory_fd, &sys_errno) != GM_OK)
        return sys_errno;
    for (int i = 0; i < 2; i++) {
        s->bell_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (s->bell_fds[i] < 0) return errno;
    }
    return 0;
}

static void give(struct gm_comm *comm, struct gmi_share *s)
{
    size_t    capacity_bytes = capacity_for(comm->n_ranks);
    int       sys_errno = make_resources(s, capacity_bytes);
    const int fds[N_PASSED] = { s->memory_fd, s->bell_fds[GIVER], s->bell_fds[TAKER] };
    gmi_passing_give(&s->passing, s->fd, fds, sys_errno == 0 ? N_PASSED : 0,
                     (uint32_t)capacity_bytes, sys_errno);
}

static bool try_fds(void *user, int *fds, int n_fds, uint32_t note, int *sys_errno)
{
    struct gmi_share *s = user;
    if (n_fds != N_PASSED || gmi_shm_segment_map(&s->segment, note, fds[0], sys_errno) != GM_OK)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(fds[1 + i], F_SETFL, O_NONBLOCK);
        s->bell_fds[i] = fds[1 + i];
        fds[1 + i] = -1;
    }
    return true;
}

/* NULL: no memory; the connection is closed. */
static struct gmi_share *make_share(struct gmi_line *line, const struct gmi_connected *c)
{
    struct gmi_share *s = gmi_alloc(1, sizeof *s);
    if (s == NULL) {
        int fd = c->fd;
        gmi_socket_close(&fd);
        attach(line, NULL, 0, 0);
        return NULL;
    }
    *s = (struct gmi_share){ .fd = c->fd, .side = c->is_caller ? GIVER : TAKER, .sent_bytes = c->sent_bytes,
                             .recv_bytes = c->recv_bytes, .memory_fd = -1, .bell_fds = { -1, -1 },
                             .passing = { .listener_fd = -1, .local_fd = -1 } };
    memcpy(s->key, c->key, sizeof s->key);
    gmi_socket_tune(c->fd); /* else the offer waits for the acknowledgement of the verdict before it */
    line->share = s;
    line->comm->root->n_shares++;
    return s;
}

static void begin(struct gmi_line *line, const struct gmi_connected *c)
{
    struct gmi_share *s = make_share(line, c);
    if (s == NULL) return;
    if (c->is_caller) {
        give(line->comm, s);
    } else {
        gmi_passing_take(&s->passing, c->fd, N_PASSED, try_fds, s, TAKE_TIMEOUT_MS);
    }
}

/* What the link has not taken over is released. */
static void end(struct gmi_line *line)
{
    struct gmi_share *s = line->share;
    gmi_passing_fini(&s->passing);
    gmi_shm_segment_unmap(&s->segment);
    gmi_socket_close(&s->memory_fd);
    gmi_socket_close(&s->bell_fds[0]);
    gmi_socket_close(&s->bell_fds[1]);
    gmi_link_close(s->securing);
    gmi_socket_close(&s->fd);
    OPENSSL_cleanse(s->key, sizeof s->key);
    gmi_free(s);
    line->share = NULL;
    line->comm->root->n_shares--;
}

/* ---- what came of it ------------------------------------------------------------------------- */

static void finish(struct gmi_line *line, struct gmi_link *link)
{
    struct gmi_share *s = line->share;
    uint64_t          sent_bytes = s->sent_bytes + s->passing.total_sent_bytes;
    uint64_t          recv_bytes = s->recv_bytes + s->passing.total_recv_bytes;
    end(line);
    attach(line, link, sent_bytes, recv_bytes);
}

static void use_memory(struct gmi_line *line)
{
    struct gmi_share *s = line->share;
    struct gmi_link  *link = gmi_link_shm_create(s->fd, &s->segment, s->side, s->bell_fds);
    if (link != NULL) s->fd = s->bell_fds[0] = s->bell_fds[1] = -1;
    if (line->comm->root->is_checked) link = gmi_link_checked_wrap(link);
    finish(line, link);
}

static void use_socket(struct gmi_line *line)
{
    struct gmi_share *s = line->share;
    bool              is_client = s->side == GIVER, is_encrypted = line->comm->root->is_encrypted;
    struct gmi_link  *link = is_encrypted ? gmi_link_tls_create(s->fd, is_client, s->key) : gmi_link_tcp_create(s->fd);
    s->fd = -1;
    if (is_encrypted && link != NULL) {
        s->securing = link; /* step_tls goes on */
    } else {
        finish(line, line->comm->root->is_checked ? gmi_link_checked_wrap(link) : link);
    }
}

static void no_memory_shared(struct gmi_line *line)
{
    const struct gmi_passing *p = &line->share->passing;
    struct gm_comm           *root = line->comm->root;
    int                       rank = gmi_line_peer(line), culprit = p->is_trouble_ours ? root->rank : rank;
    char                      why[160];
    gmi_passing_why(p, why, sizeof why);
    if (root->transport->uses_sockets) {
        gmi_log(&root->log, root->has_said_not_shared ? GM_LOG_INFO : GM_LOG_WARN,
                "rank %d cannot share memory with rank %d and uses TCP: rank %d %s", root->rank,
                rank, culprit, why);
        root->has_said_not_shared = true;
        use_socket(line);
        return;
    }
    struct gmi_failure f = { .status = GM_ERR_UNSUPPORTED,
                             .culprit = culprit,
                             .reporter = root->rank };
    snprintf(f.cause, sizeof f.cause,
             "rank %d must share memory with rank %d (transport shm), but rank %d %s; the "
             "transport auto would use TCP", root->rank, rank, culprit, why);
    if (p->trouble == GMI_PASSING_NOT_REACHED) { /* it may have gone, for a reason that we shall hear */
        gmi_control_fail_soon(&root->control, &f);
    } else {
        gmi_control_fail(&root->control, &f);
    }
    end(line);
}

static void connection_broke(struct gmi_line *line, gm_status status);

static void step_tls(struct gmi_line *line)
{
    struct gmi_share *s = line->share;
    gm_status         status = gmi_link_tls_shake(s->securing);
    if (status == GM_AGAIN) return;
    if (status != GM_OK) {
        connection_broke(line, status);
        return;
    }
    struct gmi_link *link = s->securing;
    s->securing = NULL;
    finish(line, link);
}

/* The connection broke meanwhile. A peer that is gone shows at the control connections. */
static void connection_broke(struct gmi_line *line, gm_status status)
{
    bool            is_caller = line->share->side == GIVER, was_securing = line->share->securing != NULL;
    struct gm_comm *root = line->comm->root;
    int             rank = gmi_line_peer(line);
    end(line);
    if (status == GM_ERR_PROTOCOL) {
        struct gmi_failure f = { .status = status, .culprit = rank, .reporter = root->rank };
        snprintf(f.cause, sizeof f.cause,
                 "rank %d sent something else than %s", rank,
                 was_securing ? "what begins the encryption of a connection with the job's secret"
                              : "an offer of memory or its answer");
        gmi_control_fail(&root->control, &f);
    } else if (is_caller) {
        gmi_line_want(line);
    }
}

/* ---- for the service thread ------------------------------------------------------------------ */

void gmi_share_connected(struct gmi_line *line, const struct gmi_connected *c)
{
    int fd = c->fd;
    if (line->port->link != NULL || line->share != NULL) {
        gmi_socket_close(&fd); /* two at once; the first one stays */
    } else if (gmi_control_may_share(&line->comm->root->control, gmi_line_peer(line))) {
        begin(line, c);
    } else if (make_share(line, c) != NULL) {
        use_socket(line);
    }
}

void gmi_share_step(struct gmi_line *line)
{
    struct gmi_share *s = line->share;
    if (s->securing != NULL) {
        step_tls(line);
        return;
    }
    gm_status status = gmi_passing_progress(&s->passing);
    if (status == GM_AGAIN) return;
    if (status != GM_OK) {
        connection_broke(line, status);
    } else if (s->passing.trouble == GMI_PASSING_FINE) {
        use_memory(line);
    } else {
        no_memory_shared(line);
    }
}

void gmi_share_watch(const struct gmi_line *line, struct gmi_poller *poller)
{
    if (line->share->securing != NULL) {
        gmi_link_watch(line->share->securing, poller, GMI_READABLE);
    } else {
        gmi_passing_watch(&line->share->passing, poller);
    }
}

int64_t gmi_share_next_ns(const struct gmi_line *line)
{
    return line->share->securing != NULL ? GMI_NEVER : gmi_passing_next_ns(&line->share->passing);
}

bool gmi_share_is_securing(const struct gmi_line *line) { return line->share->securing != NULL; }

void gmi_share_end(struct gmi_line *line)
{
    if (line->share != NULL) end(line);
}
