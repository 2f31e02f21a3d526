/* Who comes late, and who waits: judged from arrival times that are made up, beside a count by hand. */
#include "train/arrivals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"

/* A world of n ranks, of which this is rank 0, with room for steps; gmt_arrivals_init would want a communicator. */
static struct gmt_arrivals world_of(int n_ranks, size_t n_per_step, size_t max_steps)
{
    size_t n = (size_t)n_ranks;
    return (struct gmt_arrivals){ .n_ranks = n_ranks,
                                  .n_per_step = n_per_step,
                                  .max_steps = max_steps,
                                  .own = gmi_alloc(max_steps * n_per_step, sizeof(struct gmt_passage)),
                                  .all = gmi_alloc(n * max_steps * n_per_step, sizeof(int64_t)),
                                  .waits_ns = gmi_alloc(max_steps, sizeof(int64_t)),
                                  .costs_ns = gmi_alloc(2 * n, sizeof(int64_t)),
                                  .n_last = gmi_alloc(2 * n, sizeof(uint64_t)),
                                  .errors_ns = gmi_alloc(2 * n, sizeof(int64_t)) };
}

static void a_rank_waits_for_the_last_one_and_no_longer_than_it_stands_there(void **state)
{
    (void)state;
    struct gmt_arrivals a = world_of(3, 1, 4);
    struct gmt_lateness late;
    /* rank 0 arrives at 10; then the last at 50, before our end; the last at 200, after it; nobody after us. */
    const struct gmt_passage own[] = { { 10, 10, 90 }, { 10, 10, 90 }, { 10, 10, 90 } };
    const int64_t            all[3][3] = { { 10, 10, 10 }, { 30, 30, 5 }, { 50, 200, 7 } };
    for (int step = 0; step < 3; step++) gmt_arrivals_add(&a, &own[step]);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(a.waits_ns[0], 40);
    assert_int_equal(a.waits_ns[1], 80);
    assert_int_equal(a.waits_ns[2], 0);
    assert_int_equal(late.wait_ns, 120);
    gmt_arrivals_fini(&a);
}

static void the_last_rank_costs_what_it_comes_later_than_the_one_before_it(void **state)
{
    (void)state;
    struct gmt_arrivals      a = world_of(3, 1, 4);
    struct gmt_lateness      late;
    const struct gmt_passage own = { 0, 0, 1000 };
    const int64_t            all[3][3] = { { 0, 0, 0 }, { 100, 90, 400 }, { 400, 300, 395 } };
    for (int step = 0; step < 3; step++) gmt_arrivals_add(&a, &own);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(late.last_rank, 2);
    assert_int_equal(late.last_cost_ns, 300 + 210);
    assert_int_equal(late.n_last, 2);
    assert_true(gmt_lateness_has_straggler(&late, 3000));
    assert_false(gmt_lateness_has_straggler(&late, 51000 / 5 + 1));
    gmt_arrivals_fini(&a);
}

static void taking_turns_in_being_late_makes_no_straggler(void **state)
{
    (void)state;
    struct gmt_arrivals      a = world_of(2, 1, 4);
    struct gmt_lateness      late;
    const struct gmt_passage own = { 0, 0, 1000 };
    const int64_t            all[2][4] = { { 0, 300, 0, 300 }, { 300, 0, 300, 0 } };
    for (int step = 0; step < 4; step++) gmt_arrivals_add(&a, &own);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(late.last_cost_ns, 600);
    assert_false(gmt_lateness_has_straggler(&late, 4000));
    gmt_arrivals_fini(&a);
}

static void what_is_exchanged_while_computing_is_waited_for_only_once_the_rank_stands_still(void **state)
{
    (void)state;
    struct gmt_arrivals a = world_of(2, 2, 1);
    struct gmt_lateness late;
    /* The first exchange is started at 10 and waited for from 60 to 70; the second one is waited for at once. */
    const struct gmt_passage own[] = { { 10, 60, 70 }, { 40, 40, 60 } };
    const int64_t            all[2][2] = { { 10, 40 }, { 65, 55 } };
    gmt_arrivals_add(&a, own);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(a.waits_ns[0], 5 + 15);
    assert_int_equal(late.last_rank, 1);
    assert_int_equal(late.last_cost_ns, 15); /* of the second alone: at the first nobody stood still */
    gmt_arrivals_fini(&a);
}

