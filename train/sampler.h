/* sampler.h - which samples are computed when, and by whom.
 *
 *     order of epoch e   = a shuffle of 0 .. n_samples - 1, a pure function of (seed, e)
 *     global batch k     = its positions k B .. min((k + 1) B, n_samples) - 1
 *     share of rank r    = gm_chunk(length of the batch, world_size, r) of it, in order
 *
 * So every world size sees the same global batches, each sample is used exactly once an epoch, and
 * a cursor (epoch, batch) is all that a checkpoint keeps to go on at the same place, also with
 * another number of workers. The last batch of an epoch may be short, and a share may be empty.
 * Nobody is asked over the network. */
#ifndef GMT_SAMPLER_H
#define GMT_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

/* The batch that comes next. {0, 0} is the beginning. */
struct gmt_cursor {
    uint64_t epoch;
    uint64_t batch; /* below gmt_sampler_n_batches */
};

struct gmt_sampler {
    uint64_t seed;
    size_t n_samples;
    size_t batch_samples; /* of the global batch */
    uint64_t epoch;       /* the one that `order` holds */
    uint32_t *order;      /* (n_samples) */
};

/* One worker's part of one global batch. `indices` is the sampler's, valid until it is asked for
 * another epoch. */
struct gmt_share {
    const uint32_t *indices; /* (n_samples) */
    size_t n_samples;        /* may be 0 */
    size_t batch_samples;    /* in the whole global batch: the weight of the average */
};

/* Makes a sampler over 0 .. n_samples - 1. GM_OK: free with gmt_sampler_fini. GM_ERR_ARG: n_samples
 * is 0 or does not fit 32 bits, or batch_samples is 0. GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_sampler_init(struct gmt_sampler *sampler, uint64_t seed, size_t n_samples,
                                       size_t batch_samples, gm_error *error);
void gmt_sampler_fini(struct gmt_sampler *sampler); /* NULL, twice and all-zero are fine */

/* Global batches in an epoch, the short one included. */
uint64_t gmt_sampler_n_batches(const struct gmt_sampler *sampler);

/* The part of the batch at `cursor` that is computed by `rank`. Shuffles when the epoch is another
 * one than last time. cursor.batch must be below gmt_sampler_n_batches: a cursor that was read from
 * a file is checked with gmt_cursor_is_valid first. */
struct gmt_share gmt_sampler_share(struct gmt_sampler *sampler, struct gmt_cursor cursor,
                                   int world_size, int rank);

/* The cursor after `cursor`: the next batch, or the first one of the next epoch. */
struct gmt_cursor gmt_cursor_next(const struct gmt_sampler *sampler, struct gmt_cursor cursor);

/* Steps done before the batch at `cursor`, and the way back. */
uint64_t gmt_cursor_steps(const struct gmt_sampler *sampler, struct gmt_cursor cursor);
struct gmt_cursor gmt_cursor_at_step(const struct gmt_sampler *sampler, uint64_t step);

bool gmt_cursor_is_valid(const struct gmt_sampler *sampler, struct gmt_cursor cursor);

#endif
