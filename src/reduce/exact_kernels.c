#include "reduce/exact_kernels.h"

#include <string.h>

#include "base/simd.h"

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double   x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

struct gmi_window gmi_window_of(int quantum_exponent, int bits)
{
    double magic = power_of_two(52) + power_of_two(bits - 1);
    return (struct gmi_window){ .quantum_exponent = quantum_exponent,
                                .bits = bits,
                                .per_quantum = power_of_two(-quantum_exponent),
                                .magic = magic,
                                .magic_bits = bits_of(magic),
                                .least_less_1 = ((uint32_t)(quantum_exponent + 150) << 23) - 1,
                                .most_less_1 = ((uint32_t)(quantum_exponent + bits + 126) << 23) - 1 };
}

/* ---- adding -------------------------------------------------------------------------------------- *
 *
 * y = x * 2^-q is exact in double. t = y + magic has its last bit worth 1 if it lies in [2^52, 2^53), so:
 *   - t - magic is y rounded to a whole number; the same as y if that is one;
 *   - y is in [-2^(bits-1), 2^(bits-1)) exactly if t is in [2^52, 2^52 + 2^bits): its bits from number `bits` on are
 *     those of 2^52. Those of infinities, NaNs and what is too large are others;
 *   - then the bits of t less those of magic are the number. */

#define BITS_OF_2_TO_52 UINT64_C(0x4330000000000000)

static inline bool add_one(uint64_t *lane, float x, const struct gmi_window *w)
{
    double   y = (double)x * w->per_quantum, t = y + w->magic;
    uint64_t bits = bits_of(t);
    if ((bits ^ BITS_OF_2_TO_52) >> w->bits != 0 || t - w->magic != y) return false;
    *lane += bits - w->magic_bits;
    return true;
}

static inline size_t add_each(uint64_t *lanes, const float *x, size_t count, const struct gmi_window *w, uint32_t index,
                              uint64_t *spilled)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if (!add_one(&lanes[i], x[i], w)) spilled[n++] = gmi_spill(index + (uint32_t)i, bits);
    }
    return n;
}

static size_t add_plain(uint64_t *lanes, const float *x, size_t count, const struct gmi_window *w, uint32_t index,
                        uint64_t *spilled)
{
    return add_each(lanes, x, count, w, index, spilled);
}

static const struct gmi_exact_kernels plain = { "plain", add_plain };

/* Several numbers at a time, in vectors of the compiler's, so that one text serves all widths. A group of numbers goes
 * into its lanes at once if a look at their exponents says that all fit: each is 0, or its last bit is worth a quantum at
 * least and it is not too large. Of magnitudes less 1 a 0 is the largest, so two bounds are enough to see it. A group
 * that may not fit is added with care, and one that does not, one by one.
 *
 * "vectors" is never chosen: it shows on every machine what "avx512" computes. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_VECTORS 1

#include <immintrin.h>

#define MAGNITUDE UINT32_C(0x7fffffff)

/* WIDTH doubles in a vector, or as many words, or twice as many halves; WIDEN(p): from floats; IS_ANY(v): is a bit set?
 * LEAST, MOST(a, b): of halves; FUSED(a, b, c): a * b + c, of which a * b is exact, so that it does not matter how. */
