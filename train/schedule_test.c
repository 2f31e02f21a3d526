#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "train/schedule.h"

/* cmocka's own comparison rounds to float. */
static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%.17g, expected %.17g", value, expected);
}

static void constant_stays(void **state)
{
    (void)state;
    struct gmt_schedule s = { .kind = GMT_CONSTANT, .base_rate = 0.1, .total_steps = 10 };
    for (uint64_t step = 0; step < 20; step++) assert_true(gmt_schedule_rate(&s, step) == 0.1);
}

static void warm_up_rises_in_equal_steps_to_the_base(void **state)
{
    (void)state;
    for (int kind = 0; kind < GMT_SCHEDULE_END; kind++) {
        struct gmt_schedule s = { .kind = (enum gmt_schedule_kind)kind,
                                  .base_rate = 0.5, .warmup_steps = 4, .total_steps = 100 };
        for (uint64_t step = 0; step <= 4; step++)
            assert_near(gmt_schedule_rate(&s, step), 0.1 * (double)(step + 1), 1e-15);
    }
}

static void linear_and_cosine_follow_their_formulas(void **state)
{
    (void)state;
    const uint64_t warmup = 10, total = 1000;
    struct gmt_schedule linear = { GMT_LINEAR, 0.3, 0.1, warmup, total };
    struct gmt_schedule cosine = { GMT_COSINE, 0.3, 0.1, warmup, total };
    for (uint64_t step = warmup; step < total; step++) {
        double p = (double)(step - warmup) / (double)(total - warmup);
        assert_near(gmt_schedule_rate(&linear, step), 0.3 - p * (0.3 - 0.03), 1e-15);
        assert_near(gmt_schedule_rate(&cosine, step),
                           0.03 + 0.27 * 0.5 * (1 + cos(M_PI * p)), 1e-15);
    }
}

static void the_end_keeps_the_final_rate(void **state)
{
    (void)state;
    struct gmt_schedule s = { GMT_LINEAR, 0.3, 0.1, 0, 50 };
    assert_near(gmt_schedule_rate(&s, 50), 0.03, 1e-15);
    assert_near(gmt_schedule_rate(&s, 5000), 0.03, 1e-15);
    s.kind = GMT_COSINE;
    assert_near(gmt_schedule_rate(&s, UINT64_MAX), 0.03, 1e-15);
}

static void warm_up_longer_than_the_run_is_no_trouble(void **state)
{
    (void)state;
    struct gmt_schedule s = { GMT_COSINE, 1, 0, 100, 10 };
    assert_near(gmt_schedule_rate(&s, 9), 10.0 / 101, 1e-15);
    assert_true(isfinite(gmt_schedule_rate(&s, 100)));
    s.warmup_steps = UINT64_MAX;
    assert_true(gmt_schedule_rate(&s, 5) >= 0);
}

static void names_are_known(void **state)
{
    (void)state;
    for (int k = 0; k < GMT_SCHEDULE_END; k++) {
        enum gmt_schedule_kind kind = GMT_SCHEDULE_END;
        const char *name = gmt_schedule_name((enum gmt_schedule_kind)k);
        assert_int_equal(gmt_schedule_parse(&kind, name, NULL), GM_OK);
        assert_int_equal(kind, k);
    }
    assert_string_equal(gmt_schedule_name(GMT_SCHEDULE_END), "?");
    enum gmt_schedule_kind kind;
    gm_error error;
    gmi_error_clear(&error);
    assert_int_equal(gmt_schedule_parse(&kind, "step", &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "cosine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(warm_up_rises_in_equal_steps_to_the_base),
        cmocka_unit_test(linear_and_cosine_follow_their_formulas),
        cmocka_unit_test(the_end_keeps_the_final_rate),
        cmocka_unit_test(warm_up_longer_than_the_run_is_no_trouble),
        cmocka_unit_test(names_are_known),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
