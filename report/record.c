#include "report/record.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"

enum { MAX_FILE_BYTES = 512 << 20 };

static const struct {
    const char *key, *name, *source;
} kinds[GMR_N_KINDS] = {
    [GMR_TRAIN] = { "train", "training log", "gradmesh train --log FILE" },
    [GMR_SCALING] = { "scaling", "scaling study", "gradmesh scaling" },
    [GMR_PLAN] = { "plan", "plan", "gradmesh plan --json=FILE" },
    [GMR_BENCH] = { "bench", "benchmark", "gradmesh bench all_reduce -n 4 --json=FILE" },
    [GMR_LIMITS] = { "limits", "limits of the machine", "gradmesh bench limits --quick --json=FILE" },
    [GMR_PEERS] = { "peers", "benchmark beside peers", "make bench-peers" },
    [GMR_TRACE] = { "trace", "trace", "gradmesh bench all_reduce -n 4 --sizes 1M --algo ring --trace FILE" },
};

const char *gmr_kind_key(enum gmr_kind kind) { return kinds[kind].key; }
const char *gmr_kind_name(enum gmr_kind kind) { return kinds[kind].name; }
const char *gmr_kind_source(enum gmr_kind kind) { return kinds[kind].source; }

/* ---- which kind ------------------------------------------------------------------------------- */

static const cJSON *field(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}
static bool has_text(const cJSON *object, const char *key) { return cJSON_IsString(field(object, key)); }
static bool has_number(const cJSON *object, const char *key) { return cJSON_IsNumber(field(object, key)); }

/* What the machine carried in the same run stands among the peers' records. */
static bool is_limit(const cJSON *object)
{
    const char *system = cJSON_GetStringValue(field(object, "system"));
    return system != NULL && strcmp(system, "limits") == 0;
}

/* False: none that we know. */
static bool kind_of(const cJSON *object, enum gmr_kind *kind)
{
    const cJSON *results = field(object, "results"), *first = cJSON_GetArrayItem(results, 0);
    if (cJSON_IsArray(field(object, "traceEvents"))) *kind = GMR_TRACE;
    else if (cJSON_IsArray(field(object, "points"))) *kind = GMR_PLAN;
    else if (cJSON_IsArray(results) && (field(object, "duplex_GBps") != NULL || has_text(first, "limit")))
        *kind = GMR_LIMITS;
    else if (cJSON_IsArray(results) && field(object, "collective") != NULL) *kind = GMR_BENCH;
    else if (has_text(object, "event")) *kind = GMR_TRAIN;
    else if (has_text(object, "regime")) *kind = GMR_SCALING;
    else if (has_text(object, "system") && (has_text(object, "collective") || is_limit(object))) *kind = GMR_PEERS;
    else return false;
    return true;
}

/* ---- whether it is whole ---------------------------------------------------------------------- */

struct needed {
    const char *key;
    bool        is_text;
};

#define MAX_NEEDED 5
static const struct needed needs[GMR_N_KINDS][MAX_NEEDED] = {
    [GMR_TRAIN] = { { "event", true } },
    [GMR_SCALING] = { { "regime", true }, { "world_size", false }, { "median_ms", false } },
    [GMR_PLAN] = { { "world_size", false }, { "predicted_ms", false } },
    [GMR_BENCH] = { { "collective", true }, { "world_size", false }, { "size_bytes", false },
                    { "median_us", false }, { "busbw_GBps", false } },
    [GMR_LIMITS] = { { "limit", true } },
    [GMR_PEERS] = { { "system", true }, { "collective", true }, { "world_size", false },
                    { "size_bytes", false }, { "median_us", false } },
    [GMR_TRACE] = { { "ph", true }, { "pid", false } },
};

