#include "rendezvous/handshake.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"

/* ---- the messages ------------------------------------------------------------------------------ */

static void queue(struct gmi_handshake *h, const void *bytes, size_t n_bytes)
{
    GMI_CHECK(h->out_bytes + n_bytes <= sizeof h->out);
    memcpy(h->out + h->out_bytes, bytes, n_bytes);
    h->out_bytes += n_bytes;
}

static void queue_hello(struct gmi_handshake *h)
{
    uint8_t wire[GMI_HELLO_BYTES];
    gmi_hello_encode(&h->own, wire);
    queue(h, wire, sizeof wire);
}

static void queue_verdict(struct gmi_handshake *h, gm_status status, const char *why)
{
    uint8_t wire[4];
    size_t  why_bytes = status == GM_OK ? 0 : strlen(why);
    gmi_put_u16(wire, (uint16_t)status);
    gmi_put_u16(wire + 2, (uint16_t)why_bytes);
    queue(h, wire, sizeof wire);
    queue(h, why, why_bytes);
}

/* ---- states ------------------------------------------------------------------------------------ */

static void enter(struct gmi_handshake *h, enum gmi_handshake_state state)
{
    h->state = state;
    h->in_bytes = 0;
    switch (state) {
    case GMI_SHAKE_RECEIVING_HELLO: h->in_want_bytes = GMI_HELLO_BYTES; break;
    case GMI_SHAKE_RECEIVING_VERDICT: h->in_want_bytes = 4; break;
    default: h->in_want_bytes = 0; break;
    }
}

static const char *who(const struct gmi_handshake *h, char *text)
{
    struct gmi_address address;
    if (gmi_socket_peer_address(h->fd, &address) != GM_OK) return "the peer";
    return gmi_address_format(&address, text);
}

static gm_status fail(struct gmi_handshake *h)
{
    gmi_socket_close(&h->fd);
    enter(h, GMI_SHAKE_FAILED);
    return h->error.status;
}

static gm_status lost(struct gmi_handshake *h, int sys_errno)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    return gmi_error_set(&h->error, GM_ERR_PEER_LOST, "%s closed the connection during the handshake: %s", who(h, text),
                         sys_errno ? strerror(sys_errno) : "end of file");
}

/* Sends what is queued; a refused peer may be gone already, which changes nothing. */
static gm_status flush(struct gmi_handshake *h)
{
    while (h->out_sent_bytes < h->out_bytes) {
        struct iovec part = { h->out + h->out_sent_bytes, h->out_bytes - h->out_sent_bytes };
        size_t    moved;
        int       sys_errno = 0;
        gm_status status = gmi_socket_send_some(h->fd, &part, 1, &moved, &sys_errno);
        h->out_sent_bytes += moved;
        h->total_sent_bytes += moved;
        if (status == GM_AGAIN) return GM_AGAIN;
        if (status != GM_OK) return lost(h, sys_errno);
    }
    h->out_bytes = h->out_sent_bytes = 0;
    return GM_OK;
}

static gm_status fill(struct gmi_handshake *h)
{
    while (h->in_bytes < h->in_want_bytes) {
        struct iovec part = { h->in + h->in_bytes, h->in_want_bytes - h->in_bytes };
        size_t    moved;
        int       sys_errno = 0;
        gm_status status = gmi_socket_recv_some(h->fd, &part, 1, &moved, &sys_errno);
        h->in_bytes += moved;
        h->total_recv_bytes += moved;
        if (status == GM_AGAIN) return GM_AGAIN;
        if (status != GM_OK) return lost(h, sys_errno);
        if (h->state == GMI_SHAKE_RECEIVING_HELLO) break; /* judge what there is */
    }
    return GM_OK;
}

/* Turns the peer away: our error, and the same sentence for him, as far as his kernel takes it. */
static gm_status refuse(struct gmi_handshake *h, gm_status status, const char *why)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    h->is_refusal_ours = true;
    gmi_error_set(&h->error, status, "refused the connection with %s: %s", who(h, text), why);
    if (!h->is_caller) queue_hello(h);
    queue_verdict(h, status, why);
    (void)flush(h);
    return fail(h);
}

static gm_status turn_stranger_away(struct gmi_handshake *h)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    static const char line[] = "this is a gradmesh port; it does not speak your protocol\n";
    h->is_refusal_ours = true;
    gmi_error_set(&h->error, GM_ERR_PROTOCOL, "%s does not speak gradmesh's protocol", who(h, text));
    if (!h->is_caller) queue(h, line, sizeof line - 1);
    (void)flush(h);
    return fail(h);
}

/* GM_OK: judged and accepted. GM_AGAIN: not all here. */
static gm_status hear_hello(struct gmi_handshake *h)
{
    gm_status status = fill(h);
    if (status != GM_OK) return status == GM_AGAIN ? GM_AGAIN : fail(h);
    char why[GMI_VERDICT_TEXT_BYTES];
    switch (gmi_hello_decode(&h->peer, h->in, h->in_bytes)) {
    case GMI_HELLO_STRANGER: return turn_stranger_away(h);
    case GMI_HELLO_OTHER_VERSION:
        snprintf(why, sizeof why, "protocol version %d is needed here, not %d: use the same gradmesh on all hosts",
                 GMI_PROTOCOL_VERSION, h->peer.version);
        return refuse(h, GM_ERR_VERSION, why);
    case GMI_HELLO_GOOD: break;
    }
    if (h->in_bytes < GMI_HELLO_BYTES) return hear_hello(h);
    status = h->judge(h->judge_user, &h->peer, why, sizeof why);
    return status == GM_OK ? GM_OK : refuse(h, status, why);
}

