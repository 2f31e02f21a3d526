#include "cli/trace_collect.h"

#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* ---- one rank's events as numbers ------------------------------------------------------------------
 *
 *     | clock error | dropped | events | names | event 0: 21 numbers | event 1 | ... | name 0: 4 numbers | ...
 */
enum { HEAD_WORDS = 4, EVENT_WORDS = 21, NAME_WORDS = CLI_TRACE_NAME_BYTES / 8, MAX_NAMES = 256 };

/* The names that occur, each once. */
struct names {
    size_t      n;
    const char *at[MAX_NAMES];
};

static int64_t index_of(struct names *names, const char *name)
{
    if (name == NULL) return -1;
    for (size_t i = 0; i < names->n; i++) {
        if (names->at[i] == name || strcmp(names->at[i], name) == 0) return (int64_t)i;
    }
    if (names->n == MAX_NAMES) return -1;
    names->at[names->n++] = name;
    return (int64_t)names->n - 1;
}

static void pack_event(int64_t *w, const gm_trace_event *e, int64_t offset_ns, struct names *names)
{
    const int64_t words[EVENT_WORDS] = {
        (int64_t)e->kind, e->begin_ns - offset_ns, e->end_ns - offset_ns, index_of(names, e->name),
        index_of(names, e->category), e->number, (int64_t)e->seq, (int64_t)e->collective, (int64_t)e->bytes,
        (int64_t)e->status, (int64_t)e->dtype, (int64_t)e->count, (int64_t)e->sent_bytes, e->last_rank, e->last_ns,
        e->peer, e->step, e->is_added, e->chunk, e->first_elem, e->n_elems,
    };
    memcpy(w, words, sizeof words);
}

static void unpack_event(gm_trace_event *e, const int64_t *w, char (*names)[CLI_TRACE_NAME_BYTES])
{
    *e = (gm_trace_event){ .kind = (gm_trace_kind)w[0], .begin_ns = w[1], .end_ns = w[2],
                           .name = w[3] >= 0 ? names[w[3]] : "?", .category = w[4] >= 0 ? names[w[4]] : "?",
                           .number = w[5], .seq = (uint64_t)w[6], .collective = (gm_collective)w[7],
                           .bytes = (uint64_t)w[8], .status = (gm_status)w[9], .dtype = (gm_dtype)w[10],
                           .count = (uint64_t)w[11], .sent_bytes = (uint64_t)w[12], .last_rank = (int)w[13],
                           .last_ns = w[14], .peer = (int)w[15], .step = (int)w[16], .is_added = (int)w[17],
                           .chunk = (int)w[18], .first_elem = w[19], .n_elems = w[20] };
}

/* ---- which of them ------------------------------------------------------------------------------- */

/* A rank's events in the order in which they ended, and what of them is wanted. */
struct haul {
    gm_trace_event *events;
    size_t          n_events;
    uint64_t        n_dropped;
};

static bool is_step(const gm_trace_event *e)
{
    return e->kind == GM_TRACE_SPAN && e->category != NULL && strcmp(e->category, "step") == 0;
}

/* All that happened in it is there still: what is gone had ended before the oldest event that is left. */
static bool is_whole(const struct haul *haul, const gm_trace_event *step)
{
    return haul->n_dropped == 0 || haul->events[0].end_ns <= step->begin_ns;
}

/* The number of the first of the last n_steps steps that are whole; 0: there is none, or none is asked for. */
static int64_t first_step(const struct haul *haul, int64_t n_steps)
{
    int64_t first = 0;
    for (size_t i = haul->n_events; n_steps > 0 && i > 0; i--) {
        const gm_trace_event *e = &haul->events[i - 1];
        if (!is_step(e)) continue;
        if (!is_whole(haul, e)) break;
        first = e->number;
        n_steps--;
    }
    return first;
}

/* Forgets what began before that step (0: nothing), and what was dropped with it. */
static void keep_from(struct haul *haul, int64_t step)
{
    int64_t from_ns = INT64_MIN;
    size_t  n = 0;
    for (size_t i = 0; step > 0 && i < haul->n_events; i++) {
        if (is_step(&haul->events[i]) && haul->events[i].number == step) from_ns = haul->events[i].begin_ns;
    }
    if (from_ns == INT64_MIN) return;
    for (size_t i = 0; i < haul->n_events; i++) {
        if (haul->events[i].begin_ns >= from_ns) haul->events[n++] = haul->events[i];
    }
    haul->n_events = n;
    haul->n_dropped = 0;
}

