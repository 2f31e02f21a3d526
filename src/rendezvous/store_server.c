#include "rendezvous/store_server.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "net/socket.h"
#include "rendezvous/acceptor.h"
#include "rendezvous/store_wire.h"

struct entry {
    struct entry  *next;
    struct client *owner; /* the entry lives as long as this connection */
    char           key[GMI_STORE_MAX_KEY_BYTES + 1];
    char           value[GMI_STORE_MAX_VALUE_BYTES + 1];
};

struct client {
    struct client   *next;
    struct gmi_stream stream;
    struct gmi_hello hello;
    uint8_t          in[GMI_STORE_HEADER_BYTES + GMI_STORE_MAX_KEY_BYTES + GMI_STORE_MAX_VALUE_BYTES];
    size_t           in_bytes;
    uint8_t         *out; /* replies that the socket has not taken yet */
    size_t           out_bytes, out_cap_bytes, out_sent_bytes;
    bool             is_waiting; /* for awaited_key */
    char             awaited_key[GMI_STORE_MAX_KEY_BYTES + 1];
    bool             is_over;
};

/* A communicator that has claims here. Once all its ranks have been here and one has gone, its end has begun:
 * who comes then for the next one of that name, of another size perhaps, comes a little early. */
struct group {
    struct group *next;
    uint32_t      id;
    int           world_size, n_claims;
    bool          was_complete;
};

struct gmi_store_server {
    struct gmi_acceptor   acceptor;
    const struct gmi_log *log;
    int                   port;
    struct entry         *entries;
    struct client        *clients;
    struct group         *groups;
    uint8_t              *seen; /* by rank */
    int                   cap_seen, n_seen;
};

/* ---- groups ------------------------------------------------------------------------------------ */

static struct group *find_group(const struct gmi_store_server *s, uint32_t id)
{
    struct group *g = s->groups;
    while (g != NULL && g->id != id) g = g->next;
    return g;
}

static bool is_ending(const struct group *g) { return g->was_complete && g->n_claims < g->world_size; }

/* False: no memory. */
static bool count_claim(struct gmi_store_server *s, const struct gmi_hello *by)
{
    struct group *g = find_group(s, by->group);
    if (g == NULL) {
        g = gmi_alloc(1, sizeof *g);
        if (g == NULL) return false;
        *g = (struct group){ .next = s->groups, .id = by->group, .world_size = by->world_size };
        s->groups = g;
    }
    g->n_claims++;
    if (g->n_claims == g->world_size) g->was_complete = true;
    return true;
}

static void discount_claim(struct gmi_store_server *s, const struct gmi_hello *by)
{
    for (struct group **at = &s->groups; *at != NULL; at = &(*at)->next) {
        struct group *g = *at;
        if (g->id != by->group) continue;
        if (--g->n_claims > 0) return;
        *at = g->next;
        gmi_free(g);
        return;
    }
}

/* ---- entries ----------------------------------------------------------------------------------- */

static struct entry *find(struct gmi_store_server *s, const char *key)
{
    for (struct entry *e = s->entries; e != NULL; e = e->next) {
        if (strcmp(e->key, key) == 0) return e;
    }
    return NULL;
}

static void forget_entries_of(struct gmi_store_server *s, const struct client *owner)
{
    for (struct entry **at = &s->entries; *at != NULL;) {
        struct entry *e = *at;
        if (e->owner == owner) {
            discount_claim(s, &owner->hello);
            *at = e->next;
            gmi_free(e);
        } else {
            at = &e->next;
        }
    }
}

static void note_rank(struct gmi_store_server *s, int rank)
{
    if (rank < 0 || rank >= 1 << 20) return;
    if (rank >= s->cap_seen) {
        int      cap = rank + 64;
        uint8_t *seen = gmi_alloc((size_t)cap, 1);
        if (seen == NULL) return; /* it only feeds a warning */
        if (s->seen != NULL) memcpy(seen, s->seen, (size_t)s->cap_seen);
        gmi_free(s->seen);
        s->seen = seen;
        s->cap_seen = cap;
    }
    s->n_seen += !s->seen[rank];
    s->seen[rank] = 1;
}

/* ---- replies ----------------------------------------------------------------------------------- */

