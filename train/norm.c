#include "train/norm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/simd.h"

/* Partial sums side by side, so that the loop vectorises: a fixed number of them, not one for each lane that a
 * processor has. */
enum { N_SUMS = 16 };

GMI_SIMD double gmt_norm(const float *values, size_t n)
{
    double sums[N_SUMS] = { 0 }, total = 0;
    size_t whole = n / N_SUMS * N_SUMS;
    for (size_t i = 0; i < whole; i += N_SUMS)
        for (size_t k = 0; k < N_SUMS; k++) sums[k] += (double)values[i + k] * (double)values[i + k];
    for (size_t i = whole; i < n; i++) sums[i - whole] += (double)values[i] * (double)values[i];
    for (size_t k = 0; k < N_SUMS; k++) total += sums[k];
    return sqrt(total);
}

double gmt_clip(float *values, size_t n, double max_norm)
{
    double norm = gmt_norm(values, n);
    if (norm > max_norm) (void)gmt_scale(values, n, (float)(max_norm / norm));
    return norm;
}

/* Looks at the exponent bits, without a branch for each element. */
GMI_SIMD bool gmt_scale(float *values, size_t n, float factor)
{
    uint32_t n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        float    scaled = values[i] * factor;
        uint32_t bits;
        memcpy(&bits, &scaled, sizeof bits);
        n_bad |= (bits & 0x7f800000u) == 0x7f800000u;
        values[i] = scaled;
    }
    return n_bad == 0;
}
