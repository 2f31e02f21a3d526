/* What waiting costs others: a rank whose peer is late may try for a moment, but must not burn the processor that
 * somebody, the late peer first of all, has work for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/ranks.h"

enum { COMPUTING_MS = 300, ALLOWED_MS = 60 };

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Both on one core, the first that may be used: what one burns the other lacks. */
static void stay_on_one_core(struct rank_self *self)
{
    cpu_set_t mask, one;
    rank_check(self, sched_getaffinity(0, sizeof mask, &mask) == 0);
    CPU_ZERO(&one);
    for (size_t k = 0; k < CPU_SETSIZE && CPU_COUNT(&one) == 0; k++)
        if (CPU_ISSET(k, &mask)) CPU_SET(k, &one);
    rank_check(self, sched_setaffinity(0, sizeof one, &one) == 0);
}

static void wait_for_one_that_computes(struct rank_self *self)
{
    stay_on_one_core(self);
    rank_create(self);
    float value = 1;
    rank_ok(self, gm_barrier(self->comm));
    double from_ms = cpu_ms();
    while (self->rank == 1 && cpu_ms() - from_ms < COMPUTING_MS) {}
    rank_ok(self, gm_all_reduce(self->comm, &value, &value, 1, GM_F32, GM_SUM));
    self->record->numbers[0] = (uint64_t)(cpu_ms() - from_ms);
    rank_check(self, value == 2);
    rank_destroy(self);
}

static void check_waiting_rank(void **state, const char *transport)
{
    struct ranks_job job = { .n_ranks = 2, .body = wait_for_one_that_computes, .transport = transport };
    struct ranks    *r = ranks_start(state, &job);
    ranks_finish(r);
    assert_in_range(ranks_shared(r)->records[1].numbers[0], COMPUTING_MS, UINT32_MAX);
    assert_in_range(ranks_shared(r)->records[0].numbers[0], 0, ALLOWED_MS * ranks_slowness());
}

static void a_rank_that_waits_leaves_the_core_to_one_that_computes(void **state) { check_waiting_rank(state, "tcp"); }
static void the_same_through_shared_memory(void **state) { check_waiting_rank(state, "shm"); }

/* However long trying is set to last, a neighbour's work ends it. */
static void try_for_a_second(struct rank_self *self)
{
    self->options.spin_us = 1000000;
    wait_for_one_that_computes(self);
}

static void a_neighbour_that_computes_ends_the_trying(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = try_for_a_second };
    struct ranks    *r = ranks_start(state, &job);
    ranks_finish(r);
    assert_in_range(ranks_shared(r)->records[0].numbers[0], 0, ALLOWED_MS * ranks_slowness());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_rank_that_waits_leaves_the_core_to_one_that_computes, ranks_teardown),
        cmocka_unit_test_teardown(the_same_through_shared_memory, ranks_teardown),
        cmocka_unit_test_teardown(a_neighbour_that_computes_ends_the_trying, ranks_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
