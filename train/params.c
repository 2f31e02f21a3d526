#include "train/params.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/rng.h"

#define MAX_SIZE ((size_t)1 << 24)   /* of a layer: far below the 31 bits of a BLAS dimension */
#define MAX_PARAMS ((size_t)1 << 30) /* 4 GiB of weights: more is a typing error here */

/* The sub-stream of initial weights, so that nothing else that is drawn from the seed meets
 * them. */
#define INIT_STREAM UINT64_C(0x77656967687473)

/* ---- layer sizes ----------------------------------------------------------------------------- */

/* Reads one decimal number of at most 9 digits and moves *text behind it. */
static bool read_size(const char **text, size_t *size)
{
    size_t value = 0;
    int n_digits = 0;
    while (**text >= '0' && **text <= '9') {
        if (++n_digits > 9) return false;
        value = 10 * value + (size_t)(*(*text)++ - '0');
    }
    *size = value;
    return n_digits > 0;
}

gm_status gmt_layers_parse(struct gmt_layers *layers, const char *text, gm_error *error)
{
    const char *next = text;
    layers->n_sizes = 0;
    for (;;) {
        if (layers->n_sizes > GMT_MAX_LAYERS)
            return gmi_error_set(error, GM_ERR_ARG, "layers \"%s\": more than %d sizes", text,
                                 GMT_MAX_LAYERS + 1);
        if (!read_size(&next, &layers->sizes[layers->n_sizes]))
            return gmi_error_set(error, GM_ERR_ARG,
                                 "layers \"%s\": expected sizes such as 784,256,10, but found "
                                 "something else at \"%.20s\"",
                                 text, next);
        layers->n_sizes++;
        if (*next == '\0') return gmt_layers_check(layers, error);
        if (*next++ != ',')
            return gmi_error_set(error, GM_ERR_ARG,
                                 "layers \"%s\": expected a comma before \"%.20s\"", text,
                                 next - 1);
    }
}

gm_status gmt_layers_check(const struct gmt_layers *layers, gm_error *error)
{
    if (layers->n_sizes < 2 || layers->n_sizes > GMT_MAX_LAYERS + 1)
        return gmi_error_set(error, GM_ERR_ARG,
                             "layers: %d sizes, expected 2 to %d (inputs, hidden layers, classes)",
                             layers->n_sizes, GMT_MAX_LAYERS + 1);
    size_t n_params = 0;
    for (int i = 0; i < layers->n_sizes; i++) {
        if (layers->sizes[i] < 1 || layers->sizes[i] > MAX_SIZE)
            return gmi_error_set(error, GM_ERR_ARG,
                                 "layers: size %d is %zu, expected 1 to %zu", i + 1,
                                 layers->sizes[i], MAX_SIZE);
        if (i > 0) n_params += layers->sizes[i] * (layers->sizes[i - 1] + 1); /* below 2^54 */
    }
    if (n_params > MAX_PARAMS)
        return gmi_error_set(error, GM_ERR_ARG,
                             "layers: the network has %zu parameters, at most %zu are supported",
                             n_params, MAX_PARAMS);
    return GM_OK;
}

char *gmt_layers_format(const struct gmt_layers *layers, char *text, size_t text_bytes)
{
    size_t used = 0;
    if (text_bytes > 0) text[0] = '\0';
    for (int i = 0; i < layers->n_sizes && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, i == 0 ? "%zu" : ",%zu",
                                 layers->sizes[i]);
    return text;
}

/* ---- the table and the arrays ---------------------------------------------------------------- */

static void add_tensor(struct gmt_params *params, int layer, const char *kind, int n_dims,
                       size_t n_rows, size_t n_cols)
{
    struct gmt_tensor *tensor = &params->tensors[params->n_tensors++];
    snprintf(tensor->name, sizeof tensor->name, "layers.%d.%s", layer, kind);
    tensor->n_dims = n_dims;
    tensor->n_rows = n_rows;
    tensor->n_cols = n_cols;
    tensor->first_elem = params->n_elems;
    tensor->n_elems = n_rows * n_cols;
    params->n_elems += tensor->n_elems;
}

