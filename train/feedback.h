/* feedback.h - error feedback: what a coarse wire format loses of a gradient is sent one step later.
 *
 *     sent      = gradient + residual        (the library rounds it on the way)
 *     residual  = sent - what came out       kept by each rank for itself, 0 at the beginning
 *
 * So nothing is lost for good, it is only late; without it small gradients beside a large one would be rounded to 0
 * in every step. Used with "int8"; bf16 and f16 are fine enough without. The rounding of the sum, by the rank that
 * owns it, is not fed back: nobody but the owner sees it.
 *
 * Residuals are a rank's own and are not in checkpoints. To make a resumed run equal to one that went on, all ranks
 * forget them whenever a checkpoint is saved, which costs the late part of one step's gradient.
 *
 * Source: Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent and its application to data-parallel
 * distributed training of speech DNNs" (2014). */
#ifndef GMT_FEEDBACK_H
#define GMT_FEEDBACK_H

#include <stddef.h>

#include "gradmesh.h"

struct gmt_feedback {
    gm_comm *comm;
    size_t   n_elems;
    float   *residual; /* (n_elems); NULL: nothing is fed back */
};

/* For gradients of n_elems numbers that are summed over `comm` (NULL: by nobody). Takes memory if the communicator's
 * wire format wants feedback. GM_OK, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_feedback_init(struct gmt_feedback *feedback, gm_comm *comm, size_t n_elems,
                                        gm_error *error);
void gmt_feedback_fini(struct gmt_feedback *feedback); /* all-zero is fine */

/* Before the all-reduce of `n_elems` values, which are those of the gradient from first_elem on: adds what they were
 * short of in the step before, and keeps what they will be short of now. */
void gmt_feedback_apply(struct gmt_feedback *feedback, float *values, size_t first_elem, size_t n_elems);

/* As at the beginning. */
void gmt_feedback_forget(struct gmt_feedback *feedback);

#endif
