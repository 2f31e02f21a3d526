/* recipe.h - the settings that decide what a training run computes.
 *
 * What is here must be the same on every worker and is compared when they meet (the
 * fingerprint), and it is kept in checkpoints, so that a run can be resumed without repeating
 * its options. What may differ between workers (threads, log files) is not here. One table says
 * what there is: name, how it is written, how it is read back. */
#ifndef GMT_RECIPE_H
#define GMT_RECIPE_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/bucket.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/optimizer.h"
#include "train/params.h"
#include "train/schedule.h"
#include "train/state_hash.h"

struct gmt_recipe {
    struct gmt_layers            layers;
    struct gmt_optimizer_options optimizer;
    double                       learning_rate; /* the base of the schedule */
    enum gmt_schedule_kind       schedule;
    double                       final_fraction; /* of the learning rate, at the end of the run */
    uint64_t                     warmup_steps;
    uint64_t                     schedule_steps; /* the schedule's length; at least total_steps */
    uint64_t                     total_steps;    /* where this run ends. A run that ends before its
                                                    schedule does can be resumed as if it never had */
    size_t                       batch;      /* of all workers together */
    size_t                       accumulate; /* micro-batches of a worker in a step */
    size_t                       bucket_bytes; /* may be GMT_BUCKET_BYTES_AUTO until a trainer
                                                  has its own copy: never in a checkpoint */
    size_t                       shards;    /* V, of a reproducible run; 0: not reproducible */
    double                       clip_norm; /* longest gradient that is applied as it is; 0: any */
    char                         wire[8]; /* how gradients travel, as gm_comm_wire says; "": "f32" */
    uint64_t                     seed;
    /* The data, by content: */
    char     data[GMT_SOURCE_CHARS]; /* what --data said */
    char     data_digest[GMT_HASH_HEX_BYTES];
    uint64_t train_samples;
};

/* One setting as text. */
#define GMT_RECIPE_VALUE_BYTES 520
#define GMT_RECIPE_MAX_SETTINGS 24

struct gmt_recipe_text {
    size_t             n_settings;
    struct gmt_st_pair pairs[GMT_RECIPE_MAX_SETTINGS];
    char               values[GMT_RECIPE_MAX_SETTINGS][GMT_RECIPE_VALUE_BYTES]; /* where pairs point */
};

/* Every setting by name, with numbers written so that they read back as the same bits. */
void gmt_recipe_write(const struct gmt_recipe *recipe, struct gmt_recipe_text *text);

/* Replaces the settings of `recipe` by those of a checkpoint. GM_ERR_ARG: one is missing or
 * cannot be read; *error names file and key; the recipe is unspecified then. */
GM_MUST_USE gm_status gmt_recipe_read(struct gmt_recipe           *recipe,
                                      const struct gmt_checkpoint *checkpoint, gm_error *error);

/* Whether a run by `recipe` can go on from a checkpoint made by `saved`: what the saved state
 * and its place in the data depend on must be equal; rate, schedule, length, micro-batches and
 * buckets are free.
 * GM_ERR_ARG with a sentence that shows option and both values. */
GM_MUST_USE gm_status gmt_recipe_check_resume(const struct gmt_recipe *recipe,
                                              const struct gmt_recipe *saved, const char *file,
                                              gm_error *error);

/* Lines "key=value" for gm_comm_options.fingerprint, of the recipe and of extra pairs
 * (NULL-terminated list of key, value, key, value, ...). Cut at text_bytes. */
void gmt_recipe_fingerprint(const struct gmt_recipe *recipe, const char *const *extra, char *text,
                            size_t text_bytes);

/* SHA-256 over a training set: sizes, pixels, labels. GM_OK, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_data_digest(const struct gmt_dataset *dataset,
                                      char hex[GMT_HASH_HEX_BYTES], gm_error *error);

/* The data must fit the network: inputs and classes. GM_ERR_ARG with a sentence that shows both. */
GM_MUST_USE gm_status gmt_recipe_check_data(const struct gmt_recipe *recipe,
                                            const struct gmt_dataset *dataset, gm_error *error);

#endif
