/* samples.h - random samples in memory, for steps that are timed: a few batches in turns, so that they come from memory
 * and not from a core's cache. */
#ifndef STUDY_SAMPLES_H
#define STUDY_SAMPLES_H

#include <stdint.h>

#include "base/rng.h"
#include "gradmesh.h"
#include "train/mlp.h"

enum { STUDY_N_BATCHES = 4 };

struct study_samples { /* all-zero holds nothing */
    size_t   n_in;
    float   *inputs[STUDY_N_BATCHES];
    uint8_t *labels[STUDY_N_BATCHES];
    uint64_t step; /* the batch of this step is gathered; whoever makes the steps counts it up */
};

/* n_rows: of a batch; they fit the network's inputs and classes. What was taken is given back by study_samples_fini also after
 * a failure. */
GM_MUST_USE gm_status study_samples_draw(struct study_samples *samples, const struct gmt_mlp *mlp, size_t n_rows,
                                         struct gmi_rng random, gm_error *error);
void                  study_samples_fini(struct study_samples *samples);

/* A gather of gmt_ddp_options; `user` is the struct study_samples. */
gm_status study_samples_gather(void *user, size_t first_sample, size_t n_samples, float *inputs, uint8_t *labels, gm_error *error);

#endif
