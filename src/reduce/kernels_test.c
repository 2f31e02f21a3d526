#include <math.h>

#include "base/rng.h"
#include "reduce/codec.h"
#include "tests/support/guard.h"
#include "tests/support/test.h"

/* ---- the table ----------------------------------------------------------------------------------- */

static void names_and_sizes(void **state)
{
    (void)state;
    assert_int_equal(gm_dtype_bytes(GM_F32), 4);
    assert_int_equal(gm_dtype_bytes(GM_F64), 8);
    assert_int_equal(gm_dtype_bytes(GM_I32), 4);
    assert_int_equal(gm_dtype_bytes(GM_I64), 8);
    assert_int_equal(gm_dtype_bytes(GM_DTYPE_END), 0);
    assert_int_equal(gm_dtype_bytes((gm_dtype)-1), 0);
    assert_string_equal(gm_dtype_name(GM_I64), "i64");
    assert_string_equal(gm_dtype_name((gm_dtype)99), "?");
    assert_string_equal(gm_redop_name(GM_AVG), "avg");
    assert_string_equal(gm_redop_name((gm_redop)-1), "?");
    assert_string_equal(gm_collective_name(GM_REDUCE_SCATTER), "reduce_scatter");
    assert_string_equal(gm_collective_name(GM_COLLECTIVE_END), "?");
}

static void only_averages_of_integers_are_not_offered(void **state)
{
    (void)state;
    struct gmi_codec codec;
    for (int d = 0; d < GM_DTYPE_END; d++) {
        bool is_float = d == GM_F32 || d == GM_F64;
        for (int r = 0; r < GM_REDOP_END; r++) {
            bool is_offered = r != GM_AVG || is_float;
            assert_status(gmi_codec_find(&codec, (gm_dtype)d, (gm_redop)r), is_offered ? GM_OK : GM_ERR_UNSUPPORTED);
            if (!is_offered) continue;
            assert_int_equal(codec.elem_bytes, gm_dtype_bytes((gm_dtype)d));
            assert_non_null(codec.combine);
            assert_true((codec.finish != NULL) == (r == GM_AVG));
            assert_true((codec.canonicalize != NULL) == is_float);
        }
    }
    assert_status(gmi_codec_find(&codec, GM_DTYPE_END, GM_SUM), GM_ERR_ARG);
    assert_status(gmi_codec_find(&codec, GM_F32, GM_REDOP_END), GM_ERR_ARG);
}

/* ---- the loops ----------------------------------------------------------------------------------- */

/* Random bits: for floats all kinds of numbers, and a NaN, infinity or zero now and then. */
static void fill(uint8_t *bytes, gm_dtype dtype, size_t count, uint64_t key)
{
    static const uint32_t odd32[] = { 0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 1, 0x80000001 };
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = gmi_rng_u64(key, i);
        uint32_t odd = odd32[bits % TEST_COUNT(odd32)];
        bool     is_odd = bits >> 61 == 0;
        uint32_t low = is_odd ? odd : (uint32_t)(bits >> 20);
        if (is_odd && dtype == GM_F64) { /* the same kind of double */
            float  f;
            double d;
            memcpy(&f, &odd, 4);
            d = f;
            memcpy(&bits, &d, 8);
        }
        if (gm_dtype_bytes(dtype) == 4) {
            memcpy(bytes + 4 * i, &low, 4);
        } else {
            memcpy(bytes + 8 * i, &bits, 8);
        }
    }
}

