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
                                .magic_bits = bits_of(magic) };
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

/* Several numbers at a time: a group goes into its lanes if all of it fits, else one by one. In vectors of the compiler's,
 * so that one text serves all widths; "vectors" is for machines of which nothing better is known, and shows what "avx512"
 * computes on those that lack it. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_VECTORS 1

#include <immintrin.h>

/* WIDTH doubles in a vector; WIDEN(p): from floats; IS_ANY(v): is a bit set? */
#define DEFINE_ADD(suffix, WIDTH, TARGET, WIDEN, IS_ANY)                                           \
    typedef float    floats_##suffix __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));    \
    typedef double   doubles_##suffix __attribute__((vector_size(WIDTH * 8)));                     \
    typedef uint64_t words_##suffix __attribute__((vector_size(WIDTH * 8)));                       \
    typedef uint64_t lanes_##suffix __attribute__((vector_size(WIDTH * 8), aligned(8), may_alias));     \
    TARGET static size_t add_##suffix(uint64_t *lanes, const float *x, size_t count, const struct gmi_window *w, \
                                      uint32_t index, uint64_t *spilled)                           \
    {                                                                                              \
        enum { VECTORS = 4, GROUP = VECTORS * WIDTH };                                             \
        const doubles_##suffix per_quantum = w->per_quantum - (doubles_##suffix){ 0 };             \
        const doubles_##suffix magic = w->magic - (doubles_##suffix){ 0 };                         \
        const words_##suffix   magic_bits = w->magic_bits - (words_##suffix){ 0 };                 \
        const words_##suffix   expected = BITS_OF_2_TO_52 - (words_##suffix){ 0 };                 \
        const int              bits = w->bits;                                                     \
        size_t                 i = 0, n = 0;                                                       \
        for (; count - i >= GROUP; i += GROUP) {                                                   \
            words_##suffix quanta[VECTORS], unlike = { 0 }, inexact = { 0 };                       \
            for (int v = 0; v < VECTORS; v++) {                                                    \
                doubles_##suffix y = (doubles_##suffix)WIDEN(x + i + v * WIDTH) * per_quantum;     \
                doubles_##suffix t = y + magic;                                                    \
                unlike |= (words_##suffix)t ^ expected;                                            \
                inexact |= (words_##suffix)((t - magic) != y);                                     \
                quanta[v] = (words_##suffix)t - magic_bits;                                        \
            }                                                                                      \
            inexact |= unlike >> bits;                                                             \
            if (__builtin_expect(IS_ANY(inexact), 0)) {                                            \
                n += add_each(lanes + i, x + i, GROUP, w, index + (uint32_t)i, spilled + n);       \
                continue;                                                                          \
            }                                                                                      \
            for (int v = 0; v < VECTORS; v++) {                                                    \
                *(lanes_##suffix *)(void *)(lanes + i + v * WIDTH) += quanta[v];                   \
            }                                                                                      \
        }                                                                                          \
        return n + add_each(lanes + i, x + i, count - i, w, index + (uint32_t)i, spilled + n);     \
    }                                                                                              \
    static const struct gmi_exact_kernels suffix = { #suffix, add_##suffix };

#define WIDEN_4(p) _mm256_cvtps_pd(_mm_loadu_ps(p))
#define IS_ANY_4(v) (!_mm256_testz_si256((__m256i)(v), (__m256i)(v)))
DEFINE_ADD(avx2, 4, __attribute__((target("avx2"))), WIDEN_4, IS_ANY_4)

#define WIDEN_8(p) _mm512_cvtps_pd(_mm256_loadu_ps(p))
#define IS_ANY_8(v) (_mm512_test_epi64_mask((__m512i)(v), (__m512i)(v)) != 0)
DEFINE_ADD(avx512, 8, __attribute__((target("avx512f"))), WIDEN_8, IS_ANY_8)

#define WIDEN_ANY(p) __builtin_convertvector(*(const floats_vectors *)(const void *)(p), doubles_vectors)
#define IS_ANY_OF(v) (((v)[0] | (v)[1] | (v)[2] | (v)[3] | (v)[4] | (v)[5] | (v)[6] | (v)[7]) != 0)
DEFINE_ADD(vectors, 8, /* of any machine */, WIDEN_ANY, IS_ANY_OF)

static bool has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }
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
    { &vectors, has_c },
#endif
    { &plain, has_c },
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
