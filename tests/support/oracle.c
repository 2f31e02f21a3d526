#include "tests/support/oracle.h"

#include <math.h>

#include "tests/support/test.h"

bool oracle_is_float(gm_dtype dtype) { return dtype == GM_F32 || dtype == GM_F64 || dtype == GM_F16 || dtype == GM_BF16; }

static bool is_half(gm_dtype dtype) { return dtype == GM_F16 || dtype == GM_BF16; }
static bool is_bitwise(gm_redop redop) { return redop == GM_BAND || redop == GM_BOR || redop == GM_BXOR; }

bool oracle_is_offered(gm_dtype dtype, gm_redop redop)
{
    return redop != GM_SUM_EXACT && !(oracle_is_float(dtype) && is_bitwise(redop));
}

bool oracle_is_rounded_once(gm_dtype dtype, gm_redop redop)
{
    if (is_half(dtype)) return redop == GM_SUM || redop == GM_PROD || redop == GM_AVG;
    return redop == GM_AVG && !oracle_is_float(dtype);
}

/* ---- memory -------------------------------------------------------------------------------------- */

uint64_t oracle_load(const void *elem, gm_dtype dtype)
{
    uint8_t  u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (gm_dtype_bytes(dtype)) {
    case 1: memcpy(&u8, elem, 1); return u8;
    case 2: memcpy(&u16, elem, 2); return u16;
    case 4: memcpy(&u32, elem, 4); return u32;
    default: memcpy(&u64, elem, 8); return u64;
    }
}

void oracle_store(void *elem, gm_dtype dtype, uint64_t bits)
{
    uint8_t  u8 = (uint8_t)bits;
    uint16_t u16 = (uint16_t)bits;
    uint32_t u32 = (uint32_t)bits;
    switch (gm_dtype_bytes(dtype)) {
    case 1: memcpy(elem, &u8, 1); break;
    case 2: memcpy(elem, &u16, 2); break;
    case 4: memcpy(elem, &u32, 4); break;
    default: memcpy(elem, &bits, 8); break;
    }
}

/* ---- f16 and bf16, from their definition --------------------------------------------------------- */

static double number_of_half(uint64_t bits, gm_dtype dtype)
{
    int    fraction_bits = dtype == GM_F16 ? 10 : 7, bias = dtype == GM_F16 ? 15 : 127;
    int    exponent = (int)(bits >> fraction_bits) & (2 * bias + 1), fraction = (int)(bits & ((1u << fraction_bits) - 1));
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 2 * bias + 1) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

/* What infinity would be if there were one more exponent: from half the way to it on, numbers round to it. */
static double magnitude_or_next(uint64_t bits, gm_dtype dtype)
{
    double x = number_of_half(bits, dtype);
    return isinf(x) ? ldexp(1, dtype == GM_F16 ? 16 : 128) : x;
}

/* Bits of positive numbers are in the order of the numbers: looks for the two neighbours of |x|. */
static uint64_t half_of_number(double x, gm_dtype dtype)
{
    uint64_t inf = dtype == GM_F16 ? 0x7c00 : 0x7f80, low = 0, high = inf, sign = signbit(x) ? 0x8000 : 0;
    double   magnitude = fabs(x);
    if (isnan(x)) return dtype == GM_F16 ? 0x7e00 : 0x7fc0;
    if (magnitude >= magnitude_or_next(inf, dtype)) return inf | sign;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (number_of_half(middle, dtype) <= magnitude) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = magnitude - number_of_half(low, dtype), above = magnitude_or_next(high, dtype) - magnitude;
    if (below < above) return low | sign;
    if (above < below) return high | sign;
    return (low % 2 == 0 ? low : high) | sign;
}

/* ---- all floats ---------------------------------------------------------------------------------- */

double oracle_number(uint64_t bits, gm_dtype dtype)
{
    uint32_t u32 = (uint32_t)bits;
    float    f;
    double   d;
    memcpy(&f, &u32, 4);
    memcpy(&d, &bits, 8);
    if (is_half(dtype)) return number_of_half(bits, dtype);
    return dtype == GM_F32 ? (double)f : d;
}

