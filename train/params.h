/* params.h - the parameters of the network: one table that says what is where, and one flat array
 * each for weights and gradients.
 *
 *     layers 784,256,10:   layers.0.weight (256, 784)   layers.0.bias (256)
 *                          layers.1.weight (10, 256)    layers.1.bias (10)
 *
 * in this order, row-major, without gaps: "the gradient" is one array that can be cut into buckets,
 * hashed or copied without knowing the layers. The moments of the optimizer are arrays of the same
 * layout (optimizer.h). Nothing here computes with the values, except for the initial ones. */
#ifndef GMT_PARAMS_H
#define GMT_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

#define GMT_MAX_LAYERS 16 /* linear layers: 2 .. 17 sizes */
#define GMT_MAX_TENSORS (2 * GMT_MAX_LAYERS)

/* The sizes of a network, inputs first, classes last: 2 sizes are a linear model. */
struct gmt_layers {
    size_t sizes[GMT_MAX_LAYERS + 1];
    int    n_sizes; /* number of linear layers + 1 */
};

/* Reads "784,256,10". GM_ERR_ARG with a sentence when it is anything else, or when the network
 * would not fit into memory. */
GM_MUST_USE gm_status gmt_layers_parse(struct gmt_layers *layers, const char *text,
                                       gm_error *error);
/* Checks sizes that came another way: 2 .. 17 of them, none 0, number of parameters sane. */
GM_MUST_USE gm_status gmt_layers_check(const struct gmt_layers *layers, gm_error *error);
/* Writes "784,256,10" into text, always zero-terminated; 256 bytes are enough for anything that was
 * parsed. Returns text. */
char *gmt_layers_format(const struct gmt_layers *layers, char *text, size_t text_bytes);

struct gmt_tensor {
    char   name[32];         /* "layers.0.weight" */
    int    n_dims;           /* 2: (n_rows, n_cols), row-major; 1: (n_rows) */
    size_t n_rows, n_cols;   /* (n_out, n_in) of a weight; (n_out, 1) of a bias */
    size_t first_elem;       /* where it begins in each flat array */
    size_t n_elems;
};

struct gmt_params {
    struct gmt_layers layers;
    struct gmt_tensor tensors[GMT_MAX_TENSORS]; /* of layer l: 2l its weight, 2l + 1 its bias */
    int               n_tensors;
    size_t            n_elems;   /* 203,530 for 784,256,10 */
    float            *weights;   /* (n_elems) */
    float            *gradients; /* (n_elems) */
};

/* Fills the table, takes memory for both arrays and sets the initial weights for `seed`. On failure
 * nothing is held. GM_ERR_ARG: sizes that cannot be. GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_params_init(struct gmt_params *params, const struct gmt_layers *layers,
                                      uint64_t seed, gm_error *error);
/* Frees both arrays. A zeroed struct is fine. */
void gmt_params_fini(struct gmt_params *params);

/* The initial weights: a pure function of (seed, index of the parameter) and the layer sizes, the
 * same on every machine and for every world size. Gradients become 0. */
void gmt_params_reset(struct gmt_params *params, uint64_t seed);

/* The gradient of a weight is computed in blocks of so many rows, the last block first, so that
 * the exchange of one can begin before the next is there. A function of the weight's shape alone,
 * since the last bits depend on it: they are the same for every bucket size and also where nothing
 * is exchanged. */
size_t gmt_block_rows(const struct gmt_tensor *weight);

/* The tensor of that name, or NULL. */
const struct gmt_tensor *gmt_params_find(const struct gmt_params *params, const char *name);

#endif
