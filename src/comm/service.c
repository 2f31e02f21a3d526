/* service.c - the one service thread of a communicator: what must go on while the caller computes.
 *
 * It looks after the control connections, lets other ranks in and calls them for data links, moves the
 * collectives that nobody waits for (comm/engine.h), and on rank 0 of a job without a launcher serves the store. It takes the lock to step all of these, and lets go of it to sleep. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "net/socket.h"

enum { TICK_MS = 500, IDLE_MS = 10000 };

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

void gmi_service_wake(struct gm_comm *comm) { signal_event(comm->service_wake_fd); }
void gmi_caller_wake(struct gm_comm *comm) { signal_event(comm->caller_wake_fd); }

void gmi_alarm_quiet(struct gm_comm *comm)
{
    if (!comm->control.has_failure) drain_event(comm->alarm_fd);
}

void gmi_service_notify(void *user)
{
    struct gm_comm *comm = user;
    if (comm->control.has_failure || comm->control.n_left > 0) {
        atomic_store(&comm->is_alarmed, true);
        signal_event(comm->alarm_fd);
    }
    gmi_caller_wake(comm);
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
    struct gmi_hello hello = { .channel = (uint8_t)channel, .rank = comm->rank, .target = target,
                               .world_size = comm->n_ranks, .group = comm->group_id };
    if (channel == GMI_CHANNEL_DATA) hello.session = comm->control.session;
    memcpy(hello.job_id, comm->job_id, sizeof hello.job_id);
    return hello;
}

/* ---- data links --------------------------------------------------------------------------------- */

static void end_call(struct gm_comm *comm, int rank)
{
    if (comm->calls[rank] == NULL) return;
    gmi_call_fini(comm->calls[rank]);
    gmi_free(comm->calls[rank]);
    comm->calls[rank] = NULL;
    comm->n_calls--;
}

void gmi_service_want_link(struct gm_comm *comm, int peer)
{
    if (peer > comm->rank || comm->group.ports[peer].link != NULL || comm->calls[peer] != NULL || comm->shares[peer] != NULL) return;
    char host[256];
    int  port;
    struct gmi_hello hello = gmi_comm_hello(comm, GMI_CHANNEL_DATA, peer);
    struct gmi_call *call = gmi_alloc(1, sizeof *call);
    if (call == NULL || gmi_host_port_split(comm->control.members[peer].address, host, sizeof host, &port, NULL) != GM_OK) {
        gmi_free(call);
        return; /* whoever waits for the link runs into his deadline */
    }
    gmi_call_init(call, host, port, &hello, NULL);
    comm->calls[peer] = call;
    comm->n_calls++;
}

void gmi_service_call_back(void *comm, int peer) { gmi_service_want_link(comm, peer); }

void gmi_service_link_trouble(const struct gm_comm *comm, int peer, char *text, size_t text_bytes)
{
    const struct gmi_call *call = comm->calls[peer];
    if (comm->shares[peer] != NULL) {
        snprintf(text, text_bytes, "it has not answered how memory is to be shared");
    } else if (call == NULL) {
        snprintf(text, text_bytes, "it has not called");
    } else {
        snprintf(text, text_bytes, "the last try: %.200s", call->error.text[0] ? call->error.text : "no answer");
    }
}

static void step_call(struct gm_comm *comm, int rank)
{
    struct gmi_call *call = comm->calls[rank];
    gm_status        status = call != NULL ? gmi_call_progress(call) : GM_AGAIN;
    if (status == GM_AGAIN) return;
    if (status == GM_OK) {
        gmi_share_connected(comm, rank, gmi_call_take_fd(call), true, call->sent_bytes, call->recv_bytes);
    } else {
        struct gmi_failure f = { .status = status, .culprit = rank, .reporter = comm->rank };
        snprintf(f.cause, sizeof f.cause, "rank %d cannot connect to rank %d: %.220s", comm->rank, rank, call->error.text);
        gmi_control_fail(&comm->control, &f);
    }
    end_call(comm, rank);
}

/* ---- who may come in --------------------------------------------------------------------------- */

static gm_status judge_data(struct gm_comm *comm, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    if (comm->control.phase != GMI_READY) {
        snprintf(why, why_bytes, "rank %d is not ready for data yet; come again", comm->rank);
        return GM_ERR_STATE;
    }
    if (peer->session != comm->control.session) {
        snprintf(why, why_bytes, "this is another run of the same job");
        return GM_ERR_REFUSED;
    }
    if (comm->group.ports[peer->rank].link != NULL) {
        snprintf(why, why_bytes, "rank %d already has a connection to rank %d", comm->rank, (int)peer->rank);
        return GM_ERR_REFUSED;
    }
    if (comm->shares[peer->rank] != NULL) { /* its last connection has broken, and we do not know it yet */
        snprintf(why, why_bytes, "rank %d still has another connection to rank %d; come again", comm->rank, (int)peer->rank);
        return GM_ERR_STATE;
    }
    return GM_OK;
}

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
    if (peer->group != comm->group_id || peer->target != comm->rank || peer->rank < 0 ||
        peer->rank >= comm->n_ranks || peer->rank == comm->rank) {
        snprintf(why, why_bytes, "this is rank %d of communicator '%s'; you are rank %d and want rank %d", comm->rank,
                 comm->group_name, (int)peer->rank, (int)peer->target);
        return GM_ERR_REFUSED;
    }
    if (peer->channel == GMI_CHANNEL_CONTROL) return gmi_control_judge(&comm->control, peer, why, why_bytes);
    if (peer->channel == GMI_CHANNEL_DATA) return judge_data(comm, peer, why, why_bytes);
    snprintf(why, why_bytes, "rank %d has no channel %d", comm->rank, peer->channel);
    return GM_ERR_REFUSED;
}

