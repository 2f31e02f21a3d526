/* evaluate.h - loss and accuracy on a data set, its samples split over the ranks in blocks.
 *
 * Rank r computes the blocks gm_chunk(n_blocks, world_size, r); all ranks collect what each block gave
 * and add it up in the order of blocks. So the world size does not change how anything is rounded;
 * with the operations of bits.h nothing else does either. */
#ifndef GMT_EVALUATE_H
#define GMT_EVALUATE_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/data.h"
#include "train/mlp.h"

struct gmt_evaluation {
    uint64_t n_samples, n_correct; /* 0, 0: there was nothing to look at */
    double   accuracy;             /* n_correct / n_samples, 0 .. 1 */
    double   loss;                 /* mean; NaN for no samples */
};

struct gmt_evaluator {
    gm_comm                  *comm; /* NULL: one process */
    const struct gmt_dataset *dataset;
    size_t                    max_rows;
    float                    *inputs; /* (max_rows, n_features) */
    uint64_t                  formula_bytes; /* sent by this rank so far, by the formula */
};

/* Takes memory for batches of samples. GM_ERR_NOMEM: nothing is held. */
GM_MUST_USE gm_status gmt_evaluator_init(struct gmt_evaluator *evaluator, gm_comm *comm,
                                         const struct gmt_dataset *dataset, gm_error *error);
void gmt_evaluator_fini(struct gmt_evaluator *evaluator); /* all-zero is fine */

/* The same result on every rank. Blocks as gm_all_reduce; its statuses, with the library's
 * sentence. */
GM_MUST_USE gm_status gmt_evaluate(struct gmt_evaluator *evaluator, struct gmt_mlp *mlp,
                                   struct gmt_evaluation *result, gm_error *error);

#endif
