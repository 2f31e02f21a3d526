/* An encrypted connection whose cipher finds no memory, at each place where it asks for some: that is a fault of this
 * rank's own, and the peer is never accused of it. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tls.h"
#include "net/tls_key.h"
#include "tests/support/test.h"

enum { N_BYTES = 60000, N_RECORDS = 2, SIDES = 2 };

static const uint8_t key[GMI_TLS_KEY_BYTES] = "both have this";
static uint8_t       stream[N_BYTES], got[N_BYTES];
static bool          is_counting;  /* allocations of the side under test */
static long          n_left;       /* so many more succeed */
static bool          has_refused;
static long          n_lives, n_misjudged;

static bool refuses(void)
{
    if (!is_counting || n_left-- != 0) return false;
    has_refused = true;
    return true;
}

static void *give(size_t n, const char *file, int line)
{
    (void)file, (void)line;
    return refuses() ? NULL : malloc(n);
}

static void *give_more(void *old, size_t n, const char *file, int line)
{
    (void)file, (void)line;
    return refuses() ? NULL : realloc(old, n);
}

static void take_back(void *old, const char *file, int line)
{
    (void)file, (void)line;
    free(old);
}

struct both {
    int            fds[SIDES];
    struct gmi_tls *tls[SIDES]; /* the first one is under test */
    gm_status      status[SIDES];
    int            sys_errno[SIDES];
};

static bool goes_on(const struct both *b, int side) { return b->status[side] == GM_OK || b->status[side] == GM_AGAIN; }

static void shake(struct both *b)
{
    for (int i = 0; i < 20 && goes_on(b, 0) && goes_on(b, 1); i++) {
        int side = i % SIDES;
        is_counting = side == 0;
        b->status[side] = gmi_tls_shake(b->tls[side], &b->sys_errno[side]);
        is_counting = false;
    }
}

static void send_across(struct both *b, int from)
{
    size_t n_sent = 0, n_got = 0, moved;
    int    to = 1 - from;
    while (n_got < N_BYTES && goes_on(b, 0) && goes_on(b, 1)) {
        struct iovec out = { stream + n_sent, N_BYTES - n_sent }, in = { got + n_got, N_BYTES - n_got };
        is_counting = from == 0;
        b->status[from] = n_sent < N_BYTES ? gmi_tls_send_some(b->tls[from], &out, 1, &moved, &b->sys_errno[from]) : GM_OK;
        if (b->status[from] == GM_OK && n_sent < N_BYTES) n_sent += moved;
        is_counting = to == 0;
        b->status[to] = gmi_tls_recv_some(b->tls[to], &in, 1, &moved, &b->sys_errno[to]);
        is_counting = false;
        n_got += moved;
    }
    if (n_got == N_BYTES) assert_memory_equal(stream, got, N_BYTES);
}

static void fails_for_good(struct both *b)
{
    for (int i = 0; i < 2; i++) {
        struct iovec part = { got, sizeof got };
        size_t       moved;
        assert_status(b->status[0], GM_ERR_PEER_LOST); /* as a socket says it */
        assert_int_equal(b->sys_errno[0], ENOMEM);
        b->sys_errno[0] = 0;
        b->status[0] = gmi_tls_recv_some(b->tls[0], &part, 1, &moved, &b->sys_errno[0]);
    }
}

/* All of a connection's life, with the n-th allocation refused. Returns whether there was one. */
static bool live(bool is_client, long n)
{
    struct both b = { .status = { GM_OK, GM_OK } };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b.fds), 0);
    has_refused = false;
    n_left = n;
    is_counting = true;
    b.tls[0] = gmi_tls_create(b.fds[0], is_client, key, N_RECORDS);
    is_counting = false;
    assert_non_null(b.tls[1] = gmi_tls_create(b.fds[1], !is_client, key, N_RECORDS));
    if (b.tls[0] != NULL) shake(&b);
    for (int from = 0; b.tls[0] != NULL && from < SIDES; from++) send_across(&b, from);
    n_lives++;
    if (b.tls[0] != NULL && b.status[0] == GM_ERR_PROTOCOL) {
        n_misjudged++;
    } else {
        if (b.tls[0] != NULL && !goes_on(&b, 0)) fails_for_good(&b);
        assert_true(goes_on(&b, 1)); /* nobody accuses us of anything */
    }
    for (int i = 0; i < SIDES; i++) {
        gmi_tls_destroy(b.tls[i]);
        close(b.fds[i]);
    }
    return has_refused;
}

static void no_memory_is_our_own_fault(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stream; i++) stream[i] = (uint8_t)(i * 7);
    for (int is_client = 0; is_client <= 1; is_client++) {
        long n = 0;
        (void)live(is_client, -1); /* what OpenSSL makes once is made */
        while (live(is_client, n)) n++;
        print_message("as a %s: %ld allocations refused, one after the other\n", is_client ? "client" : "server", n);
        assert_true(n > 100);
    }
    print_message("%ld of %ld taken for faults of the peer\n", n_misjudged, n_lives);
    assert_true(n_misjudged * 50 < n_lives); /* for some OpenSSL gives another reason: 13 of 2,305 in 3.0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_memory_is_our_own_fault) };
    if (CRYPTO_set_mem_functions(give, give_more, take_back) != 1) return 1;
    return cmocka_run_group_tests_name("tls_memory", tests, NULL, NULL);
}
