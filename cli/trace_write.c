#include "cli/trace_write.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/trace_items.h"
#include "cli/whole_file.h"

/* A file under way. */
struct print {
    FILE   *file;
    int64_t from_ns; /* the first event of all: 0 in the file */
    bool    has_failed, has_some;
    int     lanes_of[CLI_N_TRACKS]; /* of the rank whose tracks are named */
    size_t  communicator; /* whose events are printed: their numbers are its own */
};

/* cJSON takes a NULL object and does nothing; that there was no memory shows when it is printed. */
static void put(struct print *p, cJSON *object)
{
    char *text = object != NULL ? cJSON_PrintUnformatted(object) : NULL;
    if (text == NULL) errno = ENOMEM;
    if (text == NULL || fprintf(p->file, "%s\n%s", p->has_some ? "," : "", text) < 0) p->has_failed = true;
    p->has_some = true;
    cJSON_free(text);
    cJSON_Delete(object);
}

static double us(int64_t ns) { return (double)ns / 1e3; }

/* ---- tracks -------------------------------------------------------------------------------------- */

/* 0 to 4 for the first ones, 10 k more for the k-th further one. */
static int track_id(enum cli_track track, int lane) { return (int)track + 10 * lane; }

static void put_name(struct print *p, const char *what, int rank, int track, const char *name)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "ph", "M");
    cJSON_AddNumberToObject(object, "pid", rank);
    cJSON_AddNumberToObject(object, "tid", track);
    cJSON_AddStringToObject(object, "name", what);
    cJSON *args = cJSON_AddObjectToObject(object, "args");
    if (name != NULL) cJSON_AddStringToObject(args, "name", name);
    else cJSON_AddNumberToObject(args, "sort_index", track);
    put(p, object);
}

static void put_track_names(struct print *p, int rank, const int *n_lanes)
{
    static const char *const names[CLI_N_TRACKS] = { "training", "collectives", "messages", "sends", "receives" };
    char                     text[32];
    snprintf(text, sizeof text, "rank %d", rank);
    put_name(p, "process_name", rank, 0, text);
    for (int track = 0; track < CLI_N_TRACKS; track++) {
        for (int lane = 0; lane < n_lanes[track]; lane++) {
            snprintf(text, sizeof text, lane > 0 ? "%s (%d)" : "%s", names[track], lane + 1);
            put_name(p, "thread_name", rank, track_id((enum cli_track)track, lane), text);
            put_name(p, "thread_sort_index", rank, track_id((enum cli_track)track, lane), NULL);
        }
    }
}

/* ---- events -------------------------------------------------------------------------------------- */

static void add_span(cJSON *args, const gm_trace_event *e)
{
    if (e->number >= 0) cJSON_AddNumberToObject(args, strcmp(e->category, "step") == 0 ? "step" : "number", (double)e->number);
}

static void add_call(cJSON *args, const struct print *p, const struct cli_trace_item *item)
{
    const gm_trace_event *e = item->event;
    cJSON_AddNumberToObject(args, "seq", (double)e->seq);
    cJSON_AddStringToObject(args, "collective", gm_collective_name(e->collective));
    cJSON_AddStringToObject(args, "algo", e->category);
    if (e->dtype != GM_DTYPE_END) cJSON_AddStringToObject(args, "dtype", gm_dtype_name(e->dtype));
    cJSON_AddNumberToObject(args, "count", (double)e->count);
    cJSON_AddNumberToObject(args, "bytes", (double)e->bytes);
    cJSON_AddNumberToObject(args, "bytes_sent", (double)e->sent_bytes);
    cJSON_AddNumberToObject(args, "arrival_us", us(e->begin_ns - p->from_ns));
    cJSON_AddNumberToObject(args, "wait_us", us(item->wait_ns));
    cJSON_AddNumberToObject(args, "waits_for", item->waits_for);
    if (e->status != GM_OK) cJSON_AddStringToObject(args, "status", gm_status_name(e->status));
}

static void add_if_known(cJSON *args, const char *key, int64_t value)
{
    if (value >= 0) cJSON_AddNumberToObject(args, key, (double)value);
    else cJSON_AddNullToObject(args, key);
}

