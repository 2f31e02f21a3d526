/* create.c - from options to connected links, by the thread that creates the communicator.
 *
 *     1. reach the store (rank 0 serves it itself when nobody else does) and claim our rank in it,
 *        with the address where we listen;
 *     2. connect to rank 0 (control; when the store ends meanwhile, back to 1: it may have been that of the last
 *        communicator), and wait until it says that all have joined: it sends everybody's address and the
 *        number of this session;
 *     3. have the service thread connect the data links of the ring: of two neighbours the higher rank
 *        calls the lower.
 *
 * Every wait ends at the creation's deadline, or as soon as the service thread hears of a failure. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "net/interface.h"
#include "net/socket.h"
#include "rendezvous/dial.h"

enum { LAST_LOOK_MS = 100, OWN_STORE_MS = 500, SAY_EVERY_MS = 5000, RETRY_MS = 50 };

struct creation {
    struct gm_comm        *comm;
    const gm_comm_options *options;
    gm_error              *error;
    int64_t                begin_ns, deadline_ns;
    int64_t                last_look_ns; /* who is missing is looked up a moment before the end, when others */
    bool                   has_looked;   /* whose time is over a little earlier are still there */
    char                   missing[160]; /* "1, 3" */
    char                   own_address[GMI_ADDRESS_TEXT_BYTES];
};

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- failures that the service thread hears of -------------------------------------------------- */

static gm_status heard_failure(struct creation *k)
{
    pthread_mutex_lock(&k->comm->lock);
    bool               has_failure = k->comm->control.has_failure;
    struct gmi_failure failure = k->comm->control.failure;
    pthread_mutex_unlock(&k->comm->lock);
    if (!has_failure) return GM_OK;
    gmi_error_set(k->error, failure.status, "start-up: %s", failure.cause);
    if (k->error != NULL) k->error->culprit = failure.culprit;
    return failure.status;
}

static gm_status timed_out(struct creation *k)
{
    pthread_mutex_lock(&k->comm->lock);
    struct gmi_failure failure = { .status = GM_ERR_TIMEOUT, .culprit = -1, .reporter = k->comm->rank };
    snprintf(failure.cause, sizeof failure.cause, "rank(s) %s of %d did not come within %d ms",
             k->missing[0] ? k->missing : "unknown", k->comm->n_ranks, k->options->connect_timeout_ms);
    /* Rank 0 speaks for all; another rank only gives up itself, and may be replaced. */
    if (k->comm->rank == 0) gmi_control_fail(&k->comm->control, &failure);
    pthread_mutex_unlock(&k->comm->lock);
    return gmi_error_set(k->error, GM_ERR_TIMEOUT, "start-up: %s", failure.cause);
}

/* ---- 1. the store ------------------------------------------------------------------------------- */

static gm_status where_the_store_is(struct creation *k, char *host, size_t host_bytes, int *port)
{
    const gm_comm_options *o = k->options;
    if (o->store != NULL) return gmi_host_port_split(o->store, host, host_bytes, port, k->error);
    if (o->master_addr == NULL || o->master_port < 1 || o->master_port > 65535) {
        return gmi_error_set(k->error, GM_ERR_ARG,
                             "a world of %d needs a meeting point: set the store, or master_addr and master_port "
                             "(GRADMESH_STORE, or MASTER_ADDR and MASTER_PORT)", o->world_size);
    }
    /* "[::1]" as well as "::1": both are in use. */
    size_t n = strlen(o->master_addr);
    bool   is_bracketed = n > 2 && o->master_addr[0] == '[' && o->master_addr[n - 1] == ']';
    snprintf(host, host_bytes, "%.*s", (int)(is_bracketed ? n - 2 : n), o->master_addr + (is_bracketed ? 1 : 0));
    *port = o->master_port;
    return GM_OK;
}

static gm_status serve_store(struct creation *k, const char *host, int port, gm_error *error)
{
    struct gmi_store_server *server;
    gm_status status = gmi_store_server_create(&server, host, port, k->comm->job_id, &k->comm->secret,
                                               &k->comm->log, error);
    if (status != GM_OK) return status;
    pthread_mutex_lock(&k->comm->lock);
    k->comm->store_server = server;
    pthread_mutex_unlock(&k->comm->lock);
    gmi_service_wake(k->comm);
    return GM_OK;
}

static void keep_error(struct creation *k, const gm_error *error)
{
    if (k->error == NULL) return;
    int rank = k->error->rank;
    *k->error = *error;
    k->error->rank = rank;
}

/* Connects to the store; rank 0 of a job without a launcher serves it first, unless another communicator of this
 * process does already. */
