/* handshake.c - the states of handshake.h. Each step moves on when what it waits for is there, so one call goes as far as
 * the network allows:
 *
 *     caller     SENDING_HELLO -> RECEIVING_HELLO -> RECEIVING_PROOF -> SENDING_PROOF -> RECEIVING_VERDICT -> DONE
 *     answerer   RECEIVING_HELLO -> SENDING_ANSWER -> RECEIVING_PROOF -> RECEIVING_VERDICT -> SENDING_VERDICT -> DONE
 *
 * A refusal is sent in one go, as far as the peer's kernel takes it: nothing of ours is under way at that time. */
#include "rendezvous/handshake.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"

_Static_assert(sizeof(struct gmi_handshake) <= 600, "a stranger costs a few hundred bytes");

/* ---- moving bytes ------------------------------------------------------------------------------ */

static void queue(struct gmi_handshake *h, const void *bytes, size_t n_bytes)
{
    GMI_CHECK(h->out_bytes + n_bytes <= sizeof h->out);
    memcpy(h->out + h->out_bytes, bytes, n_bytes);
    h->out_bytes = (uint16_t)(h->out_bytes + n_bytes);
}

static uint8_t *own_hello(struct gmi_handshake *h) { return h->is_caller ? h->hellos.caller : h->hellos.answerer; }
static uint8_t *peer_hello(struct gmi_handshake *h) { return h->is_caller ? h->hellos.answerer : h->hellos.caller; }

static void enter(struct gmi_handshake *h, enum gmi_handshake_state state)
{
    h->state = state;
    h->in_bytes = 0;
    switch (state) {
    case GMI_SHAKE_RECEIVING_HELLO: h->in_want_bytes = GMI_HELLO_BYTES; break;
    case GMI_SHAKE_RECEIVING_PROOF: h->in_want_bytes = GMI_PROOF_BYTES; break;
    case GMI_SHAKE_RECEIVING_VERDICT: h->in_want_bytes = GMI_VERDICT_BYTES; break;
    default: h->in_want_bytes = 0; break;
    }
}

static const char *who(const struct gmi_handshake *h, char *text)
{
    struct gmi_address address;
    if (gmi_socket_peer_address(h->fd, &address) != GM_OK) return "the peer";
    return gmi_address_format(&address, text);
}

static gm_status fail(struct gmi_handshake *h, gm_status status)
{
    gmi_socket_close(&h->fd);
    enter(h, GMI_SHAKE_FAILED);
    return status;
}

static gm_status lost(struct gmi_handshake *h, int sys_errno, gm_error *error)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    gmi_error_set(error, GM_ERR_PEER_LOST, "%s closed the connection during the handshake: %s", who(h, text),
                  sys_errno ? strerror(sys_errno) : "end of file");
    return fail(h, GM_ERR_PEER_LOST);
}

static gm_status flush(struct gmi_handshake *h, gm_error *error)
{
    while (h->out_sent_bytes < h->out_bytes) {
        struct iovec part = { h->out + h->out_sent_bytes, (size_t)(h->out_bytes - h->out_sent_bytes) };
        size_t    moved;
        int       sys_errno = 0;
        gm_status status = gmi_socket_send_some(h->fd, &part, 1, &moved, &sys_errno);
        h->out_sent_bytes = (uint16_t)(h->out_sent_bytes + moved);
        h->total_sent_bytes += moved;
        if (status == GM_AGAIN) return GM_AGAIN;
        if (status != GM_OK) return lost(h, sys_errno, error);
    }
    h->out_bytes = h->out_sent_bytes = 0;
    return GM_OK;
}

