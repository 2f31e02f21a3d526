/* Our end of an encrypted connection against OpenSSL's own: what it makes of our records, we of its, and of those that no
 * peer of ours sends. */
#include "net/tls.h"

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "net/poller.h"
#include "net/tls_key.h"
#include "tests/support/test.h"

enum { STREAM_BYTES = 200000, N_RECORDS = 3, KEY_UPDATE = 24 };

static const uint8_t key[GMI_TLS_KEY_BYTES] = "both have this";
static uint8_t       stream[STREAM_BYTES], got[STREAM_BYTES];

struct both {
    int             fds[2];
    struct gmi_tls *ours;
    SSL            *theirs;
    int             n_key_updates; /* that came from us */
};

static unsigned give_key(unsigned char *psk)
{
    memcpy(psk, key, sizeof key);
    return sizeof key;
}

static unsigned client_key(SSL *ssl, const char *hint, char *identity, unsigned max_identity, unsigned char *psk, unsigned max_bytes)
{
    (void)ssl, (void)hint, (void)max_bytes;
    snprintf(identity, max_identity, "gradmesh");
    return give_key(psk);
}

static unsigned server_key(SSL *ssl, const char *identity, unsigned char *psk, unsigned max_bytes)
{
    (void)ssl, (void)max_bytes;
    return strcmp(identity, "gradmesh") == 0 ? give_key(psk) : 0;
}

static void count_key_updates(int is_sent, int version, int type, const void *bytes, size_t n_bytes, SSL *ssl, void *user)
{
    (void)version, (void)ssl;
    struct both *b = user;
    b->n_key_updates += !is_sent && type == GMI_TLS_HANDSHAKE && n_bytes > 0 && *(const uint8_t *)bytes == KEY_UPDATE;
}

static void meet(struct both *b, bool is_client)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    int      sys_errno = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b->fds), 0);
    assert_non_null(b->ours = gmi_tls_create(b->fds[0], is_client, key, N_RECORDS));
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_psk_client_callback(context, client_key);
    SSL_CTX_set_psk_server_callback(context, server_key);
    assert_non_null(b->theirs = SSL_new(context));
    SSL_CTX_free(context);
    SSL_set_fd(b->theirs, b->fds[1]);
    SSL_set_msg_callback(b->theirs, count_key_updates);
    SSL_set_msg_callback_arg(b->theirs, b);
    gm_status status = GM_AGAIN;
    for (int i = 0, done = 0; i < 10 && !(done == 1 && status == GM_OK); i++) {
        status = gmi_tls_shake(b->ours, &sys_errno);
        done = is_client ? SSL_accept(b->theirs) : SSL_connect(b->theirs);
    }
    assert_ok(status);
    b->n_key_updates = 0;
}

static int set_up(void **state)
{
    static struct both b;
    struct gmi_rng     rng = { .key = 5 };
    for (size_t i = 0; i < sizeof stream; i++) stream[i] = (uint8_t)gmi_rng_next(&rng);
    meet(&b, true);
    *state = &b;
    return 0;
}

static int part(void **state)
{
    struct both *b = *state;
    gmi_tls_destroy(b->ours);
    SSL_free(b->theirs);
    close(b->fds[0]);
    close(b->fds[1]);
    return 0;
}

/* In parts of all sizes, as a port has them: a header and what follows. */
static gm_status recv_ours(struct both *b, uint8_t *into, size_t n_bytes, size_t *moved)
{
    int          sys_errno = 0;
    size_t       first = gmi_min_size(n_bytes, 8);
    struct iovec parts[] = { { into, first }, { into + first, n_bytes - first } };
    return gmi_tls_recv_some(b->ours, parts, n_bytes > first ? 2 : 1, moved, &sys_errno);
}

static void from_us(struct both *b, size_t n_bytes)
{
    size_t n_sent = 0, n_got = 0, moved;
    int    sys_errno = 0;
    memset(got, 0, sizeof got);
    while (n_got < n_bytes) {
        size_t       first = gmi_min_size(n_bytes - n_sent, 8);
        struct iovec parts[] = { { stream + n_sent, first }, { stream + n_sent + first, n_bytes - n_sent - first } };
        if (n_sent < n_bytes) {
            gm_status status = gmi_tls_send_some(b->ours, parts, parts[1].iov_len > 0 ? 2 : 1, &moved, &sys_errno);
            assert_true(status == GM_OK || status == GM_AGAIN);
            n_sent += moved;
        }
        int n = SSL_read(b->theirs, got + n_got, (int)(n_bytes - n_got));
        if (n <= 0) assert_int_equal(SSL_get_error(b->theirs, n), SSL_ERROR_WANT_READ);
        else n_got += (size_t)n;
    }
    assert_memory_equal(got, stream, n_bytes);
}

