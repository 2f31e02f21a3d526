/* rng.h - random numbers as a pure function of (key, counter): the same on every machine, in any order.
 *
 * A counter-based generator: value number i of stream `key` is a mix of both, so that shuffles, initial
 * weights and faults can be drawn out of order and by several processes without sharing a state.
 * Source of the mixing function: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014 (SplitMix64). Not for secrets. */
#ifndef GMI_RNG_H
#define GMI_RNG_H

#include <stdint.h>

static inline uint64_t gmi_mix64(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A key for a sub-stream, gmi_rng_key(gmi_rng_key(seed, EPOCH), 3), say. */
static inline uint64_t gmi_rng_key(uint64_t key, uint64_t tag) { return gmi_mix64(key ^ gmi_mix64(tag)); }

/* 64 random bits: value `counter` of stream `key`. */
static inline uint64_t gmi_rng_u64(uint64_t key, uint64_t counter) { return gmi_mix64(key + counter * UINT64_C(0xd1342543de82ef95)); }

/* 0 .. bound - 1, bound >= 1. The bias is below bound / 2^64. */
static inline uint64_t gmi_rng_below(uint64_t key, uint64_t counter, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)gmi_rng_u64(key, counter) * bound) >> 64);
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double gmi_rng_unit(uint64_t key, uint64_t counter) { return (double)(gmi_rng_u64(key, counter) >> 11) * 0x1p-53; }

/* A sequential reader of one stream, where order is fixed anyway. */
struct gmi_rng {
    uint64_t key, counter;
};
static inline uint64_t gmi_rng_next(struct gmi_rng *r) { return gmi_rng_u64(r->key, r->counter++); }
static inline uint64_t gmi_rng_next_below(struct gmi_rng *r, uint64_t bound) { return gmi_rng_below(r->key, r->counter++, bound); }
static inline double gmi_rng_next_unit(struct gmi_rng *r) { return gmi_rng_unit(r->key, r->counter++); }

#endif
