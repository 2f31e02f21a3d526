#include "coll/port.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "coll/algo.h"
#include "tests/support/guard.h"
#include "tests/support/test.h"

enum { PIECE_BYTES = 16, TRANSFER_BYTES = 40, LINK_BYTES = 4096 };

/* One port with a running op, and the bare other end of its link. */
struct fixture {
    struct gmi_op    op;
    struct gmi_port  port;
    struct gmi_link *ends[2];
    struct guard     data;
};

static struct gmi_descriptor some_call(void)
{
    return (struct gmi_descriptor){ .collective = GM_ALL_REDUCE, .algorithm = GMI_ALGO_RING, .dtype = GM_F32,
                                    .redop = GM_SUM, .root = -1, .epoch = 2, .group = 99, .seq = UINT64_C(0x300000007),
                                    .count_elems = 10, .piece_bytes = PIECE_BYTES, .rank = 1, .arrival_ns = 12345 };
}

static void open_fixture(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    assert_ok(gmi_link_mem_pair(f->ends, LINK_BYTES));
    f->op.call = some_call();
    f->op.call.rank = 0;
    f->op.algo = gmi_algo_row(0);
    f->op.waits_for_recv = f->op.waits_for_send = -1;
    f->port = (struct gmi_port){ .link = f->ends[0], .peer = 1 };
    guard_make(&f->data, TRANSFER_BYTES);
    gmi_port_begin(&f->port, &f->op);
}

static void close_fixture(struct fixture *f)
{
    guard_check(&f->data);
    guard_fini(&f->data);
    gmi_link_close(f->ends[0]);
    gmi_link_close(f->ends[1]);
}

/* What the peer of the fixture sends for one transfer: descriptor and pieces of 1, 2, 3, ... Returns bytes. */
static size_t peer_bytes(uint8_t *wire)
{
    struct gmi_descriptor call = some_call();
    size_t                used = GMI_DESCRIPTOR_BYTES;
    gmi_descriptor_encode(&call, wire);
    for (size_t at = 0; at < TRANSFER_BYTES;) {
        size_t piece = gmi_min_size(PIECE_BYTES, TRANSFER_BYTES - at);
        gmi_put_u32(wire + used, (uint32_t)piece);
        gmi_put_u32(wire + used + 4, (uint32_t)call.seq);
        used += GMI_PIECE_HEADER_BYTES;
        for (size_t i = 0; i < piece; i++) wire[used++] = (uint8_t)(1 + at++);
    }
    return used;
}

static void peer_sends(struct fixture *f, const uint8_t *wire, size_t n_bytes)
{
    struct iovec part = { (void *)wire, n_bytes };
    size_t       moved;
    if (n_bytes == 0) return;
    assert_ok(gmi_link_send_some(f->ends[1], &part, 1, &moved));
    assert_int_equal(moved, n_bytes);
}

/* Receives the transfer as far as it goes. */
static gm_status receive(struct fixture *f, size_t *got_bytes)
{
    *got_bytes = 0;
    for (int i = 0; i < 100 && *got_bytes < TRANSFER_BYTES; i++) {
        size_t    moved, left = TRANSFER_BYTES - *got_bytes;
        gm_status status = gmi_port_recv_some(&f->port, f->data.bytes + *got_bytes, left, left, &moved);
        if (status != GM_OK) {
            assert_int_equal(moved, 0);
            return status;
        }
        *got_bytes += moved;
    }
    return GM_OK;
}

/* ---- receiving ----------------------------------------------------------------------------------- */

static void takes_the_framing_away(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t        wire[LINK_BYTES];
    size_t         got, n_bytes = peer_bytes(wire);
    open_fixture(&f);
    peer_sends(&f, wire, n_bytes);
    assert_ok(receive(&f, &got));
    assert_int_equal(got, TRANSFER_BYTES);
    for (size_t i = 0; i < TRANSFER_BYTES; i++) assert_int_equal(f.data.bytes[i], i + 1);
    assert_true(f.port.is_descriptor_matched);
    assert_int_equal(f.port.peer_arrival_ns, 12345);
    assert_int_equal(f.op.traffic.payload_recv_bytes, TRANSFER_BYTES);
    assert_int_equal(f.op.traffic.protocol_recv_bytes, n_bytes - TRANSFER_BYTES);
    assert_int_equal(f.op.moved_bytes, n_bytes);
    close_fixture(&f);
}

