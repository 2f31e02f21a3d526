/* shards.h - the global batch cut into V logical shards, and which rank computes which.
 *
 *     shard v of a batch of n samples   gm_chunk(n, V, v): a function of n, V and v alone
 *     placement                         who computes it: of no consequence for a single bit
 *
 * V belongs to the job, the number of ranks to the cluster: any rank may compute any shard, a rank may have
 * none, and V need not be a multiple of anything. */
#ifndef GMT_SHARDS_H
#define GMT_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

#define GMT_MAX_SHARDS 4096 /* what the exact sum takes without a carry */

enum gmt_placement {
    GMT_PLACE_BLOCKS, /* rank r has the shards gm_chunk(V, world_size, r) */
    GMT_PLACE_RANDOM, /* drawn anew in each step, also how many a rank has: to show that it does not matter */
    GMT_PLACEMENT_END
};

/* "blocks", "random"; "?" for a number that is none. Static. */
const char *gmt_placement_name(enum gmt_placement placement);

/* A good V for a batch: many divisors, at least 16 samples in a shard, as far as there are any; at most 48. */
size_t gmt_shards_default(size_t batch);

/* GM_ERR_ARG with a sentence unless 1 <= n_shards <= batch and n_shards <= GMT_MAX_SHARDS, and the batch is one
 * whose samples can be counted exactly. */
GM_MUST_USE gm_status gmt_shards_check(size_t n_shards, size_t batch, gm_error *error);

/* The shards of `rank` in one step, in ascending order, into list (n_shards); returns how many. `seed` and
 * `step` matter for GMT_PLACE_RANDOM only, and are the same on all ranks. */
size_t gmt_shards_of_rank(enum gmt_placement placement, uint64_t seed, uint64_t step, size_t n_shards,
                          int world_size, int rank, uint32_t *list);

/* The rank that computes a shard. */
int gmt_shard_owner(enum gmt_placement placement, uint64_t seed, uint64_t step, size_t n_shards,
                    int world_size, size_t shard);

#endif
