/* clang-format off
 * bits_kernel.h - the innermost loops, written once and compiled for each instruction set. The file
 * that includes this defines before:
 *
 *   TARGET           the attribute that every function here gets
 *   LANES            floats in a vector
 *   STRIP, NV        rows and vectors of a full tile: STRIP * NV sums, NV vectors of b and one value
 *                    of a are to fit into the registers
 *   vfloat, vbits    GCC vectors of LANES floats, and of as many uint32_t
 *   broadcast(x)     a vector of x
 *   fused(a, b, c)   a b + c rounded once, of vectors; fused64 the same of doubles
 *   transpose_block(from, from_stride, to, to_stride)
 *                    BLOCK_J rows of BLOCK_K floats become BLOCK_K rows of BLOCK_J
 *   VARIANT          the name of the struct gmt_bits_variant
 *   VARIANT_NAME     the same as text
 *   VARIANT_RUNS     the function that says whether it runs here
 *
 * Every element of every result is a fixed sequence of IEEE operations; a vector only does LANES
 * elements at once. */
/* clang-format on */
#include <stdint.h>
#include <string.h>

#include "train/bits_variant.h"

#define INLINE static inline __attribute__((always_inline)) TARGET

/* Vectors anywhere in memory. */
typedef float vfloat_memory __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
INLINE vfloat load(const float *from)
{
    return *(const vfloat_memory *)from;
}
INLINE void store(float *to, vfloat value)
{
    *(vfloat_memory *)to = value;
}

/* ---- tile ------------------------------------------------------------------------------------
 *
 *              b[k]  | vector 0 | vector 1 |         n_i and n_v are constants where this is
 *     a[0][k]        |  sum 00  |  sum 01  |         inlined: the sums stay in registers.
 *     a[1][k]        |  sum 10  |  sum 11  |
 *     ... */

INLINE void tile_of(const int n_i, const int n_v, const bool is_by_k, const struct gmt_bits_tile *t)
{
    vfloat sum[STRIP][NV];
#pragma GCC unroll 16
    for (int i = 0; i < n_i; i++)
#pragma GCC unroll 4
        for (int v = 0; v < n_v; v++)
            sum[i][v] =
                t->from == NULL ? broadcast(0.0f) : load(t->from + i * t->from_stride + v * LANES);

    const float *a = t->a, *b = t->b;
    size_t a_stride = t->a_stride, b_stride = t->b_stride;
    for (size_t k = t->n_k; k > 0; k--) {
        vfloat b_k[NV];
#pragma GCC unroll 4
        for (int v = 0; v < n_v; v++) b_k[v] = load(b + v * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < n_i; i++) {
            vfloat a_ik = broadcast(is_by_k ? a[i] : a[i * a_stride]);
#pragma GCC unroll 4
            for (int v = 0; v < n_v; v++) sum[i][v] = fused(a_ik, b_k[v], sum[i][v]);
        }
        a += is_by_k ? a_stride : 1;
        b += b_stride;
    }

#pragma GCC unroll 16
    for (int i = 0; i < n_i; i++)
#pragma GCC unroll 4
        for (int v = 0; v < n_v; v++) store(t->to + i * t->to_stride + v * LANES, sum[i][v]);
}

#define TILE(n_i, n_v)                                                                             \
    TARGET static void tile_##n_i##_##n_v(const struct gmt_bits_tile *t)                           \
    {                                                                                              \
        if (t->is_by_k) tile_of(n_i, n_v, true, t);                                                \
        else tile_of(n_i, n_v, false, t);                                                          \
    }
#if NV == 1
#define TILES(n_i) TILE(n_i, 1)
#define TILE_ROW(n_i)                                                                              \
    {                                                                                              \
        tile_##n_i##_1                                                                             \
    }
#else
#define TILES(n_i) TILE(n_i, 1) TILE(n_i, 2)
#define TILE_ROW(n_i)                                                                              \
    {                                                                                              \
        tile_##n_i##_1, tile_##n_i##_2                                                             \
    }
#endif

TILES(1)
TILES(2)
TILES(3) TILES(4)
#if STRIP > 4
    TILES(5) TILES(6)
#endif
#if STRIP > 6
        TILES(7) TILES(8) TILES(9) TILES(10) TILES(11) TILES(12)
#endif

            static void (*const tiles[STRIP][NV])(const struct gmt_bits_tile *) = {
                TILE_ROW(1), TILE_ROW(2), TILE_ROW(3), TILE_ROW(4),
#if STRIP > 4
                TILE_ROW(5), TILE_ROW(6),
#endif
#if STRIP > 6
                TILE_ROW(7), TILE_ROW(8), TILE_ROW(9), TILE_ROW(10), TILE_ROW(11), TILE_ROW(12),
#endif
            };

static void tile(const struct gmt_bits_tile *t)
{
    tiles[t->n_i - 1][t->n_vectors - 1](t);
}

/* ---- packing --------------------------------------------------------------------------------- */

