/* The measurements of what the machine carries: that each variant measures, what a plan holds,
 * and that what goes wrong ends in a sentence and in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/crew.h"
#include "bench/limits.h"

enum { SMALL = 128 * 1024 };

static size_t plan_all(struct bench_limit *limits, int n_processes, bool is_tcp_only)
{
    struct bench_plan plan = { .kinds = ~0u,
                               .n_processes = n_processes,
                               .is_tcp_only = is_tcp_only };
    return bench_limits_plan(&plan, limits, BENCH_MAX_LIMITS);
}

static void expect_measured(struct bench_limit *limit)
{
    gm_error error;
    gmi_error_clear(&error);
    if (limit->array_bytes > SMALL)
        limit->array_bytes = SMALL; /* quick; what is written must fit */
    if (limit->write_bytes > SMALL) limit->write_bytes = SMALL;
    gm_status status = bench_limit_measure(limit, 2 * SMALL, &error);
    if (status != GM_OK)
        fail_msg("%s over %s: %s", bench_limit_name(limit->kind),
                 bench_channel_name(limit->channel), error.text);
    assert_int_equal(limit->n_values, 1);
    assert_true(bench_limit_median(limit) > 0);
}

static void every_kind_and_channel_measures(void **state)
{
    (void)state;
    static struct bench_limit limits[BENCH_MAX_LIMITS];
    bool   seen[BENCH_LIMIT_KINDS][4][2] = { { { false } } };
    size_t n = plan_all(limits, 2, false);
    for (size_t i = 0; i < n; i++) {
        bool *was_seen = &seen[limits[i].kind][limits[i].channel][limits[i].is_spinning];
        if (*was_seen && limits[i].write_bytes != 256 * 1024) continue;
        *was_seen = true;
        expect_measured(&limits[i]);
    }
    assert_true(seen[BENCH_CIPHER][BENCH_MEMORY][0] && seen[BENCH_EXACT][BENCH_MEMORY][0]);
    assert_true(seen[BENCH_COPY][BENCH_MEMORY][0] && seen[BENCH_REDUCE][BENCH_MEMORY][0]);
    for (int channel = BENCH_TCP; channel <= BENCH_UNIX; channel++) {
        assert_true(seen[BENCH_ONEWAY][channel][0] && seen[BENCH_DUPLEX][channel][0]);
        assert_true(seen[BENCH_PING][channel][0] && seen[BENCH_PING][channel][1]);
    }
    assert_true(seen[BENCH_ONEWAY][BENCH_SHM][0] && seen[BENCH_PING][BENCH_SHM][1]);
}

static void more_than_two_processes_send_around_a_ring(void **state)
{
    (void)state;
    struct bench_limit limit = { .kind = BENCH_DUPLEX,
                                 .channel = BENCH_TCP,
                                 .n_processes = 3,
                                 .array_bytes = SMALL,
                                 .write_bytes = SMALL / 2 };
    expect_measured(&limit);
}

static void the_duplex_plan_has_all_writes_buffers_and_congestion_controls(void **state)
{
    (void)state;
    static struct bench_limit limits[BENCH_MAX_LIMITS];
    struct bench_plan plan = { .kinds = 1u << BENCH_DUPLEX, .n_processes = 2, .is_tcp_only = true };
    size_t n = bench_limits_plan(&plan, limits, BENCH_MAX_LIMITS), n_of_first = 0, n_large = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(limits[i].kind, BENCH_DUPLEX);
        assert_int_equal(limits[i].channel, BENCH_TCP);
        assert_int_equal(limits[i].array_bytes, 25 << 20);
        assert_true(limits[i].write_bytes >= 64 << 10 && limits[i].write_bytes <= 4 << 20);
        n_of_first += strcmp(limits[i].congestion, limits[0].congestion) == 0;
        n_large += limits[i].buffer_bytes == 4 << 20;
        for (size_t j = 0; j < i; j++)
            assert_true(limits[i].write_bytes != limits[j].write_bytes ||
                        limits[i].buffer_bytes != limits[j].buffer_bytes ||
                        strcmp(limits[i].congestion, limits[j].congestion) != 0);
    }
    assert_int_equal(n_of_first, 4 * 2);
    assert_int_equal(n_large, n / 2);
    assert_int_equal(n % 8, 0);
}

static void a_write_that_the_array_does_not_hold_is_refused(void **state)
{
    (void)state;
    struct bench_limit limit = { .kind = BENCH_ONEWAY,
                                 .channel = BENCH_SHM,
                                 .n_processes = 2,
                                 .array_bytes = SMALL,
                                 .write_bytes = SMALL + 1 };
    assert_int_equal(bench_limit_measure(&limit, SMALL, NULL), GM_ERR_ARG);
}

