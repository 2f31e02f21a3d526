/* One of a crew: computes, exchanges, and leaves its stamps. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "plan/probe_shared.h"
#include "study/crew.h"
#include "study/samples.h"
#include "train/ddp.h"
#include "train/ops.h"

enum {
    WARM_UPS = 2,
    MIN_RUNS = 7,
};

struct worker {
    struct probe_job     *job;
    struct probe_account *account;
    gm_comm              *comm;
    size_t                max_rows;
    struct study_samples  samples;
    struct gmt_mlp        mlp;
    struct gmt_optimizer  optimizer;
    struct gmt_ddp        ddp;
    gm_error              error;
};

static gm_status library(struct worker *w, gm_status status)
{
    if (status != GM_OK && w->error.status == GM_OK) w->error = *gm_comm_error(w->comm);
    return status;
}

static gm_status join(struct worker *w)
{
    gm_comm_options options;
    gm_comm_options_default(&options);
    gm_status status = gm_comm_options_from_env(&options, &w->error);
    if (status != GM_OK) return status;
    options.transport = w->job->transport;
    options.wire = w->job->wire;
    w->account = &w->job->accounts[options.rank];
    return gm_comm_create(&w->comm, &options, &w->error);
}

/* ---- what is computed ----------------------------------------------------------------------------- */

static gm_status make_model(struct worker *w)
{
    const struct plan_probe     *probe = &w->job->probe;
    struct gmt_optimizer_options sgd;
    w->max_rows = PROBE_FEW_ROWS;
    for (int i = 0; i < probe->n_rows; i++)
        if (probe->rows[i] > w->max_rows) w->max_rows = probe->rows[i];
    gm_status status = gmt_mlp_init(&w->mlp, &probe->layers, w->max_rows, 1, &w->error);
    gmt_optimizer_options_default(&sgd, GMT_SGD);
    if (status == GM_OK) status = gmt_optimizer_init(&w->optimizer, &sgd, w->mlp.params.n_elems, &w->error);
    if (status == GM_OK) status = study_samples_draw(&w->samples, &w->mlp, w->max_rows, (struct gmi_rng){ .key = 1 }, &w->error);
    if (status != GM_OK) return status;
    struct gmt_ddp_options ddp = { .global_batch = w->max_rows, .accumulate = 1, .gather = study_samples_gather, .gather_user = &w->samples };
    return gmt_ddp_init(&w->ddp, &ddp, &w->mlp, &w->optimizer, &w->error);
}

static gm_status make_step(struct worker *w, size_t n_rows)
{
    struct gmt_step_report report;
    gm_status              status = gmt_ddp_step(&w->ddp, n_rows, 0.01, &report, &w->error);
    w->samples.step++;
    return status;
}

/* ---- timing --------------------------------------------------------------------------------------- */

static int64_t cpu_now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (int64_t)at.tv_sec * GMI_NS_PER_S + at.tv_nsec;
}

/* One thing that is timed; `index` is of its rows or size. */
typedef gm_status (*act_fn)(struct worker *w, int index);

static gm_status act_step(struct worker *w, int index) { return make_step(w, w->job->probe.rows[index]); }

static gm_status act_update(struct worker *w, int index)
{
    (void)index;
    gmt_optimizer_step(&w->optimizer, 0, w->mlp.params.weights, w->mlp.params.gradients);
    return GM_OK;
}

static gm_status act_exchange(struct worker *w, int index)
{
    float *values = w->mlp.params.gradients;
    return library(w, gm_all_reduce(w->comm, values, values, w->job->sizes[index], GM_F32, GM_SUM));
}

