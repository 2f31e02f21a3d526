#include "train/repro.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/ddp.h"
#include "train/norm.h"

/* What is summed besides the gradient, behind it. */
enum extra { LOSS, HITS, N_EXTRAS };

#define NO_SHARD ((int32_t)GMT_MAX_SHARDS)

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Enough for fast matrix products; more would leave the caches. */
#define ROWS_AT_A_TIME 256

size_t gmt_repro_max_rows(size_t global_batch, size_t n_shards, int world_size, size_t accumulate)
{
    size_t first, largest, rows = gmi_min_size(global_batch, ROWS_AT_A_TIME);
    gm_chunk(global_batch, (int)n_shards, 0, &first, &largest);
    if (accumulate > 1)
        rows = gmi_min_size(rows, gmt_ddp_max_rows(global_batch, world_size, accumulate));
    return rows < largest ? largest : rows;
}

static gm_status check(const struct gmt_repro *repro, gm_error *error)
{
    const struct gmt_repro_options *options = &repro->options;
    gm_status status = gmt_shards_check(options->n_shards, options->global_batch, error);
    if (status != GM_OK) return status;
    if (repro->world_size > 1 && strcmp(gm_comm_wire(options->comm), "f32") != 0)
        return gmi_error_set(error, GM_ERR_ARG,
                             "wire format %s: a reproducible run is exact and rounds nothing on its "
                             "way; it takes f32 only",
                             gm_comm_wire(options->comm));
    if (repro->optimizer->n_elems != repro->mlp->params.n_elems)
        return gmi_error_set(error, GM_ERR_ARG,
                             "the optimizer was made for %zu parameters, the model has %zu",
                             repro->optimizer->n_elems, repro->mlp->params.n_elems);
    if (repro->mlp->max_rows < repro->max_rows)
        return gmi_error_set(error, GM_ERR_ARG,
                             "the model takes %zu samples at a time, %zu are needed",
                             repro->mlp->max_rows, repro->max_rows);
    GMI_CHECK(repro->mlp->bits != NULL);
    return GM_OK;
}

