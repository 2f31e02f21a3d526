/* The innermost loops with AVX-512: 32 registers of 16 floats, 24 of them sums. */
#if defined(__x86_64__)
#include "train/bits_x86.h"

#define TARGET __attribute__((target("avx512f,avx2,fma")))
#define LANES  16
#define STRIP  12
#define NV     2
typedef __m512 vfloat;
typedef unsigned vbits __attribute__((vector_size(64)));
#define broadcast(x)     _mm512_set1_ps(x)
#define fused(a, b, c)   _mm512_fmadd_ps(a, b, c)
#define fused64(a, b, c) __builtin_fma(a, b, c)

static _Bool runs_here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

#define VARIANT      gmt_bits_avx512
#define VARIANT_NAME "avx512"
#define VARIANT_RUNS runs_here
#include "train/bits_kernel.h"
#endif