static gm_status reach_store(struct creation *k, const char *host, int port)
{
    struct gm_comm  *comm = k->comm;
    struct gmi_hello hello = gmi_comm_hello(comm, GMI_CHANNEL_STORE, GMI_NO_RANK);
    bool             must_serve = k->options->store == NULL && comm->rank == 0 && comm->store_server == NULL;
    gm_error         refusal;
    gmi_error_clear(&refusal);
    if (!must_serve || serve_store(k, host, port, &refusal) == GM_OK) {
        return gmi_store_connect(&comm->store, host, port, &hello, &comm->secret, k->deadline_ns, &comm->log, k->error);
    }
    hello.session = gmi_process_number();
    int64_t until_ns = earlier(k->deadline_ns, gmi_deadline_after_ms(OWN_STORE_MS));
    if (refusal.sys_errno == EADDRINUSE &&
        gmi_store_connect(&comm->store, host, port, &hello, &comm->secret, until_ns, &comm->log, NULL) == GM_OK) {
        return GM_OK;
    }
    keep_error(k, &refusal);
    return refusal.status;
}

static gm_status choose_interface(struct creation *k, struct gmi_address *address)
{
    struct gmi_interface_choice choice;
    gm_status status = gmi_interface_choose(&choice, k->options->interface_names, address->storage.ss_family, k->error);
    if (status != GM_OK) return status;
    *address = choice.address;
    if (choice.others[0] != '\0') {
        gmi_log(&k->comm->log, GM_LOG_WARN, "rank %d uses the interface %s alone, one for each rank, though '%s' fits %s too",
                k->comm->rank, choice.name, k->options->interface_names, choice.others);
    }
    return GM_OK;
}

/* We listen where the store sees us, unless the user has chosen an interface. Who sees the store in his own host, by a name
 * that means another address elsewhere, cannot know by which he is seen: he listens at all, and says "where the store is". */
static gm_status listen_for_others(struct creation *k, const char *store_host)
{
    struct gmi_address address, any;
    gmi_socket_own_address(k->comm->store.stream.fd, &address);
    any = address;
    gmi_address_set_any(&any);
    gm_status status = GM_OK;
    if (k->options->interface_names != NULL && k->options->interface_names[0] != '\0') {
        status = choose_interface(k, &address);
        if (status != GM_OK) return status;
    } else if (gmi_address_is_loopback(&address) && gmi_host_is_known_to_others(store_host) &&
               gmi_secret_allows(&k->comm->secret, &any, NULL) == GM_OK) {
        address = any;
    }
    gmi_address_set_port(&address, 0);
    pthread_mutex_lock(&k->comm->lock);
    status = gmi_service_listen(k->comm, &address, k->error);
    if (status == GM_OK) gmi_socket_own_address(k->comm->acceptor.listener_fd, &address);
    pthread_mutex_unlock(&k->comm->lock);
    gmi_address_format(&address, k->own_address);
    gmi_service_wake(k->comm);
    return status;
}

static void rank_key(const struct gm_comm *comm, int rank, char *key, size_t key_bytes)
{
    snprintf(key, key_bytes, "%s/%d", comm->group_name, rank);
}

static gm_status meet_at_store(struct creation *k)
{
    struct gm_comm *comm = k->comm;
    char host[256], key[GMI_STORE_MAX_KEY_BYTES + 1];
    int  port = 0;
    gm_status status = where_the_store_is(k, host, sizeof host, &port);
    if (status == GM_OK) status = reach_store(k, host, port);
    if (status == GM_OK && !comm->is_accepting) status = listen_for_others(k, host);
    if (status != GM_OK) return status;
    pthread_mutex_lock(&comm->lock);
    gmi_socket_peer_address(comm->store.stream.fd, &comm->control.meeting);
    pthread_mutex_unlock(&comm->lock);
    rank_key(comm, comm->rank, key, sizeof key);
    gmi_log(&comm->log, GM_LOG_INFO, "rank %d of %d listens on %s, store at %s:%d", comm->rank, comm->n_ranks,
            k->own_address, host, port);
    return gmi_store_claim(&comm->store, key, k->own_address, k->deadline_ns, k->error);
}

/* ---- 2. rank 0 ---------------------------------------------------------------------------------- */

