#include "cli/tune_records.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

/* ---- records ------------------------------------------------------------------------------------- */

static bool push(struct cli_tune_records *records, const struct plan_timing *timing)
{
    if (records->n == records->room) {
        size_t              room = records->room == 0 ? 1024 : 2 * records->room;
        struct plan_timing *more = gmi_alloc(room, sizeof *more);
        if (more == NULL) return false;
        if (records->n > 0) memcpy(more, records->timings, records->n * sizeof *more);
        gmi_free(records->timings);
        records->timings = more;
        records->room = room;
    }
    records->timings[records->n++] = *timing;
    return true;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

/* Of plain calls by several ranks. Formats and exact sums have algorithms of their own. */
static bool is_of_interest(const cJSON *result)
{
    const char *dtype = text_of(result, "dtype");
    return strcmp(text_of(result, "wire"), dtype) == 0 && (strcmp(dtype, "f32") == 0 || strcmp(dtype, "none") == 0) &&
           strcmp(text_of(result, "algo"), "auto") != 0;
}

static gm_status add_result(struct cli_tune_records *records, const cJSON *result, gm_error *error)
{
    struct plan_timing timing = { .bytes = 0 };
    const char        *end;
    double             bytes = number_of(result, "size_bytes"), us = number_of(result, "median_us");
    if (!cJSON_IsObject(result) || text_of(result, "collective")[0] == '\0' || bytes < 0 || us < 0)
        return gmi_error_set(error, GM_ERR_ARG, "it is no result of gradmesh bench");
    if (us == 0 || !is_of_interest(result) || !gmi_site_read(&timing.site, text_of(result, "site"), &end) ||
        !plan_timing_name(&timing, text_of(result, "collective"), text_of(result, "algo"))) return GM_OK;
    timing.bytes = (uint64_t)bytes;
    timing.us = us;
    return push(records, &timing) ? GM_OK : gmi_error_set(error, GM_ERR_NOMEM, "no memory for the timings");
}

gm_status cli_tune_add(struct cli_tune_records *records, const char *json, gm_error *error)
{
    cJSON       *object = cJSON_ParseWithOpts(json, NULL, 1);
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(object, "results"), *result;
    gm_status    status = GM_OK;
    if (object == NULL) return gmi_error_set(error, GM_ERR_ARG, "it is no JSON object");
    if (results == NULL) status = add_result(records, object, error);
    cJSON_ArrayForEach(result, results)
    {
        if (status == GM_OK) status = add_result(records, result, error);
    }
    cJSON_Delete(object);
    return status;
}

gm_status cli_tune_read(struct cli_tune_records *records, const char *path, gm_error *error)
{
    FILE     *file = fopen(path, "re");
    char     *line = NULL;
    size_t    room = 0;
    gm_status status = GM_OK;
    gm_error  why;
    if (file == NULL) return gmi_error_set_errno(error, errno, "cannot read %.200s", path);
    for (int number = 1; status == GM_OK && getline(&line, &room, file) >= 0; number++) {
        if (line[strspn(line, " \t\r\n")] == '\0') continue;
        gmi_error_clear(&why);
        status = cli_tune_add(records, line, &why);
        if (status != GM_OK) gmi_error_set(error, status, "%.200s, line %d: %s", path, number, why.text);
    }
    if (status == GM_OK && ferror(file)) status = gmi_error_set(error, GM_ERR_SYSTEM, "cannot read %.200s to its end", path);
    free(line);
    fclose(file);
    return status;
}

void cli_tune_records_fini(struct cli_tune_records *records) { gmi_free(records->timings); }

/* ---- measuring ----------------------------------------------------------------------------------- */

enum { MAX_WORDS = 32 };

extern char **environ;

/* What the copy prints comes through the pipe; what it says of its ranks is nobody's concern here. */
static int start(const char *const *words, int to, pid_t *pid)
{
    static char                program[] = "gradmesh", command[] = "bench";
    char                      *argv[MAX_WORDS + 3] = { program, command };
    posix_spawn_file_actions_t actions;
    for (int i = 0; i < MAX_WORDS && words[i] != NULL; i++) memcpy(&argv[i + 2], &words[i], sizeof argv[0]);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int sys_errno = posix_spawn(pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return sys_errno;
}

static char *read_all(int fd)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *in = fdopen(fd, "re"), *out = open_memstream(&text, &n);
    char   block[4096];
    for (size_t got; in != NULL && out != NULL && (got = fread(block, 1, sizeof block, in)) > 0;) fwrite(block, 1, got, out);
    if (in != NULL) fclose(in);
    if (out != NULL) fclose(out);
    return text;
}

gm_status cli_tune_measure(struct cli_tune_records *records, const char *const *words, FILE *kept, gm_error *error)
{
    int   ends[2], exit_status = 0;
    pid_t pid = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) return gmi_error_set_errno(error, errno, "no pipe to gradmesh bench");
    int sys_errno = start(words, ends[1], &pid);
    close(ends[1]);
    char *text = read_all(ends[0]);
    if (sys_errno == 0) waitpid(pid, &exit_status, 0);
    gm_status status = GM_OK;
    if (sys_errno != 0) {
        status = gmi_error_set_errno(error, sys_errno, "gradmesh bench cannot be started");
    } else if (exit_status != 0 || text == NULL) {
        status = gmi_error_set(error, GM_ERR_SYSTEM, "'gradmesh bench %s -n %s --transport %s --algo all' failed; run by itself it says why",
                               words[0], words[2], words[4]);
    } else {
        status = cli_tune_add(records, text, error);
    }
    if (status == GM_OK && kept != NULL && fputs(text, kept) == EOF)
        status = gmi_error_set_errno(error, errno, "cannot write the records");
    free(text);
    return status;
}
