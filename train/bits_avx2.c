/* The innermost loops with AVX2 and FMA: 16 registers of 8 floats, 12 of them sums. */
#if defined(__x86_64__)
#include "train/bits_x86.h"

#define TARGET __attribute__((target("avx2,fma")))
#define LANES  8
#define STRIP  6
#define NV     2
typedef __m256 vfloat;
typedef unsigned vbits __attribute__((vector_size(32)));
#define broadcast(x)     _mm256_set1_ps(x)
#define fused(a, b, c)   _mm256_fmadd_ps(a, b, c)
#define fused64(a, b, c) __builtin_fma(a, b, c)

static _Bool runs_here(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#define VARIANT      gmt_bits_avx2
#define VARIANT_NAME "avx2"
#define VARIANT_RUNS runs_here
#include "train/bits_kernel.h"
#endif