uint64_t oracle_bits(double number, gm_dtype dtype)
{
    uint32_t u32;
    uint64_t u64;
    float    f = (float)number;
    memcpy(&u32, &f, 4);
    memcpy(&u64, &number, 8);
    if (is_half(dtype)) return half_of_number(number, dtype);
    if (isnan(number)) return dtype == GM_F32 ? UINT64_C(0x7fc00000) : UINT64_C(0x7ff8000000000000);
    return dtype == GM_F32 ? u32 : u64;
}

/* Sums and products of two f32 are the same whether rounded to f32 at once or by way of double. */
static double step(double a, double b, gm_dtype dtype, gm_redop redop)
{
    if (redop == GM_PROD) return dtype == GM_F32 ? (double)((float)a * (float)b) : a * b;
    if (redop != GM_MIN && redop != GM_MAX) return dtype == GM_F32 ? (double)((float)a + (float)b) : a + b;
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return (signbit(a) != 0) == (redop == GM_MIN) ? a : b; /* zeros have an order */
    return (a < b) == (redop == GM_MIN) ? a : b;
}

static uint64_t reduce_floats(const uint64_t *values, int n, gm_dtype dtype, gm_redop redop)
{
    double result = oracle_number(values[0], dtype);
    for (int k = 1; k < n; k++) result = step(result, oracle_number(values[k], dtype), dtype, redop);
    if (redop == GM_AVG) result = dtype == GM_F32 ? (double)((float)result / (float)n) : result / n;
    return oracle_bits(result, dtype);
}

/* ---- exact sums ---------------------------------------------------------------------------------- *
 *
 * In units of 2^-149 an f32 is 24 bits times 2^0 .. 2^253. digit[e] adds up what stands before 2^e; then carries are
 * taken from each place to the next, and what is left is one bit at each. */

enum { PLACES = 400 };

static bool is_any_set(const int *bit, int end)
{
    for (int i = 0; i < end; i++) {
        if (bit[i]) return true;
    }
    return false;
}

static uint32_t round_bits(const int *bit, uint32_t sign)
{
    int top = PLACES - 1;
    while (top >= 0 && !bit[top]) top--;
    if (top < 0) return 0;
    int      last = top > 23 ? top - 23 : 0;
    uint64_t kept = 0;
    for (int i = 0; i < 24; i++) kept |= (uint64_t)bit[last + i] << i;
    if (last > 0 && bit[last - 1] && (kept % 2 == 1 || is_any_set(bit, last - 1))) kept++;
    if (kept == 1 << 24) kept /= 2, last++;
    double value = ldexp((double)kept, last - 149);
    return sign | (uint32_t)oracle_bits(last > 253 ? INFINITY : value, GM_F32);
}

uint32_t oracle_exact_sum(const uint32_t *bits, size_t n)
{
    int64_t digit[PLACES] = { 0 }, carry = 0;
    int     bit[PLACES], n_infinite[2] = { 0, 0 };
    for (size_t k = 0; k < n; k++) {
        int     exponent = (int)(bits[k] >> 23 & 255), is_negative = (int)(bits[k] >> 31);
        int64_t fraction = (int64_t)(bits[k] & 0x7fffff) + (exponent > 0 ? 0x800000 : 0);
        if (exponent == 255 && (bits[k] & 0x7fffff) != 0) return UINT32_C(0x7fc00000);
        if (exponent == 255) n_infinite[is_negative]++;
        else digit[exponent > 0 ? exponent - 1 : 0] += is_negative ? -fraction : fraction;
    }
    if (n_infinite[0] && n_infinite[1]) return UINT32_C(0x7fc00000);
    if (n_infinite[0] || n_infinite[1]) return n_infinite[0] ? UINT32_C(0x7f800000) : UINT32_C(0xff800000);
    for (int pass = 0; pass < 2; pass++) { /* a negative sum is done once more with the other sign */
        carry = 0;
        for (int i = 0; i < PLACES; i++) {
            carry += pass == 0 ? digit[i] : -digit[i];
            bit[i] = (int)(carry & 1);
            carry = (carry - bit[i]) / 2;
        }
        if (carry == 0) return round_bits(bit, pass == 0 ? 0 : UINT32_C(0x80000000));
    }
    return 0; /* not reached */
}

