#include "base/buffer.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "tests/support/guard.h"
#include "tests/support/test.h"

/* ---- bytes.h ------------------------------------------------------------------------------------- */

static void numbers_are_little_endian_at_any_alignment(void **state)
{
    (void)state;
    uint8_t w[16];
    gmi_put_u16(w + 1, 0x1234);
    assert_int_equal(w[1], 0x34);
    assert_int_equal(w[2], 0x12);
    assert_int_equal(gmi_get_u16(w + 1), 0x1234);
    gmi_put_u32(w + 3, 0x89abcdef);
    assert_int_equal(w[3], 0xef);
    assert_int_equal(w[6], 0x89);
    assert_int_equal(gmi_get_u32(w + 3), 0x89abcdef);
    gmi_put_u64(w + 7, UINT64_C(0xfedcba9876543210));
    assert_int_equal(w[7], 0x10);
    assert_int_equal(w[14], 0xfe);
    assert_true(gmi_get_u64(w + 7) == UINT64_C(0xfedcba9876543210));
}

static void sizes_that_do_not_fit_are_noticed(void **state)
{
    (void)state;
    size_t result;
    assert_true(gmi_mul_sizes(SIZE_MAX, 1, &result) && result == SIZE_MAX);
    assert_true(gmi_mul_sizes(SIZE_MAX, 0, &result) && result == 0);
    assert_false(gmi_mul_sizes(SIZE_MAX, 2, &result));
    assert_false(gmi_mul_sizes((size_t)1 << 32, (size_t)1 << 32, &result));
    assert_true(gmi_add_sizes(SIZE_MAX - 1, 1, &result) && result == SIZE_MAX);
    assert_false(gmi_add_sizes(SIZE_MAX, 1, &result));
    assert_int_equal(gmi_min_size(3, 4), 3);
    assert_int_equal(gmi_min_size(4, 3), 3);
}

/* ---- buffer and reader --------------------------------------------------------------------------- */

static void what_is_put_is_read_again(void **state)
{
    (void)state;
    struct gmi_buffer b = { 0 };
    char              text[16];
    gmi_buffer_put_u16(&b, 7);
    gmi_buffer_put_text(&b, "rank 2");
    gmi_buffer_put_u64(&b, UINT64_MAX - 3);
    gmi_buffer_put_u32(&b, 99);
    gmi_buffer_put_text(&b, "");
    struct gmi_reader r = { .bytes = b.bytes, .left_bytes = b.used_bytes };
    assert_int_equal(gmi_reader_u16(&r), 7);
    gmi_reader_text(&r, text, sizeof text);
    assert_string_equal(text, "rank 2");
    assert_true(gmi_reader_u64(&r) == UINT64_MAX - 3);
    assert_int_equal(gmi_reader_u32(&r), 99);
    gmi_reader_text(&r, text, sizeof text);
    assert_string_equal(text, "");
    assert_false(r.is_short);
    assert_int_equal(r.left_bytes, 0);
    gmi_buffer_fini(&b);
}

static void a_reader_never_passes_the_end(void **state)
{
    (void)state;
    struct gmi_buffer b = { 0 };
    struct guard      exact = { 0 };
    gmi_buffer_put_u32(&b, 5);
    gmi_buffer_put_text(&b, "hello");
    gmi_buffer_put_u64(&b, 1);
    for (size_t n = 0; n < b.used_bytes; n++) {
        char text[8];
        guard_make(&exact, n);
        if (n > 0) memcpy(exact.bytes, b.bytes, n);
        struct gmi_reader r = { .bytes = exact.bytes, .left_bytes = n };
        gmi_reader_u32(&r);
        gmi_reader_text(&r, text, sizeof text);
        assert_int_equal(gmi_reader_u64(&r), 0);
        assert_true(r.is_short);
        assert_null(gmi_reader_take(&r, 0)); /* for good */
    }
    guard_fini(&exact);
    gmi_buffer_fini(&b);
}

static void a_text_that_claims_too_much_is_refused(void **state)
{
    (void)state;
    uint8_t           wire[8] = { 0xff, 0xff, 0xff, 0xff, 'a', 'b', 'c', 'd' };
    char              text[4] = "xxx";
    struct gmi_reader r = { .bytes = wire, .left_bytes = sizeof wire };
    gmi_reader_text(&r, text, sizeof text);
    assert_true(r.is_short);
    assert_string_equal(text, "");
}

static void a_long_text_is_cut_to_fit(void **state)
{
    (void)state;
    struct gmi_buffer b = { 0 };
    char              text[4];
    gmi_buffer_put_text(&b, "abcdefgh");
    gmi_buffer_put_u16(&b, 3);
    struct gmi_reader r = { .bytes = b.bytes, .left_bytes = b.used_bytes };
    gmi_reader_text(&r, text, sizeof text);
    assert_string_equal(text, "abc");
    assert_int_equal(gmi_reader_u16(&r), 3); /* what was cut is passed over */
    assert_false(r.is_short);
    gmi_buffer_fini(&b);
}

static void bytes_go_in_at_the_end_and_out_at_the_front(void **state)
{
    (void)state;
    struct gmi_buffer b = { 0 };
    struct gmi_rng    rng = { .key = 8 };
    uint8_t           next_in = 0, next_out = 0;
    for (int i = 0; i < 2000; i++) {
        for (uint64_t n = gmi_rng_next_below(&rng, 40); n > 0; n--, next_in++) gmi_buffer_append(&b, &next_in, 1);
        size_t n = (size_t)gmi_rng_next_below(&rng, b.used_bytes + 1);
        for (size_t k = 0; k < n; k++) assert_int_equal(b.bytes[k], next_out++);
        gmi_buffer_consume(&b, n);
    }
    gmi_buffer_append(&b, NULL, 0);
    gmi_buffer_fini(&b);
    assert_null(b.bytes);
}

static void lost_bytes_are_remembered(void **state)
{
    (void)state;
    struct gmi_buffer b = { 0 };
    gmi_buffer_put_u16(&b, 1);
    size_t before = b.used_bytes;
    gmi_alloc_fail_at(1);
    for (int i = 0; i < 100 && !b.is_out_of_memory; i++) {
        before = b.used_bytes;
        gmi_buffer_put_u64(&b, 2);
    }
    gmi_alloc_fail_at(0);
    assert_true(b.is_out_of_memory);
    assert_int_equal(b.used_bytes, before);
    gmi_buffer_put_u16(&b, 3);
    assert_true(b.is_out_of_memory); /* still */
    gmi_buffer_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian_at_any_alignment),
        cmocka_unit_test(sizes_that_do_not_fit_are_noticed),
        cmocka_unit_test(what_is_put_is_read_again),
        cmocka_unit_test(a_reader_never_passes_the_end),
        cmocka_unit_test(a_text_that_claims_too_much_is_refused),
        cmocka_unit_test(a_long_text_is_cut_to_fit),
        cmocka_unit_test(bytes_go_in_at_the_end_and_out_at_the_front),
        cmocka_unit_test(lost_bytes_are_remembered),
    };
    return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
