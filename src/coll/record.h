/* record.h - what a port tells a trace: one event for each transfer, from its first byte to its last.
 *
 *     gmi_port_send_some / recv_some / consume            bytes move: the first open the transfer, the last close it
 *            | if op->trace is there
 *     gmi_record_moved  ->  struct gmi_flow, in the port  ->  gmi_trace_add
 *
 * Every algorithm moves its bytes through ports, so every algorithm is traced, to the byte. Where a transfer belongs is
 * seen from the memory that it leaves from or arrives in; what stands in memory of the algorithm's own is known to it
 * alone, and it may say so by gmi_record_note. Of what neither end knows the event says so. */
#ifndef GMI_RECORD_H
#define GMI_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

struct gmi_algo;
struct gmi_op;
struct gmi_port;
struct gmi_request;
struct gmi_trace;

/* Of a transfer; -1: not known. */
struct gmi_place {
    int     step, chunk;
    int64_t first_elem, n_elems;
    int     is_added; /* to what is there */
};
#define GMI_NOWHERE { .step = -1, .chunk = -1, .first_elem = -1, .n_elems = -1, .is_added = -1 }

/* One direction of a port. */
struct gmi_flow {
    uint64_t         bytes; /* of the transfer that is under way; 0: none is */
    int64_t          begin_ns;
    uint64_t         seq;    /* of the call that `number` counts in */
    int64_t          number; /* of transfers that were closed */
    int              is_added; /* by who receives it; -1: not known */
    bool             has_note;
    struct gmi_place place, note;
};

/* What the algorithm knows of the transfer that moves next, or is under way. */
static inline void gmi_record_note(struct gmi_flow *flow, struct gmi_place place)
{
    flow->note = place;
    flow->has_note = true;
}

enum gmi_direction { GMI_OUT, GMI_IN };

/* Bytes have moved, from or to `memory` (home: where elements that came over scratch go; NULL: they did not), in a call
 * that had begun to move them at try_ns; `left_bytes` of the transfer were left before. */
void gmi_record_moved(struct gmi_port *port, enum gmi_direction direction, const void *memory, const void *home,
                      size_t moved_bytes, size_t left_bytes, int64_t try_ns);

/* A call is over. */
void gmi_record_call(const struct gmi_op *op, gm_status status);

/* The same for a call that needed nobody else. */
void gmi_record_alone(struct gmi_trace *trace, const struct gmi_request *request, const struct gmi_algo *algo, int rank,
                      uint64_t seq, int64_t begin_ns);

#endif
