/* optimizer.h - SGD, momentum and AdamW on flat arrays, in PyTorch's conventions.
 *
 *     sgd       g += wd w;                           w -= lr g
 *     momentum  g += wd w;   m = mu m + g;           w -= lr m         (m = g in the first step)
 *     adamw     w -= lr wd w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g
 *               w -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 *
 * Every element goes the same way by the same operations in the same order, whatever the vector
 * width, so ranks on different machines that start with the same bits and apply the same gradients
 * keep the same bits. Sources: Sutskever, Martens, Dahl, Hinton, "On the importance of
 * initialization and momentum in deep learning" (2013); Loshchilov, Hutter, "Decoupled weight decay
 * regularization" (2019). */
#ifndef GMT_OPTIMIZER_H
#define GMT_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

enum gmt_optimizer_kind { GMT_SGD, GMT_MOMENTUM, GMT_ADAMW, GMT_OPTIMIZER_END };

struct gmt_optimizer_options {
    enum gmt_optimizer_kind kind;
    double momentum;     /* GMT_MOMENTUM only; default 0.9 */
    double weight_decay; /* default 0 */
    double beta1, beta2; /* GMT_ADAMW only; default 0.9, 0.999 */
    double epsilon;      /* GMT_ADAMW only; default 1e-8 */
};

/* What a checkpoint must keep besides the weights: n_steps and these arrays. */
struct gmt_optimizer_state {
    const char *name;   /* "momentum"; "adam_m", "adam_v". Static. */
    float      *values; /* (n_elems), layout of the parameters */
};

struct gmt_optimizer {
    struct gmt_optimizer_options options;
    size_t   n_elems;
    uint64_t n_steps; /* updates made so far; AdamW's t of the next one is n_steps + 1 */
    int      n_states;
    struct gmt_optimizer_state states[2];
};

/* "sgd", "momentum", "adamw"; "?" for a number that is none. Static. */
const char *gmt_optimizer_name(enum gmt_optimizer_kind kind);
/* The kind of that name; GM_ERR_ARG with the names that there are. */
GM_MUST_USE gm_status gmt_optimizer_parse(enum gmt_optimizer_kind *kind, const char *name,
                                          gm_error *error);

/* The defaults for a kind. */
void gmt_optimizer_options_default(struct gmt_optimizer_options *options,
                                   enum gmt_optimizer_kind kind);

/* Takes memory for the state of n_elems parameters, zeroed. On failure nothing is held.
 * GM_ERR_ARG: an option out of its range. GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_optimizer_init(struct gmt_optimizer *optimizer,
                                         const struct gmt_optimizer_options *options,
                                         size_t n_elems, gm_error *error);
/* Frees the state. A zeroed struct is fine. */
void gmt_optimizer_fini(struct gmt_optimizer *optimizer);

/* One update of weights (n_elems) by gradients (n_elems); counts n_steps up. */
void gmt_optimizer_step(struct gmt_optimizer *optimizer, double learning_rate, float *weights,
                        const float *gradients);

#endif
