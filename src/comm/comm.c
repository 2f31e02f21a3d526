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
#include "coll/message.h"
#include "net/host.h"
#include "reduce/wire.h"
#include "trace/trace.h"

enum { GOODBYE_MS = 2000, ACKNOWLEDGE_MS = 1000, DEFAULT_SPIN_US = 50, DEFAULT_STALL_MS = 300000 };

/* ---- options ----------------------------------------------------------------------------------- */

void gm_comm_options_default(gm_comm_options *options)
{
    *options = (gm_comm_options){ .struct_bytes = sizeof *options,
                                  .rank = -1,
                                  .world_size = -1,
                                  .connect_timeout_ms = 60000,
                                  .stall_limit_ms = DEFAULT_STALL_MS,
                                  .spin_us = -1,
                                  .log_level = GM_LOG_WARN };
}

static gm_status check_name(const char *what, const char *name, size_t max_bytes, gm_error *error)
{
    if (name == NULL || strlen(name) < max_bytes) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "the %s '%.40s...' is longer than %zu characters", what, name, max_bytes - 1);
}

static bool wants_checksum(const gm_comm_options *o) { return o->checksum != NULL && strcmp(o->checksum, "crc32c") == 0; }

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
    if (o->trace_events < 0) return gmi_error_set(error, GM_ERR_ARG, "trace_events must not be negative (it is %d)", o->trace_events);
    gm_status status = check_name("job id", o->job_id, GMI_JOB_ID_BYTES, error);
    if (status == GM_OK) status = check_name("group name", o->group, GMI_NAME_BYTES, error);
    if (status == GM_OK) status = check_name("fingerprint", o->fingerprint, 64 * 1024, error);
    if (status != GM_OK) return status;
    if (o->transport != NULL && gmi_transport_find(o->transport) == NULL) {
        char names[80];
        return gmi_error_set(error, GM_ERR_UNSUPPORTED, "there is no transport '%.40s'; there are: %s", o->transport,
                             gmi_transport_names(names, sizeof names));
    }
    if (o->checksum != NULL && o->checksum[0] != '\0' && strcmp(o->checksum, "off") != 0 && !wants_checksum(o)) {
        return gmi_error_set(error, GM_ERR_UNSUPPORTED, "there is no checksum '%.40s'; there are: off, crc32c", o->checksum);
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

static gm_status load_secret(struct gm_comm *comm, const gm_comm_options *o, gm_error *error)
{
    comm->secret.lets_anybody_in = o->insecure;
    comm->is_encrypted = comm->secret.encrypts = o->encrypt;
    comm->is_checked = wants_checksum(o);
    if (o->world_size == 1) return GM_OK; /* there is nobody to prove it to */
    if (o->secret_file != NULL && o->secret_file[0] != '\0') return gmi_secret_load(&comm->secret, o->secret_file, error);
    if (!o->encrypt) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "encryption needs a secret: give all ranks the same GRADMESH_SECRET_FILE, or start them "
                         "by gradmesh run");
}

static enum gmi_sharing sharing_of(const struct gmi_transport *transport)
{
    if (!transport->uses_memory) return GMI_SHARES_NEVER;
    return transport->uses_sockets ? GMI_SHARES_WHERE_IT_CAN : GMI_SHARES_WITH_ALL;
}

/* ---- creation ---------------------------------------------------------------------------------- */

static const char *or_default(const char *text, const char *fallback) { return text != NULL ? text : fallback; }

/* Elements travel as they stand in memory, and nearly everywhere that is little-endian. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
static const char byte_order[] = "byte order=big\n";
#else
static const char byte_order[] = "";
#endif

/* What must agree: the caller's lines, behind ours. NULL: no memory. */
static char *make_fingerprint(const struct gm_comm *comm, const char *callers)
{
    size_t bytes = sizeof "wire format=\nencryption=off\nchecksum=crc32c\n" + sizeof byte_order + GMI_NAME_BYTES + strlen(callers);
    char  *text = gmi_alloc(bytes, 1);
    if (text == NULL) return NULL;
    snprintf(text, bytes, "wire format=%s\nencryption=%s\nchecksum=%s\n%s%s", gmi_wire_name(comm->wire),
             comm->is_encrypted ? "on" : "off", comm->is_checked ? "crc32c" : "off", byte_order, callers);
    return text;
}

