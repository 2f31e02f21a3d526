/* profile.c - a machine as a JSON file. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/machine.h"

#define FORMAT "gradmesh machine profile 1"

enum { MAX_PROFILE_BYTES = 1 << 20 };

/* ---- writing ------------------------------------------------------------------------------------ */

static cJSON *exchange_to_json(const struct plan_exchange *exchange)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "transport", exchange->transport);
    cJSON_AddStringToObject(object, "wire", exchange->wire);
    cJSON_AddItemToObject(object, "bytes", cJSON_CreateDoubleArray(exchange->bytes, exchange->n_sizes));
    cJSON_AddItemToObject(object, "ms", cJSON_CreateDoubleArray(exchange->ms, exchange->n_sizes));
    cJSON_AddItemToObject(object, "cpu_ms", cJSON_CreateDoubleArray(exchange->cpu_ms, exchange->n_sizes));
    return object;
}

static cJSON *crew_to_json(const struct plan_crew *crew)
{
    double rows[PLAN_MAX_SPEEDS], step_ms[PLAN_MAX_SPEEDS], mean_ms[PLAN_MAX_SPEEDS];
    for (int i = 0; i < crew->n_speeds; i++) {
        rows[i] = crew->speeds[i].rows;
        step_ms[i] = crew->speeds[i].step_ms;
        mean_ms[i] = crew->speeds[i].mean_ms;
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "workers", crew->workers);
    cJSON_AddNumberToObject(object, "threads", crew->threads);
    cJSON_AddItemToObject(object, "rows", cJSON_CreateDoubleArray(rows, crew->n_speeds));
    cJSON_AddItemToObject(object, "step_ms", cJSON_CreateDoubleArray(step_ms, crew->n_speeds));
    cJSON_AddItemToObject(object, "mean_ms", cJSON_CreateDoubleArray(mean_ms, crew->n_speeds));
    cJSON_AddNumberToObject(object, "update_ms", crew->update_ms);
    cJSON *exchanges = cJSON_AddArrayToObject(object, "exchanges");
    for (int i = 0; i < crew->n_exchanges; i++) cJSON_AddItemToArray(exchanges, exchange_to_json(&crew->exchanges[i]));
    return object;
}

/* The lists of a profile's turns, each of one figure. */
struct turn_list {
    const char *name;
    int         n;
    size_t      offset, stride; /* of the first one, and to the next */
};

#define CALLS(cores, figure)                                                                                                   \
    BENCH_TURN_CALLS, offsetof(struct bench_turns, calls[cores][0].figure), sizeof(struct bench_turn_call)
#define REACHES(figure) BENCH_TURN_REACHES, offsetof(struct bench_turns, reaches[0].figure), sizeof(struct bench_turn_reach)

static const struct turn_list turn_lists[] = {
    { "message_bytes", CALLS(0, bytes) }, { "send_us", CALLS(0, send_us) }, { "recv_us", CALLS(0, recv_us) },
    { "one_core_message_bytes", CALLS(1, bytes) }, { "one_core_send_us", CALLS(1, send_us) }, { "one_core_recv_us", CALLS(1, recv_us) },
    { "walked_bytes", REACHES(walked_bytes) }, { "send_factor", REACHES(send_factor) }, { "recv_factor", REACHES(recv_factor) },
    { "deep_send_factor", REACHES(deep_send_factor) }, { "deep_recv_factor", REACHES(deep_recv_factor) },
    { "add_Bps", REACHES(add_Bps) }, { "add_kept_Bps", REACHES(add_kept_Bps) },
};

enum { N_TURN_LISTS = sizeof turn_lists / sizeof turn_lists[0], MAX_TURN_VALUES = 8 };
_Static_assert((int)BENCH_TURN_CALLS <= (int)MAX_TURN_VALUES && (int)BENCH_TURN_REACHES <= (int)MAX_TURN_VALUES, "a list fits");