/* `at_once`: as much is asked for by each call. */
static void to_us(struct both *b, size_t n_bytes, size_t at_once)
{
    size_t n_sent = 0, n_got = 0, moved;
    memset(got, 0, sizeof got);
    while (n_got < n_bytes) {
        int n = n_sent < n_bytes ? SSL_write(b->theirs, stream + n_sent, (int)(n_bytes - n_sent)) : 0;
        if (n > 0) n_sent += (size_t)n;
        gm_status status = recv_ours(b, got + n_got, gmi_min_size(at_once, n_bytes - n_got), &moved);
        assert_true(status == GM_OK || status == GM_AGAIN);
        n_got += moved;
    }
    assert_memory_equal(got, stream, n_bytes);
}

static void another_tls_understands_us_and_we_it(void **state)
{
    struct both *b = *state;
    for (int is_client = 0; is_client <= 1; is_client++) {
        part(state);
        meet(b, is_client);
        static const size_t sizes[] = { 1, 7, 1023, 1024, 16384, 16385, STREAM_BYTES };
        for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
            from_us(b, sizes[i]);
            to_us(b, sizes[i], sizes[i]);
            to_us(b, sizes[i], 5000);
        }
    }
}

static void a_key_is_changed_by_either_side(void **state)
{
    struct both *b = *state;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(SSL_key_update(b->theirs, SSL_KEY_UPDATE_REQUESTED), 1);
        to_us(b, 50000, 50000);
        from_us(b, 50000);
        assert_int_equal(b->n_key_updates, i);
    }
    assert_int_equal(SSL_key_update(b->theirs, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    to_us(b, 50000, 50000);
    from_us(b, 50000);
    assert_int_equal(b->n_key_updates, 3);
}

/* As many as one key may seal, of four bytes each. */
static void a_key_is_changed_in_time(void **state)
{
    struct both *b = *state;
    if (!test_is_long()) skip();
    enum { MAX_PARTS = 4, N_PARTS = 64 };
    struct iovec parts[N_PARTS];
    uint64_t     n_sent = 0, n_got = 0, n_bytes = (UINT64_C(1) << 23) * MAX_PARTS + STREAM_BYTES;
    for (int i = 0; i < N_PARTS; i++) parts[i] = (struct iovec){ stream, 1 };
    while (n_got < n_bytes) {
        int    sys_errno = 0, n;
        size_t moved;
        if (n_sent < n_bytes && gmi_tls_send_some(b->ours, parts, N_PARTS, &moved, &sys_errno) == GM_OK) n_sent += moved;
        while ((n = SSL_read(b->theirs, got, sizeof got)) > 0) n_got += (uint64_t)n;
        assert_int_equal(SSL_get_error(b->theirs, n), SSL_ERROR_WANT_READ);
    }
    assert_int_equal(b->n_key_updates, 1);
}

/* What lies in our buffer no descriptor shows. */
static void what_is_left_of_a_record_wakes_who_wants_it(void **state)
{
    struct both *b = *state;
    size_t            moved;
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    assert_int_equal(SSL_write(b->theirs, stream, 100), 100);
    assert_int_equal(SSL_write(b->theirs, stream, 100), 100);
    static const size_t takes[] = { 60, 40, 100 };
    for (size_t i = 0; i < TEST_COUNT(takes); i++) {
        assert_ok(recv_ours(b, got, takes[i], &moved));
        assert_int_equal(moved, takes[i]);
        gmi_poller_clear(&poller);
        gmi_tls_watch(b->ours, &poller, GMI_READABLE);
        bool    is_last = i + 1 == TEST_COUNT(takes);
        int64_t within_ns = (is_last ? 1 : 60000) * INT64_C(1000000);
        assert_status(gmi_poller_wait(&poller, gmi_now_ns() + within_ns), is_last ? GM_AGAIN : GM_OK);
        assert_int_equal(poller.is_skipped, !is_last);
    }
    gmi_poller_fini(&poller);
}

/* Another one's bytes, wherever they end, up to there and nothing of the record that is cut. */
static void a_record_that_is_cut_short_is_the_end_and_nothing_of_it_is_handed_on(void **state)
{
    struct both *b = *state;
    for (size_t cut_bytes = 1; cut_bytes < 3000 + GMI_TLS_ADDED_BYTES; cut_bytes += 700) {
        uint8_t wire[2 * 3000 + 2 * GMI_TLS_ADDED_BYTES];
        size_t  moved, n_bytes = sizeof wire - cut_bytes;
        int     relay[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, relay), 0);
        SSL_set_wfd(b->theirs, relay[0]);
        for (int i = 0; i < 2; i++) assert_int_equal(SSL_write(b->theirs, stream, 3000), 3000);
        assert_int_equal(read(relay[1], wire, sizeof wire), sizeof wire);
        assert_int_equal(write(b->fds[1], wire, n_bytes), n_bytes);
        shutdown(b->fds[1], SHUT_WR);
        assert_ok(recv_ours(b, got, sizeof got, &moved));
        assert_int_equal(moved, 3000);
        assert_status(recv_ours(b, got, sizeof got, &moved), GM_ERR_PEER_LOST);
        assert_status(recv_ours(b, got, sizeof got, &moved), GM_ERR_PEER_LOST);
        close(relay[0]);
        close(relay[1]);
        part(state);
        meet(b, true);
    }
}

