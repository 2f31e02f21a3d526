#include <math.h>

#include "base/rng.h"
#include "reduce/codec.h"
#include "tests/support/guard.h"
#include "tests/support/oracle.h"
#include "tests/support/test.h"

/* ---- the table ----------------------------------------------------------------------------------- */

static void names_and_sizes(void **state)
{
    (void)state;
    assert_int_equal(gm_dtype_bytes(GM_F32), 4);
    assert_int_equal(gm_dtype_bytes(GM_F64), 8);
    assert_int_equal(gm_dtype_bytes(GM_I32), 4);
    assert_int_equal(gm_dtype_bytes(GM_I64), 8);
    assert_int_equal(gm_dtype_bytes(GM_U8), 1);
    assert_int_equal(gm_dtype_bytes(GM_BF16), 2);
    assert_int_equal(gm_dtype_bytes(GM_DTYPE_END), 0);
    for (int d = 0; d < GM_DTYPE_END; d++) assert_true(gm_dtype_bytes((gm_dtype)d) > 0 && *gm_dtype_name((gm_dtype)d) != '?');
    for (int r = 0; r < GM_REDOP_END; r++) assert_true(*gm_redop_name((gm_redop)r) != '?');
    assert_string_equal(gm_dtype_name(GM_BF16), "bf16");
    assert_string_equal(gm_redop_name(GM_BXOR), "bxor");
    assert_string_equal(gm_redop_name((gm_redop)(GM_REDOP_USER + 1)), "user");
    assert_string_equal(gm_redop_name(GM_REDOP_END), "?");
    assert_int_equal(gm_dtype_bytes((gm_dtype)-1), 0);
    assert_string_equal(gm_dtype_name(GM_I64), "i64");
    assert_string_equal(gm_dtype_name((gm_dtype)99), "?");
    assert_string_equal(gm_redop_name(GM_AVG), "avg");
    assert_string_equal(gm_redop_name((gm_redop)-1), "?");
    assert_string_equal(gm_collective_name(GM_REDUCE_SCATTER), "reduce_scatter");
    assert_string_equal(gm_collective_name(GM_COLLECTIVE_END), "?");
}

static void what_is_offered_is_the_table_of_the_header(void **state)
{
    (void)state;
    struct gmi_codec codec;
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int r = 0; r < GM_REDOP_END; r++) {
            gm_dtype dtype = (gm_dtype)d;
            gm_redop redop = (gm_redop)r;
            bool     is_offered = oracle_is_offered(dtype, redop), needs_all = oracle_is_rounded_once(dtype, redop);
            assert_status(gmi_codec_find(&codec, dtype, redop), is_offered ? GM_OK : GM_ERR_UNSUPPORTED);
            if (!is_offered) continue;
            assert_int_equal(codec.elem_bytes, gm_dtype_bytes(dtype));
            assert_int_equal(codec.needs, needs_all ? GMI_VIEW_ALL : GMI_VIEW_PAIRS);
            assert_true((codec.combine == NULL) == needs_all);
            assert_true((codec.combine_all != NULL) == needs_all);
            assert_true((codec.finish != NULL) == (r == GM_AVG && !needs_all));
            assert_true((codec.canonicalize != NULL) == oracle_is_float(dtype));
        }
    }
    assert_status(gmi_codec_find(&codec, GM_DTYPE_END, GM_SUM), GM_ERR_ARG);
    assert_status(gmi_codec_find(&codec, GM_F32, GM_REDOP_END), GM_ERR_ARG);
    assert_status(gmi_codec_find(&codec, GM_F32, GM_REDOP_USER), GM_ERR_ARG);
}

/* ---- the loops ----------------------------------------------------------------------------------- */