static void reads_no_byte_of_the_next_collective(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t        wire[LINK_BYTES], next[64];
    size_t         got, moved, n_bytes = peer_bytes(wire);
    open_fixture(&f);
    memset(wire + n_bytes, 0x77, sizeof next);
    peer_sends(&f, wire, n_bytes + sizeof next);
    assert_ok(receive(&f, &got));
    assert_int_equal(got, TRANSFER_BYTES);
    assert_ok(gmi_port_recv_some(&f.port, NULL, 0, 0, &moved)); /* nothing is left to be read */
    assert_int_equal(moved, 0);
    struct iovec part = { next, sizeof next };
    assert_ok(gmi_link_recv_some(f.ends[0], &part, 1, &moved));
    assert_int_equal(moved, sizeof next);
    for (size_t i = 0; i < sizeof next; i++) assert_int_equal(next[i], 0x77);
    close_fixture(&f);
}

static void a_flipped_byte_of_the_descriptor_is_a_protocol_error(void **state)
{
    (void)state;
    for (size_t at = 0; at < GMI_DESCRIPTOR_BYTES; at++) {
        for (int bit = 0; bit < 8; bit++) {
            struct fixture f;
            uint8_t        wire[LINK_BYTES];
            size_t         got, n_bytes = peer_bytes(wire);
            open_fixture(&f);
            wire[at] ^= (uint8_t)(1 << bit);
            peer_sends(&f, wire, n_bytes);
            assert_status(receive(&f, &got), GM_ERR_PROTOCOL);
            assert_int_equal(got, 0);
            assert_status(f.op.trouble.status, GM_ERR_PROTOCOL);
            assert_int_equal(f.op.trouble.peer, 1);
            assert_contains(f.op.trouble.what, "no descriptor");
            close_fixture(&f);
        }
    }
}

static void a_flipped_byte_of_a_piece_header_is_a_protocol_error(void **state)
{
    (void)state;
    for (size_t piece = 0; piece < 3; piece++) {
        for (size_t at = 0; at < GMI_PIECE_HEADER_BYTES; at++) {
            struct fixture f;
            uint8_t        wire[LINK_BYTES];
            size_t         got, n_bytes = peer_bytes(wire);
            open_fixture(&f);
            wire[GMI_DESCRIPTOR_BYTES + piece * (PIECE_BYTES + GMI_PIECE_HEADER_BYTES) + at] ^= 0x10;
            peer_sends(&f, wire, n_bytes);
            assert_status(receive(&f, &got), GM_ERR_PROTOCOL);
            assert_int_equal(got, piece * PIECE_BYTES);
            assert_contains(f.op.trouble.what, "another length");
            close_fixture(&f);
        }
    }
}

static void another_call_is_a_mismatch_before_anything_is_used(void **state)
{
    (void)state;
    struct fixture        f;
    struct gmi_descriptor call = some_call();
    uint8_t               wire[LINK_BYTES];
    size_t                got, n_bytes = peer_bytes(wire);
    open_fixture(&f);
    call.redop = GM_MAX;
    gmi_descriptor_encode(&call, wire);
    peer_sends(&f, wire, n_bytes);
    assert_status(receive(&f, &got), GM_ERR_MISMATCH);
    assert_int_equal(got, 0);
    assert_true(f.op.trouble.has_theirs);
    assert_int_equal(f.op.trouble.theirs.redop, GM_MAX);
    assert_false(f.port.is_descriptor_matched);
    close_fixture(&f);
}

static void an_end_at_any_byte_is_a_lost_peer(void **state)
{
    (void)state;
    uint8_t wire[LINK_BYTES];
    size_t  n_bytes = peer_bytes(wire);
    for (size_t at = 0; at < n_bytes; at++) {
        struct fixture f;
        size_t         got;
        open_fixture(&f);
        peer_sends(&f, wire, at);
        gmi_link_finish(f.ends[1]);
        assert_status(receive(&f, &got), GM_ERR_PEER_LOST);
        assert_int_equal(f.op.trouble.peer, 1);
        assert_int_equal(f.op.trouble.sys_errno, 0);
        for (size_t i = 0; i < got; i++) assert_int_equal(f.data.bytes[i], i + 1);
        close_fixture(&f);
    }
}

