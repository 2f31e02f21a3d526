/* step.h - what the ways of making a training step have in common: where samples come from, and the account of a
 * step. */
#ifndef GMT_STEP_H
#define GMT_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/mlp.h"

/* Brings samples first_sample .. first_sample + n_samples - 1 of the current global batch: inputs
 * (n_samples, n_in), labels (n_samples), each in 0 .. n_classes - 1. GM_OK, or a failure with
 * *error filled. */
typedef gm_status (*gmt_gather_fn)(void *user, size_t first_sample, size_t n_samples, float *inputs,
                                   uint8_t *labels, gm_error *error);

/* What a step was, on this rank. */
struct gmt_step_report {
    struct gmt_loss loss;        /* sums over this rank's share, or if loss_is_of_all, over the whole batch */
    bool    loss_is_of_all;
    double  gradient_norm;       /* before it was shortened; NaN if nobody wanted to know */
    bool    is_non_finite;       /* the step failed because a loss or gradient was not finite */
    int     culprit;             /* then: the first rank with it; -1: only the sum overflowed */
    /* Where this thread's time went: together they are elapsed_ns. */
    int64_t gather_ns;           /* bringing the samples */
    int64_t compute_ns;          /* forward, backward, checks, update */
    int64_t comm_exposed_ns;     /* inside the library, less wait_ns */
    int64_t wait_ns;             /* asleep in the library as nothing could move */
    int64_t elapsed_ns;
    /* And beside it: while collectives ran, and this thread was not inside the library. (With
     * comm_exposed_ns and wait_ns together: how long collectives ran, or a little more, for what
     * calls cost around them.) */
    int64_t comm_hidden_ns;
};

#endif
