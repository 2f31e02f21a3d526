#include "cli/trace_items.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static bool is_transfer(const gm_trace_event *e) { return e->kind == GM_TRACE_SEND || e->kind == GM_TRACE_RECEIVE; }
static bool is_message(const gm_trace_event *e) { return e->kind != GM_TRACE_SPAN && e->seq == 0; }

/* ---- sends and receives -------------------------------------------------------------------------- */

static int sender(const struct cli_trace_item *i) { return i->event->kind == GM_TRACE_SEND ? i->rank : i->event->peer; }
static int receiver(const struct cli_trace_item *i) { return i->event->kind == GM_TRACE_SEND ? i->event->peer : i->rank; }

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* The same transfer, or which comes first. */
static int by_transfer(const struct cli_trace_item *a, const struct cli_trace_item *b)
{
    int order = compare((int64_t)a->event->seq, (int64_t)b->event->seq);
    if (order == 0) order = compare(sender(a), sender(b));
    if (order == 0) order = compare(receiver(a), receiver(b));
    return order != 0 ? order : compare(a->event->number, b->event->number);
}

static int by_transfer_then_kind(const void *a, const void *b)
{
    const struct cli_trace_item *x = *(struct cli_trace_item *const *)a, *y = *(struct cli_trace_item *const *)b;
    int                          order = by_transfer(x, y);
    return order != 0 ? order : (int)x->event->kind - (int)y->event->kind;
}

/* The sender does not know what becomes of it; which elements they are sometimes only one of the two knows. */
static void tell_each_other(gm_trace_event *send, gm_trace_event *receive)
{
    gm_trace_event *knows = send->first_elem >= 0 ? send : receive, *learns = knows == send ? receive : send;
    if (learns->first_elem < 0) {
        learns->first_elem = knows->first_elem;
        learns->n_elems = knows->n_elems;
        learns->chunk = knows->chunk;
    }
    send->is_added = receive->is_added;
    send->name = receive->name;
}

static void pair_up(struct cli_trace_item **transfers, size_t n, int64_t *n_flows)
{
    qsort(transfers, n, sizeof *transfers, by_transfer_then_kind);
    for (size_t i = 0; i + 1 < n; i++) {
        struct cli_trace_item *send = transfers[i], *receive = transfers[i + 1];
        if (send->event->kind != GM_TRACE_SEND || receive->event->kind != GM_TRACE_RECEIVE) continue;
        if (by_transfer(send, receive) != 0 || send->event->bytes != receive->event->bytes) continue;
        tell_each_other(send->event, receive->event);
        send->flow = receive->flow = ++*n_flows;
    }
}

/* ---- who was waited for -------------------------------------------------------------------------- */

static int by_call(const void *a, const void *b)
{
    const struct cli_trace_item *x = *(struct cli_trace_item *const *)a, *y = *(struct cli_trace_item *const *)b;
    int                          order = compare((int64_t)x->event->seq, (int64_t)y->event->seq);
    return order != 0 ? order : compare(x->event->begin_ns, y->event->begin_ns);
}

/* Calls of one number stand side by side, the last to arrive behind the others. */
static void find_waits(struct cli_trace_item **calls, size_t n)
{
    qsort(calls, n, sizeof *calls, by_call);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && calls[end]->event->seq == calls[first]->event->seq;) end++;
        const struct cli_trace_item *last = calls[end - 1];
        for (size_t i = first; i < end; i++) {
            const gm_trace_event *e = calls[i]->event;
            int64_t until_ns = last->event->begin_ns < e->end_ns ? last->event->begin_ns : e->end_ns;
            calls[i]->waits_for = last->rank;
            calls[i]->wait_ns = until_ns > e->begin_ns ? until_ns - e->begin_ns : 0;
        }
    }
}

/* ---- tracks -------------------------------------------------------------------------------------- */

static enum cli_track track_of(const gm_trace_event *e)
{
    switch (e->kind) {
    case GM_TRACE_SEND: return CLI_TRACK_SENDS;
    case GM_TRACE_RECEIVE: return CLI_TRACK_RECEIVES;
    case GM_TRACE_CALL: return is_message(e) ? CLI_TRACK_MESSAGES : CLI_TRACK_CALLS;
    default: return CLI_TRACK_TRAINING;
    }
}

/* The spans that are open on a track, each within the one before. */
enum { MAX_DEPTH = 32 };

struct lane {
    int     depth;
    int64_t ends_ns[MAX_DEPTH];
};

/* Viewers want spans of a track to nest. Those of the caller's may lie in one another, all others stand alone. */
static bool fits(struct lane *lane, const gm_trace_event *e)
{
    while (lane->depth > 0 && lane->ends_ns[lane->depth - 1] <= e->begin_ns) lane->depth--;
    if (lane->depth == 0) return true;
    return e->kind == GM_TRACE_SPAN && lane->depth < MAX_DEPTH && e->end_ns <= lane->ends_ns[lane->depth - 1];
}

static void choose_lanes(struct cli_trace_item *items, size_t n, struct lane (*lanes)[CLI_MAX_LANES])
{
    memset(lanes, 0, CLI_N_TRACKS * sizeof *lanes);
    for (size_t i = 0; i < n; i++) {
        struct lane *of_kind = lanes[items[i].track];
        int          k = 0;
        while (k + 1 < CLI_MAX_LANES && !fits(&of_kind[k], items[i].event)) k++;
        items[i].lane = k;
        if (of_kind[k].depth < MAX_DEPTH) of_kind[k].ends_ns[of_kind[k].depth++] = items[i].event->end_ns;
    }
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static void fill(struct cli_trace_items *items, struct cli_trace *trace, struct lane (*lanes)[CLI_MAX_LANES])
{
    for (int r = 0; r < trace->n_ranks; r++) {
        size_t first = items->n;
        for (size_t i = 0; i < trace->ranks[r].n_events; i++) {
            gm_trace_event *e = &trace->ranks[r].events[i];
            items->items[items->n++] = (struct cli_trace_item){ .event = e, .rank = trace->first_rank + r,
                                                                .waits_for = trace->first_rank + r, .track = track_of(e) };
        }
        choose_lanes(items->items + first, items->n - first, lanes);
    }
}

gm_status cli_trace_items_make(struct cli_trace_items *items, struct cli_trace *trace, int64_t *n_flows)
{
    size_t n = 0, n_transfers = 0, n_calls = 0;
    for (int r = 0; r < trace->n_ranks; r++) n += trace->ranks[r].n_events;
    *items = (struct cli_trace_items){ .items = gmi_alloc(n, sizeof *items->items) };
    struct cli_trace_item **some = gmi_alloc(n, sizeof *some);
    struct lane (*lanes)[CLI_MAX_LANES] = gmi_alloc(CLI_N_TRACKS, sizeof *lanes);
    bool has_memory = items->items != NULL && some != NULL && lanes != NULL;
    if (has_memory) {
        fill(items, trace, lanes);
        for (size_t i = 0; i < n; i++)
            if (is_transfer(items->items[i].event)) some[n_transfers++] = &items->items[i];
        pair_up(some, n_transfers, n_flows);
        for (size_t i = 0; i < n; i++)
            if (items->items[i].track == CLI_TRACK_CALLS) some[n_calls++] = &items->items[i];
        find_waits(some, n_calls);
    }
    gmi_free(some);
    gmi_free(lanes);
    if (has_memory) return GM_OK;
    cli_trace_items_free(items);
    return GM_ERR_NOMEM;
}

void cli_trace_items_free(struct cli_trace_items *items)
{
    gmi_free(items->items);
    *items = (struct cli_trace_items){ 0 };
}
