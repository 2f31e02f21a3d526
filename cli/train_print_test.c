/* What training shows: numbers in groups, and rows that a launcher can pass on and a terminal
 * can redraw. */
#include "cli/train_print.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void numbers_are_grouped_by_three_digits(void **state)
{
    (void)state;
    static const struct {
        uint64_t    number;
        const char *text;
    } cases[] = { { 0, "0" },           { 999, "999" },         { 1000, "1,000" },
                  { 203530, "203,530" }, { 1000000, "1,000,000" },
                  { UINT64_MAX, "18,446,744,073,709,551,615" } };
    char text[CLI_GROUPED_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(cli_grouped(cases[i].number, text), cases[i].text);
}

/* Shows two epochs of ten steps with a report after each, and returns what was written. */
static char *show(bool is_live, int *n_lines)
{
    struct gmt_recipe        recipe = { .total_steps = 20, .batch = 8 };
    char                    *text = NULL;
    size_t                   size_bytes = 0;
    struct cli_train_printer printer = { .file = open_memstream(&text, &size_bytes),
                                         .is_live = is_live, .world_size = 2, .recipe = &recipe,
                                         .n_batches = 10 };
    for (uint64_t step = 1; step <= 20; step++) {
        struct gmt_report report = { .step = step,
                                     .epoch = (step - 1) / 10,
                                     .n_batches = 10,
                                     .loss = 0.5,
                                     .samples_per_s = 1234,
                                     .is_epoch_end = step % 10 == 0 };
        cli_print_step(&printer, step);
        cli_print_report(&printer, &report);
        if (step % 10 != 0) continue;
        struct gmt_epoch_report epoch = { .epoch = report.epoch, .step = step, .loss = 0.5,
                                          .test = { 100, 97, 0.97, 0.1 } };
        cli_print_epoch(&printer, &epoch);
    }
    fclose(printer.file);
    *n_lines = 0;
    for (const char *c = text; *c != '\0'; c++) *n_lines += *c == '\n';
    return text;
}

static void rows_stay_few_where_they_cannot_be_redrawn(void **state)
{
    (void)state;
    int   n_lines;
    char *text = show(false, &n_lines);
    assert_int_equal(n_lines, 8); /* steps 1, 4, 7 and the end, twice */
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "97.00 %"));
    free(text);
}

static void a_live_row_is_a_whole_line_that_the_next_one_takes_back(void **state)
{
    (void)state;
    int   n_lines, n_back = 0;
    char *text = show(true, &n_lines);
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (const char *at = text; (at = strstr(at, "\033[A")) != NULL; at++) n_back++;
    assert_int_equal(n_lines, 20);     /* each report drew one ... */
    assert_int_equal(n_lines - n_back, 2); /* ... and the two epochs' rows are what stays */
    /* What a row switches off, it switches on again before it ends. */
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        assert_int_equal(strstr(line, "\033[?7l") != NULL, strstr(line, "\033[?7h") != NULL);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_grouped_by_three_digits),
        cmocka_unit_test(rows_stay_few_where_they_cannot_be_redrawn),
        cmocka_unit_test(a_live_row_is_a_whole_line_that_the_next_one_takes_back),
    };
    return cmocka_run_group_tests_name("train_print", tests, NULL, NULL);
}
