/* comm.c - the life of a communicator: making it, its end, and what it has counted. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "coll/algo.h"
#include "net/host.h"
#include "reduce/wire.h"

enum { GOODBYE_MS = 2000, ACKNOWLEDGE_MS = 1000, DEFAULT_SPIN_US = 50 };

/* ---- options ----------------------------------------------------------------------------------- */

void gm_comm_options_default(gm_comm_options *options)
{
    *options = (gm_comm_options){ .struct_bytes = sizeof *options,
                                  .rank = -1,
                                  .world_size = -1,
                                  .connect_timeout_ms = 60000,
                                  .stall_limit_ms = 300000,
                                  .spin_us = -1,
                                  .log_level = GM_LOG_WARN };
}

static gm_status check_name(const char *what, const char *name, size_t max_bytes, gm_error *error)
{
    if (name == NULL || strlen(name) < max_bytes) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "the %s '%.40s...' is longer than %zu characters", what, name, max_bytes - 1);
}

static gm_status check_options(const gm_comm_options *o, gm_error *error)
{
    if (o->struct_bytes != sizeof *o) {
        return gmi_error_set(error, GM_ERR_ARG, "options of another size (%zu, not %zu): call gm_comm_options_default first, "
                             "and use header and library of one version", o->struct_bytes, sizeof *o);
    }
    if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size) {
        return gmi_error_set(error, GM_ERR_ARG, "there is no rank %d in a world of %d", o->rank, o->world_size);
    }
    if (o->world_size > GMI_MAX_RANKS) {
        return gmi_error_set(error, GM_ERR_ARG, "a world of %d is too large: %d ranks at the most", o->world_size, GMI_MAX_RANKS);
    }
    if (o->connect_timeout_ms <= 0 || o->stall_limit_ms < 0) {
        return gmi_error_set(error, GM_ERR_ARG, "connect_timeout_ms must be positive and stall_limit_ms not negative "
                             "(they are %d and %d)", o->connect_timeout_ms, o->stall_limit_ms);
    }
    gm_status status = check_name("job id", o->job_id, GMI_JOB_ID_BYTES, error);
    if (status == GM_OK) status = check_name("group name", o->group, GMI_NAME_BYTES, error);
    if (status == GM_OK) status = check_name("fingerprint", o->fingerprint, 64 * 1024, error);
    if (status != GM_OK) return status;
    if (o->transport != NULL && gmi_transport_find(o->transport) == NULL) {
        char names[80];
        return gmi_error_set(error, GM_ERR_UNSUPPORTED, "there is no transport '%.40s'; there are: %s", o->transport,
                             gmi_transport_names(names, sizeof names));
    }
    const struct gmi_wire *wire;
    if (o->wire != NULL && !gmi_wire_find(o->wire, &wire)) {
        return gmi_error_set(error, GM_ERR_UNSUPPORTED, "there is no wire format '%.40s'; there are: %s", o->wire,
                             gmi_wire_names());
    }
    if (o->algorithm != NULL && !gmi_algo_is_name(o->algorithm)) {
        char names[160];
        return gmi_error_set(error, GM_ERR_UNSUPPORTED, "there is no algorithm '%.40s'; there are: %s", o->algorithm,
                             gmi_algo_names(names, sizeof names));
    }
    return GM_OK;
}

static enum gmi_sharing sharing_of(const struct gmi_transport *transport)
{
    if (!transport->uses_memory) return GMI_SHARES_NEVER;
    return transport->uses_sockets ? GMI_SHARES_WHERE_IT_CAN : GMI_SHARES_WITH_ALL;
}

/* ---- creation ---------------------------------------------------------------------------------- */

static const char *or_default(const char *text, const char *fallback) { return text != NULL ? text : fallback; }

