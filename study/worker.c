/* One worker of a point: meets the others, trains, and leaves its account. */
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "study/crew.h"
#include "study/samples.h"
#include "study/shared.h"
#include "train/bucket.h"
#include "train/ddp.h"
#include "train/ops.h"

enum {
    WARM_UP_STEPS = 4,
    GUESS_STEPS = 3, /* from which it is guessed how long a step takes */
    NETWORK_PORT = 4100,
    CHECKED_ROWS = 4,
};

#define NETWORK_FIRST_HOST "10.77.0.1"

struct worker {
    struct study_job     *job;
    struct study_account *account;
    gm_comm              *comm;
    int                   rank, world_size;
    size_t                n_rows; /* of this worker's share */
    size_t                batch;  /* that its gradient is the mean over */
    struct study_samples  samples;
    struct gmt_mlp        mlp;
    struct gmt_optimizer  optimizer;
    struct gmt_ddp        ddp;
    struct gmt_arrivals   arrivals;
    gm_error              error;
};

/* ---- the job ----------------------------------------------------------------------------------- */

/* Onto the host that stands for another machine. */
static gm_status enter_network(struct worker *w)
{
    char path[64];
    if (w->job->hosts[w->rank] == 0) return GM_OK;
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)w->job->hosts[w->rank]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        return gmi_error_set(&w->error, GM_ERR_SYSTEM, "cannot enter the network of rank %d", w->rank);
    close(fd);
    return GM_OK;
}

static gm_status join(struct worker *w)
{
    gm_comm_options options;
    gm_comm_options_default(&options);
    gm_status status = gm_comm_options_from_env(&options, &w->error);
    if (status != GM_OK) return status;
    w->rank = options.rank;
    w->world_size = options.world_size;
    w->account = &w->job->accounts[w->rank];
    status = enter_network(w);
    if (status != GM_OK) return status;
    if (w->job->hosts[w->rank] != 0) {
        options.store = NULL;
        options.master_addr = NETWORK_FIRST_HOST;
        options.master_port = NETWORK_PORT;
    }
    options.transport = w->job->point.transport;
    options.wire = w->job->point.wire;
    return gm_comm_create(&w->comm, &options, &w->error);
}

static void note_cores(struct worker *w)
{
    cpu_set_t mask;
    w->account->cpu = -1;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    w->account->n_cpus = CPU_COUNT(&mask);
    for (int cpu = 0; cpu < CPU_SETSIZE && w->account->n_cpus == 1; cpu++)
        if (CPU_ISSET(cpu, &mask)) w->account->cpu = cpu;
}

/* ---- what is trained ---------------------------------------------------------------------------- */

/* As gradmesh train settles it: over a network there is room, within a machine when each worker has a second core. */
static bool settle_overlap(const struct worker *w)
{
    const struct study_point *point = &w->job->point;
    if (w->world_size == 1 || point->is_zero_comm || point->overlap == GMT_OVERLAP_OFF) return false;
    if (point->overlap == GMT_OVERLAP_ON || w->job->hosts[0] != 0) return true;
    return sysconf(_SC_NPROCESSORS_ONLN) >= (long)w->world_size * (w->job->n_threads + 1) && w->account->n_cpus > w->job->n_threads;
}

static gm_status make_model(struct worker *w)
{
    const struct study_point    *point = &w->job->point;
    struct gmt_optimizer_options sgd;
    size_t                       first;
    gm_chunk(point->batch, w->world_size, w->rank, &first, &w->n_rows);
    w->batch = point->is_zero_comm ? w->n_rows : point->batch;
    w->account->is_overlapping = settle_overlap(w);
    gm_status status = gmt_mlp_init(&w->mlp, &point->layers, gmt_ddp_max_rows(point->batch, w->world_size, 1), 1, &w->error);
    gmt_optimizer_options_default(&sgd, GMT_SGD);
    if (status == GM_OK) status = gmt_optimizer_init(&w->optimizer, &sgd, w->mlp.params.n_elems, &w->error);
    if (status == GM_OK) status = study_samples_draw(&w->samples, &w->mlp, w->n_rows, (struct gmi_rng){ gmi_rng_key(100, (uint64_t)w->rank), 0 }, &w->error);
    if (status != GM_OK) return status;
    size_t bucket_bytes = point->bucket_bytes;
    if (bucket_bytes == GMT_BUCKET_BYTES_AUTO)
        bucket_bytes = w->account->is_overlapping ? gmt_bucket_bytes_default(&w->mlp.params) : 0;
    struct gmt_ddp_options ddp = { .comm = point->is_zero_comm || w->world_size == 1 ? NULL : w->comm,
                                   .global_batch = w->batch,
                                   .accumulate = 1,
                                   .bucket_bytes = bucket_bytes,
                                   .is_overlapping = w->account->is_overlapping,
                                   .gather = study_samples_gather,
                                   .gather_user = &w->samples };
    return gmt_ddp_init(&w->ddp, &ddp, &w->mlp, &w->optimizer, &w->error);
}

