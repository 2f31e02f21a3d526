/* What a study makes of its runs, on figures that are made up. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "study/network.h"
#include "study/record.h"
#include "study/shared.h"
#include "study/study.h"
#include "study/verdict.h"

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * (1 + fabs(b))) fail_msg("%.12g is not %.12g", a, b);
}

static struct study *study_of(int n_worlds)
{
    struct study *study = gmi_alloc(1, sizeof *study);
    gm_error      error;
    gmi_error_clear(&error);
    for (int n = n_worlds == 1 ? 1 : 2; n <= n_worlds; n++) {
        struct study_point point;
        study_point_default(&point, STUDY_LIGHT, n);
        assert_int_equal(study_add(study, &point, &error), GM_OK);
    }
    return study;
}

/* A repeat of a row: its step, its step without exchange, and how one of them is spent. */
static void add_run(struct study_row *row, double step_ms, double zero_ms, double exchange_ms, double wait_ms)
{
    struct study_result *run = &row->runs[row->n_repeats];
    *run = (struct study_result){ .median_ms = step_ms,
                                  .compute_ms = step_ms - exchange_ms - wait_ms,
                                  .comm_exposed_ms = exchange_ms,
                                  .wait_ms = wait_ms,
                                  .last_rank = row->point.world_size > 1 ? 0 : -1,
                                  .are_identical = true };
    strcpy(run->transport, row->point.world_size > 1 ? "tcp" : "none");
    row->zero_ms[row->n_repeats++] = zero_ms;
}

static void one_worker_is_measured_even_when_nobody_asks_for_it(void **state)
{
    (void)state;
    struct study *study = study_of(3);
    assert_int_equal(study->n_rows, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(study->rows[i].point.world_size, i + 1);
        assert_int_equal(study->rows[i].base, 0);
    }
    gmi_free(study);
}

static void a_busy_repeat_does_not_reach_the_ratios(void **state)
{
    (void)state;
    struct study *study = study_of(2);
    /* In the second repeat everything takes ten times as long. */
    const double busy[] = { 1, 10, 1 };
    for (int i = 0; i < 3; i++) {
        add_run(&study->rows[0], 12 * busy[i], 12 * busy[i], 0, 0);
        add_run(&study->rows[1], 8 * busy[i], 6 * busy[i], busy[i], busy[i]);
    }
    study_finish(study);
    const struct study_row *row = &study->rows[1];
    assert_near(row->median_ms, 8);
    assert_near(row->speedup, 1.5);
    assert_near(row->zero_comm_speedup, 2);
    assert_near(row->zero_comm_share, 0.75);
    assert_near(row->efficiency, 0.75);
    assert_near(row->compute_ms + row->comm_exposed_ms + row->wait_ms, row->median_ms);
    assert_near(study->rows[0].speedup, 1);
    gmi_free(study);
}

static void a_slow_rank_has_a_name_when_it_costs_something_in_most_repeats(void **state)
{
    (void)state;
    for (int late = 0; late <= 3; late++) { /* in so many of three repeats rank 1 comes last */
        struct study *study = study_of(2);
        for (int i = 0; i < 3; i++) {
            add_run(&study->rows[0], 12, 12, 0, 0);
            add_run(&study->rows[1], 8, 6, 0, 1);
            if (i < late) {
                study->rows[1].runs[i].last_rank = 1;
                study->rows[1].runs[i].last_share = 0.9;
                study->rows[1].runs[i].last_cost_ms = 1;
            }
        }
        study_finish(study);
        assert_int_equal(study->rows[1].slowest_rank, late >= 2 ? 1 : -1);
        assert_near(study->rows[1].slowest_cost_ms, late >= 2 ? 1 : 0);
        gmi_free(study);
    }
    struct study *study = study_of(2); /* always last, but by nothing that counts */
    add_run(&study->rows[0], 12, 12, 0, 0);
    add_run(&study->rows[1], 8, 6, 0, 1);
    study->rows[1].runs[0].last_rank = 1;
    study->rows[1].runs[0].last_share = 1;
    study->rows[1].runs[0].last_cost_ms = 0.1;
    study_finish(study);
    assert_int_equal(study->rows[1].slowest_rank, -1);
    gmi_free(study);
}

static void what_eats_the_rest_is_the_largest_of_what_is_missing(void **state)
{
    (void)state;
    static const struct {
        double            step_ms, zero_ms, exchange_ms, wait_ms;
        enum study_eater  eater;
    } cases[] = {
        { 6.05, 6, 0.05, 0, STUDY_EATEN_BY_NOTHING },  /* of 12: as good as twice as fast */
        { 10, 9.5, 0.4, 0.1, STUDY_EATEN_BY_HARDWARE },
        { 10, 6.5, 3, 0.5, STUDY_EATEN_BY_EXCHANGE },
        { 10, 6.5, 0.5, 3, STUDY_EATEN_BY_WAITING },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct study *study = study_of(2);
        add_run(&study->rows[0], 12, 12, 0, 0);
        add_run(&study->rows[1], cases[i].step_ms, cases[i].zero_ms, cases[i].exchange_ms, cases[i].wait_ms);
        study_finish(study);
        assert_int_equal(study_eater_of(&study->rows[1]), cases[i].eater);
        gmi_free(study);
    }
}