gm_status gmi_comm_set_up(struct gm_comm *comm, int rank, int n_ranks, size_t n_trace_events, gm_error *error)
{
    gm_status status = GM_OK;
    comm->rank = rank;
    comm->n_ranks = n_ranks;
    comm->owner_pid = getpid();
    comm->caller_wake_fd = comm->alarm_fd = -1;
    gmi_error_clear(&comm->error);
    gmi_error_clear(&comm->failure_record);
    comm->costs = gmi_costs_of_host(n_ranks, 1, GMI_KIND_MEMORY);
    if (n_trace_events > 0) {
        comm->trace = gmi_trace_create(n_trace_events);
        if (comm->trace == NULL) status = GM_ERR_NOMEM;
    }
    for (int lane = 0; lane < GMI_LANES; lane++) {
        comm->groups[lane].trace = comm->trace;
        comm->groups[lane].rank = rank;
        comm->groups[lane].n_ranks = n_ranks;
        if (gmi_engine_init(&comm->engines[lane], comm, (enum gmi_lane)lane) != GM_OK) status = GM_ERR_NOMEM;
    }
    if (n_ranks > 1 && gmi_comm_lines(comm, GMI_LANE_DATA) == NULL) status = GM_ERR_NOMEM;
    if (status == GM_OK) return status;
    return gmi_error_set(error, status, "no memory for a communicator of %d ranks", n_ranks);
}

gm_status gmi_comm_lay_out(struct gm_comm *comm)
{
    struct gm_comm   *root = comm->root;
    struct gmi_layout layout;
    uint64_t         *host_ids = gmi_alloc((size_t)comm->n_ranks, sizeof *host_ids);
    if (host_ids == NULL) return GM_ERR_NOMEM;
    pthread_mutex_lock(&root->lock);
    for (int k = 0; k < comm->n_ranks; k++) host_ids[k] = root->control.members[gmi_world_rank(comm, k)].host_id;
    pthread_mutex_unlock(&root->lock);
    gm_status status = gmi_layout_init(&layout, host_ids, comm->n_ranks);
    for (int lane = 0; lane < GMI_LANES; lane++) comm->groups[lane].layout = layout;
    gmi_free(host_ids);
    return status;
}

/* What only a communicator that is no split has. */
static gm_status set_up_root(struct gm_comm *comm, const gm_comm_options *o, gm_error *error)
{
    comm->root = comm;
    comm->n_users = 1;
    comm->owner_mark = gmi_process_mark();
    comm->stall_limit_ms = o->stall_limit_ms;
    comm->try_ns = (o->spin_us >= 0 ? o->spin_us : DEFAULT_SPIN_US) * INT64_C(1000);
    comm->log = (struct gmi_log){ .write = o->log, .user = o->log_user, .level = o->log_level };
    comm->transport = gmi_transport_find(or_default(o->transport, "auto"));
    comm->store.stream.fd = comm->service_wake_fd = comm->status_fd = -1;
    snprintf(comm->job_id, sizeof comm->job_id, "%s", or_default(o->job_id, ""));
    snprintf(comm->group_name, sizeof comm->group_name, "%s", or_default(o->group, "world"));
    snprintf(comm->algorithm, sizeof comm->algorithm, "%s", or_default(o->algorithm, "auto"));
    comm->group_id = gmi_group_id(comm->group_name);
    (void)gmi_wire_find(or_default(o->wire, "f32"), &comm->wire);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_mutex_init(&comm->roster_lock, NULL);
    gm_status status = gmi_comm_set_up(comm, o->rank, o->world_size, (size_t)o->trace_events, error);
    if (status != GM_OK || comm->n_ranks == 1) return status;

    status = load_secret(comm, o, error);
    if (status != GM_OK) return status;
    comm->fingerprint = make_fingerprint(comm, or_default(o->fingerprint, ""));
    if (comm->fingerprint == NULL || gmi_control_init(&comm->control, comm->rank, comm->n_ranks, comm->fingerprint, &comm->log,
                                                      gmi_service_notify, comm) != GM_OK) {
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a communicator of %d ranks", comm->n_ranks);
    }
    if (o->profile != NULL && comm->rank == 0) {
        status = gmi_profile_load(&comm->control.profile, o->profile, error);
        if (status != GM_OK) return status;
    }
    comm->control.call_back = gmi_line_call_back;
    comm->control.knocked = gmi_service_knocked;
    comm->control.n_lanes = GMI_LANES;
    comm->control.observe = gmi_comm_observe;
    comm->control.group_id = comm->group_id;
    if (o->stall_limit_ms != DEFAULT_STALL_MS) comm->control.own_limit_ms = o->stall_limit_ms;
    comm->control.members[comm->rank].host_id = gmi_host_id(o->host_id);
    comm->control.members[comm->rank].sharing = sharing_of(comm->transport);
    comm->control.members[comm->rank].n_cores = gmi_host_own_cores();
    return GM_OK;
}

