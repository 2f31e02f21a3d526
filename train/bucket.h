/* bucket.h - the flat gradient cut into buckets, in the order in which the backward pass completes
 * it.
 *
 *     elements    0 ............................................. n_elems
 *     layers     [            0            ][      1      ][ 2 ]
 *     blocks     [     ][     ][     ][    ][     ][      ][   ]     as the backward pass reports them
 *     buckets    [  4  ][  3  ][     2     ][  1  ][     0     ]     each reduced by one all-reduce
 *
 * A bucket is as many blocks as fit into bucket_bytes, so that it is complete as soon as its
 * earliest block is. It ends with a layer when it is at least a quarter full by then: the gradients
 * of a layer do not wait for those of the layer below. A block that is larger than a bucket is cut
 * into even parts. So every rank makes the same buckets, from the shape and the size alone. */
#ifndef GMT_BUCKET_H
#define GMT_BUCKET_H

#include <stddef.h>
#include <stdint.h>

#include "train/params.h"

struct gmt_bucket {
    size_t first_elem;
    size_t n_elems;
};

/* In a recipe: whatever is best for the way in which the run exchanges. */
#define GMT_BUCKET_BYTES_AUTO SIZE_MAX

/* The bucket that ends before element `end`, which is n_elems for the first one and the last
 * bucket's first_elem for each later one, until that is 0. bucket_bytes of 0: everything is one
 * bucket; 1 .. 7: one element each. */
struct gmt_bucket gmt_bucket_before(const struct gmt_params *params, size_t bucket_bytes,
                                    size_t end);

/* A good size where the buckets are exchanged while the backward pass goes on. */
size_t gmt_bucket_bytes_default(const struct gmt_params *params);

#endif
