/* integers.c - the kernels of the integer types.
 *
 * Sums and products wrap, computed as unsigned (signed overflow would be undefined). So they are the same for
 * both signs of a width, and so are the bitwise operations; min, max and the average are not.
 *
 * The average adds exactly, in wider integers (128 bits for the 64-bit types), and divides once, rounding to the nearest
 * integer and ties to the even one. */
#include "reduce/kernels.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/simd.h"

#define DEFINE_COMBINE(name, type, expression)                                                    \
    GMI_SIMD static void name(void *out, const void *a_array, const void *b_array, size_t count)  \
    {                                                                                             \
        type       *to = out;                                                                     \
        const type *a = a_array, *b = b_array;                                                    \
        GMI_INDEPENDENT                                                                           \
        for (size_t i = 0; i < count; i++) to[i] = (type)(expression);                            \
    }

/* `wide`: unsigned and at least as wide as int, so that nothing is promoted to a signed type. */
#define DEFINE_UNSIGNED(bits, type, wide)                                                         \
    DEFINE_COMBINE(sum_##bits, type, (wide)a[i] + (wide)b[i])                                     \
    DEFINE_COMBINE(prod_##bits, type, (wide)a[i] * (wide)b[i])                                    \
    DEFINE_COMBINE(band_##bits, type, a[i] & b[i])                                                \
    DEFINE_COMBINE(bor_##bits, type, a[i] | b[i])                                                 \
    DEFINE_COMBINE(bxor_##bits, type, a[i] ^ b[i])

DEFINE_UNSIGNED(8, uint8_t, unsigned)
DEFINE_UNSIGNED(32, uint32_t, uint32_t)
DEFINE_UNSIGNED(64, uint64_t, uint64_t)

#define DEFINE_ORDERED(suffix, type)                                                              \
    DEFINE_COMBINE(min_##suffix, type, a[i] < b[i] ? a[i] : b[i])                                 \
    DEFINE_COMBINE(max_##suffix, type, a[i] > b[i] ? a[i] : b[i])

DEFINE_ORDERED(i8, int8_t)
DEFINE_ORDERED(u8, uint8_t)
DEFINE_ORDERED(i32, int32_t)
DEFINE_ORDERED(u32, uint32_t)
DEFINE_ORDERED(i64, int64_t)
DEFINE_ORDERED(u64, uint64_t)

/* ---- averages ---------------------------------------------------------------------------------- */

enum { BLOCK_ELEMS = 512 }; /* sums of so many elements stay in the first-level cache */

/* Adding this to a double of magnitude below 2^51 rounds it to a whole number, to nearest with ties to even, and
 * leaves that number in the lower bits, in two's complement. */
#define ROUNDER 0x1.8p52

static inline double   double_of(uint64_t u) { double x; memcpy(&x, &u, sizeof x); return x; }
static inline uint64_t bits_of(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }

/* Up to that many ranks a sum of 8-bit numbers fits into 32 bits, and one of 32-bit numbers is a whole number below
 * 2^51. Its quotient in double, off by at most 2^-21, cannot be taken for a tie that it is not: other quotients are
 * 1/(2n) away from one at least. */
enum { MAX_RANKS = 1 << 18 };

/* Exact conversions that vectorize everywhere. */
static inline double double_of_32(int32_t x) { return x; }
static inline double double_of_64(int64_t x) { return double_of((uint64_t)x + bits_of(ROUNDER)) - ROUNDER; }

#define DEFINE_AVERAGE(suffix, type, sum_bits)                                                    \
    GMI_SIMD static void set_##suffix(int##sum_bits##_t *sums, const type *x, size_t count)       \
    {                                                                                             \
        for (size_t i = 0; i < count; i++) sums[i] = x[i];                                        \
    }                                                                                             \
    GMI_SIMD static void add_##suffix(int##sum_bits##_t *sums, const type *x, size_t count)       \
    {                                                                                             \
        for (size_t i = 0; i < count; i++) sums[i] += x[i];                                       \
    }                                                                                             \
    GMI_SIMD static void divide_##suffix(type *to, const int##sum_bits##_t *sums, size_t count, double n) \
    {                                                                                             \
        for (size_t i = 0; i < count; i++) {                                                      \
            to[i] = (type)bits_of(double_of_##sum_bits(sums[i]) / n + ROUNDER);                   \
        }                                                                                         \
    }                                                                                             \
    static void average_##suffix(void *out, const struct gmi_contributions *c, size_t count)      \
    {                                                                                             \
        int##sum_bits##_t sums[BLOCK_ELEMS];                                                      \
        type             *to = out;                                                               \
        GMI_CHECK(c->n <= MAX_RANKS);                                                             \
        for (size_t at = 0; at < count; at += BLOCK_ELEMS) {                                      \
            size_t here = gmi_min_size(BLOCK_ELEMS, count - at);                                  \
            set_##suffix(sums, gmi_contribution(c, 0, at * sizeof(type)), here);                  \
            for (int k = 1; k < c->n; k++) {                                                      \
                add_##suffix(sums, gmi_contribution(c, k, at * sizeof(type)), here);              \
            }                                                                                     \
            divide_##suffix(to + at, sums, here, c->n);                                           \
        }                                                                                         \
    }

DEFINE_AVERAGE(i8, int8_t, 32)
DEFINE_AVERAGE(u8, uint8_t, 32)
DEFINE_AVERAGE(i32, int32_t, 64)
DEFINE_AVERAGE(u32, uint32_t, 64)

/* The nearest integer to sum / n, 0 <= n < 2^31; `floor` and `rest` first, so that rounding is one step up. */
static inline __int128 divided_128(__int128 sum, int n)
{
    __int128 floor;
    int64_t  rest;
    if (sum == (int64_t)sum) { /* as a rule; much faster */
        floor = (int64_t)sum / n;
        rest = (int64_t)sum % n;
    } else {
        floor = sum / n;
        rest = (int64_t)(sum % n);
    }
    if (rest < 0) {
        floor -= 1;
        rest += n;
    }
    bool is_up = 2 * rest > n || (2 * rest == n && floor % 2 != 0);
    return floor + is_up;
}

#define DEFINE_AVERAGE_128(suffix, type)                                                          \
    static void average_##suffix(void *out, const struct gmi_contributions *c, size_t count)      \
    {                                                                                             \
        __int128 sums[BLOCK_ELEMS];                                                               \
        type    *to = out;                                                                        \
        for (size_t at = 0; at < count; at += BLOCK_ELEMS) {                                      \
            size_t here = gmi_min_size(BLOCK_ELEMS, count - at);                                  \
            for (size_t i = 0; i < here; i++) sums[i] = 0;                                        \
            for (int k = 0; k < c->n; k++) {                                                      \
                const type *x = gmi_contribution(c, k, at * sizeof(type));                        \
                for (size_t i = 0; i < here; i++) sums[i] += x[i];                                \
            }                                                                                     \
            for (size_t i = 0; i < here; i++) to[at + i] = (type)divided_128(sums[i], c->n);      \
        }                                                                                         \
    }

DEFINE_AVERAGE_128(i64, int64_t)
DEFINE_AVERAGE_128(u64, uint64_t)

/* ---- rows -------------------------------------------------------------------------------------- */

#define ROW(suffix, bits)                                                                         \
    const struct gmi_kernels gmi_kernels_##suffix = {                                             \
        .combine = { [GM_SUM] = sum_##bits, [GM_PROD] = prod_##bits, [GM_MIN] = min_##suffix,     \
                     [GM_MAX] = max_##suffix, [GM_BAND] = band_##bits, [GM_BOR] = bor_##bits,     \
                     [GM_BXOR] = bxor_##bits },                                                   \
        .combine_all = { [GM_AVG] = average_##suffix },                                           \
    };

ROW(i8, 8)
ROW(u8, 8)
ROW(i32, 32)
ROW(u32, 32)
ROW(i64, 64)
ROW(u64, 64)