void gmi_comm_tear_down(struct gm_comm *comm)
{
    gmi_lines_fini(comm);
    for (int lane = 0; lane < GMI_LANES; lane++) gmi_engine_fini(&comm->engines[lane]);
    gmi_caller_stop(comm);
    gmi_layout_fini(&comm->groups[GMI_LANE_DATA].layout); /* which all lanes share */
    gmi_free(comm->world_ranks);
    gmi_trace_destroy(comm->trace);
    gmi_free(comm);
}

static void tear_down_root(struct gm_comm *comm)
{
    gmi_service_stop(comm);
    gmi_store_close(&comm->store);
    gmi_control_fini(&comm->control);
    pthread_mutex_destroy(&comm->lock);
    pthread_mutex_destroy(&comm->roster_lock);
    gmi_free(comm->fingerprint);
    gmi_secret_wipe(&comm->secret);
    gmi_process_unmark(comm->owner_mark);
    gmi_comm_tear_down(comm);
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
    status = set_up_root(comm, options, error);
    if (status == GM_OK && comm->n_ranks > 1) status = gmi_comm_connect(comm, options, error);
    if (status != GM_OK) {
        tear_down_root(comm);
        return status;
    }
    *out = comm;
    return GM_OK;
}

bool gmi_comm_is_ours(const struct gm_comm *comm)
{
    const volatile uint32_t *mark = comm->root->owner_mark;
    return mark != NULL ? *mark != 0 : comm->owner_pid == getpid();
}

/* ---- the end ----------------------------------------------------------------------------------- */

static bool is_drained(struct gm_comm *root)
{
    pthread_mutex_lock(&root->lock);
    bool drained = gmi_control_is_drained(&root->control);
    pthread_mutex_unlock(&root->lock);
    return drained;
}

static void finish_links(struct gm_comm *comm) /* with the lock held */
{
    for (int lane = 0; lane < GMI_LANES; lane++) {
        for (int k = 0; comm->lines[lane] != NULL && k < comm->n_ranks; k++) {
            struct gmi_link *link = comm->lines[lane][k].port->link;
            if (link != NULL) gmi_link_finish(link);
        }
    }
}

/* Our goodbye must arrive before the ends of our connections: whoever sees those first would call us lost.
 * So we wait until the others, who answer a goodbye by closing, have read it. */
static void say_goodbye(struct gm_comm *root)
{
    int64_t deadline_ns = gmi_deadline_after_ms(GOODBYE_MS);
    pthread_mutex_lock(&root->lock);
    gmi_fare_tell(root);
    gmi_control_leave(&root->control, root->done_seq);
    pthread_mutex_unlock(&root->lock);
    gmi_service_wake(root);
    while (!is_drained(root) && !gmi_deadline_passed(deadline_ns)) gmi_caller_wait(root, deadline_ns);
    pthread_mutex_lock(&root->lock);
    finish_links(root);
    pthread_mutex_unlock(&root->lock);
}

/* Takes a split out of everybody's sight. */
static void unlink_split(struct gm_comm *comm)
{
    struct gm_comm *root = comm->root, **at = &root->next;
    pthread_mutex_lock(&root->roster_lock);
    pthread_mutex_lock(&root->lock);
    while (*at != NULL && *at != comm) at = &(*at)->next;
    if (*at == comm) *at = comm->next;
    gmi_lines_fini(comm);
    pthread_mutex_unlock(&root->lock);
    pthread_mutex_unlock(&root->roster_lock);
    gmi_service_wake(root);
}

