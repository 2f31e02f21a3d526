/* bits_x86.h - what the variants for AVX2 and AVX-512 share. */
#ifndef GMT_BITS_X86_H
#define GMT_BITS_X86_H

#include <immintrin.h>
#include <stddef.h>

#define BLOCK_J 8
#define BLOCK_K 4

/* Eight rows of four. Rows 0 to 3 are loaded into the lower halves and rows 4 to 7 into the upper
 * halves, so that no value has to cross from one half to the other, which is slow on some
 * processors.
 */
static inline __attribute__((always_inline, target("avx2"))) void
transpose_block(const float *from, size_t from_stride, float *to, size_t to_stride)
{
    const float *upper = from + 4 * from_stride;
    __m256 row[4], low[2], high[2];
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++)
        row[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + j * from_stride)),
                                      _mm_loadu_ps(upper + j * from_stride), 1);
#pragma GCC unroll 2
    for (size_t j = 0; j < 2; j++) {
        low[j] = _mm256_unpacklo_ps(row[2 * j], row[2 * j + 1]);
        high[j] = _mm256_unpackhi_ps(row[2 * j], row[2 * j + 1]);
    }
    _mm256_storeu_ps(to, _mm256_shuffle_ps(low[0], low[1], 0x44));
    _mm256_storeu_ps(to + to_stride, _mm256_shuffle_ps(low[0], low[1], 0xee));
    _mm256_storeu_ps(to + 2 * to_stride, _mm256_shuffle_ps(high[0], high[1], 0x44));
    _mm256_storeu_ps(to + 3 * to_stride, _mm256_shuffle_ps(high[0], high[1], 0xee));
}

#endif
