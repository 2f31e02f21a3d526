/* bits_product.h - a matrix product with fixed bits: c[i][j] = the chain over k of a[i][k] b[k][j].
 *
 *            j: columns of c in panels of a few vectors, the lanes of which are outputs
 *          +--------+--------+---
 *        k | panel  |        |        packed as [k][panel] a block of k at a time, so that it stays
 *          +--------+--------+---     in the nearest cache
 *      k
 *   +-----+ +--------+
 * i |strip| | tile   |                strip after strip passes by
 *   +-----+ +--------+
 *   |     | |        |
 *
 * Between two blocks of k the tiles' sums wait in memory. A thread computes whole tiles. */
#ifndef GMT_BITS_PRODUCT_H
#define GMT_BITS_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

#include "train/bits.h"

struct gmt_bits_matrix {
    const float *elems;
    size_t stride; /* of a stored row */
    bool is_by_k;  /* stored as [k][i] or [k][j], else [i][k] or [j][k] */
};

struct gmt_bits_product {
    size_t n_i, n_j, n_k;
    struct gmt_bits_matrix a, b;
    const float *start; /* (n_i): where the chains of a row of c begin; NULL: at 0 */
    bool is_continuing; /* they begin at c; needs is_by_j */
    float *c;           /* NULL: everything goes to the sink */
    size_t c_stride;
    bool is_by_j;          /* c is stored as [i][j], else [j][i] */
    bool has_relu;         /* negative results become 0 */
    gmt_bits_sink_fn sink; /* c[i][j] is its element i * n_j + j + sink_first */
    void *sink_user;
    size_t sink_first;
};

void gmt_bits_multiply(struct gmt_bits *bits, const struct gmt_bits_product *product);

#endif