/* Up to in_want_bytes; a hello is looked at after each part of it. */
static gm_status fill(struct gmi_handshake *h, uint8_t *into, gm_error *error)
{
    while (h->in_bytes < h->in_want_bytes) {
        struct iovec part = { into + h->in_bytes, (size_t)(h->in_want_bytes - h->in_bytes) };
        size_t    moved;
        int       sys_errno = 0;
        gm_status status = gmi_socket_recv_some(h->fd, &part, 1, &moved, &sys_errno);
        h->in_bytes = (uint16_t)(h->in_bytes + moved);
        h->total_recv_bytes += moved;
        if (status == GM_AGAIN) return GM_AGAIN;
        if (status != GM_OK) return lost(h, sys_errno, error);
        if (h->state == GMI_SHAKE_RECEIVING_HELLO) break;
    }
    return GM_OK;
}

/* Last words, as far as they go. */
static void send_now(struct gmi_handshake *h, struct iovec *parts, int n_parts)
{
    size_t moved;
    int    sys_errno;
    if (h->fd >= 0) (void)!gmi_socket_send_some(h->fd, parts, n_parts, &moved, &sys_errno);
}

/* ---- refusing ---------------------------------------------------------------------------------- */

static struct iovec bytes_of(const void *bytes, size_t n_bytes) { return (struct iovec){ (void *)(uintptr_t)bytes, n_bytes }; }

/* Turns the peer away: our error, and the same sentence for him, behind `before`. */
static gm_status refuse(struct gmi_handshake *h, const void *before, size_t before_bytes, gm_status status, const char *why,
                        gm_error *error)
{
    char    text[GMI_ADDRESS_TEXT_BYTES];
    uint8_t verdict[GMI_VERDICT_BYTES];
    size_t  why_bytes = strlen(why);
    gmi_put_u16(verdict, (uint16_t)status);
    gmi_put_u16(verdict + 2, (uint16_t)why_bytes);
    struct iovec parts[] = { bytes_of(verdict, sizeof verdict), bytes_of(why, why_bytes), { NULL, 0 } };
    h->is_refusal_ours = true;
    gmi_error_set(error, status, "refused the connection with %s: %s", who(h, text), why);
    if (before_bytes > 0) {
        parts[2] = parts[1];
        parts[1] = parts[0];
        parts[0] = bytes_of(before, before_bytes);
    }
    send_now(h, parts, before_bytes > 0 ? 3 : 2);
    return fail(h, status);
}

static gm_status turn_stranger_away(struct gmi_handshake *h, gm_error *error)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    static const char line[] = "this is a gradmesh port; it does not speak your protocol\n";
    struct iovec      part = bytes_of(line, sizeof line - 1);
    h->is_refusal_ours = true;
    gmi_error_set(error, GM_ERR_PROTOCOL, "%s does not speak gradmesh's protocol", who(h, text));
    if (!h->is_caller) send_now(h, &part, 1);
    return fail(h, GM_ERR_PROTOCOL);
}

static bool has_secret(const struct gmi_handshake *h) { return h->secret != NULL && h->secret->is_set; }

/* The peer does not know our secret; he is told nothing that he has not had already. A caller may have reached somebody
 * else than he wanted, so what he thinks of the hello comes first: perhaps he should look again. */
static gm_status refuse_unproven(struct gmi_handshake *h, gm_error *error)
{
    char             text[GMI_ADDRESS_TEXT_BYTES], why[GMI_VERDICT_TEXT_BYTES] = "";
    struct gmi_hello own;
    gm_status        status = h->is_caller ? h->judge(h->judge_user, &h->peer, why, sizeof why) : GM_OK;
    (void)gmi_hello_decode(&own, own_hello(h), GMI_HELLO_BYTES);
    if (status != GM_OK) {
        /* said already */
    } else if (strcmp(own.job_id, h->peer.job_id) != 0) {
        snprintf(why, sizeof why, "it belongs to job '%s', not to '%s', and has another secret", h->peer.job_id, own.job_id);
    } else if (has_secret(h) && !(h->peer.flags & GMI_HELLO_HAS_SECRET)) {
        snprintf(why, sizeof why, "it has no secret, and this job has one: set GRADMESH_SECRET_FILE there");
    } else if (!has_secret(h)) {
        snprintf(why, sizeof why, "its job has a secret, and there is none here: set GRADMESH_SECRET_FILE");
    } else {
        snprintf(why, sizeof why, "it does not know this job's secret: all ranks need the same GRADMESH_SECRET_FILE");
    }
    if (status == GM_OK) status = GM_ERR_REFUSED;
    h->is_refusal_ours = true;
    gmi_error_set(error, status, "refused the connection with %s: %s", who(h, text), why);
    return fail(h, status);
}