/* A BLAS that computes something else would make every figure worthless: the first layer of some rows by hand. */
static gm_status check_product(struct worker *w)
{
    const struct gmt_params *params = &w->mlp.params;
    size_t n_rows = gmi_min_size(w->n_rows, CHECKED_ROWS), n_in = gmt_mlp_n_in(&w->mlp), n_out = params->layers.sizes[1];
    float *fast = gmi_alloc(n_rows * n_out, sizeof *fast), *slow = gmi_alloc(n_rows * n_out, sizeof *slow);
    gm_status status = fast != NULL && slow != NULL
                           ? GM_OK
                           : gmi_error_set(&w->error, GM_ERR_NOMEM, "no memory to check the matrix product");
    if (status == GM_OK) {
        const float *weight = params->weights + params->tensors[0].first_elem, *bias = params->weights + params->tensors[1].first_elem;
        gmt_linear_forward(w->samples.inputs[0], weight, bias, fast, n_rows, n_in, n_out, false);
        gmt_naive_linear_forward(w->samples.inputs[0], weight, bias, slow, n_rows, n_in, n_out, false);
        for (size_t i = 0; i < n_rows * n_out && status == GM_OK; i++)
            if (!(fabsf(fast[i] - slow[i]) <= 1e-3f * (1 + fabsf(slow[i]))))
                status = gmi_error_set(&w->error, GM_ERR_SYSTEM,
                                       "the BLAS library computes %g where nested loops compute %g: nothing was measured",
                                       (double)fast[i], (double)slow[i]);
    }
    gmi_free(fast);
    gmi_free(slow);
    return status;
}

/* ---- steps -------------------------------------------------------------------------------------- */

static gm_status make_step(struct worker *w, struct study_step *step)
{
    struct gmt_step_report report;
    gm_status              status = gmt_ddp_step(&w->ddp, w->batch, 0.01, &report, &w->error);
    w->samples.step++;
    if (step != NULL)
        *step = (struct study_step){ .elapsed_ns = report.elapsed_ns,
                                     .compute_ns = report.compute_ns + report.gather_ns,
                                     .comm_exposed_ns = report.comm_exposed_ns,
                                     .comm_hidden_ns = report.comm_hidden_ns,
                                     .wait_ns = report.wait_ns };
    return status;
}

static gm_status library(struct worker *w, gm_status status)
{
    if (status != GM_OK && w->error.status == GM_OK) w->error = *gm_comm_error(w->comm);
    return status;
}

/* How many steps are timed: the same on all ranks. */
static gm_status warm_up(struct worker *w, int *n_steps)
{
    gm_status status = GM_OK;
    int64_t   start_ns = 0;
    for (int i = 0; i < WARM_UP_STEPS + GUESS_STEPS && status == GM_OK; i++) {
        if (i == WARM_UP_STEPS) start_ns = gmi_now_ns();
        status = make_step(w, NULL);
    }
    double guess_s = (double)(gmi_now_ns() - start_ns) / GUESS_STEPS / 1e9;
    if (status == GM_OK) status = library(w, gm_all_reduce(w->comm, &guess_s, &guess_s, 1, GM_F64, GM_MAX));
    double wanted = w->job->point.seconds / guess_s;
    *n_steps = wanted < STUDY_MIN_STEPS ? STUDY_MIN_STEPS : wanted > STUDY_MAX_STEPS ? STUDY_MAX_STEPS : (int)wanted;
    return status;
}

/* What is exposed so far holds this rank's waiting for others, and what it slept while bytes travelled. */
static gm_status settle_waits(struct worker *w, int n_steps)
{
    struct gmt_lateness lateness;
    if (w->ddp.options.comm == NULL) return GM_OK;
    gm_status status = library(w, gmt_arrivals_settle(&w->arrivals, w->comm, &lateness));
    for (int i = 0; i < n_steps && status == GM_OK; i++) {
        struct study_step *step = &w->account->steps[i];
        int64_t            inside_ns = step->comm_exposed_ns + step->wait_ns;
        step->wait_ns = w->arrivals.waits_ns[i] < inside_ns ? w->arrivals.waits_ns[i] : inside_ns;
        step->comm_exposed_ns = inside_ns - step->wait_ns;
    }
    w->account->last_rank = lateness.last_rank;
    w->account->last_cost_ns = lateness.last_cost_ns / n_steps;
    w->account->last_share = (double)lateness.n_last / n_steps;
    w->account->clock_error_ns = lateness.clock_error_ns;
    return status;
}