static void add_transfer(cJSON *args, const gm_trace_event *e)
{
    cJSON_AddNumberToObject(args, "seq", (double)e->seq);
    cJSON_AddStringToObject(args, "collective", gm_collective_name(e->collective));
    cJSON_AddStringToObject(args, "algo", e->category);
    cJSON_AddNumberToObject(args, "peer", e->peer);
    cJSON_AddNumberToObject(args, "step", e->step);
    cJSON_AddStringToObject(args, "phase", e->name);
    add_if_known(args, "chunk", e->chunk);
    add_if_known(args, "first_elem", e->first_elem);
    add_if_known(args, "n_elems", e->n_elems);
    cJSON_AddNumberToObject(args, "bytes", (double)e->bytes);
    cJSON_AddBoolToObject(args, "reduces", e->is_added);
}

static cJSON *begin_event(const struct print *p, const struct cli_trace_item *item, const char *phase, int64_t at_ns)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "ph", phase);
    cJSON_AddNumberToObject(object, "pid", item->rank);
    cJSON_AddNumberToObject(object, "tid", track_id(item->track, item->lane));
    cJSON_AddNumberToObject(object, "ts", us(at_ns - p->from_ns));
    return object;
}

static const char *category_of(const gm_trace_event *e)
{
    static const char *const names[] = { [GM_TRACE_CALL] = "op", [GM_TRACE_SEND] = "send", [GM_TRACE_RECEIVE] = "receive" };
    return e->kind == GM_TRACE_SPAN ? e->category : names[e->kind];
}

static void put_slice(struct print *p, const struct cli_trace_item *item)
{
    const gm_trace_event *e = item->event;
    char                  name[64];
    snprintf(name, sizeof name, "%.32s", e->name);
    if (e->kind == GM_TRACE_SEND) snprintf(name, sizeof name, "%.32s to %d", e->name, e->peer);
    if (e->kind == GM_TRACE_RECEIVE) snprintf(name, sizeof name, "%.32s from %d", e->name, e->peer);
    if (e->kind == GM_TRACE_SPAN && strcmp(e->category, "step") == 0)
        snprintf(name, sizeof name, "%.32s %lld", e->name, (long long)e->number);
    cJSON *object = begin_event(p, item, "X", e->begin_ns);
    cJSON_AddNumberToObject(object, "dur", us(e->end_ns - e->begin_ns));
    cJSON_AddStringToObject(object, "name", name);
    cJSON_AddStringToObject(object, "cat", category_of(e));
    cJSON *args = cJSON_AddObjectToObject(object, "args");
    if (e->kind != GM_TRACE_SPAN) cJSON_AddNumberToObject(args, "communicator", (double)p->communicator);
    if (e->kind == GM_TRACE_SPAN) add_span(args, e);
    else if (e->kind == GM_TRACE_CALL) add_call(args, p, item);
    else add_transfer(args, e);
    put(p, object);
}

/* An arrow from within a send to within its receive. */
static void put_arrow(struct print *p, const struct cli_trace_item *item)
{
    const gm_trace_event *e = item->event;
    bool                  is_send = e->kind == GM_TRACE_SEND;
    cJSON *object = begin_event(p, item, is_send ? "s" : "f", is_send || e->end_ns == e->begin_ns ? e->begin_ns : e->end_ns - 1);
    cJSON_AddStringToObject(object, "name", "transfer");
    cJSON_AddStringToObject(object, "cat", "transfer");
    cJSON_AddNumberToObject(object, "id", (double)item->flow);
    if (!is_send) cJSON_AddStringToObject(object, "bp", "e");
    put(p, object);
}