TARGET static void pack_transposed(const float *from, size_t from_stride, size_t n_j, size_t n_k,
                                   float *to, size_t to_stride)
{
    size_t whole_k = n_k / BLOCK_K * BLOCK_K, whole_j = n_j / BLOCK_J * BLOCK_J;
    for (size_t j = 0; j < whole_j; j += BLOCK_J)
        for (size_t k = 0; k < whole_k; k += BLOCK_K)
            transpose_block(from + j * from_stride + k, from_stride, to + k * to_stride + j,
                            to_stride);
    /* what no block has covered */
    for (size_t k = whole_j == to_stride ? whole_k : 0; k < n_k; k++) {
        float *row = to + k * to_stride;
        for (size_t j = k < whole_k ? whole_j : 0; j < n_j; j++) row[j] = from[j * from_stride + k];
        for (size_t j = n_j; j < to_stride; j++) row[j] = 0;
    }
}

TARGET static void pack(const float *from, size_t from_stride, size_t n_j, size_t n_k, float *to,
                        size_t to_stride)
{
    size_t whole_j = n_j / LANES * LANES;
    for (size_t k = 0; k < n_k; k++, from += from_stride, to += to_stride) {
        for (size_t j = 0; j < whole_j; j += LANES) store(to + j, load(from + j));
        for (size_t j = whole_j; j < n_j; j++) to[j] = from[j];
        for (size_t j = n_j; j < to_stride; j++) to[j] = 0;
    }
}

/* ---- e^x and log ----------------------------------------------------------------------------- */

/* e^x = 2^k e^r with k = round(x / ln 2), so |r| <= ln 2 / 2: k goes into the exponent bits, e^r is
 * a polynomial. Adding and subtracting 1.5 2^23 rounds to an integer. ln 2 is subtracted in two
 * parts (Cody, Waite, "Software manual for the elementary functions", 1980). Below -87: 0. */
INLINE vfloat exp_of(vfloat x)
{
    const vfloat lowest = broadcast(-87.0f), rounder = broadcast(0x1.8p23f);
    vbits is_below = (vbits)(x < lowest);
    vfloat shifted = fused(x, broadcast(0x1.715476p+0f), rounder);
    vfloat k = shifted - rounder;
    vfloat r = fused(k, broadcast(-0x1.62e43p-1f), x);
    r = fused(k, broadcast(0x1.05c61p-29f), r);
    vfloat p = broadcast(1.0f / 5040);
    p = fused(p, r, broadcast(1.0f / 720));
    p = fused(p, r, broadcast(1.0f / 120));
    p = fused(p, r, broadcast(1.0f / 24));
    p = fused(p, r, broadcast(1.0f / 6));
    p = fused(p, r, broadcast(0.5f));
    p = fused(p, r, broadcast(1.0f));
    p = fused(p, r, broadcast(1.0f));
    vbits power = ((vbits)shifted + 127) << 23;
    return (vfloat)((vbits)(p * (vfloat)power) & ~is_below);
}

TARGET static void exp_nonpositive(float *values, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store(values + i, exp_of(load(values + i)));
    if (i == n) return;
    float rest[LANES] = { 0 };
    memcpy(rest, values + i, (n - i) * sizeof *rest);
    store(rest, exp_of(load(rest)));
    memcpy(values + i, rest, (n - i) * sizeof *rest);
}

/* log x = e ln 2 + log m with m in [sqrt 1/2, sqrt 2), and log m = 2 atanh z = 2 z (1 + z^2 / 3 +
 * z^4 / 5 +
 * ...) with z = (m - 1) / (m + 1), |z| < 0.172. */
TARGET static double log_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t smallest_normal = UINT64_C(1) << 52, infinity = UINT64_C(0x7ff) << 52;
    if (bits - smallest_normal >= infinity - smallest_normal) {
        bits = UINT64_C(0x7ff8) << 48;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    const uint64_t root_half = UINT64_C(0x3fe6a09e667f3bcd);
    uint64_t above = bits - root_half;
    int64_t exponent = (int64_t)above >> 52;
    bits -= (uint64_t)exponent << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double z = (m - 1) / (m + 1), z2 = z * z, sum = 1.0 / 23;
    for (int odd = 21; odd >= 3; odd -= 2) sum = fused64(sum, z2, 1.0 / odd);
    double e = (double)exponent;
    double low = fused64(sum * z2, 2 * z, e * 0x1.abc9e3b39803fp-56);
    return fused64(e, 0x1.62e42fefa39efp-1, 2 * z + low);
}

const struct gmt_bits_variant VARIANT = {
    .name = VARIANT_NAME,
    .runs_here = VARIANT_RUNS,
    .strip = STRIP,
    .n_lanes = LANES,
    .panel = NV * LANES,
    .tile = tile,
    .pack_transposed = pack_transposed,
    .pack = pack,
    .exp_nonpositive = exp_nonpositive,
    .log = log_of,
};
