#include "train/verify.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cjson/cJSON.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "train/checkpoint.h"

/* ---- two checkpoints ------------------------------------------------------------------------- */

static uint64_t n_elems_of(const struct gmt_st_tensor *tensor) { return (tensor->end - tensor->begin) / 4; }

static bool is_same_shape(const struct gmt_st_tensor *a, const struct gmt_st_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->dtype, b->dtype) == 0 && a->n_dims == b->n_dims &&
           memcmp(a->shape, b->shape, a->n_dims * sizeof *a->shape) == 0;
}

static float value_at(const struct gmt_checkpoint *checkpoint, const struct gmt_st_tensor *tensor, uint64_t i)
{
    float value;
    gmt_floats_from_bytes(&value, checkpoint->data + tensor->begin + 4 * i, 1);
    return value;
}

/* Whether the tensor is the same in both; *d says how it is not. */
static bool compare_tensor(const struct gmt_checkpoint *a, const struct gmt_st_tensor *in_a,
                           const struct gmt_checkpoint *b, const struct gmt_st_tensor *in_b,
                           struct gmt_tensor_difference *d)
{
    const uint8_t *a_bytes = a->data + in_a->begin, *b_bytes = b->data + in_b->begin;
    if (memcmp(a_bytes, b_bytes, in_a->end - in_a->begin) == 0) return true;
    *d = (struct gmt_tensor_difference){ .n_elems = n_elems_of(in_a), .n_dims = in_a->n_dims == 2 ? 2 : 1 };
    snprintf(d->name, sizeof d->name, "%s", in_a->name);
    d->shape[0] = d->n_dims == 2 ? in_a->shape[0] : d->n_elems;
    d->shape[1] = d->n_dims == 2 ? in_a->shape[1] : 1;
    for (uint64_t i = 0; i < d->n_elems; i++) {
        if (memcmp(a_bytes + 4 * i, b_bytes + 4 * i, 4) == 0) continue;
        float  left = value_at(a, in_a, i), right = value_at(b, in_b, i);
        double distance = fabs((double)left - (double)right);
        if (isnan(distance)) distance = INFINITY;
        if (d->n_different++ == 0) {
            d->first = i;
            d->a = left;
            d->b = right;
        }
        if (distance > d->max_abs_diff) d->max_abs_diff = distance;
    }
    return false;
}

/* Shapes that differ make the rest incomparable. */
static bool is_same_model(const struct gmt_checkpoint *a, const struct gmt_checkpoint *b, char *reason,
                          size_t reason_bytes)
{
    size_t n = gmi_min_size(a->header.n_tensors, b->header.n_tensors);
    for (size_t i = 0; i < n; i++)
        if (!is_same_shape(&a->header.tensors[i], &b->header.tensors[i])) {
            snprintf(reason, reason_bytes, "tensor %zu is %.60s in one and %.60s in the other, or of another shape",
                     i, a->header.tensors[i].name, b->header.tensors[i].name);
            return false;
        }
    if (a->header.n_tensors == b->header.n_tensors) return true;
    snprintf(reason, reason_bytes, "one has %zu tensors, the other %zu: another model or optimizer",
             a->header.n_tensors, b->header.n_tensors);
    return false;
}

/* Fills in what differs; are_same stays true if nothing does. */
static void compare_states(const struct gmt_checkpoint *a, const struct gmt_checkpoint *b,
                           struct gmt_verdict *verdict)
{
    verdict->n_compared++;
    verdict->step = a->step < b->step ? a->step : b->step;
    if (!is_same_model(a, b, verdict->reason, sizeof verdict->reason)) {
        verdict->are_same = false;
        return;
    }
    for (size_t i = 0; i < a->header.n_tensors; i++) {
        if (verdict->n_tensors == GMT_STATE_MAX_TENSORS) break;
        if (!compare_tensor(a, &a->header.tensors[i], b, &b->header.tensors[i],
                            &verdict->tensors[verdict->n_tensors]))
            verdict->n_tensors++;
    }
    if (verdict->n_tensors > 0) verdict->are_same = false;
    if (a->step == b->step) return;
    verdict->are_same = false;
    snprintf(verdict->reason, sizeof verdict->reason, "one is the state after step %llu, the other after step %llu",
             (unsigned long long)a->step, (unsigned long long)b->step);
}

static gm_status verify_checkpoints(const char *a_path, const char *b_path, struct gmt_verdict *verdict,
                                    gm_error *error)
{
    struct gmt_checkpoint a = { .path = NULL }, b = { .path = NULL };
    gm_status             status = gmt_checkpoint_open(&a, a_path, error);
    if (status == GM_OK) status = gmt_checkpoint_open(&b, b_path, error);
    if (status == GM_OK) compare_states(&a, &b, verdict);
    gmt_checkpoint_close(&a);
    gmt_checkpoint_close(&b);
    return status;
}

/* ---- two lists of steps ----------------------------------------------------------------------- */

