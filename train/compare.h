/* compare.h - how close two runs are: the same steps in one process, each batch undivided, and
 * two arrays of parameters element by element.
 *
 * The single process knows nothing of ranks, shares and rings; what it has in common with the
 * distributed run are the kernels, the initial state and the order of samples. */
#ifndef GMT_COMPARE_H
#define GMT_COMPARE_H

#include <stddef.h>

#include "gradmesh.h"
#include "train/trainer.h"

struct gmt_difference {
    size_t n_elems;
    size_t n_equal;      /* the same bits */
    double max_abs_diff; /* infinity when one of a pair is no number and the other is */
};

struct gmt_difference gmt_compare(const float *a, const float *b, size_t n_elems);

/* Makes a trainer of one process in the state in which `from` is now. On failure nothing is held.
 * GM_ERR_ARG, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_trainer_init_alone(struct gmt_trainer       *alone,
                                             const struct gmt_trainer *from, gm_error *error);

#endif