/* "0, 2" into `text`: the ranks without a key in the store. */
static void missing_by_store(struct creation *k, char *text, size_t text_bytes)
{
    struct gm_comm *comm = k->comm;
    char   *keys, key[GMI_STORE_MAX_KEY_BYTES + 2], prefix[GMI_NAME_BYTES + 2];
    size_t  used = 0;
    snprintf(text, text_bytes, "0");
    snprintf(prefix, sizeof prefix, "%s/", comm->group_name);
    if (gmi_store_list(&comm->store, prefix, &keys, gmi_deadline_after_ms(1000), NULL) != GM_OK) return;
    text[0] = '\0';
    for (int rank = 0; rank < comm->n_ranks && used + 16 < text_bytes; rank++) {
        snprintf(key, sizeof key, "%s/%d\n", comm->group_name, rank);
        const char *at = strstr(keys, key);
        if (at != NULL && (at == keys || at[-1] == '\n')) continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", used ? ", " : "", rank);
    }
    gmi_free(keys);
}

static gm_status wait_for_rank_0(struct creation *k, char *address)
{
    char key[GMI_STORE_MAX_KEY_BYTES + 1];
    rank_key(k->comm, 0, key, sizeof key);
    for (;;) {
        int64_t   until_ns = earlier(gmi_deadline_after_ms(SAY_EVERY_MS), k->has_looked ? k->deadline_ns : k->last_look_ns);
        gm_status status = gmi_store_wait(&k->comm->store, key, address, until_ns, k->error);
        if (status != GM_AGAIN) return status;
        if (gmi_deadline_passed(k->deadline_ns)) return timed_out(k);
        missing_by_store(k, k->missing, sizeof k->missing);
        k->has_looked = gmi_deadline_passed(k->last_look_ns);
        if (k->has_looked) continue;
        gmi_log(&k->comm->log, GM_LOG_WARN, "rank %d is still waiting for rank(s) %s of %d", k->comm->rank, k->missing,
                k->comm->n_ranks);
    }
}

static gm_status dial_rank_0(struct creation *k, const char *published, struct gmi_stream *stream)
{
    char host[256], whom[160], address_text[GMI_ADDRESS_TEXT_BYTES];
    int  port;
    snprintf(address_text, sizeof address_text, "%.79s", published); /* a longer one is none */
    gmi_address_localize(address_text, &k->comm->control.meeting);
    gm_status status = gmi_host_port_split(address_text, host, sizeof host, &port, k->error);
    if (status != GM_OK) return status;
    struct gmi_hello hello = gmi_comm_hello(k->comm, GMI_CHANNEL_CONTROL, 0);
    snprintf(whom, sizeof whom, "rank 0 at %.120s", address_text);
    struct gmi_dial dial = { .host = host, .port = port, .own = &hello, .secret = &k->comm->secret, .whom = whom, .deadline_ns = k->deadline_ns,
                             .look_again_ns = gmi_deadline_after_ms(RETRY_MS), .log = &k->comm->log };
    return gmi_dial(&dial, stream, k->error);
}

static gm_status join_rank_0(struct creation *k)
{
    struct gm_comm *comm = k->comm;
    char      address[GMI_STORE_MAX_VALUE_BYTES + 1];
    struct gmi_stream stream = gmi_stream_plain(-1);
    gm_status status = GM_OK;
    if (comm->rank != 0) {
        do { /* an address that does not answer may be of a rank 0 that is being replaced */
            status = wait_for_rank_0(k, address);
            if (status != GM_OK) return status;
            status = dial_rank_0(k, address, &stream);
        } while (status == GM_AGAIN);
        if (status != GM_OK) return status;
    }
    pthread_mutex_lock(&comm->lock);
    if (comm->rank == 0) {
        gmi_control_join_self(&comm->control, k->own_address);
    } else {
        gmi_control_attach(&comm->control, stream, k->own_address);
    }
    pthread_mutex_unlock(&comm->lock);
    gmi_service_wake(comm);
    return GM_OK;
}

/* Steps 1 and 2, up to the connection with rank 0. */
static gm_status join(struct creation *k)
{
    for (;;) {
        gm_status status = meet_at_store(k);
        if (status == GM_OK) status = join_rank_0(k);
        /* Only the store can be lost here. A rank 0 that serves it and begins anew will serve it again. */
        if (status != GM_ERR_PEER_LOST || gmi_deadline_passed(k->deadline_ns)) return status;
        gmi_store_close(&k->comm->store);
        keep_error(k, &(gm_error){ .status = GM_OK, .culprit = -1, .step = -1 });
        gmi_caller_wait(k->comm, gmi_deadline_after_ms(RETRY_MS));
    }
}

