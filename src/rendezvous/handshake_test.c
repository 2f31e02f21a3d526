/* handshake_test.c - both sides of a handshake over a socket pair, and one side against bytes by hand. */
#include "rendezvous/handshake.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "net/socket.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 10000 };

/* ---- two sides ----------------------------------------------------------------------------------- */

struct side {
    struct gmi_handshake h;
    gm_status            verdict; /* what it says of the other */
    const char          *why;
    int                  n_judged;
    struct gmi_hello     seen;
    gm_status            status;
};

static gm_status judge(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    struct side *s = user;
    s->n_judged++;
    s->seen = *peer;
    snprintf(why, why_bytes, "%s", s->why ? s->why : "");
    return s->verdict;
}

static struct gmi_hello hello_of(int rank)
{
    return (struct gmi_hello){ .channel = GMI_CHANNEL_CONTROL, .rank = rank, .target = 1 - rank, .world_size = 2,
                               .group = 4, .job_id = "j1" };
}

static void open_side(struct side *s, int fd, bool is_caller)
{
    struct gmi_hello own = hello_of(is_caller ? 1 : 0);
    gmi_handshake_init(&s->h, fd, is_caller, &own, judge, s, PATIENCE_MS);
    s->status = GM_AGAIN;
}

static void make_pair(int fds[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0); }

static void shake(struct side *caller, struct side *answerer)
{
    int fds[2];
    make_pair(fds);
    open_side(caller, fds[0], true);
    open_side(answerer, fds[1], false);
    for (int i = 0; i < 100 && (caller->status == GM_AGAIN || answerer->status == GM_AGAIN); i++) {
        if (caller->status == GM_AGAIN) caller->status = gmi_handshake_progress(&caller->h);
        if (answerer->status == GM_AGAIN) answerer->status = gmi_handshake_progress(&answerer->h);
    }
}

static void close_side(struct side *s)
{
    if (s->status == GM_OK) {
        int fd = gmi_handshake_take_fd(&s->h);
        assert_true(fd >= 0);
        gmi_socket_close(&fd);
    }
    assert_int_equal(s->h.fd, -1); /* taken, or closed by the failure */
    gmi_handshake_fini(&s->h);
}

static void two_that_agree(void **state)
{
    (void)state;
    struct side caller = { 0 }, answerer = { 0 };
    shake(&caller, &answerer);
    assert_ok(caller.status);
    assert_ok(answerer.status);
    assert_int_equal(caller.n_judged, 1);
    assert_int_equal(answerer.n_judged, 1);
    assert_int_equal(caller.seen.rank, 0);
    assert_int_equal(answerer.seen.rank, 1);
    assert_int_equal(answerer.seen.version, GMI_PROTOCOL_VERSION);
    assert_memory_not_equal(caller.seen.nonce, answerer.seen.nonce, GMI_NONCE_BYTES);
    assert_int_equal(caller.h.total_sent_bytes, GMI_HELLO_BYTES + 4);
    assert_int_equal(answerer.h.total_sent_bytes, GMI_HELLO_BYTES + 4);
    assert_int_equal(caller.h.total_recv_bytes, answerer.h.total_sent_bytes);
    assert_int_equal(answerer.h.total_recv_bytes, caller.h.total_sent_bytes);
    close_side(&caller);
    close_side(&answerer);
}

static void an_answerer_that_refuses_tells_both(void **state)
{
    (void)state;
    struct side caller = { 0 }, answerer = { .verdict = GM_ERR_REFUSED, .why = "this is job 'a', you belong to job 'b'" };
    shake(&caller, &answerer);
    assert_status(caller.status, GM_ERR_REFUSED);
    assert_status(answerer.status, GM_ERR_REFUSED);
    assert_contains(caller.h.error.text, "refused the connection: this is job 'a', you belong to job 'b'");
    assert_contains(answerer.h.error.text, "this is job 'a', you belong to job 'b'");
    assert_true(answerer.h.is_refusal_ours);
    assert_false(caller.h.is_refusal_ours);
    close_side(&caller);
    close_side(&answerer);
}

static void a_caller_that_refuses_tells_both(void **state)
{
    (void)state;
    struct side caller = { .verdict = GM_ERR_REFUSED, .why = "expected a store here" }, answerer = { 0 };
    shake(&caller, &answerer);
    assert_status(caller.status, GM_ERR_REFUSED);
    assert_status(answerer.status, GM_ERR_REFUSED);
    assert_contains(caller.h.error.text, "expected a store here");
    assert_contains(answerer.h.error.text, "expected a store here");
    assert_true(caller.h.is_refusal_ours);
    close_side(&caller);
    close_side(&answerer);
}

