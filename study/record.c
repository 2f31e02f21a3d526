#include "study/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"

/* ---- a row -------------------------------------------------------------------------------------- */

static const char *overlap_name(enum gmt_overlap overlap)
{
    return overlap == GMT_OVERLAP_ON ? "on" : overlap == GMT_OVERLAP_OFF ? "off" : "auto";
}

static void add_machine(cJSON *object)
{
    char           line[300], cpu[200] = "unknown", text[700];
    struct utsname os;
    FILE          *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            snprintf(cpu, sizeof cpu, "%s", strchr(line, ':') + 2);
            cpu[strcspn(cpu, "\n")] = '\0';
            break;
        }
    if (file != NULL) fclose(file);
    uname(&os);
    const char *core_type = getenv("OPENBLAS_CORETYPE");
    snprintf(text, sizeof text, "%s, %ld cores, %.60s %.60s%s%.40s", cpu, sysconf(_SC_NPROCESSORS_ONLN), os.sysname, os.release,
             core_type != NULL ? ", OPENBLAS_CORETYPE=" : "", core_type != NULL ? core_type : "");
    cJSON_AddStringToObject(object, "machine", text);
}

static void add_ranks(cJSON *object, const struct study_row *row)
{
    cJSON *cpus = cJSON_AddArrayToObject(object, "cpus"), *ranks = cJSON_AddArrayToObject(object, "by_rank");
    for (int r = 0; r < row->point.world_size; r++) {
        const struct study_rank *rank = &row->by_rank[r];
        cJSON                   *each = cJSON_CreateObject();
        cJSON_AddItemToArray(cpus, rank->cpu >= 0 ? cJSON_CreateNumber(rank->cpu) : cJSON_CreateNull());
        cJSON_AddNumberToObject(each, "rank", r);
        cJSON_AddNumberToObject(each, "compute_ms", rank->compute_ms);
        cJSON_AddNumberToObject(each, "comm_exposed_ms", rank->comm_exposed_ms);
        cJSON_AddNumberToObject(each, "comm_hidden_ms", rank->comm_hidden_ms);
        cJSON_AddNumberToObject(each, "wait_ms", rank->wait_ms);
        cJSON_AddItemToArray(ranks, each);
    }
}

static void add_repeats(cJSON *object, const struct study_row *row)
{
    cJSON *steps = cJSON_AddArrayToObject(object, "step_ms"), *zeros = cJSON_AddArrayToObject(object, "zero_comm_step_ms");
    for (int i = 0; i < row->n_repeats; i++) {
        cJSON_AddItemToArray(steps, cJSON_CreateNumber(row->runs[i].median_ms));
        cJSON_AddItemToArray(zeros, cJSON_CreateNumber(row->zero_ms[i]));
    }
}

static void add_time(cJSON *object)
{
    char   at[32];
    time_t now = time(NULL);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    cJSON_AddStringToObject(object, "time", at);
}

cJSON *study_record_beside(const struct study_row *row, const char *system)
{
    const struct study_point *point = &row->point;
    char                      layers[256];
    if (row->beside_median_ms <= 0) return NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "peer", system);
    cJSON_AddStringToObject(object, "regime", study_regime_name(point->regime));
    cJSON_AddNumberToObject(object, "world_size", point->world_size);
    cJSON_AddStringToObject(object, "network", point->network);
    cJSON_AddStringToObject(object, "transport", "tcp");
    cJSON_AddStringToObject(object, "wire", "f32");
    cJSON_AddNumberToObject(object, "batch", (double)point->batch);
    cJSON_AddStringToObject(object, "layers", gmt_layers_format(&point->layers, layers, sizeof layers));
    cJSON_AddNumberToObject(object, "repeats", row->n_repeats);
    cJSON_AddNumberToObject(object, "median_ms", row->beside_median_ms);
    cJSON_AddNumberToObject(object, "speedup", row->beside_speedup);
    cJSON_AddNumberToObject(object, "samples_per_s", (double)point->batch / row->beside_median_ms * 1e3);
    cJSON_AddNumberToObject(object, "ratio", row->beside_ratio);
    cJSON_AddBoolToObject(object, "pinned", row->runs[0].is_pinned);
    cJSON_AddNumberToObject(object, "threads", row->runs[0].n_threads);
    cJSON *steps = cJSON_AddArrayToObject(object, "step_ms");
    for (int i = 0; i < row->n_repeats; i++) cJSON_AddItemToArray(steps, cJSON_CreateNumber(row->beside_ms[i]));
    add_machine(object);
    add_time(object);
    return object;
}