static gm_status wait_until_ready(struct creation *k)
{
    int64_t next_word_ns = gmi_deadline_after_ms(SAY_EVERY_MS);
    for (;;) {
        gm_status status = heard_failure(k);
        if (status != GM_OK) return status;
        pthread_mutex_lock(&k->comm->lock);
        bool is_ready = k->comm->control.phase == GMI_READY;
        if (!k->has_looked) gmi_control_missing(&k->comm->control, k->missing, sizeof k->missing);
        k->has_looked = gmi_deadline_passed(k->last_look_ns);
        pthread_mutex_unlock(&k->comm->lock);
        if (is_ready) return GM_OK;
        if (gmi_deadline_passed(k->deadline_ns)) return timed_out(k);
        if (gmi_deadline_passed(next_word_ns)) {
            gmi_log(&k->comm->log, GM_LOG_WARN, "rank %d is still waiting for rank(s) %s of %d", k->comm->rank, k->missing,
                    k->comm->n_ranks);
            next_word_ns = gmi_deadline_after_ms(SAY_EVERY_MS);
        }
        gmi_caller_wait(k->comm, earlier(k->has_looked ? k->deadline_ns : k->last_look_ns, next_word_ns));
    }
}

/* ---- 3. the ring's links ------------------------------------------------------------------------ */

static gm_status wait_for_neighbour(struct creation *k, int peer)
{
    for (;;) {
        gm_status status = heard_failure(k);
        if (status != GM_OK) return status;
        char reason[256];
        pthread_mutex_lock(&k->comm->lock);
        const struct gmi_line *line = &k->comm->lines[GMI_LANE_DATA][peer];
        bool                   is_here = line->port->link != NULL;
        gmi_line_trouble(line, reason, sizeof reason);
        pthread_mutex_unlock(&k->comm->lock);
        if (is_here) return GM_OK;
        if (gmi_deadline_passed(k->deadline_ns)) {
            if (k->error != NULL) k->error->culprit = peer;
            return gmi_error_set(k->error, GM_ERR_TIMEOUT,
                                 "start-up: no connection between rank %d and rank %d (%s) within %d ms; %s",
                                 k->comm->rank, peer, k->comm->control.members[peer].address,
                                 k->options->connect_timeout_ms, reason);
        }
        gmi_caller_wait(k->comm, k->deadline_ns);
    }
}

static gm_status connect_ring(struct creation *k)
{
    int n = k->comm->n_ranks, rank = k->comm->rank;
    int neighbours[2] = { (rank + n - 1) % n, (rank + 1) % n };
    int n_neighbours = n == 2 ? 1 : 2;
    pthread_mutex_lock(&k->comm->lock);
    for (int i = 0; i < n_neighbours; i++) gmi_line_want(&k->comm->lines[GMI_LANE_DATA][neighbours[i]]);
    pthread_mutex_unlock(&k->comm->lock);
    gmi_service_wake(k->comm);
    for (int i = 0; i < n_neighbours; i++) {
        gm_status status = wait_for_neighbour(k, neighbours[i]);
        if (status != GM_OK) return status;
    }
    return GM_OK;
}

static gm_status weigh(struct creation *k)
{
    if (gmi_comm_weigh(k->comm) == GM_OK && gmi_comm_lay_out(k->comm) == GM_OK) return GM_OK;
    return gmi_error_set(k->error, GM_ERR_NOMEM, "no memory for a communicator of %d ranks", k->comm->n_ranks);
}

gm_status gmi_comm_connect(struct gm_comm *comm, const gm_comm_options *options, gm_error *error)
{
    struct creation k = { .comm = comm, .options = options, .error = error, .begin_ns = gmi_now_ns(),
                          .deadline_ns = gmi_deadline_after_ms(options->connect_timeout_ms) };
    k.last_look_ns = k.deadline_ns - earlier(LAST_LOOK_MS, options->connect_timeout_ms / 2) * GMI_NS_PER_MS;
    gmi_status_start(comm);
    gm_status status = gmi_service_start(comm, error);
    if (status == GM_OK) status = join(&k);
    if (status == GM_OK) status = wait_until_ready(&k);
    if (status == GM_OK) status = weigh(&k);
    if (status == GM_OK) status = connect_ring(&k);
    if (status == GM_OK) gmi_placement_init(&comm->placement, gmi_control_local_ranks(&comm->control), gmi_placement_cores());
    if (error != NULL) error->elapsed_ns = gmi_now_ns() - k.begin_ns;
    if (status == GM_OK) {
        gmi_log(&comm->log, GM_LOG_INFO, "rank %d of %d is connected after %.1f ms", comm->rank, comm->n_ranks,
                (double)(gmi_now_ns() - k.begin_ns) / 1e6);
    }
    return status;
}