/* What must agree: the caller's lines, behind ours. NULL: no memory. */
static char *make_fingerprint(const struct gm_comm *comm, const char *callers)
{
    static const char ours[] = "wire format";
    size_t            bytes = sizeof ours + GMI_NAME_BYTES + strlen(callers) + 2;
    char             *text = gmi_alloc(bytes, 1);
    if (text != NULL) snprintf(text, bytes, "%s=%s\n%s", ours, gmi_wire_name(comm->wire), callers);
    return text;
}

static gm_status set_up(struct gm_comm *comm, const gm_comm_options *o, gm_error *error)
{
    comm->rank = comm->group.rank = o->rank;
    comm->n_ranks = comm->group.n_ranks = o->world_size;
    comm->owner_pid = getpid();
    comm->stall_limit_ms = o->stall_limit_ms;
    comm->try_ns = (o->spin_us >= 0 ? o->spin_us : DEFAULT_SPIN_US) * INT64_C(1000);
    comm->log = (struct gmi_log){ .write = o->log, .user = o->log_user, .level = o->log_level };
    comm->transport = gmi_transport_find(or_default(o->transport, "auto"));
    comm->store.fd = comm->service_wake_fd = comm->caller_wake_fd = comm->alarm_fd = -1;
    snprintf(comm->job_id, sizeof comm->job_id, "%s", or_default(o->job_id, ""));
    snprintf(comm->group_name, sizeof comm->group_name, "%s", or_default(o->group, "world"));
    snprintf(comm->algorithm, sizeof comm->algorithm, "%s", or_default(o->algorithm, "auto"));
    comm->group_id = gmi_group_id(comm->group_name);
    (void)gmi_wire_find(or_default(o->wire, "f32"), &comm->wire);
    pthread_mutex_init(&comm->lock, NULL);
    gmi_error_clear(&comm->error);
    gmi_error_clear(&comm->failure_record);
    if (gmi_engine_init(comm) != GM_OK) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a communicator");
    if (comm->n_ranks == 1) return GM_OK;

    comm->fingerprint = make_fingerprint(comm, or_default(o->fingerprint, ""));
    comm->group.ports = gmi_alloc((size_t)comm->n_ranks, sizeof *comm->group.ports);
    comm->calls = gmi_alloc((size_t)comm->n_ranks, sizeof *comm->calls);
    comm->shares = gmi_alloc((size_t)comm->n_ranks, sizeof *comm->shares);
    comm->has_link = gmi_alloc((size_t)comm->n_ranks, sizeof *comm->has_link);
    if (comm->fingerprint == NULL || comm->group.ports == NULL || comm->calls == NULL || comm->shares == NULL ||
        comm->has_link == NULL ||
        gmi_control_init(&comm->control, comm->rank, comm->n_ranks, comm->fingerprint, &comm->log, gmi_service_notify,
                         comm) != GM_OK) {
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a communicator of %d ranks", comm->n_ranks);
    }
    for (int k = 0; k < comm->n_ranks; k++) comm->group.ports[k].peer = k;
    comm->control.call_back = gmi_service_call_back;
    comm->control.members[comm->rank].host_id = gmi_host_id(o->host_id);
    comm->control.members[comm->rank].sharing = sharing_of(comm->transport);
    return GM_OK;
}

static void tear_down(struct gm_comm *comm)
{
    gmi_service_stop(comm);
    gmi_store_close(&comm->store);
    for (int k = 0; comm->group.ports != NULL && k < comm->n_ranks; k++) gmi_link_close(comm->group.ports[k].link);
    gmi_control_fini(&comm->control);
    gmi_engine_fini(comm);
    pthread_mutex_destroy(&comm->lock);
    gmi_free(comm->group.ports);
    gmi_free(comm->calls);
    gmi_free(comm->shares);
    gmi_free(comm->has_link);
    gmi_free(comm->fingerprint);
    gmi_free(comm);
}

