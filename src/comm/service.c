/* service.c - the one service thread of a communicator and its splits: what must go on while the caller computes.
 *
 * It looks after the control connections, lets other ranks in and calls them for data links, moves the
 * collectives that nobody waits for (comm/engine.h), and on rank 0 of a job without a launcher serves the store. It takes the lock to step all of these, and lets go of it to sleep. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "net/socket.h"

enum { TICK_MS = 500, IDLE_MS = 10000, DOOR_MS = 1000, NAP_MS = 5 };

/* ---- waking ------------------------------------------------------------------------------------ */

static void signal_event(int fd)
{
    uint64_t one = 1;
    ssize_t  written = write(fd, &one, sizeof one);
    (void)written; /* a full counter is as awake as can be */
}

static void drain_event(int fd)
{
    uint64_t count;
    ssize_t  got = read(fd, &count, sizeof count);
    (void)got;
}

void gmi_service_wake(struct gm_comm *comm) { signal_event(comm->root->service_wake_fd); }
void gmi_caller_wake(struct gm_comm *comm) { signal_event(comm->caller_wake_fd); }

void gmi_alarm_quiet(struct gm_comm *comm)
{
    if (!comm->root->control.has_failure) drain_event(comm->alarm_fd);
}

void gmi_service_notify(void *user)
{
    struct gm_comm *root = user;
    bool            is_alarm = root->control.has_failure || root->control.n_left > 0;
    for (struct gm_comm *comm = root; comm != NULL; comm = comm->next) {
        if (is_alarm) atomic_store(&comm->is_alarmed, true);
        if (is_alarm) signal_event(comm->alarm_fd);
        gmi_caller_wake(comm);
    }
}

void gmi_caller_wait(struct gm_comm *comm, int64_t deadline_ns)
{
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    gmi_poller_add(&poller, comm->caller_wake_fd, GMI_READABLE);
    if (gmi_poller_wait(&poller, deadline_ns) == GM_OK) drain_event(comm->caller_wake_fd);
    gmi_poller_fini(&poller);
}

/* ---- our hello ---------------------------------------------------------------------------------- */

struct gmi_hello gmi_comm_hello(const struct gm_comm *comm, enum gmi_channel channel, int target)
{
    const struct gm_comm *root = comm->root;
    struct gmi_hello hello = { .channel = (uint8_t)channel, .rank = root->rank, .target = target,
                               .world_size = root->n_ranks, .group = comm->group_id };
    if (channel == GMI_CHANNEL_DATA || channel == GMI_CHANNEL_MESSAGES) hello.session = root->control.session;
    memcpy(hello.job_id, root->job_id, sizeof hello.job_id);
    return hello;
}

/* ---- who may come in --------------------------------------------------------------------------- */

static gm_status judge(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    struct gm_comm *comm = user;
    if (strcmp(peer->job_id, comm->job_id) != 0) {
        snprintf(why, why_bytes, "this is job '%s', you belong to job '%s'", comm->job_id, peer->job_id);
        return GM_ERR_REFUSED;
    }
    if (peer->world_size != comm->n_ranks) {
        snprintf(why, why_bytes, "world size differs: rank %d says %d, rank %d says %d", (int)peer->rank,
                 (int)peer->world_size, comm->rank, comm->n_ranks);
        return GM_ERR_REFUSED;
    }
    bool is_other = peer->channel == GMI_CHANNEL_CONTROL && peer->group != comm->group_id;
    if (is_other || peer->target != comm->rank || peer->rank < 0 || peer->rank >= comm->n_ranks ||
        peer->rank == comm->rank) {
        snprintf(why, why_bytes, "this is rank %d of communicator '%s'; you are rank %d and want rank %d", comm->rank,
                 comm->group_name, (int)peer->rank, (int)peer->target);
        return GM_ERR_REFUSED;
    }
    if (peer->channel == GMI_CHANNEL_CONTROL) return gmi_control_judge(&comm->control, peer, why, why_bytes);
    if (peer->channel == GMI_CHANNEL_DATA || peer->channel == GMI_CHANNEL_MESSAGES) {
        return gmi_line_judge(comm, peer, why, why_bytes);
    }
    snprintf(why, why_bytes, "rank %d has no channel %d", comm->rank, peer->channel);
    return GM_ERR_REFUSED;
}

