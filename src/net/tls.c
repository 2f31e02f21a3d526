/* tls.c - TLS 1.3 by OpenSSL, with a pre-shared key, between payload and a socket.
 *
 * A Diffie-Hellman exchange makes what is recorded today useless to who learns the secret tomorrow; there are no
 * certificates.
 *
 *     send_some: payload -> records -> out buffer -> socket        recv_some: socket -> OpenSSL's buffer -> payload
 *
 * Both buffers hold n_records, so that a system call moves many, and no more than that. Nothing blocks.
 *
 * 1. Bytes count as sent when the kernel has taken the whole record that holds them, and not before: so who was told
 *    that his bytes are sent need not come back to have them flushed. Until then `sealed` bytes at the front of what
 *    the caller offers are in records already; he offers them again, as a stream does.
 * 2. What has been read from the socket and not been handed on wakes whoever wants to receive (gmi_poller_skip): no
 *    descriptor shows it.
 * 3. Everything between the payload and the kernel's counters is overhead, and counted.
 * 4. A key encrypts at most REKEY_RECORDS records. */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "net/poller.h"
#include "net/socket.h"

enum {
    RECORD_BYTES = 16384,   /* of payload: the most that TLS allows */
    OVERHEAD_BYTES = 256,   /* of a record, with room to spare */
    MAX_QUEUED = 16,        /* records in the out buffer */
    SMALL_BYTES = 4096,     /* parts below that share a record */
    REKEY_RECORDS = 1 << 23 /* AES-GCM is good for 2^24.5 */
};

struct gmi_tls {
    int             fd;
    SSL            *ssl;
    uint8_t        *out; /* records; the part from out_first to out_end is to be sent */
    size_t          out_first, out_end, cap_bytes;
    size_t          sealed_bytes;    /* payload in records, not reported as sent */
    size_t          flushed_bytes;   /* ... of these, in records that the kernel has taken whole */
    struct {
        uint64_t end;    /* of the record, in bytes ever put into the out buffer */
        size_t   bytes;  /* of payload in it */
    } queued[MAX_QUEUED];
    int             first_queued, n_queued;
    uint64_t        n_put;                       /* bytes of records into the out buffer, ... */
    _Atomic uint64_t n_sent, n_got;              /* ... to and from the kernel */
    _Atomic uint64_t payload_sent, payload_recv; /* as reported */
    uint64_t        n_records;                   /* since the last key */
    gm_status       fate;                        /* GM_OK, or how it ended: for good, both ways */
    gm_status       arrival;                     /* of the last read from the socket */
    int             sys_errno;                   /* of these */
    bool            is_ready;                    /* the handshake is done, and all of it is sent */
    bool            may_have_more;               /* more than was asked for had come, perhaps */
    bool            is_client;
    uint8_t         key[GMI_TLS_KEY_BYTES];
};

/* ---- the buffers, as OpenSSL sees them ----------------------------------------------------------- */

