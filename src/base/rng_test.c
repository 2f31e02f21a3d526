#include "base/rng.h"

#include "tests/support/test.h"

/* Shuffles, initial weights and drawn digits must be the same on every machine and in every version. */
static void known_values(void **state)
{
    (void)state;
    /* The first outputs of SplitMix64 from state 0, as published with it. */
    assert_true(gmi_mix64(0) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(gmi_mix64(UINT64_C(0x9e3779b97f4a7c15)) == UINT64_C(0x6e789e6aa1b965f4));
    assert_true(gmi_mix64(UINT64_C(0x3c6ef372fe94f82a)) == UINT64_C(0x06c45d188009454f));
    assert_true(gmi_rng_u64(7, 0) == gmi_mix64(7));
}

static void numbers_below_a_bound_stay_below_and_reach_all(void **state)
{
    (void)state;
    int counts[10] = { 0 };
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t n = gmi_rng_below(42, i, 10);
        assert_in_range(n, 0, 9);
        counts[n]++;
        assert_int_equal(gmi_rng_below(42, i, 1), 0);
    }
    for (int k = 0; k < 10; k++) assert_in_range(counts[k], 850, 1150); /* 5 sigma */
}

static void the_unit_interval_excludes_one_and_is_even(void **state)
{
    (void)state;
    double sum = 0, least = 1, most = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double x = gmi_rng_unit(3, i);
        assert_true(x >= 0 && x < 1);
        sum += x;
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    assert_true(sum > 4850 && sum < 5150);
    assert_true(least < 0.002 && most > 0.998);
}

static void streams_of_different_keys_differ(void **state)
{
    (void)state;
    uint64_t a = gmi_rng_key(1, 1), b = gmi_rng_key(1, 2), c = gmi_rng_key(2, 1);
    int      n_alike = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        n_alike += gmi_rng_u64(a, i) == gmi_rng_u64(b, i);
        n_alike += gmi_rng_u64(a, i) == gmi_rng_u64(c, i);
        n_alike += gmi_rng_u64(b, i) == gmi_rng_u64(c, i);
    }
    assert_int_equal(n_alike, 0);
}

static void a_sequence_is_the_stream_in_order(void **state)
{
    (void)state;
    struct gmi_rng r = { .key = 17 };
    assert_true(gmi_rng_next(&r) == gmi_rng_u64(17, 0));
    assert_true(gmi_rng_next_below(&r, 1000) == gmi_rng_below(17, 1, 1000));
    assert_true(gmi_rng_next_unit(&r) == gmi_rng_unit(17, 2));
    assert_int_equal(r.counter, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(numbers_below_a_bound_stay_below_and_reach_all),
        cmocka_unit_test(the_unit_interval_excludes_one_and_is_even),
        cmocka_unit_test(streams_of_different_keys_differ),
        cmocka_unit_test(a_sequence_is_the_stream_in_order),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
