/* The page of gradmesh report in a real browser: made from records that the program itself has just made, and asked by
 * tests/report/checks.js. Left out where there is no Chromium, or the chart library could not be brought. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/find_program.h"
#include "report/browser.h"
#include "tests/support/test.h"

static char                directory[] = "/tmp/gradmesh-page-XXXXXX";
static struct gmr_browser *browser;

static char                program[PATH_MAX]; /* the build folder, then /gradmesh */

static void find_build(char *folder, size_t n_bytes)
{
    char *whole = realpath(getenv("BUILD") != NULL ? getenv("BUILD") : "build", NULL);
    snprintf(folder, n_bytes, "%s", whole != NULL ? whole : "build");
    free(whole);
}

/* ---- the records ------------------------------------------------------------------------------- */

/* In the directory of the test. */
static bool run(const char *arguments)
{
    char *command = NULL;
    if (asprintf(&command, "cd %s && exec timeout 120 %s %s >>log 2>&1", directory, program, arguments) < 0) return false;
    bool is_good = system(command) == 0;
    if (!is_good) print_error("it failed: %s\n", command);
    free(command);
    return is_good;
}

/* A log whose texts try to become part of the page. */
static bool record_hostile(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/hostile.jsonl", directory);
    FILE *file = fopen(path, "w");
    if (file == NULL) return false;
    fputs("{\"event\":\"start\",\"world_size\":1,\"layers\":\"</script><script>window.harmed=1</script>\","
          "\"data\":\"<img src=x onerror='window.harmed=1'>\"}\n"
          "{\"event\":\"step\",\"step\":1,\"loss\":1}\n",
          file);
    return fclose(file) == 0;
}

static bool make_pages(void)
{
    static const char *const lines[] = {
        "bench all_reduce -n 4 --sizes 64K --algo ring --transport tcp --iters 5 --trace a-ring.trace.json",
        "bench all_reduce -n 4 --sizes 64K --algo naive --transport tcp --iters 5 --trace b-naive.trace.json",
        "bench all_reduce -n 2 --sizes 4K,64K --iters 5 --json=bench.json",
        "train -n 2 --data synthetic --layers 784,32,10 --steps 100 --log train.jsonl --trace train.trace.json",
        "scaling --world 1,2,3 --regime light --layers 20,16,4 --batch 32 --repeats 1 --seconds 0.05 --results .",
        "plan --flops 50G --bandwidth 1gbit --latency 25us --json=plan.json",
        "report . -o page.html",
        "report hostile.jsonl -o hostile.html",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (i + 1 == sizeof lines / sizeof lines[0] && !record_hostile()) return false;
        if (!run(lines[i])) return false;
    }
    return true;
}

static bool has_charts(void)
{
    char folder[PATH_MAX - 64], path[PATH_MAX];
    find_build(folder, sizeof folder);
    snprintf(program, sizeof program, "%s/gradmesh", folder);
    snprintf(path, sizeof path, "%s/share/gradmesh/echarts.min.js", folder);
    return access(path, R_OK) == 0;
}

static int setup(void **state)
{
    (void)state;
    gm_error error;
    gmi_error_clear(&error);
    if (cli_find_browser() == NULL || !has_charts()) {
        print_message("skipped: no Chromium, or no chart library (make charts)\n");
        return 0;
    }
    if (mkdtemp(directory) == NULL || !make_pages()) return -1;
    char path[128]; /* only an open page has a window */
    snprintf(path, sizeof path, "%s/hostile.html", directory);
    if (gmr_browser_start(&browser, cli_find_browser(), &error) == GM_OK &&
        gmr_browser_open(browser, path, "", &error) == GM_OK)
        return 0;
    print_error("%s\n", error.text);
    return -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    gmr_browser_stop(browser);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return strstr(directory, "XXXXXX") != NULL || system(command) == 0 ? 0 : -1;
}

/* ---- asking the page --------------------------------------------------------------------------- */

static void needs_browser(void)
{
    if (browser == NULL) skip();
}

static void command(const char *method, const char *parameters)
{
    gm_error error;
    gmi_error_clear(&error);
    cJSON *answer = gmr_browser_command(browser, method, cJSON_Parse(parameters), &error);
    if (answer == NULL) fail_msg("%s: %s", method, error.text);
    cJSON_Delete(answer);
}

