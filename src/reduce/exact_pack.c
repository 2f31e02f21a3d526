#include <string.h>

#include "base/simd.h"
#include "reduce/exact_kernels.h"

enum { B = GMI_EXACT_BLOCK };

typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));

/* How many bytes the widest of 64 lanes needs: one bit more than its highest that is unlike its sign. */
static inline unsigned width_of(const uint64_t *lanes)
{
    uint64_t any = 0, unlike_sign = 0;
    for (int i = 0; i < B; i++) {
        any |= lanes[i];
        unlike_sign |= lanes[i] ^ (uint64_t)-(int64_t)(lanes[i] >> 63);
    }
    if (any == 0) return 0;
    unsigned n_bits = unlike_sign == 0 ? 1 : 65 - (unsigned)__builtin_clzll(unlike_sign);
    return (n_bits + 7) / 8;
}

/* `w` is a constant where these are called, which is what makes them fast. */
static inline __attribute__((always_inline)) void put_block(uint8_t *to, const uint64_t *lanes, unsigned w)
{
    unsigned shift = 0;
    if (w & 8) memcpy(to, lanes, B * sizeof *lanes);
    if (w & 4) {
        for (int i = 0; i < B; i++) ((any_u32 *)to)[i] = (uint32_t)lanes[i];
        to += B * 4, shift += 32;
    }
    if (w & 2) {
        for (int i = 0; i < B; i++) ((any_u16 *)to)[i] = (uint16_t)(lanes[i] >> shift);
        to += B * 2, shift += 16;
    }
    if (w & 1) {
        for (int i = 0; i < B; i++) to[i] = (uint8_t)(lanes[i] >> shift);
    }
}

static inline __attribute__((always_inline)) void add_block(uint64_t *sum, const uint64_t *base, const uint8_t *from,
                                                            unsigned w)
{
    const uint8_t *halves = from + (w & 4) * B, *bytes = halves + (w & 2) * B;
    unsigned       halves_at = (w & 4) * 8, bytes_at = halves_at + (w & 2) * 8;
    uint64_t       sign = UINT64_C(1) << (8 * w - 1);
    for (int i = 0; i < B; i++) {
        uint64_t lane = 0;
        if (w & 8) lane = ((const any_u64 *)from)[i];
        if (w & 4) lane = ((const any_u32 *)from)[i];
        if (w & 2) lane |= (uint64_t)((const any_u16 *)halves)[i] << halves_at;
        if (w & 1) lane |= (uint64_t)bytes[i] << bytes_at;
        sum[i] = base[i] + ((lane ^ sign) - sign); /* extends the sign */
    }
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

GMI_SIMD size_t gmi_exact_pack(uint8_t *to, const uint64_t *lanes, size_t n_blocks, bool is_raw)
{
    uint8_t *widths = to, *at = to + n_blocks;
    for (size_t b = 0; b < n_blocks; b++, lanes += B) {
        widths[b] = is_raw ? GMI_EXACT_MOST_WIDTH : (uint8_t)width_of(lanes);
#define PUT(w) put_block(at, lanes, w)
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