static gm_status no_memory(gm_error *error) { return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the trace"); }

static gm_status take_haul(struct haul *haul, gm_comm *comm, gm_error *error)
{
    size_t    n = 0;
    gm_status status = gm_trace_read(comm, NULL, 0, &n, NULL);
    *haul = (struct haul){ .events = status == GM_OK ? gmi_alloc(n, sizeof *haul->events) : NULL };
    if (status == GM_OK && haul->events == NULL) return no_memory(error);
    if (status == GM_OK) status = gm_trace_read(comm, haul->events, n, &haul->n_events, &haul->n_dropped);
    return status == GM_OK ? GM_OK : gmi_error_set(error, status, "there is no trace to collect");
}

/* ---- packing ------------------------------------------------------------------------------------- */

struct parcel {
    int64_t *words;
    size_t   n_words;
};

static gm_status pack(struct parcel *parcel, const struct haul *haul, int64_t offset_ns, int64_t error_ns, gm_error *error)
{
    struct names names = { 0 };
    parcel->words = gmi_alloc(HEAD_WORDS + haul->n_events * EVENT_WORDS + MAX_NAMES * NAME_WORDS, sizeof *parcel->words);
    if (parcel->words == NULL) return no_memory(error);
    int64_t *at = parcel->words + HEAD_WORDS;
    for (size_t i = 0; i < haul->n_events; i++, at += EVENT_WORDS) pack_event(at, &haul->events[i], offset_ns, &names);
    for (size_t i = 0; i < names.n; i++, at += NAME_WORDS) snprintf((char *)at, CLI_TRACE_NAME_BYTES, "%s", names.at[i]);
    const int64_t head[HEAD_WORDS] = { error_ns, (int64_t)haul->n_dropped, (int64_t)haul->n_events, (int64_t)names.n };
    memcpy(parcel->words, head, sizeof head);
    parcel->n_words = (size_t)(at - parcel->words);
    return GM_OK;
}

static int by_begin(const void *a, const void *b)
{
    const gm_trace_event *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns); /* what contains the other one first */
}

static gm_status unpack(struct cli_trace_rank *rank, const int64_t *words)
{
    size_t n_names = (size_t)words[3];
    rank->clock_error_ns = words[0];
    rank->n_dropped = (uint64_t)words[1];
    rank->n_events = (size_t)words[2];
    rank->events = gmi_alloc(rank->n_events, sizeof *rank->events);
    rank->names = gmi_alloc(n_names, sizeof *rank->names);
    if (rank->events == NULL || rank->names == NULL) return GM_ERR_NOMEM;
    const int64_t *at = words + HEAD_WORDS;
    memcpy(rank->names, at + rank->n_events * EVENT_WORDS, n_names * sizeof *rank->names);
    for (size_t i = 0; i < rank->n_events; i++, at += EVENT_WORDS) unpack_event(&rank->events[i], at, rank->names);
    qsort(rank->events, rank->n_events, sizeof *rank->events, by_begin);
    return GM_OK;
}

static gm_status make_ranks(struct cli_trace *trace, int first_rank, int n_ranks)
{
    *trace = (struct cli_trace){ .first_rank = first_rank };
    trace->ranks = gmi_alloc((size_t)n_ranks, sizeof *trace->ranks);
    if (trace->ranks == NULL) return GM_ERR_NOMEM;
    trace->n_ranks = n_ranks;
    return GM_OK;
}

/* ---- all of them --------------------------------------------------------------------------------- */

static gm_status library_failed(gm_comm *comm, gm_status status, gm_error *error)
{
    if (error != NULL && error->status == GM_OK) *error = *gm_comm_error(comm);
    return status;
}