gm_status gm_comm_create(gm_comm **out, const gm_comm_options *options, gm_error *error)
{
    gmi_error_clear(error);
    if (out == NULL || options == NULL) return gmi_error_set(error, GM_ERR_ARG, "gm_comm_create needs a place for the result and options");
    *out = NULL;
    gm_status status = check_options(options, error);
    if (status != GM_OK) return status;
    if (error != NULL) error->rank = options->rank;
    struct gm_comm *comm = gmi_alloc(1, sizeof *comm);
    if (comm == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a communicator");
    status = set_up(comm, options, error);
    if (status == GM_OK && comm->n_ranks > 1) status = gmi_comm_connect(comm, options, error);
    if (status != GM_OK) {
        tear_down(comm);
        return status;
    }
    *out = comm;
    return GM_OK;
}

bool gmi_comm_is_ours(const struct gm_comm *comm) { return comm->owner_pid == getpid(); }

/* ---- the end ----------------------------------------------------------------------------------- */

static bool is_drained(struct gm_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    bool drained = gmi_control_is_drained(&comm->control);
    pthread_mutex_unlock(&comm->lock);
    return drained;
}

/* Our goodbye must arrive before the ends of our connections: whoever sees those first would call us lost.
 * So we wait until the others, who answer a goodbye by closing, have read it. */
static void say_goodbye(struct gm_comm *comm)
{
    int64_t deadline_ns = gmi_deadline_after_ms(GOODBYE_MS);
    gmi_engine_halt(comm);
    pthread_mutex_lock(&comm->lock);
    gmi_control_leave(&comm->control, comm->done_seq);
    pthread_mutex_unlock(&comm->lock);
    gmi_service_wake(comm);
    while (!is_drained(comm) && !gmi_deadline_passed(deadline_ns)) gmi_caller_wait(comm, deadline_ns);
    for (int k = 0; k < comm->n_ranks; k++) {
        if (comm->group.ports[k].link != NULL) gmi_link_finish(comm->group.ports[k].link);
    }
}

void gm_comm_destroy(gm_comm *comm)
{
    if (comm == NULL) return;
    /* A forked child closes its copies of the descriptors and frees its memory: the others notice nothing. */
    if (!gmi_comm_is_ours(comm)) comm->has_service = false;
    else if (comm->n_ranks > 1) say_goodbye(comm);
    tear_down(comm);
}

gm_status gm_comm_abort(gm_comm *comm, const char *reason)
{
    if (comm == NULL || reason == NULL) return GM_ERR_ARG;
    if (!gmi_comm_is_ours(comm)) return GM_ERR_STATE;
    struct gmi_failure failure = { .status = GM_ERR_ABORTED, .culprit = comm->rank, .reporter = comm->rank };
    snprintf(failure.cause, sizeof failure.cause, "rank %d aborted: %.250s", comm->rank, reason);
    gmi_failure_make_one_line(&failure);
    if (comm->n_ranks > 1) {
        gmi_comm_fail(comm, &failure);
        return GM_OK;
    }
    pthread_mutex_lock(&comm->lock);
    if (!comm->control.has_failure) {
        comm->control.failure = failure;
        comm->control.has_failure = true;
        atomic_store(&comm->is_alarmed, true);
    }
    pthread_mutex_unlock(&comm->lock);
    return GM_OK;
}

/* ---- questions --------------------------------------------------------------------------------- */

int gm_comm_rank(const gm_comm *comm) { return comm->rank; }
int gm_comm_size(const gm_comm *comm) { return comm->n_ranks; }
const char *gm_comm_wire(const gm_comm *comm) { return gmi_wire_name(comm->wire); }
const gm_error *gm_comm_error(const gm_comm *comm) { return &comm->error; }

gm_status gm_comm_traffic(const gm_comm *comm, gm_collective which, gm_traffic *traffic)
{
    if (comm == NULL || traffic == NULL || (unsigned)which > GM_COLLECTIVE_END) return GM_ERR_ARG;
    pthread_mutex_t *lock = (pthread_mutex_t *)&comm->lock;
    pthread_mutex_lock(lock);
    *traffic = comm->traffic[which];
    pthread_mutex_unlock(lock);
    return GM_OK;
}

static gm_status kernel_counts(struct gmi_link *link, int64_t deadline_ns, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    if (link->ops->kernel_counts == NULL) return GM_ERR_UNSUPPORTED;
    for (;;) {
        gm_status status = link->ops->kernel_counts(link, sent_bytes, recv_bytes);
        if (status != GM_AGAIN) return status;
        if (gmi_deadline_passed(deadline_ns)) return GM_ERR_TIMEOUT;
        struct timespec moment = { .tv_nsec = 200 * 1000 }; /* acknowledgements raise no event */
        nanosleep(&moment, NULL);
    }
}

gm_status gm_comm_kernel_traffic(const gm_comm *comm, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    if (comm == NULL || sent_bytes == NULL || recv_bytes == NULL) return GM_ERR_ARG;
    if (atomic_load(&comm->is_in_call) || atomic_load(&comm->engine.n_unfinished) > 0) return GM_ERR_STATE;
    int64_t deadline_ns = gmi_deadline_after_ms(ACKNOWLEDGE_MS);
    *sent_bytes = *recv_bytes = 0;
    for (int k = 0; comm->n_ranks > 1 && k < comm->n_ranks; k++) {
        uint64_t         sent, recv;
        struct gmi_link *link = comm->group.ports[k].link;
        if (link == NULL) continue;
        gm_status status = kernel_counts(link, deadline_ns, &sent, &recv);
        if (status != GM_OK) return status;
        *sent_bytes += sent;
        *recv_bytes += recv;
    }
    return GM_OK;
}

static gm_status formula(const gm_comm *comm, struct gmi_request *request, uint64_t *sent_bytes)
{
    if (gmi_is_message(request->which)) {
        *sent_bytes = request->which == GM_RECV ? 0 : (uint64_t)request->count_elems * gm_dtype_bytes(request->dtype);
        return GM_OK;
    }
    if (gmi_has_root(request->which) && (request->root < 0 || request->root >= comm->n_ranks)) return GM_ERR_ARG;
    request->wire = comm->wire;
    gm_status status = gmi_request_choose_codec(request);
    if (status != GM_OK) return status;
    *sent_bytes = 0;
    if (comm->n_ranks == 1) return GM_OK;
    struct gmi_shape shape = gmi_request_shape(request, comm->rank, comm->n_ranks);
    size_t           size_bytes = gmi_request_size_for_choice(request);
    *sent_bytes = gmi_algo_choose(comm->algorithm, request->which, comm->n_ranks, size_bytes, request->codec.needs)
                      ->payload_sent_bytes(&shape);
    return GM_OK;
}

gm_status gm_comm_payload_formula(const gm_comm *comm, gm_collective which, size_t count, gm_dtype dtype, int root,
                                  uint64_t *sent_bytes)
{
    if (comm == NULL || sent_bytes == NULL || (unsigned)which >= GM_COLLECTIVE_END || gm_dtype_bytes(dtype) == 0) return GM_ERR_ARG;
    struct gmi_request request = { .which = which, .dtype = dtype, .redop = GM_SUM, .root = root, .count_elems = count };
    if (which == GM_ALL_TO_ALL) request.count_elems *= (size_t)comm->n_ranks;
    return formula(comm, &request, sent_bytes);
}

gm_status gm_comm_payload_formula_v(const gm_comm *comm, gm_collective which, const size_t *counts, gm_dtype dtype, int root,
                                    uint64_t *sent_bytes)
{
    bool has_counts = which == GM_REDUCE_SCATTER || which == GM_ALL_GATHER || which == GM_GATHER || which == GM_SCATTER ||
                      which == GM_ALL_TO_ALL;
    if (comm == NULL || sent_bytes == NULL || counts == NULL || !has_counts || gm_dtype_bytes(dtype) == 0) return GM_ERR_ARG;
    struct gmi_request request = { .which = which, .dtype = dtype, .redop = GM_SUM, .root = root, .counts = counts };
    for (int k = 0; k < comm->n_ranks; k++) request.count_elems += counts[k];
    return formula(comm, &request, sent_bytes);
}
