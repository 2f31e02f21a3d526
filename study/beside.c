#include "study/beside.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "study/launch.h"

/* What rank 0 has written into the memory file. */
static gm_status read_answer(int fd, double *median_ms, char system[STUDY_SYSTEM_BYTES], gm_error *error)
{
    char    text[2000];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    cJSON       *answer = cJSON_Parse(text);
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(answer, "system");
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(answer, "median_ms");
    bool         is_good = cJSON_IsString(name) && cJSON_IsNumber(ms) && ms->valuedouble > 0;
    if (is_good) {
        snprintf(system, STUDY_SYSTEM_BYTES, "%s", name->valuestring);
        *median_ms = ms->valuedouble;
    }
    cJSON_Delete(answer);
    if (is_good) return GM_OK;
    return gmi_error_set(error, GM_ERR_SYSTEM, "the program beside ended without writing {\"system\": NAME, \"median_ms\": MS} to STUDY_OUT");
}

gm_status study_measure_beside(const struct study_point *point, const char *command, double *median_ms,
                               char system[STUDY_SYSTEM_BYTES], bool *failed_later, gm_error *error)
{
    gm_error unread;
    char  layers[256], env[6][320], shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = { shell, option, (char *)(uintptr_t)command, NULL };
    int   n_threads = study_regime_threads(point->regime), fd = memfd_create("gradmesh-beside", MFD_CLOEXEC);
    if (fd < 0) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for what the program beside measures");
    snprintf(env[0], sizeof env[0], "STUDY_LAYERS=%s", gmt_layers_format(&point->layers, layers, sizeof layers));
    snprintf(env[1], sizeof env[1], "STUDY_BATCH=%zu", point->batch);
    snprintf(env[2], sizeof env[2], "STUDY_SECONDS=%g", point->seconds);
    snprintf(env[3], sizeof env[3], "STUDY_THREADS=%d", n_threads);
    snprintf(env[4], sizeof env[4], "STUDY_OUT=/proc/%d/fd/%d", (int)getpid(), fd);
    snprintf(env[5], sizeof env[5], "OMP_NUM_THREADS=%d", n_threads);
    const char *const extra_env[] = { env[0], env[1], env[2], env[3], env[4], env[5], NULL };
    gm_status status = study_launch(point, argv, extra_env, error);
    gmi_error_clear(&unread);
    *failed_later = status == GM_ERR_SYSTEM && read_answer(fd, median_ms, system, &unread) == GM_OK;
    if (*failed_later) {
        gmi_error_clear(error);
        status = GM_OK;
    } else if (status == GM_OK) {
        status = read_answer(fd, median_ms, system, error);
    }
    close(fd);
    return status;
}
