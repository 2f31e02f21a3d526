/* Which kind a file is, and what is said of files that cannot be used. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "report/page.h"
#include "report/record.h"

static const struct {
    const char   *text;
    enum gmr_kind kind;
} good[] = {
    { "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":1,\"loss\":2.5}\n", GMR_TRAIN },
    { "{\"regime\":\"heavy\",\"world_size\":2,\"median_ms\":1.5}", GMR_SCALING },
    { "{\"points\":[{\"world_size\":2,\"predicted_ms\":3}]}", GMR_PLAN },
    { "{\"collective\":\"all_reduce\",\"results\":[{\"collective\":\"all_reduce\",\"world_size\":4,\"size_bytes\":4,"
      "\"median_us\":9,\"busbw_GBps\":0.1}]}", GMR_BENCH },
    { "{\"duplex_GBps\":null,\"results\":[{\"limit\":\"copy\"}]}", GMR_LIMITS },
    { "{\"system\":\"torch\",\"collective\":\"all_reduce\",\"world_size\":2,\"size_bytes\":4,\"median_us\":9}\n"
      "{\"system\":\"limits\",\"limit\":\"duplex\"}\n", GMR_PEERS },
    { "{\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\"}],\"otherData\":{}}", GMR_TRACE },
    { "\n  {\n \"traceEvents\" : [ {\"ph\":\"X\", \"pid\":1} ] }\n\n", GMR_TRACE },
};

static const struct {
    const char *text, *sentence;
} bad[] = {
    { "", "is empty" },
    { " \n\t\n", "is empty" },
    { "hello", "is not whole JSON" },
    { "{\"traceEvents\":[{\"ph\":\"X\",\"pid\":0}", "breaks off" },
    { "{\"traceEvents\":[]}", "are empty" },
    { "{\"traceEvents\":[{\"ph\":\"X\"}]}", "traceEvents[0] of this trace has no number 'pid'" },
    { "{\"points\":[{\"world_size\":2,\"predicted_ms\":\"3\"}]}", "has no number 'predicted_ms'" },
    { "[1,2,3]", "no record that gradmesh writes" },
    { "17", "no record that gradmesh writes" },
    { "{\"name\":\"package\"}", "no record that gradmesh writes" },
    { "{\"event\":\"start\"}\n{\"event\":\"step\"}\n", "line 2: a step of a training log without its number" },
    { "{\"event\":\"start\"}\n\nnull\n", "line 3: JSON, but no record" },
    { "{\"event\":\"start\"}\n{\"regime\":\"heavy\",\"world_size\":1,\"median_ms\":1}\n", "line 2: a record of a scaling study" },
    { "{\"regime\":\"heavy\",\"world_size\":2}", "has no number 'median_ms'" },
    { "{\"event\":\"start\"}\n{\"event\":\n{\"event\":\"end\"}\n", "line 2: not JSON" },
};

static void each_kind_is_known_by_its_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct gmr_record record;
        gm_error          error;
        gmi_error_clear(&error);
        gm_status status = gmr_record_parse(&record, "file", good[i].text, strlen(good[i].text), &error);
        if (status != GM_OK) fail_msg("%s: %s", good[i].text, error.text);
        assert_int_equal(record.kind, good[i].kind);
        assert_true(record.n_records > 0);
        assert_false(record.is_cut);
        gmr_record_fini(&record);
    }
}

static void what_cannot_be_used_is_said_in_a_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gmr_record record;
        gm_error          error;
        gmi_error_clear(&error);
        assert_int_equal(gmr_record_parse(&record, "file", bad[i].text, strlen(bad[i].text), &error), GM_ERR_ARG);
        if (strstr(error.text, bad[i].sentence) == NULL) fail_msg("%s: %s", bad[i].text, error.text);
        assert_non_null(strstr(error.text, "file"));
    }
}

/* A record cut at any byte is refused, or taken without its last line; nothing else happens. */
static void files_cut_anywhere_are_refused_or_taken_in_part(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        for (size_t size = 0; size < strlen(good[i].text); size++) {
            struct gmr_record record;
            gm_error          error;
            char             *cut = malloc(size + 1);
            gmi_error_clear(&error);
            memcpy(cut, good[i].text, size);
            cut[size] = 'x'; /* not ours to read */
            if (gmr_record_parse(&record, "cut", cut, size, &error) == GM_OK) assert_int_equal(record.kind, good[i].kind);
            else assert_true(error.text[0] != '\0');
            gmr_record_fini(&record);
            free(cut);
        }
}

static void a_log_that_is_still_written_lacks_its_last_line(void **state)
{
    (void)state;
    static const char text[] = "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"st";
    struct gmr_record record;
    gm_error          error;
    gmi_error_clear(&error);
    assert_int_equal(gmr_record_parse(&record, "log", text, sizeof text - 1, &error), GM_OK);
    assert_int_equal(record.n_records, 2);
    assert_true(record.is_cut);
    gmr_record_fini(&record);
}

static void the_pages_data_name_each_file_and_its_kind(void **state)
{
    (void)state;
    struct gmr_record record;
    gm_error          error;
    gmi_error_clear(&error);
    assert_int_equal(gmr_record_parse(&record, "a.jsonl", good[0].text, strlen(good[0].text), &error), GM_OK);
    cJSON       *data = gmr_page_data(&record, 1);
    const cJSON *file = cJSON_GetArrayItem(cJSON_GetObjectItem(data, "files"), 0);
    assert_string_equal(cJSON_GetObjectItem(file, "name")->valuestring, "a.jsonl");
    assert_string_equal(cJSON_GetObjectItem(file, "kind")->valuestring, "train");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(file, "data")), 2);
    cJSON_Delete(data);
    gmr_record_fini(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_known_by_its_fields),
        cmocka_unit_test(what_cannot_be_used_is_said_in_a_sentence),
        cmocka_unit_test(files_cut_anywhere_are_refused_or_taken_in_part),
        cmocka_unit_test(a_log_that_is_still_written_lacks_its_last_line),
        cmocka_unit_test(the_pages_data_name_each_file_and_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
