/* tls.c - TLS 1.3 with a pre-shared key, between payload and a socket.
 *
 * OpenSSL does the handshake (net/tls_handshake.h), and is the cipher of the records behind it, which are made here: its own
 * way copies each byte into its buffer, from there into ours, and back out of a third.
 *
 *     send_some:  payload -- seal --> out -- socket         recv_some:  socket --> in -- open --> payload
 *                                                            a record that is not wanted whole:  opened in place, then copied
 *
 * Both buffers hold n_records, so that a system call moves many, and no more than that. Nothing blocks.
 *
 * 1. Bytes count as sent when the kernel has taken the whole record that holds them, and not before: so who was told
 *    that his bytes are sent need not come back to have them flushed. Until then `sealed` bytes at the front of what
 *    the caller offers are in records already; he offers them again, as a stream does.
 * 2. Bytes count as received when the tag of their record has been checked, and not before, though they may have been
 *    written. Only what will be received is written: a record that may be no data is opened in place.
 * 3. What has been read from the socket and can be handed on wakes whoever wants to receive (gmi_poller_skip): no
 *    descriptor shows it.
 * 4. Everything between the payload and the kernel's counters is overhead, and counted.
 * 5. A key encrypts at most REKEY_RECORDS records.
 * 6. A cipher that has no memory is a fault of our own, as is a socket that has none: never the peer's. */
#include "net/tls.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "net/poller.h"
#include "net/socket.h"
#include "net/tls_handshake.h"
#include "net/tls_key.h"

enum {
    RECORD_BYTES = GMI_TLS_CONTENT_BYTES + GMI_TLS_ADDED_BYTES, /* the longest */
    HANDSHAKE_BYTES = 512,  /* beside the records in a buffer */
    MAX_QUEUED = 32,        /* records in the out buffer */
    MAX_PARTS = 4,          /* of a record */
    STRAIGHT_BYTES = 1024,  /* records below that are opened in place */
    REKEY_RECORDS = 1 << 23 /* AES-GCM is good for 2^24.5 */
};

struct gmi_tls {
    int                       fd;
    struct gmi_tls_handshake *handshake; /* until it is done */
    struct gmi_tls_key        out_key, in_key;
    struct gmi_tls_buffer     out, in; /* of records */
    size_t          plain_bytes;     /* at the front of `in`, opened; behind them is the rest of their record */
    size_t          sealed_bytes;    /* payload in records, not reported as sent */
    size_t          flushed_bytes;   /* ... of these, in records that the kernel has taken whole */
    struct {
        uint64_t end;    /* of the record, in bytes ever sent */
        size_t   bytes;  /* of payload in it */
    } queued[MAX_QUEUED];
    int             first_queued, n_queued;
    _Atomic uint64_t n_sent, n_got;              /* bytes to and from the kernel */
    _Atomic uint64_t payload_sent, payload_recv; /* as reported */
    gm_status       fate;                        /* GM_OK, or how it ended: for good, both ways */
    int             sys_errno;                   /* of that, or of the last read from the socket */
    bool            is_ready;                    /* the handshake is done, and all of it is sent */
    bool            is_drained;                  /* the last read took all that there was */
    bool            owes_key;                    /* the peer wants us to change ours */
};

/* ---- between the buffers and the socket ----------------------------------------------------------- */

static gm_status end_with(struct gmi_tls *t, gm_status status, int sys_errno)
{
    t->fate = status;
    t->sys_errno = sys_errno;
    return status;
}

/* Bytes that no peer of ours sends, or whose authentication fails. */
static gm_status is_garbled(struct gmi_tls *t)
{
    ERR_clear_error();
    return end_with(t, GM_ERR_PROTOCOL, 0);
}

/* As a socket says it. */
static gm_status has_no_memory(struct gmi_tls *t)
{
    ERR_clear_error();
    return end_with(t, GM_ERR_PEER_LOST, ENOMEM);
}

static void note_flushed(struct gmi_tls *t)
{
    while (t->n_queued > 0 && t->queued[t->first_queued].end <= t->n_sent) {
        t->flushed_bytes += t->queued[t->first_queued].bytes;
        t->first_queued = (t->first_queued + 1) % MAX_QUEUED;
        t->n_queued--;
    }
}

/* GM_OK: all is out. GM_AGAIN: the kernel takes no more now. */
static gm_status flush(struct gmi_tls *t)
{
    while (t->out.first < t->out.end) {
        struct iovec part = { t->out.bytes + t->out.first, t->out.end - t->out.first };
        size_t       moved;
        int          sys_errno = 0;
        gm_status    status = gmi_socket_send_some(t->fd, &part, 1, &moved, &sys_errno);
        t->out.first += moved;
        t->n_sent += moved;
        note_flushed(t);
        if (status == GM_AGAIN) return status;
        if (status != GM_OK) return end_with(t, status, sys_errno);
    }
    t->out.first = t->out.end = 0;
    return GM_OK;
}

