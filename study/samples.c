#include "study/samples.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

gm_status study_samples_draw(struct study_samples *samples, const struct gmt_mlp *mlp, size_t n_rows, struct gmi_rng random,
                             gm_error *error)
{
    size_t n_classes = gmt_mlp_n_classes(mlp);
    samples->n_in = gmt_mlp_n_in(mlp);
    for (int b = 0; b < STUDY_N_BATCHES; b++) {
        samples->inputs[b] = gmi_alloc(n_rows * samples->n_in, sizeof(float));
        samples->labels[b] = gmi_alloc(n_rows, 1);
        if (samples->inputs[b] == NULL || samples->labels[b] == NULL)
            return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %d batches of %zu samples", STUDY_N_BATCHES, n_rows);
        for (size_t i = 0; i < n_rows * samples->n_in; i++) samples->inputs[b][i] = (float)gmi_rng_next_unit(&random);
        for (size_t i = 0; i < n_rows; i++) samples->labels[b][i] = (uint8_t)gmi_rng_next_below(&random, n_classes);
    }
    return GM_OK;
}

void study_samples_fini(struct study_samples *samples)
{
    for (int b = 0; b < STUDY_N_BATCHES; b++) {
        gmi_free(samples->inputs[b]);
        gmi_free(samples->labels[b]);
    }
}

gm_status study_samples_gather(void *user, size_t first_sample, size_t n_samples, float *inputs, uint8_t *labels, gm_error *error)
{
    const struct study_samples *samples = user;
    size_t                      which = samples->step % STUDY_N_BATCHES;
    (void)first_sample;
    (void)error;
    memcpy(inputs, samples->inputs[which], n_samples * samples->n_in * sizeof *inputs);
    memcpy(labels, samples->labels[which], n_samples);
    return GM_OK;
}
