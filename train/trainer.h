/* trainer.h - the training loop: steps, reports, evaluation, checkpoints, and the account of it
 * all.
 *
 *     for each step:     ddp or repro step on the global batch at the cursor
 *     each report_every: the loss of all ranks' samples since the last report       one small all-reduce
 *     each epoch's end:  report, then evaluation of the test set, split over the ranks
 *     each save_every:   rank 0 saves; the others wait for its word                 one broadcast or more
 *     at the end:        state hashes and byte counts of all ranks                  one all-gather
 *
 * Whatever calls the library is decided from numbers that are the same on every rank (the step,
 * the recipe), so that all ranks make the same calls. The loop prints nothing: it tells a
 * listener. */
#ifndef GMT_TRAINER_H
#define GMT_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/arrivals.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/ddp.h"
#include "train/evaluate.h"
#include "train/mlp.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/repro.h"
#include "train/sampler.h"
#include "train/state_hash.h"

/* Where the time of a rank went. What is missing to elapsed_ns is the loop's own; comm_hidden_ns
 * ran beside the others and is no part of the sum. */
struct gmt_time_split {
    int64_t elapsed_ns;
    int64_t compute_ns;      /* forward, backward, update */
    int64_t loading_ns;      /* copying samples into batches */
    int64_t comm_exposed_ns; /* inside the library and busy */
    int64_t comm_hidden_ns;  /* collectives ran while this rank computed */
    int64_t wait_ns;         /* inside the library, for ranks that came later (arrivals.h) */
    int64_t evaluation_ns;   /* of the test set, with its communication */
    int64_t checkpoint_ns;   /* saving, or waiting for rank 0 to have saved */
};

/* Whether the gradient is exchanged while the backward pass goes on. */
enum gmt_overlap {
    GMT_OVERLAP_OFF,
    GMT_OVERLAP_ON,
    GMT_OVERLAP_AUTO, /* when there is room for it on every rank: the options' has_room */
};

/* Since the report before. */
struct gmt_report {
    uint64_t step, epoch;    /* steps done; epoch of the last one, from 0 */
    uint64_t batch;          /* of the last step in its epoch, from 0 */
    uint64_t n_batches;      /* of an epoch */
    double   loss;           /* mean over the samples since, of all ranks */
    double   train_accuracy; /* of these samples, before their update */
    double   learning_rate;  /* of the last step */
    double   gradient_norm;  /* of the last step, before it was shortened */
    double   samples_per_s;
    struct gmt_time_split split; /* since the report before */
    struct gmt_lateness   lateness; /* ... of its steps: who came last */
    int64_t  late_steps_ns;         /* how long these steps took */
    bool     is_epoch_end;
    const struct gmt_state_digest *digest; /* of the state now, if the run is reproducible; else NULL */
};

struct gmt_epoch_report {
    uint64_t epoch, step;
    double   loss; /* mean over the epoch's samples of this run */
    struct gmt_evaluation test;
    struct gmt_time_split split; /* of the whole epoch */
};

/* What one rank did, gathered from all at the end. */
struct gmt_rank_account {
    char     state_hash[GMT_HASH_HEX_BYTES];
    uint64_t payload_sent_bytes;
    uint64_t formula_bytes;        /* what the formulas of the algorithms say for the same calls; for
                                      exact sums, whose size depends on the values: as if of f32 */
    uint64_t protocol_sent_bytes;
    uint64_t memory_sent_bytes;    /* of payload and protocol: by shared memory */
    uint64_t kernel_sent_bytes;    /* meaningful if has_kernel_count */
    bool     has_kernel_count;
};

struct gmt_end {
    int      world_size;
    uint64_t first_step, steps; /* steps done before this run, and now */
    double   loss;              /* mean over the last epoch's samples; NaN if no step was made */
    struct gmt_evaluation test;
    char     state_hash[GMT_HASH_HEX_BYTES];
    bool     are_identical;     /* all ranks have the same state_hash */
    struct gmt_rank_account *accounts; /* (world_size); the trainer's */
    char     wire[8];           /* how gradients travelled: "f32", ... */
    size_t   shards;            /* V of a reproducible run; 0: it was none. Then: */
    uint64_t added, spilled;    /* numbers that this rank has added up, and of them those that did not fit
                                   into lanes */
    uint64_t gradient_bytes;    /* of one exchange, as float32 */
    uint64_t naive_bytes;       /* what each rank would have sent by circulating whole gradients */
    double   samples_per_s;     /* of the steps alone, without evaluation and checkpoints */
    struct gmt_time_split split;
    struct gmt_lateness   lateness; /* of all steps: who came last, and what that cost */
    int64_t  late_steps_ns;         /* how long these steps took */
};

