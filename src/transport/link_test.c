/* link_test.c - the contract of link.h, kept by every kind of link; and what each kind has of its own. */
#include "transport/link.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/poller.h"
#include "net/socket.h"
#include "tests/support/test.h"
#include "transport/shm_segment.h"

enum { STREAM_BYTES = 50000, PATIENCE_MS = 10000 };

/* ---- making pairs -------------------------------------------------------------------------------- */

typedef void (*make_pair_fn)(struct gmi_link *ends[2]);

static void make_memory(struct gmi_link *ends[2]) { assert_ok(gmi_link_mem_pair(ends, 1000)); }

static void make_socketpair(struct gmi_link *ends[2])
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    for (int i = 0; i < 2; i++) assert_non_null(ends[i] = gmi_link_tcp_create(fds[i]));
}

static void make_encrypted(struct gmi_link *ends[2])
{
    static const uint8_t key[GMI_TLS_KEY_BYTES] = "both have this";
    int                  fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    for (int i = 0; i < 2; i++) assert_non_null(ends[i] = gmi_link_tls_create(fds[i], i == 0, key));
    gm_status client = GM_AGAIN, server = GM_AGAIN;
    while (client == GM_AGAIN || server == GM_AGAIN) {
        if (client == GM_AGAIN) client = gmi_link_tls_shake(ends[0]);
        if (server == GM_AGAIN) server = gmi_link_tls_shake(ends[1]);
    }
    assert_ok(client);
    assert_ok(server);
}

static void make_tcp(struct gmi_link *ends[2])
{
    struct gmi_address_list local;
    struct gmi_address      bound;
    int                     listener, fd, accepted, sys_errno = 0;
    assert_ok(gmi_address_resolve(&local, "127.0.0.1", 0, NULL));
    assert_ok(gmi_socket_listen(&listener, &local.addresses[0], NULL));
    assert_ok(gmi_socket_own_address(listener, &bound));
    gm_status status = gmi_socket_connect_start(&fd, &bound, NULL, &sys_errno);
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    gmi_poller_add(&poller, listener, GMI_READABLE);
    assert_ok(gmi_poller_wait(&poller, INT64_MAX));
    gmi_poller_clear(&poller);
    while (status == GM_AGAIN) {
        gmi_poller_add(&poller, fd, GMI_WRITABLE);
        assert_ok(gmi_poller_wait(&poller, INT64_MAX));
        status = gmi_socket_connect_finish(fd, &sys_errno);
    }
    assert_ok(status);
    gmi_poller_fini(&poller);
    assert_ok(gmi_socket_accept(listener, &accepted, &sys_errno));
    gmi_socket_close(&listener);
    assert_non_null(ends[0] = gmi_link_tcp_create(fd));
    assert_non_null(ends[1] = gmi_link_tcp_create(accepted));
}

static void make_shared(struct gmi_link *ends[2])
{
    struct gmi_shm_segment segments[2];
    int                    memory, lifelines[2], sys_errno;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, lifelines), 0);
    assert_ok(gmi_shm_segment_create(&segments[0], GMI_SHM_MIN_CAPACITY_BYTES, &memory, &sys_errno));
    assert_ok(gmi_shm_segment_map(&segments[1], GMI_SHM_MIN_CAPACITY_BYTES, memory, &sys_errno));
    close(memory);
    int bells[2] = { eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK) };
    int copies[2] = { dup(bells[0]), dup(bells[1]) };
    assert_non_null(ends[0] = gmi_link_shm_create(lifelines[0], &segments[0], 0, bells));
    assert_non_null(ends[1] = gmi_link_shm_create(lifelines[1], &segments[1], 1, copies));
}

static void make_faulty(struct gmi_link *ends[2])
{
    struct gmi_fault_plan plan = { .seed = 3, .max_move_bytes = 700, .delay_probability = 0.3 };
    make_memory(ends);
    for (int i = 0; i < 2; i++) assert_non_null(ends[i] = gmi_link_fault_wrap(ends[i], &plan));
}

static void make_checked(struct gmi_link *ends[2])
{
    struct gmi_fault_plan plan = { .seed = 3, .max_move_bytes = 700, .delay_probability = 0.3 };
    make_memory(ends);
    for (int i = 0; i < 2; i++) {
        assert_non_null(ends[i] = gmi_link_fault_wrap(ends[i], &plan));
        assert_non_null(ends[i] = gmi_link_checked_wrap(ends[i]));
    }
}

