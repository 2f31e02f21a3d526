/* From timings to a profile: medians, stretches, fitted constants. */
#include "plan/tune.h"

#include <math.h>

#include "base/alloc.h"
#include "coll/algo.h"
#include "tests/support/test.h"

static const struct gmi_site site = { GMI_KIND_LOOPBACK, 4, 2, 1 };

static struct plan_timing timing(uint8_t algorithm, uint64_t bytes, double us)
{
    return (struct plan_timing){ .site = site, .collective = GM_ALL_REDUCE, .algorithm = algorithm, .bytes = bytes, .us = us };
}

static size_t contests_of(struct plan_timing *timings, size_t n, struct plan_contest **contests)
{
    size_t   n_contests;
    gm_error error = { .status = GM_OK };
    if (plan_tune_contests(timings, n, contests, &n_contests, &error) != GM_OK) fail_msg("%s", error.text);
    return n_contests;
}

static const char *choices_of(struct plan_timing *timings, size_t n)
{
    static char          text[GMI_CHOICES_TEXT_BYTES];
    struct plan_contest *contests;
    struct gmi_choice    choices[PLAN_TUNE_MAX_ALGOS];
    assert_int_equal(contests_of(timings, n, &contests), 1);
    gmi_choices_text(choices, plan_tune_choices(contests, choices), text);
    gmi_free(contests);
    return text;
}

static void the_change_is_between_the_sizes_where_the_best_changes(void **state)
{
    (void)state;
    struct plan_timing t[] = { timing(GMI_ALGO_RING, 4, 100), timing(GMI_ALGO_RING, 1000, 100), timing(GMI_ALGO_RING, 4000, 100),
                               timing(GMI_ALGO_TREE, 4, 10), timing(GMI_ALGO_TREE, 1000, 50), timing(GMI_ALGO_TREE, 4000, 200) };
    assert_string_equal(choices_of(t, TEST_COUNT(t)), "tree:2000,ring");
}

static void the_median_of_the_rounds_counts(void **state)
{
    (void)state;
    struct plan_timing t[] = { timing(GMI_ALGO_RING, 4, 20), timing(GMI_ALGO_TREE, 4, 5), timing(GMI_ALGO_RING, 4, 20),
                               timing(GMI_ALGO_TREE, 4, 30), timing(GMI_ALGO_TREE, 4, 31) };
    assert_string_equal(choices_of(t, TEST_COUNT(t)), "ring");
}

/* Else noise would make crossings, and others in each run. */
static void small_wins_make_no_change(void **state)
{
    (void)state;
    struct plan_timing t[] = { timing(GMI_ALGO_RING, 4, 100), timing(GMI_ALGO_RING, 64, 102), timing(GMI_ALGO_RING, 1024, 100),
                               timing(GMI_ALGO_TREE, 4, 110), timing(GMI_ALGO_TREE, 64, 100), timing(GMI_ALGO_TREE, 1024, 110) };
    assert_string_equal(choices_of(t, TEST_COUNT(t)), "ring");
}

static void what_was_not_timed_at_a_size_is_not_chosen_there(void **state)
{
    (void)state;
    struct plan_timing t[] = { timing(GMI_ALGO_RING, 4, 20), timing(GMI_ALGO_TREE, 4, 10), timing(GMI_ALGO_RING, 100, 20) };
    assert_string_equal(choices_of(t, TEST_COUNT(t)), "tree:20,ring");
}

/* Times that the model itself foresees under other constants. */
static size_t foreseen(struct plan_timing *t, const struct gmi_link_costs *truth)
{
    struct gmi_profile     profile = { .kinds[GMI_KIND_LOOPBACK] = *truth };
    struct gmi_costs       costs = plan_site_costs(site, &profile);
    const struct gmi_algo *row;
    size_t                 n = 0;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->collective != GM_ALL_REDUCE || row->shows >= GMI_VIEW_LEAN) continue;
        for (uint64_t bytes = 4; bytes <= 1 << 24; bytes *= 16) t[n++] = timing(row->id, bytes, gmi_algo_us(row, &costs, bytes));
    }
    return n;
}

static void fitted_constants_choose_as_those_that_were_true(void **state)
{
    (void)state;
    const struct gmi_link_costs truth = { 9000, 2000, 400, 60, 200, 300000 };
    struct plan_timing          t[100];
    struct plan_contest        *contests;
    struct gmi_profile          before, fitted;
    size_t                      n = contests_of(t, foreseen(t, &truth), &contests);
    gmi_profile_builtin(&before);
    before.n_choices = 0;
    fitted = before;
    plan_tune_constants(contests, n, GMI_KIND_LOOPBACK, &fitted.kinds[GMI_KIND_LOOPBACK]);
    struct plan_verdict was = plan_tune_verdict(contests, &before), is = plan_tune_verdict(contests, &fitted);
    gmi_free(contests);
    assert_true(is.mean < 1.02 && is.mean <= was.mean);
    assert_int_equal(is.n_within, 6);
    assert_true(fabs(log(fitted.kinds[GMI_KIND_LOOPBACK].byte_ps / 400.0)) < 0.2);
}

static void the_verdict_names_the_worst_size(void **state)
{
    (void)state;
    struct plan_timing   t[] = { timing(GMI_ALGO_RING, 4, 20), timing(GMI_ALGO_TREE, 4, 10), timing(GMI_ALGO_RING, 100, 21),
                                 timing(GMI_ALGO_TREE, 100, 20) };
    struct plan_contest *contests;
    struct gmi_profile   profile = { .n_choices = 1 };
    profile.choices[0] = (struct gmi_choice){ .site = site, .collective = GM_ALL_REDUCE, .algorithm = GMI_ALGO_RING,
                                              .most_bytes = UINT64_MAX };
    contests_of(t, TEST_COUNT(t), &contests);
    struct plan_verdict v = plan_tune_verdict(contests, &profile);
    gmi_free(contests);
    assert_float_equal(v.worst, 2, 1e-9);
    assert_int_equal(v.worst_bytes, 4);
    assert_int_equal(v.n_within, 1);
    assert_float_equal(v.mean, sqrt(2 * 1.05), 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_change_is_between_the_sizes_where_the_best_changes),
        cmocka_unit_test(the_median_of_the_rounds_counts),
        cmocka_unit_test(small_wins_make_no_change),
        cmocka_unit_test(what_was_not_timed_at_a_size_is_not_chosen_there),
        cmocka_unit_test(fitted_constants_choose_as_those_that_were_true),
        cmocka_unit_test(the_verdict_names_the_worst_size),
    };
    return cmocka_run_group_tests_name("tune", tests, NULL, NULL);
}
