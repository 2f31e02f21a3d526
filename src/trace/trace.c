#include "trace/trace.h"

#include "base/alloc.h"

struct gmi_trace *gmi_trace_create(size_t n_places)
{
    struct gmi_trace *trace = gmi_alloc(1, sizeof *trace);
    gm_trace_event   *places = gmi_alloc(n_places, sizeof *places);
    if (trace == NULL || places == NULL || n_places == 0) {
        gmi_free(trace);
        gmi_free(places);
        return NULL;
    }
    pthread_mutex_init(&trace->lock, NULL);
    trace->n_places = n_places;
    trace->places = places;
    atomic_store(&trace->is_recording, true);
    return trace;
}

void gmi_trace_destroy(struct gmi_trace *trace)
{
    if (trace == NULL) return;
    pthread_mutex_destroy(&trace->lock);
    gmi_free(trace->places);
    gmi_free(trace);
}

void gmi_trace_add(struct gmi_trace *trace, const gm_trace_event *event)
{
    pthread_mutex_lock(&trace->lock);
    trace->places[trace->n_ever++ % trace->n_places] = *event;
    pthread_mutex_unlock(&trace->lock);
}

static size_t n_kept(const struct gmi_trace *trace)
{
    return trace->n_ever < trace->n_places ? (size_t)trace->n_ever : trace->n_places;
}

size_t gmi_trace_n_events(struct gmi_trace *trace)
{
    pthread_mutex_lock(&trace->lock);
    size_t n = n_kept(trace);
    pthread_mutex_unlock(&trace->lock);
    return n;
}

size_t gmi_trace_read(struct gmi_trace *trace, gm_trace_event *events, size_t n_most, uint64_t *n_dropped)
{
    pthread_mutex_lock(&trace->lock);
    size_t   n = n_kept(trace) < n_most ? n_kept(trace) : n_most;
    uint64_t first = trace->n_ever - n;
    for (size_t i = 0; i < n; i++) events[i] = trace->places[(first + i) % trace->n_places];
    pthread_mutex_unlock(&trace->lock);
    *n_dropped = first;
    return n;
}

void gmi_trace_clear(struct gmi_trace *trace)
{
    pthread_mutex_lock(&trace->lock);
    trace->n_ever = 0;
    pthread_mutex_unlock(&trace->lock);
}