static void the_best_is_the_one_with_the_highest_median(void **state)
{
    (void)state;
    struct bench_limit limits[] = {
        { .kind = BENCH_DUPLEX, .channel = BENCH_TCP, .values = { 1, 9, 2 }, .n_values = 3 },
        { .kind = BENCH_DUPLEX, .channel = BENCH_TCP, .values = { 4, 3, 3 }, .n_values = 3 },
        { .kind = BENCH_DUPLEX, .channel = BENCH_UNIX, .values = { 8 }, .n_values = 1 },
        { .kind = BENCH_ONEWAY, .channel = BENCH_TCP, .values = { 7 }, .n_values = 1 },
        { .kind = BENCH_DUPLEX, .channel = BENCH_TCP },
    };
    assert_ptr_equal(bench_limits_best(limits, 5, BENCH_DUPLEX, BENCH_TCP), &limits[1]);
    assert_null(bench_limits_best(limits, 5, BENCH_PING, BENCH_TCP));
    assert_true(bench_limit_median(&limits[0]) == 2);
    assert_true(bench_limit_least(&limits[0]) == 1);
    assert_true(bench_limit_most(&limits[0]) == 9);
}

static void an_unknown_congestion_control_is_said(void **state)
{
    (void)state;
    struct bench_limit limit = { .kind = BENCH_ONEWAY,
                                 .channel = BENCH_TCP,
                                 .n_processes = 2,
                                 .array_bytes = SMALL,
                                 .write_bytes = SMALL,
                                 .congestion = "nosuchthing" };
    gm_error error;
    gmi_error_clear(&error);
    assert_int_equal(bench_limit_measure(&limit, SMALL, &error), GM_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "nosuchthing"));
    assert_int_equal(limit.n_values, 0);
}

/* ---- the crew ---------------------------------------------------------------------------------- */

static int fail_or_wait(struct bench_crew *crew, int member, void *job)
{
    if (member == *(int *)job) return EPERM;
    return bench_crew_meet(crew) ? 0 : ETIMEDOUT; /* who will not come */
}

static void a_member_that_fails_ends_the_others_at_once(void **state)
{
    (void)state;
    struct bench_crew crew;
    gm_error          error;
    int               failing = 1;
    double            begin_s = bench_now_s();
    gmi_error_clear(&error);
    assert_int_equal(bench_crew_run(&crew, 3, fail_or_wait, &failing, &error), GM_ERR_SYSTEM);
    assert_non_null(strstr(error.text, strerror(EPERM)));
    assert_true(bench_now_s() - begin_s < BENCH_STALL_MS / 1000.0 / 2);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static int kill_oneself(struct bench_crew *crew, int member, void *job)
{
    (void)job;
    if (member == 0) raise(SIGKILL);
    return bench_crew_meet(crew) ? 0 : ETIMEDOUT;
}

static void a_member_that_is_killed_ends_the_others_at_once(void **state)
{
    (void)state;
    struct bench_crew crew;
    gm_error          error;
    gmi_error_clear(&error);
    double begin_s = bench_now_s();
    assert_int_equal(bench_crew_run(&crew, 2, kill_oneself, NULL, &error), GM_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "killed"));
    assert_true(bench_now_s() - begin_s < BENCH_STALL_MS / 1000.0 / 2);
}

static int note_member(struct bench_crew *crew, int member, void *job)
{
    (void)job;
    if (!bench_crew_meet(crew)) return ETIMEDOUT;
    crew->elapsed_s[member] = member + 1;
    return 0;
}

static void the_slowest_member_counts(void **state)
{
    (void)state;
    struct bench_crew crew;
    assert_int_equal(bench_crew_run(&crew, 3, note_member, NULL, NULL), GM_OK);
    assert_true(bench_crew_elapsed_s(&crew) == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_and_channel_measures),
        cmocka_unit_test(more_than_two_processes_send_around_a_ring),
        cmocka_unit_test(the_duplex_plan_has_all_writes_buffers_and_congestion_controls),
        cmocka_unit_test(a_write_that_the_array_does_not_hold_is_refused),
        cmocka_unit_test(the_best_is_the_one_with_the_highest_median),
        cmocka_unit_test(an_unknown_congestion_control_is_said),
        cmocka_unit_test(a_member_that_fails_ends_the_others_at_once),
        cmocka_unit_test(a_member_that_is_killed_ends_the_others_at_once),
        cmocka_unit_test(the_slowest_member_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
