#include "reduce/exact_spills.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "reduce/exact_kernels.h"

bool gmi_spills_append(struct gmi_spills *s, const uint64_t *more, size_t n)
{
    if (n > s->room - s->n) {
        size_t    room = s->n + n + (s->n + n) / 2 + 64;
        uint64_t *grown = gmi_alloc(room, sizeof *grown);
        if (grown == NULL) return false;
        if (s->n > 0) memcpy(grown, s->at, s->n * sizeof *grown);
        gmi_free(s->at);
        s->at = grown;
        s->room = room;
    }
    if (n > 0) {
        memcpy(s->at + s->n, more, n * sizeof *more);
        s->n += n;
        s->is_sorted = false;
    }
    return true;
}

static int by_element(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* As the list of one contribution is. */
static bool is_in_order(const struct gmi_spills *s)
{
    for (size_t i = 1; i < s->n; i++) {
        if (s->at[i - 1] > s->at[i]) return false;
    }
    return true;
}

void gmi_spills_sort(struct gmi_spills *s)
{
    if (!s->is_sorted && !is_in_order(s)) qsort(s->at, s->n, sizeof *s->at, by_element);
    s->is_sorted = true;
}

void gmi_spills_fini(struct gmi_spills *s)
{
    gmi_free(s->at);
    *s = (struct gmi_spills){ 0 };
}

size_t gmi_spills_find(const struct gmi_spills *s, uint64_t index)
{
    size_t first = 0, end = s->n;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (gmi_spill_index(s->at[middle]) < index) first = middle + 1;
        else end = middle;
    }
    return first;
}

/* ---- a sum that cannot overflow ------------------------------------------------------------------ *
 *
 * A whole number of units of 2^-149, the least f32, in two's complement. The largest sum of 4,096 f32 and a lane is below
 * 2^141, so 290 bits and a sign are enough; this has 352. */

enum { LIMBS = 11, LEAST_EXPONENT = -149 };

struct wide {
    uint32_t limb[LIMBS]; /* the lowest first */
};

static void add_shifted(struct wide *s, uint64_t magnitude, unsigned shift, bool is_negative)
{
    uint32_t parts[3] = { 0 };
    unsigned rest = shift % 32;
    uint64_t low = magnitude << rest, high = rest == 0 ? 0 : magnitude >> (64 - rest);
    parts[0] = (uint32_t)low;
    parts[1] = (uint32_t)(low >> 32);
    parts[2] = (uint32_t)high;
    uint64_t carry = is_negative;
    for (unsigned i = 0, at = shift / 32; at < LIMBS; i++, at++) {
        uint32_t part = i < 3 ? parts[i] : 0;
        carry += (uint64_t)s->limb[at] + (is_negative ? ~part : part);
        s->limb[at] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void add_f32(struct wide *s, uint32_t bits)
{
    uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    if (exponent == 0) add_shifted(s, fraction, 0, bits >> 31);
    else add_shifted(s, fraction | 0x800000, exponent - 1, bits >> 31);
}

static bool negate_if_negative(struct wide *s)
{
    if (s->limb[LIMBS - 1] >> 31 == 0) return false;
    uint64_t carry = 1;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint32_t)~s->limb[i];
        s->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return true;
}

static int highest_bit(const struct wide *s)
{
    for (int i = LIMBS - 1; i >= 0; i--) {
        if (s->limb[i] != 0) return 32 * i + 31 - __builtin_clz(s->limb[i]);
    }
    return -1;
}

static bool bit(const struct wide *s, int i) { return i >= 0 && (s->limb[i / 32] >> (i % 32) & 1); }

static bool has_bits_below(const struct wide *s, int end)
{
    for (int i = 0; i < end; i++) {
        if (bit(s, i)) return true;
    }
    return false;
}

/* To nearest, ties to even. */
static uint32_t round_wide(struct wide *s)
{
    uint32_t sign = negate_if_negative(s) ? UINT32_C(0x80000000) : 0;
    int      top = highest_bit(s), last = top - 23; /* `last`: the lowest bit that is kept */
    if (top < 0) return 0;
    if (last <= 0) return sign | s->limb[0]; /* nothing is lost: subnormal, or the first normal numbers */
    uint32_t kept = 0;
    for (int i = 0; i < 24; i++) kept |= (uint32_t)bit(s, last + i) << i;
    bool is_up = bit(s, last - 1) && ((kept & 1) || has_bits_below(s, last - 1));
    /* Carries run from the fraction into the exponent, and from the last exponent into infinity. */
    uint64_t magnitude = ((uint64_t)last << 23) + kept + is_up;
    return sign | (magnitude >= UINT32_C(0x7f800000) ? UINT32_C(0x7f800000) : (uint32_t)magnitude);
}

uint32_t gmi_exact_sum_bits(uint64_t lane, int quantum_exponent, const uint64_t *spills, size_t n)
{
    struct wide sum = { { 0 } };
    bool        is_negative = lane >> 63, has_infinity[2] = { false, false };
    add_shifted(&sum, is_negative ? 0 - lane : lane, (unsigned)(quantum_exponent - LEAST_EXPONENT), is_negative);
    for (size_t k = 0; k < n; k++) {
        uint32_t bits = (uint32_t)spills[k], magnitude = bits & UINT32_C(0x7fffffff);
        if (magnitude > UINT32_C(0x7f800000)) return UINT32_C(0x7fc00000);
        if (magnitude == UINT32_C(0x7f800000)) has_infinity[bits >> 31] = true;
        else add_f32(&sum, bits);
    }
    if (has_infinity[0] && has_infinity[1]) return UINT32_C(0x7fc00000);
    if (has_infinity[0] || has_infinity[1]) return UINT32_C(0x7f800000) | (uint32_t)has_infinity[1] << 31;
    return round_wide(&sum);
}
