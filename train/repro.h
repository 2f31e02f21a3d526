/* repro.h - one step of reproducible training: the parameters get the same bits with any number of ranks.
 *
 *     global batch of B samples   [ shard 0 | shard 1 | ............. | shard V-1 ]     shards.h
 *     each shard, somewhere       its gradient from (parameters, step, shard) alone     bits.h
 *     all of them                 added exactly, rounded once                           gm_accumulator
 *     every rank                  times 1/B, shortened if too long, the same update
 *
 * Two things make it so: a shard's gradient has the same bits whoever computes it, in whatever company;
 * and the sum does not depend on order and grouping. So it makes no difference how many ranks there are,
 * who computes which shard, by which algorithm and transport the sums travel, and how many shards a rank
 * computes at a time. A shard that is counted twice or not at all is an error on every rank.
 *
 * Loss and hits travel as two more elements behind the gradient, and are exact as it is: each rank knows
 * those of the whole batch after every step. */
#ifndef GMT_REPRO_H
#define GMT_REPRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/mlp.h"
#include "train/optimizer.h"
#include "train/shards.h"
#include "train/arrivals.h"
#include "train/step.h"

struct gmt_repro_options {
    gm_comm           *comm;         /* NULL: a single process, no collective */
    size_t             global_batch; /* samples of the largest batch that will come */
    size_t             n_shards;     /* V */
    size_t             accumulate;   /* above 1: parts in which a rank computes its shards, at least */
    enum gmt_placement placement;
    uint64_t           seed;        /* of a random placement */
    double             clip_norm;   /* gradients that are longer are shortened to it; 0: none */
    bool               is_wire_raw; /* sums travel untrimmed */
    gmt_gather_fn      gather;
    void              *gather_user;
};

struct gmt_repro {
    struct gmt_repro_options options;
    struct gmt_mlp          *mlp;       /* not owned; uses bits.h */
    struct gmt_optimizer    *optimizer; /* not owned */
    int             rank, world_size;
    gm_accumulator *accumulator; /* of this rank's shards in this step */
    float          *sums;        /* (n_elems + 2): the gradient of all shards, loss, hits */
    uint32_t       *shards;      /* (n_shards): this rank's, n_own of them in this step */
    size_t          n_own;
    size_t          max_rows;    /* computed at a time */
    float          *inputs;      /* (max_rows, n_in) */
    uint8_t        *labels;      /* (max_rows) */
    size_t         *ends;        /* (n_shards): of the shards computed at a time */
    struct gmt_loss *losses;     /* (n_shards): of the same */
    struct gmt_passage passage;  /* of the last step's exchange */
};

/* Rows that a model needs (gmt_mlp_init's max_rows). */
size_t gmt_repro_max_rows(size_t global_batch, size_t n_shards, int world_size, size_t accumulate);

/* Takes memory. The model must have gmt_mlp_use_bits behind it; it and the optimizer stay the caller's and must
 * outlive this. On failure nothing is held. GM_ERR_ARG: numbers that cannot be, or a communicator whose
 * sums travel in a lean format. GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_repro_init(struct gmt_repro *repro, const struct gmt_repro_options *options,
                                     struct gmt_mlp *mlp, struct gmt_optimizer *optimizer,
                                     gm_error *error);
void gmt_repro_fini(struct gmt_repro *repro); /* all-zero is fine */

/* One step on a global batch of n_samples (1 .. global_batch; the same on every rank, as is learning_rate). Blocks
 * as gm_all_reduce_exact. *report is filled also when it fails, its loss is that of the whole batch.
 *
 * GM_OK: the parameters are updated. GM_ERR_STATE with report->is_non_finite: a loss or gradient was not
 * finite; the same result and sentence on all ranks and at every world size; nobody made the step. GM_ERR_ARG:
 * n_samples. The gather function's failure, after which the communicator is aborted with its sentence.
 * Statuses of gm_all_reduce_exact: GM_ERR_MISMATCH when a shard was counted twice or not at all. After a
 * failure weights and optimizer are as they were. */
GM_MUST_USE gm_status gmt_repro_step(struct gmt_repro *repro, size_t n_samples, double learning_rate,
                                     struct gmt_step_report *report, gm_error *error);

#endif