/* Told what happens, on every rank; any of them may be NULL. */
struct gmt_listener {
    void (*report)(void *user, const struct gmt_report *report);
    void (*epoch)(void *user, const struct gmt_epoch_report *report);
    void (*saved)(void *user, uint64_t step, const char *dir_path); /* on rank 0 */
    /* After each step, on this rank alone: for a live line. `share` is this rank's. */
    void (*step)(void *user, uint64_t step, const struct gmt_step_report *share);
    void *user;
    /* Before `report`, with this rank's own split in it; on all ranks or on none. May call the library, all ranks the same;
     * what that moves is kept out of the account. A failure ends the run. */
    gm_status (*exchange)(void *user, const struct gmt_report *report, gm_error *error);
};

struct gmt_trainer_options {
    gm_comm               *comm; /* NULL: one process and no call of the library */
    const struct gmt_data *data; /* the training set, and the test set if there is one */
    uint64_t               report_every; /* steps; 0: at the end of epochs only */
    uint64_t               save_every;   /* steps; 0: at the end of epochs; counts if is_saving */
    bool                   is_saving;    /* the same on all ranks */
    const struct gmt_checkpoint_dir *dir; /* rank 0 of those that save; else NULL */
    enum gmt_overlap       overlap;      /* the same on all ranks; of more than one */
    bool                   has_room;     /* for GMT_OVERLAP_AUTO, on this rank */
    int                    n_threads;    /* of a reproducible run's operations; 0: 1 */
    enum gmt_placement     placement;    /* of its shards; the same on all ranks */
    bool                   is_wire_raw;  /* its sums travel untrimmed */
    int64_t                save_limit_ms; /* a save that takes longer fails the run; 0: 600,000 */
    struct gmt_listener    listener;
};

struct gmt_trainer {
    struct gmt_recipe          recipe;
    struct gmt_trainer_options options;
    int                        rank, world_size;
    struct gmt_mlp             mlp;
    struct gmt_optimizer       optimizer;
    struct gmt_sampler         sampler;
    struct gmt_ddp             ddp;   /* one of these two makes the steps: this, */
    struct gmt_repro           repro; /* or this, if the recipe has shards */
    struct gmt_bits           *bits;
    struct gmt_evaluator       evaluator;
    struct gmt_state           state;  /* of mlp and optimizer */
    struct gmt_cursor          cursor; /* of the next step */
    uint64_t                   step;   /* steps done */
    uint64_t                   first_step;
    uint64_t                   formula_bytes, naive_bytes;
    gm_traffic                 aside; /* what the listener's exchanges have moved */
    struct gmt_time_split      split; /* since the beginning */
    uint64_t                   n_samples;
    struct gmt_share           batch; /* the global batch that is being computed */
    struct gmt_arrivals        arrivals; /* of steps since the last report */
    int64_t                    asleep_ns, kept_ns; /* of these steps: asleep in the library; all of their time */
    struct gmt_rank_account   *accounts;
    bool                       is_overlapping;
    bool                       is_save_stuck;
};

/* Makes model, optimizer and the rest, in the state before the first step. `recipe` is copied, with
 * buckets as they will be in the place of GMT_BUCKET_BYTES_AUTO; comm, data and dir stay the
 * caller's and must outlive the trainer. All ranks call this together: they agree on overlap and compare
 * clocks. On failure nothing is held. GM_ERR_ARG, GM_ERR_NOMEM, any status of
 * gm_all_reduce. */
GM_MUST_USE gm_status gmt_trainer_init(struct gmt_trainer *trainer, const struct gmt_recipe *recipe,
                                       const struct gmt_trainer_options *options, gm_error *error);
void gmt_trainer_fini(struct gmt_trainer *trainer); /* all-zero is fine */

/* Goes to the state of a checkpoint; on failure nothing is changed. GM_ERR_ARG. */
GM_MUST_USE gm_status gmt_trainer_resume(struct gmt_trainer *trainer,
                                         const struct gmt_checkpoint *checkpoint, gm_error *error);

/* One step. *report is filled also when it fails. Statuses of gmt_ddp_step. */
GM_MUST_USE gm_status gmt_trainer_step(struct gmt_trainer *trainer, struct gmt_step_report *report,
                                       gm_error *error);

/* Everything until recipe.total_steps, and the account. Blocks as the collectives do. On success
 * *end is filled and valid as long as the trainer. Statuses of gmt_ddp_step, of saving, and
 * GM_ERR_ABORTED when rank 0 could not save. */
GM_MUST_USE gm_status gmt_trainer_run(struct gmt_trainer *trainer, struct gmt_end *end,
                                      gm_error *error);

#endif
