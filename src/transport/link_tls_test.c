/* What an encrypted link adds to the conformance tests in link_test.c: what is on the wire between its two ends. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/support/test.h"
#include "transport/link.h"

enum { STREAM_BYTES = 100000, NO_FLIP = -1 };

static const uint8_t key[GMI_TLS_KEY_BYTES] = "both have this", other_key[GMI_TLS_KEY_BYTES] = "one of them has that";

/* Two ends, and somebody in between who sees every byte and may change one. */
struct wire {
    struct gmi_link *ends[2];
    int              middle[2];
    uint8_t          seen[2 * STREAM_BYTES];
    size_t           n_seen, n_back;
    long             flip_at; /* of what the client sends */
};

static void open_wire(struct wire *w, const uint8_t *server_key, long flip_at)
{
    w->n_seen = w->n_back = 0;
    w->flip_at = flip_at;
    for (int i = 0; i < 2; i++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        w->middle[i] = fds[1];
        assert_non_null(w->ends[i] = gmi_link_tls_create(fds[0], i == 0, i == 0 ? key : server_key));
    }
}

static void close_wire(struct wire *w)
{
    for (int i = 0; i < 2; i++) {
        gmi_link_close(w->ends[i]);
        close(w->middle[i]);
    }
}

static void carry(struct wire *w)
{
    uint8_t bytes[4096];
    ssize_t n;
    while (w->n_seen + sizeof bytes < sizeof w->seen && (n = read(w->middle[0], bytes, sizeof bytes)) > 0) {
        if (w->flip_at >= (long)w->n_seen && w->flip_at < (long)w->n_seen + n) bytes[w->flip_at - (long)w->n_seen] ^= 0x10;
        memcpy(w->seen + w->n_seen, bytes, (size_t)n);
        w->n_seen += (size_t)n;
        assert_int_equal(write(w->middle[1], bytes, (size_t)n), n);
    }
    while ((n = read(w->middle[1], bytes, sizeof bytes)) > 0) {
        w->n_back += (size_t)n;
        assert_int_equal(write(w->middle[0], bytes, (size_t)n), n);
    }
}

static bool shake(struct wire *w, gm_status status[2])
{
    status[0] = status[1] = GM_AGAIN;
    for (int i = 0; i < 20 && (status[0] == GM_AGAIN || status[1] == GM_AGAIN); i++) {
        for (int e = 0; e < 2; e++) {
            if (status[e] == GM_AGAIN) status[e] = gmi_link_tls_shake(w->ends[e]);
            carry(w);
        }
    }
    return status[0] == GM_OK && status[1] == GM_OK;
}

/* Sends from the client to the server; how it ended there. */
static gm_status send_across(struct wire *w, const uint8_t *bytes, size_t n_bytes)
{
    uint8_t  *got = malloc(n_bytes);
    size_t    n_sent = 0, n_got = 0, moved;
    gm_status status = GM_OK;
    assert_non_null(got);
    while (n_got < n_bytes && (status == GM_OK || status == GM_AGAIN)) {
        struct iovec out = { (void *)(uintptr_t)(bytes + n_sent), n_bytes - n_sent }, in = { got + n_got, n_bytes - n_got };
        if (n_sent < n_bytes && gmi_link_send_some(w->ends[0], &out, 1, &moved) == GM_OK) n_sent += moved;
        carry(w);
        status = gmi_link_recv_some(w->ends[1], &in, 1, &moved);
        if (status == GM_OK) assert_memory_equal(got + n_got, bytes + n_got, moved);
        n_got += moved;
    }
    free(got);
    return status;
}

static void fill(uint8_t *bytes, size_t n_bytes)
{
    struct gmi_rng rng = { .key = 5 };
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)gmi_rng_next(&rng);
}

static struct wire w;
static uint8_t     stream[STREAM_BYTES];

static void nothing_of_the_payload_can_be_read_on_the_wire(void **state)
{
    (void)state;
    gm_status status[2];
    uint64_t  sent, recv;
    fill(stream, sizeof stream);
    open_wire(&w, key, NO_FLIP);
    assert_true(shake(&w, status));
    assert_int_equal(send_across(&w, stream, sizeof stream), GM_OK);
    for (size_t at = 0; at + 16 <= sizeof stream; at += 16) assert_null(memmem(w.seen, w.n_seen, stream + at, 16));
    w.ends[0]->ops->overhead(w.ends[0], &sent, &recv);
    assert_int_equal(sent, w.n_seen - sizeof stream);
    assert_int_equal(recv, w.n_back);
    w.ends[1]->ops->overhead(w.ends[1], &sent, &recv);
    assert_int_equal(sent, w.n_back);
    assert_int_equal(recv, w.n_seen - sizeof stream);
    close_wire(&w);
}

static void two_with_different_keys_do_not_come_together(void **state)
{
    (void)state;
    gm_status status[2];
    open_wire(&w, other_key, NO_FLIP);
    assert_false(shake(&w, status));
    assert_status(status[1], GM_ERR_PROTOCOL);
    assert_true(status[0] != GM_OK);
    close_wire(&w);
}

static void a_bit_that_flips_on_the_wire_is_found(void **state)
{
    (void)state;
    gm_status status[2];
    fill(stream, sizeof stream);
    open_wire(&w, key, NO_FLIP);
    assert_true(shake(&w, status));
    long begin = (long)w.n_seen;
    close_wire(&w);
    static const long places[] = { 0, 5, 20, 300, 16000, 16405, 50000, STREAM_BYTES };
    for (size_t i = 0; i < TEST_COUNT(places); i++) {
        open_wire(&w, key, begin + places[i]);
        assert_true(shake(&w, status));
        status[1] = send_across(&w, stream, sizeof stream);
        assert_status(status[1], GM_ERR_PROTOCOL);
        close_wire(&w);
    }
    for (long at = 0; at < begin; at += 13) { /* and in the handshake */
        open_wire(&w, key, at);
        if (shake(&w, status)) assert_status(send_across(&w, stream, 100), GM_ERR_PROTOCOL);
        close_wire(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_the_payload_can_be_read_on_the_wire),
        cmocka_unit_test(two_with_different_keys_do_not_come_together),
        cmocka_unit_test(a_bit_that_flips_on_the_wire_is_found),
    };
    return cmocka_run_group_tests_name("link tls", tests, NULL, NULL);
}
