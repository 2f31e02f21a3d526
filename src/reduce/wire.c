#include "reduce/wire.h"

#include <string.h>

#include "base/bytes.h"
#include "base/simd.h"
#include "reduce/half.h"
#include "reduce/half_arrays.h"

/* As in the descriptor; 0 is as they are. Never reused. */
enum { ID_BF16 = 1, ID_F16 = 2, ID_INT8 = 3 };

/* ---- halves -------------------------------------------------------------------------------------- */

enum { STEP_ELEMS = 512 }; /* what is widened at a time stays in the first-level cache */

GMI_SIMD static void add_floats(float *sum, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) sum[i] += x[i];
}

static void add_halves(const struct gmi_half_format *format, float *sum, const uint16_t *wire, size_t count)
{
    float wide[STEP_ELEMS];
    for (size_t at = 0; at < count; at += STEP_ELEMS) {
        size_t here = gmi_min_size(STEP_ELEMS, count - at);
        format->widen(wide, wire + at, here);
        add_floats(sum + at, wide, here);
    }
}

#define DEFINE_HALF(suffix)                                                                        \
    static void encode_##suffix(void *wire, const float *from, size_t count)                       \
    {                                                                                              \
        gmi_half_##suffix()->narrow(wire, from, count);                                            \
    }                                                                                              \
    static void decode_##suffix(float *to, const void *wire, size_t count)                         \
    {                                                                                              \
        gmi_half_##suffix()->widen(to, wire, count);                                               \
    }                                                                                              \
    static void add_##suffix(float *sum, const void *wire, size_t count)                           \
    {                                                                                              \
        add_halves(gmi_half_##suffix(), sum, wire, count);                                         \
    }

DEFINE_HALF(bf16)
DEFINE_HALF(f16)

/* ---- int8 ---------------------------------------------------------------------------------------- */

enum { BLOCK_ELEMS = 128, SCALE_BYTES = 4, BLOCK_BYTES = SCALE_BYTES + BLOCK_ELEMS };

#define INF_BITS INT32_C(0x7f800000)
#define LEAST_MAGNITUDE 0x1p-118f

/* Magnitudes of floats are in the order of their bits; Inf and NaN come last. */
static inline int32_t largest_bits(const float *from, size_t count)
{
    int32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t bits = (int32_t)(gmi_bits_of_f32(from[i]) & UINT32_C(0x7fffffff));
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* In 1.5 * 2^23 + y the last bit is worth 1: the addition rounds y to the nearest whole number, ties to even,
 * and leaves it in the low bits. */
static inline void quantize(int8_t *to, const float *from, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = gmi_bits_of_f32(from[i] * factor + 12582912.0f);
        to[i] = (int8_t)(int32_t)(bits - UINT32_C(0x4b400000));
    }
}

static inline void encode_block(uint8_t *block, const float *from, size_t count)
{
    int32_t largest = largest_bits(from, count);
    float   magnitude = gmi_f32_of_bits((uint32_t)largest), scale = 0;
    if (largest >= INF_BITS) {
        scale = gmi_f32_of_bits(UINT32_C(0x7fc00000));
        memset(block + SCALE_BYTES, 0, count);
    } else if (magnitude < LEAST_MAGNITUDE) {
        memset(block + SCALE_BYTES, 0, count);
    } else {
        scale = magnitude / 127.0f;
        quantize((int8_t *)block + SCALE_BYTES, from, 127.0f / magnitude, count);
    }
    gmi_put_u32(block, gmi_bits_of_f32(scale));
}

static inline float scale_of(const uint8_t *block) { return gmi_f32_of_bits(gmi_get_u32(block)); }

/* The loops know the length of a whole block, which is what makes them fast. */
GMI_SIMD static void encode_whole_blocks(uint8_t *wire, const float *from, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++) encode_block(wire + b * BLOCK_BYTES, from + b * BLOCK_ELEMS, BLOCK_ELEMS);
}

GMI_SIMD static void decode_whole_blocks(float *to, const uint8_t *wire, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, to += BLOCK_ELEMS, wire += BLOCK_BYTES) {
        float         scale = scale_of(wire);
        const int8_t *q = (const int8_t *)wire + SCALE_BYTES;
        for (size_t i = 0; i < BLOCK_ELEMS; i++) to[i] = (float)q[i] * scale;
    }
}