static void make_checked_shared(struct gmi_link *ends[2])
{
    make_shared(ends);
    for (int i = 0; i < 2; i++) assert_non_null(ends[i] = gmi_link_checked_wrap(ends[i]));
}

static void make_checked_tcp(struct gmi_link *ends[2])
{
    make_tcp(ends);
    for (int i = 0; i < 2; i++) assert_non_null(ends[i] = gmi_link_checked_wrap(ends[i]));
}

/* ---- the contract -------------------------------------------------------------------------------- */

/* 1 .. 3 parts of what is to be moved, none empty. */
static int cut_into_parts(struct gmi_rng *rng, uint8_t *bytes, size_t n_bytes, struct iovec parts[3])
{
    int n = 0;
    while (n < 2 && n_bytes > 1) {
        size_t part = 1 + (size_t)gmi_rng_next_below(rng, n_bytes - 1);
        parts[n++] = (struct iovec){ bytes, part };
        bytes += part;
        n_bytes -= part;
    }
    if (n_bytes > 0) parts[n++] = (struct iovec){ bytes, n_bytes };
    return n;
}

/* The first bytes of what the link lends, into the parts. */
static gm_status recv_lent(struct gmi_link *link, const struct iovec *parts, size_t *moved)
{
    const uint8_t *lent;
    gm_status      status = gmi_link_peek(link, &lent, moved);
    if (status != GM_OK) return status;
    assert_true(*moved > 0);
    if (*moved > parts[0].iov_len) *moved = parts[0].iov_len;
    memcpy(parts[0].iov_base, lent, *moved);
    gmi_link_consume(link, *moved);
    return GM_OK;
}

static gm_status recv_either_way(struct gmi_link *link, struct gmi_rng *rng, const struct iovec *parts, int n, size_t *moved)
{
    bool is_lent = gmi_link_lends(link) && gmi_rng_next_below(rng, 2);
    return is_lent ? recv_lent(link, parts, moved) : gmi_link_recv_some(link, parts, n, moved);
}

static void bytes_arrive_in_order_both_ways_at_once(void **state)
{
    static uint8_t  out[2][STREAM_BYTES], in[2][STREAM_BYTES];
    struct gmi_link *ends[2];
    struct gmi_rng   rng = { .key = 12 };
    size_t           sent[2] = { 0 }, got[2] = { 0 };
    (*(make_pair_fn *)*state)(ends);
    for (int e = 0; e < 2; e++) {
        for (size_t i = 0; i < STREAM_BYTES; i++) out[e][i] = (uint8_t)gmi_rng_u64((uint64_t)e, i);
    }
    while (got[0] < STREAM_BYTES || got[1] < STREAM_BYTES) {
        int          e = (int)gmi_rng_next_below(&rng, 2);
        bool         is_sending = gmi_rng_next_below(&rng, 2);
        uint8_t     *bytes = is_sending ? out[e] + sent[e] : in[e] + got[e];
        size_t       left = STREAM_BYTES - (is_sending ? sent[e] : got[e]), moved = 12345;
        struct iovec parts[3];
        if (left == 0) continue;
        int       n = cut_into_parts(&rng, bytes, 1 + (size_t)gmi_rng_next_below(&rng, left), parts);
        gm_status status = is_sending ? gmi_link_send_some(ends[e], parts, n, &moved)
                                      : recv_either_way(ends[e], &rng, parts, n, &moved);
        assert_true(status == GM_OK ? moved > 0 : status == GM_AGAIN && moved == 0);
        *(is_sending ? &sent[e] : &got[e]) += moved;
    }
    assert_memory_equal(out[0], in[1], STREAM_BYTES);
    assert_memory_equal(out[1], in[0], STREAM_BYTES);
    for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
}

static gm_status recv_one(struct gmi_link *link, uint8_t *byte)
{
    struct iovec   part = { byte, 1 };
    struct gmi_rng rng = { .key = 5 };
    size_t         moved;
    gm_status      status;
    int64_t        deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    do { /* a faulty link says "later" now and then, and the kernel may need a moment */
        status = recv_either_way(link, &rng, &part, 1, &moved);
    } while (status == GM_AGAIN && !gmi_deadline_passed(deadline_ns));
    return status;
}

