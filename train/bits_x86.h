/* bits_x86.h - what the variants for AVX2 and AVX-512 share. */
#ifndef GMT_BITS_X86_H
#define GMT_BITS_X86_H

#include <immintrin.h>
#include <stddef.h>

#define BLOCK 8

/* Eight rows of eight, in three rounds that exchange neighbours 1, 2 and 4 apart. */
static inline __attribute__((always_inline, target("avx2"))) void
transpose_block(const float *from, size_t from_stride, float *to, size_t to_stride)
{
    __m256 row[8], pair[8], quad[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) row[i] = _mm256_loadu_ps(from + (size_t)i * from_stride);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            quad[i + 2 * h] = _mm256_shuffle_ps(pair[i + h], pair[i + 2 + h], 0x44);
            quad[i + 2 * h + 1] = _mm256_shuffle_ps(pair[i + h], pair[i + 2 + h], 0xee);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + (size_t)i * to_stride,
                         _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
        _mm256_storeu_ps(to + (size_t)(i + 4) * to_stride,
                         _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
    }
}

#endif