static void come_again_is_told_as_such(void **state)
{
    (void)state;
    struct side caller = { 0 }, answerer = { .verdict = GM_ERR_STATE, .why = "not ready yet" };
    shake(&caller, &answerer);
    assert_status(caller.status, GM_ERR_STATE);
    close_side(&caller);
    close_side(&answerer);
}

static void the_longest_sentence_arrives_whole(void **state)
{
    (void)state;
    char why[GMI_VERDICT_TEXT_BYTES];
    memset(why, 'w', sizeof why - 1);
    why[sizeof why - 1] = '\0';
    struct side caller = { 0 }, answerer = { .verdict = GM_ERR_MISMATCH, .why = why };
    shake(&caller, &answerer);
    assert_status(caller.status, GM_ERR_MISMATCH);
    assert_contains(caller.h.error.text, why);
    close_side(&caller);
    close_side(&answerer);
}

/* ---- one side, and bytes by hand ----------------------------------------------------------------- */

static size_t good_hello(uint8_t *wire, int rank)
{
    struct gmi_hello h = hello_of(rank);
    h.version = GMI_PROTOCOL_VERSION;
    gmi_hello_encode(&h, wire);
    return GMI_HELLO_BYTES;
}

static size_t read_all(int fd, char *into, size_t n_bytes)
{
    size_t got = 0;
    for (;;) {
        ssize_t n = read(fd, into + got, n_bytes - got);
        if (n <= 0) return got;
        got += (size_t)n;
    }
}

static void a_stranger_gets_one_line_and_is_closed(void **state)
{
    (void)state;
    static const char *const strangers[] = { "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02", "SSH-2.0-OpenSSH_9.2\r\n", "\n",
                                             "GRADMESX" };
    for (size_t i = 0; i < TEST_COUNT(strangers); i++) {
        struct side s = { 0 };
        int         fds[2];
        char        answer[1000];
        make_pair(fds);
        open_side(&s, fds[1], false);
        assert_true(write(fds[0], strangers[i], strlen(strangers[i])) > 0);
        s.status = gmi_handshake_progress(&s.h);
        assert_status(s.status, GM_ERR_PROTOCOL);
        assert_int_equal(s.n_judged, 0);
        assert_contains(s.h.error.text, "does not speak gradmesh's protocol");
        size_t n = read_all(fds[0], answer, sizeof answer);
        answer[n] = '\0';
        assert_contains(answer, "gradmesh");
        assert_int_equal(answer[n - 1], '\n');
        close_side(&s);
        close(fds[0]);
    }
}

/* Over TCP, with far more than a hello: closing must not lose the line. */
static void a_stranger_with_a_lot_to_say_still_reads_the_line(void **state)
{
    (void)state;
    struct gmi_address_list list;
    struct gmi_address      bound;
    int                     listener, fd, accepted = -1, sys_errno = 0;
    static char             request[20000], answer[1000];
    struct side             s = { 0 };
    assert_ok(gmi_address_resolve(&list, "127.0.0.1", 0, NULL));
    assert_ok(gmi_socket_listen(&listener, &list.addresses[0], NULL));
    assert_ok(gmi_socket_own_address(listener, &bound));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&bound.storage, bound.used_bytes), 0);
    while (gmi_socket_accept(listener, &accepted, &sys_errno) == GM_AGAIN) {}
    memset(request, 'x', sizeof request);
    memcpy(request, "POST /upload HTTP/1.1\r\n", 23);
    assert_int_equal(write(fd, request, sizeof request), sizeof request);
    open_side(&s, accepted, false);
    while (s.status == GM_AGAIN) s.status = gmi_handshake_progress(&s.h);
    assert_status(s.status, GM_ERR_PROTOCOL);
    size_t n = read_all(fd, answer, sizeof answer - 1);
    answer[n] = '\0';
    assert_contains(answer, "gradmesh");
    close_side(&s);
    close(fd);
    close(listener);
}

static void another_version_is_refused_with_both_numbers(void **state)
{
    (void)state;
    for (int is_caller = 0; is_caller < 2; is_caller++) {
        struct side s = { 0 };
        int         fds[2];
        uint8_t     wire[GMI_HELLO_BYTES];
        char        answer[1000];
        make_pair(fds);
        open_side(&s, fds[1], is_caller);
        good_hello(wire, 1);
        gmi_put_u16(wire + 8, 77);
        assert_int_equal(write(fds[0], wire, sizeof wire), sizeof wire);
        s.status = gmi_handshake_progress(&s.h);
        assert_status(s.status, GM_ERR_VERSION);
        assert_int_equal(s.n_judged, 0);
        assert_contains(s.h.error.text, "protocol version 1 is needed here, not 77");
        /* The other side can read our version and our sentence. */
        size_t n = read_all(fds[0], answer, sizeof answer - 1);
        answer[n] = '\0';
        assert_true(n > GMI_HELLO_BYTES + 4);
        assert_int_equal(gmi_get_u16((uint8_t *)answer + 8), GMI_PROTOCOL_VERSION);
        assert_int_equal(gmi_get_u16((uint8_t *)answer + GMI_HELLO_BYTES), GM_ERR_VERSION);
        assert_contains(answer + GMI_HELLO_BYTES + 4, "not 77");
        close_side(&s);
        close(fds[0]);
    }
}

