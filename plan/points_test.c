#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/points.h"

/* A point that was predicted to take one time and took another; one worker takes 10 ms either way. */
static void add(struct plan_points *points, int workers, double predicted_ms, double measured_ms)
{
    struct plan_point *point = &points->points[points->n_points++];
    *point = (struct plan_point){ .regime = STUDY_LIGHT, .was_measured = true, .measured_ms = measured_ms };
    point->prediction = (struct plan_prediction){ .workers = workers, .step_ms = predicted_ms, .speedup = 10 / predicted_ms,
                                                  .pays = workers > 1 && predicted_ms < 10 };
}

static void errors_are_compared_by_their_median(void **state)
{
    (void)state;
    static struct plan_points points;
    points.n_points = 0;
    add(&points, 1, 10, 10);
    add(&points, 2, 5.4, 6);  /* 10 % too fast */
    add(&points, 3, 9, 4.5);  /* twice as long, and still pays */
    struct plan_verdict verdict = plan_compare(&points);
    assert_int_equal(verdict.n_measured, 3);
    assert_true(fabs(verdict.median_error - 0.1) < 1e-9 && fabs(verdict.largest_error - 1) < 1e-9);
    assert_int_equal(verdict.worst, 2);
    assert_true(verdict.n_wrong_side == 0 && verdict.is_held == (verdict.median_error <= PLAN_ERROR_BAR));
    assert_true(fabs(points.points[1].measured_speedup - 10.0 / 6) < 1e-9 && points.points[1].measured_pays);
}

static void the_wrong_side_breaks_the_bar_whatever_the_median(void **state)
{
    (void)state;
    static struct plan_points points;
    points.n_points = 0;
    for (int i = 0; i < 9; i++) add(&points, i == 0 ? 1 : 2, i == 0 ? 10 : 5, i == 0 ? 10 : 5);
    add(&points, 4, 8, 12); /* would pay, does not */
    struct plan_verdict verdict = plan_compare(&points);
    assert_int_equal(verdict.n_wrong_side, 1);
    assert_true(points.points[9].is_wrong_side && !verdict.is_held && verdict.median_error == 0);
}

static void within_the_margin_neither_side_is_wrong(void **state)
{
    (void)state;
    static struct plan_points points;
    points.n_points = 0;
    add(&points, 1, 10, 10);
    add(&points, 2, 9.7, 10.4); /* 3 % before, 4 % behind */
    add(&points, 3, 9.7, 12);   /* the prediction itself said that it hardly matters */
    assert_int_equal(plan_compare(&points).n_wrong_side, 0);
}

static void one_worker_is_added_once_for_a_regime(void **state)
{
    (void)state;
    static struct plan_points  points;
    static struct plan_machine machine;
    plan_machine_init(&machine);
    machine.flops = 1e10;
    struct plan_job job = { .layers = { .sizes = { 8, 4 }, .n_sizes = 2 }, .batch = 64, .accumulate = 1, .threads = 1,
                            .transport = "tcp", .wire = "f32" };
    points.n_points = 0;
    assert_true(plan_add_point(&points, &machine, STUDY_LIGHT, "loopback", &job, 1));
    assert_true(plan_add_point(&points, &machine, STUDY_LIGHT, "loopback", &job, 2));
    assert_true(plan_set_network(&job, "1gbit", 30, false));
    assert_true(plan_add_point(&points, &machine, STUDY_LIGHT, "1gbit", &job, 1));
    assert_true(plan_add_point(&points, &machine, STUDY_HEAVY, "1gbit", &job, 1));
    assert_int_equal(points.n_points, 3);
    assert_false(plan_set_network(&job, "1 furlong", 30, false));
}

static void a_plan_that_has_measured_nothing_holds_nothing(void **state)
{
    (void)state;
    static struct plan_points points;
    points.n_points = 0;
    assert_false(plan_compare(&points).is_held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_compared_by_their_median),
        cmocka_unit_test(the_wrong_side_breaks_the_bar_whatever_the_median),
        cmocka_unit_test(within_the_margin_neither_side_is_wrong),
        cmocka_unit_test(one_worker_is_added_once_for_a_regime),
        cmocka_unit_test(a_plan_that_has_measured_nothing_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
