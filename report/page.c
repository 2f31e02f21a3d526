#include "report/page.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "report/thin.h"

/* Spans of all traces of a page: some megabytes, and as many as a browser draws at once without a pause. */
enum { MOST_SPANS = 16000 };

/* In the order in which they go into the page. */
static const char *const scripts[] = { "echarts.min.js", "base.js",     "data.js",  "verdicts.js", "charts.js",
                                       "sections.js",    "timeline.js", "replay.js", "ring.js",    "main.js" };
enum { N_SCRIPTS = sizeof scripts / sizeof scripts[0] };

/* ---- data -------------------------------------------------------------------------------------- */

/* Each trace gets an equal part of the room that the ones before it have left. */
static gm_status thin_traces(struct gmr_record *records, size_t n_records)
{
    size_t    n_traces = 0, room = MOST_SPANS;
    gm_status status = GM_OK;
    for (size_t i = 0; i < n_records; i++) n_traces += records[i].kind == GMR_TRACE;
    for (size_t i = 0; i < n_records && status == GM_OK; i++) {
        size_t n_left = 0;
        if (records[i].kind != GMR_TRACE) continue;
        status = gmr_thin_trace(records[i].data, room / n_traces, &n_left);
        room -= n_left;
        n_traces--;
    }
    return status;
}

cJSON *gmr_page_data(struct gmr_record *records, size_t n_records)
{
    if (thin_traces(records, n_records) != GM_OK) return NULL;
    cJSON    *object = cJSON_CreateObject();
    char      now[32] = "";
    time_t    seconds = time(NULL);
    struct tm utc;
    if (gmtime_r(&seconds, &utc) != NULL) strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cJSON_AddStringToObject(object, "version", gm_version());
    cJSON_AddStringToObject(object, "made_at", now);
    cJSON *files = cJSON_AddArrayToObject(object, "files");
    for (size_t i = 0; i < n_records; i++) {
        cJSON *file = cJSON_CreateObject();
        cJSON_AddItemToArray(files, file);
        cJSON_AddStringToObject(file, "name", records[i].name);
        cJSON_AddStringToObject(file, "kind", gmr_kind_key(records[i].kind));
        cJSON_AddBoolToObject(file, "is_cut", records[i].is_cut);
        if (cJSON_AddItemToObject(file, "data", records[i].data)) records[i].data = NULL;
    }
    bool is_whole = cJSON_GetArraySize(files) == (int)n_records;
    for (size_t i = 0; i < n_records; i++) is_whole = is_whole && records[i].data == NULL;
    if (is_whole) return object;
    cJSON_Delete(object);
    return NULL;
}

/* ---- parts ------------------------------------------------------------------------------------- */

/* The program's own folder; false when the system does not tell. */
static bool program_folder(char *folder, size_t folder_bytes)
{
    ssize_t n = readlink("/proc/self/exe", folder, folder_bytes - 1);
    if (n <= 0) return false;
    folder[n] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL) *slash = '\0';
    return slash != NULL;
}

static bool has_part(const char *folder, const char *part)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, part);
    return access(path, R_OK) == 0;
}

static gm_status check_parts(const char *folder, gm_error *error)
{
    if (!has_part(folder, "index.html"))
        return gmi_error_set(error, GM_ERR_STATE, "the page's parts are not in %s: run make, or make install, again",
                             folder);
    if (has_part(folder, scripts[0])) return GM_OK;
    return gmi_error_set(error, GM_ERR_STATE,
                         "the chart library is not in %s: install npm (Debian: apt-get install npm) and run make charts",
                         folder);
}

gm_status gmr_page_find_parts(const char *wanted, char *folder, size_t folder_bytes, gm_error *error)
{
    char own[PATH_MAX];
    if (wanted != NULL) {
        snprintf(folder, folder_bytes, "%s", wanted);
        return check_parts(folder, error);
    }
    if (!program_folder(own, sizeof own))
        return gmi_error_set(error, GM_ERR_STATE, "cannot tell where this program stands; say where the page's parts "
                                                  "are, by --share DIR");
    snprintf(folder, folder_bytes, "%s/share/gradmesh", own);
    if (!has_part(folder, "index.html") && (size_t)snprintf(folder, folder_bytes, "%s/../share/gradmesh", own) >= folder_bytes)
        return gmi_error_set(error, GM_ERR_STATE, "the path of the page's parts is too long");
    return check_parts(folder, error);
}

static gm_status append_part(struct gmi_buffer *into, const char *folder, const char *part, gm_error *error)
{
    char path[PATH_MAX + 64], piece[65536];
    snprintf(path, sizeof path, "%s/%s", folder, part);
    FILE *file = fopen(path, "re");
    if (file == NULL) return gmi_error_set_errno(error, errno, "cannot read %s, a part of the page", path);
    for (size_t got; (got = fread(piece, 1, sizeof piece, file)) > 0;) gmi_buffer_append(into, piece, got);
    bool is_bad = ferror(file);
    fclose(file);
    return is_bad ? gmi_error_set(error, GM_ERR_SYSTEM, "cannot read %s, a part of the page", path) : GM_OK;
}