/* Moves *i and *j, which walk two ascending lists, to the next step that both have. Counts those that only one has. */
static bool next_common(const uint64_t *a, size_t n_a, size_t *i, const uint64_t *b, size_t n_b, size_t *j,
                        struct gmt_verdict *verdict)
{
    while (*i < n_a && *j < n_b && a[*i] != b[*j]) {
        if (a[*i] < b[*j]) {
            (*i)++;
            verdict->n_only_a++;
        } else {
            (*j)++;
            verdict->n_only_b++;
        }
    }
    if (*i < n_a && *j < n_b) return true;
    verdict->n_only_a += n_a - *i;
    verdict->n_only_b += n_b - *j;
    return false;
}

static gm_status nothing_common(const char *a_path, const char *b_path, gm_error *error)
{
    return gmi_error_set(error, GM_ERR_ARG, "%s and %s have the state after no step in common: there is nothing to "
                                            "compare",
                         a_path, b_path);
}

static void reverse(uint64_t *list, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        uint64_t kept = list[i];
        list[i] = list[n - 1 - i];
        list[n - 1 - i] = kept;
    }
}

static gm_status compare_steps(const char *a_path, const char *b_path, uint64_t step, struct gmt_verdict *verdict,
                               gm_error *error)
{
    struct gmt_checkpoint a = { .path = NULL }, b = { .path = NULL };
    gm_status             status = gmt_checkpoint_open_step(&a, a_path, step, NULL, error);
    if (status == GM_OK) status = gmt_checkpoint_open_step(&b, b_path, step, NULL, error);
    if (status == GM_OK) compare_states(&a, &b, verdict);
    gmt_checkpoint_close(&a);
    gmt_checkpoint_close(&b);
    return status;
}

static gm_status verify_directories(const char *a_path, const char *b_path, struct gmt_verdict *verdict,
                                    gm_error *error)
{
    uint64_t *a = NULL, *b = NULL;
    size_t    n_a = 0, n_b = 0, i = 0, j = 0;
    gm_status status = gmt_checkpoint_steps(a_path, &a, &n_a, error);
    if (status == GM_OK) status = gmt_checkpoint_steps(b_path, &b, &n_b, error);
    reverse(a, n_a);
    reverse(b, n_b);
    while (status == GM_OK && verdict->are_same && next_common(a, n_a, &i, b, n_b, &j, verdict)) {
        status = compare_steps(a_path, b_path, a[i], verdict, error);
        i++;
        j++;
    }
    if (status == GM_OK && verdict->n_compared == 0) status = nothing_common(a_path, b_path, error);
    free(a);
    free(b);
    return status;
}

/* ---- two logs --------------------------------------------------------------------------------- */

/* The records of a log that say which state there was, the last one of each step, ascending. */
struct log {
    cJSON   **records;
    uint64_t *steps;
    size_t    n, room;
};

static void log_fini(struct log *log)
{
    for (size_t i = 0; i < log->n; i++) cJSON_Delete(log->records[i]);
    free(log->records);
    free(log->steps);
}

static const char *hash_of(const cJSON *record)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "state_hash"));
}

/* A JSON number holds no larger whole number with all its digits. */
#define MAX_STEP 9007199254740992.0

/* The step after which a record was written; false: it is not about a state. */
static bool step_of(const cJSON *record, uint64_t *step)
{
    const char  *event = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "event"));
    bool         is_end = event != NULL && strcmp(event, "end") == 0;
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(record, is_end ? "steps" : "step");
    if (event == NULL || hash_of(record) == NULL || !cJSON_IsNumber(number) || number->valuedouble < 0 ||
        number->valuedouble > MAX_STEP)
        return false;
    *step = (uint64_t)number->valuedouble;
    return true;
}

/* Takes the record over. A run that was resumed may have written a step twice, and the end record repeats the last
 * one; what knows the tensors is kept. False: no memory. */
static bool log_put(struct log *log, uint64_t step, cJSON *record)
{
    size_t at = log->n;
    while (at > 0 && log->steps[at - 1] > step) at--;
    if (at > 0 && log->steps[at - 1] == step) {
        cJSON **known = &log->records[at - 1];
        bool    is_poorer = cJSON_GetObjectItemCaseSensitive(record, "tensor_hashes") == NULL &&
                         strcmp(hash_of(*known), hash_of(record)) == 0;
        cJSON *lost = is_poorer ? record : *known;
        *known = is_poorer ? *known : record;
        cJSON_Delete(lost);
        return true;
    }
    if (log->n == log->room) {
        size_t    room = log->room == 0 ? 64 : 2 * log->room;
        cJSON   **records = realloc(log->records, room * sizeof *records);
        if (records != NULL) log->records = records;
        uint64_t *steps = records == NULL ? NULL : realloc(log->steps, room * sizeof *steps);
        if (steps == NULL) {
            cJSON_Delete(record);
            return false;
        }
        log->steps = steps;
        log->room = room;
    }
    memmove(log->records + at + 1, log->records + at, (log->n - at) * sizeof *log->records);
    memmove(log->steps + at + 1, log->steps + at, (log->n - at) * sizeof *log->steps);
    log->records[at] = record;
    log->steps[at] = step;
    log->n++;
    return true;
}