/* What a record of this kind lacks, or NULL. */
static const struct needed *lacks(enum gmr_kind kind, const cJSON *record)
{
    if (kind == GMR_PEERS && is_limit(record)) return NULL;
    for (int i = 0; i < MAX_NEEDED && needs[kind][i].key != NULL; i++) {
        const struct needed *need = &needs[kind][i];
        if (need->is_text ? !has_text(record, need->key) : !has_number(record, need->key)) return need;
    }
    return NULL;
}

static gm_status check_step(const cJSON *record, const char *name, size_t line, gm_error *error)
{
    bool is_step = strcmp(field(record, "event")->valuestring, "step") == 0;
    if (!is_step || has_number(record, "step")) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "%s, line %zu: a step of a training log without its number", name, line);
}

static const char *const lists[GMR_N_KINDS] = { [GMR_PLAN] = "points", [GMR_BENCH] = "results",
                                                [GMR_LIMITS] = "results", [GMR_TRACE] = "traceEvents" };

static gm_status check_list(struct gmr_record *record, gm_error *error)
{
    const char  *list_name = lists[record->kind];
    const cJSON *list = field(record->data, list_name), *item;
    size_t       n = 0;
    cJSON_ArrayForEach(item, list)
    {
        const struct needed *missing = lacks(record->kind, item);
        if (missing != NULL)
            return gmi_error_set(error, GM_ERR_ARG, "%s: %s[%zu] of this %s has no %s '%s'", record->name, list_name, n,
                                 gmr_kind_name(record->kind), missing->is_text ? "text" : "number", missing->key);
        n++;
    }
    record->n_records = n;
    if (n > 0) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "%s: a %s whose %s are empty", record->name, gmr_kind_name(record->kind),
                         list_name);
}

/* ---- lines ------------------------------------------------------------------------------------- */

static bool is_blank(const char *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (!isspace((unsigned char)text[i])) return false;
    return true;
}

/* Takes a line's record over. */
static gm_status take_line(struct gmr_record *record, cJSON *object, size_t line, gm_error *error)
{
    enum gmr_kind kind = GMR_TRAIN;
    gm_status     status = GM_OK;
    if (!cJSON_IsObject(object) || !kind_of(object, &kind) || lists[kind] != NULL)
        status = gmi_error_set(error, GM_ERR_ARG, "%s, line %zu: JSON, but no record that gradmesh writes", record->name,
                               line);
    else if (record->n_records > 0 && kind != record->kind)
        status = gmi_error_set(error, GM_ERR_ARG, "%s, line %zu: a record of a %s, among those of a %s", record->name,
                               line, gmr_kind_name(kind), gmr_kind_name(record->kind));
    if (status == GM_OK) {
        const struct needed *missing = lacks(kind, object);
        record->kind = kind;
        if (missing != NULL)
            status = gmi_error_set(error, GM_ERR_ARG, "%s, line %zu: this record of a %s has no %s '%s'", record->name,
                                   line, gmr_kind_name(kind), missing->is_text ? "text" : "number", missing->key);
        else if (kind == GMR_TRAIN) status = check_step(object, record->name, line, error);
    }
    if (status == GM_OK && !cJSON_AddItemToArray(record->data, object))
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for %s", record->name);
    if (status != GM_OK) cJSON_Delete(object);
    else record->n_records++;
    return status;
}

static gm_status parse_lines(struct gmr_record *record, const char *text, size_t size_bytes, gm_error *error)
{
    record->data = cJSON_CreateArray();
    size_t line = 0;
    for (const char *at = text, *end = text + size_bytes, *next; at < end; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t      length = (size_t)((newline != NULL ? newline : end) - at);
        next = newline != NULL ? newline + 1 : end;
        line++;
        if (is_blank(at, length)) continue;
        cJSON *object = cJSON_ParseWithLength(at, length);
        if (object == NULL && newline == NULL && record->n_records > 0) {
            record->is_cut = true;
            break;
        }
        if (object == NULL)
            return gmi_error_set(error, GM_ERR_ARG, "%s, line %zu: not JSON; is it a record of gradmesh at all?",
                                 record->name, line);
        gm_status status = take_line(record, object, line, error);
        if (status != GM_OK) return status;
    }
    if (record->n_records > 0) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "%s is empty", record->name);
}