static void admit(void *user, int fd, const struct gmi_handshake *finished)
{
    struct gm_comm *comm = user;
    int             rank = finished->peer.rank;
    if (finished->peer.channel == GMI_CHANNEL_CONTROL) {
        struct gmi_stream stream; /* who gets none sees its end, and calls again */
        if (gmi_handshake_stream(finished, fd, &stream) == GM_OK) gmi_control_admit(&comm->control, rank, stream);
        return;
    }
    gmi_line_admit(comm, fd, finished);
}

gm_status gmi_service_listen(struct gm_comm *comm, const struct gmi_address *address, gm_error *error)
{
    struct gmi_hello own = gmi_comm_hello(comm, 0, GMI_NO_RANK);
    snprintf(comm->name, sizeof comm->name, "rank %d", comm->rank);
    gm_status status = gmi_acceptor_init(&comm->acceptor, address, &own, &comm->secret, judge, admit, comm, &comm->log, comm->name, error);
    comm->is_accepting = status == GM_OK;
    return status;
}

/* ---- what this machine refuses us ----------------------------------------------------------------- */

void gmi_service_knocked(void *user, int peer)
{
    struct gm_comm *comm = user;
    (void)peer;
    comm->knocked_ns = gmi_now_ns();
}

static void machine_refuses(struct gm_comm *comm, const char *what, int sys_errno)
{
    struct gmi_failure f = { .status = GM_ERR_SYSTEM, .culprit = comm->rank, .reporter = comm->rank, .sys_errno = sys_errno };
    const char        *address = comm->control.members[comm->rank].address;
    snprintf(f.cause, sizeof f.cause, "rank %d (%s) %s: %s", comm->rank, address[0] ? address : "address unknown", what, strerror(sys_errno));
    gmi_control_fail(&comm->control, &f);
}

/* Nobody can come in, and somebody must: he would call until the stall limit, and we are the only one who knows why he
 * gets no answer. Who cannot hear of the failure finds that nobody listens any more. */
static void mind_the_door(struct gm_comm *comm)
{
    struct gmi_acceptor *a = &comm->acceptor;
    if (gmi_acceptor_refused_ns(a) < DOOR_MS * GMI_NS_PER_MS || comm->control.has_failure) return;
    if (comm->knocked_ns < a->refused_since_ns && !gmi_control_awaits_callers(&comm->control)) return;
    machine_refuses(comm, "cannot accept the connections that others make to it", a->refused_errno);
    gmi_acceptor_close(a);
}

/* ---- the loop ---------------------------------------------------------------------------------- */

static void step(struct gm_comm *comm)
{
    if (comm->store_server != NULL) gmi_store_server_step(comm->store_server);
    comm->acceptor.is_ending = comm->control.n_left > 0 || comm->control.is_leaving;
    if (comm->is_accepting) gmi_acceptor_step(&comm->acceptor);
    if (comm->is_accepting) mind_the_door(comm);
    if (comm->status_fd >= 0) gmi_status_step(comm);
    gmi_lines_step(comm);
    gmi_move_step(comm);
    gmi_fare_step(comm);
    gmi_control_step(&comm->control);
}

static void watch(struct gm_comm *comm, struct gmi_poller *poller)
{
    gmi_poller_clear(poller);
    gmi_poller_add(poller, comm->service_wake_fd, GMI_READABLE);
    if (comm->store_server != NULL) gmi_store_server_watch(comm->store_server, poller);
    if (comm->is_accepting) gmi_acceptor_watch(&comm->acceptor, poller);
    if (comm->status_fd >= 0) gmi_poller_add(poller, comm->status_fd, GMI_READABLE);
    gmi_lines_watch(comm, poller);
    gmi_move_watch(comm, poller);
    gmi_control_watch(&comm->control, poller);
}

