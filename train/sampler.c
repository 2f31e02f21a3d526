#include "train/sampler.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"

#define STREAM_SHUFFLE UINT64_C(0x73616d706c6572) /* keeps this use of a seed apart from others */
#define NO_EPOCH       UINT64_MAX

/* Fisher and Yates, in the form that fills and shuffles at once; a stream of its own for each
 * epoch. From the order of the epoch before nothing is taken, so that any epoch can be the first.
 * */
static void shuffle(struct gmt_sampler *sampler, uint64_t epoch)
{
    uint64_t key = gmi_rng_key(gmi_rng_key(sampler->seed, STREAM_SHUFFLE), epoch);
    uint32_t *order = sampler->order;

    for (size_t i = 0; i < sampler->n_samples; i++) {
        size_t k = gmi_rng_below(key, i, i + 1);
        order[i] = order[k];
        order[k] = (uint32_t)i;
    }
    sampler->epoch = epoch;
}

gm_status gmt_sampler_init(struct gmt_sampler *sampler, uint64_t seed, size_t n_samples,
                           size_t batch_samples, gm_error *error)
{
    gmi_error_clear(error);
    memset(sampler, 0, sizeof *sampler);
    if (n_samples == 0 || n_samples > UINT32_MAX) {
        return gmi_error_set(error, GM_ERR_ARG, "the data has %zu samples, and 1 to %u can be used",
                             n_samples, UINT32_MAX);
    }
    if (batch_samples == 0) {
        return gmi_error_set(error, GM_ERR_ARG, "the batch is 0 samples, and at least 1 is needed");
    }
    sampler->order = gmi_alloc(n_samples, sizeof *sampler->order);
    if (sampler->order == NULL) {
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the order of %zu samples",
                             n_samples);
    }
    sampler->seed = seed;
    sampler->n_samples = n_samples;
    sampler->batch_samples = batch_samples;
    sampler->epoch = NO_EPOCH;
    return GM_OK;
}

void gmt_sampler_fini(struct gmt_sampler *sampler)
{
    if (sampler == NULL) return;
    gmi_free(sampler->order);
    memset(sampler, 0, sizeof *sampler);
}

uint64_t gmt_sampler_n_batches(const struct gmt_sampler *sampler)
{
    return (sampler->n_samples - 1) / sampler->batch_samples + 1;
}

struct gmt_share gmt_sampler_share(struct gmt_sampler *sampler, struct gmt_cursor cursor,
                                   int world_size, int rank)
{
    struct gmt_share share;
    size_t first, left, in_batch;

    GMI_CHECK(gmt_cursor_is_valid(sampler, cursor));
    if (sampler->epoch != cursor.epoch) shuffle(sampler, cursor.epoch);
    first = (size_t)cursor.batch * sampler->batch_samples;
    left = sampler->n_samples - first;
    share.batch_samples = left < sampler->batch_samples ? left : sampler->batch_samples;
    gm_chunk(share.batch_samples, world_size, rank, &in_batch, &share.n_samples);
    share.indices = sampler->order + first + in_batch;
    return share;
}

struct gmt_cursor gmt_cursor_next(const struct gmt_sampler *sampler, struct gmt_cursor cursor)
{
    cursor.batch++;
    if (cursor.batch == gmt_sampler_n_batches(sampler)) {
        cursor.batch = 0;
        cursor.epoch++;
    }
    return cursor;
}

uint64_t gmt_cursor_steps(const struct gmt_sampler *sampler, struct gmt_cursor cursor)
{
    return cursor.epoch * gmt_sampler_n_batches(sampler) + cursor.batch;
}

struct gmt_cursor gmt_cursor_at_step(const struct gmt_sampler *sampler, uint64_t step)
{
    uint64_t n_batches = gmt_sampler_n_batches(sampler);
    return (struct gmt_cursor){ step / n_batches, step % n_batches };
}

/* NO_EPOCH is not an epoch, and steps are counted in 64 bits. */
bool gmt_cursor_is_valid(const struct gmt_sampler *sampler, struct gmt_cursor cursor)
{
    uint64_t n_batches = gmt_sampler_n_batches(sampler);
    return cursor.batch < n_batches && cursor.epoch < UINT64_MAX / n_batches;
}
