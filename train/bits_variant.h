/* bits_variant.h - the innermost loops of bits.h, once for each instruction set: what the files
 * bits_avx512.c, bits_avx2.c and bits_plain.c define (all from bits_kernel.h) and bits_product.c
 * uses. */
#ifndef GMT_BITS_VARIANT_H
#define GMT_BITS_VARIANT_H

#include <stdbool.h>
#include <stddef.h>

#define GMT_BITS_MAX_STRIP 12 /* of any variant */
#define GMT_BITS_MAX_PANEL 32

/* A tile of outputs, c[i][j] = c[i][j] + the chain over k of a[i][k] b[k][j]: n_i <= strip rows,
 * and the columns of n_vectors vectors. */
struct gmt_bits_tile {
    size_t n_i, n_vectors, n_k;
    const float *a; /* rows of a_stride elements: is_by_k: [k][i], else [i][k] */
    size_t a_stride;
    bool is_by_k;
    const float *b; /* [k][b_stride] */
    size_t b_stride;
    const float *from; /* where the chains go on from, rows of from_stride; NULL: from 0 */
    size_t from_stride;
    float *to;
    size_t to_stride;
};

struct gmt_bits_variant {
    const char *name;
    bool (*runs_here)(void);
    size_t strip;   /* rows of a full tile */
    size_t n_lanes; /* in a vector */
    size_t panel;   /* columns of a full tile */

    void (*tile)(const struct gmt_bits_tile *tile);
    /* to[k][j] = from[j][k], k < n_k, j < n_j; 0 for n_j <= j < to_stride (a multiple of n_lanes).
     */
    void (*pack_transposed)(const float *from, size_t from_stride, size_t n_j, size_t n_k,
                            float *to, size_t to_stride);
    /* to[k][j] = from[k][j], the same otherwise. */
    void (*pack)(const float *from, size_t from_stride, size_t n_j, size_t n_k, float *to,
                 size_t to_stride);
    void (*exp_nonpositive)(float *values, size_t n);
    double (*log)(double value);
};

extern const struct gmt_bits_variant gmt_bits_avx512, gmt_bits_avx2, gmt_bits_plain;

/* Whether the calling thread rounds to nearest and keeps denormals, by its mode register: quick,
 * where we know the register. gmt_bits_check_thread tries it out. */
bool gmt_bits_thread_mode_is_right(void);

/* The one in use. */
const struct gmt_bits_variant *gmt_bits_chosen(void);

#endif