#define DEFINE_ADD(suffix, WIDTH, TARGET, WIDEN, FUSED, IS_ANY, LEAST, MOST)                       \
    typedef double   doubles_##suffix __attribute__((vector_size(WIDTH * 8)));                     \
    typedef uint64_t words_##suffix __attribute__((vector_size(WIDTH * 8)));                       \
    typedef uint32_t halves_##suffix __attribute__((vector_size(WIDTH * 8)));                      \
    typedef uint32_t floats_##suffix __attribute__((vector_size(WIDTH * 8), aligned(4), may_alias));    \
    typedef uint64_t lanes_##suffix __attribute__((vector_size(WIDTH * 8), aligned(8), may_alias));     \
    TARGET static size_t add_##suffix(uint64_t *lanes, const float *x, size_t count, const struct gmi_window *w, \
                                      uint32_t index, uint64_t *spilled)                           \
    {                                                                                              \
        enum { VECTORS = 4, GROUP = VECTORS * WIDTH };                                             \
        const doubles_##suffix per_quantum = w->per_quantum - (doubles_##suffix){ 0 };             \
        const doubles_##suffix magic = w->magic - (doubles_##suffix){ 0 };                         \
        const words_##suffix   magic_bits = w->magic_bits - (words_##suffix){ 0 };                 \
        const words_##suffix   expected = BITS_OF_2_TO_52 - (words_##suffix){ 0 };                 \
        const halves_##suffix  least = w->least_less_1 - (halves_##suffix){ 0 };                   \
        const halves_##suffix  most = w->most_less_1 - (halves_##suffix){ 0 };                     \
        const int              bits = w->bits;                                                     \
        size_t                 i = 0, n = 0;                                                       \
        for (; count - i >= GROUP; i += GROUP) {                                                   \
            halves_##suffix low = most, high = { 0 };                                              \
            doubles_##suffix sums[VECTORS];                                                        \
            for (int v = 0; v < VECTORS / 2; v++) {                                                \
                halves_##suffix m = *(const floats_##suffix *)(const void *)(x + i + v * 2 * WIDTH) & MAGNITUDE; \
                low = LEAST(low, m - 1);                                                           \
                high = MOST(high, m);                                                              \
            }                                                                                      \
            for (int v = 0; v < VECTORS; v++) {                                                    \
                sums[v] = FUSED((doubles_##suffix)WIDEN(x + i + v * WIDTH), per_quantum, magic);    \
            }                                                                                      \
            if (__builtin_expect(IS_ANY((low < least) | (high > most)), 0)) {                      \
                words_##suffix bad = { 0 };                                                        \
                for (int v = 0; v < VECTORS; v++) {                                                \
                    doubles_##suffix y = (doubles_##suffix)WIDEN(x + i + v * WIDTH) * per_quantum; \
                    bad |= ((words_##suffix)sums[v] ^ expected) >> bits;                           \
                    bad |= (words_##suffix)((sums[v] - magic) != y);                               \
                }                                                                                  \
                if (IS_ANY(bad)) {                                                                 \
                    n += add_each(lanes + i, x + i, GROUP, w, index + (uint32_t)i, spilled + n);   \
                    continue;                                                                      \
                }                                                                                  \
            }                                                                                      \
            for (int v = 0; v < VECTORS; v++) {                                                    \
                *(lanes_##suffix *)(void *)(lanes + i + v * WIDTH) += (words_##suffix)sums[v] - magic_bits; \
            }                                                                                      \
        }                                                                                          \
        return n + add_each(lanes + i, x + i, count - i, w, index + (uint32_t)i, spilled + n);     \
    }                                                                                              \
    static const struct gmi_exact_kernels suffix = { #suffix, add_##suffix };

#define WIDEN_4(p) _mm256_cvtps_pd(_mm_loadu_ps(p))
#define IS_ANY_4(v) (!_mm256_testz_si256((__m256i)(v), (__m256i)(v)))
#define LEAST_4(a, b) (halves_avx2) _mm256_min_epu32((__m256i)(a), (__m256i)(b))
#define MOST_4(a, b) (halves_avx2) _mm256_max_epu32((__m256i)(a), (__m256i)(b))
#define FUSED_4(a, b, c) (doubles_avx2) _mm256_fmadd_pd(a, b, c)
DEFINE_ADD(avx2, 4, __attribute__((target("avx2,fma"))), WIDEN_4, FUSED_4, IS_ANY_4, LEAST_4, MOST_4)

#define WIDEN_8(p) _mm512_cvtps_pd(_mm256_loadu_ps(p))
#define IS_ANY_8(v) (_mm512_test_epi64_mask((__m512i)(v), (__m512i)(v)) != 0)
#define LEAST_8(a, b) (halves_avx512) _mm512_min_epu32((__m512i)(a), (__m512i)(b))
#define MOST_8(a, b) (halves_avx512) _mm512_max_epu32((__m512i)(a), (__m512i)(b))
#define FUSED_8(a, b, c) (doubles_avx512) _mm512_fmadd_pd(a, b, c)
DEFINE_ADD(avx512, 8, __attribute__((target("avx512f"))), WIDEN_8, FUSED_8, IS_ANY_8, LEAST_8, MOST_8)

typedef float eight_floats __attribute__((vector_size(32), aligned(4), may_alias));
#define WIDEN_ANY(p) __builtin_convertvector(*(const eight_floats *)(const void *)(p), doubles_vectors)
#define OR_OF(w) (((w)[0] | (w)[1] | (w)[2] | (w)[3] | (w)[4] | (w)[5] | (w)[6] | (w)[7]) != 0)
#define IS_ANY_OF(v) OR_OF((words_vectors)(v))
#define LEAST_OF(a, b) (((a) & (halves_vectors)((a) < (b))) | ((b) & (halves_vectors)((a) >= (b))))
#define MOST_OF(a, b) (((a) & (halves_vectors)((a) > (b))) | ((b) & (halves_vectors)((a) <= (b))))
#define FUSED_ANY(a, b, c) ((a) * (b) + (c))
DEFINE_ADD(vectors, 8, /* of any machine */, WIDEN_ANY, FUSED_ANY, IS_ANY_OF, LEAST_OF, MOST_OF)

static bool has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

static bool has_c(void) { return true; }

/* The best first. */
static const struct {
    const struct gmi_exact_kernels *kernels;
    bool (*is_supported)(void);
} rows[] = {
#ifdef HAS_VECTORS
    { &avx512, has_avx512 },
    { &avx2, has_avx2 },
#endif
    { &plain, has_c },
#ifdef HAS_VECTORS
    { &vectors, has_c },
#endif
};

const struct gmi_exact_kernels *gmi_exact_kernels_row(size_t index)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_supported() && index-- == 0) return rows[i].kernels;
    }
    return NULL;
}

const struct gmi_exact_kernels *gmi_exact_kernels(void) { return gmi_exact_kernels_row(0); }

/* ---- rounding ------------------------------------------------------------------------------------ */

/* From 64 bits to 24 in one step, and then by a power of two, which is exact: the least result that is not zero is
 * 2^-126, a normal number. By way of double it would be rounded twice. */
GMI_SIMD void gmi_exact_round(float *out, const uint64_t *lanes, size_t count, int quantum_exponent)
{
    float quantum = (float)power_of_two(quantum_exponent);
    for (size_t i = 0; i < count; i++) out[i] = (float)(int64_t)lanes[i] * quantum;
}