static cJSON *turns_to_json(const struct bench_turns *turns)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "miss_us", turns->miss_us);
    cJSON_AddNumberToObject(object, "ack_us", turns->ack_us);
    cJSON_AddNumberToObject(object, "call_us", turns->call_us);
    cJSON_AddNumberToObject(object, "try_us", turns->try_us);
    cJSON_AddNumberToObject(object, "yield_us", turns->yield_us);
    cJSON_AddNumberToObject(object, "switch_us", turns->switch_us);
    cJSON_AddNumberToObject(object, "wake_us", turns->wake_us);
    for (int i = 0; i < N_TURN_LISTS; i++) {
        const struct turn_list *list = &turn_lists[i];
        double                  values[MAX_TURN_VALUES];
        for (int k = 0; k < list->n; k++)
            memcpy(&values[k], (const char *)turns + list->offset + (size_t)k * list->stride, sizeof values[k]);
        cJSON_AddItemToObject(object, list->name, cJSON_CreateDoubleArray(values, list->n));
    }
    return object;
}

static cJSON *machine_to_json(const struct plan_machine *machine)
{
    char   layers[256];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "format", FORMAT);
    cJSON_AddNumberToObject(object, "cores", machine->n_cores);
    cJSON_AddStringToObject(object, "layers", machine->n_crews > 0 ? gmt_layers_format(&machine->layers, layers, sizeof layers) : "");
    cJSON_AddNumberToObject(object, "flops", machine->flops);
    cJSON_AddNumberToObject(object, "memory_Bps", machine->memory_Bps);
    cJSON_AddNumberToObject(object, "reduce_Bps", machine->reduce_Bps);
    cJSON_AddNumberToObject(object, "codec_Bps", machine->codec_Bps);
    if (machine->has_link) {
        cJSON_AddNumberToObject(object, "latency_us", machine->link.latency_us);
        cJSON_AddNumberToObject(object, "bandwidth_Bps", machine->link.bandwidth_Bps);
    }
    if (machine->has_turns) cJSON_AddItemToObject(object, "turns", turns_to_json(&machine->turns));
    cJSON *crews = cJSON_AddArrayToObject(object, "crews");
    for (int i = 0; i < machine->n_crews; i++) cJSON_AddItemToArray(crews, crew_to_json(&machine->crews[i]));
    return object;
}

static bool write_synced(const char *path, const char *text)
{
    int    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    size_t n_bytes = strlen(text), done = 0;
    if (fd < 0) return false;
    while (done < n_bytes) {
        ssize_t n = write(fd, text + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    bool is_good = done == n_bytes && fsync(fd) == 0;
    int  sys_errno = errno;
    is_good = close(fd) == 0 && is_good;
    if (!is_good) unlink(path);
    errno = sys_errno;
    return is_good;
}

gm_status plan_profile_save(const struct plan_machine *machine, const char *path, gm_error *error)
{
    char   temporary[PATH_MAX];
    cJSON *object = machine_to_json(machine);
    char  *text = cJSON_Print(object);
    cJSON_Delete(object);
    if (text == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the profile");
    int  n = snprintf(temporary, sizeof temporary, "%s.tmp.%d", path, (int)getpid());
    bool is_good = n > 0 && (size_t)n < sizeof temporary && write_synced(temporary, text);
    if (is_good && rename(temporary, path) != 0) {
        int sys_errno = errno;
        unlink(temporary);
        errno = sys_errno;
        is_good = false;
    }
    free(text);
    return is_good ? GM_OK : gmi_error_set_errno(error, errno, "cannot write the profile %.200s", path);
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* What is wrong goes into one sentence, with the place; the first thing counts. */
struct reader {
    const char *path;
    gm_error   *error;
    gm_status   status;
};

static void __attribute__((format(printf, 2, 3))) complain(struct reader *reader, const char *format, ...)
{
    char    what[200];
    va_list args;
    if (reader->status != GM_OK) return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    reader->status = gmi_error_set(reader->error, GM_ERR_ARG, "the profile %.200s: %s; make a new one with gradmesh plan "
                                   "--save-profile", reader->path, what);
}

static double number(struct reader *reader, const cJSON *object, const char *name, double least)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsNumber(item) && isfinite(item->valuedouble) && item->valuedouble >= least && item->valuedouble <= 1e18)
        return item->valuedouble;
    complain(reader, "\"%s\" must be a number of at least %g", name, least);
    return least;
}

static int whole(struct reader *reader, const cJSON *object, const char *name)
{
    double value = number(reader, object, name, 1);
    if (value == floor(value) && value <= 1 << 20) return (int)value;
    complain(reader, "\"%s\" must be a whole number", name);
    return 1;
}

static const char *text(struct reader *reader, const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsString(item)) return item->valuestring;
    complain(reader, "\"%s\" must be a text", name);
    return "";
}

/* `n` of them, or any number up to `max` when n is -1. */
static int numbers(struct reader *reader, const cJSON *object, const char *name, int n, int max, bool is_rising, double *values)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name), *item;
    int          count = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > max || (n >= 0 && cJSON_GetArraySize(list) != n)) {
        complain(reader, "\"%s\" must be a list of %d numbers%s", name, n >= 0 ? n : max, n >= 0 ? "" : " at most");
        return 0;
    }
    cJSON_ArrayForEach(item, list) {
        bool is_good = cJSON_IsNumber(item) && isfinite(item->valuedouble) && item->valuedouble >= 0 && item->valuedouble < 1e18;
        if (is_good && is_rising && count > 0) is_good = item->valuedouble > values[count - 1];
        if (!is_good) {
            complain(reader, "number %d of \"%s\" makes no sense", count + 1, name);
            return 0;
        }
        values[count++] = item->valuedouble;
    }
    return count;
}