/* Any bits, and now and then a number of the kind that is easily forgotten. */
static void fill(uint8_t *bytes, gm_dtype dtype, size_t count, uint64_t key)
{
    static const double odd[] = { 0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-149, -0x1p-149, 0x1p-24, -0x1p-133, 65504, 0x1.fep127 };
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = gmi_rng_u64(key, i), kind = bits >> 61;
        if (oracle_is_float(dtype) && kind == 0) bits = oracle_bits(odd[bits % TEST_COUNT(odd)], dtype);
        if (oracle_is_float(dtype) && kind == 1) bits = oracle_bits((double)(bits % 16), dtype);
        oracle_store(bytes + i * gm_dtype_bytes(dtype), dtype, bits);
    }
}

static void check_elem(const void *have, const uint64_t *values, int n, gm_dtype dtype, gm_redop redop)
{
    uint64_t is = oracle_load(have, dtype), want = oracle_reduce(values, n, dtype, redop);
    if (is == want) return;
    for (int k = 0; k < n; k++) print_error("value %d: %#llx\n", k, (unsigned long long)values[k]);
    fail_msg("%s %s of %d is %#llx, not %#llx", gm_dtype_name(dtype), gm_redop_name(redop), n, (unsigned long long)is,
             (unsigned long long)want);
}

/* Averages end with a division that combine leaves to finish. */
static gm_redop half_done(gm_redop redop) { return redop == GM_AVG ? GM_SUM : redop; }

static void check_pairs(const struct gmi_codec *codec, gm_dtype dtype, gm_redop redop, size_t n, uint64_t key)
{
    size_t       bytes = codec->elem_bytes;
    struct guard a = { 0 }, b = { 0 }, out = { 0 }, mirrored = { 0 };
    guard_make(&a, n * bytes), guard_make(&b, n * bytes), guard_make(&out, n * bytes), guard_make(&mirrored, n * bytes);
    fill(a.bytes, dtype, n, key);
    fill(b.bytes, dtype, n, key + 1);
    gmi_codec_combine(codec, out.bytes, a.bytes, b.bytes, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t values[] = { oracle_load(a.bytes + i * bytes, dtype), oracle_load(b.bytes + i * bytes, dtype) };
        check_elem(out.bytes + i * bytes, values, 2, dtype, half_done(redop));
    }
    gmi_codec_combine(codec, mirrored.bytes, b.bytes, a.bytes, n);
    assert_memory_equal(mirrored.bytes, out.bytes, n * bytes); /* commutes bit for bit */
    gmi_codec_combine(codec, a.bytes, a.bytes, b.bytes, n); /* over the first operand */
    assert_memory_equal(a.bytes, out.bytes, n * bytes);
    fill(a.bytes, dtype, n, key);
    gmi_codec_combine(codec, b.bytes, a.bytes, b.bytes, n); /* over the second one */
    assert_memory_equal(b.bytes, out.bytes, n * bytes);
    guard_check(&a), guard_check(&b), guard_check(&out), guard_check(&mirrored);
    guard_fini(&a), guard_fini(&b), guard_fini(&out), guard_fini(&mirrored);
}

static void two_arrays_are_combined_as_their_elements_are(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 2000 };
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int r = 0; r < GM_REDOP_END; r++) {
            struct gmi_codec codec;
            if (gmi_codec_find(&codec, (gm_dtype)d, (gm_redop)r) != GM_OK || codec.combine == NULL) continue;
            for (size_t i = 0; i < TEST_COUNT(counts); i++) check_pairs(&codec, (gm_dtype)d, (gm_redop)r, counts[i], 2 * i);
        }
    }
}

enum { MOST = 9 };

