#include "train/ddp.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/bucket.h"
#include "train/ops.h"

/* What was not finite on a rank. Lower is more to the point: a bad loss makes a bad gradient. */
enum trouble { BAD_LOSS, BAD_GRADIENT, N_TROUBLES, NO_TROUBLE = N_TROUBLES };

/* ---- set-up ---------------------------------------------------------------------------------- */

static size_t larger_part(size_t n, size_t n_parts) { return n / n_parts + (n % n_parts != 0); }

size_t gmt_ddp_max_rows(size_t global_batch, int world_size, size_t accumulate)
{
    GMI_CHECK(world_size >= 1 && accumulate >= 1);
    return larger_part(larger_part(global_batch, (size_t)world_size), accumulate);
}

gm_status gmt_ddp_init(struct gmt_ddp *ddp, const struct gmt_ddp_options *options,
                       struct gmt_mlp *mlp, struct gmt_optimizer *optimizer, gm_error *error)
{
    memset(ddp, 0, sizeof *ddp);
    if (options->global_batch < 1)
        return gmi_error_set(error, GM_ERR_ARG, "the global batch is 0, expected at least 1");
    if (options->accumulate < 1 || options->accumulate > INT_MAX)
        return gmi_error_set(error, GM_ERR_ARG, "accumulate is %zu, expected 1 to %d",
                             options->accumulate, INT_MAX);
    if (optimizer->n_elems != mlp->params.n_elems)
        return gmi_error_set(error, GM_ERR_ARG,
                             "the optimizer was made for %zu parameters, the model has %zu",
                             optimizer->n_elems, mlp->params.n_elems);

    ddp->options = *options;
    ddp->mlp = mlp;
    ddp->optimizer = optimizer;
    ddp->rank = options->comm == NULL ? 0 : gm_comm_rank(options->comm);
    ddp->world_size = options->comm == NULL ? 1 : gm_comm_size(options->comm);
    ddp->max_micro_rows =
        gmt_ddp_max_rows(options->global_batch, ddp->world_size, options->accumulate);
    if (mlp->max_rows < ddp->max_micro_rows)
        return gmi_error_set(error, GM_ERR_ARG,
                             "the model takes %zu samples at a time, %zu are needed",
                             mlp->max_rows, ddp->max_micro_rows);

    size_t n_inputs; /* cannot overflow: sizes were checked by the model */
    GMI_CHECK(gmi_mul_sizes(ddp->max_micro_rows, gmt_mlp_n_in(mlp), &n_inputs));
    ddp->inputs = gmi_alloc(n_inputs, sizeof *ddp->inputs);
    ddp->labels = gmi_alloc(ddp->max_micro_rows, sizeof *ddp->labels);
    if (ddp->inputs != NULL && ddp->labels != NULL) return GM_OK;
    gmt_ddp_fini(ddp);
    return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %zu samples", ddp->max_micro_rows);
}

void gmt_ddp_fini(struct gmt_ddp *ddp)
{
    gmi_free(ddp->inputs);
    gmi_free(ddp->labels);
    ddp->inputs = NULL;
    ddp->labels = NULL;
}

/* ---- local part ------------------------------------------------------------------------------ */

/* Part number `index` of [first, first + n), cut as the library cuts chunks. */
static void part_of(size_t first, size_t n, int n_parts, int index, size_t *part_first,
                    size_t *part_n)
{
    gm_chunk(n, n_parts, index, part_first, part_n);
    *part_first += first;
}

static void add_loss(struct gmt_loss *total, struct gmt_loss part)
{
    total->loss_sum += part.loss_sum;
    total->n_correct += part.n_correct;
    total->n_rows += part.n_rows;
}

/* Brings the samples and adds up the gradient of this rank's share, micro-batch by micro-batch. */
static gm_status local_gradient(struct gmt_ddp *ddp, size_t n_samples,
                                struct gmt_step_report *report, gm_error *error)
{
    float scale = (float)(1.0 / (double)n_samples);
    int n_micro = (int)ddp->options.accumulate;
    size_t share_first, share_n, first, n;
    part_of(0, n_samples, ddp->world_size, ddp->rank, &share_first, &share_n);
    for (int k = 0; k < n_micro; k++) {
        part_of(share_first, share_n, n_micro, k, &first, &n);
        if (n == 0 && k > 0) break; /* longer parts come first, and the first sets the gradient */
        int64_t start_ns = gmi_now_ns();
        gm_status status = n == 0 ? GM_OK
                                  : ddp->options.gather(ddp->options.gather_user, first, n,
                                                        ddp->inputs, ddp->labels, error);
        report->gather_ns += gmi_now_ns() - start_ns;
        if (status != GM_OK) return status;
        add_loss(&report->loss, gmt_mlp_gradient(ddp->mlp, ddp->inputs, ddp->labels, n, scale,
                                                 k > 0, NULL, NULL));
    }
    return GM_OK;
}

/* ---- the sum over ranks ---------------------------------------------------------------------- */

/* Reduces the gradient in place. *trouble: what was wrong with this rank's share before,
 * *is_sum_finite: whether everything is well after. Both looks at a bucket happen while it is in
 * the cache. */