static gm_status take_memory(struct gmt_repro *repro, gm_error *error)
{
    const struct gmt_repro_options *options = &repro->options;
    size_t n_elems = repro->mlp->params.n_elems, n_inputs, n_shards = options->n_shards;
    GMI_CHECK(gmi_mul_sizes(repro->max_rows, gmt_mlp_n_in(repro->mlp), &n_inputs));
    repro->sums = gmi_alloc(n_elems + N_EXTRAS, sizeof *repro->sums);
    repro->shards = gmi_alloc(n_shards, sizeof *repro->shards);
    repro->ends = gmi_alloc(n_shards, sizeof *repro->ends);
    repro->losses = gmi_alloc(n_shards, sizeof *repro->losses);
    repro->inputs = gmi_alloc(n_inputs, sizeof *repro->inputs);
    repro->labels = gmi_alloc(repro->max_rows, sizeof *repro->labels);
    if (repro->sums == NULL || repro->shards == NULL || repro->ends == NULL ||
        repro->losses == NULL || repro->inputs == NULL || repro->labels == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the sums of %zu parameters", n_elems);
    gm_accumulator_options sum;
    gm_accumulator_options_default(&sum);
    sum.count = n_elems + N_EXTRAS;
    sum.n_shards = (int)n_shards;
    sum.is_wire_raw = options->is_wire_raw;
    return gm_accumulator_create(&repro->accumulator, &sum, error);
}

gm_status gmt_repro_init(struct gmt_repro *repro, const struct gmt_repro_options *options,
                         struct gmt_mlp *mlp, struct gmt_optimizer *optimizer, gm_error *error)
{
    memset(repro, 0, sizeof *repro);
    repro->options = *options;
    repro->mlp = mlp;
    repro->optimizer = optimizer;
    repro->rank = options->comm == NULL ? 0 : gm_comm_rank(options->comm);
    repro->world_size = options->comm == NULL ? 1 : gm_comm_size(options->comm);
    gm_status status = gmt_shards_check(options->n_shards, options->global_batch, error);
    if (status == GM_OK) {
        repro->max_rows = gmt_repro_max_rows(options->global_batch, options->n_shards,
                                             repro->world_size, options->accumulate);
        status = check(repro, error);
    }
    if (status == GM_OK) status = take_memory(repro, error);
    if (status != GM_OK) gmt_repro_fini(repro);
    return status;
}

void gmt_repro_fini(struct gmt_repro *repro)
{
    gm_accumulator_destroy(repro->accumulator);
    gmi_free(repro->sums);
    gmi_free(repro->shards);
    gmi_free(repro->ends);
    gmi_free(repro->losses);
    gmi_free(repro->inputs);
    gmi_free(repro->labels);
    memset(repro, 0, sizeof *repro);
}

/* ---- this rank's shards ----------------------------------------------------------------------- */

/* One step. */
struct step {
    struct gmt_repro *repro;
    size_t            n_samples;
    const uint32_t   *group;    /* the shards that are computed at a time */
    int32_t           bad_shard; /* the first one whose loss is not finite, or NO_SHARD */
    int64_t           library_ns;
    gm_status         status;   /* of the accumulator, the first that was not GM_OK */
    struct gmt_step_report *report;
    gm_error         *error;
};

static void shard_rows(const struct step *s, size_t shard, size_t *first, size_t *n)
{
    gm_chunk(s->n_samples, (int)s->repro->options.n_shards, (int)shard, first, n);
}

static void add(struct step *s, size_t shard, size_t first_elem, const float *values, size_t n_elems)
{
    if (s->status == GM_OK)
        s->status = gm_accumulator_add_tile(s->repro->accumulator, (int)shard, values, n_elems,
                                            first_elem, n_elems, 1, n_elems);
}

/* A gmt_part_sink_fn. */
static void add_part(void *user, size_t part, size_t first_elem, const float *values, size_t n_elems)
{
    struct step *s = user;
    add(s, s->group[part], first_elem, values, n_elems);
}

static void add_loss(struct step *s, size_t shard, const struct gmt_loss *loss)
{
    size_t n_elems = s->repro->mlp->params.n_elems;
    float  extras[N_EXTRAS] = { [LOSS] = (float)loss->loss_sum, [HITS] = (float)loss->n_correct };
    if (!isfinite(extras[LOSS]) && (int32_t)shard < s->bad_shard) s->bad_shard = (int32_t)shard;
    add(s, shard, n_elems, extras, N_EXTRAS);
}

/* As many of the shards from `first` on as fit into the rows that are computed at a time. */
static struct gmt_parts next_group(const struct step *s, size_t first)
{
    struct gmt_repro *repro = s->repro;
    struct gmt_parts  parts = { repro->ends, 0 };
    size_t            n_rows = 0, row, n;
    while (first + parts.n < repro->n_own) {
        shard_rows(s, repro->shards[first + parts.n], &row, &n);
        if (n_rows + n > repro->max_rows) break;
        n_rows += n;
        repro->ends[parts.n++] = n_rows;
    }
    GMI_CHECK(parts.n > 0);
    return parts;
}

static gm_status gather_group(struct step *s, const struct gmt_parts *parts)
{
    struct gmt_repro *repro = s->repro;
    size_t            n_in = gmt_mlp_n_in(repro->mlp), done = 0, first, n;
    int64_t           start_ns = gmi_now_ns();
    gm_status         status = GM_OK;
    for (size_t p = 0; p < parts->n && status == GM_OK; p++, done += n) {
        shard_rows(s, s->group[p], &first, &n);
        if (n == 0) continue;
        status = repro->options.gather(repro->options.gather_user, first, n,
                                       repro->inputs + done * n_in, repro->labels + done, s->error);
    }
    s->report->gather_ns += gmi_now_ns() - start_ns;
    return status;
}

static gm_status compute_group(struct step *s, const struct gmt_parts *parts)
{
    struct gmt_repro *repro = s->repro;
    gm_comm          *comm = repro->options.comm;
    int64_t           number = s->group - repro->shards, span_ns = gm_trace_begin(comm);
    gm_status         status = gather_group(s, parts);
    gm_trace_end(comm, span_ns, "loading", "load samples", number);
    if (status != GM_OK) return status;
    span_ns = gm_trace_begin(comm);
    gmt_mlp_loss_parts(repro->mlp, repro->inputs, repro->labels, parts, repro->losses);
    for (size_t p = 0; p < parts->n; p++) add_loss(s, s->group[p], &repro->losses[p]);
    gm_trace_end(comm, span_ns, "compute", "forward", number);
    span_ns = gm_trace_begin(comm);
    gmt_mlp_backward_parts(repro->mlp, repro->inputs, parts, add_part, s);
    gm_trace_end(comm, span_ns, "compute", "backward", number);
    if (s->status != GM_OK && s->error != NULL) *s->error = *gm_accumulator_error(repro->accumulator);
    return s->status;
}

/* Adds up all shards of this rank. */
static gm_status compute_shards(struct step *s)
{
    struct gmt_repro               *repro = s->repro;
    const struct gmt_repro_options *options = &repro->options;
    repro->n_own = gmt_shards_of_rank(options->placement, options->seed, repro->optimizer->n_steps,
                                      options->n_shards, repro->world_size, repro->rank,
                                      repro->shards);
    gm_status status = gm_accumulator_reset(repro->accumulator);
    for (size_t first = 0; first < repro->n_own && status == GM_OK;) {
        struct gmt_parts parts = next_group(s, first);
        s->group = repro->shards + first;
        status = compute_group(s, &parts);
        first += parts.n;
    }
    if (status != GM_OK && options->comm != NULL)
        gm_comm_abort(options->comm, s->error != NULL && s->error->text[0] != '\0'
                                         ? s->error->text
                                         : "a rank could not compute its samples");
    return status;
}

/* ---- all shards ------------------------------------------------------------------------------- */

static gm_status library_failed(struct step *s, gm_status status)
{
    if (s->error != NULL) *s->error = *gm_comm_error(s->repro->options.comm);
    return status;
}

static gm_status sum_shards(struct step *s)
{
    struct gmt_repro *repro = s->repro;
    gm_comm          *comm = repro->options.comm;
    if (comm == NULL) {
        gm_status status = gm_accumulator_finish(repro->accumulator, repro->sums);
        if (status != GM_OK && s->error != NULL) *s->error = *gm_accumulator_error(repro->accumulator);
        return status;
    }
    int64_t   start_ns = gmi_now_ns(), span_ns = gm_trace_begin(comm);
    gm_status status = gm_all_reduce_exact(comm, repro->accumulator, repro->sums);
    int64_t   end_ns = gmi_now_ns();
    s->library_ns += end_ns - start_ns;
    repro->passage = (struct gmt_passage){ start_ns, start_ns, end_ns };
    gm_trace_end(comm, span_ns, "wait", "exchange bucket", 0);
    return status == GM_OK ? GM_OK : library_failed(s, status);
}

/* When all know that the sum is bad: which shard began? Asks everybody, and says so in *error. */
static gm_status name_the_culprit(struct step *s)
{
    struct gmt_repro *repro = s->repro;
    unsigned long long step = repro->optimizer->n_steps + 1;
    if (repro->options.comm != NULL) {
        int64_t   start_ns = gmi_now_ns();
        gm_status status =
            gm_all_reduce(repro->options.comm, &s->bad_shard, &s->bad_shard, 1, GM_I32, GM_MIN);
        s->library_ns += gmi_now_ns() - start_ns;
        if (status != GM_OK) return library_failed(s, status);
    }
    s->report->is_non_finite = true;
    if (s->bad_shard == NO_SHARD)
        return gmi_error_set(s->error, GM_ERR_STATE,
                             "step %llu: the gradient overflowed although the loss of every shard was "
                             "finite; nobody made this step; try a lower learning rate",
                             step);
    size_t shard = (size_t)s->bad_shard, first, n;
    shard_rows(s, shard, &first, &n);
    s->report->culprit =
        gmt_shard_owner(repro->options.placement, repro->options.seed, repro->optimizer->n_steps,
                        repro->options.n_shards, repro->world_size, shard);
    gmi_error_set(s->error, GM_ERR_STATE,
                  "step %llu: the loss of shard %zu (samples %zu to %zu of the batch) is not finite; nobody "
                  "made this step; try a lower learning rate, or look at these samples",
                  step, shard, first, first + n - 1);
    if (s->error != NULL) s->error->culprit = s->report->culprit;
    return GM_ERR_STATE;
}

/* ---- the step -------------------------------------------------------------------------------- */

static gm_status make_step(struct step *s, double learning_rate)
{
    struct gmt_repro *repro = s->repro;
    size_t            n_elems = repro->mlp->params.n_elems;
    gm_status         status = compute_shards(s);
    if (status == GM_OK) status = sum_shards(s);
    if (status != GM_OK) return status;
    const float *extras = repro->sums + n_elems;
    bool         is_finite = gmt_scale(repro->sums, n_elems, (float)(1.0 / (double)s->n_samples));
    s->report->loss = (struct gmt_loss){ .loss_sum = (double)extras[LOSS],
                                         .n_correct = (size_t)extras[HITS],
                                         .n_rows = s->n_samples };
    if (!is_finite || !isfinite(extras[LOSS])) return name_the_culprit(s);
    if (repro->options.clip_norm > 0)
        s->report->gradient_norm = gmt_clip(repro->sums, n_elems, repro->options.clip_norm);
    int64_t span_ns = gm_trace_begin(repro->options.comm);
    gmt_optimizer_step(repro->optimizer, learning_rate, repro->mlp->params.weights, repro->sums);
    gm_trace_end(repro->options.comm, span_ns, "optimizer", "update", -1);
    return GM_OK;
}

static int64_t waiting_ns(const struct gmt_repro *repro)
{
    gm_traffic traffic = { .waiting_ns = 0 };
    if (repro->options.comm != NULL)
        (void)gm_comm_traffic(repro->options.comm, GM_COLLECTIVE_END, &traffic);
    return traffic.waiting_ns;
}

gm_status gmt_repro_step(struct gmt_repro *repro, size_t n_samples, double learning_rate,
                         struct gmt_step_report *report, gm_error *error)
{
    struct step s = { .repro = repro, .n_samples = n_samples, .bad_shard = NO_SHARD,
                      .report = report, .error = error };
    *report = (struct gmt_step_report){ .culprit = -1, .gradient_norm = NAN, .loss_is_of_all = true };
    if (n_samples < 1 || n_samples > repro->options.global_batch)
        return gmi_error_set(error, GM_ERR_ARG, "a batch of %zu samples: expected 1 to %zu",
                             n_samples, repro->options.global_batch);
    int64_t   start_ns = gmi_now_ns(), waited_ns = waiting_ns(repro);
    gm_status status = make_step(&s, learning_rate);
    report->elapsed_ns = gmi_now_ns() - start_ns;
    report->wait_ns = waiting_ns(repro) - waited_ns;
    report->comm_exposed_ns = s.library_ns - report->wait_ns;
    report->compute_ns = report->elapsed_ns - s.library_ns - report->gather_ns;
    return status;
}
