/* lines.c - from wanting a link to a connection: calling a peer, and being called by one.
 *
 *     line: (communicator, lane, peer)
 *
 *         nothing --want--> calling --+
 *                 <-admit-- (the peer calls) --+--> a connection, and then, by share.c, a link at
 *                 the port
 *
 * Of two ranks the higher one calls the lower. The lower one, when it needs the link, asks the
 * higher one to call, by a control message that rank 0 passes on; the higher one's service thread
 * does so whatever its caller's thread is doing. So a rank that calls something else than the
 * others still gets its links, and with the first descriptor on them everybody learns of the
 * mismatch.
 *
 * All communicators of a process that have one root come in by the root's acceptor; a hello says
 * which is meant. Ranks in hellos are those of the root. By the service thread, under the lock;
 * nothing blocks. */
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "net/socket.h"

struct gm_comm *gmi_comm_find(struct gm_comm *root, uint32_t group_id)
{
    struct gm_comm *comm = root;
    while (comm != NULL && (comm->group_id != group_id || comm->is_destroyed)) comm = comm->next;
    return comm;
}

struct gmi_line *gmi_comm_lines(struct gm_comm *comm, enum gmi_lane lane)
{
    if (comm->lines[lane] != NULL) return comm->lines[lane];
    size_t           n = (size_t)comm->n_ranks;
    struct gmi_line *lines = gmi_alloc(n, sizeof *lines);
    struct gmi_port *ports = gmi_alloc(n, sizeof *ports);
    if (lines == NULL || ports == NULL) {
        gmi_free(lines);
        gmi_free(ports);
        return NULL;
    }
    for (int k = 0; k < comm->n_ranks; k++) {
        ports[k].peer = k;
        lines[k] = (struct gmi_line){ .comm = comm, .lane = lane, .peer = k, .port = &ports[k] };
    }
    comm->groups[lane].ports = ports;
    return comm->lines[lane] = lines;
}

/* A call that takes so long is told to the peer, so often. */
enum { KNOCK_EVERY_MS = 500 };

/* ---- calling --------------------------------------------------------------------------------- */

static enum gmi_channel channel_of(enum gmi_lane lane)
{
    return lane == GMI_LANE_DATA ? GMI_CHANNEL_DATA : GMI_CHANNEL_MESSAGES;
}

__attribute__((format(printf, 4, 5))) static void fail(struct gmi_line *line, gm_status status, int culprit, const char *format, ...)
{
    struct gm_comm    *root = line->comm->root;
    struct gmi_failure f = { .status = status, .culprit = culprit, .reporter = root->rank };
    va_list            arguments;
    va_start(arguments, format);
    vsnprintf(f.cause, sizeof f.cause, format, arguments);
    va_end(arguments);
    gmi_control_fail(&root->control, &f);
}

static void no_memory(struct gmi_line *line)
{
    int own = line->comm->root->rank;
    fail(line, GM_ERR_NOMEM, own, "rank %d has no memory for its connection to rank %d", own, gmi_line_peer(line));
}

static void end_call(struct gmi_line *line)
{
    if (line->call == NULL) return;
    gmi_call_fini(line->call);
    gmi_free(line->call);
    line->call = NULL;
    line->comm->root->n_calls--;
}

/* The answerer speaks for all its communicators; that it is the right process must do. */
static gm_status expects_rank(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    const struct gmi_hello *own = user;
    if (strcmp(peer->job_id, own->job_id) == 0 && peer->rank == own->target) return GM_OK;
    snprintf(why, why_bytes, "expected rank %d of job '%s' here, found rank %d of job '%s'",
             (int)own->target, own->job_id, (int)peer->rank, peer->job_id);
    return GM_ERR_STATE;
}

void gmi_line_want(struct gmi_line *line)
{
    struct gm_comm *root = line->comm->root;
    int             peer = gmi_line_peer(line), port;
    char            host[256];
    if (peer > root->rank || line->port->link != NULL || line->call != NULL || line->share != NULL)
        return;
    if (gmi_host_port_split(root->control.members[peer].address, host, sizeof host, &port, NULL) != GM_OK) {
        fail(line, GM_ERR_PROTOCOL, peer, "rank %d has told an address that is none: '%.60s'", peer, root->control.members[peer].address);
        return;
    }
    struct gmi_hello hello = gmi_comm_hello(line->comm, channel_of(line->lane), peer);
    struct gmi_call *call = gmi_alloc(1, sizeof *call);
    if (call == NULL) {
        no_memory(line);
        return;
    }
    gmi_call_init(call, host, port, &hello, &root->secret, expects_rank);
    line->call = call;
    line->knock_ns = gmi_deadline_after_ms(KNOCK_EVERY_MS);
    root->n_calls++;
}

