/* kernels.h - loops over arrays of one element type; the table that codec.c picks from.
 *
 * One row for each dtype: floats.c, halves.c, integers.c. All arrays are aligned to their elements. */
#ifndef GMI_KERNELS_H
#define GMI_KERNELS_H

#include "gradmesh.h"

/* The contributions of n ranks to the same elements: that of rank k is at base + k * stride_bytes, but that of
 * rank `own` (-1: none) at own_at. */
struct gmi_contributions {
    int            n;
    const uint8_t *base;
    size_t         stride_bytes;
    int            own;
    const uint8_t *own_at;
};

static inline const void *gmi_contribution(const struct gmi_contributions *c, int rank, size_t at_bytes)
{
    return (rank == c->own ? c->own_at : c->base + (size_t)rank * c->stride_bytes) + at_bytes;
}

struct gmi_kernels {
    /* out[i] = a[i] (op) b[i], NaNs made canonical; out may be a or b. Commutes to the bit. */
    void (*combine[GM_REDOP_END])(void *out, const void *a, const void *b, size_t count_elems);

    /* out[i] = all contributions to element i, rounded once; out may be one of them. Where this is given,
     * combine is not. Where neither is, the reduction is not offered. */
    void (*combine_all[GM_REDOP_END])(void *out, const struct gmi_contributions *c, size_t count_elems);

    void (*divide)(void *values, size_t count_elems, int divisor); /* what GM_AVG by combine ends with */
    void (*canonicalize)(void *values, size_t count_elems);        /* NULL: no NaNs */
};

extern const struct gmi_kernels gmi_kernels_f32, gmi_kernels_f64, gmi_kernels_f16, gmi_kernels_bf16;
extern const struct gmi_kernels gmi_kernels_i8, gmi_kernels_u8, gmi_kernels_i32, gmi_kernels_u32, gmi_kernels_i64,
    gmi_kernels_u64;

static inline const struct gmi_kernels *gmi_kernels_of(gm_dtype dtype)
{
    static const struct gmi_kernels *const rows[GM_DTYPE_END] = {
        [GM_F32] = &gmi_kernels_f32, [GM_F64] = &gmi_kernels_f64, [GM_I32] = &gmi_kernels_i32,
        [GM_I64] = &gmi_kernels_i64, [GM_I8] = &gmi_kernels_i8,   [GM_U8] = &gmi_kernels_u8,
        [GM_U32] = &gmi_kernels_u32, [GM_U64] = &gmi_kernels_u64, [GM_F16] = &gmi_kernels_f16,
        [GM_BF16] = &gmi_kernels_bf16,
    };
    return rows[dtype];
}

#endif
