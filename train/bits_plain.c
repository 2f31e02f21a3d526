/* The innermost loops without any instruction set in mind: for other processors, and for x86-64
 * before 2013, which has no fused multiply-add. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET
#define LANES 4
#define STRIP 4
#define NV    1
typedef float vfloat __attribute__((vector_size(16)));
typedef uint32_t vbits __attribute__((vector_size(16)));
typedef double vdouble __attribute__((vector_size(32)));
typedef int64_t vlong __attribute__((vector_size(32)));

static inline vfloat broadcast(float x)
{
    return (vfloat){ x, x, x, x };
}

#ifdef __FP_FAST_FMAF
static inline vfloat fused(vfloat a, vfloat b, vfloat c)
{
    for (int l = 0; l < LANES; l++) c[l] = __builtin_fmaf(a[l], b[l], c[l]);
    return c;
}
#else
/* fmaf without a function call for each element. A product of floats is exact in double; its sum
 * with c is rounded to odd: if it was inexact (the error of a sum is exact, Knuth, TAOCP 4.2.2) and
 * the last bit is even, the neighbour on the exact sum's side has an odd one. Rounding that to
 * float is rounding the exact sum once (Boldo, Melquiond, "Emulation of a FMA and correctly rounded
 * sums", 2008). An infinity's error is a NaN, which changes nothing. */
static inline vfloat fused(vfloat a, vfloat b, vfloat c)
{
    vdouble product = __builtin_convertvector(a, vdouble) * __builtin_convertvector(b, vdouble);
    vdouble addend = __builtin_convertvector(c, vdouble);
    vdouble sum = product + addend;
    vdouble part = sum - product;
    vdouble error = (product - (sum - part)) + (addend - part);
    vlong bits = (vlong)sum;
    vlong is_upward = (vlong)(error > 0) & 1, is_downward = (vlong)(error < 0) & 1;
    vlong is_negative = (vlong)(sum < 0); /* -1: away from 0 is down */
    vlong step = (is_upward - is_downward) * (is_negative | 1);
    bits += step & -(~bits & 1);
    return __builtin_convertvector((vdouble)bits, vfloat);
}
#endif
#define fused64(a, b, c) fma(a, b, c)

#define BLOCK_J 4
#define BLOCK_K 4
static inline void transpose_block(const float *from, size_t from_stride, float *to,
                                   size_t to_stride)
{
    for (size_t k = 0; k < BLOCK_K; k++)
        for (size_t j = 0; j < BLOCK_J; j++) to[k * to_stride + j] = from[j * from_stride + k];
}

static _Bool runs_here(void)
{
    return 1;
}

#define VARIANT      gmt_bits_plain
#define VARIANT_NAME "plain"
#define VARIANT_RUNS runs_here
#include "train/bits_kernel.h"