/* `over`: the contribution that the result overwrites; -1: none. `own`: the one that stands apart; -1: none. */
static void check_all(const struct gmi_codec *codec, gm_dtype dtype, gm_redop redop, int n, size_t count, int over, int own)
{
    size_t       bytes = codec->elem_bytes, stride = count * bytes;
    struct guard all = { 0 }, apart = { 0 }, out = { 0 };
    guard_make(&all, (size_t)n * stride), guard_make(&apart, stride), guard_make(&out, stride);
    fill(all.bytes, dtype, (size_t)n * count, count + (uint64_t)n);
    uint8_t *before = malloc((size_t)n * stride + 1), *to = over < 0 ? out.bytes : all.bytes + (size_t)over * stride;
    assert_non_null(before);
    memcpy(before, all.bytes, (size_t)n * stride);
    if (own >= 0) {
        memcpy(apart.bytes, all.bytes + (size_t)own * stride, stride);
        memset(all.bytes + (size_t)own * stride, 0x55, stride);
        if (over == own) to = apart.bytes;
    }
    struct gmi_contributions c = { .n = n, .base = all.bytes, .stride_bytes = stride, .own = own, .own_at = apart.bytes };
    gmi_codec_settle(codec, to, &c, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t values[MOST];
        for (int k = 0; k < n; k++) values[k] = oracle_load(before + (size_t)k * stride + i * bytes, dtype);
        check_elem(to + i * bytes, values, n, dtype, redop);
    }
    guard_check(&all), guard_check(&apart), guard_check(&out);
    guard_fini(&all), guard_fini(&apart), guard_fini(&out);
    free(before);
}

static void all_contributions_are_settled_as_their_elements_are(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 7, 65, 511, 512, 513, 1100 };
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int r = 0; r < GM_REDOP_END; r++) {
            struct gmi_codec codec;
            gm_dtype         dtype = (gm_dtype)d;
            gm_redop         redop = (gm_redop)r;
            if (gmi_codec_find(&codec, dtype, redop) != GM_OK) continue;
            for (int n = 1; n <= 5; n++) {
                for (size_t i = 0; i < TEST_COUNT(counts); i++) check_all(&codec, dtype, redop, n, counts[i], -1, -1);
                for (int over = 0; over < n; over++) check_all(&codec, dtype, redop, n, 40, over, over);
                check_all(&codec, dtype, redop, n, 40, n - 1, -1);
                check_all(&codec, dtype, redop, n, 40, -1, n / 2);
            }
            check_all(&codec, dtype, redop, MOST, 100, -1, 3);
            check_all(&codec, dtype, redop, 3, 16 * 1024 / codec.elem_bytes + 5, 2, 2); /* more than a block of codec.c */
        }
    }
}

/* ---- averages of integers ------------------------------------------------------------------------ */

static uint64_t settle(gm_dtype dtype, gm_redop redop, const uint64_t *values, int n)
{
    struct gmi_codec codec;
    uint8_t          all[MOST * 8], out[8];
    assert_ok(gmi_codec_find(&codec, dtype, redop));
    for (int k = 0; k < n; k++) oracle_store(all + (size_t)k * codec.elem_bytes, dtype, values[k]);
    struct gmi_contributions c = { .n = n, .base = all, .stride_bytes = codec.elem_bytes, .own = -1 };
    gmi_codec_settle(&codec, out, &c, 1);
    return oracle_load(out, dtype);
}

/* Every sum of two bytes, so every tie with either sign; and many of three and four. */
static void averages_of_bytes_are_right(void **state)
{
    (void)state;
    for (uint64_t a = 0; a < 256; a++) {
        for (uint64_t b = 0; b < 256; b++) {
            uint64_t two[] = { a, b }, four[] = { a, b, a, a ^ 1 };
            assert_true(settle(GM_I8, GM_AVG, two, 2) == oracle_reduce(two, 2, GM_I8, GM_AVG));
            assert_true(settle(GM_U8, GM_AVG, two, 2) == oracle_reduce(two, 2, GM_U8, GM_AVG));
            assert_true(settle(GM_I8, GM_AVG, four, 4) == oracle_reduce(four, 4, GM_I8, GM_AVG));
            assert_true(settle(GM_U8, GM_AVG, four, 3) == oracle_reduce(four, 3, GM_U8, GM_AVG));
        }
    }
}

