/* What a page keeps of a trace that is too long for it. */
#include "report/thin.h"

#include <stdio.h>

#include "tests/support/test.h"

/* Steps of ten microseconds on each of two ranks: a "step" span, a call in it, and its send with an arrow. */
static cJSON *make_trace(int n_steps)
{
    cJSON *trace = cJSON_CreateObject(), *events = cJSON_AddArrayToObject(trace, "traceEvents");
    cJSON_AddItemToArray(events, cJSON_Parse("{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank 0\"}}"));
    for (int i = 0; i < 2 * n_steps; i++) {
        int  step = i / 2 + 1, rank = i % 2, at = 10 * step + rank;
        static const char *const cats[] = { "step", "op", "send" };
        char                     text[512];
        for (int k = 0; k < 3; k++) {
            snprintf(text, sizeof text,
                     "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":2,\"name\":\"a\",\"cat\":\"%s\",\"args\":{\"%s\":%d}}", rank, k,
                     at + k * 2, cats[k], k == 0 ? "step" : "seq", step);
            cJSON_AddItemToArray(events, cJSON_Parse(text));
        }
        snprintf(text, sizeof text, "{\"ph\":\"s\",\"pid\":%d,\"tid\":3,\"ts\":%d,\"id\":%d,\"name\":\"transfer\"}", rank, at + 4, step);
        cJSON_AddItemToArray(events, cJSON_Parse(text));
    }
    return trace;
}

static size_t thin(cJSON *trace, size_t n_most)
{
    size_t n_left = 0;
    assert_int_equal(gmr_thin_trace(trace, n_most, &n_left), GM_OK);
    return n_left;
}

/* How many events of this kind ("ph" or "cat") there are; *first_ts is the least of their times. */
static int count(const cJSON *trace, const char *key, const char *value, double *first_ts)
{
    const cJSON *event;
    int          n = 0;
    *first_ts = 1e300;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(trace, "traceEvents"))
    {
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(event, key));
        if (text == NULL || strcmp(text, value) != 0) continue;
        n++;
        const cJSON *ts = cJSON_GetObjectItem(event, "ts");
        if (ts != NULL && ts->valuedouble < *first_ts) *first_ts = ts->valuedouble;
    }
    return n;
}

static double left_out(const cJSON *trace)
{
    const cJSON *field = cJSON_GetObjectItem(cJSON_GetObjectItem(trace, "otherData"), "left_out_events");
    return field != NULL ? field->valuedouble : -1;
}

static void a_short_trace_keeps_its_spans_and_loses_its_arrows(void **state)
{
    (void)state;
    double first;
    cJSON *trace = make_trace(5);
    assert_int_equal(thin(trace, 30), 30);
    assert_int_equal(count(trace, "ph", "X", &first), 30);
    assert_int_equal(count(trace, "ph", "s", &first), 0);
    assert_int_equal(count(trace, "ph", "M", &first), 1);
    assert_true(left_out(trace) < 0);
    cJSON_Delete(trace);
}

static void a_long_trace_keeps_its_last_whole_steps_and_says_how_much_is_gone(void **state)
{
    (void)state;
    double first;
    cJSON *trace = make_trace(100);
    size_t n_left = thin(trace, 32);
    assert_true(n_left == 30);
    assert_int_equal(count(trace, "cat", "step", &first), 10);
    assert_true(first == 960);
    assert_int_equal(count(trace, "cat", "send", &first), 10);
    assert_int_equal(count(trace, "ph", "M", &first), 1);
    assert_true(left_out(trace) == 570);
    cJSON_Delete(trace);
}

static void a_call_of_which_something_is_gone_loses_all_its_transfers(void **state)
{
    (void)state;
    double first;
    cJSON *trace = make_trace(1); /* one call of two ranks: its sends are the last two of six spans */
    assert_int_equal(thin(trace, 2), 0);
    assert_int_equal(count(trace, "cat", "send", &first), 0);
    assert_true(left_out(trace) == 6);
    cJSON_Delete(trace);
}

static void what_is_no_list_of_spans_stays_as_it_is(void **state)
{
    (void)state;
    cJSON *trace = cJSON_Parse("{\"traceEvents\":[{\"ph\":\"X\"},{\"ph\":\"X\",\"args\":{\"seq\":-5}},{\"pid\":1},7]}");
    assert_int_equal(thin(trace, 10), 2);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(trace, "traceEvents")), 4);
    cJSON_Delete(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_trace_keeps_its_spans_and_loses_its_arrows),
        cmocka_unit_test(a_long_trace_keeps_its_last_whole_steps_and_says_how_much_is_gone),
        cmocka_unit_test(a_call_of_which_something_is_gone_loses_all_its_transfers),
        cmocka_unit_test(what_is_no_list_of_spans_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
