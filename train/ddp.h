/* ddp.h - one step of data-parallel training, against the public header alone.
 *
 *     global batch of B samples     | rank 0 | rank 1 | rank 2 |  shares: gm_chunk(B, world, rank)
 *     each share in K micro-batches |  |  |  |  |  |  |  |  |  |  parts: gm_chunk(share, K, k)
 *     gradient of each part: sum over its samples / B, added up locally
 *     one all-reduce (sum) for each bucket: now the gradient of the mean over B
 *     the same update on every rank
 *
 * As every sample weighs 1 / B wherever it is processed, uneven shares, empty shares and a short
 * last batch need no correction.
 *
 * With is_overlapping a bucket is exchanged while the backward pass of the last micro-batch goes on:
 *
 *     computing   forward | layer 2 |  layer 1  |      layer 0      |             | update
 *     exchanging                     [bucket 0] [bucket 1] [bucket 2] [bucket 3]
 *                                   <-------------- hidden --------> <- exposed ->
 *
 * Buckets, their order and their sums are the same with and without, and so are all bits.
 *
 * A gradient or loss that is not finite stops all ranks in the same step, before the update, with
 * the same sentence. No extra round trip: what is not finite on one rank makes the sum non-finite
 * on all of them (a non-finite loss with a finite gradient is made to), every rank looks at the
 * sum, and only when it is bad does each compute its share once more, to look at that, and do they ask each other who
 * began. */
#ifndef GMT_DDP_H
#define GMT_DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/arrivals.h"
#include "train/feedback.h"
#include "train/mlp.h"
#include "train/optimizer.h"
#include "train/step.h"

struct gmt_ddp_options {
    gm_comm *comm;         /* NULL: a single process, no call of the library at all */
    size_t   global_batch; /* samples of the largest batch that will come; at least 1 */
    size_t   accumulate;   /* K, micro-batches per worker and step; at least 1 */
    size_t   bucket_bytes; /* 0: one bucket */
    bool     is_overlapping;
    double   clip_norm; /* gradients that are longer are shortened to it; 0: none */
    gmt_gather_fn gather;
    void    *gather_user;
};

struct gmt_ddp {
    struct gmt_ddp_options options;
    struct gmt_mlp        *mlp;       /* not owned */
    struct gmt_optimizer  *optimizer; /* not owned */
    struct gmt_feedback    feedback;
    struct gmt_passage    *passages; /* (n_buckets): of the last step that got through, by its buckets */
    size_t                 n_buckets;
    int      rank, world_size;
    size_t   max_micro_rows;
    float   *inputs; /* (max_micro_rows, n_in) */
    uint8_t *labels; /* (max_micro_rows) */
};

/* Micro-batch rows that a model needs (gmt_mlp_init's max_rows) for these options on the given
 * world size. */
size_t gmt_ddp_max_rows(size_t global_batch, int world_size, size_t accumulate);

/* Takes memory for the samples. mlp (max_rows at least gmt_ddp_max_rows) and optimizer stay the
 * caller's and must outlive it. On failure nothing is held. GM_ERR_ARG, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_ddp_init(struct gmt_ddp *ddp, const struct gmt_ddp_options *options,
                                   struct gmt_mlp *mlp, struct gmt_optimizer *optimizer,
                                   gm_error *error);
/* Frees the memory. A zeroed struct is fine. */
void gmt_ddp_fini(struct gmt_ddp *ddp);

/* One step on a global batch of n_samples (1 .. global_batch; the same on every rank, as is
 * learning_rate). Blocks as gm_all_reduce does. *report is filled also when it fails.
 *
 * GM_OK: the parameters are updated, on every rank that returns it with the same bits. GM_ERR_STATE
 * with report->is_non_finite: a loss or gradient was not finite; same result and sentence on all
 * ranks; parameters and optimizer are as they were. GM_ERR_ARG: n_samples is out of range. The
 * gather function's failure, after which the communicator is aborted with its sentence. Any status
 * of gm_all_reduce. After a failure the gradients are unspecified; weights are untouched. */
GM_MUST_USE gm_status gmt_ddp_step(struct gmt_ddp *ddp, size_t n_samples, double learning_rate,
                                   struct gmt_step_report *report, gm_error *error);

#endif