static void put_items(struct print *p, const struct cli_trace_items *items)
{
    for (size_t i = 0; i < items->n && !p->has_failed; i++) {
        put_slice(p, &items->items[i]);
        if (items->items[i].flow > 0) put_arrow(p, &items->items[i]);
    }
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static cJSON *other_data(const struct cli_trace *traces, size_t n_traces, const struct cli_trace_about *about)
{
    cJSON   *object = cJSON_CreateObject();
    uint64_t n_dropped = 0;
    cJSON_AddStringToObject(object, "version", gm_version());
    cJSON_AddStringToObject(object, "command", about->command);
    cJSON_AddNumberToObject(object, "world_size", about->world_size);
    cJSON_AddNumberToObject(object, "first_rank", n_traces > 0 ? traces[0].first_rank : 0);
    cJSON *errors = cJSON_AddArrayToObject(object, "clock_error_us");
    for (int r = 0; n_traces > 0 && r < traces[0].n_ranks; r++) {
        int64_t error_ns = traces[0].ranks[r].clock_error_ns;
        cJSON_AddItemToArray(errors, error_ns >= 0 ? cJSON_CreateNumber(us(error_ns)) : cJSON_CreateNull());
    }
    for (size_t t = 0; t < n_traces; t++)
        for (int r = 0; r < traces[t].n_ranks; r++) n_dropped += traces[t].ranks[r].n_dropped;
    cJSON_AddNumberToObject(object, "dropped_events", (double)n_dropped);
    cJSON_AddStringToObject(object, "collective", about->collective);
    cJSON_AddNumberToObject(object, "count", (double)about->count);
    cJSON_AddStringToObject(object, "dtype", about->dtype);
    return object;
}

static int64_t earliest_ns(const struct cli_trace *traces, size_t n_traces)
{
    int64_t first_ns = INT64_MAX;
    for (size_t t = 0; t < n_traces; t++) {
        for (int r = 0; r < traces[t].n_ranks; r++) {
            const struct cli_trace_rank *rank = &traces[t].ranks[r];
            if (rank->n_events > 0 && rank->events[0].begin_ns < first_ns) first_ns = rank->events[0].begin_ns;
        }
    }
    return first_ns;
}

/* How many tracks of each kind a rank has, in all traces. */
static void count_lanes(const struct cli_trace_items *all, size_t n_traces, int rank, int *n_lanes)
{
    for (int track = 0; track < CLI_N_TRACKS; track++) n_lanes[track] = 0;
    for (size_t t = 0; t < n_traces; t++) {
        for (size_t i = 0; i < all[t].n; i++) {
            const struct cli_trace_item *item = &all[t].items[i];
            if (item->rank == rank && item->lane + 1 > n_lanes[item->track]) n_lanes[item->track] = item->lane + 1;
        }
    }
}

static void put_events(struct print *p, struct cli_trace *traces, struct cli_trace_items *all, size_t n_traces)
{
    int64_t n_flows = 0;
    for (size_t t = 0; t < n_traces; t++) {
        if (cli_trace_items_make(&all[t], &traces[t], &n_flows) == GM_OK) continue;
        errno = ENOMEM;
        p->has_failed = true;
        return;
    }
    for (int r = 0; n_traces > 0 && r < traces[0].n_ranks; r++) {
        int n_lanes[CLI_N_TRACKS];
        count_lanes(all, n_traces, traces[0].first_rank + r, n_lanes);
        put_track_names(p, traces[0].first_rank + r, n_lanes);
    }
    for (p->communicator = 0; p->communicator < n_traces; p->communicator++) put_items(p, &all[p->communicator]);
}

bool cli_trace_print(FILE *file, struct cli_trace *traces, size_t n_traces, const struct cli_trace_about *about)
{
    struct print            p = { .file = file, .from_ns = earliest_ns(traces, n_traces) };
    struct cli_trace_items *all = calloc(n_traces + 1, sizeof *all);
    cJSON                  *other = other_data(traces, n_traces, about);
    char                   *text = cJSON_PrintUnformatted(other);
    bool                    is_begun = all != NULL && text != NULL && fprintf(file, "{\"traceEvents\":[") >= 0;
    if (is_begun) put_events(&p, traces, all, n_traces);
    bool is_good = is_begun && !p.has_failed &&
                   fprintf(file, "],\n\"displayTimeUnit\":\"ns\",\n\"otherData\":%s}\n", text) >= 0;
    for (size_t t = 0; all != NULL && t < n_traces; t++) cli_trace_items_free(&all[t]);
    free(all);
    cJSON_free(text);
    cJSON_Delete(other);
    return is_good;
}

static gm_status cannot_write(const char *path, gm_error *error)
{
    return gmi_error_set_errno(error, errno, "cannot write the trace %s", path);
}

gm_status cli_trace_write(const char *path, struct cli_trace *traces, size_t n_traces, const struct cli_trace_about *about,
                          gm_error *error)
{
    struct cli_whole_file whole;
    if (!cli_whole_open(&whole, path)) return cannot_write(path, error);
    bool is_good = cli_trace_print(whole.file, traces, n_traces, about);
    return cli_whole_close(&whole, is_good) ? GM_OK : cannot_write(path, error);
}

gm_status cli_trace_check_path(const char *path, gm_error *error)
{
    struct cli_whole_file whole;
    if (access(path, F_OK) == 0) return access(path, W_OK) == 0 ? GM_OK : cannot_write(path, error);
    if (!cli_whole_open(&whole, path)) return cannot_write(path, error);
    (void)cli_whole_close(&whole, false);
    return GM_OK;
}