static gm_status log_read(struct log *log, const char *path, gm_error *error)
{
    FILE     *file = fopen(path, "re");
    char     *line = NULL;
    size_t    room = 0, number = 0;
    ssize_t   length;
    gm_status status = GM_OK;
    memset(log, 0, sizeof *log);
    if (file == NULL) return gmi_error_set_errno(error, errno, "cannot read %s", path);
    while (status == GM_OK && (length = getline(&line, &room, file)) > 0) {
        uint64_t step;
        cJSON   *record = cJSON_ParseWithLength(line, (size_t)length);
        number++;
        if (record == NULL && line[length - 1] != '\n') break; /* a run that was killed while it wrote */
        if (record == NULL)
            status = gmi_error_set(error, GM_ERR_ARG, "%s, line %zu: not a JSON object", path, number);
        else if (!step_of(record, &step))
            cJSON_Delete(record);
        else if (!log_put(log, step, record))
            status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the log %s", path);
    }
    if (status == GM_OK && ferror(file)) status = gmi_error_set_errno(error, errno, "cannot read %s", path);
    free(line);
    fclose(file);
    return status;
}

/* The tensors whose hashes differ, as far as both logs have them. */
static void name_tensors(const cJSON *a, const cJSON *b, struct gmt_verdict *verdict)
{
    const cJSON *in_a = cJSON_GetObjectItemCaseSensitive(a, "tensor_hashes"), *hash;
    const cJSON *in_b = cJSON_GetObjectItemCaseSensitive(b, "tensor_hashes");
    cJSON_ArrayForEach(hash, in_a)
    {
        const char *left = cJSON_GetStringValue(hash);
        const char *right = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(in_b, hash->string));
        if (left == NULL || (right != NULL && strcmp(left, right) == 0)) continue;
        if (in_b == NULL || verdict->n_tensors == GMT_STATE_MAX_TENSORS) return;
        struct gmt_tensor_difference *d = &verdict->tensors[verdict->n_tensors++];
        *d = (struct gmt_tensor_difference){ .n_elems = 0 };
        snprintf(d->name, sizeof d->name, "%s", hash->string);
    }
}

static gm_status verify_logs(const char *a_path, const char *b_path, struct gmt_verdict *verdict, gm_error *error)
{
    struct log a, b = { .n = 0 };
    size_t     i = 0, j = 0;
    gm_status  status = log_read(&a, a_path, error);
    if (status == GM_OK) status = log_read(&b, b_path, error);
    while (status == GM_OK && verdict->are_same && next_common(a.steps, a.n, &i, b.steps, b.n, &j, verdict)) {
        verdict->n_compared++;
        verdict->step = a.steps[i];
        verdict->are_same = strcmp(hash_of(a.records[i]), hash_of(b.records[j])) == 0;
        if (!verdict->are_same) name_tensors(a.records[i], b.records[j], verdict);
        i++;
        j++;
    }
    if (status == GM_OK && verdict->n_compared == 0) status = nothing_common(a_path, b_path, error);
    log_fini(&a);
    log_fini(&b);
    return status;
}

/* ---- which is it ------------------------------------------------------------------------------ */

/* A log begins with a brace; the length in front of a checkpoint's header is a multiple of 8 and cannot. */
static gm_status kind_of(const char *path, enum gmt_verify_kind *kind, gm_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0) return gmi_error_set_errno(error, errno, "cannot read %s", path);
    *kind = GMT_VERIFY_DIRECTORY;
    if (S_ISDIR(info.st_mode)) return GM_OK;
    if (!S_ISREG(info.st_mode))
        return gmi_error_set(error, GM_ERR_ARG, "%s is neither a file nor a directory", path);
    FILE *file = fopen(path, "re");
    if (file == NULL) return gmi_error_set_errno(error, errno, "cannot read %s", path);
    *kind = fgetc(file) == '{' ? GMT_VERIFY_LOG : GMT_VERIFY_CHECKPOINT;
    fclose(file);
    return GM_OK;
}

gm_status gmt_verify(const char *a_path, const char *b_path, struct gmt_verdict *verdict, gm_error *error)
{
    static const char *const names[] = { "a checkpoint", "a directory", "a log" };
    static gm_status (*const ways[])(const char *, const char *, struct gmt_verdict *, gm_error *) = {
        verify_checkpoints, verify_directories, verify_logs
    };
    enum gmt_verify_kind b_kind = GMT_VERIFY_LOG;
    memset(verdict, 0, sizeof *verdict);
    verdict->are_same = true;
    gm_status status = kind_of(a_path, &verdict->kind, error);
    if (status == GM_OK) status = kind_of(b_path, &b_kind, error);
    if (status != GM_OK) return status;
    if (verdict->kind != b_kind)
        return gmi_error_set(error, GM_ERR_ARG, "%s is %s and %s is %s: give two of a kind", a_path,
                             names[verdict->kind], b_path, names[b_kind]);
    return ways[verdict->kind](a_path, b_path, verdict, error);
}