static void refuses(struct both *b)
{
    size_t moved;
    assert_status(recv_ours(b, got, sizeof got, &moved), GM_ERR_PROTOCOL);
    assert_status(recv_ours(b, got, sizeof got, &moved), GM_ERR_PROTOCOL);
    assert_int_equal(moved, 0);
}

static void what_no_peer_of_ours_sends_is_refused(void **state)
{
    struct both *b = *state;
    SSL_set_block_padding(b->theirs, 4096); /* which makes a record longer than what is in it */
    assert_int_equal(SSL_write(b->theirs, stream, 10), 10);
    refuses(b);
    part(state);
    meet(b, true);
    assert_int_equal(SSL_shutdown(b->theirs), 0); /* an alert */
    refuses(b);
    part(state);
    meet(b, true);
    assert_int_equal(write(b->fds[1], "GET / HTTP/1.1\r\n\r\n", 18), 18);
    refuses(b);
}

/* A server that has a certificate and not the key: who relays the proof of the secret could be one. */
static SSL *certified_server(int fd)
{
    SSL_CTX  *context = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *own = EVP_EC_gen("P-256");
    X509     *certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, own);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC, (const uint8_t *)"gradmesh", -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    assert_true(X509_sign(certificate, own, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, own), 1);
    SSL_CTX_set_num_tickets(context, 0);
    SSL *server = SSL_new(context);
    assert_non_null(server);
    SSL_set_fd(server, fd);
    X509_free(certificate);
    EVP_PKEY_free(own);
    SSL_CTX_free(context);
    return server;
}

static void a_certificate_is_no_proof_of_the_key(void **state)
{
    (void)state;
    struct both b;
    int         sys_errno = 0;
    gm_status   status = GM_AGAIN;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b.fds), 0);
    assert_non_null(b.ours = gmi_tls_create(b.fds[0], true, key, N_RECORDS));
    b.theirs = certified_server(b.fds[1]);
    for (int i = 0; i < 10 && status == GM_AGAIN; i++) {
        status = gmi_tls_shake(b.ours, &sys_errno);
        SSL_accept(b.theirs);
    }
    assert_status(status, GM_ERR_PROTOCOL);
    state = (void *[]){ &b };
    part(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_tls_understands_us_and_we_it, set_up, part),
        cmocka_unit_test_setup_teardown(a_key_is_changed_by_either_side, set_up, part),
        cmocka_unit_test_setup_teardown(a_key_is_changed_in_time, set_up, part),
        cmocka_unit_test_setup_teardown(what_is_left_of_a_record_wakes_who_wants_it, set_up, part),
        cmocka_unit_test_setup_teardown(a_record_that_is_cut_short_is_the_end_and_nothing_of_it_is_handed_on, set_up, part),
        cmocka_unit_test_setup_teardown(what_no_peer_of_ours_sends_is_refused, set_up, part),
        cmocka_unit_test(a_certificate_is_no_proof_of_the_key),
    };
    return cmocka_run_group_tests_name("tls", tests, NULL, NULL);
}
