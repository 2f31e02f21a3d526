/* bucket.h - the flat gradient cut into buckets, in the order in which the backward pass completes
 * it.
 *
 *     elements    0 ............................................. n_elems
 *     buckets    [ 3 ][      2      ][      1      ][      0      ]
 *
 * Bucket 0 is the end of the array (the last layer), every bucket but the last holds
 * floor(bucket_bytes / 4) elements, and the last one what is left. The cut ignores tensors: a
 * bucket may hold several or a part of one. Bucket b can be reduced when everything from its first
 * element on is complete. */
#ifndef GMT_BUCKET_H
#define GMT_BUCKET_H

#include <stddef.h>

struct gmt_bucket {
    size_t first_elem;
    size_t n_elems;
};

/* How many buckets there are. bucket_bytes of 0: one for everything; 1 .. 4: one element each. 0
 * for no elements. */
size_t gmt_bucket_count(size_t n_elems, size_t bucket_bytes);
/* Bucket number index, 0 <= index < gmt_bucket_count(n_elems, bucket_bytes). */
struct gmt_bucket gmt_bucket_at(size_t n_elems, size_t bucket_bytes, size_t index);

#endif
