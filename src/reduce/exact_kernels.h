/* exact_kernels.h - loops over lanes: the exact sum's arithmetic on arrays.
 *
 * A lane is a 64-bit number of quanta of 2^q, in two's complement; sums of lanes wrap, which is harmless as long as the
 * final one fits. f32 numbers go in where that is exact, and come out rounded once. Lanes travel in blocks of 64: as many
 * bytes for each lane as the widest one of its block needs, w, in planar pieces of the low bytes,
 *
 *     w = 8: 64 x u64     w & 4: 64 x u32     then w & 2: 64 x u16     then w & 1: 64 x u8
 *
 * with the widths of all blocks in front. w = 0: all 64 are zero. Every way computes the same. All numbers are
 * little-endian, as the machines that this is for. */
#ifndef GMI_EXACT_KERNELS_H
#define GMI_EXACT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GMI_EXACT_BLOCK = 64, /* lanes */
    GMI_EXACT_MOST_WIDTH = 8,
};

/* Which numbers fit into a lane: whole numbers of quanta in [-2^(bits-1), 2^(bits-1)). */
struct gmi_window {
    int      quantum_exponent, bits;
    double   per_quantum; /* 2^-q */
    double   magic;       /* 2^52 + 2^(bits-1): added to a number that fits, it leaves it in the low bits */
    uint64_t magic_bits;
    uint32_t least_less_1, most_less_1; /* bits of magnitudes: all from least to most fit, and perhaps others do */
};

struct gmi_window gmi_window_of(int quantum_exponent, int bits);

/* A spilled number: the index of its element above its bits, so that lists sort by element. */
static inline uint64_t gmi_spill(uint32_t index, uint32_t bits) { return (uint64_t)index << 32 | bits; }
static inline uint32_t gmi_spill_index(uint64_t spill) { return (uint32_t)(spill >> 32); }

struct gmi_exact_kernels {
    const char *name;

    /* lanes[i] += x[i], where x[i] fits; the others go to spilled[], which has room for `count`, with indices from
     * `index` on. Returns how many. */
    size_t (*add)(uint64_t *lanes, const float *x, size_t count, const struct gmi_window *w, uint32_t index,
                  uint64_t *spilled);
};

/* The best one of this machine; the row of all of them that it can run, for tests: NULL behind the last. */
const struct gmi_exact_kernels *gmi_exact_kernels(void);
const struct gmi_exact_kernels *gmi_exact_kernels_row(size_t index);

/* out[i] = lanes[i] quanta, rounded once. */
void gmi_exact_round(float *out, const uint64_t *lanes, size_t count, int quantum_exponent);

/* The most bytes that n blocks take, packed. */
static inline size_t gmi_exact_packed_room(size_t n_blocks)
{
    return n_blocks * (1 + GMI_EXACT_BLOCK * GMI_EXACT_MOST_WIDTH);
}

/* Returns the bytes at `to`. `is_raw`: all widths are 8. */
size_t gmi_exact_pack(uint8_t *to, const uint64_t *lanes, size_t n_blocks, bool is_raw);

/* Can these bytes be n packed blocks? */
bool gmi_exact_is_packed(const uint8_t *from, size_t n_bytes, size_t n_blocks);

/* sum[i] = base[i] + what was packed; of bytes that gmi_exact_is_packed has let pass. `base` may be `sum`. */
void gmi_exact_unpack_add(uint64_t *sum, const uint64_t *base, const uint8_t *from, size_t n_blocks);

#endif