/* When something must be looked at again though no descriptor says so. */
static int64_t next_look_ns(struct gm_comm *comm)
{
    bool needs_ticks = comm->control.phase == GMI_GATHERING || comm->store_server != NULL ||
                       (comm->is_accepting && (comm->acceptor.n_pending > 0 || comm->acceptor.refused_since_ns != 0));
    int64_t next_ns = gmi_deadline_after_ms(needs_ticks ? TICK_MS : IDLE_MS);
    int64_t control_ns = gmi_control_next_ns(&comm->control), lines_ns = gmi_lines_next_ns(comm);
    if (control_ns < next_ns) next_ns = control_ns;
    int64_t move_ns = gmi_move_next_ns(comm);
    if (lines_ns < next_ns) next_ns = lines_ns;
    if (move_ns < next_ns) next_ns = move_ns;
    return next_ns;
}

/* Moves what nobody waits for, of all communicators; when it must be looked at again. */
static int64_t move_engines(struct gm_comm *root, struct gmi_poller *poller)
{
    int64_t next_ns = GMI_NEVER;
    pthread_mutex_lock(&root->roster_lock); /* nobody is destroyed meanwhile */
    for (struct gm_comm *comm = root; comm != NULL; comm = comm->next) {
        for (int lane = 0; lane < GMI_LANES; lane++) {
            struct gmi_engine *e = &comm->engines[lane];
            gmi_engine_step(e);
            gmi_engine_watch(e, poller);
            int64_t engine_ns = gmi_engine_next_ns(e);
            if (engine_ns < next_ns) next_ns = engine_ns;
        }
    }
    pthread_mutex_unlock(&root->roster_lock);
    return next_ns;
}

/* Instead of a wait that is refused; and then everything is looked at. */
static void nap(void) { nanosleep(&(struct timespec){ .tv_nsec = NAP_MS * GMI_NS_PER_MS }, NULL); }

static void *serve(void *user)
{
    struct gm_comm    *comm = user;
    struct gmi_poller *poller = &comm->service_poller;
    pthread_mutex_lock(&comm->lock);
    while (!comm->is_stopping) {
        step(comm);
        watch(comm, poller);
        int64_t deadline_ns = next_look_ns(comm);
        pthread_mutex_unlock(&comm->lock);
        int64_t engine_ns = move_engines(comm, poller);
        gm_status status = gmi_poller_wait(poller, engine_ns < deadline_ns ? engine_ns : deadline_ns);
        int       sys_errno = errno;
        if (status == GM_ERR_NOMEM) nap();
        if (gmi_poller_ready(poller, comm->service_wake_fd)) drain_event(comm->service_wake_fd);
        pthread_mutex_lock(&comm->lock);
        if (status == GM_ERR_NOMEM) machine_refuses(comm, "cannot wait for its connections", sys_errno);
    }
    step(comm);
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

gm_status gmi_caller_start(struct gm_comm *comm, gm_error *error)
{
    comm->caller_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->caller_wake_fd >= 0 && comm->alarm_fd >= 0) return GM_OK;
    return gmi_error_set_errno(error, errno, "cannot make an event descriptor");
}

void gmi_caller_stop(struct gm_comm *comm)
{
    gmi_socket_close(&comm->caller_wake_fd);
    gmi_socket_close(&comm->alarm_fd);
}

gm_status gmi_service_start(struct gm_comm *comm, gm_error *error)
{
    gm_status status = gmi_caller_start(comm, error);
    if (status != GM_OK) return status;
    comm->service_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->service_wake_fd < 0) return gmi_error_set_errno(error, errno, "cannot make an event descriptor");
    /* The caller's signals are the caller's business. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&comm->service, NULL, serve, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) return gmi_error_set_errno(error, code, "cannot start the service thread");
    comm->has_service = true;
    return GM_OK;
}

void gmi_service_stop(struct gm_comm *comm)
{
    if (comm->has_service) {
        pthread_mutex_lock(&comm->lock);
        comm->is_stopping = true;
        pthread_mutex_unlock(&comm->lock);
        gmi_service_wake(comm);
        pthread_join(comm->service, NULL);
        comm->has_service = false;
    }
    gmi_poller_fini(&comm->service_poller);
    gmi_move_fini(comm);
    if (comm->is_accepting) gmi_acceptor_fini(&comm->acceptor);
    comm->is_accepting = false;
    gmi_store_server_destroy(comm->store_server);
    comm->store_server = NULL;
    gmi_socket_close(&comm->service_wake_fd);
    gmi_socket_close(&comm->status_fd);
}
