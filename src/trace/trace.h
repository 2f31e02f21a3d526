/* trace.h - the newest events of a communicator, in memory that is taken once.
 *
 *     | event 7 | event 8 | event 5 | event 6 |      4 places, 9 events so far: 5 are lost, the oldest first
 *
 * Written by the caller's thread and the service thread, read by whoever asks; a lock keeps an event whole. It is
 * held for the copy of one event, so nobody waits for long. Who may have no trace asks gmi_trace_of first: NULL
 * costs a branch and no more. */
#ifndef GMI_TRACE_H
#define GMI_TRACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "gradmesh.h"

struct gmi_trace {
    pthread_mutex_t lock;
    atomic_bool     is_recording;
    size_t          n_places;
    uint64_t        n_ever; /* since the last clear */
    gm_trace_event *places; /* event i stands in place i mod n_places */
};

/* Recording from the start. NULL: no memory. */
struct gmi_trace *gmi_trace_create(size_t n_places);
void              gmi_trace_destroy(struct gmi_trace *trace); /* NULL is fine */

/* The trace if something is to be recorded now, else NULL. */
static inline struct gmi_trace *gmi_trace_of(struct gmi_trace *trace)
{
    if (trace == NULL || !atomic_load_explicit(&trace->is_recording, memory_order_relaxed)) return NULL;
    return trace;
}

void gmi_trace_add(struct gmi_trace *trace, const gm_trace_event *event);

/* How many are there now. */
size_t gmi_trace_n_events(struct gmi_trace *trace);

/* Copies the newest n_most of them, the oldest first; how many, and how many are not there any more or did not fit. */
size_t gmi_trace_read(struct gmi_trace *trace, gm_trace_event *events, size_t n_most, uint64_t *n_dropped);
void   gmi_trace_clear(struct gmi_trace *trace);

#endif
