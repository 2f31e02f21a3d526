/* Conversions of f16 and bf16 against their definition: all 65,536 numbers, and every place where rounding
 * changes its mind. */
#include <math.h>

#include "base/rng.h"
#include "reduce/half.h"
#include "reduce/half_arrays.h"
#include "tests/support/oracle.h"
#include "tests/support/test.h"

enum { ALL = 65536 };

/* ---- widening ------------------------------------------------------------------------------------ */

static void check_widened(const float *wide, gm_dtype dtype)
{
    for (int h = 0; h < ALL; h++) {
        double   have = (double)wide[h], want = oracle_number((uint64_t)h, dtype);
        uint64_t have_bits, want_bits;
        memcpy(&have_bits, &have, 8);
        memcpy(&want_bits, &want, 8);
        if (isnan(want) ? isnan(have) : have_bits == want_bits) continue;
        fail_msg("%s %#x is %a, not %a", gm_dtype_name(dtype), (unsigned)h, have, want);
    }
}

static void every_number_is_widened_exactly(void **state)
{
    (void)state;
    static uint16_t all[ALL];
    static float    wide[ALL];
    for (int h = 0; h < ALL; h++) all[h] = (uint16_t)h;
    gmi_half_f16()->widen(wide, all, ALL);
    check_widened(wide, GM_F16);
    memset(wide, 0, sizeof wide);
    gmi_half_f16_plain.widen(wide, all, ALL);
    check_widened(wide, GM_F16);
    gmi_half_bf16()->widen(wide, all, ALL);
    check_widened(wide, GM_BF16);
}

static void every_number_survives_the_way_to_a_wider_type_and_back(void **state)
{
    (void)state;
    for (int h = 0; h < ALL; h++) {
        bool is_nan16 = (h & 0x7fff) > 0x7c00, is_nanb = (h & 0x7fff) > 0x7f80;
        uint16_t half = (uint16_t)h;
        assert_int_equal(gmi_f16_of_f64((double)gmi_f32_of_f16(half)), is_nan16 ? 0x7e00 : half);
        assert_int_equal(gmi_bf16_of_f64((double)gmi_f32_of_bf16(half)), is_nanb ? 0x7fc0 : half);
    }
}

/* ---- narrowing ----------------------------------------------------------------------------------- */

struct numbers {
    double *x;
    size_t  n;
};

static void add_number(struct numbers *numbers, double x)
{
    numbers->x[numbers->n++] = x;
    numbers->x[numbers->n++] = -x;
}

/* Every half, the middle between it and the next one, and what is a hair's breadth beside them: in f32 and in f64. */
static struct numbers critical_numbers(gm_dtype dtype)
{
    struct numbers numbers = { malloc(sizeof(double) * ALL * 10), 0 };
    int            inf = dtype == GM_F16 ? 0x7c00 : 0x7f80;
    assert_non_null(numbers.x);
    for (int h = 0; h < inf; h++) {
        double here = oracle_number((uint64_t)h, dtype), next = oracle_number((uint64_t)h + 1, dtype);
        if (isinf(next)) next = 2 * here - oracle_number((uint64_t)h - 1, dtype);
        double middle = here / 2 + next / 2;
        double edges[] = { here, middle };
        for (int e = 0; e < 2; e++) {
            float edge = (float)edges[e];
            add_number(&numbers, edges[e]);
            add_number(&numbers, (double)nextafterf(edge, INFINITY));
            add_number(&numbers, (double)nextafterf(edge, 0));
            add_number(&numbers, nextafter(edges[e], INFINITY));
            add_number(&numbers, nextafter(edges[e], 0));
        }
    }
    add_number(&numbers, INFINITY);
    add_number(&numbers, 1e300);
    add_number(&numbers, 1e-300);
    add_number(&numbers, (double)NAN);
    add_number(&numbers, 5e-324);
    add_number(&numbers, 3.5e38);
    add_number(&numbers, 1e5);
    return numbers;
}

static void check_half(uint16_t have, double x, gm_dtype dtype, const char *way)
{
    uint64_t want = oracle_bits(x, dtype);
    if (have != want) fail_msg("%s of %a by %s is %#x, not %#llx", gm_dtype_name(dtype), x, way, have, (unsigned long long)want);
}

static void check_narrowing(const double *x, size_t n, gm_dtype dtype)
{
    float    *wide = malloc(sizeof *wide * n);
    uint16_t *by_machine = malloc(sizeof *by_machine * n), *by_plain = malloc(sizeof *by_plain * n);
    assert_true(wide != NULL && by_machine != NULL && by_plain != NULL);
    for (size_t i = 0; i < n; i++) wide[i] = (float)x[i];
    (dtype == GM_F16 ? gmi_half_f16() : gmi_half_bf16())->narrow(by_machine, wide, n);
    (dtype == GM_F16 ? &gmi_half_f16_plain : gmi_half_bf16())->narrow(by_plain, wide, n);
    for (size_t i = 0; i < n; i++) {
        check_half(by_machine[i], (double)wide[i], dtype, "the fast way from f32");
        check_half(by_plain[i], (double)wide[i], dtype, "the plain way from f32");
        check_half(dtype == GM_F16 ? gmi_f16_of_f64(x[i]) : gmi_bf16_of_f64(x[i]), x[i], dtype, "the way from f64");
    }
    free(wide);
    free(by_machine);
    free(by_plain);
}

static void rounding_is_right_at_and_beside_every_number_and_every_tie(void **state)
{
    (void)state;
    static const gm_dtype dtypes[] = { GM_F16, GM_BF16 };
    for (int d = 0; d < 2; d++) {
        struct numbers numbers = critical_numbers(dtypes[d]);
        assert_true(numbers.n > 600000);
        check_narrowing(numbers.x, numbers.n, dtypes[d]);
        free(numbers.x);
    }
}

static void rounding_is_right_for_any_bits(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    static double x[N];
    for (size_t i = 0; i < N; i++) {
        uint64_t bits = gmi_rng_u64(5, i);
        float    f;
        uint32_t low = (uint32_t)bits;
        memcpy(&x[i], &bits, 8);
        memcpy(&f, &low, 4);
        if (i % 2 == 0) x[i] = (double)f * (i % 4 == 0 ? 1 : 0x1.0000004p0);
    }
    check_narrowing(x, N, GM_F16);
    check_narrowing(x, N, GM_BF16);
}

/* Every f32 there is: the machine's instructions and the plain way agree. */
static void every_f32_is_narrowed_alike_by_both_ways(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static float    x[N];
    static uint16_t a[N], b[N];
    uint32_t        step = test_is_long() ? 1 : 97;
    for (uint32_t high = 0; high < N; high += step) {
        for (uint32_t low = 0; low < N; low++) x[low] = gmi_f32_of_bits(high << 16 | low);
        gmi_half_f16()->narrow(a, x, N);
        gmi_half_f16_plain.narrow(b, x, N);
        assert_memory_equal(a, b, sizeof a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_widened_exactly),
        cmocka_unit_test(every_number_survives_the_way_to_a_wider_type_and_back),
        cmocka_unit_test(rounding_is_right_at_and_beside_every_number_and_every_tie),
        cmocka_unit_test(rounding_is_right_for_any_bits),
        cmocka_unit_test(every_f32_is_narrowed_alike_by_both_ways),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