/* ---- putting it together ----------------------------------------------------------------------- */

static void append_text(struct gmi_buffer *into, const char *text) { gmi_buffer_append(into, text, strlen(text)); }

/* A script's text must not end the element that holds it. */
static void append_script(struct gmi_buffer *page, const struct gmi_buffer *script)
{
    if (script->bytes == NULL) return;
    const char *text = (const char *)script->bytes, *end = text + script->used_bytes, *at = text;
    append_text(page, "<script>\n");
    for (const char *p = text; p + 8 <= end; p++) {
        if (*p != '<' || strncasecmp(p, "</script", 8) != 0) continue;
        gmi_buffer_append(page, at, (size_t)(p - at));
        append_text(page, "<\\/");
        at = p + 2;
    }
    gmi_buffer_append(page, at, (size_t)(end - at));
    append_text(page, "\n</script>\n");
}

/* JSON has '<' in texts only, where it may as well be written as \u003c: nothing in the data can end the element or
 * begin a comment. */
static void append_json(struct gmi_buffer *page, const char *json)
{
    append_text(page, "<script type=\"application/json\" id=\"data\">");
    for (const char *at = json, *next; *at != '\0'; at = next) {
        size_t plain = strcspn(at, "<");
        gmi_buffer_append(page, at, plain);
        next = at + plain;
        if (*next != '<') continue;
        append_text(page, "\\u003c");
        next++;
    }
    append_text(page, "</script>\n");
}

static gm_status append_scripts(struct gmi_buffer *page, const char *folder, gm_error *error)
{
    gm_status status = GM_OK;
    for (int i = 0; i < N_SCRIPTS && status == GM_OK; i++) {
        struct gmi_buffer script = { 0 };
        status = append_part(&script, folder, scripts[i], error);
        if (status == GM_OK) append_script(page, &script);
        page->is_out_of_memory |= script.is_out_of_memory;
        gmi_buffer_fini(&script);
    }
    return status;
}

/* The template has two comments where the rest goes. */
static gm_status fill(struct gmi_buffer *page, const struct gmi_buffer *template, const char *folder, const char *json,
                      gm_error *error)
{
    static const char style_mark[] = "<!-- style -->", script_mark[] = "<!-- data and scripts -->";
    const char *text = (const char *)template->bytes;
    const char *style = strstr(text, style_mark), *script = style != NULL ? strstr(style, script_mark) : NULL;
    if (script == NULL) return gmi_error_set(error, GM_ERR_STATE, "%s/index.html is not the template of the page", folder);
    gmi_buffer_append(page, text, (size_t)(style - text));
    append_text(page, "<style>\n");
    gm_status status = append_part(page, folder, "page.css", error);
    append_text(page, "</style>");
    style += sizeof style_mark - 1;
    gmi_buffer_append(page, style, (size_t)(script - style));
    append_json(page, json);
    if (status == GM_OK) status = append_scripts(page, folder, error);
    append_text(page, script + sizeof script_mark - 1);
    return status;
}

gm_status gmr_page_make(const char *folder, const cJSON *data, char **page, size_t *page_bytes, gm_error *error)
{
    struct gmi_buffer template = { 0 }, whole = { 0 };
    char             *json = cJSON_PrintUnformatted(data);
    gm_status         status = append_part(&template, folder, "index.html", error);
    gmi_buffer_append(&template, "", 1);
    if (json == NULL || template.is_out_of_memory) status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the page");
    if (status == GM_OK) status = fill(&whole, &template, folder, json, error);
    if (status == GM_OK && whole.is_out_of_memory) status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the page");
    cJSON_free(json);
    gmi_buffer_fini(&template);
    *page = NULL;
    *page_bytes = whole.used_bytes;
    if (status == GM_OK && (*page = malloc(whole.used_bytes + 1)) == NULL)
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the page");
    if (status == GM_OK) {
        memcpy(*page, whole.bytes, whole.used_bytes);
        (*page)[whole.used_bytes] = '\0';
    }
    gmi_buffer_fini(&whole);
    return status;
}

gm_status gmr_write_file(const char *path, const void *bytes, size_t n_bytes, gm_error *error)
{
    char temporary[PATH_MAX];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp.%d", path, (int)getpid()) >= sizeof temporary)
        return gmi_error_set(error, GM_ERR_ARG, "the file name %s is too long", path);
    FILE *file = fopen(temporary, "wxe");
    if (file == NULL) return gmi_error_set_errno(error, errno, "cannot write %s", path);
    bool is_good = fwrite(bytes, 1, n_bytes, file) == n_bytes && fflush(file) == 0;
    int  saved_errno = errno;
    if (fclose(file) != 0 && is_good) {
        is_good = false;
        saved_errno = errno;
    }
    if (is_good && rename(temporary, path) == 0) return GM_OK;
    if (is_good) saved_errno = errno;
    unlink(temporary);
    return gmi_error_set_errno(error, saved_errno, "cannot write %s", path);
}
