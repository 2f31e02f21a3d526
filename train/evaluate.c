#include "train/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

#define BATCH_ROWS 256

gm_status gmt_evaluator_init(struct gmt_evaluator *evaluator, gm_comm *comm,
                             const struct gmt_dataset *dataset, gm_error *error)
{
    size_t n_values;
    *evaluator = (struct gmt_evaluator){ .comm = comm, .dataset = dataset };
    evaluator->max_rows = gmi_min_size(dataset->n_samples, BATCH_ROWS);
    GMI_CHECK(gmi_mul_sizes(evaluator->max_rows, (size_t)dataset->n_features, &n_values));
    evaluator->inputs = gmi_alloc(n_values, sizeof *evaluator->inputs);
    if (evaluator->inputs == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %zu samples of %d values",
                             evaluator->max_rows, dataset->n_features);
    return GM_OK;
}

void gmt_evaluator_fini(struct gmt_evaluator *evaluator)
{
    gmi_free(evaluator->inputs);
    evaluator->inputs = NULL;
}

static gm_status sum_over_ranks(struct gmt_evaluator *evaluator, void *values, size_t count,
                                gm_dtype dtype, gm_error *error)
{
    uint64_t bytes = 0;
    gm_status status = gm_all_reduce(evaluator->comm, values, values, count, dtype, GM_SUM);
    if (status != GM_OK) {
        *error = *gm_comm_error(evaluator->comm);
        return status;
    }
    (void)gm_comm_payload_formula(evaluator->comm, GM_ALL_REDUCE, count, dtype, 0, &bytes);
    evaluator->formula_bytes += bytes;
    return GM_OK;
}

/* This rank's samples. */
static struct gmt_loss evaluate_share(struct gmt_evaluator *evaluator, struct gmt_mlp *mlp)
{
    const struct gmt_dataset *dataset = evaluator->dataset;
    struct gmt_loss           total = { 0, 0, 0 };
    size_t                    first = 0, count = dataset->n_samples;
    if (evaluator->comm != NULL)
        gm_chunk(dataset->n_samples, gm_comm_size(evaluator->comm), gm_comm_rank(evaluator->comm),
                 &first, &count);
    for (size_t done = 0; done < count;) {
        size_t n_rows = gmi_min_size(count - done, evaluator->max_rows);
        gmt_dataset_gather_range(dataset, first + done, n_rows, evaluator->inputs, NULL);
        struct gmt_loss part =
            gmt_mlp_evaluate(mlp, evaluator->inputs, dataset->labels + first + done, n_rows);
        total.loss_sum += part.loss_sum;
        total.n_correct += part.n_correct;
        total.n_rows += part.n_rows;
        done += n_rows;
    }
    return total;
}

gm_status gmt_evaluate(struct gmt_evaluator *evaluator, struct gmt_mlp *mlp,
                       struct gmt_evaluation *result, gm_error *error)
{
    struct gmt_loss share = evaluate_share(evaluator, mlp);
    int64_t         counts[2] = { (int64_t)share.n_correct, (int64_t)share.n_rows };
    double          loss_sum = share.loss_sum;
    memset(result, 0, sizeof *result);
    if (evaluator->comm != NULL) {
        gm_status status = sum_over_ranks(evaluator, counts, 2, GM_I64, error);
        if (status == GM_OK) status = sum_over_ranks(evaluator, &loss_sum, 1, GM_F64, error);
        if (status != GM_OK) return status;
    }
    result->n_correct = (uint64_t)counts[0];
    result->n_samples = (uint64_t)counts[1];
    result->accuracy = counts[1] == 0 ? 0 : (double)counts[0] / (double)counts[1];
    result->loss = counts[1] == 0 ? NAN : loss_sum / (double)counts[1];
    return GM_OK;
}
