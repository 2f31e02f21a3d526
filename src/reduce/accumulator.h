/* accumulator.h - an exact sum of f32 arrays in the making: lanes, what did not fit into them, and who is in it.
 *
 *     add(shard, x)     each x[i] goes into its lane exactly, or as it is into the list of spilled numbers
 *     finish            out[i] = lane[i] quanta + the spilled numbers of i, rounded once
 *
 * Nothing is rounded before the end, whole numbers add up the same in any order, and a list is the same in any order. So
 * the bits of a result depend on nothing but the numbers: not on quantum and window, which decide what spills, nor on
 * who added what. |lane| <= 4096 * 2^50 = 2^62 for 4,096 shards, so a lane cannot overflow.
 *
 * Lanes are whole blocks of 64; those behind the last element stay zero. Knows arrays and shards only. */
#ifndef GMI_ACCUMULATOR_H
#define GMI_ACCUMULATOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "gradmesh.h"
#include "reduce/exact_kernels.h"
#include "reduce/exact_spills.h"

enum { GMI_SHARD_WORDS = GM_MAX_SHARDS / 64, GMI_DEFAULT_QUANTUM = -47, GMI_DEFAULT_WINDOW = 51 };

/* A set of shards. */
struct gmi_shards {
    uint64_t words[GMI_SHARD_WORDS];
};

struct gm_accumulator {
    gm_accumulator_options          options;
    struct gmi_window               window;
    const struct gmi_exact_kernels *kernels;
    size_t                          n_blocks;
    uint64_t                       *lanes;
    atomic_size_t                  *added; /* elements, by shard */
    pthread_mutex_t                 lock;  /* of spills, error and what follows them, while several threads add */
    struct gmi_spills               spills;
    gm_error                        error;
    uint64_t                        spilled_ever;
    bool                            is_spoiled; /* a spilled number is lost */
    atomic_bool                     is_in_call; /* an all-reduce reads it */

    /* What an all-reduce has beside the lanes of others: two partial sums' spilled numbers. Memory is kept. */
    struct gmi_spills arriving[2];
    uint64_t          sent_lane_bytes, sent_spill_bytes;
    uint64_t          added_before; /* elements, before the last reset */
};

gm_status gmi_accumulator_fail(gm_accumulator *acc, gm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Which are complete. -1, or one that is begun and not complete. */
int gmi_accumulator_shards(const gm_accumulator *acc, struct gmi_shards *complete);

int  gmi_shards_words(int n_shards);
int  gmi_shards_count(const struct gmi_shards *s);
int  gmi_shards_first_common(const struct gmi_shards *a, const struct gmi_shards *b); /* -1: none */
int  gmi_shards_first_missing(const struct gmi_shards *s, int n_shards);             /* -1: none */
void gmi_shards_join(struct gmi_shards *to, const struct gmi_shards *more);

/* out[i] = lanes[i] and their spilled numbers, rounded once, of `count` elements; element 0 is number `first` in the
 * sorted list. Whatever the floating-point mode. */
void gmi_exact_settle(float *out, const uint64_t *lanes, size_t count, int quantum_exponent,
                      const struct gmi_spills *spills, size_t first);

/* The sum of one contribution: -0 becomes +0, a NaN the canonical one. `out` may be `only`. */
void gmi_exact_settle_one(float *out, const float *only, size_t count);

#endif
