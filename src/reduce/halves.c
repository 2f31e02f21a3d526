/* halves.c - the kernels of f16 and bf16.
 *
 * Sums, products and averages see all contributions at once: they are taken in f64 and rounded once, block by
 * block, so that what is in between stays in the first-level cache. min and max are exact, so they go two by two
 * like those of the wider floats, on the bits (floats.c). */
#include "reduce/kernels.h"

#include "base/bytes.h"
#include "base/simd.h"
#include "reduce/half.h"
#include "reduce/half_arrays.h"

enum { BLOCK_ELEMS = 512 };

/* ---- loops over a block ------------------------------------------------------------------------- */

GMI_SIMD static void set(double *to, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] = x[i];
}
GMI_SIMD static void add(double *to, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] += x[i];
}
GMI_SIMD static void multiply(double *to, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] *= x[i];
}
GMI_SIMD static void divide(double *values, size_t count, double by)
{
    for (size_t i = 0; i < count; i++) values[i] /= by;
}
GMI_SIMD static void round_to_odd(float *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] = gmi_f32_odd_of_f64(x[i]);
}
GMI_SIMD static void add_pair(float *to, const float *x, float scale, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] = to[i] * scale + x[i] * scale;
}

/* ---- all contributions ------------------------------------------------------------------------- */

struct task {
    const struct gmi_half_format   *format;
    const struct gmi_contributions *c;
    gm_redop                        redop; /* GM_SUM, GM_AVG or GM_PROD */
};

static void combine_block(const struct task *task, uint16_t *to, size_t at, size_t count)
{
    double values[BLOCK_ELEMS];
    float  wide[BLOCK_ELEMS];
    int    n = task->c->n;
    for (int k = 0; k < n; k++) {
        task->format->widen(wide, gmi_contribution(task->c, k, at * sizeof *to), count);
        if (k == 0) {
            set(values, wide, count);
        } else if (task->redop == GM_PROD) {
            multiply(values, wide, count);
        } else {
            add(values, wide, count);
        }
    }
    if (task->redop == GM_AVG) divide(values, count, n);
    round_to_odd(wide, values, count);
    task->format->narrow(to, wide, count);
}

/* Two summands can be added in f32, four times as fast and to the same bits: it has at least 2p + 2 bits, p being
 * those of the half format, and then rounding a sum twice is rounding it once (Figueroa, "When is double rounding
 * innocuous?", SIGNUM Newsletter 30, 1995). Halving first is exact, and keeps an average from overflowing. */
static void add_block_of_two(const struct task *task, uint16_t *to, size_t at, size_t count)
{
    float sum[BLOCK_ELEMS], other[BLOCK_ELEMS];
    task->format->widen(sum, gmi_contribution(task->c, 0, at * sizeof *to), count);
    task->format->widen(other, gmi_contribution(task->c, 1, at * sizeof *to), count);
    add_pair(sum, other, task->redop == GM_AVG ? 0.5f : 1.0f, count);
    task->format->narrow(to, sum, count);
}

static void combine_all(void *out, size_t count, const struct task *task)
{
    uint16_t *to = out;
    bool      is_sum_of_two = task->c->n == 2 && task->redop != GM_PROD;
    for (size_t at = 0; at < count; at += BLOCK_ELEMS) {
        size_t here = gmi_min_size(BLOCK_ELEMS, count - at);
        if (is_sum_of_two) {
            add_block_of_two(task, to + at, at, here);
        } else {
            combine_block(task, to + at, at, here);
        }
    }
}

#define DEFINE_COMBINE_ALL(suffix, name, redop)                                                   \
    static void name##_##suffix(void *out, const struct gmi_contributions *c, size_t count)       \
    {                                                                                             \
        combine_all(out, count, &(struct task){ gmi_half_##suffix(), c, redop });                 \
    }

DEFINE_COMBINE_ALL(f16, sum, GM_SUM)
DEFINE_COMBINE_ALL(f16, average, GM_AVG)
DEFINE_COMBINE_ALL(f16, prod, GM_PROD)
DEFINE_COMBINE_ALL(bf16, sum, GM_SUM)
DEFINE_COMBINE_ALL(bf16, average, GM_AVG)
DEFINE_COMBINE_ALL(bf16, prod, GM_PROD)

/* ---- two by two -------------------------------------------------------------------------------- */

#define INF_F16 0x7c00
#define INF_BF16 0x7f80

/* Flipping the lower bits of negative numbers makes the order of the integers that of the floats. */
static inline int16_t order(uint16_t u) { return (int16_t)(u ^ (uint16_t)((int16_t)u >> 15 & 0x7fff)); }

static inline bool is_nan(uint16_t u, uint16_t inf) { return (u & 0x7fff) > inf; }

static inline uint16_t lesser(uint16_t a, uint16_t b) { return order(a) < order(b) ? a : b; }
static inline uint16_t greater(uint16_t a, uint16_t b) { return order(a) > order(b) ? a : b; }

#define DEFINE_COMBINE(name, choose, inf, nan)                                                    \
    GMI_SIMD static void name(void *out, const void *a, const void *b, size_t count)              \
    {                                                                                             \
        uint16_t       *to = out;                                                                 \
        const uint16_t *x = a, *y = b;                                                            \
        GMI_INDEPENDENT                                                                           \
        for (size_t i = 0; i < count; i++) {                                                      \
            uint16_t p = x[i], q = y[i], chosen = choose(p, q);                                   \
            to[i] = (is_nan(p, inf) | is_nan(q, inf)) ? nan : chosen;                             \
        }                                                                                         \
    }

#define DEFINE_ORDERED(suffix, inf, nan)                                                          \
    DEFINE_COMBINE(min_##suffix, lesser, inf, nan)                                                \
    DEFINE_COMBINE(max_##suffix, greater, inf, nan)                                               \
    GMI_SIMD static void canonicalize_##suffix(void *values, size_t count)                        \
    {                                                                                             \
        uint16_t *v = values;                                                                     \
        for (size_t i = 0; i < count; i++) v[i] = is_nan(v[i], inf) ? nan : v[i];                 \
    }

DEFINE_ORDERED(f16, INF_F16, GMI_NAN_F16)
DEFINE_ORDERED(bf16, INF_BF16, GMI_NAN_BF16)

/* ---- rows -------------------------------------------------------------------------------------- */

#define ROW(suffix)                                                                               \
    const struct gmi_kernels gmi_kernels_##suffix = {                                             \
        .combine = { [GM_MIN] = min_##suffix, [GM_MAX] = max_##suffix },                          \
        .combine_all = { [GM_SUM] = sum_##suffix, [GM_AVG] = average_##suffix,                    \
                         [GM_PROD] = prod_##suffix },                                             \
        .canonicalize = canonicalize_##suffix,                                                    \
    };

ROW(f16)
ROW(bf16)