static void set_window(int width, const char *colours)
{
    char text[256];
    snprintf(text, sizeof text, "{\"width\":%d,\"height\":900,\"deviceScaleFactor\":1,\"mobile\":false}", width);
    command("Emulation.setDeviceMetricsOverride", text);
    snprintf(text, sizeof text, "{\"features\":[{\"name\":\"prefers-color-scheme\",\"value\":\"%s\"}]}", colours);
    command("Emulation.setEmulatedMedia", text);
}

static cJSON *evaluate(const char *expression)
{
    gm_error error;
    gmi_error_clear(&error);
    cJSON *value = gmr_browser_evaluate(browser, expression, &error);
    if (value == NULL) fail_msg("%s: %s", expression, error.text);
    return value;
}

static void expect(const char *check)
{
    char expression[256];
    snprintf(expression, sizeof expression, "checks.%s", check);
    cJSON *value = evaluate(expression);
    if (!cJSON_IsString(value)) fail_msg("%s gave no text", check);
    if (value->valuestring[0] != '\0') fail_msg("%s: %s", check, value->valuestring);
    cJSON_Delete(value);
}

static char *read_checks(void)
{
    FILE *file = fopen("tests/report/checks.js", "r");
    char *text = calloc(1, 1 << 16);
    if (file == NULL || text == NULL || fread(text, 1, (1 << 16) - 64, file) == 0) fail_msg("no tests/report/checks.js");
    fclose(file);
    strcat(text, "\nwindow.checks = checks; ''"); /* the result of an expression must be a value */
    return text;
}

static void open_page(const char *name)
{
    char     path[128];
    gm_error error;
    gmi_error_clear(&error);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (gmr_browser_open(browser, path, "", &error) != GM_OK) fail_msg("%s", error.text);
    char *checks = read_checks();
    cJSON_Delete(evaluate(checks));
    free(checks);
}

static void expect_no_problem(void)
{
    const cJSON *problem = gmr_browser_problems(browser)->child;
    if (problem != NULL) fail_msg("the page: %s", problem->valuestring);
}

static void move_mouse(double x, double y)
{
    char text[128];
    snprintf(text, sizeof text, "{\"type\":\"mouseMoved\",\"x\":%g,\"y\":%g}", x, y);
    command("Input.dispatchMouseEvent", text);
}

/* ---- the tests --------------------------------------------------------------------------------- */

static void the_page_opens_without_a_complaint_and_its_charts_have_marks(void **state)
{
    (void)state;
    needs_browser();
    set_window(1280, "light");
    open_page("page.html");
    expect("saysVerdicts('pay')");
    expect("chartsHaveMarks()");
    expect("scalingShowsEveryPoint()");
    expect("tablesHaveRows()");
    expect("hasNames()");
    expect("exportsStandAlone()");
    expect_no_problem();
}

static void the_page_fits_narrow_and_wide_windows_and_can_be_read_in_light_and_dark(void **state)
{
    (void)state;
    static const char *const colours[] = { "light", "dark" };
    static const int         widths[] = { 320, 768, 1280, 1920 };
    needs_browser();
    open_page("page.html");
    for (size_t c = 0; c < 2; c++)
        for (size_t w = 0; w < 4; w++) {
            set_window(widths[w], colours[c]);
            expect("isDrawnFor(innerWidth)");
            expect("chartsHaveMarks()");
            expect("fits()");
            expect("textIsReadable()");
            if (c == 1) expect("isDark()");
        }
    expect_no_problem();
}

static void the_animation_advances_and_ends_with_the_sums_that_the_all_reduce_had(void **state)
{
    (void)state;
    needs_browser();
    set_window(1280, "light");
    open_page("page.html");
    expect("animationAdvances()");
    expect("animationEndsRight(1 + 2 + 3 + 4)");
    expect("ringSendsTheLeast()");
    expect_no_problem();
}

/* A mark that is still growing is not where it will be; who sees nothing moves the mouse once more. */
static void hover_until_told(const char *chart)
{
    enum { MOST_TRIES = 20 };
    char  mark_of[64], tells[64];
    snprintf(mark_of, sizeof mark_of, "checks.markOf('%s')", chart);
    snprintf(tells, sizeof tells, "checks.hoverTells('%s')", chart);
    for (int tries = 1;; tries++) {
        cJSON *mark = evaluate(mark_of);
        double x = cJSON_GetArrayItem(mark, 0)->valuedouble, y = cJSON_GetArrayItem(mark, 1)->valuedouble;
        cJSON_Delete(mark);
        move_mouse(x - 3, y);
        move_mouse(x, y);
        cJSON *answer = evaluate(tells);
        bool   is_told = answer->valuestring[0] == '\0';
        if (!is_told && tries == MOST_TRIES) fail_msg("%s: %s", tells, answer->valuestring);
        cJSON_Delete(answer);
        if (is_told) return;
    }
}

