#include "comm/placement.h"

#include <sched.h>

#include "tests/support/test.h"

#define MS INT64_C(1000000)

static void a_conflict_makes_a_rank_move_ever_more_seldom(void **state)
{
    (void)state;
    struct gmi_placement p;
    gmi_placement_init(&p, 2, 2);
    int n_moves = 0;
    for (int64_t now_ms = 1; now_ms <= 10000; now_ms++)
        n_moves += gmi_placement_should_move(&p, true, now_ms * MS);
    assert_in_range(n_moves, 10, 25); /* after 0, 1, 3, 7, ... ms, then every second */
}

static void after_calm_a_conflict_is_answered_at_once(void **state)
{
    (void)state;
    struct gmi_placement p;
    gmi_placement_init(&p, 2, 2);
    for (int64_t now_ms = 1; now_ms <= 10000; now_ms++) (void)gmi_placement_should_move(&p, true, now_ms * MS);
    for (int i = 0; i < 1000; i++) assert_false(gmi_placement_should_move(&p, false, 10000 * MS));
    assert_true(gmi_placement_should_move(&p, true, 12000 * MS));
    assert_false(gmi_placement_should_move(&p, true, 12000 * MS + 1));
    assert_true(gmi_placement_should_move(&p, true, 12001 * MS));
}

static void more_ranks_than_cores_share_them(void **state)
{
    (void)state;
    struct gmi_placement p;
    gmi_placement_init(&p, 3, 2);
    assert_false(gmi_placement_should_move(&p, true, MS));
}

static void a_move_leaves_the_mask_as_it_was(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(gmi_placement_cores(), CPU_COUNT(&before));
    assert_int_equal(gmi_placement_move(), CPU_COUNT(&before) > 1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void a_move_is_to_another_core(void **state)
{
    (void)state;
    if (gmi_placement_cores() < 2) skip();
    bool has_moved = false; /* on a crowded machine the scheduler may have brought us back by the time we look */
    for (int i = 0; i < 1000 && !has_moved; i++) {
        uint16_t before = gmi_placement_core();
        assert_true(gmi_placement_move());
        has_moved = gmi_placement_core() != before;
    }
    assert_true(has_moved);
}

static void a_thread_with_one_core_stays(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t k = 0; k < CPU_SETSIZE && CPU_COUNT(&one) == 0; k++)
        if (CPU_ISSET(k, &before)) CPU_SET(k, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(gmi_placement_cores(), 1);
    assert_false(gmi_placement_move());
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conflict_makes_a_rank_move_ever_more_seldom),
        cmocka_unit_test(after_calm_a_conflict_is_answered_at_once),
        cmocka_unit_test(more_ranks_than_cores_share_them),
        cmocka_unit_test(a_move_leaves_the_mask_as_it_was),
        cmocka_unit_test(a_move_is_to_another_core),
        cmocka_unit_test(a_thread_with_one_core_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
