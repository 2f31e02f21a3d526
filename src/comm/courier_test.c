#include "comm/courier.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/test.h"

enum { MAX_BODY_BYTES = 1000 };

static void open_pair(struct gmi_courier *a, struct gmi_courier *b)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    gmi_courier_init(a, gmi_stream_plain(fds[0]));
    gmi_courier_init(b, gmi_stream_plain(fds[1]));
}

static void close_pair(struct gmi_courier *a, struct gmi_courier *b)
{
    gmi_courier_fini(a);
    gmi_courier_fini(b);
}

static bool next(struct gmi_courier *c, uint8_t *kind, struct gmi_reader *body)
{
    return gmi_courier_next(c, MAX_BODY_BYTES, kind, body);
}

static void send_text(struct gmi_courier *c, uint8_t kind, const char *text)
{
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_text(&body, text);
    gmi_courier_send(c, kind, &body);
    gmi_buffer_fini(&body);
}

static void messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    struct gmi_courier a, b;
    struct gmi_reader  body;
    uint8_t            kind;
    char               text[32];
    open_pair(&a, &b);
    assert_false(next(&b, &kind, &body));
    send_text(&a, 1, "first");
    gmi_courier_send(&a, 2, NULL);
    send_text(&a, 3, "third");
    assert_false(next(&b, &kind, &body)); /* only queued so far */
    gmi_courier_flush(&a);
    assert_true(next(&b, &kind, &body));
    assert_int_equal(kind, 1);
    gmi_reader_text(&body, text, sizeof text);
    assert_string_equal(text, "first");
    assert_int_equal(body.left_bytes, 0);
    assert_true(next(&b, &kind, &body));
    assert_int_equal(kind, 2);
    assert_int_equal(body.left_bytes, 0);
    assert_true(next(&b, &kind, &body));
    assert_int_equal(kind, 3);
    assert_false(next(&b, &kind, &body));
    assert_true(gmi_courier_is_open(&b));
    close_pair(&a, &b);
}

static void a_message_that_comes_byte_by_byte_is_given_out_once(void **state)
{
    (void)state;
    struct gmi_courier a, b;
    struct gmi_reader  body;
    uint8_t            wire[GMI_MESSAGE_HEADER_BYTES + 5] = { 5, 0, 0, 0, 42, 0, 0, 0, 'h', 'e', 'l', 'l', 'o' }, kind;
    open_pair(&a, &b);
    for (size_t i = 0; i < sizeof wire; i++) {
        assert_false(next(&b, &kind, &body));
        assert_int_equal(write(a.stream.fd, wire + i, 1), 1);
    }
    assert_true(next(&b, &kind, &body));
    assert_int_equal(kind, 42);
    assert_memory_equal(gmi_reader_take(&body, 5), "hello", 5);
    assert_false(next(&b, &kind, &body));
    close_pair(&a, &b);
}

static void large_messages_wait_for_room_in_the_socket(void **state)
{
    (void)state;
    enum { BODY_BYTES = 3000000 };
    struct gmi_courier a, b;
    struct gmi_reader  body;
    struct gmi_buffer  large = { 0 };
    struct gmi_poller  p;
    uint8_t            kind;
    bool               has_come = false;
    open_pair(&a, &b);
    for (uint32_t i = 0; i < BODY_BYTES / 4; i++) gmi_buffer_put_u32(&large, i);
    gmi_courier_send(&a, 9, &large);
    gmi_courier_flush(&a);
    assert_true(a.out.used_bytes > 0); /* or this test shows nothing */
    gmi_poller_init(&p);
    gmi_courier_watch(&a, &p);
    assert_int_equal(p.slots[0].events, POLLIN | POLLOUT);
    for (int i = 0; i < 100000 && !has_come; i++) {
        has_come = gmi_courier_next(&b, BODY_BYTES, &kind, &body);
        gmi_courier_flush(&a);
    }
    assert_true(has_come);
    for (uint32_t i = 0; i < BODY_BYTES / 4; i++) assert_int_equal(gmi_reader_u32(&body), i);
    gmi_poller_clear(&p);
    gmi_courier_watch(&a, &p);
    assert_int_equal(p.slots[0].events, POLLIN);
    gmi_poller_fini(&p);
    gmi_buffer_fini(&large);
    close_pair(&a, &b);
}

static void an_oversized_message_is_refused_before_memory_is_taken(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { MAX_BODY_BYTES + 1, 1 << 30, UINT32_MAX };
    for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
        struct gmi_courier a, b;
        struct gmi_reader  body;
        uint8_t            header[GMI_MESSAGE_HEADER_BYTES] = { 0 }, kind;
        open_pair(&a, &b);
        gmi_put_u32(header, sizes[i]);
        assert_int_equal(write(a.stream.fd, header, sizeof header), sizeof header);
        assert_false(next(&b, &kind, &body));
        assert_true(b.is_over);
        assert_int_equal(b.sys_errno, EPROTO);
        assert_true(b.in.cap_bytes < 100);
        assert_false(next(&b, &kind, &body));
        close_pair(&a, &b);
    }
    struct gmi_courier a, b;
    struct gmi_reader  body;
    struct gmi_buffer  largest = { 0 };
    uint8_t            kind;
    open_pair(&a, &b);
    for (int i = 0; i < MAX_BODY_BYTES; i++) gmi_buffer_append(&largest, "x", 1);
    gmi_courier_send(&a, 1, &largest);
    gmi_courier_flush(&a);
    assert_true(next(&b, &kind, &body));
    assert_int_equal(body.left_bytes, MAX_BODY_BYTES);
    gmi_buffer_fini(&largest);
    close_pair(&a, &b);
}

