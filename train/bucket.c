#include "train/bucket.h"

#include <stdbool.h>

#include "base/bytes.h"
#include "base/check.h"

/* Enough buckets that what is left to be exchanged after the last block is little, each large
 * enough that its latency is little, and small enough that it stays in cache. */
#define DEFAULT_N_BUCKETS 8
#define DEFAULT_MIN_BYTES ((size_t)256 << 10)
#define DEFAULT_MAX_BYTES ((size_t)4 << 20)

/* Where the layer of element end - 1 begins, and the block of it. */
struct place {
    size_t layer_first, block_first;
};

static struct place place_before(const struct gmt_params *params, size_t end)
{
    int t = params->n_tensors - 2;
    while (t > 0 && params->tensors[t].first_elem >= end) t -= 2;
    const struct gmt_tensor *weight = &params->tensors[t];
    size_t block_rows = gmt_block_rows(weight);
    /* A bias belongs to the last block. */
    size_t row = gmi_min_size((end - 1 - weight->first_elem) / weight->n_cols, weight->n_rows - 1);
    return (struct place){ weight->first_elem,
                           weight->first_elem + row / block_rows * block_rows * weight->n_cols };
}

static size_t bucket_elems(size_t bucket_bytes)
{
    return bucket_bytes < 2 * sizeof(float) ? 1 : bucket_bytes / sizeof(float);
}

/* The first of the fewest even parts that [first, end) must be cut into, from the end. */
static struct gmt_bucket part_of_block(size_t first, size_t end, size_t elems)
{
    size_t n_parts = (end - first - 1) / elems + 1;
    size_t n_elems = (end - first - 1) / n_parts + 1;
    return (struct gmt_bucket){ end - n_elems, n_elems };
}

struct gmt_bucket gmt_bucket_before(const struct gmt_params *params, size_t bucket_bytes,
                                    size_t end)
{
    GMI_CHECK(end > 0 && end <= params->n_elems);
    if (bucket_bytes == 0) return (struct gmt_bucket){ 0, end };
    size_t       elems = bucket_elems(bucket_bytes);
    struct place place = place_before(params, end);
    size_t       first = place.block_first;
    if (end - first > elems) return part_of_block(first, end, elems);
    while (first > 0) {
        bool ends_layer = first == place.layer_first;
        if (ends_layer && end - first >= elems / 4) break;
        place = place_before(params, first);
        if (end - place.block_first > elems) break;
        first = place.block_first;
    }
    return (struct gmt_bucket){ first, end - first };
}

size_t gmt_bucket_bytes_default(const struct gmt_params *params)
{
    size_t bytes = params->n_elems * sizeof(float) / DEFAULT_N_BUCKETS;
    if (bytes < DEFAULT_MIN_BYTES) return DEFAULT_MIN_BYTES;
    return gmi_min_size(bytes, DEFAULT_MAX_BYTES);
}
