#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/norm.h"

enum { MOST = 203 };

static void draw(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) values[i] = (float)(gmi_rng_unit(5, i) * 4 - 2);
}

/* The fixed order, spelled out: element i belongs to sum i mod 16. */
static void the_norm_is_added_up_in_one_order(void **state)
{
    (void)state;
    float values[MOST];
    for (size_t n = 0; n <= MOST; n++) {
        volatile double sums[16] = { 0 }, total = 0;
        draw(values, n);
        for (size_t i = 0; i < n; i++) sums[i % 16] += (double)values[i] * (double)values[i];
        for (size_t k = 0; k < 16; k++) total += sums[k];
        double expected = sqrt(total), got = gmt_norm(values, n);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

static void a_long_gradient_is_shortened_and_a_short_one_is_not_touched(void **state)
{
    (void)state;
    float values[MOST], before[MOST];
    draw(values, MOST);
    memcpy(before, values, sizeof before);
    double norm = gmt_norm(values, MOST);
    assert_true(gmt_clip(values, MOST, norm + 1) == norm);
    assert_memory_equal(values, before, sizeof before);
    assert_true(gmt_clip(values, MOST, 2) == norm);
    assert_true(fabs(gmt_norm(values, MOST) - 2) < 1e-6);
    for (size_t i = 0; i < MOST; i++) assert_true(signbit(values[i]) == signbit(before[i]));
}

static void scaling_finds_what_is_not_finite_wherever_it_is(void **state)
{
    (void)state;
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY, 0x1p127f };
    float values[MOST];
    draw(values, MOST);
    assert_true(gmt_scale(values, MOST, 2));
    assert_true(gmt_scale(values, 0, 2));
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
        for (size_t at = 0; at < MOST; at += 13) {
            draw(values, MOST);
            values[at] = bad[b];
            assert_false(gmt_scale(values, MOST, 4));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_norm_is_added_up_in_one_order),
        cmocka_unit_test(a_long_gradient_is_shortened_and_a_short_one_is_not_touched),
        cmocka_unit_test(scaling_finds_what_is_not_finite_wherever_it_is),
    };
    return cmocka_run_group_tests_name("norm", tests, NULL, NULL);
}