/* ---- integers ------------------------------------------------------------------------------------ */

static __int128 integer(uint64_t bits, gm_dtype dtype)
{
    switch (dtype) {
    case GM_I8: return (int8_t)bits;
    case GM_I32: return (int32_t)bits;
    case GM_I64: return (int64_t)bits;
    case GM_U8: return (uint8_t)bits;
    case GM_U32: return (uint32_t)bits;
    default: return bits;
    }
}

/* Of the integers around sum / n the one that is nearest; of two, the even one. */
static __int128 nearest_quotient(__int128 sum, int n)
{
    __int128 best = sum / n - 2;
    for (__int128 q = best + 1; q <= sum / n + 2; q++) {
        __int128 here = q * n - sum, there = best * n - sum;
        here = here < 0 ? -here : here;
        there = there < 0 ? -there : there;
        if (here < there || (here == there && q % 2 == 0)) best = q;
    }
    return best;
}

static uint64_t reduce_integers(const uint64_t *values, int n, gm_dtype dtype, gm_redop redop)
{
    __int128 result = integer(values[0], dtype);
    for (int k = 1; k < n; k++) {
        __int128 next = integer(values[k], dtype);
        switch (redop) {
        case GM_SUM: case GM_AVG: result += next; break;
        case GM_PROD: result = (__int128)(uint64_t)((uint64_t)result * (uint64_t)next); break; /* modulo 2^64 */
        case GM_MIN: result = next < result ? next : result; break;
        case GM_MAX: result = next > result ? next : result; break;
        case GM_BAND: result &= next; break;
        case GM_BOR: result |= next; break;
        default: result ^= next; break;
        }
    }
    if (redop == GM_AVG) result = nearest_quotient(result, n);
    size_t bytes = gm_dtype_bytes(dtype);
    return bytes == 8 ? (uint64_t)result : (uint64_t)result & ((UINT64_C(1) << 8 * bytes) - 1);
}

uint64_t oracle_reduce(const uint64_t *values, int n, gm_dtype dtype, gm_redop redop)
{
    if (redop == GM_SUM_EXACT) {
        uint32_t bits[64];
        assert_in_range(n, 1, TEST_COUNT(bits));
        for (int k = 0; k < n; k++) bits[k] = (uint32_t)values[k];
        return oracle_exact_sum(bits, (size_t)n);
    }
    return oracle_is_float(dtype) ? reduce_floats(values, n, dtype, redop) : reduce_integers(values, n, dtype, redop);
}

/* ---- lean formats -------------------------------------------------------------------------------- */

static float float_of(uint64_t bits, gm_dtype dtype)
{
    double x = oracle_number(bits, dtype);
    return isnan(x) ? (float)NAN : (float)x;
}

static void lean_block(float *to, const float *from, size_t count)
{
    float largest = 0;
    bool  is_finite = true;
    for (size_t i = 0; i < count; i++) {
        is_finite = is_finite && isfinite(from[i]);
        largest = fmaxf(largest, fabsf(from[i]));
    }
    for (size_t i = 0; i < count; i++) {
        float x = from[i];
        to[i] = is_finite ? 0 : (float)NAN;
        if (is_finite && largest >= 0x1p-118f) to[i] = rintf(x * (127 / largest)) * (largest / 127) + 0.0f;
    }
}

void oracle_lean(const char *format, float *to, const float *from, size_t count)
{
    gm_dtype dtype = strcmp(format, "f16") == 0 ? GM_F16 : GM_BF16;
    bool     is_in_blocks = strcmp(format, "int8") == 0;
    for (size_t at = 0; at < count && is_in_blocks; at += 128) {
        lean_block(to + at, from + at, count - at < 128 ? count - at : 128);
    }
    for (size_t i = 0; i < count && !is_in_blocks; i++) {
        to[i] = float_of(oracle_bits(isnan(from[i]) ? NAN : (double)from[i], dtype), dtype);
    }
}

size_t oracle_lean_bytes(const char *format, size_t count)
{
    return strcmp(format, "int8") == 0 ? count + 4 * ((count + 127) / 128) : 2 * count;
}