GMI_SIMD static void add_whole_blocks(float *sum, const uint8_t *wire, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, sum += BLOCK_ELEMS, wire += BLOCK_BYTES) {
        float         scale = scale_of(wire);
        const int8_t *q = (const int8_t *)wire + SCALE_BYTES;
        for (size_t i = 0; i < BLOCK_ELEMS; i++) sum[i] += (float)q[i] * scale;
    }
}

static void encode_int8(void *wire, const float *from, size_t count)
{
    size_t whole = count / BLOCK_ELEMS, rest = count % BLOCK_ELEMS;
    encode_whole_blocks(wire, from, whole);
    if (rest > 0) encode_block((uint8_t *)wire + whole * BLOCK_BYTES, from + whole * BLOCK_ELEMS, rest);
}

static void decode_int8(float *to, const void *wire, size_t count)
{
    size_t         whole = count / BLOCK_ELEMS, rest = count % BLOCK_ELEMS;
    const uint8_t *last = (const uint8_t *)wire + whole * BLOCK_BYTES;
    decode_whole_blocks(to, wire, whole);
    for (size_t i = 0; i < rest; i++) {
        to[whole * BLOCK_ELEMS + i] = (float)(int8_t)last[SCALE_BYTES + i] * scale_of(last);
    }
}

static void add_int8(float *sum, const void *wire, size_t count)
{
    size_t         whole = count / BLOCK_ELEMS, rest = count % BLOCK_ELEMS;
    const uint8_t *last = (const uint8_t *)wire + whole * BLOCK_BYTES;
    add_whole_blocks(sum, wire, whole);
    for (size_t i = 0; i < rest; i++) {
        sum[whole * BLOCK_ELEMS + i] += (float)(int8_t)last[SCALE_BYTES + i] * scale_of(last);
    }
}

/* ---- the table ----------------------------------------------------------------------------------- */

static const struct gmi_wire rows[] = {
    { ID_BF16, "bf16", 1, 0, 2, encode_bf16, decode_bf16, add_bf16 },
    { ID_F16, "f16", 1, 0, 2, encode_f16, decode_f16, add_f16 },
    { ID_INT8, "int8", BLOCK_ELEMS, SCALE_BYTES, 1, encode_int8, decode_int8, add_int8 },
};

static const char as_they_are[] = "f32";

const struct gmi_wire *gmi_wire_row(size_t index)
{
    return index < sizeof rows / sizeof rows[0] ? &rows[index] : NULL;
}

bool gmi_wire_find(const char *name, const struct gmi_wire **wire)
{
    *wire = NULL;
    if (strcmp(name, as_they_are) == 0) return true;
    for (size_t i = 0; (*wire = gmi_wire_row(i)) != NULL; i++) {
        if (strcmp((*wire)->name, name) == 0) return true;
    }
    return false;
}

const char *gmi_wire_name(const struct gmi_wire *wire) { return wire != NULL ? wire->name : as_they_are; }

const char *gmi_wire_name_of(uint8_t id)
{
    for (size_t i = 0; gmi_wire_row(i) != NULL; i++) {
        if (rows[i].id == id) return rows[i].name;
    }
    return id == 0 ? as_they_are : "?";
}

const char *gmi_wire_names(void) { return "f32, bf16, f16, int8"; }

/* ---- there and back ------------------------------------------------------------------------------ */

enum { TRIP_ELEMS = 8 * BLOCK_ELEMS };

void gmi_wire_round_trip(const struct gmi_wire *wire, float *to, const float *from, size_t count)
{
    _Alignas(64) uint8_t bytes[8 * BLOCK_BYTES > 2 * TRIP_ELEMS ? 8 * BLOCK_BYTES : 2 * TRIP_ELEMS];
    for (size_t at = 0; at < count; at += TRIP_ELEMS) {
        size_t here = gmi_min_size(TRIP_ELEMS, count - at);
        wire->encode(bytes, from + at, here);
        wire->decode(to + at, bytes, here);
    }
}
