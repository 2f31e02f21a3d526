/* floats.c - the kernels of f32 and f64.
 *
 * Two rules, so that the result does not depend on who adds what to what:
 *   - a NaN result is the canonical quiet NaN (the hardware would keep the first operand's payload);
 *   - min and max propagate NaN, and order -0 below +0 (comparison operators do neither).
 *
 * min and max compare the bits as integers: flipping the lower bits of a negative number makes
 * the order of the integers that of the floats, with -0 just below +0. That vectorizes, too. */
#include "reduce/kernels.h"

#include <string.h>

#include "base/simd.h"

/* ---- one element ------------------------------------------------------------------------------- */

static inline uint32_t bits_f32(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static inline uint64_t bits_f64(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }
static inline float    float_of(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
static inline double   double_of(uint64_t u) { double x; memcpy(&x, &u, sizeof x); return x; }

#define NAN_F32 UINT32_C(0x7fc00000)
#define NAN_F64 UINT64_C(0x7ff8000000000000)

static inline float  canonical_f32(float x) { return x == x ? x : float_of(NAN_F32); }
static inline double canonical_f64(double x) { return x == x ? x : double_of(NAN_F64); }

static inline int32_t order_f32(uint32_t u) { return (int32_t)(u ^ ((0u - (u >> 31)) >> 1)); }
static inline int64_t order_f64(uint64_t u) { return (int64_t)(u ^ ((UINT64_C(0) - (u >> 63)) >> 1)); }

static inline float sum_f32(float a, float b) { return canonical_f32(a + b); }
static inline float prod_f32(float a, float b) { return canonical_f32(a * b); }
static inline float min_f32(float a, float b)
{
    uint32_t x = bits_f32(a), y = bits_f32(b);
    uint32_t least = order_f32(x) < order_f32(y) ? x : y;
    return float_of(((a != a) | (b != b)) ? NAN_F32 : least);
}
static inline float max_f32(float a, float b)
{
    uint32_t x = bits_f32(a), y = bits_f32(b);
    uint32_t most = order_f32(x) > order_f32(y) ? x : y;
    return float_of(((a != a) | (b != b)) ? NAN_F32 : most);
}

static inline double sum_f64(double a, double b) { return canonical_f64(a + b); }
static inline double prod_f64(double a, double b) { return canonical_f64(a * b); }
static inline double min_f64(double a, double b)
{
    uint64_t x = bits_f64(a), y = bits_f64(b);
    uint64_t least = order_f64(x) < order_f64(y) ? x : y;
    return double_of(((a != a) | (b != b)) ? NAN_F64 : least);
}
static inline double max_f64(double a, double b)
{
    uint64_t x = bits_f64(a), y = bits_f64(b);
    uint64_t most = order_f64(x) > order_f64(y) ? x : y;
    return double_of(((a != a) | (b != b)) ? NAN_F64 : most);
}

/* ---- arrays ------------------------------------------------------------------------------------ */

#define DEFINE_COMBINE(name, type)                                                                \
    GMI_SIMD static void combine_##name(void *out, const void *a, const void *b, size_t count)    \
    {                                                                                             \
        type       *to = out;                                                                     \
        const type *x = a, *y = b;                                                                \
        GMI_INDEPENDENT                                                                           \
        for (size_t i = 0; i < count; i++) to[i] = name(x[i], y[i]);                              \
    }

DEFINE_COMBINE(sum_f32, float)
DEFINE_COMBINE(prod_f32, float)
DEFINE_COMBINE(min_f32, float)
DEFINE_COMBINE(max_f32, float)
DEFINE_COMBINE(sum_f64, double)
DEFINE_COMBINE(prod_f64, double)
DEFINE_COMBINE(min_f64, double)
DEFINE_COMBINE(max_f64, double)

#define DEFINE_FLOAT(type, suffix)                                                                \
    GMI_SIMD static void divide_##suffix(void *values, size_t count, int divisor)                 \
    {                                                                                             \
        type *v = values, by = (type)divisor;                                                     \
        for (size_t i = 0; i < count; i++) v[i] = canonical_##suffix(v[i] / by);                  \
    }                                                                                             \
    GMI_SIMD static void canonicalize_##suffix(void *values, size_t count)                        \
    {                                                                                             \
        type *v = values;                                                                         \
        for (size_t i = 0; i < count; i++) v[i] = canonical_##suffix(v[i]);                       \
    }

DEFINE_FLOAT(float, f32)
DEFINE_FLOAT(double, f64)

#define ROW(suffix)                                                                               \
    const struct gmi_kernels gmi_kernels_##suffix = {                                             \
        .combine = { [GM_SUM] = combine_sum_##suffix, [GM_PROD] = combine_prod_##suffix,          \
                     [GM_MIN] = combine_min_##suffix, [GM_MAX] = combine_max_##suffix,            \
                     [GM_AVG] = combine_sum_##suffix },                                           \
        .divide = divide_##suffix,                                                                \
        .canonicalize = canonicalize_##suffix,                                                    \
    };

ROW(f32)
ROW(f64)
