/* mlp.h - the model: a multi-layer perceptron with ReLU between the layers and softmax
 * cross-entropy at the end, forward and backward, differentiated by hand.
 *
 *     a[0] = inputs (n_rows, n_in)
 *     a[l + 1] = relu(a[l] W[l]^T + b[l])         the last layer without relu: the logits
 *     loss = sum over rows of -log softmax(logits)[label]
 *
 * A model owns its parameters and the memory for max_rows rows; a step takes no memory. It knows
 * nothing of files, workers or optimizers. One thread at a time. */
#ifndef GMT_MLP_H
#define GMT_MLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/params.h"

struct gmt_bits;

struct gmt_mlp {
    struct gmt_params params;
    size_t max_rows;
    float *activations[GMT_MAX_LAYERS + 1]; /* [l]: (max_rows, sizes[l]); [0] stays NULL */
    float *deltas[2]; /* (max_rows, widest hidden layer): gradients by its outputs, in turns */

    /* With reproducible operations (gmt_mlp_use_bits); else NULL: */
    struct gmt_bits *bits;       /* not owned */
    float           *row_losses; /* (max_rows) */
    uint8_t         *row_hits;   /* (max_rows): 1 where the largest logit is the label's */
};

/* What a batch gave. Sums, so that parts of a batch can be added. */
struct gmt_loss {
    double loss_sum;  /* of the rows' cross-entropies */
    size_t n_correct; /* rows whose largest logit is the label's */
    size_t n_rows;
};

/* Called by the backward pass when gradients[first_elem .. first_elem + n_elems - 1] are complete:
 * a block of rows of a weight (gmt_block_rows), with the layer's bias the first time. The ranges
 * come in backward order, each directly before the one that came last, and cover everything
 * once. */
typedef void (*gmt_ready_fn)(void *user, size_t first_elem, size_t n_elems);

/* Takes memory for the parameters and for batches of up to max_rows rows (at least 1), and sets the
 * initial weights. On failure nothing is held. GM_ERR_ARG, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_mlp_init(struct gmt_mlp *mlp, const struct gmt_layers *layers,
                                   size_t max_rows, uint64_t seed, gm_error *error);
/* Frees everything. A zeroed struct is fine. */
void gmt_mlp_fini(struct gmt_mlp *mlp);

size_t gmt_mlp_n_in(const struct gmt_mlp *mlp);
size_t gmt_mlp_n_classes(const struct gmt_mlp *mlp);

/* The logits (n_rows, n_classes) of inputs (n_rows, n_in); n_rows <= max_rows. The model's memory,
 * valid until its next call. */
const float *gmt_mlp_forward(struct gmt_mlp *mlp, const float *inputs, size_t n_rows);

/* The forward half of a step. `labels`: (n_rows), each in 0 .. n_classes - 1 (whoever reads the
 * data checks that); n_rows may be 0. Leaves scale * d loss / d logits in the model's memory, for
 * gmt_mlp_backward. The loss in the result is not scaled. */
struct gmt_loss gmt_mlp_loss(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                             size_t n_rows, float scale);

/* The backward half, directly after gmt_mlp_loss with the same inputs and n_rows:
 * params.gradients becomes scale * d loss / d weights, or, with is_accumulating, that is added to
 * it. With scale = 1 / rows of the whole batch, parts of a batch of whatever sizes add up to the
 * gradient of the mean. `ready` may be NULL; the bits are the same with and without it. */
void gmt_mlp_backward(struct gmt_mlp *mlp, const float *inputs, size_t n_rows, bool is_accumulating,
                      gmt_ready_fn ready, void *user);

/* ---- reproducible ---- */

/* From now on everything is computed by the operations of bits.h, which stay the caller's: what comes
 * out for a row depends on the parameters and on that row alone. GM_ERR_NOMEM: nothing has changed. */
GM_MUST_USE gm_status gmt_mlp_use_bits(struct gmt_mlp *mlp, struct gmt_bits *bits, gm_error *error);

/* A batch in parts whose gradients are not to be added here: the rows [ends[p - 1], ends[p]) of part p,
 * which may be none. */
struct gmt_parts {
    const size_t *ends; /* (n) */
    size_t        n;
};

/* Loss of each part, to parts_loss (parts->n); the rest as gmt_mlp_loss with scale 1. A sum over a
 * part's rows is made in double in their order. */
void gmt_mlp_loss_parts(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                        const struct gmt_parts *parts, struct gmt_loss *parts_loss);

/* Takes values of a part's gradient, elements first_elem .. first_elem + n_elems - 1 of it; the memory
 * is the model's, good during the call. */
typedef void (*gmt_part_sink_fn)(void *user, size_t part, size_t first_elem, const float *values,
                                 size_t n_elems);

/* The backward half: hands over the gradient of each part's summed loss, every element once, in any
 * order. Forward and backward go over all rows together, since rows do not depend on each other; only
 * what is summed over rows is made for each part. params.gradients is used as scratch. */
void gmt_mlp_backward_parts(struct gmt_mlp *mlp, const float *inputs, const struct gmt_parts *parts,
                            gmt_part_sink_fn sink, void *user);

/* ---- use ---- */

/* Loss and correct predictions without gradients, any n_rows (in parts of max_rows). */
struct gmt_loss gmt_mlp_evaluate(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                                 size_t n_rows);

/* probabilities (n_rows, n_classes) = softmax of the logits, any n_rows. */
void gmt_mlp_predict(struct gmt_mlp *mlp, const float *inputs, size_t n_rows, float *probabilities);

#endif
