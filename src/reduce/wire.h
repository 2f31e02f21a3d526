/* wire.h - lean formats: f32 numbers as fewer bytes, for the way from rank to rank.
 *
 *     bf16   2 bytes a number: f32 without its last 16 bits, rounded
 *     f16    2 bytes a number
 *     int8   blocks of 128 numbers:  | scale f32 | 128 x i8 |   the last block ends where the numbers do
 *
 * In an int8 block `scale` is the largest magnitude / 127, and a number x becomes the whole number nearest to
 * x * (127 / largest), so the error is at most half a scale. Two kinds of blocks have no such scale:
 *   - largest magnitude below 2^-118: scale 0 and zeros. (127 / largest could be infinite.)
 *   - an Inf or NaN in it: scale NaN and zeros, so that the whole block comes out as NaN. What is not finite must
 *     not be lost on the way.
 * The decoded largest magnitude may be off by the last bit (next to the end of f32's range it becomes infinite, as it
 * does in bf16); -0 becomes 0. Numbers beyond f16's range become infinite in f16.
 *
 * Everything is computed number by number with the same operations, so all machines get the same bits. Where a
 * run of numbers is cut into pieces that are multiples of block_elems, the pieces' encodings one behind the other
 * are the encoding of the whole. Knows arrays only: no ranks, no links. */
#ifndef GMI_WIRE_H
#define GMI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gmi_wire {
    uint8_t     id;   /* as in the descriptor */
    const char *name; /* as the user says it */
    size_t      block_elems, block_head_bytes, elem_bytes;

    void (*encode)(void *wire, const float *from, size_t count);
    void (*decode)(float *to, const void *wire, size_t count);
    void (*add)(float *sum, const void *wire, size_t count); /* sum[i] += decoded[i] */
};

/* By its name; NULL and false: there is no such format. "f32" is one, for which *wire is NULL: as they are. */
bool        gmi_wire_find(const char *name, const struct gmi_wire **wire);
const char *gmi_wire_name(const struct gmi_wire *wire); /* "f32" for NULL */
const char *gmi_wire_name_of(uint8_t id);               /* "?" for a number that is none */
const char *gmi_wire_names(void);                       /* "f32, bf16, f16, int8" */

/* All but f32, for tests: index from 0; NULL behind the last. */
const struct gmi_wire *gmi_wire_row(size_t index);

/* So many bytes encode `count` numbers. */
static inline size_t gmi_wire_bytes(const struct gmi_wire *wire, size_t count)
{
    size_t n_blocks = count / wire->block_elems + (count % wire->block_elems != 0);
    return count * wire->elem_bytes + n_blocks * wire->block_head_bytes;
}

/* to[i] = what comes out at the other end for from[i]. The two may be the same. */
void gmi_wire_round_trip(const struct gmi_wire *wire, float *to, const float *from, size_t count);

#endif
