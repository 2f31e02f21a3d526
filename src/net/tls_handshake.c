#include "net/tls_handshake.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "net/tls_key.h"

enum { SERVER, CLIENT };

struct gmi_tls_handshake {
    SSL                   *ssl;
    BIO_METHOD            *method;
    struct gmi_tls_buffer *in, *out;
    bool                   is_client, has_secret[2];
    uint8_t                secret[2][GMI_TLS_SECRET_BYTES];
    uint8_t                key[GMI_TLS_KEY_BYTES];
};

/* ---- the buffers, as OpenSSL sees them ----------------------------------------------------------- */

static int bio_write(BIO *bio, const char *bytes, int n_bytes)
{
    struct gmi_tls_buffer *out = ((struct gmi_tls_handshake *)BIO_get_data(bio))->out;
    size_t                 n = (size_t)n_bytes;
    BIO_clear_retry_flags(bio);
    if (n > out->cap_bytes - out->end) { /* until it is sent: a handshake is much shorter than a record may be */
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(out->bytes + out->end, bytes, n);
    out->end += n;
    return n_bytes;
}

static int bio_read(BIO *bio, char *bytes, int n_bytes)
{
    struct gmi_tls_buffer *in = ((struct gmi_tls_handshake *)BIO_get_data(bio))->in;
    size_t                 n = gmi_min_size((size_t)n_bytes, in->end - in->first);
    BIO_clear_retry_flags(bio);
    if (n == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(bytes, in->bytes + in->first, n);
    in->first += n;
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO *make_bio(struct gmi_tls_handshake *h)
{
    h->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gradmesh");
    if (h->method == NULL) return NULL;
    BIO_meth_set_write(h->method, bio_write);
    BIO_meth_set_read(h->method, bio_read);
    BIO_meth_set_ctrl(h->method, bio_control);
    BIO *bio = BIO_new(h->method);
    if (bio == NULL) return NULL;
    BIO_set_data(bio, h);
    BIO_set_init(bio, 1);
    return bio;
}

/* ---- the key, and what comes of it --------------------------------------------------------------- */

static unsigned give_key(struct gmi_tls_handshake *h, unsigned char *psk, unsigned max_bytes)
{
    if (max_bytes < sizeof h->key) return 0;
    memcpy(psk, h->key, sizeof h->key);
    return sizeof h->key;
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

/* OpenSSL tells its secrets in the lines of a log: NAME, the client's random number, the secret, in hexadecimal. */
static void hear_secret(const SSL *ssl, const char *line)
{
    static const char *const  names[] = { [SERVER] = "SERVER_TRAFFIC_SECRET_0 ", [CLIENT] = "CLIENT_TRAFFIC_SECRET_0 " };
    struct gmi_tls_handshake *h = SSL_get_app_data(ssl);
    const char               *digits = strrchr(line, ' ');
    for (int side = SERVER; side <= CLIENT && digits != NULL; side++) {
        size_t n = 0;
        if (strncmp(line, names[side], strlen(names[side])) != 0) continue;
        h->has_secret[side] = OPENSSL_hexstr2buf_ex(h->secret[side], sizeof h->secret[side], &n, digits + 1, '\0') == 1 &&
                              n == sizeof h->secret[side];
    }
}

const uint8_t *gmi_tls_handshake_secret(const struct gmi_tls_handshake *h, bool is_sending)
{
    return h->secret[h->is_client == is_sending ? CLIENT : SERVER];
}

/* ---- going on ------------------------------------------------------------------------------------- */

/* Of what has failed by now. An internal error, as OpenSSL calls it, is one of its own, and hardly anything but memory fails. */
static bool was_out_of_memory(void)
{
    for (unsigned long e = ERR_get_error(); e != 0; e = ERR_get_error()) {
        if (ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE || ERR_GET_REASON(e) == ERR_R_INTERNAL_ERROR) return true;
    }
    return false;
}

gm_status gmi_tls_handshake_step(struct gmi_tls_handshake *h)
{
    ERR_clear_error(); /* else what is left over there were taken for a failure of ours */
    int       result = SSL_do_handshake(h->ssl);
    gm_status status = GM_ERR_PROTOCOL;
    /* "Reused": by the key. A server may choose a certificate instead, and whose it is nobody knows here. */
    if (result == 1 && SSL_session_reused(h->ssl) == 1 && h->has_secret[SERVER] && h->has_secret[CLIENT]) status = GM_OK;
    if (result != 1 && SSL_get_error(h->ssl, result) == SSL_ERROR_WANT_READ) status = GM_AGAIN;
    if (status == GM_ERR_PROTOCOL && was_out_of_memory()) status = GM_ERR_NOMEM;
    ERR_clear_error();
    return status;
}

static SSL_CTX *make_context(bool is_client)
{
    SSL_CTX *c = SSL_CTX_new(is_client ? TLS_client_method() : TLS_server_method());
    if (c == NULL) return NULL;
    if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") != 1) { /* what goes with a key of this kind, and with net/tls_key.c */
        SSL_CTX_free(c);
        return NULL;
    }
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(c, 0);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_keylog_callback(c, hear_secret);
    if (is_client) {
        SSL_CTX_set_psk_client_callback(c, client_key);
        SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL); /* no certificate is trusted: the key alone counts */
    } else {
        SSL_CTX_set_psk_server_callback(c, server_key);
    }
    return c;
}

static bool set_up(struct gmi_tls_handshake *h)
{
    SSL_CTX *context = make_context(h->is_client);
    if (context != NULL) h->ssl = SSL_new(context); /* which keeps the context */
    SSL_CTX_free(context);
    BIO *bio = h->ssl != NULL ? make_bio(h) : NULL;
    if (bio == NULL) return false;
    SSL_set_bio(h->ssl, bio, bio);
    if (SSL_set_app_data(h->ssl, h) != 1) return false;
    if (h->is_client) SSL_set_connect_state(h->ssl);
    else SSL_set_accept_state(h->ssl);
    return true;
}

struct gmi_tls_handshake *gmi_tls_handshake_create(bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES],
                                                   struct gmi_tls_buffer *in, struct gmi_tls_buffer *out)
{
    struct gmi_tls_handshake *h = gmi_alloc(1, sizeof *h);
    if (h == NULL) return NULL;
    h->is_client = is_client;
    h->in = in;
    h->out = out;
    memcpy(h->key, key, sizeof h->key);
    if (set_up(h)) return h;
    gmi_tls_handshake_destroy(h);
    return NULL;
}

void gmi_tls_handshake_destroy(struct gmi_tls_handshake *h)
{
    if (h == NULL) return;
    SSL_free(h->ssl);
    BIO_meth_free(h->method);
    ERR_clear_error();
    OPENSSL_cleanse(h, sizeof *h);
    gmi_free(h);
}
