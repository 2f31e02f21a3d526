/* codec.h - how the elements of a collective travel, and what is done with those that arrive.
 *
 * Stands between a collective, which moves bytes of chunks, and a link, which moves bytes. The identity
 * codec sends elements as they lie in memory and copies nothing. Lean formats (bf16, int8) and exact sums
 * are further codecs with an encoded form of their own; an algorithm that walks whole elements needs no
 * change for them. Knows arrays only: no ranks, no links. */
#ifndef GMI_CODEC_H
#define GMI_CODEC_H

#include "gradmesh.h"

enum { GMI_CODEC_IDENTITY = 0 }; /* as in the descriptor on the wire */

struct gmi_codec {
    uint8_t     id;
    const char *name;
    size_t      elem_bytes; /* in memory, and for the identity codec on the wire */

    /* out[i] = arrived[i] (op) own[i], a NaN result made canonical. `out` may be `arrived` or `own`. All
     * aligned to their elements. NULL where nothing is combined (all-gather, broadcast). */
    void (*combine)(void *out, const void *arrived, const void *own, size_t count_elems);

    /* What is still to do once all contributions are in (GM_AVG: the one division), by the rank that
     * owns them. NULL: nothing. */
    void (*finish)(void *values, size_t count_elems, int n_contributions);

    /* Makes NaNs canonical where there was nothing to combine (a world of one). NULL: integers. */
    void (*canonicalize)(void *values, size_t count_elems);
};

/* The identity codec for a dtype and a reduction. GM_OK; GM_ERR_ARG: no such number; GM_ERR_UNSUPPORTED:
 * GM_AVG of integers. */
gm_status gmi_codec_find(struct gmi_codec *codec, gm_dtype dtype, gm_redop redop);

/* The identity codec that only moves: combine is NULL. */
struct gmi_codec gmi_codec_mover(size_t elem_bytes);

#endif
