/* exact_pack.c - lanes as planar pieces of as many bytes as a block needs, and back.
 *
 * By way of the lower and the upper halves of a block's lanes, as two arrays of 32 bits: of these compilers make good
 * vectors, while narrowing 64 bits to 16 or 8 is slow on most machines. */
#include <string.h>

#include "base/simd.h"
#include "reduce/exact_kernels.h"

enum { B = GMI_EXACT_BLOCK };

typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));

struct halves {
    _Alignas(64) uint32_t low[B], high[B];
};

#define INLINE static inline __attribute__((always_inline))

/* ---- halves -------------------------------------------------------------------------------------- */

#if defined(__SSE2__)

#include <emmintrin.h>

INLINE void split(struct halves *h, const uint64_t *lanes)
{
    for (int i = 0; i < B; i += 4) {
        __m128 a = _mm_loadu_ps((const float *)(const void *)(lanes + i)), b = _mm_loadu_ps((const float *)(const void *)(lanes + i + 2));
        _mm_store_ps((float *)(void *)(h->low + i), _mm_shuffle_ps(a, b, 0x88));
        _mm_store_ps((float *)(void *)(h->high + i), _mm_shuffle_ps(a, b, 0xdd));
    }
}

/* sum[i] = base[i] + the lane of which these are the halves. */
INLINE void join_add(uint64_t *sum, const uint64_t *base, const uint8_t *low, const uint32_t *high)
{
    for (int i = 0; i < B; i += 4) {
        __m128i l = _mm_loadu_si128((const __m128i *)(const void *)(low + 4 * i));
        __m128i h = _mm_load_si128((const __m128i *)(const void *)(high + i));
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(base + i)), b = _mm_loadu_si128((const __m128i *)(const void *)(base + i + 2));
        _mm_storeu_si128((__m128i *)(void *)(sum + i), _mm_add_epi64(a, _mm_unpacklo_epi32(l, h)));
        _mm_storeu_si128((__m128i *)(void *)(sum + i + 2), _mm_add_epi64(b, _mm_unpackhi_epi32(l, h)));
    }
}

#else

INLINE void split(struct halves *h, const uint64_t *lanes)
{
    for (int i = 0; i < B; i++) h->low[i] = (uint32_t)lanes[i], h->high[i] = (uint32_t)(lanes[i] >> 32);
}

INLINE void join_add(uint64_t *sum, const uint64_t *base, const uint8_t *low, const uint32_t *high)
{
    for (int i = 0; i < B; i++) sum[i] = base[i] + (((const any_u32 *)low)[i] | (uint64_t)high[i] << 32);
}

#endif

INLINE uint32_t sign_of(uint32_t x) { return (uint32_t)-(int32_t)(x >> 31); }

/* How many bytes the widest of 64 lanes needs: one bit more than its highest that is unlike its sign. */
INLINE unsigned width_of(const struct halves *h)
{
    uint32_t any = 0, low = 0, high = 0;
    for (int i = 0; i < B; i++) {
        any |= h->low[i] | h->high[i];
        low |= h->low[i] ^ sign_of(h->high[i]);
        high |= h->high[i] ^ sign_of(h->high[i]);
    }
    if (any == 0) return 0;
    uint64_t unlike_sign = (uint64_t)high << 32 | low;
    unsigned n_bits = unlike_sign == 0 ? 1 : 65 - (unsigned)__builtin_clzll(unlike_sign);
    return (n_bits + 7) / 8;
}

/* ---- blocks; `w` is a constant where these are called, which is what makes them fast ------------------ */

INLINE void put_block(uint8_t *to, const uint64_t *lanes, const struct halves *h, unsigned w)
{
    if (w == 8) memcpy(to, lanes, B * sizeof *lanes);
    if (w & 4) memcpy(to, h->low, sizeof h->low);
    const uint32_t *rest = w & 4 ? h->high : h->low;
    uint8_t        *pairs = to + (w & 4) * B, *bytes = pairs + (w & 2) * B;
    if (w & 2) {
        for (int i = 0; i < B; i++) ((any_u16 *)pairs)[i] = (uint16_t)rest[i];
    }
    if (w & 1) {
        for (int i = 0; i < B; i++) bytes[i] = (uint8_t)(rest[i] >> (w & 2) * 8);
    }
}

