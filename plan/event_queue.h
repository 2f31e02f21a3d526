/* event_queue.h - what will happen in simulated time, earliest first; of what happens at the same time, what was
 * added first. So the same simulation always goes the same way.
 *
 * A heap in which each entry has four children: half as deep as a binary one, and the children of one entry lie in one
 * cache line. */
#ifndef PLAN_EVENT_QUEUE_H
#define PLAN_EVENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plan_event_kind {
    PLAN_RANK_RUNS,    /* it may go on */
    PLAN_CORE_IS_FREE, /* of a host */
    PLAN_BYTES_LEAVE,  /* an end's, into its card */
    PLAN_CARD_IS_FREE, /* of a host, to send */
    PLAN_BYTES_ARRIVE, /* at an end */
    PLAN_ROOM_IS_MADE, /* for an end to send into */
};

struct plan_event {
    int64_t  at_ps;
    uint32_t order;
    uint32_t kind : 3, target : 29;
};

enum { PLAN_MAX_TARGETS = 1 << 29 };

/* A zeroed one is empty. */
struct plan_event_queue {
    struct plan_event *heap;
    size_t             n_events, capacity;
    uint32_t           next_order;
    uint64_t           n_added;
};

/* False: no memory. */
bool plan_event_add(struct plan_event_queue *q, int64_t at_ps, enum plan_event_kind kind, uint32_t target);
bool plan_event_take(struct plan_event_queue *q, struct plan_event *event); /* false: there is none */
void plan_event_queue_fini(struct plan_event_queue *q);

#endif