/* ---- the steps --------------------------------------------------------------------------------- */

static gm_status no_memory(struct gmi_handshake *h, gm_error *error)
{
    return fail(h, gmi_error_set(error, GM_ERR_NOMEM, "no memory for a proof of the secret"));
}

/* Before the proof: the form only. GM_OK: a hello. GM_AGAIN: not all here. */
static gm_status hear_hello(struct gmi_handshake *h, gm_error *error)
{
    char why[GMI_VERDICT_TEXT_BYTES];
    while (!h->has_hello) {
        gm_status status = fill(h, peer_hello(h), error);
        if (status != GM_OK) return status;
        switch (gmi_hello_decode(&h->peer, peer_hello(h), h->in_bytes)) {
        case GMI_HELLO_STRANGER: return turn_stranger_away(h, error);
        case GMI_HELLO_OTHER_VERSION:
            snprintf(why, sizeof why, "protocol version %d is needed here, not %d: use the same gradmesh on all hosts",
                     GMI_PROTOCOL_VERSION, h->peer.version);
            return refuse(h, own_hello(h), h->is_caller ? 0 : GMI_HELLO_BYTES, GM_ERR_VERSION, why, error);
        case GMI_HELLO_GOOD: break;
        }
        h->has_hello = h->in_bytes == GMI_HELLO_BYTES;
    }
    return GM_OK;
}

/* Of two with different ideas of whether there is a secret, neither can prove anything. */
static bool is_proof_possible(const struct gmi_handshake *h)
{
    return has_secret(h) == ((h->peer.flags & GMI_HELLO_HAS_SECRET) != 0);
}

static gm_status queue_answer(struct gmi_handshake *h, gm_error *error)
{
    uint8_t proof[GMI_PROOF_BYTES];
    if (!is_proof_possible(h)) { /* our hello shows him why */
        struct iovec part = bytes_of(own_hello(h), GMI_HELLO_BYTES);
        send_now(h, &part, 1);
        return refuse_unproven(h, error);
    }
    if (!gmi_secret_prove(h->secret, false, &h->hellos, proof)) return no_memory(h, error);
    queue(h, own_hello(h), GMI_HELLO_BYTES);
    queue(h, proof, sizeof proof);
    return GM_OK;
}

static gm_status hear_proof(struct gmi_handshake *h, gm_error *error)
{
    if (!is_proof_possible(h)) return refuse_unproven(h, error);
    gm_status status = fill(h, h->in, error);
    if (status != GM_OK) return status;
    h->is_proven = gmi_secret_check(h->secret, !h->is_caller, &h->hellos, h->in);
    if (h->is_proven) return GM_OK;
    uint8_t      proof[GMI_PROOF_BYTES];
    struct iovec part = bytes_of(proof, sizeof proof);
    if (h->is_caller && gmi_secret_prove(h->secret, true, &h->hellos, proof)) send_now(h, &part, 1); /* he shall see it too */
    return refuse_unproven(h, error);
}