static void reply(struct client *c, enum gmi_store_kind kind, const void *value, size_t value_bytes)
{
    size_t need = c->out_bytes + GMI_STORE_HEADER_BYTES + value_bytes;
    if (need > c->out_cap_bytes) {
        uint8_t *out = gmi_alloc(need * 2, 1);
        if (out == NULL) {
            c->is_over = true; /* it will notice, and say so to its user */
            return;
        }
        if (c->out_bytes > 0) memcpy(out, c->out, c->out_bytes);
        gmi_free(c->out);
        c->out = out;
        c->out_cap_bytes = need * 2;
    }
    gmi_store_header_encode(c->out + c->out_bytes, kind, 0, value_bytes);
    memcpy(c->out + c->out_bytes + GMI_STORE_HEADER_BYTES, value, value_bytes);
    c->out_bytes = need;
}

static void flush(struct client *c)
{
    while (!c->is_over && c->out_sent_bytes < c->out_bytes) {
        struct iovec part = { c->out + c->out_sent_bytes, c->out_bytes - c->out_sent_bytes };
        size_t    moved;
        int       sys_errno;
        gm_status status = gmi_stream_send_some(&c->stream, &part, 1, &moved, &sys_errno);
        c->out_sent_bytes += moved;
        if (status == GM_AGAIN) return;
        if (status != GM_OK) c->is_over = true;
    }
    c->out_bytes = c->out_sent_bytes = 0;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static void answer_waiters(struct gmi_store_server *s, const struct entry *e)
{
    for (struct client *c = s->clients; c != NULL; c = c->next) {
        if (!c->is_waiting || strcmp(c->awaited_key, e->key) != 0) continue;
        c->is_waiting = false;
        reply(c, GMI_STORE_VALUE, e->value, strlen(e->value));
        flush(c);
    }
}

static void serve_claim(struct gmi_store_server *s, struct client *c, const char *key, const char *value)
{
    struct entry *held = find(s, key);
    /* A holder whose process is gone may not have been noticed yet. */
    if (held != NULL && held->owner != c && gmi_socket_is_over(held->owner->stream.fd)) {
        held->owner->is_over = true;
        forget_entries_of(s, held->owner);
        held = NULL;
    }
    if (held != NULL) {
        struct gmi_address address;
        char text[GMI_ADDRESS_TEXT_BYTES] = "?", why[GMI_STORE_MAX_VALUE_BYTES + 1];
        if (gmi_socket_peer_address(held->owner->stream.fd, &address) == GM_OK) gmi_address_format(&address, text);
        snprintf(why, sizeof why, "rank %d is already taken by the process at %s; each rank may be started once",
                 (int)c->hello.rank, text);
        gmi_log(s->log, GM_LOG_WARN, "store: a second process that calls itself rank %d was refused; the first one goes on",
                (int)c->hello.rank);
        reply(c, GMI_STORE_TAKEN, why, strlen(why));
        return;
    }
    struct entry *e = gmi_alloc(1, sizeof *e);
    if (e == NULL || !count_claim(s, &c->hello)) {
        gmi_free(e);
        c->is_over = true;
        return;
    }
    *e = (struct entry){ .next = s->entries, .owner = c };
    snprintf(e->key, sizeof e->key, "%s", key);
    snprintf(e->value, sizeof e->value, "%s", value);
    s->entries = e;
    note_rank(s, c->hello.rank);
    reply(c, GMI_STORE_GRANTED, "", 0);
    answer_waiters(s, e);
}

static void serve_wait(struct gmi_store_server *s, struct client *c, const char *key)
{
    struct entry *e = find(s, key);
    if (e != NULL) {
        reply(c, GMI_STORE_VALUE, e->value, strlen(e->value));
        return;
    }
    c->is_waiting = true;
    snprintf(c->awaited_key, sizeof c->awaited_key, "%s", key);
}

static void serve_list(struct gmi_store_server *s, struct client *c, const char *prefix)
{
    size_t bytes = 1, used = 0, prefix_bytes = strlen(prefix);
    for (struct entry *e = s->entries; e != NULL; e = e->next) bytes += strlen(e->key) + 1;
    char *text = gmi_alloc(bytes, 1);
    if (text == NULL) {
        c->is_over = true;
        return;
    }
    for (struct entry *e = s->entries; e != NULL; e = e->next) {
        if (strncmp(e->key, prefix, prefix_bytes) != 0) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s\n", e->key);
    }
    c->is_waiting = false;
    reply(c, GMI_STORE_LISTING, text, gmi_min_size(used, GMI_STORE_MAX_REPLY_BYTES));
    gmi_free(text);
}

/* True when a whole request was there and was served. */
static bool serve_one(struct gmi_store_server *s, struct client *c)
{
    if (c->in_bytes < GMI_STORE_HEADER_BYTES) return false;
    if (c->is_waiting && c->in[0] != GMI_STORE_LIST) return false;
    size_t key_bytes = gmi_get_u16(c->in + 2), value_bytes = gmi_get_u32(c->in + 4);
    if (key_bytes > GMI_STORE_MAX_KEY_BYTES || value_bytes > GMI_STORE_MAX_VALUE_BYTES) {
        gmi_log(s->log, GM_LOG_WARN, "store: rank %d sent an impossible request and was disconnected",
                (int)c->hello.rank);
        c->is_over = true;
        return false;
    }
    size_t total = GMI_STORE_HEADER_BYTES + key_bytes + value_bytes;
    if (c->in_bytes < total) return false;
    char key[GMI_STORE_MAX_KEY_BYTES + 1] = "", value[GMI_STORE_MAX_VALUE_BYTES + 1] = "";
    memcpy(key, c->in + GMI_STORE_HEADER_BYTES, key_bytes);
    memcpy(value, c->in + GMI_STORE_HEADER_BYTES + key_bytes, value_bytes);
    switch (c->in[0]) {
    case GMI_STORE_CLAIM: serve_claim(s, c, key, value); break;
    case GMI_STORE_WAIT: serve_wait(s, c, key); break;
    case GMI_STORE_LIST: serve_list(s, c, key); break;
    default: c->is_over = true; break;
    }
    c->in_bytes -= total;
    memmove(c->in, c->in + total, c->in_bytes);
    return true;
}

static void step_client(struct gmi_store_server *s, struct client *c)
{
    flush(c);
    while (!c->is_over) {
        while (serve_one(s, c)) {}
        flush(c);
        struct iovec part = { c->in + c->in_bytes, sizeof c->in - c->in_bytes };
        if (part.iov_len == 0) { /* waits, and has asked for more than may wait; its end would never be seen */
            gmi_log(s->log, GM_LOG_WARN, "store: rank %d sent too much at once and was disconnected", (int)c->hello.rank);
            c->is_over = true;
            return;
        }
        size_t    moved;
        int       sys_errno;
        gm_status status = gmi_stream_recv_some(&c->stream, &part, 1, &moved, &sys_errno);
        c->in_bytes += moved;
        if (status == GM_AGAIN) return;
        if (status != GM_OK) c->is_over = true;
    }
}

static void remove_dead_clients(struct gmi_store_server *s)
{
    for (struct client **at = &s->clients; *at != NULL;) {
        struct client *c = *at;
        if (!c->is_over) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        forget_entries_of(s, c);
        gmi_stream_close(&c->stream);
        gmi_free(c->out);
        gmi_free(c);
    }
}

/* ---- who may come in --------------------------------------------------------------------------- */

static void forget_who_is_gone(struct gmi_store_server *s)
{
    for (struct client *c = s->clients; c != NULL; c = c->next) {
        if (!gmi_socket_is_over(c->stream.fd)) continue;
        c->is_over = true; /* removed at the end of this step */
        forget_entries_of(s, c);
    }
}

static gm_status judge(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    struct gmi_store_server *s = user;
    const char *job = s->acceptor.own.job_id;
    if (peer->channel != GMI_CHANNEL_STORE) {
        snprintf(why, why_bytes, "this is the store of job '%s', not a rank", job);
        return GM_ERR_REFUSED;
    }
    if (strcmp(peer->job_id, job) != 0) {
        snprintf(why, why_bytes, "this is job '%s', you belong to job '%s'", job, peer->job_id);
        return GM_ERR_REFUSED;
    }
    if (peer->rank < 0 || peer->rank >= peer->world_size) {
        snprintf(why, why_bytes, "there is no rank %d in a world of %d", (int)peer->rank, (int)peer->world_size);
        return GM_ERR_REFUSED;
    }
    forget_who_is_gone(s); /* not noticed yet, perhaps */
    const struct group *g = find_group(s, peer->group);
    if (g != NULL && g->world_size != peer->world_size && is_ending(g)) {
        snprintf(why, why_bytes, "the last communicator of this name is ending; come again");
        return GM_ERR_STATE;
    }
    for (const struct entry *e = s->entries; e != NULL; e = e->next) {
        const struct gmi_hello *member = &e->owner->hello;
        if (member->group != peer->group || member->world_size == peer->world_size) continue;
        snprintf(why, why_bytes, "world size differs: rank %d says %d, rank %d says %d", (int)peer->rank,
                 (int)peer->world_size, (int)member->rank, (int)member->world_size);
        return GM_ERR_REFUSED;
    }
    return GM_OK;
}

void gmi_store_server_admit(struct gmi_store_server *s, struct gmi_stream stream, const struct gmi_hello *hello)
{
    struct client *c = gmi_alloc(1, sizeof *c);
    if (c == NULL) {
        gmi_stream_close(&stream);
        return;
    }
    gmi_socket_tune(stream.fd);
    *c = (struct client){ .next = s->clients, .stream = stream, .hello = *hello };
    s->clients = c;
}

static void admit(void *user, int fd, const struct gmi_handshake *finished)
{
    struct gmi_stream stream;
    if (gmi_handshake_stream(finished, fd, &stream) == GM_OK) gmi_store_server_admit(user, stream, &finished->peer);
}

/* ---- the server -------------------------------------------------------------------------------- */

gm_status gmi_store_server_create(struct gmi_store_server **server, const char *host, int port, const char *job_id,
                                  const struct gmi_secret *secret, const struct gmi_log *log, gm_error *error)
{
    *server = NULL;
    struct gmi_address_list list;
    gm_status status = gmi_address_resolve(&list, host, port, error);
    if (status != GM_OK) return status == GM_AGAIN ? GM_ERR_ARG : status;
    struct gmi_store_server *s = gmi_alloc(1, sizeof *s);
    if (s == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the store");
    struct gmi_hello own = { .channel = GMI_CHANNEL_STORE, .rank = GMI_NO_RANK, .target = GMI_NO_RANK,
                             .session = gmi_process_number() };
    snprintf(own.job_id, sizeof own.job_id, "%s", job_id ? job_id : "");
    s->log = log;
    struct gmi_address at = list.addresses[0], any = at;
    gmi_address_set_any(&any);
    /* Others reach a host of this name by another address; who may not come at all needs none. */
    bool is_for_others = gmi_address_is_loopback(&at) && gmi_host_is_known_to_others(host);
    if (is_for_others && gmi_secret_allows(secret, &any, NULL) == GM_OK) at = any;
    status = gmi_acceptor_init(&s->acceptor, &at, &own, secret, judge, admit, s, log, "store", error);
    if (status != GM_OK) {
        gmi_free(s);
        return status;
    }
    struct gmi_address bound;
    gmi_socket_own_address(s->acceptor.listener_fd, &bound);
    s->port = gmi_address_port(&bound);
    *server = s;
    return GM_OK;
}

void gmi_store_server_destroy(struct gmi_store_server *s)
{
    if (s == NULL) return;
    for (struct client *c = s->clients; c != NULL; c = c->next) c->is_over = true;
    remove_dead_clients(s);
    gmi_acceptor_fini(&s->acceptor);
    gmi_free(s->seen);
    gmi_free(s);
}

int gmi_store_server_port(const struct gmi_store_server *s) { return s->port; }
int gmi_store_server_ranks_seen(const struct gmi_store_server *s) { return s->n_seen; }

int gmi_store_server_clients(const struct gmi_store_server *s)
{
    int n = 0;
    for (const struct client *c = s->clients; c != NULL; c = c->next) n++;
    return n;
}

void gmi_store_server_watch(struct gmi_store_server *s, struct gmi_poller *poller)
{
    gmi_acceptor_watch(&s->acceptor, poller);
    for (struct client *c = s->clients; c != NULL; c = c->next) {
        unsigned interest = GMI_READABLE;
        if (c->out_sent_bytes < c->out_bytes) interest |= GMI_WRITABLE;
        gmi_stream_watch(&c->stream, poller, interest);
    }
}

void gmi_store_server_step(struct gmi_store_server *s)
{
    gmi_acceptor_step(&s->acceptor);
    for (struct client *c = s->clients; c != NULL; c = c->next) step_client(s, c);
    remove_dead_clients(s);
}