static void read_exchange(struct reader *reader, const cJSON *object, struct plan_exchange *exchange)
{
    snprintf(exchange->transport, sizeof exchange->transport, "%s", text(reader, object, "transport"));
    snprintf(exchange->wire, sizeof exchange->wire, "%s", text(reader, object, "wire"));
    exchange->n_sizes = numbers(reader, object, "bytes", -1, PLAN_MAX_SIZES, true, exchange->bytes);
    if (exchange->n_sizes == 0) complain(reader, "an exchange without a size: \"bytes\" is empty");
    numbers(reader, object, "ms", exchange->n_sizes, PLAN_MAX_SIZES, false, exchange->ms);
    numbers(reader, object, "cpu_ms", exchange->n_sizes, PLAN_MAX_SIZES, false, exchange->cpu_ms);
}

static void read_crew(struct reader *reader, const cJSON *object, struct plan_crew *crew)
{
    double       rows[PLAN_MAX_SPEEDS], step_ms[PLAN_MAX_SPEEDS], mean_ms[PLAN_MAX_SPEEDS];
    const cJSON *exchanges = cJSON_GetObjectItemCaseSensitive(object, "exchanges"), *item;
    crew->workers = whole(reader, object, "workers");
    crew->threads = whole(reader, object, "threads");
    crew->update_ms = number(reader, object, "update_ms", 0);
    crew->n_speeds = numbers(reader, object, "rows", -1, PLAN_MAX_SPEEDS, true, rows);
    if (crew->n_speeds == 0) complain(reader, "a crew without a speed: \"rows\" is empty");
    numbers(reader, object, "step_ms", crew->n_speeds, PLAN_MAX_SPEEDS, false, step_ms);
    numbers(reader, object, "mean_ms", crew->n_speeds, PLAN_MAX_SPEEDS, false, mean_ms);
    if (!cJSON_IsArray(exchanges) || cJSON_GetArraySize(exchanges) > PLAN_MAX_EXCHANGES)
        complain(reader, "\"exchanges\" must be a list of %d at most", PLAN_MAX_EXCHANGES);
    if (reader->status != GM_OK) return;
    for (int i = 0; i < crew->n_speeds; i++) {
        crew->speeds[i] = (struct plan_speed){ rows[i], step_ms[i], mean_ms[i] };
        if (rows[i] <= 0 || step_ms[i] <= 0 || mean_ms[i] > step_ms[i]) complain(reader, "a step of no rows, of no time, or that is longer for all than for the slowest");
    }
    cJSON_ArrayForEach(item, exchanges) read_exchange(reader, item, &crew->exchanges[crew->n_exchanges++]);
}

static void read_crews(struct reader *reader, const cJSON *root, struct plan_machine *machine)
{
    const cJSON *crews = cJSON_GetObjectItemCaseSensitive(root, "crews"), *item;
    gm_error     why;
    gmi_error_clear(&why);
    if (!cJSON_IsArray(crews) || cJSON_GetArraySize(crews) > PLAN_MAX_CREWS) {
        complain(reader, "\"crews\" must be a list of %d at most", PLAN_MAX_CREWS);
        return;
    }
    cJSON_ArrayForEach(item, crews)
    {
        if (reader->status == GM_OK) read_crew(reader, item, &machine->crews[machine->n_crews++]);
    }
    if (machine->n_crews > 0 && gmt_layers_parse(&machine->layers, text(reader, root, "layers"), &why) != GM_OK)
        complain(reader, "%.150s", why.text);
    if (machine->n_crews == 0 && machine->flops <= 0) complain(reader, "it holds neither \"crews\" nor \"flops\"");
}