static int bio_write(BIO *bio, const char *bytes, int n_bytes)
{
    struct gmi_tls *t = BIO_get_data(bio);
    size_t           n = (size_t)n_bytes;
    BIO_clear_retry_flags(bio);
    if (n > t->cap_bytes - t->out_end) { /* cannot be: room is made before */
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(t->out + t->out_end, bytes, n);
    t->out_end += n;
    t->n_put += n;
    return n_bytes;
}

static int bio_read(BIO *bio, char *bytes, int n_bytes)
{
    struct gmi_tls *t = BIO_get_data(bio);
    struct iovec     part = { bytes, (size_t)n_bytes };
    size_t           moved;
    int              sys_errno = 0;
    BIO_clear_retry_flags(bio);
    t->arrival = gmi_socket_recv_some(t->fd, &part, 1, &moved, &sys_errno);
    t->n_got += moved;
    if (t->arrival == GM_OK) return (int)moved;
    if (t->arrival != GM_AGAIN) t->sys_errno = sys_errno;
    BIO_set_retry_read(bio); /* t->arrival tells more */
    return -1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO *make_bio(struct gmi_tls *t, BIO_METHOD **method)
{
    *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gradmesh");
    if (*method == NULL) return NULL;
    BIO_meth_set_write(*method, bio_write);
    BIO_meth_set_read(*method, bio_read);
    BIO_meth_set_ctrl(*method, bio_control);
    BIO *bio = BIO_new(*method);
    if (bio == NULL) return NULL;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    return bio;
}

/* ---- the key ------------------------------------------------------------------------------------- */

static unsigned give_key(struct gmi_tls *t, unsigned char *psk, unsigned max_bytes)
{
    if (max_bytes < sizeof t->key) return 0;
    memcpy(psk, t->key, sizeof t->key);
    return sizeof t->key;
}

static unsigned client_key(SSL *ssl, const char *hint, char *identity, unsigned max_identity, unsigned char *psk, unsigned max_bytes)
{
    (void)hint;
    if (max_identity < sizeof "gradmesh") return 0;
    memcpy(identity, "gradmesh", sizeof "gradmesh");
    return give_key(SSL_get_app_data(ssl), psk, max_bytes);
}

static unsigned server_key(SSL *ssl, const char *identity, unsigned char *psk, unsigned max_bytes)
{
    (void)identity; /* each connection has one key only */
    return give_key(SSL_get_app_data(ssl), psk, max_bytes);
}

static SSL_CTX *make_context(bool is_client)
{
    SSL_CTX *c = SSL_CTX_new(is_client ? TLS_client_method() : TLS_server_method());
    if (c == NULL) return NULL;
    SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256"); /* what goes with a key of this kind */
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(c, 0);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(c, 1); /* what is in our buffer need not be read in two parts */
    if (is_client) {
        SSL_CTX_set_psk_client_callback(c, client_key);
    } else {
        SSL_CTX_set_psk_server_callback(c, server_key);
    }
    return c;
}

/* ---- between the buffers and the socket ----------------------------------------------------------- */

static gm_status end_with(struct gmi_tls *t, gm_status status, int sys_errno)
{
    t->fate = status;
    t->sys_errno = sys_errno;
    return status;
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
    while (t->out_first < t->out_end) {
        struct iovec part = { t->out + t->out_first, t->out_end - t->out_first };
        size_t       moved;
        int          sys_errno = 0;
        gm_status    status = gmi_socket_send_some(t->fd, &part, 1, &moved, &sys_errno);
        t->out_first += moved;
        t->n_sent += moved;
        note_flushed(t);
        if (status == GM_AGAIN) return status;
        if (status != GM_OK) return end_with(t, status, sys_errno);
    }
    t->out_first = t->out_end = 0;
    return GM_OK;
}

/* A refusal of OpenSSL: bytes that no peer of ours sends, or whose authentication fails. */
static gm_status is_garbled(struct gmi_tls *t)
{
    ERR_clear_error();
    return end_with(t, GM_ERR_PROTOCOL, 0);
}

/* ---- the handshake --------------------------------------------------------------------------------- */

static gm_status shake(struct gmi_tls *t)
{
    ERR_clear_error();
    int       result = SSL_do_handshake(t->ssl);
    int       why = result == 1 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, result);
    gm_status status = flush(t); /* an alert too, if it has failed */
    if (why != SSL_ERROR_NONE && why != SSL_ERROR_WANT_READ) return is_garbled(t);
    t->is_ready = status == GM_OK && why == SSL_ERROR_NONE;
    if (status != GM_OK || t->is_ready) return status;
    return t->arrival;
}

/* ---- sending --------------------------------------------------------------------------------------- */

/* One record of these bytes into the out buffer; false: no room, or its fate is sealed. */
static bool seal(struct gmi_tls *t, const uint8_t *bytes, size_t n_bytes)
{
    if (t->n_queued == MAX_QUEUED || t->cap_bytes - t->out_end < RECORD_BYTES + 2 * OVERHEAD_BYTES) return false;
    if (t->n_records == REKEY_RECORDS && SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) t->n_records = 0;
    size_t written = 0;
    if (SSL_write_ex(t->ssl, bytes, n_bytes, &written) != 1 || written != n_bytes) {
        (void)is_garbled(t);
        return false;
    }
    t->n_records++;
    t->sealed_bytes += n_bytes;
    int last = (t->first_queued + t->n_queued++) % MAX_QUEUED;
    t->queued[last].end = t->n_put;
    t->queued[last].bytes = n_bytes;
    return true;
}

/* Small parts share a record: a header and what follows it. */
static bool seal_next(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t skip_bytes)
{
    uint8_t together[SMALL_BYTES];
    size_t  n = 0;
    for (int i = 0; i < n_parts; i++) {
        if (skip_bytes >= parts[i].iov_len) {
            skip_bytes -= parts[i].iov_len;
            continue;
        }
        const uint8_t *at = (const uint8_t *)parts[i].iov_base + skip_bytes;
        size_t         left_bytes = parts[i].iov_len - skip_bytes;
        skip_bytes = 0;
        if (n == 0 && left_bytes >= sizeof together) return seal(t, at, gmi_min_size(left_bytes, RECORD_BYTES));
        size_t part_bytes = gmi_min_size(left_bytes, sizeof together - n);
        memcpy(together + n, at, part_bytes);
        n += part_bytes;
        if (part_bytes < left_bytes) break;
    }
    return n > 0 && seal(t, together, n);
}

static size_t total_of(const struct iovec *parts, int n_parts)
{
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].iov_len;
    return n;
}