/* Rank 0 has everybody's words one behind the other. */
static gm_status gather(gm_comm *comm, const struct parcel *own, struct cli_trace *trace, gm_error *error)
{
    int      n_ranks = gm_comm_size(comm), rank = gm_comm_rank(comm);
    size_t  *counts = gmi_alloc((size_t)n_ranks, sizeof *counts), n_all = 0, at = 0;
    int64_t *sizes = gmi_alloc((size_t)n_ranks, sizeof *sizes), *all = NULL;
    gm_status status = counts != NULL && sizes != NULL ? GM_OK : no_memory(error);
    if (status == GM_OK) {
        sizes[rank] = (int64_t)own->n_words;
        status = gm_all_gather(comm, sizes, sizes, (size_t)n_ranks, GM_I64);
        if (status != GM_OK) library_failed(comm, status, error);
    }
    for (int r = 0; status == GM_OK && r < n_ranks; r++) n_all += counts[r] = (size_t)sizes[r];
    if (status == GM_OK && rank == 0 && (all = gmi_alloc(n_all, sizeof *all)) == NULL) status = no_memory(error);
    if (status == GM_OK) {
        status = gm_gatherv(comm, own->words, all, counts, GM_I64, 0);
        if (status != GM_OK) library_failed(comm, status, error);
    }
    if (status == GM_OK && rank == 0 && make_ranks(trace, 0, n_ranks) != GM_OK) status = no_memory(error);
    for (int r = 0; status == GM_OK && rank == 0 && r < n_ranks; r++) {
        if (unpack(&trace->ranks[r], all + at) != GM_OK) status = no_memory(error);
        at += counts[r];
    }
    gmi_free(counts);
    gmi_free(sizes);
    gmi_free(all);
    return status;
}

/* The first step that all ranks have whole. */
static gm_status agree_on_step(gm_comm *comm, int64_t *step, gm_error *error)
{
    gm_status status = gm_all_reduce(comm, step, step, 1, GM_I64, GM_MAX);
    return status == GM_OK ? GM_OK : library_failed(comm, status, error);
}

gm_status cli_trace_collect(gm_comm *comm, int64_t n_steps, struct cli_trace *trace, gm_error *error)
{
    struct haul   haul = { 0 };
    struct parcel own = { NULL, 0 };
    int64_t       offset_ns, error_ns;
    *trace = (struct cli_trace){ 0 };
    (void)gm_trace_record(comm, 0);
    gm_status status = gm_comm_clock(comm, &offset_ns, &error_ns);
    if (status != GM_OK) return library_failed(comm, status, error);
    status = take_haul(&haul, comm, error);
    int64_t step = status == GM_OK ? first_step(&haul, n_steps) : 0;
    if (status == GM_OK) status = agree_on_step(comm, &step, error);
    if (status == GM_OK) keep_from(&haul, step);
    if (status == GM_OK) status = pack(&own, &haul, offset_ns, error_ns, error);
    if (status == GM_OK) status = gather(comm, &own, trace, error);
    if (status != GM_OK) gm_comm_abort(comm, error != NULL ? error->text : "a rank could not collect its trace");
    gmi_free(haul.events);
    gmi_free(own.words);
    if (status != GM_OK) cli_trace_free(trace);
    return status;
}

gm_status cli_trace_take_own(gm_comm *comm, int64_t n_steps, struct cli_trace *trace, gm_error *error)
{
    struct haul   haul = { 0 };
    struct parcel own = { NULL, 0 };
    gm_status     status = take_haul(&haul, comm, error);
    *trace = (struct cli_trace){ 0 };
    if (status == GM_OK) keep_from(&haul, first_step(&haul, n_steps));
    if (status == GM_OK) status = pack(&own, &haul, 0, -1, error);
    if (status == GM_OK && (make_ranks(trace, gm_comm_rank(comm), 1) != GM_OK || unpack(&trace->ranks[0], own.words) != GM_OK))
        status = no_memory(error);
    gmi_free(haul.events);
    gmi_free(own.words);
    if (status != GM_OK) cli_trace_free(trace);
    return status;
}

void cli_trace_free(struct cli_trace *trace)
{
    for (int r = 0; r < trace->n_ranks; r++) {
        gmi_free(trace->ranks[r].events);
        gmi_free(trace->ranks[r].names);
    }
    gmi_free(trace->ranks);
    *trace = (struct cli_trace){ 0 };
}