/* Reads what has come, behind the part of a record that is there. */
static gm_status fill(struct gmi_tls *t)
{
    struct gmi_tls_buffer *in = &t->in;
    size_t                 moved;
    if (in->first > 0) memmove(in->bytes, in->bytes + in->first, in->end - in->first);
    in->end -= in->first;
    in->first = 0;
    struct iovec part = { in->bytes + in->end, in->cap_bytes - in->end };
    gm_status    status = gmi_socket_recv_some(t->fd, &part, 1, &moved, &t->sys_errno);
    in->end += moved;
    t->n_got += moved;
    t->is_drained = moved < part.iov_len;
    return status;
}

/* ---- the handshake --------------------------------------------------------------------------------- */

static gm_status take_keys(struct gmi_tls *t)
{
    bool is_good = gmi_tls_key_init(&t->out_key, gmi_tls_handshake_secret(t->handshake, true), true) &&
                   gmi_tls_key_init(&t->in_key, gmi_tls_handshake_secret(t->handshake, false), false);
    gmi_tls_handshake_destroy(t->handshake);
    t->handshake = NULL;
    return is_good ? GM_OK : GM_ERR_NOMEM;
}

static gm_status shake(struct gmi_tls *t)
{
    while (t->handshake != NULL) {
        gm_status step = gmi_tls_handshake_step(t->handshake);
        if (step == GM_OK) step = take_keys(t);
        if (step == GM_ERR_NOMEM) return has_no_memory(t); /* the peer may try again */
        gm_status status = flush(t); /* an alert too, if it has failed */
        if (step != GM_OK && step != GM_AGAIN) return is_garbled(t);
        if (step == GM_AGAIN && status == GM_OK) status = fill(t);
        if (status != GM_OK) return status;
    }
    gm_status status = flush(t);
    t->is_ready = status == GM_OK;
    return status;
}

/* ---- parts ------------------------------------------------------------------------------------------ */

static size_t total_of(const struct iovec *parts, int n_parts)
{
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].iov_len;
    return n;
}

/* The next bytes behind skip_bytes: at most max_bytes, in at most MAX_PARTS parts. Returns how many. */
static size_t cut(const struct iovec *parts, int n_parts, size_t skip_bytes, size_t max_bytes, struct iovec *cuts, int *n_cuts)
{
    size_t n = 0;
    *n_cuts = 0;
    for (int i = 0; i < n_parts && n < max_bytes && *n_cuts < MAX_PARTS; i++) {
        size_t skipped = gmi_min_size(skip_bytes, parts[i].iov_len);
        size_t bytes = gmi_min_size(parts[i].iov_len - skipped, max_bytes - n);
        skip_bytes -= skipped;
        if (bytes == 0) continue;
        cuts[(*n_cuts)++] = (struct iovec){ (uint8_t *)parts[i].iov_base + skipped, bytes };
        n += bytes;
    }
    return n;
}

/* ---- sending --------------------------------------------------------------------------------------- */

static bool has_room(const struct gmi_tls *t)
{
    return t->n_queued < MAX_QUEUED && t->out.cap_bytes - t->out.end >= RECORD_BYTES;
}

static gm_status seal(struct gmi_tls *t, uint8_t type, const struct iovec *parts, int n_parts)
{
    size_t n = gmi_tls_seal(&t->out_key, type, parts, n_parts, t->out.bytes + t->out.end);
    t->out.end += n;
    return n > 0 ? GM_OK : has_no_memory(t);
}

/* A KeyUpdate, which asks for none in return. */
static gm_status change_key(struct gmi_tls *t)
{
    uint8_t      message[] = { 24, 0, 0, 1, 0 };
    struct iovec part = { message, sizeof message };
    t->owes_key = false;
    gm_status status = seal(t, GMI_TLS_HANDSHAKE, &part, 1);
    return status != GM_OK || gmi_tls_key_next(&t->out_key) ? status : has_no_memory(t);
}

/* One record of what is offered and not sealed yet. */
static gm_status seal_next(struct gmi_tls *t, const struct iovec *parts, int n_parts)
{
    struct iovec cuts[MAX_PARTS];
    int          n_cuts;
    size_t       n_bytes = cut(parts, n_parts, t->sealed_bytes, GMI_TLS_CONTENT_BYTES, cuts, &n_cuts);
    gm_status    status = seal(t, GMI_TLS_DATA, cuts, n_cuts);
    int          last = (t->first_queued + t->n_queued++) % MAX_QUEUED;
    t->sealed_bytes += n_bytes;
    t->queued[last].end = t->n_sent + (t->out.end - t->out.first);
    t->queued[last].bytes = n_bytes;
    return status;
}