static void admit(void *user, int fd, const struct gmi_handshake *finished)
{
    struct gm_comm *comm = user;
    int             rank = finished->peer.rank;
    if (finished->peer.channel == GMI_CHANNEL_CONTROL) {
        gmi_control_admit(&comm->control, rank, fd);
        return;
    }
    gmi_share_connected(comm, rank, fd, false, finished->total_sent_bytes, finished->total_recv_bytes);
}

gm_status gmi_service_listen(struct gm_comm *comm, const struct gmi_address *address, gm_error *error)
{
    struct gmi_hello own = gmi_comm_hello(comm, 0, GMI_NO_RANK);
    snprintf(comm->name, sizeof comm->name, "rank %d", comm->rank);
    gm_status status = gmi_acceptor_init(&comm->acceptor, address, &own, judge, admit, comm, &comm->log, comm->name, error);
    comm->is_accepting = status == GM_OK;
    return status;
}

/* ---- the loop ---------------------------------------------------------------------------------- */

static void step(struct gm_comm *comm)
{
    if (comm->store_server != NULL) gmi_store_server_step(comm->store_server);
    if (comm->is_accepting) gmi_acceptor_step(&comm->acceptor);
    for (int k = 0; comm->n_calls > 0 && k < comm->n_ranks; k++) step_call(comm, k);
    gmi_share_step(comm);
    gmi_control_step(&comm->control);
}

static void watch(struct gm_comm *comm, struct gmi_poller *poller)
{
    gmi_poller_clear(poller);
    gmi_poller_add(poller, comm->service_wake_fd, GMI_READABLE);
    if (comm->store_server != NULL) gmi_store_server_watch(comm->store_server, poller);
    if (comm->is_accepting) gmi_acceptor_watch(&comm->acceptor, poller);
    for (int k = 0; comm->n_calls > 0 && k < comm->n_ranks; k++) {
        if (comm->calls[k] != NULL) gmi_call_watch(comm->calls[k], poller);
    }
    gmi_share_watch(comm, poller);
    gmi_control_watch(&comm->control, poller);
}

/* When something must be looked at again though no descriptor says so. */
static int64_t next_look_ns(const struct gm_comm *comm)
{
    bool needs_ticks = comm->control.phase == GMI_GATHERING || comm->store_server != NULL ||
                       (comm->is_accepting && comm->acceptor.n_pending > 0);
    int64_t next_ns = gmi_deadline_after_ms(needs_ticks ? TICK_MS : IDLE_MS);
    int64_t control_ns = gmi_control_next_ns(&comm->control), share_ns = gmi_share_next_ns(comm);
    if (control_ns < next_ns) next_ns = control_ns;
    if (share_ns < next_ns) next_ns = share_ns;
    for (int k = 0; comm->n_calls > 0 && k < comm->n_ranks; k++) {
        int64_t call_ns = comm->calls[k] != NULL ? gmi_call_next_ns(comm->calls[k]) : GMI_NEVER;
        if (call_ns < next_ns) next_ns = call_ns;
    }
    return next_ns;
}

static void *serve(void *user)
{
    struct gm_comm   *comm = user;
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    pthread_mutex_lock(&comm->lock);
    while (!comm->is_stopping) {
        step(comm);
        watch(comm, &poller);
        int64_t deadline_ns = next_look_ns(comm);
        pthread_mutex_unlock(&comm->lock);
        gmi_engine_step(comm);
        gmi_engine_watch(comm, &poller);
        int64_t engine_ns = gmi_engine_next_ns(comm);
        gmi_poller_wait(&poller, engine_ns < deadline_ns ? engine_ns : deadline_ns);
        if (gmi_poller_ready(&poller, comm->service_wake_fd)) drain_event(comm->service_wake_fd);
        pthread_mutex_lock(&comm->lock);
    }
    step(comm);
    pthread_mutex_unlock(&comm->lock);
    gmi_poller_fini(&poller);
    return NULL;
}

gm_status gmi_service_start(struct gm_comm *comm, gm_error *error)
{
    comm->service_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->caller_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->service_wake_fd < 0 || comm->caller_wake_fd < 0 || comm->alarm_fd < 0) {
        return gmi_error_set_errno(error, errno, "cannot make an event descriptor");
    }
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
    for (int k = 0; comm->n_calls > 0 && k < comm->n_ranks; k++) end_call(comm, k);
    gmi_share_end_all(comm);
    if (comm->is_accepting) gmi_acceptor_fini(&comm->acceptor);
    comm->is_accepting = false;
    gmi_store_server_destroy(comm->store_server);
    comm->store_server = NULL;
    gmi_socket_close(&comm->service_wake_fd);
    gmi_socket_close(&comm->caller_wake_fd);
    gmi_socket_close(&comm->alarm_fd);
}
