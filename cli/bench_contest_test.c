/* When "auto" counts as behind the best algorithm. */
#include "cli/bench_contest.h"

#include "tests/support/test.h"

enum { N = 5, AUTO = 0, RING, TREE, N_ROWS };

static cli_bench_repeats repeats[N_ROWS];

/* The rows of auto, which takes the ring, of the ring and of the tree, each with its times. */
static struct cli_bench_row compared(const double us[N_ROWS][N], size_t n_rows)
{
    static struct cli_bench_row rows[N_ROWS];
    const char *const           asked[] = { "auto", "ring", "tree" }, *const ran[] = { "ring", "ring", "tree" };
    for (size_t i = 0; i < n_rows; i++) {
        rows[i] = (struct cli_bench_row){ .asked = asked[i], .ran = ran[i], .has_result = { false, true } };
        for (int r = 0; r < N; r++) repeats[i][1][r] = (struct cli_bench_result){ .median_us = us[i][r], .is_in_place = true };
        rows[i].results[1] = cli_bench_middle(repeats[i][1], N);
    }
    cli_bench_compare(rows, n_rows, repeats, N);
    return rows[AUTO];
}

static void auto_is_behind_what_is_steadily_faster(void **state)
{
    (void)state;
    const double         us[N_ROWS][N] = { { 12, 12, 12, 9, 12 }, { 12, 12, 12, 12, 12 }, { 10, 10, 10, 10, 10 } };
    struct cli_bench_row row = compared(us, N_ROWS);
    assert_true(row.is_behind[1]);
    assert_float_equal(row.over_best[1], 1.2, 1e-9);
    assert_string_equal(row.best[1], "tree");
    assert_false(row.is_behind[0]);
    assert_true(row.over_best[0] == 0);
}

static void it_is_not_where_it_is_as_often_faster(void **state)
{
    (void)state;
    const double us[N_ROWS][N] = { { 12, 9, 12, 9, 12 }, { 12, 12, 12, 12, 12 }, { 10, 10, 10, 10, 10 } };
    assert_false(compared(us, N_ROWS).is_behind[1]);
}

static void it_is_not_where_what_it_took_is_the_best_when_forced(void **state)
{
    (void)state;
    const double         us[N_ROWS][N] = { { 12, 12, 12, 12, 12 }, { 10, 10, 10, 10, 10 }, { 11, 11, 11, 11, 11 } };
    struct cli_bench_row row = compared(us, N_ROWS);
    assert_false(row.is_behind[1]);
    assert_float_equal(row.over_best[1], 1.2, 1e-9); /* the figure stays what was measured */
}

static void it_is_not_where_what_it_took_keeps_up_when_forced(void **state)
{
    (void)state;
    const double us[N_ROWS][N] = { { 12, 12, 12, 12, 12 }, { 10.5, 9, 10.5, 9, 10.5 }, { 10, 10, 10, 10, 10 } };
    assert_false(compared(us, N_ROWS).is_behind[1]);
}

static void alone_it_is_compared_with_nobody(void **state)
{
    (void)state;
    const double us[N_ROWS][N] = { { 12, 12, 12, 12, 12 } };
    assert_true(compared(us, 1).over_best[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_behind_what_is_steadily_faster),
        cmocka_unit_test(it_is_not_where_it_is_as_often_faster),
        cmocka_unit_test(it_is_not_where_what_it_took_is_the_best_when_forced),
        cmocka_unit_test(it_is_not_where_what_it_took_keeps_up_when_forced),
        cmocka_unit_test(alone_it_is_compared_with_nobody),
    };
    return cmocka_run_group_tests_name("bench_contest", tests, NULL, NULL);
}