static gm_status send_more(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    size_t    offered_bytes = total_of(parts, n_parts);
    gm_status status = flush(t);
    while (status == GM_OK && t->sealed_bytes < offered_bytes) {
        if (t->owes_key || t->out_key.n_records >= REKEY_RECORDS) status = change_key(t);
        while (status == GM_OK && t->sealed_bytes < offered_bytes && has_room(t)) status = seal_next(t, parts, n_parts);
        if (status != GM_OK) return status;
        status = flush(t);
    }
    size_t moved = gmi_min_size(t->flushed_bytes, offered_bytes);
    if (moved == 0) return status == GM_OK ? GM_AGAIN : status;
    t->flushed_bytes -= moved;
    t->sealed_bytes -= moved;
    t->payload_sent += moved;
    *moved_bytes = moved;
    return GM_OK;
}

gm_status gmi_tls_send_some(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno)
{
    gm_status status = t->fate;
    *moved_bytes = 0;
    if (status == GM_OK && !t->is_ready) status = shake(t);
    if (status == GM_OK) status = send_more(t, parts, n_parts, moved_bytes);
    if (status != GM_OK && status != GM_AGAIN) *sys_errno = t->sys_errno;
    return status;
}

/* ---- receiving ------------------------------------------------------------------------------------- */

/* The record at the front of `in`. GM_OK: it is there; GM_AGAIN: not all of it. */
static gm_status look(const struct gmi_tls *t, size_t *record_bytes)
{
    size_t here_bytes = t->in.end - t->in.first;
    if (here_bytes < GMI_TLS_HEADER_BYTES) return GM_AGAIN;
    *record_bytes = gmi_tls_record_bytes(t->in.bytes + t->in.first);
    if (*record_bytes == 0) return GM_ERR_PROTOCOL;
    return here_bytes >= *record_bytes ? GM_OK : GM_AGAIN;
}

/* Between records of data there are changes of the key, and nothing else that a peer of ours sends. */
static gm_status hear(struct gmi_tls *t, uint8_t type, const uint8_t *content, size_t n_bytes)
{
    static const uint8_t key_update[] = { 24, 0, 0, 1 };
    bool is_update = type == GMI_TLS_HANDSHAKE && n_bytes == sizeof key_update + 1 &&
                     memcmp(content, key_update, sizeof key_update) == 0 && content[sizeof key_update] <= 1;
    if (!is_update) return is_garbled(t);
    if (!gmi_tls_key_next(&t->in_key)) return has_no_memory(t);
    t->owes_key |= content[sizeof key_update] == 1;
    return GM_OK;
}

static void hand_on(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct iovec cuts[MAX_PARTS];
    int          n_cuts;
    (void)cut(parts, n_parts, *moved_bytes, t->plain_bytes, cuts, &n_cuts);
    for (int i = 0; i < n_cuts; i++) {
        memcpy(cuts[i].iov_base, t->in.bytes + t->in.first, cuts[i].iov_len);
        t->in.first += cuts[i].iov_len;
        t->plain_bytes -= cuts[i].iov_len;
        *moved_bytes += cuts[i].iov_len;
    }
    if (t->plain_bytes == 0) t->in.first += GMI_TLS_ADDED_BYTES - GMI_TLS_HEADER_BYTES;
}

static gm_status open_in_place(struct gmi_tls *t, size_t content_bytes)
{
    uint8_t     *record = t->in.bytes + t->in.first, type;
    struct iovec content = { record + GMI_TLS_HEADER_BYTES, content_bytes };
    if (!gmi_tls_open(&t->in_key, record, &content, 1, &type)) return is_garbled(t);
    if (type == GMI_TLS_DATA && content_bytes > 0) {
        t->in.first += GMI_TLS_HEADER_BYTES;
        t->plain_bytes = content_bytes;
        return GM_OK;
    }
    t->in.first += content_bytes + GMI_TLS_ADDED_BYTES;
    return type == GMI_TLS_DATA ? GM_OK : hear(t, type, content.iov_base, content_bytes);
}

