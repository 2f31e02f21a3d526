/* recorder.c - the trace as the caller sees it, and how the ranks' clocks differ. */
#include "base/clock.h"
#include "comm/comm.h"
#include "trace/trace.h"

int64_t gm_trace_begin(gm_comm *comm)
{
    return comm == NULL || gmi_trace_of(comm->trace) == NULL ? 0 : gmi_now_ns();
}

void gm_trace_end(gm_comm *comm, int64_t begin_ns, const char *category, const char *name, int64_t number)
{
    if (begin_ns == 0 || comm == NULL || gmi_trace_of(comm->trace) == NULL) return;
    gm_trace_event event = { .kind = GM_TRACE_SPAN, .begin_ns = begin_ns, .end_ns = gmi_now_ns(), .name = name,
                             .category = category, .number = number };
    gmi_trace_add(comm->trace, &event);
}

gm_status gm_trace_record(gm_comm *comm, int is_on)
{
    if (comm == NULL) return GM_ERR_ARG;
    if (comm->trace == NULL) return GM_ERR_STATE;
    atomic_store(&comm->trace->is_recording, is_on != 0);
    return GM_OK;
}

gm_status gm_trace_read(gm_comm *comm, gm_trace_event *events, size_t n_most, size_t *n_events, uint64_t *n_dropped)
{
    uint64_t dropped = 0;
    if (comm == NULL || n_events == NULL) return GM_ERR_ARG;
    if (comm->trace == NULL) return GM_ERR_STATE;
    *n_events = events == NULL ? gmi_trace_n_events(comm->trace) : gmi_trace_read(comm->trace, events, n_most, &dropped);
    if (n_dropped != NULL) *n_dropped = dropped;
    return GM_OK;
}

gm_status gm_trace_clear(gm_comm *comm)
{
    if (comm == NULL) return GM_ERR_ARG;
    if (comm->trace == NULL) return GM_ERR_STATE;
    gmi_trace_clear(comm->trace);
    return GM_OK;
}

/* ---- clocks -------------------------------------------------------------------------------------- *
 *
 *     rank 0     ask_ns -------.          .-------> answer_ns       some time between the two the other rank's
 *     rank r                    '-> now -'                          clock showed `now`: in the middle, we say
 */
enum { CLOCK_TRIES = 16, CLOCK_TAG = 0 };

struct reading {
    int64_t offset_ns, error_ns;
};

/* On rank 0. */
static gm_status ask_for_time(gm_comm *comm, int peer, struct reading *best)
{
    *best = (struct reading){ 0, INT64_MAX };
    for (int i = 0; i < CLOCK_TRIES; i++) {
        int64_t   theirs_ns = 0, ask_ns = gmi_now_ns();
        gm_status status = gm_send(comm, &ask_ns, 1, GM_I64, peer, CLOCK_TAG);
        if (status == GM_OK) status = gm_recv(comm, &theirs_ns, 1, GM_I64, peer, CLOCK_TAG);
        if (status != GM_OK) return status;
        int64_t answer_ns = gmi_now_ns(), error_ns = (answer_ns - ask_ns + 1) / 2;
        if (error_ns < best->error_ns) *best = (struct reading){ theirs_ns - (ask_ns + (answer_ns - ask_ns) / 2), error_ns };
    }
    return GM_OK;
}

static gm_status tell_time(gm_comm *comm)
{
    gm_status status = GM_OK;
    for (int i = 0; i < CLOCK_TRIES && status == GM_OK; i++) {
        int64_t asked;
        status = gm_recv(comm, &asked, 1, GM_I64, 0, CLOCK_TAG);
        int64_t now_ns = gmi_now_ns();
        if (status == GM_OK) status = gm_send(comm, &now_ns, 1, GM_I64, 0, CLOCK_TAG);
    }
    return status;
}

static gm_status read_clocks(gm_comm *comm, struct reading *own)
{
    gm_status status = GM_OK;
    int64_t   told[2];
    if (comm->rank != 0) {
        status = tell_time(comm);
        if (status == GM_OK) status = gm_recv(comm, told, 2, GM_I64, 0, CLOCK_TAG);
        if (status == GM_OK) *own = (struct reading){ told[0], told[1] };
        return status;
    }
    for (int peer = 1; peer < comm->n_ranks && status == GM_OK; peer++) {
        struct reading theirs;
        status = ask_for_time(comm, peer, &theirs);
        told[0] = theirs.offset_ns;
        told[1] = theirs.error_ns;
        if (status == GM_OK) status = gm_send(comm, told, 2, GM_I64, peer, CLOCK_TAG);
    }
    return status;
}

gm_status gm_comm_clock(gm_comm *comm, int64_t *offset_ns, int64_t *error_ns)
{
    struct reading own = { 0, 0 };
    if (comm == NULL || offset_ns == NULL || error_ns == NULL) return GM_ERR_ARG;
    bool was_recording = gmi_trace_of(comm->trace) != NULL;
    if (was_recording) (void)gm_trace_record(comm, 0);
    gm_status status = read_clocks(comm, &own);
    if (was_recording) (void)gm_trace_record(comm, 1);
    *offset_ns = own.offset_ns;
    *error_ns = own.error_ns;
    return status;
}