static void clocks_that_differ_are_brought_together(void **state)
{
    (void)state;
    struct gmt_arrivals      a = world_of(2, 1, 1);
    struct gmt_lateness      late;
    const struct gmt_passage own = { 1010, 1010, 1090 }; /* by a clock that is 1000 ahead */
    const int64_t            all[2] = { 10, 50 };
    a.first = a.last = (struct gmt_clock_reading){ 0, 1000 };
    gmt_arrivals_add(&a, &own);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(late.wait_ns, 40);
    gmt_arrivals_fini(&a);
}

static void a_clock_drifts_evenly_between_two_readings(void **state)
{
    (void)state;
    struct gmt_arrivals      a = world_of(2, 1, 1);
    struct gmt_lateness      late;
    const struct gmt_passage own = { 2010, 2010, 2500 }; /* when it was 1150 ahead */
    const int64_t            all[2] = { 860, 950 };
    a.first = (struct gmt_clock_reading){ 2000, 1100 };
    a.last = (struct gmt_clock_reading){ 3000, 1200 };
    gmt_arrivals_add(&a, &own);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(late.wait_ns, 950 + 1150 - 2010);
    gmt_arrivals_fini(&a);
}

static void nobody_came_last_by_less_than_the_clocks_are_known(void **state)
{
    (void)state;
    struct gmt_arrivals      a = world_of(3, 1, 4);
    struct gmt_lateness      late;
    const struct gmt_passage own = { 0, 0, 1000 };
    const int64_t            all[3][3] = { { 0, 0, 0 }, { 100, 100, 100 }, { 149, 140, 130 } };
    a.has_many_clocks = true;
    a.errors_ns[1] = 20;
    a.errors_ns[2] = 30;
    for (int step = 0; step < 3; step++) gmt_arrivals_add(&a, &own);
    memcpy(a.all, all, sizeof all);
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(late.last_rank, -1);
    assert_int_equal(late.last_cost_ns, 0);
    assert_int_equal(late.clock_error_ns, 30);
    assert_false(gmt_lateness_has_straggler(&late, 100));
    a.errors_ns[2] = 29; /* 49 apart, and together wrong by 49 at most */
    gmt_arrivals_judge(&a, &late);
    assert_int_equal(late.last_rank, 2);
    assert_int_equal(late.n_last, 1);
    assert_int_equal(late.last_cost_ns, 49);
    gmt_arrivals_fini(&a);
}

static void the_total_is_of_all_that_was_settled(void **state)
{
    (void)state;
    struct gmt_arrivals      a = world_of(2, 1, 1);
    struct gmt_lateness      late;
    const struct gmt_passage own = { 0, 0, 100 };
    for (int round = 0; round < 3; round++) {
        gmt_arrivals_add(&a, &own);
        gmt_arrivals_add(&a, &own); /* there is no room for it */
        assert_int_equal(a.n_steps, 1);
        a.all[0] = 0;
        a.all[1] = 20 + round;
        gmt_arrivals_judge(&a, &late);
        a.n_steps = 0;
    }
    gmt_arrivals_total(&a, &late);
    assert_int_equal(late.n_steps, 3);
    assert_int_equal(late.wait_ns, 63);
    assert_int_equal(late.last_cost_ns, 63);
    assert_int_equal(late.n_last, 3);
    gmt_arrivals_fini(&a);
}

static void a_world_of_one_has_nobody_to_wait_for(void **state)
{
    (void)state;
    struct gmt_arrivals      a;
    struct gmt_lateness      late;
    const struct gmt_passage own = { 0, 0, 100 };
    assert_int_equal(gmt_arrivals_init(&a, NULL, 1, 10, NULL), GM_OK);
    gmt_arrivals_add(&a, &own);
    assert_int_equal(gmt_arrivals_settle(&a, NULL, &late), GM_OK);
    assert_int_equal(late.last_rank, -1);
    assert_false(gmt_lateness_has_straggler(&late, 1));
    gmt_arrivals_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_waits_for_the_last_one_and_no_longer_than_it_stands_there),
        cmocka_unit_test(the_last_rank_costs_what_it_comes_later_than_the_one_before_it),
        cmocka_unit_test(taking_turns_in_being_late_makes_no_straggler),
        cmocka_unit_test(what_is_exchanged_while_computing_is_waited_for_only_once_the_rank_stands_still),
        cmocka_unit_test(clocks_that_differ_are_brought_together),
        cmocka_unit_test(a_clock_drifts_evenly_between_two_readings),
        cmocka_unit_test(nobody_came_last_by_less_than_the_clocks_are_known),
        cmocka_unit_test(the_total_is_of_all_that_was_settled),
        cmocka_unit_test(a_world_of_one_has_nobody_to_wait_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