/* Nobody moves it any more. Of a root that splits still use only its own links end. */
static bool is_last_user(struct gm_comm *comm)
{
    struct gm_comm *root = comm->root;
    pthread_mutex_lock(&root->lock);
    bool is_last = --root->n_users == 0;
    if (comm == root) root->is_destroyed = true;
    if (comm == root && !is_last) finish_links(root);
    pthread_mutex_unlock(&root->lock);
    return is_last;
}

/* A process forked from ours closes its copies of the descriptors and frees its memory: the others notice nothing.
 * No lock is taken, since a thread that is not here may have held it. */
static void forget(struct gm_comm *comm)
{
    struct gm_comm *root = comm->root, **at = &root->next;
    while (*at != NULL && *at != comm) at = &(*at)->next;
    if (*at == comm) *at = comm->next;
    root->has_service = false;
    if (comm != root) gmi_comm_tear_down(comm);
    if (--root->n_users == 0) tear_down_root(root);
}

void gm_comm_destroy(gm_comm *comm)
{
    if (comm == NULL) return;
    struct gm_comm *root = comm->root;
    if (!gmi_comm_is_ours(comm)) {
        forget(comm);
        return;
    }
    for (int lane = 0; lane < GMI_LANES; lane++) gmi_engine_halt(&comm->engines[lane]);
    if (comm != root) unlink_split(comm);
    bool is_last = is_last_user(comm);
    if (comm != root) gmi_comm_tear_down(comm);
    if (!is_last) return;
    if (root->n_ranks > 1) say_goodbye(root);
    tear_down_root(root);
}

gm_status gm_comm_abort(gm_comm *comm, const char *reason)
{
    if (comm == NULL || reason == NULL) return GM_ERR_ARG;
    if (!gmi_comm_is_ours(comm)) return GM_ERR_STATE;
    struct gm_comm    *root = comm->root;
    struct gmi_failure failure = { .status = GM_ERR_ABORTED, .culprit = root->rank, .reporter = root->rank };
    snprintf(failure.cause, sizeof failure.cause, "rank %d aborted: %.250s", root->rank, reason);
    gmi_failure_make_one_line(&failure);
    if (root->n_ranks > 1) {
        gmi_comm_fail(comm, &failure);
        return GM_OK;
    }
    pthread_mutex_lock(&root->lock);
    if (!root->control.has_failure) {
        root->control.failure = failure;
        root->control.has_failure = true;
        for (struct gm_comm *each = root; each != NULL; each = each->next) atomic_store(&each->is_alarmed, true);
    }
    pthread_mutex_unlock(&root->lock);
    return GM_OK;
}

/* ---- questions --------------------------------------------------------------------------------- */

int gm_comm_rank(const gm_comm *comm) { return comm->rank; }
int gm_comm_size(const gm_comm *comm) { return comm->n_ranks; }
const char *gm_comm_wire(const gm_comm *comm) { return gmi_wire_name(comm->wire); }
const gm_error *gm_comm_error(const gm_comm *comm) { return &comm->error; }

static struct gmi_link *link_at(const gm_comm *comm, int index);

/* What a transport itself adds. */
static void add_overhead(const gm_comm *comm, gm_traffic *traffic)
{
    for (int k = 0; k < GMI_LANES * comm->n_ranks; k++) {
        uint64_t               sent, recv;
        const struct gmi_link *link = link_at(comm, k);
        if (link == NULL || link->ops->overhead == NULL) continue;
        link->ops->overhead(link, &sent, &recv);
        traffic->protocol_sent_bytes += sent;
        traffic->protocol_recv_bytes += recv;
        if (link->is_shared_memory) traffic->memory_sent_bytes += sent;
        if (link->is_shared_memory) traffic->memory_recv_bytes += recv;
    }
}

