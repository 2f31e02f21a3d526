#include "train/ddp.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/bucket.h"
#include "train/norm.h"
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

static size_t count_buckets(const struct gmt_ddp *ddp)
{
    size_t n = 0;
    for (size_t end = ddp->mlp->params.n_elems; end > 0; n++)
        end = gmt_bucket_before(&ddp->mlp->params, ddp->options.bucket_bytes, end).first_elem;
    return n;
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
    ddp->n_buckets = count_buckets(ddp);
    ddp->passages = gmi_alloc(ddp->n_buckets, sizeof *ddp->passages);
    gm_status status = GM_OK;
    if (ddp->inputs == NULL || ddp->labels == NULL || ddp->passages == NULL)
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for %zu samples",
                               ddp->max_micro_rows);
    if (status == GM_OK)
        status = gmt_feedback_init(&ddp->feedback, options->comm, mlp->params.n_elems, error);
    if (status != GM_OK) gmt_ddp_fini(ddp);
    return status;
}

void gmt_ddp_fini(struct gmt_ddp *ddp)
{
    gmi_free(ddp->inputs);
    gmi_free(ddp->labels);
    gmi_free(ddp->passages);
    gmt_feedback_fini(&ddp->feedback);
    ddp->inputs = NULL;
    ddp->labels = NULL;
    ddp->passages = NULL;
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

/* ---- the sum over ranks ---------------------------------------------------------------------- */

/* More than can be finished soon need not be in flight. */
enum { MAX_IN_FLIGHT = 32 };

/* A bucket whose all-reduce was started. */
struct flight {
    gm_work            *work;
    struct gmt_bucket   bucket;
    struct gmt_passage *passage;
};

/* The exchange of one step's gradient, bucket by bucket:
 *
 *     0 ............ next_end ................................................ n_elems
 *     not exchanged yet      | in flight, the oldest first | reduced and looked at
 *
 * The sum of every bucket is looked at. Whose share made it bad is found out only then
 * (look_at_own_share): to look at every share in every step would cost a pass over the gradient. */
struct exchange {
    struct gmt_ddp *ddp;
    bool            is_overlapping, is_last_part;
    size_t          next_end;
    struct flight   flights[MAX_IN_FLIGHT];
    size_t          first_flight, n_flights;
    size_t          n_exchanged; /* buckets that were begun */
    enum trouble    trouble; /* of this rank's share */
    bool            is_sum_finite;
    int64_t         library_ns; /* spent in the library by this thread */
    int64_t         n_reduced, n_ready; /* buckets that are, layers whose gradient is; for the trace */
    int64_t         layer_ns;           /* when the layer that is computed began */
    gm_status       status;     /* of the first call that failed; after it none is made */
    gm_error       *error;
};

/* Keeps the library's own record of the first failure, which says more than we could. The other
 * ranks must not wait for buckets that will not come from here. */
static void exchange_failed(struct exchange *x, gm_status status)
{
    gm_comm *comm = x->ddp->options.comm;
    if (x->status != GM_OK) return;
    x->status = status;
    if (x->error != NULL && x->error->status == GM_OK) *x->error = *gm_comm_error(comm);
    gm_comm_abort(comm, gm_comm_error(comm)->text);
}

static void look_at_sum(struct exchange *x, struct gmt_bucket bucket)
{
    const float *values = x->ddp->mlp->params.gradients + bucket.first_elem;
    if (x->is_sum_finite && !gmt_all_finite(values, bucket.n_elems)) x->is_sum_finite = false;
}

static void finish_oldest(struct exchange *x)
{
    struct flight *flight = &x->flights[x->first_flight];
    int64_t        start_ns = gmi_now_ns(), span_ns = gm_trace_begin(x->ddp->options.comm);
    gm_status      status = gm_work_wait(flight->work, -1);
    gm_work_release(flight->work);
    int64_t        end_ns = gmi_now_ns();
    x->library_ns += end_ns - start_ns;
    flight->passage->blocked_ns = start_ns;
    flight->passage->end_ns = end_ns;
    gm_trace_end(x->ddp->options.comm, span_ns, "wait", "wait for bucket", x->n_reduced++);
    x->first_flight = (x->first_flight + 1) % MAX_IN_FLIGHT;
    x->n_flights--;
    if (status == GM_OK) look_at_sum(x, flight->bucket);
    else exchange_failed(x, status);
}

static void start(struct exchange *x, struct gmt_bucket bucket, float *values)
{
    if (x->n_flights == MAX_IN_FLIGHT) finish_oldest(x);
    if (x->status != GM_OK) return;
    struct flight *flight = &x->flights[(x->first_flight + x->n_flights) % MAX_IN_FLIGHT];
    int64_t        start_ns = gmi_now_ns();
    gm_status      status = gm_all_reduce_start(x->ddp->options.comm, values, values,
                                                bucket.n_elems, GM_F32, GM_SUM, &flight->work);
    x->library_ns += gmi_now_ns() - start_ns;
    flight->bucket = bucket;
    flight->passage = &x->ddp->passages[x->n_exchanged];
    flight->passage->arrival_ns = start_ns;
    if (status == GM_OK) x->n_flights++;
    else exchange_failed(x, status);
}

static void reduce(struct exchange *x, struct gmt_bucket bucket, float *values)
{
    gm_comm *comm = x->ddp->options.comm;
    if (comm != NULL) {
        int64_t   start_ns = gmi_now_ns(), span_ns = gm_trace_begin(comm);
        gm_status status =
            gm_all_reduce(comm, values, values, bucket.n_elems, GM_F32, GM_SUM);
        int64_t end_ns = gmi_now_ns();
        x->library_ns += end_ns - start_ns;
        x->ddp->passages[x->n_exchanged] = (struct gmt_passage){ start_ns, start_ns, end_ns };
        gm_trace_end(comm, span_ns, "wait", "exchange bucket", x->n_reduced++);
        if (status != GM_OK) {
            exchange_failed(x, status);
            return;
        }
    }
    look_at_sum(x, bucket);
}

static void exchange_bucket(struct exchange *x, struct gmt_bucket bucket)
{
    struct gmt_ddp *ddp = x->ddp;
    float          *values = ddp->mlp->params.gradients + bucket.first_elem;
    bool            is_first = bucket.first_elem + bucket.n_elems == ddp->mlp->params.n_elems;
    bool            is_last = bucket.first_elem == 0;
    /* A bad loss must be in the sum, where every rank sees it. */
    if (is_first && x->trouble == BAD_LOSS) values[0] = NAN;
    gmt_feedback_apply(&ddp->feedback, values, bucket.first_elem, bucket.n_elems);
    /* After the last one nothing is left to be computed: this thread moves it itself. */
    if (x->is_overlapping && !is_last) start(x, bucket, values);
    else reduce(x, bucket, values);
    x->n_exchanged++;
}

/* The gradient is complete from first_elem on: a gmt_ready_fn. */
static void exchange_from(void *user, size_t first_elem, size_t n_elems)
{
    struct exchange *x = user;
    (void)n_elems;
    while (x->next_end > first_elem && x->status == GM_OK) {
        struct gmt_bucket bucket = gmt_bucket_before(
            &x->ddp->mlp->params, x->ddp->options.bucket_bytes, x->next_end);
        if (bucket.first_elem < first_elem) break;
        exchange_bucket(x, bucket);
        x->next_end = bucket.first_elem;
    }
}

/* The gradient of a layer is there, the last layer's first. */
static void layer_is_ready(void *user, size_t first_elem, size_t n_elems)
{
    struct exchange *x = user;
    gm_comm         *comm = x->ddp->options.comm;
    gm_trace_end(comm, x->layer_ns, "compute", "backward", x->n_ready++);
    if (x->is_overlapping && x->is_last_part) exchange_from(x, first_elem, n_elems);
    x->layer_ns = gm_trace_begin(comm);
}

/* Before the backward pass of a part of the share; loss is that of the parts so far. */
static void expect_layers(struct exchange *x, bool is_last_part, const struct gmt_loss *loss)
{
    x->is_last_part = is_last_part;
    if (is_last_part && !isfinite(loss->loss_sum)) x->trouble = BAD_LOSS;
    x->n_ready = 0;
    x->layer_ns = gm_trace_begin(x->ddp->options.comm);
}

/* Nothing is in flight after this, also when something has failed: the failure ends it all. */
static gm_status exchange_finish(struct exchange *x)
{
    exchange_from(x, 0, 0);
    while (x->n_flights > 0) finish_oldest(x);
    bool is_alone = x->ddp->world_size == 1; /* whose sum is its share */
    if (is_alone && !x->is_sum_finite && x->trouble == NO_TROUBLE) x->trouble = BAD_GRADIENT;
    return x->status;
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/* Brings the samples and adds up the gradient of this rank's share, micro-batch by micro-batch. x: exchanges it while the
 * last of them is computed, if it is to overlap; may be NULL. */
static gm_status add_up_gradient(struct gmt_ddp *ddp, size_t n_samples, struct exchange *x, struct gmt_step_report *report,
                                 gm_error *error)
{
    gm_comm *comm = ddp->options.comm;
    float    scale = (float)(1.0 / (double)n_samples);
    size_t   share_first, share_n, first, n;
    part_of(0, n_samples, ddp->world_size, ddp->rank, &share_first, &share_n);
    /* Parts without samples would add nothing; but the first one sets the gradient. */
    int n_parts = (int)ddp->options.accumulate;
    if (share_n < ddp->options.accumulate) n_parts = share_n > 0 ? (int)share_n : 1;
    for (int k = 0; k < n_parts; k++) {
        part_of(share_first, share_n, n_parts, k, &first, &n);
        int64_t   start_ns = gmi_now_ns(), span_ns = gm_trace_begin(comm);
        gm_status status = n == 0 ? GM_OK
                                  : ddp->options.gather(ddp->options.gather_user, first, n,
                                                        ddp->inputs, ddp->labels, error);
        report->gather_ns += gmi_now_ns() - start_ns;
        gm_trace_end(comm, span_ns, "loading", "load samples", k);
        if (status != GM_OK) return status;
        span_ns = gm_trace_begin(comm);
        add_loss(&report->loss, gmt_mlp_loss(ddp->mlp, ddp->inputs, ddp->labels, n, scale));
        gm_trace_end(comm, span_ns, "compute", "forward", k);
        if (x != NULL) expect_layers(x, k + 1 == n_parts, &report->loss);
        gmt_mlp_backward(ddp->mlp, ddp->inputs, n, k > 0, x != NULL ? layer_is_ready : NULL, x);
    }
    return GM_OK;
}

static gm_status make_gradient(struct gmt_ddp *ddp, size_t n_samples, struct exchange *x,
                               struct gmt_step_report *report, gm_error *error)
{
    gm_status status = add_up_gradient(ddp, n_samples, x, report, error);
    if (status == GM_OK) return exchange_finish(x);
    if (ddp->options.comm != NULL)
        gm_comm_abort(ddp->options.comm,
                      error != NULL ? error->text : "a rank could not read its samples");
    return status;
}

/* The sum has taken the place of this rank's share: computes it again, as nothing that it is made from has changed. */
static void look_at_own_share(struct exchange *x, size_t n_samples)
{
    struct gmt_ddp        *ddp = x->ddp;
    struct gmt_step_report unused = { .culprit = -1 };
    gm_error               error;
    if (x->trouble != NO_TROUBLE || ddp->world_size == 1) return;
    gmi_error_clear(&error);
    if (add_up_gradient(ddp, n_samples, NULL, &unused, &error) != GM_OK) return;
    if (!gmt_all_finite(ddp->mlp->params.gradients, ddp->mlp->params.n_elems)) x->trouble = BAD_GRADIENT;
}

/* Asks everybody, when all know that the sum is bad, who began, and says so in *error. */
static gm_status name_the_culprit(struct exchange *x, struct gmt_step_report *report)
{
    static const char *const what[N_TROUBLES] = { "loss", "gradient" };
    struct gmt_ddp *ddp = x->ddp;
    gm_error       *error = x->error;
    int32_t none = ddp->world_size * N_TROUBLES;
    int32_t first = x->trouble == NO_TROUBLE ? none : ddp->rank * N_TROUBLES + (int32_t)x->trouble;
    if (ddp->options.comm != NULL) {
        int64_t   start_ns = gmi_now_ns();
        gm_status status = gm_all_reduce(ddp->options.comm, &first, &first, 1, GM_I32, GM_MIN);
        x->library_ns += gmi_now_ns() - start_ns;
        if (status != GM_OK) {
            exchange_failed(x, status);
            return status;
        }
    }
    unsigned long long step = ddp->optimizer->n_steps + 1;
    char               where[48] = "";
    if (ddp->world_size > 1 && strcmp(gm_comm_wire(ddp->options.comm), "f32") != 0)
        snprintf(where, sizeof where, " on their way as %s", gm_comm_wire(ddp->options.comm));
    report->is_non_finite = true;
    report->culprit = first == none ? -1 : first / N_TROUBLES;
    if (first == none)
        gmi_error_set(error, GM_ERR_STATE,
                      "step %llu: the sum of the gradients overflowed%s although each rank's was "
                      "finite; nobody made this step; try a lower learning rate",
                      step, where);
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

static gm_status step(struct exchange *x, size_t n_samples, double learning_rate,
                      struct gmt_step_report *report, gm_error *error)
{
    struct gmt_ddp *ddp = x->ddp;
    gm_status       status = make_gradient(ddp, n_samples, x, report, error);
    if (status != GM_OK) return status;
    if (!x->is_sum_finite) {
        look_at_own_share(x, n_samples);
        return name_the_culprit(x, report);
    }
    if (ddp->options.clip_norm > 0)
        report->gradient_norm = gmt_clip(ddp->mlp->params.gradients, ddp->mlp->params.n_elems,
                                         ddp->options.clip_norm);
    int64_t span_ns = gm_trace_begin(ddp->options.comm);
    gmt_optimizer_step(ddp->optimizer, learning_rate, ddp->mlp->params.weights,
                       ddp->mlp->params.gradients);
    gm_trace_end(ddp->options.comm, span_ns, "optimizer", "update", -1);
    return GM_OK;
}

gm_status gmt_ddp_step(struct gmt_ddp *ddp, size_t n_samples, double learning_rate,
                       struct gmt_step_report *report, gm_error *error)
{
    memset(report, 0, sizeof *report);
    report->culprit = -1;
    report->gradient_norm = NAN;
    if (n_samples < 1 || n_samples > ddp->options.global_batch)
        return gmi_error_set(error, GM_ERR_ARG, "a batch of %zu samples: expected 1 to %zu",
                             n_samples, ddp->options.global_batch);

    struct exchange x = { .ddp = ddp,
                          .is_overlapping = ddp->options.is_overlapping && ddp->world_size > 1,
                          .next_end = ddp->mlp->params.n_elems,
                          .trouble = NO_TROUBLE,
                          .is_sum_finite = true,
                          .status = GM_OK,
                          .error = error };
    gm_traffic      before, after;
    int64_t         start_ns = gmi_now_ns();
    read_traffic(ddp, &before);
    gm_status status = step(&x, n_samples, learning_rate, report, error);
    read_traffic(ddp, &after);

    int64_t running_ns = after.elapsed_ns - before.elapsed_ns;
    report->elapsed_ns = gmi_now_ns() - start_ns;
    report->wait_ns = after.waiting_ns - before.waiting_ns;
    report->comm_exposed_ns = x.library_ns - report->wait_ns;
    report->comm_hidden_ns = running_ns > x.library_ns ? running_ns - x.library_ns : 0;
    report->compute_ns = report->elapsed_ns - x.library_ns - report->gather_ns;
    return status;
}