static gm_status reduce_gradient(struct gmt_ddp *ddp, enum trouble *trouble, bool *is_sum_finite)
{
    float *gradients = ddp->mlp->params.gradients;
    size_t n_elems = ddp->mlp->params.n_elems, bucket_bytes = ddp->options.bucket_bytes;
    size_t n_buckets = gmt_bucket_count(n_elems, bucket_bytes);
    bool is_alone = ddp->world_size == 1;

    *is_sum_finite = true;
    for (size_t b = 0; b < n_buckets; b++) {
        struct gmt_bucket bucket = gmt_bucket_at(n_elems, bucket_bytes, b);
        float *values = gradients + bucket.first_elem;
        if (!is_alone && *trouble == NO_TROUBLE && !gmt_all_finite(values, bucket.n_elems))
            *trouble = BAD_GRADIENT;
        /* A bad loss must be in the sum, where every rank sees it. */
        if (b == 0 && *trouble == BAD_LOSS) values[0] = NAN;
        if (ddp->options.comm != NULL) {
            gm_status status = gm_all_reduce(ddp->options.comm, values, values, bucket.n_elems,
                                             GM_F32, GM_SUM);
            if (status != GM_OK) return status;
        }
        if (*is_sum_finite && !gmt_all_finite(values, bucket.n_elems)) *is_sum_finite = false;
    }
    if (is_alone && !*is_sum_finite && *trouble == NO_TROUBLE) *trouble = BAD_GRADIENT;
    return GM_OK;
}

/* Asks everybody, when all know that the sum is bad, who began, and says so in *error. */
static gm_status name_the_culprit(struct gmt_ddp *ddp, enum trouble trouble,
                                  struct gmt_step_report *report, gm_error *error)
{
    static const char *const what[N_TROUBLES] = { "loss", "gradient" };
    int32_t none = ddp->world_size * N_TROUBLES;
    int32_t first = trouble == NO_TROUBLE ? none : ddp->rank * N_TROUBLES + (int32_t)trouble;
    if (ddp->options.comm != NULL) {
        gm_status status = gm_all_reduce(ddp->options.comm, &first, &first, 1, GM_I32, GM_MIN);
        if (status != GM_OK) return status;
    }
    unsigned long long step = ddp->optimizer->n_steps + 1;
    report->is_non_finite = true;
    report->culprit = first == none ? -1 : first / N_TROUBLES;
    if (first == none)
        gmi_error_set(error, GM_ERR_STATE,
                      "step %llu: the sum of the gradients overflowed although each rank's was "
                      "finite; nobody made this step; try a lower learning rate",
                      step);
    else
        gmi_error_set(error, GM_ERR_STATE,
                      "step %llu: the %s of rank %d is not finite; nobody made this step; try a "
                      "lower learning rate, or look at that rank's samples",
                      step, what[first % N_TROUBLES], report->culprit);
    if (error != NULL && report->culprit >= 0) error->culprit = report->culprit;
    return GM_ERR_STATE;
}

/* ---- the step -------------------------------------------------------------------------------- */

static void read_traffic(const struct gmt_ddp *ddp, gm_traffic *traffic)
{
    memset(traffic, 0, sizeof *traffic);
    if (ddp->options.comm != NULL)
        (void)gm_comm_traffic(ddp->options.comm, GM_COLLECTIVE_END, traffic);
}

/* The library's own record says more than we could. */
static gm_status library_failed(struct gmt_ddp *ddp, gm_status status, gm_error *error)
{
    if (error != NULL && error->status == GM_OK) *error = *gm_comm_error(ddp->options.comm);
    return status;
}

static gm_status step(struct gmt_ddp *ddp, size_t n_samples, double learning_rate,
                      struct gmt_step_report *report, gm_error *error)
{
    gm_status status = local_gradient(ddp, n_samples, report, error);
    if (status != GM_OK) {
        if (ddp->options.comm != NULL)
            gm_comm_abort(ddp->options.comm,
                          error != NULL ? error->text : "a rank could not read its samples");
        return status;
    }
    enum trouble trouble = isfinite(report->loss.loss_sum) ? NO_TROUBLE : BAD_LOSS;
    bool is_sum_finite;
    status = reduce_gradient(ddp, &trouble, &is_sum_finite);
    if (status != GM_OK) return library_failed(ddp, status, error);
    if (!is_sum_finite) {
        status = name_the_culprit(ddp, trouble, report, error);
        return report->is_non_finite ? status : library_failed(ddp, status, error);
    }
    gmt_optimizer_step(ddp->optimizer, learning_rate, ddp->mlp->params.weights,
                       ddp->mlp->params.gradients);
    return GM_OK;
}

gm_status gmt_ddp_step(struct gmt_ddp *ddp, size_t n_samples, double learning_rate,
                       struct gmt_step_report *report, gm_error *error)
{
    memset(report, 0, sizeof *report);
    report->culprit = -1;
    if (n_samples < 1 || n_samples > ddp->options.global_batch)
        return gmi_error_set(error, GM_ERR_ARG, "a batch of %zu samples: expected 1 to %zu",
                             n_samples, ddp->options.global_batch);

    gm_traffic before, after;
    int64_t start_ns = gmi_now_ns();
    read_traffic(ddp, &before);
    gm_status status = step(ddp, n_samples, learning_rate, report, error);
    read_traffic(ddp, &after);

    int64_t library_ns = after.elapsed_ns - before.elapsed_ns;
    report->elapsed_ns = gmi_now_ns() - start_ns;
    report->waiting_ns = after.waiting_ns - before.waiting_ns;
    report->communication_ns = library_ns - report->waiting_ns;
    report->compute_ns = report->elapsed_ns - library_ns - report->gather_ns;
    return status;
}
