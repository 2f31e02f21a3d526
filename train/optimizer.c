#include "train/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/simd.h"

/* A row says what there is to know about a kind; adding one is a row and an update function. */
struct optimizer_kind {
    const char *name;
    const char *state_names[2];
    void (*update)(struct gmt_optimizer *optimizer, double learning_rate, float *restrict weights,
                   const float *restrict gradients);
};

/* ---- the updates -------------------------------------------------------------------------------
 * *
 *
 * The loops are plain, so that the compiler vectorises them: every element is independent, and
 * without contraction to fused multiply-adds each vector width gives the same bits. */

GMI_SIMD static void update_sgd(struct gmt_optimizer *optimizer, double learning_rate,
                                float *restrict weights, const float *restrict gradients)
{
    float rate = (float)learning_rate, decay = (float)optimizer->options.weight_decay;
    size_t n = optimizer->n_elems;
    if (decay == 0)
        for (size_t i = 0; i < n; i++) weights[i] -= rate * gradients[i];
    else
        for (size_t i = 0; i < n; i++) weights[i] -= rate * (gradients[i] + decay * weights[i]);
}

/* As the buffer starts at zero, mu m + g is g in the first step without a special case. */
GMI_SIMD static void update_momentum(struct gmt_optimizer *optimizer, double learning_rate,
                                     float *restrict weights, const float *restrict gradients)
{
    float rate = (float)learning_rate, decay = (float)optimizer->options.weight_decay;
    float keep = (float)optimizer->options.momentum;
    float *restrict momentum = optimizer->states[0].values;
    size_t n = optimizer->n_elems;
    for (size_t i = 0; i < n; i++) {
        float gradient = gradients[i] + decay * weights[i];
        momentum[i] = keep * momentum[i] + gradient;
        weights[i] -= rate * momentum[i];
    }
}

/* base^exponent by squaring: the C library's pow may differ in the last bit from host to host. */
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

GMI_SIMD static void update_adamw(struct gmt_optimizer *optimizer, double learning_rate,
                                  float *restrict weights, const float *restrict gradients)
{
    const struct gmt_optimizer_options *options = &optimizer->options;
    uint64_t t = optimizer->n_steps + 1;
    float keep = (float)(1 - learning_rate * options->weight_decay);
    float beta1 = (float)options->beta1, beta2 = (float)options->beta2;
    float mix1 = (float)(1 - options->beta1), mix2 = (float)(1 - options->beta2);
    float rate = (float)(learning_rate / (1 - power(options->beta1, t)));
    float root = (float)sqrt(1 - power(options->beta2, t));
    float epsilon = (float)options->epsilon;
    float *restrict m = optimizer->states[0].values;
    float *restrict v = optimizer->states[1].values;
    size_t n = optimizer->n_elems;
    for (size_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + mix1 * gradients[i];
        v[i] = beta2 * v[i] + mix2 * gradients[i] * gradients[i];
        weights[i] = keep * weights[i] - rate * (m[i] / (sqrtf(v[i]) / root + epsilon));
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct optimizer_kind kinds[GMT_OPTIMIZER_END] = {
    [GMT_SGD] = { "sgd", { NULL, NULL }, update_sgd },
    [GMT_MOMENTUM] = { "momentum", { "momentum", NULL }, update_momentum },
    [GMT_ADAMW] = { "adamw", { "adam_m", "adam_v" }, update_adamw },
};

const char *gmt_optimizer_name(enum gmt_optimizer_kind kind)
{
    return (unsigned)kind < GMT_OPTIMIZER_END ? kinds[kind].name : "?";
}

gm_status gmt_optimizer_parse(enum gmt_optimizer_kind *kind, const char *name, gm_error *error)
{
    for (int k = 0; k < GMT_OPTIMIZER_END; k++)
        if (strcmp(name, kinds[k].name) == 0) {
            *kind = (enum gmt_optimizer_kind)k;
            return GM_OK;
        }
    return gmi_error_set(error, GM_ERR_ARG,
                         "optimizer \"%s\": expected sgd, momentum or adamw", name);
}

void gmt_optimizer_options_default(struct gmt_optimizer_options *options,
                                   enum gmt_optimizer_kind kind)
{
    *options = (struct gmt_optimizer_options){
        .kind = kind, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8
    };
}

/* Written so that a NaN is out of range. */
static gm_status check_options(const struct gmt_optimizer_options *options, gm_error *error)
{
    if ((unsigned)options->kind >= GMT_OPTIMIZER_END)
        return gmi_error_set(error, GM_ERR_ARG, "optimizer: there is no kind %d",
                             (int)options->kind);
    if (!(options->weight_decay >= 0 && options->weight_decay <= 1e6))
        return gmi_error_set(error, GM_ERR_ARG,
                             "optimizer: weight decay is %g, expected 0 or a small positive number",
                             options->weight_decay);
    if (options->kind == GMT_MOMENTUM && !(options->momentum >= 0 && options->momentum < 1))
        return gmi_error_set(error, GM_ERR_ARG,
                             "optimizer: momentum is %g, expected at least 0 and below 1",
                             options->momentum);
    if (options->kind == GMT_ADAMW && !(options->beta1 >= 0 && options->beta1 < 1 &&
                                        options->beta2 >= 0 && options->beta2 < 1))
        return gmi_error_set(error, GM_ERR_ARG,
                             "optimizer: betas are %g and %g, expected at least 0 and below 1",
                             options->beta1, options->beta2);
    if (options->kind == GMT_ADAMW && !(options->epsilon > 0 && options->epsilon <= 1))
        return gmi_error_set(error, GM_ERR_ARG,
                             "optimizer: epsilon is %g, expected above 0 and at most 1",
                             options->epsilon);
    return GM_OK;
}

gm_status gmt_optimizer_init(struct gmt_optimizer *optimizer,
                             const struct gmt_optimizer_options *options, size_t n_elems,
                             gm_error *error)
{
    memset(optimizer, 0, sizeof *optimizer);
    gm_status status = check_options(options, error);
    if (status != GM_OK) return status;

    optimizer->options = *options;
    optimizer->n_elems = n_elems;
    for (int s = 0; s < 2 && kinds[options->kind].state_names[s] != NULL; s++) {
        struct gmt_optimizer_state *state = &optimizer->states[optimizer->n_states++];
        state->name = kinds[options->kind].state_names[s];
        state->values = gmi_alloc(n_elems, sizeof *state->values);
        if (state->values == NULL) {
            status = gmi_error_set(error, GM_ERR_NOMEM,
                                   "no memory for the optimizer's state of %zu parameters",
                                   n_elems);
            gmt_optimizer_fini(optimizer);
            return status;
        }
    }
    return GM_OK;
}

void gmt_optimizer_fini(struct gmt_optimizer *optimizer)
{
    for (int s = 0; s < 2; s++) gmi_free(optimizer->states[s].values);
    memset(optimizer->states, 0, sizeof optimizer->states);
    optimizer->n_states = 0;
}

void gmt_optimizer_step(struct gmt_optimizer *optimizer, double learning_rate, float *weights,
                        const float *gradients)
{
    kinds[optimizer->options.kind].update(optimizer, learning_rate, weights, gradients);
    optimizer->n_steps++;
}