/* What stands in the pieces beside those of 4 bytes, with the sign of its highest. */
INLINE void get_rest(uint32_t *rest, const uint8_t *pairs, unsigned w)
{
    const uint8_t *bytes = pairs + (w & 2) * B;
    for (int i = 0; i < B; i++) {
        if ((w & 3) == 3) rest[i] = ((const any_u16 *)pairs)[i] | (uint32_t)(int8_t)bytes[i] << 16;
        else if (w & 2) rest[i] = (uint32_t)(int16_t)((const any_u16 *)pairs)[i];
        else rest[i] = (uint32_t)(int8_t)bytes[i];
    }
}

INLINE void add_block(uint64_t *sum, const uint64_t *base, const uint8_t *from, unsigned w)
{
    struct halves h;
    if (w == 8) {
        for (int i = 0; i < B; i++) sum[i] = base[i] + ((const any_u64 *)from)[i];
        return;
    }
    if (w > 4) {
        get_rest(h.high, from + 4 * B, w);
    } else {
        if (w == 4) memcpy(h.low, from, sizeof h.low);
        else get_rest(h.low, from, w);
        for (int i = 0; i < B; i++) h.high[i] = sign_of(h.low[i]);
    }
    join_add(sum, base, w > 4 ? from : (const uint8_t *)h.low, h.high);
}

#define FOR_WIDTH(w, DO)                                                                           \
    switch (w) {                                                                                   \
    case 1: DO(1); break;                                                                          \
    case 2: DO(2); break;                                                                          \
    case 3: DO(3); break;                                                                          \
    case 4: DO(4); break;                                                                          \
    case 5: DO(5); break;                                                                          \
    case 6: DO(6); break;                                                                          \
    case 7: DO(7); break;                                                                          \
    case 8: DO(8); break;                                                                          \
    default: break;                                                                                \
    }

/* ---- arrays -------------------------------------------------------------------------------------- */

GMI_SIMD size_t gmi_exact_pack(uint8_t *to, const uint64_t *lanes, size_t n_blocks, bool is_raw)
{
    struct halves h;
    uint8_t      *widths = to, *at = to + n_blocks;
    for (size_t b = 0; b < n_blocks; b++, lanes += B) {
        if (!is_raw) split(&h, lanes);
        widths[b] = is_raw ? GMI_EXACT_MOST_WIDTH : (uint8_t)width_of(&h);
#define PUT(w) put_block(at, lanes, &h, w)
        FOR_WIDTH(widths[b], PUT)
        at += (size_t)widths[b] * B;
    }
    return (size_t)(at - to);
}

bool gmi_exact_is_packed(const uint8_t *from, size_t n_bytes, size_t n_blocks)
{
    if (n_bytes < n_blocks) return false;
    size_t need_bytes = n_blocks;
    for (size_t b = 0; b < n_blocks; b++) {
        if (from[b] > GMI_EXACT_MOST_WIDTH) return false;
        need_bytes += (size_t)from[b] * B;
    }
    return need_bytes == n_bytes;
}

GMI_SIMD void gmi_exact_unpack_add(uint64_t *sum, const uint64_t *base, const uint8_t *from, size_t n_blocks)
{
    const uint8_t *widths = from, *at = from + n_blocks;
    for (size_t b = 0; b < n_blocks; b++, sum += B, base += B) {
        if (widths[b] == 0 && sum != base) memcpy(sum, base, B * sizeof *sum);
#define ADD(w) add_block(sum, base, at, w)
        FOR_WIDTH(widths[b], ADD)
        at += (size_t)widths[b] * B;
    }
}