gm_status gm_comm_traffic(const gm_comm *comm, gm_collective which, gm_traffic *traffic)
{
    if (comm == NULL || traffic == NULL || (unsigned)which > GM_COLLECTIVE_END) return GM_ERR_ARG;
    pthread_mutex_t *lock = &comm->root->lock;
    pthread_mutex_lock(lock);
    *traffic = comm->traffic[which];
    pthread_mutex_unlock(lock);
    if (which == GM_COLLECTIVE_END) add_overhead(comm, traffic);
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

/* A link of either lane; NULL: there is none. It stays: only destroying the communicator closes it. */
static struct gmi_link *link_at(const gm_comm *comm, int index)
{
    pthread_mutex_t       *lock = &comm->root->lock;
    const struct gmi_line *lines = comm->lines[GMI_LANE_DATA];
    pthread_mutex_lock(lock);
    if (index >= comm->n_ranks) lines = comm->lines[GMI_LANE_MESSAGES];
    struct gmi_link *link = lines != NULL ? lines[index % comm->n_ranks].port->link : NULL;
    pthread_mutex_unlock(lock);
    return link;
}

gm_status gm_comm_kernel_traffic(const gm_comm *comm, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    if (comm == NULL || sent_bytes == NULL || recv_bytes == NULL) return GM_ERR_ARG;
    if (gmi_comm_is_busy(comm)) return GM_ERR_STATE;
    int64_t deadline_ns = gmi_deadline_after_ms(ACKNOWLEDGE_MS);
    *sent_bytes = *recv_bytes = 0;
    for (int k = 0; k < GMI_LANES * comm->n_ranks; k++) {
        uint64_t         sent, recv;
        struct gmi_link *link = link_at(comm, k);
        if (link == NULL) continue;
        gm_status status = kernel_counts(link, deadline_ns, &sent, &recv);
        if (status != GM_OK) return status;
        *sent_bytes += sent;
        *recv_bytes += recv;
    }
    return GM_OK;
}

static int change_limit(atomic_int *limit_ms, int to_ms) { return to_ms < 0 ? -1 : atomic_exchange(limit_ms, to_ms); }

int gm_comm_set_stall_limit(gm_comm *comm, int limit_ms)
{
    if (comm == NULL || limit_ms < 0) return -1;
    if (comm == comm->root) atomic_store(&comm->control.own_limit_ms, limit_ms);
    return change_limit(&comm->stall_limit_ms, limit_ms);
}

int gm_comm_set_call_limit(gm_comm *comm, int limit_ms) { return comm == NULL ? -1 : change_limit(&comm->call_limit_ms, limit_ms); }

/* The row that such a request would run, with its codec chosen. NULL: *status says why not. */
static const struct gmi_algo *row_for(const gm_comm *comm, struct gmi_request *request, gm_status *status)
{
    request->wire = comm->wire;
    *status = gmi_request_choose_codec(request);
    if (*status != GM_OK) return NULL;
    return gmi_algo_choose(comm->algorithm, request->which, &comm->costs, gmi_request_size_for_choice(request),
                           request->codec.needs);
}

static gm_status formula(const gm_comm *comm, struct gmi_request *request, uint64_t *sent_bytes)
{
    if (gmi_is_message(request->which)) {
        *sent_bytes = request->which == GM_RECV ? 0 : (uint64_t)request->count_elems * gm_dtype_bytes(request->dtype);
        return GM_OK;
    }
    if (gmi_has_root(request->which) && (request->root < 0 || request->root >= comm->n_ranks)) return GM_ERR_ARG;
    gm_status              status;
    const struct gmi_algo *row = row_for(comm, request, &status);
    if (row == NULL) return status;
    struct gmi_shape shape = gmi_request_shape(request, &comm->groups[GMI_LANE_DATA]);
    *sent_bytes = comm->n_ranks == 1 ? 0 : row->payload_sent_bytes(&shape);
    return GM_OK;
}

const char *gm_comm_algorithm(const gm_comm *comm, gm_collective which, size_t count, gm_dtype dtype, gm_redop redop)
{
    if (comm == NULL || (unsigned)which >= GM_COLLECTIVE_END || gm_dtype_bytes(dtype) == 0) return NULL;
    if (gmi_is_message(which)) return gmi_message_algo.name;
    struct gmi_request request = { .which = which, .dtype = dtype, .redop = (int)redop, .count_elems = count };
    if (!gmi_request_is_reduction(&request)) request.redop = -1;
    if (redop >= GM_REDOP_USER) request.user_op = gmi_comm_user_op(comm, (int)redop);
    if (which == GM_ALL_TO_ALL) request.count_elems *= (size_t)comm->n_ranks;
    gm_status              status;
    const struct gmi_algo *row = row_for(comm, &request, &status);
    return row != NULL ? row->name : NULL;
}

const char *gm_comm_site(const gm_comm *comm)
{
    if (comm == NULL) return NULL;
    return comm->site[0] != '\0' ? comm->site : "alone";
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
