#include "rendezvous/store.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/poller.h"
#include "net/socket.h"
#include "rendezvous/dial.h"

static gm_status judge(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    const struct gmi_hello *own = user;
    if (peer->channel != GMI_CHANNEL_STORE) {
        snprintf(why, why_bytes, "expected a store here, not rank %d", (int)peer->rank);
        return GM_ERR_REFUSED;
    }
    if (strcmp(peer->job_id, own->job_id) != 0) {
        snprintf(why, why_bytes, "this is job '%s', the store serves job '%s'", own->job_id, peer->job_id);
        return GM_ERR_REFUSED;
    }
    if (own->session != 0 && peer->session != own->session) {
        snprintf(why, why_bytes, "another process serves this store");
        return GM_ERR_REFUSED;
    }
    return GM_OK;
}

gm_status gmi_store_connect(struct gmi_store *store, const char *host, int port, const struct gmi_hello *own,
                            const struct gmi_secret *secret, int64_t deadline_ns, const struct gmi_log *log, gm_error *error)
{
    char whom[200];
    snprintf(whom, sizeof whom, "the store at %.120s:%d", host, port);
    struct gmi_hello hello = *own;
    hello.channel = GMI_CHANNEL_STORE;
    hello.target = GMI_NO_RANK;
    struct gmi_dial dial = { .host = host, .port = port, .own = &hello, .secret = secret, .judge = judge, .whom = whom,
                             .deadline_ns = deadline_ns, .look_again_ns = GMI_NEVER, .log = log };
    gm_status status = gmi_dial(&dial, &store->stream, error);
    if (status == GM_OK) gmi_socket_tune(store->stream.fd);
    return status;
}

void gmi_store_close(struct gmi_store *store) { gmi_stream_close(&store->stream); }

/* Moves all `n_bytes` or fails; GM_AGAIN at the deadline, only if nothing moved. */
static gm_status move_all(struct gmi_store *store, void *bytes, size_t n_bytes, bool is_sending,
                          int64_t deadline_ns, gm_error *error)
{
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    gm_status status = GM_OK;
    size_t    done = 0;
    while (done < n_bytes) {
        struct iovec part = { (uint8_t *)bytes + done, n_bytes - done };
        size_t moved;
        int    sys_errno = 0;
        status = is_sending ? gmi_stream_send_some(&store->stream, &part, 1, &moved, &sys_errno)
                            : gmi_stream_recv_some(&store->stream, &part, 1, &moved, &sys_errno);
        done += moved;
        if (status == GM_ERR_PEER_LOST) {
            gmi_error_set(error, status, "the store has gone: %s", sys_errno ? strerror(sys_errno) : "end of file");
            break;
        }
        if (status == GM_ERR_PROTOCOL) {
            gmi_error_set(error, status, "the store sent bytes that are not encrypted with the key of the connection");
            break;
        }
        if (status != GM_AGAIN) continue;
        gmi_poller_clear(&poller);
        gmi_stream_watch(&store->stream, &poller, is_sending ? GMI_WRITABLE : GMI_READABLE);
        status = gmi_poller_wait(&poller, deadline_ns);
        if (status == GM_AGAIN && done == 0) break;
        if (status != GM_OK) {
            status = gmi_error_set(error, GM_ERR_TIMEOUT, "the store does not answer");
            break;
        }
    }
    gmi_poller_fini(&poller);
    return status;
}

static gm_status ask(struct gmi_store *store, enum gmi_store_kind kind, const char *key, const char *value,
                     int64_t deadline_ns, gm_error *error)
{
    uint8_t wire[GMI_STORE_HEADER_BYTES + GMI_STORE_MAX_KEY_BYTES + GMI_STORE_MAX_VALUE_BYTES];
    size_t  key_bytes = strlen(key), value_bytes = strlen(value);
    if (key_bytes > GMI_STORE_MAX_KEY_BYTES || value_bytes > GMI_STORE_MAX_VALUE_BYTES) {
        return gmi_error_set(error, GM_ERR_ARG, "a name for the store is too long: '%.100s'", key);
    }
    gmi_store_header_encode(wire, kind, key_bytes, value_bytes);
    memcpy(wire + GMI_STORE_HEADER_BYTES, key, key_bytes);
    memcpy(wire + GMI_STORE_HEADER_BYTES + key_bytes, value, value_bytes);
    return move_all(store, wire, GMI_STORE_HEADER_BYTES + key_bytes + value_bytes, true, deadline_ns, error);
}