gm_status gmt_params_init(struct gmt_params *params, const struct gmt_layers *layers, uint64_t seed,
                          gm_error *error)
{
    memset(params, 0, sizeof *params);
    gm_status status = gmt_layers_check(layers, error);
    if (status != GM_OK) return status;

    params->layers = *layers;
    for (int l = 0; l + 1 < layers->n_sizes; l++) {
        add_tensor(params, l, "weight", 2, layers->sizes[l + 1], layers->sizes[l]);
        add_tensor(params, l, "bias", 1, layers->sizes[l + 1], 1);
    }
    params->weights = gmi_alloc(params->n_elems, sizeof *params->weights);
    params->gradients = gmi_alloc(params->n_elems, sizeof *params->gradients);
    if (params->weights == NULL || params->gradients == NULL) {
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for %zu parameters",
                               params->n_elems);
        gmt_params_fini(params);
        return status;
    }
    gmt_params_reset(params, seed);
    return GM_OK;
}

void gmt_params_fini(struct gmt_params *params)
{
    gmi_free(params->weights);
    gmi_free(params->gradients);
    params->weights = params->gradients = NULL;
}

/* The half-width of the uniform distribution of a weight: sqrt(6 / n_in) keeps the variance of
 * activations from layer to layer before a ReLU (He, Zhang, Ren, Sun, "Delving deep into
 * rectifiers", 2015). Biases start at 0. For the logits, smaller ones were tried on MNIST, and no
 * better. */
static double init_limit(const struct gmt_tensor *tensor)
{
    return tensor->n_dims == 1 ? 0 : sqrt(6.0 / (double)tensor->n_cols);
}

void gmt_params_reset(struct gmt_params *params, uint64_t seed)
{
    uint64_t key = gmi_rng_key(seed, INIT_STREAM);
    for (int t = 0; t < params->n_tensors; t++) {
        const struct gmt_tensor *tensor = &params->tensors[t];
        double limit = init_limit(tensor);
        size_t end = tensor->first_elem + tensor->n_elems;
        for (size_t i = tensor->first_elem; i < end; i++)
            params->weights[i] =
                limit == 0 ? 0 : (float)((2 * gmi_rng_unit(key, i) - 1) * limit);
    }
    memset(params->gradients, 0, params->n_elems * sizeof *params->gradients);
}

/* Measured, 784-256 at 32 samples: four blocks take 4 % longer than one. Below 64 rows it is more
 * where there are many samples; and a block should be worth a message. */
#define MAX_BLOCKS 8
#define MIN_BLOCK_ROWS 64
#define MIN_BLOCK_BYTES 65536
#define BLOCK_ROWS_MULTIPLE 16 /* what the kernels of a matrix product like */

static size_t divide_up(size_t n, size_t by) { return n / by + (n % by != 0); }

size_t gmt_block_rows(const struct gmt_tensor *weight)
{
    size_t min_rows = divide_up(MIN_BLOCK_BYTES, weight->n_cols * sizeof(float));
    if (min_rows < MIN_BLOCK_ROWS) min_rows = MIN_BLOCK_ROWS;
    size_t n_blocks = gmi_min_size(weight->n_rows / min_rows, MAX_BLOCKS);
    if (n_blocks <= 1) return weight->n_rows;
    size_t rows = divide_up(divide_up(weight->n_rows, n_blocks), BLOCK_ROWS_MULTIPLE);
    return gmi_min_size(rows * BLOCK_ROWS_MULTIPLE, weight->n_rows);
}

const struct gmt_tensor *gmt_params_find(const struct gmt_params *params, const char *name)
{
    for (int t = 0; t < params->n_tensors; t++)
        if (strcmp(params->tensors[t].name, name) == 0) return &params->tensors[t];
    return NULL;
}
