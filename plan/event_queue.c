#include "plan/event_queue.h"

#include <string.h>

#include "base/alloc.h"

enum { CHILDREN = 4, FIRST_CAPACITY = 1024 };

static bool is_before(const struct plan_event *a, const struct plan_event *b)
{
    if (a->at_ps != b->at_ps) return a->at_ps < b->at_ps;
    return (int32_t)(a->order - b->order) < 0; /* also where the counter has begun anew */
}

static bool grow(struct plan_event_queue *q)
{
    size_t             capacity = q->capacity == 0 ? FIRST_CAPACITY : 2 * q->capacity;
    struct plan_event *heap = gmi_alloc(capacity, sizeof *heap);
    if (heap == NULL) return false;
    if (q->n_events > 0) memcpy(heap, q->heap, q->n_events * sizeof *heap);
    gmi_free(q->heap);
    q->heap = heap;
    q->capacity = capacity;
    return true;
}

bool plan_event_add(struct plan_event_queue *q, int64_t at_ps, enum plan_event_kind kind, uint32_t target)
{
    if (q->n_events == q->capacity && !grow(q)) return false;
    struct plan_event event = { .at_ps = at_ps, .order = q->next_order++, .kind = kind, .target = target & (PLAN_MAX_TARGETS - 1) };
    size_t            at = q->n_events++;
    while (at > 0 && is_before(&event, &q->heap[(at - 1) / CHILDREN])) {
        q->heap[at] = q->heap[(at - 1) / CHILDREN];
        at = (at - 1) / CHILDREN;
    }
    q->heap[at] = event;
    q->n_added++;
    return true;
}

static size_t earliest_child(const struct plan_event_queue *q, size_t parent)
{
    size_t first = CHILDREN * parent + 1, end = first + CHILDREN, best = first;
    if (end > q->n_events) end = q->n_events;
    for (size_t child = first + 1; child < end; child++) {
        if (is_before(&q->heap[child], &q->heap[best])) best = child;
    }
    return best;
}

bool plan_event_take(struct plan_event_queue *q, struct plan_event *event)
{
    if (q->n_events == 0) return false;
    *event = q->heap[0];
    struct plan_event last = q->heap[--q->n_events];
    size_t            at = 0;
    while (CHILDREN * at + 1 < q->n_events) {
        size_t child = earliest_child(q, at);
        if (!is_before(&q->heap[child], &last)) break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    q->heap[at] = last;
    return true;
}

void plan_event_queue_fini(struct plan_event_queue *q)
{
    gmi_free(q->heap);
    *q = (struct plan_event_queue){ 0 };
}
