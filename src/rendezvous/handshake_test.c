/* handshake_test.c - both sides of a handshake over a socket pair, and one side against bytes by hand. */
#include "rendezvous/handshake.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
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
    gm_error             error;
    const struct gmi_secret *secret;
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
    gmi_handshake_init(&s->h, fd, is_caller, &own, s->secret, judge, s, PATIENCE_MS);
    gmi_error_clear(&s->error);
    s->status = GM_AGAIN;
}

static gm_status step(struct side *s) { return s->status = gmi_handshake_progress(&s->h, &s->error); }

static void make_pair(int fds[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0); }

static void shake(struct side *caller, struct side *answerer)
{
    int fds[2];
    make_pair(fds);
    open_side(caller, fds[0], true);
    open_side(answerer, fds[1], false);
    for (int i = 0; i < 100 && (caller->status == GM_AGAIN || answerer->status == GM_AGAIN); i++) {
        if (caller->status == GM_AGAIN) step(caller);
        if (answerer->status == GM_AGAIN) step(answerer);
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
    assert_int_equal(caller.h.total_sent_bytes, GMI_HELLO_BYTES + GMI_PROOF_BYTES + 4);
    assert_int_equal(answerer.h.total_sent_bytes, GMI_HELLO_BYTES + GMI_PROOF_BYTES + 4);
    assert_int_equal(caller.h.total_recv_bytes, answerer.h.total_sent_bytes);
    assert_int_equal(answerer.h.total_recv_bytes, caller.h.total_sent_bytes);
    close_side(&caller);
    close_side(&answerer);
}

/* As the hellos say, which the proofs cover; and not without a secret, whose key everybody would know. */
static void what_follows_is_encrypted_if_either_side_wants_it(void **state)
{
    (void)state;
    for (unsigned wants = 0; wants < 8; wants++) {
        bool              has_secret = (wants & 4) != 0;
        struct gmi_secret secrets[2] = { { .is_set = has_secret, .encrypts = wants & 1, .key = "one" },
                                         { .is_set = has_secret, .encrypts = (wants & 2) != 0, .key = "one" } };
        struct side       caller = { .secret = &secrets[0] }, answerer = { .secret = &secrets[1] };
        struct gmi_stream ends[2];
        shake(&caller, &answerer);
        assert_ok(caller.status);
        assert_ok(answerer.status);
        assert_ok(gmi_handshake_stream(&caller.h, gmi_handshake_take_fd(&caller.h), &ends[0]));
        assert_ok(gmi_handshake_stream(&answerer.h, gmi_handshake_take_fd(&answerer.h), &ends[1]));
        for (int i = 0; i < 2; i++) assert_int_equal(ends[i].tls != NULL, has_secret && (wants & 3) != 0);
        char   word[6] = "hello", got[6] = "";
        size_t moved = 0, n_got = 0;
        int    sys_errno;
        for (int i = 0; i < 10 && n_got < sizeof got; i++) {
            struct iovec out = { word, sizeof word }, in = { got + n_got, sizeof got - n_got };
            if (moved == 0) (void)!gmi_stream_send_some(&ends[0], &out, 1, &moved, &sys_errno);
            size_t n;
            (void)!gmi_stream_recv_some(&ends[1], &in, 1, &n, &sys_errno);
            n_got += n;
        }
        assert_string_equal(got, "hello");
        for (int i = 0; i < 2; i++) gmi_stream_close(&ends[i]);
        gmi_handshake_fini(&caller.h);
        gmi_handshake_fini(&answerer.h);
    }
}

static void an_answerer_that_refuses_tells_both(void **state)
{
    (void)state;
    struct side caller = { 0 }, answerer = { .verdict = GM_ERR_REFUSED, .why = "this is job 'a', you belong to job 'b'" };
    shake(&caller, &answerer);
    assert_status(caller.status, GM_ERR_REFUSED);
    assert_status(answerer.status, GM_ERR_REFUSED);
    assert_contains(caller.error.text, "refused the connection: this is job 'a', you belong to job 'b'");
    assert_contains(answerer.error.text, "this is job 'a', you belong to job 'b'");
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
    assert_contains(caller.error.text, "expected a store here");
    assert_contains(answerer.error.text, "expected a store here");
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
    assert_contains(caller.error.text, why);
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
        step(&s);
        assert_status(s.status, GM_ERR_PROTOCOL);
        assert_int_equal(s.n_judged, 0);
        assert_contains(s.error.text, "does not speak gradmesh's protocol");
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
    while (s.status == GM_AGAIN) step(&s);
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
        step(&s);
        assert_status(s.status, GM_ERR_VERSION);
        assert_int_equal(s.n_judged, 0);
        assert_contains(s.error.text, "protocol version 1 is needed here, not 77");
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

/* Over `fd`: a caller's hello, what the answerer says to it, and the caller's proof, 32 bytes into `wire`. */
static void prove_by_hand(struct side *s, int fd, uint8_t *wire)
{
    struct gmi_hellos hellos;
    uint8_t           answer[GMI_HELLO_BYTES + GMI_PROOF_BYTES];
    good_hello(hellos.caller, 1);
    assert_int_equal(write(fd, hellos.caller, GMI_HELLO_BYTES), GMI_HELLO_BYTES);
    assert_status(step(s), GM_AGAIN);
    assert_int_equal(read(fd, answer, sizeof answer), sizeof answer);
    memcpy(hellos.answerer, answer, GMI_HELLO_BYTES);
    assert_true(gmi_secret_check(s->secret, false, &hellos, answer + GMI_HELLO_BYTES));
    assert_true(gmi_secret_prove(s->secret, true, &hellos, wire));
}

static void byte_by_byte_it_comes_to_the_same(void **state)
{
    (void)state;
    struct side s = { 0 };
    int         fds[2];
    uint8_t     hello[GMI_HELLO_BYTES], answer[GMI_HELLO_BYTES + GMI_PROOF_BYTES + 10], wire[GMI_PROOF_BYTES + 4] = { 0 };
    struct gmi_hellos hellos;
    make_pair(fds);
    open_side(&s, fds[1], false);
    good_hello(hello, 1);
    for (size_t i = 0; i < sizeof hello; i++) {
        assert_status(step(&s), GM_AGAIN);
        assert_int_equal(s.h.has_hello, false);
        assert_int_equal(write(fds[0], hello + i, 1), 1);
    }
    assert_status(step(&s), GM_AGAIN);
    assert_int_equal(read_all(fds[0], (char *)answer, sizeof answer), GMI_HELLO_BYTES + GMI_PROOF_BYTES);
    memcpy(hellos.caller, hello, sizeof hello);
    memcpy(hellos.answerer, answer, GMI_HELLO_BYTES);
    assert_true(gmi_secret_prove(NULL, true, &hellos, wire));
    for (size_t i = 0; i < sizeof wire; i++) {
        assert_status(step(&s), GM_AGAIN);
        assert_int_equal(s.n_judged, 0); /* nothing is judged that is not proven */
        assert_int_equal(s.h.is_proven, i >= GMI_PROOF_BYTES);
        assert_int_equal(write(fds[0], wire + i, 1), 1);
    }
    assert_ok(step(&s));
    assert_int_equal(s.n_judged, 1);
    assert_int_equal(read_all(fds[0], (char *)answer, sizeof answer), 4);
    close_side(&s);
    close(fds[0]);
}

static void nothing_behind_the_handshake_is_read(void **state)
{
    (void)state;
    struct side s = { 0 };
    int         fds[2];
    uint8_t     wire[GMI_PROOF_BYTES + 4 + 6] = { 0 };
    char        rest[10];
    make_pair(fds);
    open_side(&s, fds[1], false);
    prove_by_hand(&s, fds[0], wire);
    memcpy(wire + GMI_PROOF_BYTES + 4, "joined", 6);
    assert_int_equal(write(fds[0], wire, sizeof wire), sizeof wire);
    assert_ok(step(&s));
    assert_int_equal(read(s.h.fd, rest, sizeof rest), 6);
    assert_memory_equal(rest, "joined", 6);
    close_side(&s);
    close(fds[0]);
}

static void an_end_at_any_byte_is_a_lost_peer(void **state)
{
    (void)state;
    uint8_t hello[GMI_HELLO_BYTES];
    good_hello(hello, 1);
    for (size_t n = 0; n < GMI_HELLO_BYTES + GMI_PROOF_BYTES + 4; n++) {
        struct side s = { 0 };
        int         fds[2];
        uint8_t     wire[GMI_PROOF_BYTES + 4] = { 0 };
        make_pair(fds);
        open_side(&s, fds[1], false);
        if (n < GMI_HELLO_BYTES) {
            assert_int_equal(write(fds[0], hello, n), n);
        } else {
            prove_by_hand(&s, fds[0], wire);
            assert_int_equal(write(fds[0], wire, n - GMI_HELLO_BYTES), n - GMI_HELLO_BYTES);
        }
        close(fds[0]);
        for (int i = 0; i < 10 && s.status == GM_AGAIN; i++) step(&s);
        assert_status(s.status, GM_ERR_PEER_LOST);
        assert_contains(s.error.text, "closed the connection during the handshake");
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
        uint8_t     wire[GMI_PROOF_BYTES + 4 + 3];
        if (verdict > UINT16_MAX) break;
        make_pair(fds);
        open_side(&s, fds[1], false);
        prove_by_hand(&s, fds[0], wire);
        gmi_put_u16(wire + GMI_PROOF_BYTES, (uint16_t)verdict);
        gmi_put_u16(wire + GMI_PROOF_BYTES + 2, verdict == 0 ? 0 : 3);
        memcpy(wire + GMI_PROOF_BYTES + 4, "n\no", 3);
        assert_int_equal(write(fds[0], wire, sizeof wire - (verdict == 0 ? 3 : 0)), sizeof wire - (verdict == 0 ? 3 : 0));
        step(&s);
        if (verdict == 0) {
            assert_ok(s.status);
        } else {
            bool is_known = verdict > GM_AGAIN && verdict <= GM_ERR_NOMEM;
            assert_status(s.status, is_known ? (gm_status)verdict : GM_ERR_REFUSED);
            assert_contains(s.error.text, "refused the connection: n?o"); /* one line */
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
    static uint8_t wire[GMI_PROOF_BYTES + 4 + 65535];
    make_pair(fds);
    open_side(&s, fds[1], false);
    memset(wire, 'z', sizeof wire);
    prove_by_hand(&s, fds[0], wire);
    gmi_put_u16(wire + GMI_PROOF_BYTES, GM_ERR_REFUSED);
    gmi_put_u16(wire + GMI_PROOF_BYTES + 2, 65535);
    assert_int_equal(write(fds[0], wire, sizeof wire), sizeof wire);
    assert_status(step(&s), GM_ERR_REFUSED);
    assert_true(strlen(s.error.text) < sizeof s.error.text);
    close_side(&s);
    close(fds[0]);
}

/* ---- proofs -------------------------------------------------------------------------------------- */

static struct gmi_secret secret_of(const char *text)
{
    struct gmi_secret s = { 0 };
    assert_ok(gmi_secret_set(&s, text, strlen(text)));
    return s;
}

static void two_that_share_a_secret_agree_and_have_a_key_of_their_own(void **state)
{
    (void)state;
    struct gmi_secret secret = secret_of("the same on both sides");
    uint8_t           keys[4][GMI_LINK_KEY_BYTES];
    for (int i = 0; i < 2; i++) {
        struct side caller = { .secret = &secret }, answerer = { .secret = &secret };
        shake(&caller, &answerer);
        assert_ok(caller.status);
        assert_ok(answerer.status);
        assert_true(gmi_handshake_link_key(&caller.h, keys[2 * i]) && gmi_handshake_link_key(&answerer.h, keys[2 * i + 1]));
        assert_memory_equal(keys[2 * i], keys[2 * i + 1], GMI_LINK_KEY_BYTES);
        close_side(&caller);
        close_side(&answerer);
    }
    assert_memory_not_equal(keys[0], keys[2], GMI_LINK_KEY_BYTES);
}

static void one_sentence_says_on_both_sides_that_secrets_differ(void **state)
{
    (void)state;
    struct gmi_secret right = secret_of("the secret of this job"), wrong = secret_of("the secret of that job");
    const struct {
        const struct gmi_secret *caller, *answerer;
        const char              *caller_says, *answerer_says;
    } cases[] = {
        { &wrong, &right, "does not know this job's secret", "does not know this job's secret" },
        { NULL, &right, "its job has a secret, and there is none here: set GRADMESH_SECRET_FILE",
          "it has no secret, and this job has one" },
        { &right, NULL, "it has no secret, and this job has one", "its job has a secret, and there is none here" },
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        struct side caller = { .secret = cases[i].caller }, answerer = { .secret = cases[i].answerer };
        shake(&caller, &answerer);
        assert_status(caller.status, GM_ERR_REFUSED);
        assert_status(answerer.status, GM_ERR_REFUSED);
        assert_contains(caller.error.text, cases[i].caller_says);
        assert_contains(answerer.error.text, cases[i].answerer_says);
        assert_false(answerer.h.is_proven);
        assert_int_equal(answerer.n_judged, 0);
        close_side(&caller);
        close_side(&answerer);
    }
}

/* A caller that has reached another job may look again; which one it is it says itself. */
static void of_another_job_with_another_secret_the_caller_judges_by_its_hello(void **state)
{
    (void)state;
    struct gmi_secret right = secret_of("the secret of this job"), wrong = secret_of("the secret of that job");
    struct side caller = { .secret = &wrong, .verdict = GM_ERR_STATE, .why = "expected rank 0 of job 'a'" };
    struct side answerer = { .secret = &right };
    shake(&caller, &answerer);
    assert_status(caller.status, GM_ERR_STATE);
    assert_status(answerer.status, GM_ERR_REFUSED);
    assert_contains(caller.error.text, "expected rank 0 of job 'a'");
    close_side(&caller);
    close_side(&answerer);
}

/* What was good once is not good again: the answerer's nonce is another one. */
static void a_recorded_handshake_is_refused(void **state)
{
    (void)state;
    struct gmi_secret secret = secret_of("the same on both sides");
    uint8_t           record[GMI_HELLO_BYTES + GMI_PROOF_BYTES + 4];
    struct side       first = { .secret = &secret }, again = { .secret = &secret };
    int               fds[2];
    make_pair(fds);
    open_side(&first, fds[1], false);
    struct gmi_hello  own = hello_of(1);
    struct gmi_hellos hellos;
    own.version = GMI_PROTOCOL_VERSION;
    own.flags = GMI_HELLO_HAS_SECRET;
    gmi_hello_encode(&own, hellos.caller);
    assert_int_equal(write(fds[0], hellos.caller, GMI_HELLO_BYTES), GMI_HELLO_BYTES);
    assert_status(step(&first), GM_AGAIN);
    assert_int_equal(read(fds[0], record, GMI_HELLO_BYTES + GMI_PROOF_BYTES), GMI_HELLO_BYTES + GMI_PROOF_BYTES);
    memcpy(hellos.answerer, record, GMI_HELLO_BYTES);
    memcpy(record, hellos.caller, GMI_HELLO_BYTES);
    assert_true(gmi_secret_prove(&secret, true, &hellos, record + GMI_HELLO_BYTES));
    memset(record + GMI_HELLO_BYTES + GMI_PROOF_BYTES, 0, 4);
    assert_int_equal(write(fds[0], record + GMI_HELLO_BYTES, GMI_PROOF_BYTES + 4), GMI_PROOF_BYTES + 4);
    assert_ok(step(&first));
    close_side(&first);
    close(fds[0]);
    make_pair(fds);
    open_side(&again, fds[1], false);
    assert_int_equal(write(fds[0], record, sizeof record), sizeof record);
    assert_status(step(&again), GM_ERR_REFUSED);
    assert_int_equal(again.n_judged, 0);
    close_side(&again);
    close(fds[0]);
}

/* Somebody without the secret sends our own proof back to us, in a connection of his. */
static void our_own_proof_does_not_prove_the_peer(void **state)
{
    (void)state;
    struct gmi_secret secret = secret_of("the same on both sides");
    struct side       s = { .secret = &secret };
    uint8_t           answer[GMI_HELLO_BYTES + GMI_PROOF_BYTES], hello[GMI_HELLO_BYTES];
    int               fds[2];
    make_pair(fds);
    open_side(&s, fds[1], false);
    good_hello(hello, 1);
    hello[11] = GMI_HELLO_HAS_SECRET;
    assert_int_equal(write(fds[0], hello, sizeof hello), sizeof hello);
    assert_status(step(&s), GM_AGAIN);
    assert_int_equal(read(fds[0], answer, sizeof answer), sizeof answer);
    assert_int_equal(write(fds[0], answer + GMI_HELLO_BYTES, GMI_PROOF_BYTES), GMI_PROOF_BYTES);
    assert_status(step(&s), GM_ERR_REFUSED);
    close_side(&s);
    close(fds[0]);
}

/* Rank, target, channel, job: whatever of a hello is changed under way, the proof is wrong. */
static void a_proof_is_good_for_its_hellos_only(void **state)
{
    (void)state;
    struct gmi_secret secret = secret_of("the same on both sides");
    struct gmi_hellos hellos;
    uint8_t           proof[GMI_PROOF_BYTES];
    good_hello(hellos.caller, 1);
    good_hello(hellos.answerer, 0);
    assert_true(gmi_secret_prove(&secret, true, &hellos, proof));
    assert_true(gmi_secret_check(&secret, true, &hellos, proof));
    assert_false(gmi_secret_check(&secret, false, &hellos, proof));
    assert_false(gmi_secret_check(NULL, true, &hellos, proof));
    for (size_t i = 0; i < sizeof hellos; i++) {
        uint8_t *byte = i < GMI_HELLO_BYTES ? &hellos.caller[i] : &hellos.answerer[i - GMI_HELLO_BYTES];
        *byte ^= 1;
        assert_false(gmi_secret_check(&secret, true, &hellos, proof));
        *byte ^= 1;
    }
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
        for (int k = 0; k < 10 && s.status == GM_AGAIN; k++) step(&s);
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
        assert_status(step(&s), GM_AGAIN);
        s.h.deadline_ns = gmi_now_ns() - 1;
        step(&s);
        assert_status(s.status, GM_ERR_TIMEOUT);
        assert_contains(s.error.text, "did not finish the handshake in time");
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
    assert_status(step(&s), GM_AGAIN);
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
        cmocka_unit_test(what_follows_is_encrypted_if_either_side_wants_it),
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
        cmocka_unit_test(two_that_share_a_secret_agree_and_have_a_key_of_their_own),
        cmocka_unit_test(one_sentence_says_on_both_sides_that_secrets_differ),
        cmocka_unit_test(of_another_job_with_another_secret_the_caller_judges_by_its_hello),
        cmocka_unit_test(a_recorded_handshake_is_refused),
        cmocka_unit_test(our_own_proof_does_not_prove_the_peer),
        cmocka_unit_test(a_proof_is_good_for_its_hellos_only),
        cmocka_unit_test(random_bytes_end_it_or_wait),
        cmocka_unit_test(silence_ends_at_the_deadline),
        cmocka_unit_test(it_waits_for_what_it_needs_next),
    };
    return cmocka_run_group_tests_name("handshake", tests, NULL, NULL);
}