static char *words_of(struct study *study)
{
    char  *text = NULL;
    size_t n_bytes;
    FILE  *file = open_memstream(&text, &n_bytes);
    study_finish(study);
    study_print_verdict(file, study);
    fclose(file);
    return text;
}

static void the_verdict_says_whether_it_pays_and_for_how_many(void **state)
{
    (void)state;
    static const struct {
        double      two_ms, three_ms;
        const char *words;
    } cases[] = { { 8, 7, "it pays. 3 workers are 1.71 times as fast as one" },
                  { 6, 7, "it pays. 2 workers are 2.00 times as fast as one" },
                  { 12.1, 13, "it makes no difference: 2 workers take as long as one" },
                  { 20, 15, "it does not pay. Even 3 workers are slower than one: 15.00 ms" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct study *study = study_of(3);
        add_run(&study->rows[0], 12, 12, 0, 0);
        add_run(&study->rows[1], cases[i].two_ms, 6, 1, 0);
        add_run(&study->rows[2], cases[i].three_ms, 6, 1, 0);
        char *words = words_of(study);
        if (strstr(words, cases[i].words) == NULL) fail_msg("'%s' is not in: %s", cases[i].words, words);
        free(words);
        gmi_free(study);
    }
}

/* Where nobody is slow that is said, too: silence could mean that nobody looked. */
static void the_verdict_names_the_slow_rank_or_says_that_there_is_none(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        struct study *study = study_of(2);
        add_run(&study->rows[0], 12, 12, 0, 0);
        add_run(&study->rows[1], 8, 6, 0, 2);
        study->rows[1].runs[0].last_rank = 1;
        study->rows[1].runs[0].last_share = 0.9;
        study->rows[1].runs[0].last_cost_ms = is_late ? 2 : 0.1;
        char       *words = words_of(study);
        const char *wanted = is_late ? "Rank 1 (on core 0) is slow: without it coming late each step would be 2.00 ms shorter, 25 %"
                                     : "Of these 2 none is slow: no rank keeps the others waiting for more than 5 % of a step";
        if (strstr(words, wanted) == NULL) fail_msg("'%s' is not in: %s", wanted, words);
        free(words);
        gmi_free(study);
    }
}

static void what_already_travels_as_few_bytes_is_not_told_to(void **state)
{
    (void)state;
    static const char *const wires[][3] = { { "f32", "--wire bf16", "--wire int8" },
                                            { "bf16", "--wire int8", "--wire bf16" },
                                            { "int8", "larger batch or a faster network", "--wire" } };
    for (size_t i = 0; i < sizeof wires / sizeof wires[0]; i++) {
        struct study *study = study_of(2);
        add_run(&study->rows[0], 12, 12, 0, 0);
        add_run(&study->rows[1], 10, 6.5, 3, 0.5);
        strcpy(study->rows[1].point.wire, wires[i][0]);
        char *words = words_of(study);
        if (strstr(words, wires[i][1]) == NULL || strstr(words, wires[i][2]) != NULL) fail_msg("%s: %s", wires[i][0], words);
        free(words);
        gmi_free(study);
    }
}

/* What was measured beside it and took as long is no advice. */
static void a_wire_that_did_not_help_is_not_recommended(void **state)
{
    (void)state;
    for (int has_helped = 0; has_helped < 2; has_helped++) {
        struct study      *study = study_of(2);
        struct study_point lean = study->rows[1].point;
        gm_error           error;
        gmi_error_clear(&error);
        strcpy(lean.wire, "bf16");
        assert_int_equal(study_add(study, &lean, &error), GM_OK);
        add_run(&study->rows[0], 12, 12, 0, 0);
        add_run(&study->rows[1], 10, 6.5, 3, 0.5);
        add_run(&study->rows[2], has_helped ? 9 : 10.5, 6.5, 2, 0.5);
        char *words = words_of(study);
        bool  is_said = strstr(words, "--wire bf16") != NULL;
        if (is_said != (has_helped == 1)) fail_msg("bf16 %s: %s", has_helped ? "helped" : "did not help", words);
        free(words);
        gmi_free(study);
    }
}

