/* exact_stream.h - a range of an exact sum on its way from one rank to another; its length is not known beforehand.
 *
 *     | sum head | slab head | slab ............ | slab head | slab ............ | slab head | ...
 *       who is in it           lanes, spilled numbers
 *
 * A slab is up to 128 blocks of 64 elements. How long it is stands in its head, which travels with what is in front of it,
 * so the receiver always knows how much comes next: one *portion*,
 *
 *     portion 0        sum head | head of slab 0
 *     portion k        lanes of a slab | its spilled numbers, up to 4,096 | if these are all: head of the next slab
 *     more of a slab   spilled numbers, up to 4,096 | if these are all: head of the next slab
 *
 * sum head, 24 bytes and 8 for each 64 shards: "GMX1", number of contributions u32, first block u64, blocks u64, the set of
 * shards that are in it. slab head, 8 bytes: bytes of lanes u32, number of spilled numbers u32. Lanes are packed as in
 * exact_kernels.h. A spilled number is its element u32, counted from the slab's first, and its bits u32.
 *
 * What arrives is checked before it is used: lengths against the most that can be right, so that memory grows only by
 * what has come; the range; that the shards are those of the call, and that none of them is in our sum already. */
#ifndef GMI_EXACT_STREAM_H
#define GMI_EXACT_STREAM_H

#include "coll/rounds.h"
#include "reduce/accumulator.h"

enum {
    GMI_SLAB_BLOCKS = 128,
    GMI_PORTION_SPILLS = 4096,
    GMI_SLAB_HEAD_BYTES = 8,
    GMI_SUM_HEAD_BYTES = 24 + 8 * GMI_SHARD_WORDS, /* at most */
    GMI_PORTION_BYTES = GMI_SLAB_BLOCKS * (1 + GMI_EXACT_BLOCK * GMI_EXACT_MOST_WIDTH) + 8 * GMI_PORTION_SPILLS +
                        GMI_SLAB_HEAD_BYTES,
};

/* Blocks of the array. */
struct gmi_blocks {
    size_t first, n;
};

/* A partial sum: whose, and what did not fit into its lanes (by element of the array). */
struct gmi_partial {
    struct gmi_shards  shards;
    struct gmi_spills *spills;
};

struct gmi_exact_out {
    struct gmi_stream       stream;
    gm_accumulator         *acc; /* counts */
    const uint64_t         *lanes; /* of the range */
    const uint64_t         *spills;
    struct gmi_blocks       range;
    size_t                  slab, n_slabs;         /* the one that leaves */
    size_t                  spills_at, spills_end; /* of it, still to leave */
    size_t                  lane_bytes;            /* of it, in their buffer; 0: they have left */
    uint8_t                 head[GMI_SUM_HEAD_BYTES + GMI_SLAB_HEAD_BYTES];
    uint8_t                *buffers[2]; /* GMI_PORTION_BYTES each; slab k in number k mod 2 */
    size_t                  n_spills;
};

struct gmi_exact_in {
    struct gmi_stream   stream;
    gm_accumulator     *acc;
    struct gmi_partial *to;
    uint64_t           *lanes; /* of the range: what arrives is added to ... */
    const uint64_t     *base;  /* ... these, which may be the same */
    struct gmi_blocks   range;
    int                 peer;
    int                 n_shards_arriving;
    size_t              slab, n_slabs;
    size_t              lane_bytes, n_spills; /* of this slab, still to come */
    bool                has_head;
    uint8_t            *buffer; /* GMI_PORTION_BYTES */
};

/* For an algorithm's prepare. The spilled numbers are sorted. An empty range sends nothing. */
void gmi_exact_send(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_exact_out *out,
                    const struct gmi_partial *from, const uint64_t *lanes, struct gmi_blocks range);

/* Adds to `to`, which must hold what it begins with: its shards, spilled numbers, and `base` for the lanes. */
void gmi_exact_recv(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_exact_in *in, struct gmi_partial *to,
                    uint64_t *lanes, const uint64_t *base, struct gmi_blocks range);

#endif