void gmi_line_trouble(const struct gmi_line *line, char *text, size_t text_bytes)
{
    if (line->share != NULL) {
        snprintf(text, text_bytes, "it has not answered %s",
                 gmi_share_is_securing(line) ? "to the beginning of the encryption" : "how memory is to be shared");
    } else if (line->call == NULL) {
        snprintf(text, text_bytes, "it has not called");
    } else {
        const char *last = line->call->error.text;
        snprintf(text, text_bytes, "the last try: %.200s", last[0] ? last : "no answer");
    }
}

static void connected(struct gmi_line *line, const struct gmi_handshake *h, int fd)
{
    struct gmi_connected c = { .fd = fd, .is_caller = h->is_caller, .sent_bytes = h->total_sent_bytes,
                               .recv_bytes = h->total_recv_bytes };
    if (gmi_handshake_link_key(h, c.key)) {
        gmi_share_connected(line, &c);
    } else {
        gmi_socket_close(&fd);
        no_memory(line);
    }
    OPENSSL_cleanse(c.key, sizeof c.key);
}

/* Whatever its machine refuses the peer, it knows better than we, and may not know that it matters. */
static void knock_if_late(struct gmi_line *line)
{
    if (!gmi_deadline_passed(line->knock_ns)) return;
    line->knock_ns = gmi_deadline_after_ms(KNOCK_EVERY_MS);
    gmi_control_knock(&line->comm->root->control, gmi_line_peer(line));
}

static void step_call(struct gmi_line *line)
{
    struct gmi_call *call = line->call;
    struct gm_comm  *root = line->comm->root;
    gm_status        status = gmi_call_progress(call);
    if (status == GM_AGAIN) {
        knock_if_late(line);
        return;
    }
    if (status == GM_OK) {
        connected(line, &call->handshake, gmi_call_take_fd(call));
    } else if (status == GM_ERR_SYSTEM) { /* it is not the peer that refuses */
        fail(line, status, root->rank, "rank %d cannot connect to rank %d: %.220s", root->rank, gmi_line_peer(line), call->error.text);
    } else {
        struct gmi_failure f = { .status = status,
                                 .culprit = gmi_line_peer(line),
                                 .reporter = root->rank };
        snprintf(f.cause, sizeof f.cause, "rank %d cannot connect to rank %d: %.220s", root->rank,
                 f.culprit, call->error.text);
        gmi_control_fail_soon(&root->control, &f);
    }
    end_call(line);
}

/* ---- being called ---------------------------------------------------------------------------- */

/* Our line to a world rank; NULL: it is not in that communicator, or there is no memory. */
static struct gmi_line *line_to(struct gm_comm *comm, enum gmi_lane lane, int world_rank)
{
    struct gmi_line *lines = gmi_comm_lines(comm, lane);
    for (int k = 0; lines != NULL && k < comm->n_ranks; k++) {
        if (gmi_world_rank(comm, k) == world_rank && k != comm->rank) return &lines[k];
    }
    return NULL;
}

static struct gmi_line *line_of_hello(struct gm_comm *root, const struct gmi_hello *peer)
{
    struct gm_comm *comm = gmi_comm_find(root, peer->group);
    enum gmi_lane   lane = peer->channel == GMI_CHANNEL_DATA ? GMI_LANE_DATA : GMI_LANE_MESSAGES;
    return comm == NULL ? NULL : line_to(comm, lane, peer->rank);
}

void gmi_line_call_back(void *root, int peer, uint32_t group_id, int lane)
{
    struct gm_comm  *comm = gmi_comm_find(root, group_id);
    struct gmi_line *line = comm != NULL ? line_to(comm, (enum gmi_lane)lane, peer) : NULL;
    if (line != NULL) gmi_line_want(line);
}

