#include "train/compare.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

struct gmt_difference gmt_compare(const float *a, const float *b, size_t n_elems)
{
    struct gmt_difference difference = { n_elems, 0, 0 };
    for (size_t i = 0; i < n_elems; i++) {
        if (memcmp(&a[i], &b[i], sizeof a[i]) == 0) {
            difference.n_equal++;
            continue;
        }
        double distance = fabs((double)a[i] - (double)b[i]);
        if (isnan(distance)) distance = INFINITY;
        if (distance > difference.max_abs_diff) difference.max_abs_diff = distance;
    }
    return difference;
}

gm_status gmt_trainer_init_alone(struct gmt_trainer *alone, const struct gmt_trainer *from,
                                 gm_error *error)
{
    struct gmt_trainer_options options = { .data = from->options.data,
                                           .n_threads = from->options.n_threads };
    /* One batch as it is: micro-batches would be another order of summation. */
    struct gmt_recipe recipe = from->recipe;
    recipe.accumulate = 1;
    gm_status status = gmt_trainer_init(alone, &recipe, &options, error);
    if (status != GM_OK) return status;
    GMI_CHECK(alone->state.n_tensors == from->state.n_tensors);
    for (size_t i = 0; i < from->state.n_tensors; i++)
        memcpy(alone->state.tensors[i].values, from->state.tensors[i].values,
               from->state.tensors[i].n_elems * sizeof(float));
    alone->cursor = from->cursor;
    alone->step = alone->first_step = from->step;
    alone->optimizer.n_steps = from->optimizer.n_steps;
    return GM_OK;
}
