/* shape.h - the measures of a call: how its buffer is cut into chunks, one for each rank. All that
 * a byte formula and the need for memory depend on; no memory, no links.
 *
 * Chunks are in rank order and cover everything. Either the caller gives their sizes (`counts`), or
 * they are as equal as can be (chunks.h). In an all-to-all chunk k of a rank's buffer is what it
 * has for rank k. */
#ifndef GMI_SHAPE_H
#define GMI_SHAPE_H

#include <stdbool.h>

#include "coll/chunks.h"
#include "coll/layout.h"

struct gmi_wire;

struct gmi_shape {
    int           rank, n_ranks;
    int           root; /* -1: none */
    const struct gmi_layout *layout; /* which ranks share a host; NULL: not known */
    size_t        count_elems, elem_bytes; /* of the whole buffer */
    const size_t *counts;      /* elements of each chunk; NULL: equal ones */
    bool          is_in_place; /* input and output are the same memory */
    const struct gmi_wire *wire; /* in which elements travel; NULL: as they lie in memory */
};

static inline size_t gmi_shape_chunk_bytes(const struct gmi_shape *s, int chunk)
{
    return gmi_chunk_elems_of(s->counts, s->count_elems, s->n_ranks, chunk) * s->elem_bytes;
}

static inline size_t gmi_shape_bytes(const struct gmi_shape *s)
{
    return s->count_elems * s->elem_bytes;
}
static inline size_t gmi_shape_own_bytes(const struct gmi_shape *s)
{
    return gmi_shape_chunk_bytes(s, s->rank);
}

#endif
