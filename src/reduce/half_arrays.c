#include "reduce/half_arrays.h"

#include "base/simd.h"
#include "reduce/half.h"

/* ---- plain C ----------------------------------------------------------------------------------- */

#define DEFINE_PLAIN(suffix)                                                                      \
    GMI_SIMD static void widen_##suffix(float *to, const uint16_t *from, size_t count)            \
    {                                                                                             \
        for (size_t i = 0; i < count; i++) to[i] = gmi_f32_of_##suffix(from[i]);                  \
    }                                                                                             \
    GMI_SIMD static void narrow_##suffix(uint16_t *to, const float *from, size_t count)           \
    {                                                                                             \
        for (size_t i = 0; i < count; i++) to[i] = gmi_##suffix##_of_f32(from[i]);                \
    }

DEFINE_PLAIN(f16)
DEFINE_PLAIN(bf16)

const struct gmi_half_format gmi_half_f16_plain = { widen_f16, narrow_f16 };
static const struct gmi_half_format bf16 = { widen_bf16, narrow_bf16 };

const struct gmi_half_format *gmi_half_bf16(void) { return &bf16; }

/* ---- x86 with F16C and AVX2, eight at a time ------------------------------------------------------ *
 *
 * Chosen at run time, which clang cannot do for F16C; it gets the plain way, as it does in base/simd.h. */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

#define F16C __attribute__((target("avx2,f16c")))

F16C static void widen_by_f16c(float *to, const uint16_t *from, size_t count)
{
    size_t i = 0;
    for (; count - i >= 8; i += 8) {
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
    }
    for (; i < count; i++) to[i] = gmi_f32_of_f16(from[i]);
}

F16C static void narrow_by_f16c(uint16_t *to, const float *from, size_t count)
{
    const __m256 nan = _mm256_set1_ps(__builtin_nanf(""));
    size_t       i = 0;
    for (; count - i >= 8; i += 8) {
        __m256 x = _mm256_loadu_ps(from + i);
        x = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < count; i++) to[i] = gmi_f16_of_f32(from[i]);
}

const struct gmi_half_format *gmi_half_f16(void)
{
    static const struct gmi_half_format by_f16c = { widen_by_f16c, narrow_by_f16c };
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") ? &by_f16c : &gmi_half_f16_plain;
}

/* ---- ARM, whose every 64-bit processor converts f16; the compiler vectorizes ---------------------- */

#elif defined(__aarch64__) && defined(__FLT16_MANT_DIG__)

static void widen_by_type(float *to, const uint16_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        _Float16 x;
        memcpy(&x, &from[i], sizeof x);
        to[i] = (float)x;
    }
}

static void narrow_by_type(uint16_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        _Float16 x = (_Float16)(from[i] == from[i] ? from[i] : __builtin_nanf(""));
        memcpy(&to[i], &x, sizeof x);
    }
}

const struct gmi_half_format *gmi_half_f16(void)
{
    static const struct gmi_half_format by_type = { widen_by_type, narrow_by_type };
    return &by_type;
}

#else

const struct gmi_half_format *gmi_half_f16(void) { return &gmi_half_f16_plain; }

#endif