cJSON *study_record(const struct study_row *row)
{
    const struct study_point  *point = &row->point;
    const struct study_result *run = &row->runs[0];
    char                       layers[256];
    cJSON                     *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "peer", "gradmesh");
    cJSON_AddStringToObject(object, "regime", study_regime_name(point->regime));
    cJSON_AddNumberToObject(object, "world_size", point->world_size);
    cJSON_AddStringToObject(object, "network", point->network);
    cJSON_AddStringToObject(object, "transport", point->transport);
    cJSON_AddStringToObject(object, "transport_used", run->transport);
    cJSON_AddStringToObject(object, "wire", point->wire);
    cJSON_AddStringToObject(object, "overlap", overlap_name(point->overlap));
    cJSON_AddBoolToObject(object, "overlap_used", run->is_overlapping);
    cJSON_AddNumberToObject(object, "batch", (double)point->batch);
    cJSON_AddStringToObject(object, "layers", gmt_layers_format(&point->layers, layers, sizeof layers));
    cJSON_AddNumberToObject(object, "repeats", row->n_repeats);
    cJSON_AddNumberToObject(object, "median_ms", row->median_ms);
    cJSON_AddNumberToObject(object, "speedup", row->speedup);
    cJSON_AddNumberToObject(object, "zero_comm_speedup", row->zero_comm_speedup);
    cJSON_AddNumberToObject(object, "zero_comm_share", row->zero_comm_share);
    cJSON_AddNumberToObject(object, "efficiency", row->efficiency);
    cJSON_AddNumberToObject(object, "samples_per_s", (double)point->batch / row->median_ms * 1e3);
    cJSON_AddNumberToObject(object, "compute_ms", row->compute_ms);
    cJSON_AddNumberToObject(object, "comm_exposed_ms", row->comm_exposed_ms);
    cJSON_AddNumberToObject(object, "comm_hidden_ms", row->comm_hidden_ms);
    cJSON_AddNumberToObject(object, "wait_ms", row->wait_ms);
    if (row->slowest_rank >= 0) cJSON_AddNumberToObject(object, "slowest_rank", row->slowest_rank);
    else cJSON_AddNullToObject(object, "slowest_rank");
    cJSON_AddNumberToObject(object, "slowest_cost_ms", row->slowest_cost_ms);
    cJSON_AddNumberToObject(object, "payload_bytes", (double)run->payload_bytes);
    cJSON_AddNumberToObject(object, "cpu_s", row->cpu_s);
    cJSON_AddNumberToObject(object, "clock_error_us", run->clock_error_us);
    cJSON_AddBoolToObject(object, "pinned", run->is_pinned);
    cJSON_AddNumberToObject(object, "threads", run->n_threads);
    cJSON_AddBoolToObject(object, "identical", run->are_identical);
    add_ranks(object, row);
    add_repeats(object, row);
    add_machine(object);
    add_time(object);
    return object;
}

/* ---- the file ----------------------------------------------------------------------------------- */

static bool add_file(struct gmi_buffer *text, const char *path)
{
    char   bytes[65536];
    size_t n;
    FILE  *file = fopen(path, "re");
    if (file == NULL) return errno == ENOENT;
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0) gmi_buffer_append(text, bytes, n);
    bool is_good = !ferror(file);
    fclose(file);
    return is_good;
}

static bool put_file(const struct gmi_buffer *text, const char *path)
{
    char temporary[PATH_MAX + 24];
    snprintf(temporary, sizeof temporary, "%s.tmp.%d", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool is_good = true;
    for (size_t at = 0; is_good && at < text->used_bytes;) {
        ssize_t n = write(fd, text->bytes + at, text->used_bytes - at);
        is_good = n > 0;
        if (n > 0) at += (size_t)n;
    }
    is_good = is_good && fsync(fd) == 0;
    close(fd);
    if (is_good && rename(temporary, path) == 0) return true;
    int reason = errno;
    unlink(temporary);
    errno = reason;
    return false;
}

static bool add_line(struct gmi_buffer *text, cJSON *record)
{
    char *line = record != NULL ? cJSON_PrintUnformatted(record) : NULL;
    cJSON_Delete(record);
    if (line == NULL) return false;
    gmi_buffer_append(text, line, strlen(line));
    gmi_buffer_append(text, "\n", 1);
    free(line);
    return true;
}

static bool add_rows(struct gmi_buffer *text, const struct study *study)
{
    bool is_good = true;
    for (int i = 0; i < study->n_rows && is_good; i++) {
        const struct study_row *row = &study->rows[i];
        if (row->n_repeats == 0) continue;
        is_good = add_line(text, study_record(row));
        if (is_good && row->beside_median_ms > 0) is_good = add_line(text, study_record_beside(row, study->beside_system));
    }
    return is_good && !text->is_out_of_memory;
}

gm_status study_write_records(const struct study *study, const char *dir, bool is_appending, gm_error *error)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/scaling.jsonl", dir) >= (int)sizeof path)
        return gmi_error_set(error, GM_ERR_ARG, "the name of the directory %s is too long", dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return gmi_error_set_errno(error, errno, "cannot make the directory %s for the results", dir);
    struct gmi_buffer text = { 0 };
    bool is_read = !is_appending || add_file(&text, path);
    gm_status status = GM_OK;
    if (!is_read) status = gmi_error_set_errno(error, errno, "cannot read %s, to append to it", path);
    else if (!add_rows(&text, study)) status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the records");
    else if (!put_file(&text, path)) status = gmi_error_set_errno(error, errno, "cannot write %s", path);
    gmi_buffer_fini(&text);
    return status;
}
