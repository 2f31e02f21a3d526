/* codec.h - how the elements of a collective travel, and what is done with those that arrive.
 *
 * Stands between a collective, which moves bytes of chunks, and a link, which moves bytes. The identity
 * codec sends elements as they lie in memory and copies nothing. With a lean format (wire.h) sums of f32 travel
 * encoded, which an algorithm of its own does, and so do exact sums (accumulator.h). Knows arrays only: no ranks, no links. */
#ifndef GMI_CODEC_H
#define GMI_CODEC_H

#include "gradmesh.h"
#include "reduce/kernels.h"
#include "reduce/wire.h"

enum { GMI_CODEC_IDENTITY = 0, GMI_CODEC_EXACT = 4 }; /* as in the descriptor on the wire; those between: wire.h */

/* What an algorithm lets the arithmetic see, least first, and what a reduction needs to give all ranks the same
 * bits. An algorithm may run a reduction if it shows at least what that needs. */
enum gmi_view {
    GMI_VIEW_PAIRS, /* partial results, where several ranks compute the same one from operands in either order:
                       the operation must commute to the bit */
    GMI_VIEW_ONCE,  /* partial results, but each is computed by one rank, or by all in the same order */
    GMI_VIEW_ALL,   /* all contributions to an element at once: the result can be rounded once */
    GMI_VIEW_LEAN,  /* the same, of contributions that travel encoded */
    GMI_VIEW_EXACT, /* partial results that are exact, of accumulators (accumulator.h) */
};

/* A reduction of the caller's own; fn is NULL for none. */
struct gmi_user_op {
    gm_combine_fn fn;
    void         *user;
};

struct gmi_codec {
    uint8_t       id;   /* of the format on the wire */
    const struct gmi_wire *wire; /* NULL: as they lie in memory */
    gm_dtype      dtype;      /* for user_op */
    size_t        elem_bytes; /* in memory, and for the identity codec on the wire */
    enum gmi_view needs;

    /* As in kernels.h; one of the three, or none where nothing is combined (all-gather, broadcast). */
    void (*combine)(void *out, const void *a, const void *b, size_t count_elems);
    void (*combine_all)(void *out, const struct gmi_contributions *c, size_t count_elems);
    struct gmi_user_op user_op;

    /* What is still to do once all contributions are combined (GM_AVG: the one division), by the rank that
     * owns them. NULL: nothing. */
    void (*finish)(void *values, size_t count_elems, int n_contributions);

    /* Makes NaNs canonical where there was nothing to combine. NULL: integers, the caller's own. */
    void (*canonicalize)(void *values, size_t count_elems);
};

/* The identity codec for a dtype and a reduction. GM_OK; GM_ERR_ARG: no such number; GM_ERR_UNSUPPORTED: the two do
 * not go together. */
gm_status gmi_codec_find(struct gmi_codec *codec, gm_dtype dtype, gm_redop redop);

/* The identity codec for a dtype and a reduction of the caller's own. GM_OK; GM_ERR_ARG: no such dtype, or fn is
 * NULL. */
gm_status gmi_codec_find_user(struct gmi_codec *codec, gm_dtype dtype, const struct gmi_user_op *user_op);

/* The same for sums that travel in a lean format; changes nothing where the format does not apply: it does to f32
 * with GM_SUM and GM_AVG. `wire` may be NULL. */
void gmi_codec_make_lean(struct gmi_codec *codec, gm_redop redop, const struct gmi_wire *wire);

/* GM_SUM_EXACT: what accumulators hold. */
struct gmi_codec gmi_codec_exact(void);

/* The identity codec that only moves. */
struct gmi_codec gmi_codec_mover(size_t elem_bytes);

/* out[i] = arrived[i] (op) own[i], for codecs that do not need GMI_VIEW_ALL. `out` may be `arrived` or `own`. */
void gmi_codec_combine(const struct gmi_codec *codec, void *out, const void *arrived, const void *own,
                       size_t count_elems);

/* out[i] = the finished result of all contributions, in the order of ranks; `out` may be one of them. Works for
 * every codec, and for a single contribution. */
void gmi_codec_settle(const struct gmi_codec *codec, void *out, const struct gmi_contributions *c, size_t count_elems);

#endif