static gm_status send_more(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    size_t    offered_bytes = total_of(parts, n_parts);
    gm_status status = flush(t);
    ERR_clear_error(); /* else what is left over there were taken for a failure of ours */
    while (status == GM_OK && t->sealed_bytes < offered_bytes) {
        while (seal_next(t, parts, n_parts, t->sealed_bytes) && t->sealed_bytes < offered_bytes) {}
        if (t->fate != GM_OK) return t->fate;
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

/* Fills a part as far as what has come allows: GM_OK when it is full. */
static gm_status open_into(struct gmi_tls *t, const struct iovec *part, size_t *moved_bytes)
{
    ERR_clear_error();
    for (size_t done = 0; done < part->iov_len;) {
        size_t got = 0;
        if (SSL_read_ex(t->ssl, (uint8_t *)part->iov_base + done, part->iov_len - done, &got) != 1) {
            int why = SSL_get_error(t->ssl, 0);
            if (why == SSL_ERROR_WANT_READ) return t->arrival;
            return why == SSL_ERROR_ZERO_RETURN ? GM_ERR_PEER_LOST : is_garbled(t);
        }
        done += got;
        *moved_bytes += got;
    }
    return GM_OK;
}

gm_status gmi_tls_recv_some(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno)
{
    gm_status status = t->fate == GM_ERR_PROTOCOL ? t->fate : GM_OK; /* after others there may still be last words */
    *moved_bytes = 0;
    if (status == GM_OK && !t->is_ready) status = t->fate == GM_OK ? shake(t) : t->fate;
    for (int i = 0; i < n_parts && status == GM_OK; i++) status = open_into(t, &parts[i], moved_bytes);
    t->payload_recv += *moved_bytes;
    t->may_have_more = status == GM_OK;
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
    bool has_sent = interest & GMI_WRITABLE && t->flushed_bytes > 0;
    bool has_come = interest & GMI_READABLE && t->may_have_more && SSL_has_pending(t->ssl);
    if (has_sent || has_come) gmi_poller_skip(poller);
    if (!t->is_ready && t->fate == GM_OK) interest = t->out_first < t->out_end ? GMI_WRITABLE : GMI_READABLE;
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
    if (t->ssl != NULL) {
        BIO        *bio = SSL_get_rbio(t->ssl);
        BIO_METHOD *method = bio != NULL ? BIO_get_app_data(bio) : NULL;
        SSL_free(t->ssl);
        BIO_meth_free(method);
    }
    ERR_clear_error();
    OPENSSL_cleanse(t->key, sizeof t->key);
    gmi_free(t->out);
    gmi_free(t);
}

static bool set_up(struct gmi_tls *t)
{
    t->out = gmi_alloc(t->cap_bytes, 1);
    SSL_CTX *context = make_context(t->is_client);
    if (context != NULL) t->ssl = SSL_new(context); /* which keeps the context */
    SSL_CTX_free(context);
    if (t->ssl == NULL || t->out == NULL) return false;
    BIO_METHOD *method = NULL;
    BIO        *bio = make_bio(t, &method);
    if (bio == NULL) {
        BIO_meth_free(method);
        return false;
    }
    BIO_set_app_data(bio, method);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_app_data(t->ssl, t);
    SSL_set_default_read_buffer_len(t->ssl, t->cap_bytes);
    if (t->is_client) SSL_set_connect_state(t->ssl);
    else SSL_set_accept_state(t->ssl);
    return true;
}

struct gmi_tls *gmi_tls_create(int fd, bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES], int n_records)
{
    struct gmi_tls *t = gmi_alloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->fd = fd;
    t->is_client = is_client;
    t->cap_bytes = (size_t)n_records * (RECORD_BYTES + OVERHEAD_BYTES) + OVERHEAD_BYTES;
    memcpy(t->key, key, sizeof t->key);
    if (set_up(t)) return t;
    gmi_tls_destroy(t);
    return NULL;
}