/* `prepares`: a small step first, untimed. */
static gm_status run_once(struct worker *w, act_fn act, int index, bool prepares, struct probe_run *run)
{
    gm_status status = prepares ? make_step(w, gmi_min_size(PROBE_FEW_ROWS, w->max_rows)) : GM_OK;
    if (status == GM_OK) status = library(w, gm_barrier(w->comm));
    if (status != GM_OK) return status;
    int64_t cpu_ns = cpu_now_ns();
    run->begin_ns = gmi_now_ns();
    status = act(w, index);
    run->end_ns = gmi_now_ns();
    run->cpu_ns = cpu_now_ns() - cpu_ns;
    return status;
}

/* As often as it fits into the time, which all ranks agree on. */
static gm_status run_often(struct worker *w, act_fn act, int index, bool prepares, double seconds, struct probe_run *runs, int *n_runs)
{
    gm_status status = GM_OK;
    int64_t   begin_ns = gmi_now_ns();
    for (int i = 0; i < WARM_UPS && status == GM_OK; i++) {
        if (i == 1) begin_ns = gmi_now_ns();
        status = run_once(w, act, index, prepares, &runs[0]);
    }
    double guess_s = (double)(gmi_now_ns() - begin_ns) / (WARM_UPS - 1) / 1e9;
    if (status == GM_OK) status = library(w, gm_all_reduce(w->comm, &guess_s, &guess_s, 1, GM_F64, GM_MAX));
    double wanted = seconds / guess_s;
    *n_runs = wanted < MIN_RUNS ? MIN_RUNS : wanted > PROBE_MAX_RUNS ? PROBE_MAX_RUNS : (int)wanted;
    for (int i = 0; i < *n_runs && status == GM_OK; i++) status = run_once(w, act, index, prepares, &runs[i]);
    return status;
}

static gm_status measure(struct worker *w)
{
    struct probe_account *account = w->account;
    double                seconds = w->job->probe.seconds;
    gm_status             status = GM_OK;
    for (int i = 0; i < w->job->probe.n_rows && status == GM_OK; i++)
        status = run_often(w, act_step, i, false, seconds, account->steps[i], &account->n_steps[i]);
    if (status == GM_OK) status = run_often(w, act_update, 0, true, seconds / 4, account->updates, &account->n_updates);
    for (int i = 0; i < w->job->n_sizes && w->job->probe.workers > 1 && status == GM_OK; i++)
        status = run_often(w, act_exchange, i, true, seconds, account->exchanges[i], &account->n_exchanges[i]);
    if (status == GM_OK) status = library(w, gm_barrier(w->comm));
    account->is_complete = status == GM_OK;
    return status;
}

static gm_status work(struct worker *w)
{
    gm_status status = join(w);
    if (status != GM_OK) return status;
    gmt_set_blas_threads(w->job->probe.threads);
    status = make_model(w);
    return status == GM_OK ? measure(w) : status;
}

static void worker_fini(struct worker *w)
{
    gmt_ddp_fini(&w->ddp);
    gmt_optimizer_fini(&w->optimizer);
    gmt_mlp_fini(&w->mlp);
    study_samples_fini(&w->samples);
    gm_comm_destroy(w->comm);
}

static bool is_anothers_fault(const struct worker *w, int rank)
{
    return w->error.status == GM_ERR_PEER_LOST || (w->error.culprit >= 0 && w->error.culprit != rank);
}

int plan_probe_work(const char *value)
{
    struct worker w = { .job = study_crew_memory(value) };
    gmi_error_clear(&w.error);
    if (w.job == NULL) {
        fprintf(stderr, "gradmesh plan: cannot open %s, the memory of the measurement\n", value);
        return 1;
    }
    gm_status status = work(&w);
    int       rank = w.comm == NULL ? 0 : gm_comm_rank(w.comm);
    if (status != GM_OK) {
        if (w.comm != NULL) gm_comm_abort(w.comm, w.error.text);
        fprintf(stderr, "gradmesh plan: %s\n", w.error.text);
    }
    worker_fini(&w);
    return status == GM_OK ? 0 : is_anothers_fault(&w, rank) ? 3 : 1;
}
