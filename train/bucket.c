#include "train/bucket.h"

#include "base/check.h"

static size_t bucket_elems(size_t n_elems, size_t bucket_bytes)
{
    if (bucket_bytes == 0) return n_elems;
    return bucket_bytes < 2 * sizeof(float) ? 1 : bucket_bytes / sizeof(float);
}

size_t gmt_bucket_count(size_t n_elems, size_t bucket_bytes)
{
    if (n_elems == 0) return 0;
    return (n_elems - 1) / bucket_elems(n_elems, bucket_bytes) + 1;
}

struct gmt_bucket gmt_bucket_at(size_t n_elems, size_t bucket_bytes, size_t index)
{
    GMI_CHECK(index < gmt_bucket_count(n_elems, bucket_bytes));
    size_t elems = bucket_elems(n_elems, bucket_bytes);
    size_t end = n_elems - index * elems;
    size_t first = end > elems ? end - elems : 0;
    return (struct gmt_bucket){ .first_elem = first, .n_elems = end - first };
}