static void read_turns(struct reader *reader, const cJSON *object, struct bench_turns *turns)
{
    turns->miss_us = number(reader, object, "miss_us", 0);
    turns->ack_us = number(reader, object, "ack_us", 0);
    turns->call_us = number(reader, object, "call_us", 0);
    turns->try_us = number(reader, object, "try_us", 0);
    turns->yield_us = number(reader, object, "yield_us", 0);
    turns->switch_us = number(reader, object, "switch_us", 0);
    turns->wake_us = number(reader, object, "wake_us", 0);
    for (int i = 0; i < N_TURN_LISTS && reader->status == GM_OK; i++) {
        const struct turn_list *list = &turn_lists[i];
        double                  values[MAX_TURN_VALUES] = { 0 };
        bool                    is_rising = strstr(list->name, "bytes") != NULL;
        numbers(reader, object, list->name, list->n, MAX_TURN_VALUES, is_rising, values);
        for (int k = 0; k < list->n && reader->status == GM_OK; k++) {
            if (values[k] <= 0) complain(reader, "number %d of \"%s\" must be more than 0", k + 1, list->name);
            memcpy((char *)turns + list->offset + (size_t)k * list->stride, &values[k], sizeof values[k]);
        }
    }
}

static void read_machine(struct reader *reader, const cJSON *root, struct plan_machine *machine)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    plan_machine_init(machine);
    if (!cJSON_IsString(format) || strcmp(format->valuestring, FORMAT) != 0) {
        complain(reader, "it is no \"" FORMAT "\"");
        return;
    }
    machine->n_cores = whole(reader, root, "cores");
    machine->flops = number(reader, root, "flops", 0);
    machine->memory_Bps = number(reader, root, "memory_Bps", 1);
    machine->reduce_Bps = number(reader, root, "reduce_Bps", 1);
    machine->codec_Bps = number(reader, root, "codec_Bps", 1);
    machine->has_link = cJSON_HasObjectItem(root, "bandwidth_Bps");
    if (machine->has_link)
        machine->link = (struct plan_link){ number(reader, root, "latency_us", 0), number(reader, root, "bandwidth_Bps", 1) };
    machine->has_turns = cJSON_HasObjectItem(root, "turns");
    if (machine->has_turns) read_turns(reader, cJSON_GetObjectItemCaseSensitive(root, "turns"), &machine->turns);
    read_crews(reader, root, machine);
}

/* NULL: it cannot be read, or is too long, which has been said. Freed with gmi_free. */
static char *read_file(struct reader *reader)
{
    FILE *file = fopen(reader->path, "re");
    if (file == NULL) {
        reader->status = gmi_error_set(reader->error, GM_ERR_ARG, "the profile %.200s cannot be read: %s", reader->path, strerror(errno));
        return NULL;
    }
    char *content = gmi_alloc(MAX_PROFILE_BYTES + 1, 1);
    if (content != NULL) {
        size_t n = fread(content, 1, MAX_PROFILE_BYTES + 1, file);
        bool   is_good = n <= MAX_PROFILE_BYTES && !ferror(file);
        content[is_good ? n : 0] = '\0';
        if (!is_good) complain(reader, "it cannot be read, or is longer than 1 MiB");
    } else {
        reader->status = gmi_error_set(reader->error, GM_ERR_NOMEM, "no memory for the profile");
    }
    fclose(file);
    return content;
}

gm_status plan_profile_load(struct plan_machine *machine, const char *path, gm_error *error)
{
    struct reader reader = { .path = path, .error = error, .status = GM_OK };
    char         *content = read_file(&reader);
    cJSON        *root = content == NULL || reader.status != GM_OK ? NULL : cJSON_ParseWithOpts(content, NULL, 1);
    if (root != NULL) read_machine(&reader, root, machine);
    else complain(&reader, "it is not JSON");
    cJSON_Delete(root);
    gmi_free(content);
    return reader.status;
}