static gm_status hear_verdict(struct gmi_handshake *h)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    gm_status status = fill(h);
    if (status != GM_OK) return status == GM_AGAIN ? GM_AGAIN : fail(h);
    gm_status verdict = (gm_status)gmi_get_u16(h->in);
    size_t    why_bytes = gmi_get_u16(h->in + 2);
    if (verdict == GM_OK) return GM_OK;
    if (why_bytes > GMI_VERDICT_TEXT_BYTES) why_bytes = GMI_VERDICT_TEXT_BYTES;
    h->in_want_bytes = 4 + why_bytes;
    status = fill(h);
    if (status == GM_AGAIN) return GM_AGAIN;
    for (size_t i = 4; i < h->in_bytes; i++) {
        if (h->in[i] < ' ') h->in[i] = '?';
    }
    if (verdict == GM_AGAIN || verdict > GM_ERR_NOMEM) verdict = GM_ERR_REFUSED; /* what no peer of ours says */
    gmi_error_clear(&h->error);
    gmi_error_set(&h->error, verdict, "%s refused the connection: %.*s", who(h, text),
                  (int)(h->in_bytes - 4), (const char *)h->in + 4);
    return fail(h);
}

void gmi_handshake_init(struct gmi_handshake *h, int fd, bool is_caller, const struct gmi_hello *own,
                        gmi_judge_fn judge, void *judge_user, int64_t timeout_ms)
{
    *h = (struct gmi_handshake){ .fd = fd, .is_caller = is_caller, .own = *own, .judge = judge,
                                 .judge_user = judge_user, .deadline_ns = gmi_deadline_after_ms(timeout_ms) };
    h->own.version = GMI_PROTOCOL_VERSION;
    gmi_random_bytes(h->own.nonce, sizeof h->own.nonce);
    gmi_error_clear(&h->error);
    if (is_caller) queue_hello(h);
    enter(h, is_caller ? GMI_SHAKE_SENDING_HELLO : GMI_SHAKE_RECEIVING_HELLO);
}

static gm_status progress(struct gmi_handshake *h)
{
    gm_status status;
    if (h->state == GMI_SHAKE_SENDING_HELLO) {
        if ((status = flush(h)) != GM_OK) return status;
        enter(h, GMI_SHAKE_RECEIVING_HELLO);
    }
    if (h->state == GMI_SHAKE_RECEIVING_HELLO) {
        if ((status = hear_hello(h)) != GM_OK) return status;
        if (!h->is_caller) {
            queue_hello(h);
            queue_verdict(h, GM_OK, "");
        }
        enter(h, h->is_caller ? GMI_SHAKE_RECEIVING_VERDICT : GMI_SHAKE_SENDING_ANSWER);
    }
    if (h->state == GMI_SHAKE_SENDING_ANSWER) {
        if ((status = flush(h)) != GM_OK) return status;
        enter(h, GMI_SHAKE_RECEIVING_VERDICT);
    }
    if (h->state == GMI_SHAKE_RECEIVING_VERDICT) {
        if ((status = hear_verdict(h)) != GM_OK) return status;
        if (h->is_caller) queue_verdict(h, GM_OK, "");
        enter(h, h->is_caller ? GMI_SHAKE_SENDING_VERDICT : GMI_SHAKE_DONE);
    }
    if (h->state == GMI_SHAKE_SENDING_VERDICT) {
        if ((status = flush(h)) != GM_OK) return status;
        enter(h, GMI_SHAKE_DONE);
    }
    return h->state == GMI_SHAKE_DONE ? GM_OK : h->error.status;
}

gm_status gmi_handshake_progress(struct gmi_handshake *h)
{
    gm_status status = progress(h);
    if (status == GM_AGAIN && h->state != GMI_SHAKE_FAILED && gmi_deadline_passed(h->deadline_ns)) {
        char text[GMI_ADDRESS_TEXT_BYTES];
        gmi_error_set(&h->error, GM_ERR_TIMEOUT, "%s did not finish the handshake in time", who(h, text));
        return fail(h);
    }
    if (status != GM_OK && status != GM_AGAIN && h->fd >= 0) fail(h);
    return status;
}

void gmi_handshake_watch(const struct gmi_handshake *h, struct gmi_poller *poller)
{
    if (h->fd >= 0) gmi_poller_add(poller, h->fd, h->out_sent_bytes < h->out_bytes ? GMI_WRITABLE : GMI_READABLE);
}

int gmi_handshake_take_fd(struct gmi_handshake *h)
{
    int fd = h->fd;
    h->fd = -1;
    return fd;
}

void gmi_handshake_fini(struct gmi_handshake *h) { gmi_socket_close(&h->fd); }