/* The next reply; *value is freed with gmi_free. */
static gm_status hear(struct gmi_store *store, enum gmi_store_kind *kind, char **value, int64_t deadline_ns,
                      gm_error *error)
{
    uint8_t   header[GMI_STORE_HEADER_BYTES];
    gm_status status = move_all(store, header, sizeof header, false, deadline_ns, error);
    if (status != GM_OK) return status;
    size_t value_bytes = gmi_get_u32(header + 4);
    *kind = header[0];
    if (gmi_get_u16(header + 2) != 0 || value_bytes > GMI_STORE_MAX_REPLY_BYTES) {
        return gmi_error_set(error, GM_ERR_PROTOCOL, "the store sent an impossible reply");
    }
    *value = gmi_alloc(value_bytes + 1, 1);
    if (*value == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the store's reply");
    /* Once the header is here the rest is on its way. */
    status = move_all(store, *value, value_bytes, false, gmi_deadline_after_ms(5000), error);
    if (status == GM_OK) return GM_OK;
    gmi_free(*value);
    return status == GM_AGAIN ? gmi_error_set(error, GM_ERR_TIMEOUT, "the store does not answer") : status;
}

static gm_status unexpected(gm_error *error)
{
    return gmi_error_set(error, GM_ERR_PROTOCOL, "the store answered something else than was asked");
}

gm_status gmi_store_claim(struct gmi_store *store, const char *key, const char *value, int64_t deadline_ns,
                          gm_error *error)
{
    enum gmi_store_kind kind;
    char     *text;
    gm_status status = ask(store, GMI_STORE_CLAIM, key, value, deadline_ns, error);
    if (status == GM_OK) status = hear(store, &kind, &text, deadline_ns, error);
    if (status == GM_AGAIN) return gmi_error_set(error, GM_ERR_TIMEOUT, "the store does not answer");
    if (status != GM_OK) return status;
    if (kind == GMI_STORE_TAKEN) {
        gmi_error_set(error, status = GM_ERR_REFUSED, "%s", text);
    } else if (kind != GMI_STORE_GRANTED) {
        status = unexpected(error);
    }
    gmi_free(text);
    return status;
}

gm_status gmi_store_wait(struct gmi_store *store, const char *key, char *value, int64_t deadline_ns,
                         gm_error *error)
{
    enum gmi_store_kind kind;
    char     *text = NULL;
    gm_status status = ask(store, GMI_STORE_WAIT, key, "", deadline_ns, error);
    for (;;) {
        if (status == GM_OK) status = hear(store, &kind, &text, deadline_ns, error);
        if (status != GM_OK) return status;
        if (kind != GMI_STORE_LISTING) break;
        gmi_free(text); /* the late answer to a list that we did not wait for */
    }
    if (kind != GMI_STORE_VALUE) {
        status = unexpected(error);
    } else {
        snprintf(value, GMI_STORE_MAX_VALUE_BYTES + 1, "%s", text);
    }
    gmi_free(text);
    return status;
}

gm_status gmi_store_list(struct gmi_store *store, const char *prefix, char **text, int64_t deadline_ns,
                         gm_error *error)
{
    enum gmi_store_kind kind;
    gm_status status = ask(store, GMI_STORE_LIST, prefix, "", deadline_ns, error);
    for (;;) {
        if (status == GM_OK) status = hear(store, &kind, text, deadline_ns, error);
        if (status == GM_AGAIN) return gmi_error_set(error, GM_ERR_TIMEOUT, "the store does not answer");
        if (status != GM_OK || kind == GMI_STORE_LISTING) return status;
        gmi_free(*text); /* the late answer to the wait that this ended */
        if (kind != GMI_STORE_VALUE) return unexpected(error);
    }
}