static void a_mark_under_the_mouse_tells_what_it_is(void **state)
{
    (void)state;
    static const char *const charts[] = { "scaling", "timeline" };
    needs_browser();
    set_window(1280, "light");
    open_page("page.html");
    expect("chartsHaveMarks()");
    for (size_t i = 0; i < 2; i++) hover_until_told(charts[i]);
    expect_no_problem();
}

static void more_records_change_the_page_in_place(void **state)
{
    (void)state;
    needs_browser();
    set_window(1280, "light");
    open_page("page.html");
    expect("chartsHaveMarks()");
    expect("updatesInPlace()");
    expect_no_problem();
}

/* A training of four ranks: a step, its computing, a ring of six transfers. */
static void write_long_trace(const char *path, int n_events)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"otherData\":{\"world_size\":4},\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{}}", file);
    for (int i = 0, step = 1; i < n_events; step++) {
        for (int rank = 0; rank < 4; rank++, i += 9) {
            int at = step * 1000 + rank;
            fprintf(file, ",{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%d,\"dur\":900,\"name\":\"step\",\"cat\":\"step\",\"args\":{\"step\":%d}}",
                    rank, at, step);
            fprintf(file, ",{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%d,\"dur\":400,\"name\":\"forward\",\"cat\":\"compute\"}", rank, at + 1);
            fprintf(file,
                    ",{\"ph\":\"X\",\"pid\":%d,\"tid\":1,\"ts\":%d,\"dur\":400,\"name\":\"all_reduce\",\"cat\":\"op\",\"args\":{\"seq\":%d,"
                    "\"collective\":\"all_reduce\",\"algo\":\"ring\",\"count\":1024,\"bytes\":4096}}",
                    rank, at + 410, step);
            for (int k = 0; k < 6; k++) {
                int chunk = (rank + 8 - k) % 4;
                fprintf(file,
                        ",{\"ph\":\"X\",\"pid\":%d,\"tid\":3,\"ts\":%d,\"dur\":50,\"name\":\"to\",\"cat\":\"send\",\"args\":{\"seq\":%d,"
                        "\"collective\":\"all_reduce\",\"algo\":\"ring\",\"peer\":%d,\"step\":%d,\"phase\":\"%s\",\"chunk\":%d,"
                        "\"first_elem\":%d,\"n_elems\":256,\"bytes\":1024,\"reduces\":%s}}",
                        rank, at + 411 + 60 * k, step, (rank + 1) % 4, k, k < 3 ? "reduce-scatter" : "all-gather", chunk,
                        256 * chunk, k < 3 ? "true" : "false");
            }
        }
    }
    fputs("]}", file);
    assert_int_equal(fclose(file), 0);
}

static void a_trace_of_200000_events_gives_a_page_that_opens_and_works(void **state)
{
    (void)state;
    char        path[128];
    struct stat about;
    needs_browser();
    snprintf(path, sizeof path, "%s/long.trace.json", directory);
    write_long_trace(path, 200000);
    assert_true(run("report long.trace.json -o long.html"));
    snprintf(path, sizeof path, "%s/long.html", directory);
    assert_int_equal(stat(path, &about), 0);
    assert_true(about.st_size < 10000000);
    set_window(1280, "light");
    open_page("long.html");
    expect("chartsHaveMarks()");
    expect("saysWhatIsLeftOut(200000)");
    expect("animationEndsRight(1 + 2 + 3 + 4)");
    expect_no_problem();
}

static void texts_in_records_stay_texts(void **state)
{
    (void)state;
    needs_browser();
    open_page("hostile.html");
    expect("hostileTextStaysText()");
    expect_no_problem();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_opens_without_a_complaint_and_its_charts_have_marks),
        cmocka_unit_test(the_page_fits_narrow_and_wide_windows_and_can_be_read_in_light_and_dark),
        cmocka_unit_test(the_animation_advances_and_ends_with_the_sums_that_the_all_reduce_had),
        cmocka_unit_test(a_mark_under_the_mouse_tells_what_it_is),
        cmocka_unit_test(more_records_change_the_page_in_place),
        cmocka_unit_test(a_trace_of_200000_events_gives_a_page_that_opens_and_works),
        cmocka_unit_test(texts_in_records_stay_texts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