static void averages_of_large_integers_do_not_overflow(void **state)
{
    (void)state;
    static const uint64_t edges[] = { 0, 1, 2, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, (uint64_t)INT64_MIN + 1,
                                      INT32_MAX, (uint32_t)INT32_MIN, UINT32_MAX, UINT32_MAX - 1, INT64_MAX - 1 };
    for (size_t i = 0; i < TEST_COUNT(edges); i++) {
        for (size_t j = 0; j < TEST_COUNT(edges); j++) {
            for (int n = 1; n <= MOST; n++) {
                for (int d = 0; d < GM_DTYPE_END; d++) {
                    uint64_t values[MOST];
                    if (oracle_is_float((gm_dtype)d)) continue;
                    for (int k = 0; k < n; k++) values[k] = k % 3 == 1 ? edges[i] : edges[j];
                    assert_true(settle((gm_dtype)d, GM_AVG, values, n) == oracle_reduce(values, n, (gm_dtype)d, GM_AVG));
                }
            }
        }
    }
}

/* ---- reductions of one's own --------------------------------------------------------------------- */

struct calls {
    int      n;
    gm_dtype dtype;
};

/* Keeps the longer number; says what it was given. */
static void keep_greater(const void *in, void *inout, size_t count, gm_dtype dtype, void *user)
{
    struct calls *calls = user;
    const int32_t *a = in;
    int32_t       *b = inout;
    assert_true(a + count <= b || b + count <= a);
    calls->n++;
    calls->dtype = dtype;
    for (size_t i = 0; i < count; i++) b[i] = a[i] > b[i] ? a[i] : b[i];
}

static void a_function_of_the_callers_is_called_on_arrays_that_are_apart(void **state)
{
    (void)state;
    struct calls       calls = { 0 };
    struct gmi_user_op op = { keep_greater, &calls };
    struct gmi_codec   codec;
    int32_t a[3] = { 1, 5, 9 }, b[3] = { 2, 4, 8 }, c[3] = { 0, 7, 7 }, out[3];
    assert_status(gmi_codec_find_user(&codec, GM_DTYPE_END, &op), GM_ERR_ARG);
    assert_status(gmi_codec_find_user(&codec, GM_I32, &(struct gmi_user_op){ 0 }), GM_ERR_ARG);
    assert_ok(gmi_codec_find_user(&codec, GM_I32, &op));
    assert_int_equal(codec.needs, GMI_VIEW_ONCE);
    gmi_codec_combine(&codec, out, a, b, 3);
    assert_true(out[0] == 2 && out[1] == 5 && out[2] == 9 && a[0] == 1 && b[0] == 2);
    gmi_codec_combine(&codec, b, a, b, 3);
    assert_memory_equal(b, out, sizeof out);
    gmi_codec_combine(&codec, a, a, c, 3);
    assert_true(a[0] == 1 && a[1] == 7 && a[2] == 9);
    assert_true(calls.n == 3 && calls.dtype == GM_I32);
    gmi_codec_combine(&codec, out, a, b, 0);
    assert_int_equal(calls.n, 3);
    int32_t                  all[3][2] = { { 3, -1 }, { 1, -5 }, { 2, -3 } };
    struct gmi_contributions three = { .n = 3, .base = (uint8_t *)all, .stride_bytes = sizeof all[0], .own = -1 };
    gmi_codec_settle(&codec, all[2], &three, 2);
    assert_true(all[2][0] == 3 && all[2][1] == -1);
    struct gmi_contributions one = { .n = 1, .own = 0, .own_at = (uint8_t *)all[1] };
    calls.n = 0;
    gmi_codec_settle(&codec, out, &one, 2);
    assert_true(out[0] == 1 && out[1] == -5 && calls.n == 0);
}

/* ---- some results by hand ------------------------------------------------------------------------ */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(what_is_offered_is_the_table_of_the_header),
        cmocka_unit_test(two_arrays_are_combined_as_their_elements_are),
        cmocka_unit_test(all_contributions_are_settled_as_their_elements_are),
        cmocka_unit_test(averages_of_bytes_are_right),
        cmocka_unit_test(averages_of_large_integers_do_not_overflow),
        cmocka_unit_test(a_function_of_the_callers_is_called_on_arrays_that_are_apart),
        cmocka_unit_test(min_and_max_of_floats_are_those_of_the_numbers),
        cmocka_unit_test(an_average_divides_once_and_keeps_one_nan),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
