/* Files that commands have written and others read back: one byte that chooses, then
 *     0   a record, a log or a trace, for gradmesh report
 *     1   u16 length of one log, that log, another log: for gradmesh verify */
#include <string.h>

#include "base/error.h"
#include "report/page.h"
#include "report/record.h"
#include "tests/fuzz/targets.h"
#include "train/verify.h"

static void report(struct fuzz_input *in)
{
    struct gmr_record record;
    char              path[FUZZ_PATH_BYTES];
    gm_error          error;
    gmi_error_clear(&error);
    fuzz_file(0, in->bytes, in->left_bytes, path);
    if (gmr_record_read(&record, path, &error) != GM_OK) {
        fuzz_check(error.status == GM_ERR_ARG && error.text[0] != '\0');
        return;
    }
    fuzz_check(record.kind < GMR_N_KINDS && record.n_records > 0 && gmr_kind_name(record.kind) != NULL);
    cJSON *data = gmr_page_data(&record, 1);
    char  *text = cJSON_PrintUnformatted(data);
    fuzz_check(text != NULL);
    cJSON_free(text);
    cJSON_Delete(data);
    gmr_record_fini(&record);
}

static void verify(struct fuzz_input *in)
{
    static struct gmt_verdict verdict;
    char                      paths[2][FUZZ_PATH_BYTES];
    gm_error                  error;
    size_t                    n, want = fuzz_u16(in);
    const uint8_t            *at = fuzz_take(in, want, &n);
    gmi_error_clear(&error);
    fuzz_file(0, at, n, paths[0]);
    fuzz_file(1, in->bytes, in->left_bytes, paths[1]);
    if (gmt_verify(paths[0], paths[1], &verdict, &error) != GM_OK) {
        fuzz_check(error.status != GM_OK && error.text[0] != '\0');
        return;
    }
    fuzz_check(verdict.n_compared > 0 && verdict.n_tensors <= GMT_STATE_MAX_TENSORS && (verdict.are_same ? verdict.n_tensors == 0 : true));
    fuzz_check(memchr(verdict.reason, '\0', sizeof verdict.reason) != NULL);
}

void fuzz_records(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input in = { bytes, n_bytes };
    if (fuzz_u8(&in) % 2 == 0) {
        report(&in);
    } else {
        verify(&in);
    }
}

/* ---- seeds --------------------------------------------------------------------------------------- */

static void keep_logs(fuzz_keep_fn keep, void *user, const char *a, const char *b)
{
    uint8_t all[3 + 1024] = { 1, (uint8_t)strlen(a), (uint8_t)(strlen(a) >> 8) };
    memcpy(all + 3, a, strlen(a));
    memcpy(all + 3 + strlen(a), b, strlen(b));
    keep(user, all, 3 + strlen(a) + strlen(b));
}

void fuzz_records_seed(fuzz_keep_fn keep, void *user)
{
    static const char *const reports[] = {
        "0{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":1,\"loss\":2.5}\n{\"event\":\"end\",\"steps\":1}\n{\"event\":\"st",
        "0{\"regime\":\"heavy\",\"world_size\":2,\"median_ms\":1.5}",
        "0{\"points\":[{\"world_size\":2,\"predicted_ms\":3}]}",
        "0{\"collective\":\"all_reduce\",\"results\":[{\"collective\":\"all_reduce\",\"world_size\":4,\"size_bytes\":4,\"median_us\":9,"
        "\"busbw_GBps\":0.1}]}",
        "0{\"duplex_GBps\":null,\"results\":[{\"limit\":\"copy\"}]}",
        "0{\"system\":\"torch\",\"collective\":\"all_reduce\",\"world_size\":2,\"size_bytes\":4,\"median_us\":9}\n"
        "{\"system\":\"limits\",\"limit\":\"duplex\"}\n",
        "0{\"traceEvents\":[{\"ph\":\"X\",\"pid\":1,\"ts\":1e3,\"dur\":-0,\"args\":{\"\\ud83d\\ude00\":[null,true]}}],\"otherData\":{}}",
        "0\xef\xbb\xbf[{\"event\":7}]",
        "0\n \n",
    };
    static const char a[] = "{\"event\":\"step\",\"step\":1,\"state_hash\":\"aa\",\"tensor_hashes\":{\"w\":\"1\",\"b\":\"2\"}}\n"
                            "{\"event\":\"step\",\"step\":3,\"state_hash\":\"bb\"}\n{\"event\":\"end\",\"steps\":3,\"state_hash\":\"bb\"}\n";
    static const char b[] = "{\"event\":\"step\",\"step\":2,\"state_hash\":\"cc\"}\n"
                            "{\"event\":\"step\",\"step\":1,\"state_hash\":\"ab\",\"tensor_hashes\":{\"w\":\"1\",\"b\":\"3\"}}\n{\"eve";
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) keep(user, (const uint8_t *)reports[i], strlen(reports[i]));
    keep_logs(keep, user, a, a);
    keep_logs(keep, user, a, b);
    keep_logs(keep, user, "{\"event\":\"step\",\"step\":1e300,\"state_hash\":\"\"}\n", b);
    keep_logs(keep, user, "{\n", b);
}