/* The caller: what it thinks of the answerer goes with its own proof. */
static gm_status queue_proof(struct gmi_handshake *h, gm_error *error)
{
    static const uint8_t welcome[GMI_VERDICT_BYTES];
    uint8_t   proof[GMI_PROOF_BYTES];
    char      why[GMI_VERDICT_TEXT_BYTES] = "";
    if (!gmi_secret_prove(h->secret, true, &h->hellos, proof)) return no_memory(h, error);
    gm_status status = h->judge(h->judge_user, &h->peer, why, sizeof why);
    if (status != GM_OK) return refuse(h, proof, sizeof proof, status, why, error);
    queue(h, proof, sizeof proof);
    queue(h, welcome, sizeof welcome);
    return GM_OK;
}

static gm_status queue_verdict(struct gmi_handshake *h, gm_error *error)
{
    static const uint8_t welcome[GMI_VERDICT_BYTES];
    char      why[GMI_VERDICT_TEXT_BYTES] = "";
    gm_status status = h->judge(h->judge_user, &h->peer, why, sizeof why);
    if (status != GM_OK) return refuse(h, NULL, 0, status, why, error);
    queue(h, welcome, sizeof welcome);
    return GM_OK;
}

static gm_status refused(struct gmi_handshake *h, gm_status verdict, gm_error *error)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    for (char *c = h->text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') *c = '?';
    }
    if (verdict == GM_AGAIN || verdict > GM_ERR_NOMEM) verdict = GM_ERR_REFUSED; /* what no peer of ours says */
    gmi_error_set(error, verdict, "%s refused the connection: %s", who(h, text), h->text);
    return fail(h, verdict);
}

static gm_status hear_verdict(struct gmi_handshake *h, gm_error *error)
{
    gm_status status;
    if (h->text == NULL) {
        if ((status = fill(h, h->in, error)) != GM_OK) return status;
        if (gmi_get_u16(h->in) == GM_OK) return GM_OK;
        h->text = gmi_alloc(GMI_VERDICT_TEXT_BYTES + 1, 1);
        if (h->text == NULL) return no_memory(h, error);
        h->in_bytes = 0;
        h->in_want_bytes = (uint16_t)gmi_min_size(gmi_get_u16(h->in + 2), GMI_VERDICT_TEXT_BYTES);
    }
    status = fill(h, (uint8_t *)h->text, error);
    if (status == GM_AGAIN) return status;
    if (status != GM_OK) gmi_error_clear(error); /* half a sentence is better than none */
    return refused(h, (gm_status)gmi_get_u16(h->in), error);
}

/* ---- the whole --------------------------------------------------------------------------------- */

void gmi_handshake_init(struct gmi_handshake *h, int fd, bool is_caller, const struct gmi_hello *own,
                        const struct gmi_secret *secret, gmi_judge_fn judge, void *judge_user, int64_t timeout_ms)
{
    *h = (struct gmi_handshake){ .fd = fd, .is_caller = is_caller, .secret = secret, .judge = judge,
                                 .judge_user = judge_user, .deadline_ns = gmi_deadline_after_ms(timeout_ms) };
    struct gmi_hello hello = *own;
    hello.version = GMI_PROTOCOL_VERSION;
    hello.flags = has_secret(h) ? GMI_HELLO_HAS_SECRET : 0;
    if (has_secret(h) && secret->encrypts) hello.flags |= GMI_HELLO_ENCRYPTS;
    gmi_random_bytes(hello.nonce, sizeof hello.nonce);
    gmi_hello_encode(&hello, own_hello(h));
    if (is_caller) queue(h, own_hello(h), GMI_HELLO_BYTES);
    enter(h, is_caller ? GMI_SHAKE_SENDING_HELLO : GMI_SHAKE_RECEIVING_HELLO);
}