static void what_was_sent_before_the_end_is_read_before_the_end(void **state)
{
    struct gmi_link *ends[2];
    uint8_t          bytes[3] = { 7, 8, 9 }, byte;
    size_t           sent = 0;
    (*(make_pair_fn *)*state)(ends);
    while (sent < sizeof bytes) {
        struct iovec part = { bytes + sent, sizeof bytes - sent };
        size_t       moved;
        gm_status    status = gmi_link_send_some(ends[0], &part, 1, &moved);
        assert_true(status == GM_OK || status == GM_AGAIN);
        sent += moved;
    }
    gmi_link_finish(ends[0]);
    for (int i = 0; i < 3; i++) {
        assert_ok(recv_one(ends[1], &byte));
        assert_int_equal(byte, 7 + i);
    }
    assert_status(recv_one(ends[1], &byte), GM_ERR_PEER_LOST);
    assert_int_equal(ends[1]->sys_errno, 0);
    /* Half a stream goes on in the other direction. */
    struct iovec part = { bytes, 1 };
    size_t       moved = 0;
    while (moved == 0) (void)gmi_link_send_some(ends[1], &part, 1, &moved);
    assert_ok(recv_one(ends[0], &byte));
    for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
}

static void a_peer_that_closes_is_lost_for_both_directions(void **state)
{
    struct gmi_link *ends[2];
    uint8_t          byte = 1;
    struct iovec     part = { &byte, 1 };
    size_t           moved;
    gm_status        status = GM_AGAIN;
    (*(make_pair_fn *)*state)(ends);
    gmi_link_close(ends[1]);
    assert_status(recv_one(ends[0], &byte), GM_ERR_PEER_LOST);
    int64_t deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    while (status != GM_ERR_PEER_LOST && !gmi_deadline_passed(deadline_ns)) {
        status = gmi_link_send_some(ends[0], &part, 1, &moved);
    }
    assert_status(status, GM_ERR_PEER_LOST);
    assert_int_equal(moved, 0);
    gmi_link_close(ends[0]);
    gmi_link_close(NULL);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void a_memory_link_holds_its_capacity_and_no_more(void **state)
{
    (void)state;
    for (size_t capacity = 1; capacity < 20; capacity++) {
        struct gmi_link *ends[2];
        uint8_t          bytes[64] = { 0 };
        struct iovec     part = { bytes, sizeof bytes };
        size_t           moved;
        assert_ok(gmi_link_mem_pair(ends, capacity));
        assert_ok(gmi_link_send_some(ends[0], &part, 1, &moved));
        assert_int_equal(moved, capacity);
        assert_status(gmi_link_send_some(ends[0], &part, 1, &moved), GM_AGAIN);
        assert_ok(gmi_link_recv_some(ends[1], &part, 1, &moved));
        assert_int_equal(moved, capacity);
        assert_status(gmi_link_recv_some(ends[1], &part, 1, &moved), GM_AGAIN);
        gmi_link_close(ends[1]);
        gmi_link_close(ends[0]);
    }
}

/* ---- faults -------------------------------------------------------------------------------------- */

static size_t moves_until_cut(struct gmi_link *link, bool is_sending)
{
    uint8_t   bytes[100];
    size_t    total = 0, moved;
    gm_status status;
    do {
        struct iovec part = { bytes, sizeof bytes };
        status = is_sending ? gmi_link_send_some(link, &part, 1, &moved) : gmi_link_recv_some(link, &part, 1, &moved);
        total += moved;
    } while (status == GM_OK);
    assert_status(status, GM_ERR_PEER_LOST);
    assert_int_equal(link->sys_errno, ECONNRESET);
    return total;
}

static void a_link_is_cut_at_the_byte(void **state)
{
    (void)state;
    for (uint64_t at = 1; at < 300; at += 7) {
        struct gmi_link *ends[2];
        uint8_t          byte;
        for (int is_sending = 0; is_sending < 2; is_sending++) {
            struct gmi_fault_plan plan = { .seed = at };
            if (is_sending) {
                plan.cut_after_sent_bytes = at;
            } else {
                plan.cut_after_recv_bytes = at;
            }
            assert_ok(gmi_link_mem_pair(ends, 1000));
            uint8_t      some[400] = { 0 };
            struct iovec part = { some, sizeof some };
            size_t       moved;
            if (!is_sending) assert_ok(gmi_link_send_some(ends[1], &part, 1, &moved));
            assert_non_null(ends[0] = gmi_link_fault_wrap(ends[0], &plan));
            assert_int_equal(moves_until_cut(ends[0], is_sending), at);
            for (uint64_t i = 0; is_sending && i < at; i++) assert_ok(recv_one(ends[1], &byte));
            assert_status(recv_one(ends[1], &byte), GM_ERR_PEER_LOST);
            for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
        }
    }
}

static void faults_are_a_function_of_the_seed(void **state)
{
    (void)state;
    size_t runs[3][100];
    for (int run = 0; run < 3; run++) {
        struct gmi_fault_plan plan = { .seed = run == 2 ? 9 : 8, .max_move_bytes = 50, .delay_probability = 0.2 };
        struct gmi_link      *ends[2];
        uint8_t               bytes[64] = { 0 };
        assert_ok(gmi_link_mem_pair(ends, 100000));
        assert_non_null(ends[0] = gmi_link_fault_wrap(ends[0], &plan));
        for (int i = 0; i < 100; i++) {
            struct iovec part = { bytes, sizeof bytes };
            gmi_link_send_some(ends[0], &part, 1, &runs[run][i]);
            assert_true(runs[run][i] <= 50);
        }
        for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
    }
    assert_memory_equal(runs[0], runs[1], sizeof runs[0]);
    assert_memory_not_equal(runs[0], runs[2], sizeof runs[0]);
}

/* ---- checksums ------------------------------------------------------------------------------------ */

enum { CHECKED_BYTES = 90000 }; /* a whole block and a part of one */

/* What arrives until there is no more, and what came last. */
static size_t receive_all(struct gmi_link *link, uint8_t *into, size_t space_bytes, struct gmi_rng *rng, gm_status *last)
{
    size_t got = 0, moved;
    do {
        struct iovec part = { into + got, space_bytes - got };
        *last = part.iov_len == 0 ? GM_AGAIN : recv_either_way(link, rng, &part, 1, &moved);
        if (*last == GM_OK) got += moved;
    } while (*last == GM_OK);
    return got;
}

static void send_all(struct gmi_link *link, uint8_t *bytes, size_t n_bytes)
{
    for (size_t sent = 0, moved; sent < n_bytes; sent += moved) {
        struct iovec part = { bytes + sent, n_bytes - sent };
        assert_ok(gmi_link_send_some(link, &part, 1, &moved));
    }
}

static void no_changed_bit_is_handed_on(void **state)
{
    static uint8_t out[CHECKED_BYTES], in[CHECKED_BYTES];
    struct gmi_rng rng = { .key = 77 };
    const uint64_t wire_bits = (CHECKED_BYTES + 2 * 16) * 8, n_rounds = 400;
    (void)state;
    for (size_t i = 0; i < sizeof out; i++) out[i] = (uint8_t)gmi_rng_next(&rng);
    for (uint64_t round = 0; round < n_rounds; round++) {
        struct gmi_link      *ends[2];
        struct gmi_fault_plan plan = { .seed = round, .max_move_bytes = round % 2 ? 5000 : 0 };
        plan.flipped_recv_bit = 1 + (round < 128 ? round : gmi_rng_next_below(&rng, wire_bits)); /* each of a head's bits */
        gm_status last;
        assert_ok(gmi_link_mem_pair(ends, 2 * CHECKED_BYTES));
        assert_non_null(ends[0] = gmi_link_checked_wrap(ends[0]));
        assert_non_null(ends[1] = gmi_link_checked_wrap(gmi_link_fault_wrap(ends[1], &plan)));
        send_all(ends[0], out, sizeof out);
        size_t got = receive_all(ends[1], in, sizeof in, &rng, &last);
        assert_status(last, GM_ERR_CORRUPT); /* nor does a longer length make it wait for more */
        assert_true(got < sizeof out);
        assert_memory_equal(in, out, got);
        for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
    }
}

static void checksums_are_counted_as_overhead(void **state)
{
    static uint8_t   bytes[CHECKED_BYTES];
    struct gmi_link *ends[2];
    struct gmi_rng   rng = { .key = 1 };
    uint64_t         sent, recv;
    gm_status        last;
    (void)state;
    assert_ok(gmi_link_mem_pair(ends, 2 * CHECKED_BYTES));
    for (int e = 0; e < 2; e++) assert_non_null(ends[e] = gmi_link_checked_wrap(ends[e]));
    send_all(ends[0], bytes, sizeof bytes);
    assert_int_equal(receive_all(ends[1], bytes, sizeof bytes, &rng, &last), sizeof bytes);
    ends[0]->ops->overhead(ends[0], &sent, &recv);
    assert_true(sent == 32 && recv == 0);
    ends[1]->ops->overhead(ends[1], &sent, &recv);
    assert_true(sent == 0 && recv == 32);
    for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
}

/* ---- tcp ----------------------------------------------------------------------------------------- */

static void the_kernel_counts_what_passed(void **state)
{
    (void)state;
    struct gmi_link *ends[2];
    uint8_t          bytes[1000] = { 0 };
    uint64_t         sent, recv;
    make_tcp(ends);
    for (int i = 0; i < 5; i++) {
        struct iovec part = { bytes, sizeof bytes };
        size_t       moved, got = 0;
        assert_ok(gmi_link_send_some(ends[0], &part, 1, &moved));
        assert_int_equal(moved, sizeof bytes);
        while (got < sizeof bytes) {
            part = (struct iovec){ bytes + got, sizeof bytes - got };
            gm_status status = gmi_link_recv_some(ends[1], &part, 1, &moved);
            assert_true(status == GM_OK || status == GM_AGAIN);
            got += moved;
        }
    }
    gm_status status;
    while ((status = ends[0]->ops->kernel_counts(ends[0], &sent, &recv)) == GM_AGAIN) usleep(100); /* acknowledged soon */
    if (status == GM_ERR_UNSUPPORTED) skip();
    assert_ok(status);
    assert_int_equal(sent, 5000);
    assert_int_equal(recv, 0);
    gmi_link_finish(ends[0]); /* the end of a stream is no byte */
    uint8_t byte;
    assert_status(recv_one(ends[1], &byte), GM_ERR_PEER_LOST);
    assert_ok(ends[1]->ops->kernel_counts(ends[1], &sent, &recv));
    assert_int_equal(sent, 0);
    assert_int_equal(recv, 5000);
    for (int e = 0; e < 2; e++) gmi_link_close(ends[e]);
}

static void transports_are_found_by_name(void **state)
{
    (void)state;
    assert_string_equal(gmi_transport_find("tcp")->name, "tcp");
    assert_non_null(gmi_transport_find("auto"));
    assert_string_equal(gmi_transport_find("shm")->name, "shm");
    assert_null(gmi_transport_find("carrier pigeon"));
    assert_null(gmi_transport_find(""));
}

static make_pair_fn memory = make_memory, faulty = make_faulty, over_socketpair = make_socketpair, tcp = make_tcp,
                    shared = make_shared, encrypted = make_encrypted, checked = make_checked, checked_shared = make_checked_shared,
                    checked_tcp = make_checked_tcp;

#define FOR_EACH_KIND(test)                                                                       \
    { "memory: " #test, test, NULL, NULL, &memory }, { "faulty: " #test, test, NULL, NULL, &faulty },   \
        { "socketpair: " #test, test, NULL, NULL, &over_socketpair }, { "tcp: " #test, test, NULL, NULL, &tcp },       \
        { "shared: " #test, test, NULL, NULL, &shared }, { "encrypted: " #test, test, NULL, NULL, &encrypted },       \
        { "checked: " #test, test, NULL, NULL, &checked }, { "checked, shared: " #test, test, NULL, NULL, &checked_shared },  \
        { "checked, tcp: " #test, test, NULL, NULL, &checked_tcp }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOR_EACH_KIND(bytes_arrive_in_order_both_ways_at_once),
        FOR_EACH_KIND(what_was_sent_before_the_end_is_read_before_the_end),
        FOR_EACH_KIND(a_peer_that_closes_is_lost_for_both_directions),
        cmocka_unit_test(a_memory_link_holds_its_capacity_and_no_more),
        cmocka_unit_test(a_link_is_cut_at_the_byte),
        cmocka_unit_test(faults_are_a_function_of_the_seed),
        cmocka_unit_test(no_changed_bit_is_handed_on),
        cmocka_unit_test(checksums_are_counted_as_overhead),
        cmocka_unit_test(the_kernel_counts_what_passed),
        cmocka_unit_test(transports_are_found_by_name),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