static void the_first_trouble_stays(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t        wire[LINK_BYTES] = { 0 };
    size_t         got, moved;
    open_fixture(&f);
    peer_sends(&f, wire, GMI_DESCRIPTOR_BYTES);
    assert_status(receive(&f, &got), GM_ERR_PROTOCOL);
    gmi_link_close(f.ends[1]);
    f.ends[1] = NULL;
    assert_status(gmi_port_send_some(&f.port, f.data.bytes, 1, 1, &moved), GM_ERR_PROTOCOL);
    assert_status(f.op.trouble.status, GM_ERR_PROTOCOL);
    close_fixture(&f);
}

/* ---- sending ------------------------------------------------------------------------------------- */

static size_t take_all(struct gmi_link *link, uint8_t *into, size_t n_bytes)
{
    struct iovec part = { into, n_bytes };
    size_t       moved;
    return gmi_link_recv_some(link, &part, 1, &moved) == GM_OK ? moved : 0;
}

static void sends_descriptor_and_first_payload_in_one_go(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t        wire[LINK_BYTES];
    size_t         moved;
    open_fixture(&f);
    assert_ok(gmi_port_send_some(&f.port, f.data.bytes, TRANSFER_BYTES, TRANSFER_BYTES, &moved));
    assert_int_equal(moved, PIECE_BYTES);
    assert_int_equal(take_all(f.ends[1], wire, sizeof wire), GMI_DESCRIPTOR_BYTES + GMI_PIECE_HEADER_BYTES + PIECE_BYTES);
    assert_true(f.port.is_descriptor_sent);
    assert_true(gmi_port_is_flushed(&f.port));
    close_fixture(&f);
}

static void sends_what_a_receiver_expects_however_it_settles(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct fixture f;
        uint8_t        wire[LINK_BYTES], wanted[LINK_BYTES];
        struct gmi_rng rng = { .key = seed };
        size_t         sent = 0, ready = 0;
        open_fixture(&f);
        f.op.call = some_call(); /* so that the descriptor is the same to the byte */
        gmi_port_begin(&f.port, &f.op);
        for (size_t i = 0; i < TRANSFER_BYTES; i++) f.data.bytes[i] = (uint8_t)(i + 1);
        while (sent < TRANSFER_BYTES) {
            size_t moved;
            ready += gmi_rng_next_below(&rng, TRANSFER_BYTES - ready + 1);
            assert_ok(gmi_port_send_some(&f.port, f.data.bytes + sent, ready - sent, TRANSFER_BYTES - sent, &moved));
            sent += moved;
            assert_true(sent <= ready);
        }
        size_t n_bytes = peer_bytes(wanted);
        assert_int_equal(take_all(f.ends[1], wire, sizeof wire), n_bytes);
        assert_memory_equal(wire, wanted, n_bytes);
        assert_int_equal(f.op.traffic.payload_sent_bytes, TRANSFER_BYTES);
        assert_int_equal(f.op.traffic.protocol_sent_bytes, n_bytes - TRANSFER_BYTES);
        close_fixture(&f);
    }
}

static void a_piece_that_is_announced_is_not_flushed_before_its_end(void **state)
{
    (void)state;
    struct fixture f;
    size_t         moved;
    open_fixture(&f);
    assert_ok(gmi_port_send_some(&f.port, f.data.bytes, 3, TRANSFER_BYTES, &moved));
    assert_int_equal(moved, 3);
    assert_false(gmi_port_is_flushed(&f.port));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_framing_away),
        cmocka_unit_test(reads_no_byte_of_the_next_collective),
        cmocka_unit_test(a_flipped_byte_of_the_descriptor_is_a_protocol_error),
        cmocka_unit_test(a_flipped_byte_of_a_piece_header_is_a_protocol_error),
        cmocka_unit_test(another_call_is_a_mismatch_before_anything_is_used),
        cmocka_unit_test(an_end_at_any_byte_is_a_lost_peer),
        cmocka_unit_test(the_first_trouble_stays),
        cmocka_unit_test(sends_descriptor_and_first_payload_in_one_go),
        cmocka_unit_test(sends_what_a_receiver_expects_however_it_settles),
        cmocka_unit_test(a_piece_that_is_announced_is_not_flushed_before_its_end),
    };
    return cmocka_run_group_tests_name("port", tests, NULL, NULL);
}
