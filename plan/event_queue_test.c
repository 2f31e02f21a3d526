#include "plan/event_queue.h"

#include "base/rng.h"
#include "tests/support/test.h"

static struct plan_event take(struct plan_event_queue *q)
{
    struct plan_event event;
    assert_true(plan_event_take(q, &event));
    return event;
}

static void the_earliest_event_comes_first(void **state)
{
    (void)state;
    struct plan_event_queue q = { 0 };
    struct gmi_rng          rng = { .key = 11 };
    int64_t                 before_ps = -1;
    for (int i = 0; i < 5000; i++) {
        assert_true(plan_event_add(&q, (int64_t)gmi_rng_next_below(&rng, 1000), PLAN_RANK_RUNS, (uint32_t)i));
    }
    for (int i = 0; i < 5000; i++) {
        struct plan_event event = take(&q);
        assert_true(event.at_ps >= before_ps);
        before_ps = event.at_ps;
    }
    struct plan_event none;
    assert_false(plan_event_take(&q, &none));
    assert_int_equal(q.n_added, 5000);
    plan_event_queue_fini(&q);
}

static void events_of_one_time_come_in_the_order_in_which_they_were_added(void **state)
{
    (void)state;
    struct plan_event_queue q = { .next_order = UINT32_MAX - 50 }; /* over the end of the counter too */
    for (uint32_t i = 0; i < 100; i++) assert_true(plan_event_add(&q, 7, PLAN_BYTES_ARRIVE, i));
    for (uint32_t i = 0; i < 100; i++) {
        struct plan_event event = take(&q);
        assert_int_equal(event.target, i);
        assert_int_equal(event.kind, PLAN_BYTES_ARRIVE);
    }
    plan_event_queue_fini(&q);
}

static void events_can_be_added_while_others_are_taken(void **state)
{
    (void)state;
    struct plan_event_queue q = { 0 };
    struct gmi_rng          rng = { .key = 12 };
    int64_t                 now_ps = 0;
    assert_true(plan_event_add(&q, 0, PLAN_RANK_RUNS, 0));
    for (int i = 0; i < 10000; i++) {
        struct plan_event event = take(&q);
        assert_true(event.at_ps >= now_ps);
        now_ps = event.at_ps;
        for (uint64_t n = 1 + (i < 300 ? gmi_rng_next_below(&rng, 3) : 0); n > 0; n--) {
            assert_true(plan_event_add(&q, now_ps + (int64_t)gmi_rng_next_below(&rng, 50), PLAN_RANK_RUNS, 0));
        }
    }
    plan_event_queue_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_earliest_event_comes_first),
        cmocka_unit_test(events_of_one_time_come_in_the_order_in_which_they_were_added),
        cmocka_unit_test(events_can_be_added_while_others_are_taken),
    };
    return cmocka_run_group_tests_name("event queue", tests, NULL, NULL);
}
