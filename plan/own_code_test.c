#include "plan/own_code.h"

#include "tests/support/test.h"

static void a_call_takes_longer_than_a_try(void **state)
{
    (void)state;
    struct bench_turns turns = { .miss_us = 7 };
    assert_int_equal(plan_measure_own_code(&turns, NULL), GM_OK);
    assert_true(turns.try_us > 0.005 && turns.try_us < turns.call_us);
    assert_true(turns.call_us < 1000);
    assert_true(turns.miss_us == 7); /* what others measure stays */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_call_takes_longer_than_a_try) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