/* Element by element, one call for each: what the long loop must do, whatever the vector width. */
static void long_loops_do_what_single_elements_do(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000 };
    struct guard        a = { 0 }, b = { 0 }, out = { 0 };
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int r = 0; r < GM_REDOP_END; r++) {
            struct gmi_codec codec;
            if (gmi_codec_find(&codec, (gm_dtype)d, (gm_redop)r) != GM_OK) continue;
            for (size_t i = 0; i < TEST_COUNT(counts); i++) {
                size_t n = counts[i], bytes = codec.elem_bytes;
                guard_make(&a, n * bytes);
                guard_make(&b, n * bytes);
                guard_make(&out, n * bytes);
                fill(a.bytes, (gm_dtype)d, n, 2 * i);
                fill(b.bytes, (gm_dtype)d, n, 2 * i + 1);
                codec.combine(out.bytes, a.bytes, b.bytes, n);
                for (size_t k = 0; k < n; k++) {
                    uint64_t x = 0, y = 0, z = 0, have = 0, mirrored = 0;
                    memcpy(&x, a.bytes + k * bytes, bytes);
                    memcpy(&y, b.bytes + k * bytes, bytes);
                    memcpy(&have, out.bytes + k * bytes, bytes);
                    codec.combine(&z, &x, &y, 1);
                    codec.combine(&mirrored, &y, &x, 1);
                    assert_true(have == z);
                    assert_true(have == mirrored); /* commutes bit for bit */
                }
                codec.combine(a.bytes, a.bytes, b.bytes, n); /* over the first operand */
                assert_memory_equal(a.bytes, out.bytes, n * bytes);
                fill(a.bytes, (gm_dtype)d, n, 2 * i);
                codec.combine(b.bytes, a.bytes, b.bytes, n); /* over the second one */
                assert_memory_equal(b.bytes, out.bytes, n * bytes);
                guard_check(&a), guard_check(&b), guard_check(&out);
            }
        }
    }
    guard_fini(&a), guard_fini(&b), guard_fini(&out);
}

static float float_from(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint32_t bits_from(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static uint32_t combine_f32(gm_redop redop, uint32_t a, uint32_t b)
{
    struct gmi_codec codec;
    float            x = float_from(a), y = float_from(b), z;
    assert_ok(gmi_codec_find(&codec, GM_F32, redop));
    codec.combine(&z, &x, &y, 1);
    return bits_from(z);
}

static void min_and_max_of_floats_are_those_of_the_numbers(void **state)
{
    (void)state;
    struct gmi_rng rng = { .key = 21 };
    for (int i = 0; i < 100000; i++) {
        uint32_t a = (uint32_t)gmi_rng_next(&rng), b = (uint32_t)gmi_rng_next(&rng);
        float    x = float_from(a), y = float_from(b);
        if (isnan(x) || isnan(y)) {
            assert_int_equal(combine_f32(GM_MIN, a, b), 0x7fc00000);
            assert_int_equal(combine_f32(GM_MAX, a, b), 0x7fc00000);
        } else {
            assert_int_equal(combine_f32(GM_MIN, a, b), x < y ? a : b);
            assert_int_equal(combine_f32(GM_MAX, a, b), x < y ? b : a);
        }
    }
}

static void an_average_divides_once_and_keeps_one_nan(void **state)
{
    (void)state;
    struct gmi_codec codec;
    float            f[4] = { 9, -1, float_from(0xffc00777), float_from(0x7f800000) };
    double           d[3] = { 1, -0.0, 1e300 };
    assert_ok(gmi_codec_find(&codec, GM_F32, GM_AVG));
    codec.finish(f, 4, 3);
    assert_true(f[0] == 3.0f && f[1] == -1.0f / 3.0f);
    assert_int_equal(bits_from(f[2]), 0x7fc00000);
    assert_int_equal(bits_from(f[3]), 0x7f800000);
    assert_ok(gmi_codec_find(&codec, GM_F64, GM_AVG));
    codec.finish(d, 3, 7);
    assert_true(d[0] == 1.0 / 7 && d[1] == 0 && signbit(d[1]) && d[2] == 1e300 / 7);
}

static void nothing_is_changed_but_nans_where_there_is_one_rank(void **state)
{
    (void)state;
    struct gmi_codec codec;
    uint8_t          before[4 * 1000], after[4 * 1000];
    assert_ok(gmi_codec_find(&codec, GM_F32, GM_SUM));
    fill(before, GM_F32, 1000, 4);
    memcpy(after, before, sizeof after);
    codec.canonicalize(after, 1000);
    for (size_t i = 0; i < 1000; i++) {
        uint32_t a, b;
        memcpy(&a, before + 4 * i, 4);
        memcpy(&b, after + 4 * i, 4);
        assert_int_equal(b, isnan(float_from(a)) ? 0x7fc00000 : a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(only_averages_of_integers_are_not_offered),
        cmocka_unit_test(long_loops_do_what_single_elements_do),
        cmocka_unit_test(min_and_max_of_floats_are_those_of_the_numbers),
        cmocka_unit_test(an_average_divides_once_and_keeps_one_nan),
        cmocka_unit_test(nothing_is_changed_but_nans_where_there_is_one_rank),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
