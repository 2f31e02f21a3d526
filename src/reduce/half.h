/* half.h - f16 and bf16 from and to wider floats, one number each.
 *
 * Plain C that compilers vectorize; half_arrays.c uses the machine's own instructions where it has them. An f32 holds every f16
 * and every bf16, subnormal ones too, so widening is exact.
 *
 * Narrowing an f64 goes by way of an f32, which would round twice. It does not, since the first step rounds to odd:
 * an f32 that is not exact gets an odd last bit, which says "a little more or less than the even ones beside me".
 * An f32 has more than two bits to spare over both formats, so the second step sees on which side of a tie the
 * number is. */
#ifndef GMI_HALF_H
#define GMI_HALF_H

#include <stdint.h>
#include <string.h>

#define GMI_NAN_F16 0x7e00
#define GMI_NAN_BF16 0x7fc0

static inline uint32_t gmi_bits_of_f32(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static inline float    gmi_f32_of_bits(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }

/* ---- widening ---------------------------------------------------------------------------------- */

static inline float gmi_f32_of_bf16(uint16_t h) { return gmi_f32_of_bits((uint32_t)h << 16); }

/* a if `condition` (0 or 1), else b; a branch would keep a loop from being vectorized. */
static inline uint32_t gmi_pick(uint32_t condition, uint32_t a, uint32_t b)
{
    uint32_t mask = UINT32_C(0) - condition;
    return (a & mask) | (b & ~mask);
}

/* An f16 has exponent 5 bits, bias 15; an f32 8 bits, bias 127. Moved into place the exponent is 112 too small, and
 * 112 more for Inf and NaN. A subnormal f16 is a multiple of 2^-24: as the fraction of 2^-14 (1 + fraction) it is
 * right once 2^-14 is taken off. */
static inline float gmi_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t small = gmi_bits_of_f32(gmi_f32_of_bits(magnitude + (UINT32_C(113) << 23)) - 0x1p-14f);
    uint32_t is_special = magnitude >= (UINT32_C(31) << 23), is_small = magnitude < (UINT32_C(1) << 23);
    uint32_t normal = magnitude + (UINT32_C(112) << 23) + gmi_pick(is_special, UINT32_C(112) << 23, 0);
    return gmi_f32_of_bits(gmi_pick(is_small, small, normal) | sign);
}

/* ---- narrowing: to nearest, ties to even; NaN becomes the canonical one ------------------------- */

/* Taken as integers, a float of greater magnitude is the greater number whatever its sign. */
static inline float gmi_f32_odd_of_f64(double x)
{
    float    nearest = (float)x;
    double   back = nearest;
    uint32_t bits = gmi_bits_of_f32(nearest);
    uint64_t x_bits, back_bits;
    memcpy(&x_bits, &x, sizeof x_bits);
    memcpy(&back_bits, &back, sizeof back_bits);
    uint64_t missing = x_bits - back_bits;
    uint32_t towards_x = (uint32_t)(0 - (missing >> 63)) | 1; /* -1 or 1 */
    uint32_t is_wrong = (uint32_t)(missing != 0) & ~bits & 1; /* not exact, and even */
    return gmi_f32_of_bits(bits + gmi_pick(is_wrong, towards_x, 0));
}

static inline uint16_t gmi_bf16_of_f32(float x)
{
    uint32_t bits = gmi_bits_of_f32(x), is_nan = (bits & 0x7fffffff) > UINT32_C(0x7f800000);
    return (uint16_t)gmi_pick(is_nan, GMI_NAN_BF16, (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t gmi_f16_of_f32(float x)
{
    uint32_t bits = gmi_bits_of_f32(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t is_nan = magnitude > UINT32_C(0x7f800000), is_small = magnitude < (UINT32_C(113) << 23);
    uint32_t largest = UINT32_C(143) << 23; /* 2^16 and above: Inf, as rounding up from below gives too */
    uint32_t clamped = magnitude < largest ? magnitude : largest;
    uint32_t normal = (clamped - (UINT32_C(112) << 23) + 0xfff + (clamped >> 13 & 1)) >> 13;
    /* Below 2^-14: in 0.5 + x the last bit is 2^-24, the unit of subnormal f16, and the addition rounds. */
    uint32_t small = gmi_bits_of_f32(gmi_f32_of_bits(magnitude) + 0.5f) - UINT32_C(0x3f000000);
    return (uint16_t)gmi_pick(is_nan, GMI_NAN_F16, gmi_pick(is_small, small, normal) | sign);
}

static inline uint16_t gmi_bf16_of_f64(double x) { return gmi_bf16_of_f32(gmi_f32_odd_of_f64(x)); }
static inline uint16_t gmi_f16_of_f64(double x) { return gmi_f16_of_f32(gmi_f32_odd_of_f64(x)); }

#endif