static void byte_by_byte_it_comes_to_the_same(void **state)
{
    (void)state;
    struct side s = { 0 };
    int         fds[2];
    uint8_t     wire[GMI_HELLO_BYTES + 4] = { 0 }, answer[GMI_HELLO_BYTES + 10];
    make_pair(fds);
    open_side(&s, fds[1], false);
    good_hello(wire, 1);
    for (size_t i = 0; i < sizeof wire; i++) {
        s.status = gmi_handshake_progress(&s.h);
        assert_status(s.status, GM_AGAIN);
        assert_int_equal(s.n_judged, i >= GMI_HELLO_BYTES);
        assert_int_equal(write(fds[0], wire + i, 1), 1);
    }
    s.status = gmi_handshake_progress(&s.h);
    assert_ok(s.status);
    assert_int_equal(read_all(fds[0], (char *)answer, sizeof answer), GMI_HELLO_BYTES + 4);
    close_side(&s);
    close(fds[0]);
}

static void nothing_behind_the_handshake_is_read(void **state)
{
    (void)state;
    struct side s = { 0 };
    int         fds[2];
    uint8_t     wire[GMI_HELLO_BYTES + 4 + 6] = { 0 };
    char        rest[10];
    make_pair(fds);
    open_side(&s, fds[1], false);
    good_hello(wire, 1);
    memcpy(wire + GMI_HELLO_BYTES + 4, "joined", 6);
    assert_int_equal(write(fds[0], wire, sizeof wire), sizeof wire);
    s.status = gmi_handshake_progress(&s.h);
    assert_ok(s.status);
    assert_int_equal(read(s.h.fd, rest, sizeof rest), 6);
    assert_memory_equal(rest, "joined", 6);
    close_side(&s);
    close(fds[0]);
}

static void an_end_at_any_byte_is_a_lost_peer(void **state)
{
    (void)state;
    uint8_t wire[GMI_HELLO_BYTES + 4] = { 0 };
    good_hello(wire, 1);
    for (size_t n = 0; n < sizeof wire; n++) {
        struct side s = { 0 };
        int         fds[2];
        make_pair(fds);
        open_side(&s, fds[1], false);
        assert_int_equal(write(fds[0], wire, n), n);
        close(fds[0]);
        for (int i = 0; i < 10 && s.status == GM_AGAIN; i++) s.status = gmi_handshake_progress(&s.h);
        assert_status(s.status, GM_ERR_PEER_LOST);
        assert_contains(s.h.error.text, "closed the connection during the handshake");
        close_side(&s);
    }
}

/* Whatever number stands where the verdict should be, the handshake ends, and not with GM_AGAIN. */
static void any_verdict_ends_the_handshake(void **state)
{
    (void)state;
    for (int verdict = 0; verdict < 70000; verdict = verdict < 40 ? verdict + 1 : verdict * 3) {
        struct side s = { 0 };
        int         fds[2];
        uint8_t     wire[GMI_HELLO_BYTES + 4 + 3];
        if (verdict > UINT16_MAX) break;
        make_pair(fds);
        open_side(&s, fds[1], false);
        good_hello(wire, 1);
        gmi_put_u16(wire + GMI_HELLO_BYTES, (uint16_t)verdict);
        gmi_put_u16(wire + GMI_HELLO_BYTES + 2, verdict == 0 ? 0 : 3);
        memcpy(wire + GMI_HELLO_BYTES + 4, "n\no", 3);
        assert_int_equal(write(fds[0], wire, sizeof wire - (verdict == 0 ? 3 : 0)), sizeof wire - (verdict == 0 ? 3 : 0));
        s.status = gmi_handshake_progress(&s.h);
        assert_status(gmi_handshake_progress(&s.h), s.status); /* it stays */
        if (verdict == 0) {
            assert_ok(s.status);
        } else {
            bool is_known = verdict > GM_AGAIN && verdict <= GM_ERR_NOMEM;
            assert_status(s.status, is_known ? (gm_status)verdict : GM_ERR_REFUSED);
            assert_contains(s.h.error.text, "refused the connection: n?o"); /* one line */
        }
        close_side(&s);
        close(fds[0]);
    }
}