static gm_status progress(struct gmi_handshake *h, gm_error *error)
{
    gm_status status;
    if (h->state == GMI_SHAKE_SENDING_HELLO) {
        if ((status = flush(h, error)) != GM_OK) return status;
        enter(h, GMI_SHAKE_RECEIVING_HELLO);
    }
    if (h->state == GMI_SHAKE_RECEIVING_HELLO) {
        if ((status = hear_hello(h, error)) != GM_OK) return status;
        if (!h->is_caller && (status = queue_answer(h, error)) != GM_OK) return status;
        enter(h, h->is_caller ? GMI_SHAKE_RECEIVING_PROOF : GMI_SHAKE_SENDING_ANSWER);
    }
    if (h->state == GMI_SHAKE_SENDING_ANSWER) {
        if ((status = flush(h, error)) != GM_OK) return status;
        enter(h, GMI_SHAKE_RECEIVING_PROOF);
    }
    if (h->state == GMI_SHAKE_RECEIVING_PROOF) {
        if ((status = hear_proof(h, error)) != GM_OK) return status;
        if (h->is_caller && (status = queue_proof(h, error)) != GM_OK) return status;
        enter(h, h->is_caller ? GMI_SHAKE_SENDING_PROOF : GMI_SHAKE_RECEIVING_VERDICT);
    }
    if (h->state == GMI_SHAKE_SENDING_PROOF) {
        if ((status = flush(h, error)) != GM_OK) return status;
        enter(h, GMI_SHAKE_RECEIVING_VERDICT);
    }
    if (h->state == GMI_SHAKE_RECEIVING_VERDICT) {
        if ((status = hear_verdict(h, error)) != GM_OK) return status;
        if (!h->is_caller && (status = queue_verdict(h, error)) != GM_OK) return status;
        enter(h, h->is_caller ? GMI_SHAKE_DONE : GMI_SHAKE_SENDING_VERDICT);
    }
    if (h->state == GMI_SHAKE_SENDING_VERDICT) {
        if ((status = flush(h, error)) != GM_OK) return status;
        enter(h, GMI_SHAKE_DONE);
    }
    return GM_OK;
}

gm_status gmi_handshake_progress(struct gmi_handshake *h, gm_error *error)
{
    GMI_CHECK(h->state != GMI_SHAKE_FAILED);
    gm_status status = progress(h, error);
    if (status == GM_AGAIN && gmi_deadline_passed(h->deadline_ns)) {
        char text[GMI_ADDRESS_TEXT_BYTES];
        gmi_error_set(error, GM_ERR_TIMEOUT, "%s did not finish the handshake in time", who(h, text));
        return fail(h, GM_ERR_TIMEOUT);
    }
    return status;
}

void gmi_handshake_watch(const struct gmi_handshake *h, struct gmi_poller *poller)
{
    if (h->fd >= 0) gmi_poller_add(poller, h->fd, h->out_sent_bytes < h->out_bytes ? GMI_WRITABLE : GMI_READABLE);
}

bool gmi_handshake_link_key(const struct gmi_handshake *h, uint8_t key[GMI_LINK_KEY_BYTES])
{
    return gmi_secret_link_key(h->secret, &h->hellos, key);
}

gm_status gmi_handshake_stream(const struct gmi_handshake *h, int fd, struct gmi_stream *stream)
{
    bool    is_encrypted = has_secret(h) && (h->secret->encrypts || (h->peer.flags & GMI_HELLO_ENCRYPTS));
    uint8_t key[GMI_LINK_KEY_BYTES];
    *stream = gmi_stream_plain(fd);
    if (!is_encrypted) return GM_OK;
    if (gmi_handshake_link_key(h, key)) stream->tls = gmi_tls_create(fd, h->is_caller, key, 1);
    OPENSSL_cleanse(key, sizeof key);
    if (stream->tls != NULL) return GM_OK;
    gmi_stream_close(stream);
    return GM_ERR_NOMEM;
}

int gmi_handshake_take_fd(struct gmi_handshake *h)
{
    int fd = h->fd;
    h->fd = -1;
    return fd;
}

void gmi_handshake_fini(struct gmi_handshake *h)
{
    gmi_socket_close(&h->fd);
    gmi_free(h->text);
    h->text = NULL;
}