static gm_status open_next(struct gmi_tls *t, size_t record_bytes, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct iovec cuts[MAX_PARTS];
    int          n_cuts;
    size_t       content_bytes = record_bytes - GMI_TLS_ADDED_BYTES;
    uint8_t      type;
    if (content_bytes < STRAIGHT_BYTES || cut(parts, n_parts, *moved_bytes, content_bytes, cuts, &n_cuts) < content_bytes) {
        return open_in_place(t, content_bytes);
    }
    if (!gmi_tls_open(&t->in_key, t->in.bytes + t->in.first, cuts, n_cuts, &type) || type != GMI_TLS_DATA) return is_garbled(t);
    t->in.first += record_bytes;
    *moved_bytes += content_bytes;
    return GM_OK;
}

/* Fills the parts as far as what has come allows: GM_OK when they are full. */
static gm_status recv_more(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    size_t wanted_bytes = total_of(parts, n_parts);
    t->is_drained = false;
    while (*moved_bytes < wanted_bytes) {
        size_t    record_bytes;
        gm_status status = GM_OK;
        if (t->plain_bytes > 0) {
            hand_on(t, parts, n_parts, moved_bytes);
            continue;
        }
        status = look(t, &record_bytes);
        if (status == GM_OK) status = open_next(t, record_bytes, parts, n_parts, moved_bytes);
        else if (status != GM_AGAIN) status = is_garbled(t);
        else if (!t->is_drained || *moved_bytes == 0) status = fill(t);
        if (status != GM_OK) return status;
    }
    return GM_OK;
}

/* When the peer takes no more there may still be last words of his. */
static bool may_hear(const struct gmi_tls *t) { return t->fate == GM_OK || (t->fate == GM_ERR_PEER_LOST && t->sys_errno != ENOMEM); }

gm_status gmi_tls_recv_some(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno)
{
    gm_status status = may_hear(t) ? GM_OK : t->fate;
    *moved_bytes = 0;
    if (status == GM_OK && !t->is_ready) status = t->fate == GM_OK ? shake(t) : t->fate;
    if (status == GM_OK) status = recv_more(t, parts, n_parts, moved_bytes);
    t->payload_recv += *moved_bytes;
    if (*moved_bytes > 0) return GM_OK; /* an end is seen again next time */
    if (status != GM_OK && status != GM_AGAIN) *sys_errno = t->sys_errno;
    return status;
}

/* ---- the rest --------------------------------------------------------------------------------------- */

gm_status gmi_tls_shake(struct gmi_tls *t, int *sys_errno)
{
    gm_status status = t->fate != GM_OK ? t->fate : t->is_ready ? GM_OK : shake(t);
    if (status != GM_OK && status != GM_AGAIN) *sys_errno = t->sys_errno;
    return status;
}

void gmi_tls_watch(const struct gmi_tls *t, struct gmi_poller *poller, unsigned interest)
{
    size_t record_bytes;
    bool   has_sent = interest & GMI_WRITABLE && t->flushed_bytes > 0;
    bool   has_come = interest & GMI_READABLE && t->is_ready && (t->plain_bytes > 0 || look(t, &record_bytes) != GM_AGAIN);
    if (has_sent || has_come) gmi_poller_skip(poller);
    if (!t->is_ready && t->fate == GM_OK) interest = t->out.first < t->out.end ? GMI_WRITABLE : GMI_READABLE;
    gmi_poller_add(poller, t->fd, interest);
}

void gmi_tls_overhead(const struct gmi_tls *t, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    *sent_bytes = t->n_sent - t->payload_sent;
    *recv_bytes = t->n_got - t->payload_recv;
}

void gmi_tls_destroy(struct gmi_tls *t)
{
    if (t == NULL) return;
    gmi_tls_handshake_destroy(t->handshake);
    gmi_tls_key_fini(&t->out_key);
    gmi_tls_key_fini(&t->in_key);
    gmi_free(t->out.bytes);
    gmi_free(t->in.bytes);
    gmi_free(t);
}

static bool set_up(struct gmi_tls *t, bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES], size_t cap_bytes)
{
    t->out.cap_bytes = t->in.cap_bytes = cap_bytes;
    t->out.bytes = gmi_alloc(cap_bytes, 1);
    t->in.bytes = gmi_alloc(cap_bytes, 1);
    if (t->out.bytes == NULL || t->in.bytes == NULL) return false;
    t->handshake = gmi_tls_handshake_create(is_client, key, &t->in, &t->out);
    return t->handshake != NULL;
}

struct gmi_tls *gmi_tls_create(int fd, bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES], int n_records)
{
    struct gmi_tls *t = gmi_alloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->fd = fd;
    if (set_up(t, is_client, key, (size_t)n_records * RECORD_BYTES + HANDSHAKE_BYTES)) return t;
    gmi_tls_destroy(t);
    return NULL;
}