/* ---- files ------------------------------------------------------------------------------------- */

/* A file is one value, or lines that each are one. */
static gm_status parse(struct gmr_record *record, const char *text, size_t size_bytes, gm_error *error)
{
    const char *end = text;
    cJSON      *value = cJSON_ParseWithLengthOpts(text, size_bytes, &end, false);
    if (value == NULL)
        return gmi_error_set(error, GM_ERR_ARG, "%s is not whole JSON: it breaks off, or is damaged, at byte %zu of %zu",
                             record->name, end != NULL ? (size_t)(end - text) : 0, size_bytes);
    if (!is_blank(end, size_bytes - (size_t)(end - text))) {
        cJSON_Delete(value);
        return parse_lines(record, text, size_bytes, error);
    }
    if (cJSON_IsObject(value) && kind_of(value, &record->kind) && lists[record->kind] != NULL) {
        record->data = value;
        return check_list(record, error);
    }
    record->data = cJSON_CreateArray();
    return take_line(record, value, 1, error);
}

static gm_status read_all(FILE *file, const char *path, char **text, size_t *size_bytes, gm_error *error)
{
    struct stat about;
    if (fstat(fileno(file), &about) != 0) return gmi_error_set_errno(error, errno, "cannot read %s", path);
    if (S_ISDIR(about.st_mode)) return gmi_error_set(error, GM_ERR_ARG, "%s is a directory", path);
    size_t capacity = 0, used = 0;
    char  *buffer = NULL;
    for (;;) {
        if (used == capacity) {
            capacity = capacity == 0 ? (size_t)about.st_size + 4096 : capacity * 2;
            char *larger = used > MAX_FILE_BYTES ? NULL : realloc(buffer, capacity + 1);
            if (larger == NULL) {
                free(buffer);
                return gmi_error_set(error, GM_ERR_NOMEM, "%s is too large to be read (%zu MB at most)", path,
                                     (size_t)MAX_FILE_BYTES >> 20);
            }
            buffer = larger;
        }
        size_t got = fread(buffer + used, 1, capacity - used, file);
        used += got;
        if (got == 0) break;
    }
    if (ferror(file)) {
        int sys_errno = errno;
        free(buffer);
        return gmi_error_set_errno(error, sys_errno, "cannot read %s", path);
    }
    buffer[used] = '\0';
    *text = buffer;
    *size_bytes = used;
    return GM_OK;
}

gm_status gmr_record_read(struct gmr_record *record, const char *path, gm_error *error)
{
    *record = (struct gmr_record){ 0 };
    FILE *file = fopen(path, "re");
    if (file == NULL) return gmi_error_set_errno(error, errno, "cannot read %s", path);
    char     *text = NULL;
    size_t    size_bytes = 0;
    gm_status status = read_all(file, path, &text, &size_bytes, error);
    fclose(file);
    if (status != GM_OK) return status;
    status = gmr_record_parse(record, path, text, size_bytes, error);
    free(text);
    return status;
}

gm_status gmr_record_parse(struct gmr_record *record, const char *name, const char *text, size_t size_bytes,
                           gm_error *error)
{
    *record = (struct gmr_record){ .name = gmi_strdup(name) };
    if (record->name == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %s", name);
    gm_status status = is_blank(text, size_bytes)
                           ? gmi_error_set(error, GM_ERR_ARG, "%s is empty", name)
                           : parse(record, text, size_bytes, error);
    if (status != GM_OK) gmr_record_fini(record);
    return status;
}

void gmr_record_fini(struct gmr_record *record)
{
    cJSON_Delete(record->data);
    gmi_free(record->name);
    *record = (struct gmr_record){ 0 };
}