static void a_record_says_what_was_measured(void **state)
{
    (void)state;
    struct study *study = study_of(2);
    add_run(&study->rows[0], 12, 12, 0, 0);
    add_run(&study->rows[1], 8, 6, 1, 1);
    study_finish(study);
    cJSON *record = study_record(&study->rows[1]);
    static const char *const numbers[] = { "world_size", "batch", "median_ms", "speedup", "zero_comm_speedup", "zero_comm_share",
                                           "compute_ms", "comm_exposed_ms", "comm_hidden_ms", "wait_ms", "payload_bytes", "cpu_s",
                                           "clock_error_us", "samples_per_s", "efficiency", "repeats", "threads" };
    static const char *const texts[] = { "regime", "transport", "transport_used", "wire", "network", "overlap", "layers", "peer",
                                         "machine", "time" };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!cJSON_IsNumber(cJSON_GetObjectItem(record, numbers[i]))) fail_msg("no number %s", numbers[i]);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!cJSON_IsString(cJSON_GetObjectItem(record, texts[i]))) fail_msg("no text %s", texts[i]);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(record, "by_rank")), 2);
    assert_near(cJSON_GetObjectItem(record, "speedup")->valuedouble, 1.5);
    cJSON_Delete(record);
    assert_null(study_record_beside(&study->rows[1], "x"));
    gmi_free(study);
}

/* The split of a run, from what ranks leave: the middle half of the steps, the slowest rank's median. */
static void a_summary_is_of_the_middle_half_of_the_steps(void **state)
{
    (void)state;
    struct study_job   *job = gmi_alloc(1, sizeof *job + 2 * sizeof job->accounts[0]);
    struct study_result result;
    study_point_default(&job->point, STUDY_LIGHT, 2);
    job->n_threads = 1;
    for (int r = 0; r < 2; r++) {
        struct study_account *account = &job->accounts[r];
        account->n_steps = 8;
        account->cpu = r;
        account->cpu_ns = 16000000;
        account->payload_bytes = 800;
        account->uses_tcp = true;
        strcpy(account->state_hash, "same");
        for (int i = 0; i < 8; i++) {
            bool is_odd = i < 2 || i >= 6; /* two are much shorter, two much longer */
            account->steps[i] = (struct study_step){ .elapsed_ns = i < 2 ? 1000000 : is_odd ? 90000000 : (10 + r) * 1000000,
                                                     .compute_ns = is_odd ? 0 : 7000000,
                                                     .comm_exposed_ns = is_odd ? 0 : 2000000,
                                                     .wait_ns = is_odd ? 0 : (1 + r) * 1000000 };
        }
    }
    study_summarize(job, &result);
    assert_near(result.median_ms, 11);
    assert_near(result.compute_ms, 7);
    assert_near(result.comm_exposed_ms, 2);
    assert_near(result.wait_ms, 1.5);
    assert_near(result.ranks[0].wait_ms, 1);
    assert_near(result.cpu_s, 2 * 0.002);
    assert_int_equal(result.payload_bytes, 200);
    assert_string_equal(result.transport, "tcp");
    assert_true(result.is_pinned && result.are_identical);
    strcpy(job->accounts[1].state_hash, "other");
    study_summarize(job, &result);
    assert_false(result.are_identical);
    gmi_free(job);
}

static void rates_are_read_as_tc_writes_them(void **state)
{
    (void)state;
    static const char *const good[] = { "loopback", "100mbit", "1gbit", "2.5gbit", "10gbit", "512kbit" };
    static const char *const bad[] = { "", "1", "mbit", "-1gbit", "0gbit", "1gb", "1gbit;reboot", "nan gbit", "1e9gbit", "loop" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(study_network_is_rate(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(study_network_is_rate(bad[i]));
}

static void a_point_that_cannot_be_is_refused_before_anything_is_started(void **state)
{
    (void)state;
    struct study_point  point;
    struct study_result result;
    gm_error            error;
    const int           worlds[] = { 0, STUDY_MAX_RANKS + 1, 4 };
    for (int i = 0; i < 3; i++) {
        gmi_error_clear(&error);
        study_point_default(&point, STUDY_HEAVY, worlds[i]);
        point.batch = 3;
        assert_int_equal(study_measure(&point, &result, &error), GM_ERR_ARG);
        assert_true(error.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_is_measured_even_when_nobody_asks_for_it),
        cmocka_unit_test(a_busy_repeat_does_not_reach_the_ratios),
        cmocka_unit_test(a_slow_rank_has_a_name_when_it_costs_something_in_most_repeats),
        cmocka_unit_test(what_eats_the_rest_is_the_largest_of_what_is_missing),
        cmocka_unit_test(the_verdict_says_whether_it_pays_and_for_how_many),
        cmocka_unit_test(the_verdict_names_the_slow_rank_or_says_that_there_is_none),
        cmocka_unit_test(what_already_travels_as_few_bytes_is_not_told_to),
        cmocka_unit_test(a_wire_that_did_not_help_is_not_recommended),
        cmocka_unit_test(a_record_says_what_was_measured),
        cmocka_unit_test(a_summary_is_of_the_middle_half_of_the_steps),
        cmocka_unit_test(rates_are_read_as_tc_writes_them),
        cmocka_unit_test(a_point_that_cannot_be_is_refused_before_anything_is_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