static void a_sentence_that_claims_to_be_huge_is_cut(void **state)
{
    (void)state;
    struct side s = { 0 };
    int         fds[2];
    static uint8_t wire[GMI_HELLO_BYTES + 4 + 65535];
    make_pair(fds);
    open_side(&s, fds[1], false);
    memset(wire, 'z', sizeof wire);
    good_hello(wire, 1);
    gmi_put_u16(wire + GMI_HELLO_BYTES, GM_ERR_REFUSED);
    gmi_put_u16(wire + GMI_HELLO_BYTES + 2, 65535);
    assert_int_equal(write(fds[0], wire, sizeof wire), sizeof wire);
    s.status = gmi_handshake_progress(&s.h);
    assert_status(s.status, GM_ERR_REFUSED);
    assert_true(strlen(s.h.error.text) < sizeof s.h.error.text);
    close_side(&s);
    close(fds[0]);
}

static void random_bytes_end_it_or_wait(void **state)
{
    (void)state;
    struct gmi_rng rng = { .key = 3 };
    for (int i = 0; i < 2000; i++) {
        struct side s = { 0 };
        int         fds[2];
        uint8_t     wire[400];
        size_t      n = (size_t)gmi_rng_next_below(&rng, sizeof wire);
        make_pair(fds);
        open_side(&s, fds[1], i % 2);
        for (size_t k = 0; k < n; k++) wire[k] = (uint8_t)gmi_rng_next(&rng);
        if (i % 4 > 1) memcpy(wire, "GRADMESH\1\0", 10);
        assert_int_equal(write(fds[0], wire, n), n);
        close(fds[0]);
        for (int k = 0; k < 10 && s.status == GM_AGAIN; k++) s.status = gmi_handshake_progress(&s.h);
        assert_true(s.status != GM_AGAIN);
        close_side(&s);
    }
}

static void silence_ends_at_the_deadline(void **state)
{
    (void)state;
    for (int is_caller = 0; is_caller < 2; is_caller++) {
        struct side s = { 0 };
        int         fds[2];
        make_pair(fds);
        open_side(&s, fds[1], is_caller);
        assert_status(gmi_handshake_progress(&s.h), GM_AGAIN);
        s.h.deadline_ns = gmi_now_ns() - 1;
        s.status = gmi_handshake_progress(&s.h);
        assert_status(s.status, GM_ERR_TIMEOUT);
        assert_contains(s.h.error.text, "did not finish the handshake in time");
        close_side(&s);
        close(fds[0]);
    }
}

static void it_waits_for_what_it_needs_next(void **state)
{
    (void)state;
    struct side       s = { 0 };
    struct gmi_poller p;
    int               fds[2];
    make_pair(fds);
    gmi_poller_init(&p);
    open_side(&s, fds[1], true);
    gmi_handshake_watch(&s.h, &p);
    assert_int_equal(p.slots[0].events, POLLOUT); /* its hello */
    assert_status(gmi_handshake_progress(&s.h), GM_AGAIN);
    gmi_poller_clear(&p);
    gmi_handshake_watch(&s.h, &p);
    assert_int_equal(p.slots[0].events, POLLIN);
    gmi_handshake_fini(&s.h);
    gmi_poller_fini(&p);
    close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_agree),
        cmocka_unit_test(an_answerer_that_refuses_tells_both),
        cmocka_unit_test(a_caller_that_refuses_tells_both),
        cmocka_unit_test(come_again_is_told_as_such),
        cmocka_unit_test(the_longest_sentence_arrives_whole),
        cmocka_unit_test(a_stranger_gets_one_line_and_is_closed),
        cmocka_unit_test(a_stranger_with_a_lot_to_say_still_reads_the_line),
        cmocka_unit_test(another_version_is_refused_with_both_numbers),
        cmocka_unit_test(byte_by_byte_it_comes_to_the_same),
        cmocka_unit_test(nothing_behind_the_handshake_is_read),
        cmocka_unit_test(an_end_at_any_byte_is_a_lost_peer),
        cmocka_unit_test(any_verdict_ends_the_handshake),
        cmocka_unit_test(a_sentence_that_claims_to_be_huge_is_cut),
        cmocka_unit_test(random_bytes_end_it_or_wait),
        cmocka_unit_test(silence_ends_at_the_deadline),
        cmocka_unit_test(it_waits_for_what_it_needs_next),
    };
    return cmocka_run_group_tests_name("handshake", tests, NULL, NULL);
}