gm_status gmi_line_judge(struct gm_comm *root, const struct gmi_hello *peer, char *why,
                         size_t why_bytes)
{
    if (root->control.phase != GMI_READY) {
        snprintf(why, why_bytes, "rank %d is not ready for data yet; come again", root->rank);
        return GM_ERR_STATE;
    }
    if (peer->session != root->control.session) {
        snprintf(why, why_bytes, "this is another run of the same job");
        return GM_ERR_REFUSED;
    }
    const struct gmi_line *line = line_of_hello(root, peer);
    if (line == NULL) {
        snprintf(why, why_bytes, "rank %d is in no communicator %08x with rank %d; come again",
                 root->rank, peer->group, (int)peer->rank);
        return GM_ERR_STATE;
    }
    if (line->port->link != NULL) {
        snprintf(why, why_bytes, "rank %d already has a connection to rank %d", root->rank,
                 (int)peer->rank);
        return GM_ERR_REFUSED;
    }
    if (line->share != NULL) { /* its last connection has broken, and we do not know it yet */
        snprintf(why, why_bytes, "rank %d still has another connection to rank %d; come again",
                 root->rank, (int)peer->rank);
        return GM_ERR_STATE;
    }
    return GM_OK;
}

void gmi_line_admit(struct gm_comm *root, int fd, const struct gmi_handshake *finished)
{
    struct gmi_line *line = line_of_hello(root, &finished->peer);
    if (line == NULL) { /* destroyed since it was judged */
        gmi_socket_close(&fd);
        return;
    }
    connected(line, finished, fd);
}

/* ---- for the service thread ------------------------------------------------------------------ */

/* Calls `visit` for all lines on which something is under way. */
static void for_each_busy(struct gm_comm *root, void (*visit)(struct gmi_line *line, void *user),
                          void *user)
{
    for (struct gm_comm *comm = root; comm != NULL && root->n_calls + root->n_shares > 0;
         comm = comm->next) {
        for (int k = 0; k < GMI_LANES * comm->n_ranks; k++) {
            struct gmi_line *lines = comm->lines[k / comm->n_ranks],
                            *line = &lines[k % comm->n_ranks];
            if (lines != NULL && (line->call != NULL || line->share != NULL)) visit(line, user);
        }
    }
}

static void step(struct gmi_line *line, void *user)
{
    (void)user;
    if (line->call != NULL) step_call(line);
    if (line->share != NULL) gmi_share_step(line);
}

static void watch(struct gmi_line *line, void *user)
{
    if (line->call != NULL) gmi_call_watch(line->call, user);
    if (line->share != NULL) gmi_share_watch(line, user);
}

static void note_next(struct gmi_line *line, void *user)
{
    int64_t *next_ns = user,
            call_ns = line->call != NULL ? gmi_call_next_ns(line->call) : GMI_NEVER;
    if (line->call != NULL && line->knock_ns < call_ns) call_ns = line->knock_ns;
    int64_t  share_ns = line->share != NULL ? gmi_share_next_ns(line) : GMI_NEVER;
    if (call_ns < *next_ns) *next_ns = call_ns;
    if (share_ns < *next_ns) *next_ns = share_ns;
}

void gmi_lines_step(struct gm_comm *root) { for_each_busy(root, step, NULL); }

void gmi_lines_watch(struct gm_comm *root, struct gmi_poller *poller)
{
    for_each_busy(root, watch, poller);
}

int64_t gmi_lines_next_ns(struct gm_comm *root)
{
    int64_t next_ns = GMI_NEVER;
    for_each_busy(root, note_next, &next_ns);
    return next_ns;
}

void gmi_lines_fini(struct gm_comm *comm)
{
    for (int lane = 0; lane < GMI_LANES; lane++) {
        for (int k = 0; comm->lines[lane] != NULL && k < comm->n_ranks; k++) {
            struct gmi_line *line = &comm->lines[lane][k];
            end_call(line);
            gmi_share_end(line);
            gmi_link_close(line->port->link);
        }
        gmi_free(comm->groups[lane].ports);
        gmi_free(comm->lines[lane]);
        comm->groups[lane].ports = NULL;
        comm->lines[lane] = NULL;
    }
}