static void the_last_words_are_heard_before_the_end(void **state)
{
    (void)state;
    struct gmi_courier a, b;
    struct gmi_reader  body;
    uint8_t            kind;
    open_pair(&a, &b);
    send_text(&a, 1, "one");
    send_text(&a, 2, "goodbye");
    gmi_courier_finish(&a);
    send_text(&a, 3, "too late"); /* nothing goes out behind the end */
    gmi_courier_flush(&a);
    assert_true(next(&b, &kind, &body));
    assert_true(next(&b, &kind, &body));
    assert_int_equal(kind, 2);
    assert_false(next(&b, &kind, &body));
    assert_true(b.is_over);
    assert_int_equal(b.sys_errno, 0);
    /* The other direction still works, as for an answer to a goodbye. */
    b.is_over = false;
    send_text(&b, 7, "answer");
    gmi_courier_flush(&b);
    assert_true(next(&a, &kind, &body));
    assert_int_equal(kind, 7);
    close_pair(&a, &b);
}

static void what_a_peer_said_before_it_vanished_is_still_heard(void **state)
{
    (void)state;
    struct gmi_courier a, b;
    struct gmi_reader  body;
    uint8_t            kind;
    open_pair(&a, &b);
    send_text(&b, 4, "rank 2 is gone");
    gmi_courier_flush(&b);
    gmi_courier_fini(&b);
    b.stream.fd = -1;
    send_text(&a, 1, "hello?"); /* fails; that is not the end of reading */
    gmi_courier_flush(&a);
    assert_true(next(&a, &kind, &body));
    assert_int_equal(kind, 4);
    assert_false(next(&a, &kind, &body));
    assert_true(a.is_over);
    close_pair(&a, &b);
}

static void half_a_message_never_goes_out(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct gmi_courier a, b;
        struct gmi_buffer  body = { 0 };
        char               byte;
        open_pair(&a, &b);
        for (int i = 0; i < 200; i++) gmi_buffer_append(&body, "x", 1);
        gmi_alloc_fail_at(nth); /* of the header's memory, or of the body's */
        gmi_courier_send(&a, 1, &body);
        gmi_alloc_fail_at(0);
        assert_true(a.is_over);
        assert_int_equal(a.sys_errno, ENOMEM);
        gmi_courier_flush(&a);
        assert_int_equal(read(b.stream.fd, &byte, 1), -1);
        gmi_buffer_fini(&body);
        close_pair(&a, &b);
    }
}

static void random_bytes_end_it_or_wait(void **state)
{
    (void)state;
    struct gmi_rng rng = { .key = 6 };
    for (int i = 0; i < 3000; i++) {
        struct gmi_courier a, b;
        struct gmi_reader  body;
        uint8_t            wire[300], kind;
        size_t             n = (size_t)gmi_rng_next_below(&rng, sizeof wire);
        open_pair(&a, &b);
        for (size_t k = 0; k < n; k++) wire[k] = (uint8_t)gmi_rng_next(&rng);
        if (i % 2) { /* small lengths, so that messages come of it */
            for (size_t k = 1; k < n; k++) wire[k] = k % 8 == 0 ? wire[k] % 8 : 0;
        }
        assert_int_equal(write(a.stream.fd, wire, n), n);
        gmi_courier_fini(&a);
        int n_messages = 0;
        while (next(&b, &kind, &body)) {
            assert_true(body.left_bytes <= MAX_BODY_BYTES);
            if (body.left_bytes > 0) assert_non_null(gmi_reader_take(&body, body.left_bytes));
            assert_true(++n_messages <= 40);
        }
        assert_true(b.is_over);
        gmi_courier_fini(&b);
    }
}

static void none_is_closed(void **state)
{
    (void)state;
    struct gmi_courier none;
    struct gmi_reader  body;
    struct gmi_poller  p;
    uint8_t            kind;
    gmi_courier_init(&none, gmi_stream_plain(-1));
    assert_false(gmi_courier_is_open(&none));
    gmi_courier_send(&none, 1, NULL);
    gmi_courier_flush(&none);
    gmi_courier_finish(&none);
    assert_false(next(&none, &kind, &body));
    gmi_poller_init(&p);
    gmi_courier_watch(&none, &p);
    assert_int_equal(p.n_slots, 0);
    gmi_poller_fini(&p);
    gmi_courier_fini(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(a_message_that_comes_byte_by_byte_is_given_out_once),
        cmocka_unit_test(large_messages_wait_for_room_in_the_socket),
        cmocka_unit_test(an_oversized_message_is_refused_before_memory_is_taken),
        cmocka_unit_test(the_last_words_are_heard_before_the_end),
        cmocka_unit_test(what_a_peer_said_before_it_vanished_is_still_heard),
        cmocka_unit_test(half_a_message_never_goes_out),
        cmocka_unit_test(random_bytes_end_it_or_wait),
        cmocka_unit_test(none_is_closed),
    };
    return cmocka_run_group_tests_name("courier", tests, NULL, NULL);
}