static int64_t cpu_now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (int64_t)at.tv_sec * GMI_NS_PER_S + at.tv_nsec;
}

static gm_status make_timed_steps(struct worker *w, int n_steps)
{
    struct study_account *account = w->account;
    gm_traffic            before, after;
    gm_status             status =
        gmt_arrivals_init(&w->arrivals, w->ddp.options.comm, w->ddp.n_buckets, (size_t)n_steps, &w->error);
    if (status == GM_OK) status = library(w, gm_barrier(w->comm));
    if (status != GM_OK) return status;
    (void)gm_comm_traffic(w->comm, GM_COLLECTIVE_END, &before);
    int64_t cpu_ns = cpu_now_ns(), last_ns = gmi_now_ns();
    for (int i = 0; i < n_steps && status == GM_OK; i++) {
        status = make_step(w, &account->steps[i]);
        int64_t now_ns = gmi_now_ns();
        account->steps[i].elapsed_ns = now_ns - last_ns;
        last_ns = now_ns;
        gmt_arrivals_add(&w->arrivals, w->ddp.passages);
    }
    if (status != GM_OK) return status;
    account->cpu_ns = cpu_now_ns() - cpu_ns;
    (void)gm_comm_traffic(w->comm, GM_COLLECTIVE_END, &after);
    account->payload_bytes = after.payload_sent_bytes - before.payload_sent_bytes;
    account->uses_memory = after.memory_sent_bytes > before.memory_sent_bytes;
    account->uses_tcp = after.payload_sent_bytes + after.protocol_sent_bytes - after.memory_sent_bytes >
                        before.payload_sent_bytes + before.protocol_sent_bytes - before.memory_sent_bytes;
    account->n_steps = n_steps;
    status = settle_waits(w, n_steps);
    /* Who is ready first must not make room for those that are still timed. */
    atomic_fetch_add(&w->job->n_done, 1);
    while (w->job->point.is_zero_comm && atomic_load(&w->job->n_done) < w->world_size && status == GM_OK)
        status = make_step(w, NULL);
    return status;
}

static gm_status work(struct worker *w)
{
    struct gmt_state state;
    int              n_steps;
    gm_status        status = join(w);
    if (status != GM_OK) return status;
    note_cores(w);
    gmt_set_blas_threads(w->job->n_threads);
    status = make_model(w);
    if (status == GM_OK) status = check_product(w);
    if (status == GM_OK) status = warm_up(w, &n_steps);
    if (status == GM_OK) status = make_timed_steps(w, n_steps);
    if (status != GM_OK) return status;
    gmt_state_list(&state, &w->mlp.params, &w->optimizer);
    status = gmt_state_hash(&state, w->account->state_hash, &w->error);
    if (status == GM_OK) status = library(w, gm_barrier(w->comm));
    w->account->is_complete = status == GM_OK;
    return status;
}

static void worker_fini(struct worker *w)
{
    gmt_arrivals_fini(&w->arrivals);
    gmt_ddp_fini(&w->ddp);
    gmt_optimizer_fini(&w->optimizer);
    gmt_mlp_fini(&w->mlp);
    study_samples_fini(&w->samples);
    gm_comm_destroy(w->comm);
}

static bool is_anothers_fault(const struct worker *w)
{
    return w->error.status == GM_ERR_PEER_LOST || (w->error.culprit >= 0 && w->error.culprit != w->rank);
}

int study_work(const char *value)
{
    struct worker w = { .job = study_crew_memory(value) };
    gmi_error_clear(&w.error);
    if (w.job == NULL) {
        fprintf(stderr, "gradmesh scaling: cannot open %s, the memory of the study\n", value);
        return 1;
    }
    gm_status status = work(&w);
    if (status != GM_OK) {
        if (w.comm != NULL) gm_comm_abort(w.comm, w.error.text);
        fprintf(stderr, "gradmesh scaling: %s\n", w.error.text);
    }
    worker_fini(&w);
    return status == GM_OK ? 0 : is_anothers_fault(&w) ? 3 : 1;
}
