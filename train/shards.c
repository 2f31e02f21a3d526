#include "train/shards.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"

/* Keeps this use of a seed apart from others. */
#define STREAM_PLACEMENT UINT64_C(0x706c6163656d)

/* Samples of a batch are counted by float32 numbers, exactly up to here. */
#define MAX_BATCH ((size_t)1 << 24)

static const char *const names[GMT_PLACEMENT_END] = { [GMT_PLACE_BLOCKS] = "blocks",
                                                      [GMT_PLACE_RANDOM] = "random" };

const char *gmt_placement_name(enum gmt_placement placement)
{
    return (unsigned)placement < GMT_PLACEMENT_END ? names[placement] : "?";
}

/* Each of them is well balanced over most numbers of ranks up to a third of it: 24 over 1, 2, 3, 4, 6 and 8 evenly,
 * over 5 to 96 %, over 7 to 86 %. */
static const size_t good_counts[] = { 48, 24, 12, 8, 4, 2 };

#define MIN_SHARD_SAMPLES 16 /* below, adding a shard up costs more than a tenth of computing it */

size_t gmt_shards_default(size_t batch)
{
    for (size_t i = 0; i < sizeof good_counts / sizeof good_counts[0]; i++)
        if (batch / good_counts[i] >= MIN_SHARD_SAMPLES) return good_counts[i];
    return 1;
}

gm_status gmt_shards_check(size_t n_shards, size_t batch, gm_error *error)
{
    if (batch > MAX_BATCH)
        return gmi_error_set(error, GM_ERR_ARG,
                             "a batch of %zu samples: a reproducible run takes up to %zu, which it can count "
                             "exactly",
                             batch, MAX_BATCH);
    if (n_shards < 1 || n_shards > GMT_MAX_SHARDS)
        return gmi_error_set(error, GM_ERR_ARG, "%zu shards: expected 1 to %d", n_shards, GMT_MAX_SHARDS);
    if (n_shards > batch)
        return gmi_error_set(error, GM_ERR_ARG,
                             "%zu shards of a batch of %zu samples: some would never have a sample; give fewer "
                             "shards or a larger batch",
                             n_shards, batch);
    return GM_OK;
}

int gmt_shard_owner(enum gmt_placement placement, uint64_t seed, uint64_t step, size_t n_shards,
                    int world_size, size_t shard)
{
    GMI_CHECK(shard < n_shards && world_size >= 1);
    if (placement == GMT_PLACE_RANDOM) {
        uint64_t key = gmi_rng_key(gmi_rng_key(seed, STREAM_PLACEMENT), step);
        return (int)gmi_rng_below(key, shard, (uint64_t)world_size);
    }
    /* The first `longer` ranks have one more: the inverse of gm_chunk. */
    size_t n_ranks = (size_t)world_size, each = n_shards / n_ranks, longer = n_shards % n_ranks;
    if (shard < longer * (each + 1)) return (int)(shard / (each + 1));
    return (int)(longer + (shard - longer * (each + 1)) / each);
}

size_t gmt_shards_of_rank(enum gmt_placement placement, uint64_t seed, uint64_t step, size_t n_shards,
                          int world_size, int rank, uint32_t *list)
{
    size_t n = 0, first = 0, end = n_shards;
    if (placement == GMT_PLACE_BLOCKS) {
        gm_chunk(n_shards, world_size, rank, &first, &n);
        for (size_t i = 0; i < n; i++) list[i] = (uint32_t)(first + i);
        return n;
    }
    for (size_t v = first; v < end; v++)
        if (gmt_shard_owner(placement, seed, step, n_shards, world_size, v) == rank)
            list[n++] = (uint32_t)v;
    return n;
}
