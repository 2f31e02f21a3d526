#include "train/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

#define BATCH_ROWS ((size_t)128) /* few enough that the ranks share them evenly */

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

/* The blocks that the dataset is cut into: whoever computes them, they are the same, and so is the loss of each. */
static size_t n_blocks(const struct gmt_dataset *dataset)
{
    return (dataset->n_samples + BATCH_ROWS - 1) / BATCH_ROWS;
}

static struct gmt_loss evaluate_block(struct gmt_evaluator *evaluator, struct gmt_mlp *mlp, size_t block)
{
    const struct gmt_dataset *dataset = evaluator->dataset;
    size_t                    first = block * BATCH_ROWS;
    size_t                    n_rows = gmi_min_size(dataset->n_samples - first, BATCH_ROWS);
    gmt_dataset_gather_range(dataset, first, n_rows, evaluator->inputs, NULL);
    return gmt_mlp_evaluate(mlp, evaluator->inputs, dataset->labels + first, n_rows);
}

/* Everybody's blocks: two numbers of each. */
static gm_status collect(struct gmt_evaluator *evaluator, double *losses, double *hits, gm_error *error)
{
    size_t    count = n_blocks(evaluator->dataset);
    double   *lists[] = { losses, hits };
    uint64_t  bytes = 0;
    for (size_t i = 0; i < 2; i++) {
        gm_status status = gm_all_gather(evaluator->comm, lists[i], lists[i], count, GM_F64);
        if (status != GM_OK) {
            *error = *gm_comm_error(evaluator->comm);
            return status;
        }
        (void)gm_comm_payload_formula(evaluator->comm, GM_ALL_GATHER, count, GM_F64, 0, &bytes);
        evaluator->formula_bytes += bytes;
    }
    return GM_OK;
}

/* Adds up in the order of blocks, on every rank. */
static void add_up(const struct gmt_evaluator *evaluator, const double *losses, const double *hits,
                   struct gmt_evaluation *result)
{
    size_t count = n_blocks(evaluator->dataset);
    double loss_sum = 0, n_correct = 0;
    for (size_t b = 0; b < count; b++) {
        loss_sum += losses[b];
        n_correct += hits[b];
    }
    double n_samples = (double)evaluator->dataset->n_samples;
    *result = (struct gmt_evaluation){ .n_samples = evaluator->dataset->n_samples,
                                       .n_correct = (uint64_t)n_correct,
                                       .accuracy = count == 0 ? 0 : n_correct / n_samples,
                                       .loss = count == 0 ? NAN : loss_sum / n_samples };
}

gm_status gmt_evaluate(struct gmt_evaluator *evaluator, struct gmt_mlp *mlp,
                       struct gmt_evaluation *result, gm_error *error)
{
    size_t    first = 0, n_own = n_blocks(evaluator->dataset);
    double   *losses = gmi_alloc(n_own, sizeof *losses), *hits = gmi_alloc(n_own, sizeof *hits);
    gm_status status = GM_OK;
    memset(result, 0, sizeof *result);
    if (losses == NULL || hits == NULL) {
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the losses of the test set");
        if (evaluator->comm != NULL) gm_comm_abort(evaluator->comm, "a rank has no memory");
    } else {
        if (evaluator->comm != NULL)
            gm_chunk(n_own, gm_comm_size(evaluator->comm), gm_comm_rank(evaluator->comm), &first, &n_own);
        for (size_t b = first; b < first + n_own; b++) {
            struct gmt_loss loss = evaluate_block(evaluator, mlp, b);
            losses[b] = loss.loss_sum;
            hits[b] = (double)loss.n_correct;
        }
        if (evaluator->comm != NULL) status = collect(evaluator, losses, hits, error);
        if (status == GM_OK) add_up(evaluator, losses, hits, result);
    }
    gmi_free(losses);
    gmi_free(hits);
    return status;
}
