/* The data-parallel step with ranks that are threads of this process and a communicator that is a
 * shared array: below stand all functions of the library that ddp.c calls, so that this test needs
 * no network, can make sums overflow, and shows what a step asks of a communicator. Steps over real
 * ones are tested elsewhere. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/ddp.h"
#include "train/ops.h"

#define MAX_WORLD 5

/* ---- a communicator in one process ----------------------------------------------------------- */

#define CALL_NS 10000000

struct fake_world {
    int               world_size;
    pthread_barrier_t barrier;
    const void       *sent[MAX_WORLD];
    bool              overflows; /* float sums come out infinite */
    bool              is_coarse; /* "int8", that is: what is sent is rounded to eighths */
    gm_status         failure;   /* what collectives return, if not GM_OK, after ... */
    uint64_t          good_calls; /* ... so many on each rank */
};

#define MAX_HANDLES 128

struct gm_work {
    struct gm_comm *comm; /* NULL: free */
    const void     *send;
    void           *recv;
    size_t          count;
    bool            is_done;
    gm_status       status;
};

struct gm_comm {
    struct fake_world *world;
    int                rank;
    uint64_t           n_calls, n_small_calls, most_elems;
    uint64_t           n_started, n_in_flight, most_in_flight, n_handles;
    struct gm_work     works[MAX_HANDLES], *queue[MAX_HANDLES];
    bool               is_aborted;
    gm_error           error;
};

int gm_comm_rank(const gm_comm *comm) { return comm->rank; }
int gm_comm_size(const gm_comm *comm) { return comm->world->world_size; }
const gm_error *gm_comm_error(const gm_comm *comm) { return &comm->error; }

/* Nothing is traced here. */
int64_t gm_trace_begin(gm_comm *comm)
{
    (void)comm;
    return 0;
}
void gm_trace_end(gm_comm *comm, int64_t begin_ns, const char *category, const char *name, int64_t number)
{
    (void)comm, (void)begin_ns, (void)category, (void)name, (void)number;
}

const char *gm_comm_wire(const gm_comm *comm) { return comm->world->is_coarse ? "int8" : "f32"; }

static float seen_of(const struct fake_world *world, float sent)
{
    return world->is_coarse ? rintf(sent * 8) / 8 : sent;
}

gm_status gm_wire_round_trip(const gm_comm *comm, const float *send, float *seen, size_t count)
{
    for (size_t i = 0; i < count; i++) seen[i] = seen_of(comm->world, send[i]);
    return GM_OK;
}

void gm_chunk(size_t count, int world_size, int rank, size_t *first_elem, size_t *n_elems)
{
    size_t each = count / (size_t)world_size, longer = count % (size_t)world_size, r = (size_t)rank;
    *first_elem = r * each + (r < longer ? r : longer);
    *n_elems = each + (r < longer);
}

gm_status gm_comm_abort(gm_comm *comm, const char *reason)
{
    comm->is_aborted = true;
    return gmi_error_set(&comm->error, GM_ERR_ABORTED, "%s", reason);
}

/* Every collective took 10 ms and slept for 1 ns of them. */
gm_status gm_comm_traffic(const gm_comm *comm, gm_collective which, gm_traffic *traffic)
{
    if (which != GM_COLLECTIVE_END) return GM_ERR_ARG; /* not a thread in which a test may fail */
    memset(traffic, 0, sizeof *traffic);
    traffic->calls = comm->n_calls;
    traffic->elapsed_ns = CALL_NS * (int64_t)comm->n_calls;
    traffic->waiting_ns = (int64_t)comm->n_calls;
    return GM_OK;
}

static void combine(const struct fake_world *world, void *result, size_t count, gm_dtype dtype,
                    gm_redop redop)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        int32_t least = INT32_MAX;
        for (int r = 0; r < world->world_size; r++) {
            if (dtype == GM_F32 && redop == GM_SUM) sum += seen_of(world, ((const float *)world->sent[r])[i]);
            if (dtype == GM_I32 && redop == GM_MIN && ((const int32_t *)world->sent[r])[i] < least)
                least = ((const int32_t *)world->sent[r])[i];
        }
        if (dtype == GM_F32) ((float *)result)[i] = world->overflows ? INFINITY : sum;
        if (dtype == GM_I32) ((int32_t *)result)[i] = least;
    }
}

static gm_status meet(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                      gm_redop redop)
{
    struct fake_world *world = comm->world;
    comm->n_calls++;
    comm->n_small_calls += dtype == GM_I32;
    if (count > comm->most_elems) comm->most_elems = count;
    if (world->failure != GM_OK && comm->n_calls > world->good_calls)
        return gmi_error_set(&comm->error, world->failure, "rank 3 is gone");
    static _Thread_local uint64_t result[512]; /* 4 KiB: more than any gradient here */
    if (count * 4 > sizeof result) return GM_ERR_NOMEM;
    world->sent[comm->rank] = send;
    pthread_barrier_wait(&world->barrier);
    combine(world, result, count, dtype, redop);
    pthread_barrier_wait(&world->barrier);
    memcpy(recv, result, count * 4);
    return GM_OK;
}

/* Work moves when it is waited for, and before any blocking call: in the order of starts. */
static void move_until(gm_comm *comm, const gm_work *last)
{
    for (bool is_over = false; !is_over && comm->n_in_flight > 0;) {
        gm_work *work = comm->queue[0];
        is_over = work == last;
        memmove(comm->queue, comm->queue + 1, --comm->n_in_flight * sizeof *comm->queue);
        work->status = meet(comm, work->send, work->recv, work->count, GM_F32, GM_SUM);
        work->is_done = true;
    }
}

gm_status gm_all_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                        gm_redop redop)
{
    move_until(comm, NULL);
    return meet(comm, send, recv, count, dtype, redop);
}

gm_status gm_all_reduce_start(gm_comm *comm, const void *send, void *recv, size_t count,
                              gm_dtype dtype, gm_redop redop, gm_work **work)
{
    *work = NULL;
    if (dtype != GM_F32 || redop != GM_SUM || comm->n_handles == MAX_HANDLES)
        return gmi_error_set(&comm->error, GM_ERR_STATE, "too many in flight");
    gm_work *w = &comm->works[0];
    while (w->comm != NULL) w++;
    *w = (gm_work){ comm, send, recv, count, false, GM_AGAIN };
    *work = w;
    comm->n_handles++;
    comm->n_started++;
    comm->queue[comm->n_in_flight++] = w;
    if (comm->n_in_flight > comm->most_in_flight) comm->most_in_flight = comm->n_in_flight;
    return GM_OK;
}

gm_status gm_work_wait(gm_work *work, int timeout_ms)
{
    (void)timeout_ms;
    if (!work->is_done) move_until(work->comm, work);
    return work->status;
}

void gm_work_release(gm_work *work)
{
    work->comm->n_handles--;
    work->comm = NULL;
}

/* ---- a job ----------------------------------------------------------------------------------- */

#define N_IN 12
#define N_CLASSES 5
#define MAX_BATCH 24

struct job {
    const char *layers;
    int         world_size;   /* 0: a single process without a communicator */
    size_t      batches[3];   /* samples of each step; 0: none */
    size_t      global_batch; /* the largest */
    size_t      accumulate, bucket_bytes;
    bool        is_overlapping;
    uint64_t    n_handles_taken; /* by somebody else */
    float       inputs[MAX_BATCH * N_IN]; /* of every batch */
    uint8_t     labels[MAX_BATCH];
    bool        gather_fails;
    float       first_weight; /* set before the first step unless 0 */
    struct fake_world world;
};

struct worker {
    struct job            *job;
    struct gm_comm         comm;
    struct gmt_mlp         mlp;
    struct gmt_optimizer   optimizer;
    struct gmt_ddp         ddp;
    struct gmt_step_report reports[3];
    int                    n_steps_done;
    size_t                 n_gathered;
    uint64_t               n_allocations; /* in the steps of a worker that is alone */
    gm_status              status;
    gm_error               error;
};

static gm_status gather(void *user, size_t first_sample, size_t n_samples, float *inputs,
                        uint8_t *labels, gm_error *error)
{
    struct worker *worker = user;
    if (worker->job->gather_fails)
        return gmi_error_set(error, GM_ERR_SYSTEM, "the file of samples is gone");
    memcpy(inputs, worker->job->inputs + first_sample * N_IN, n_samples * N_IN * sizeof(float));
    memcpy(labels, worker->job->labels + first_sample, n_samples);
    worker->n_gathered += n_samples;
    return GM_OK;
}

static void *work(void *user)
{
    struct worker *worker = user;
    struct job *job = worker->job;
    uint64_t allocations = gmi_alloc_calls();
    for (int s = 0; s < 3 && job->batches[s] > 0 && worker->status == GM_OK; s++) {
        worker->status = gmt_ddp_step(&worker->ddp, job->batches[s], 0.1, &worker->reports[s],
                                      &worker->error);
        if (worker->status == GM_OK) worker->n_steps_done++;
    }
    worker->n_allocations = gmi_alloc_calls() - allocations;
    return NULL;
}

static void worker_init(struct worker *worker, struct job *job, int rank)
{
    memset(worker, 0, sizeof *worker);
    worker->job = job;
    worker->comm.world = &job->world;
    worker->comm.rank = rank;
    worker->comm.n_handles = job->n_handles_taken;
    gmi_error_clear(&worker->comm.error);
    gmi_error_clear(&worker->error);

    int world_size = job->world_size > 0 ? job->world_size : 1;
    struct gmt_layers layers;
    struct gmt_optimizer_options momentum;
    gmt_optimizer_options_default(&momentum, GMT_MOMENTUM);
    struct gmt_ddp_options options = {
        .comm = job->world_size > 0 ? &worker->comm : NULL,
        .global_batch = job->global_batch, .accumulate = job->accumulate,
        .bucket_bytes = job->bucket_bytes, .is_overlapping = job->is_overlapping,
        .gather = gather, .gather_user = worker
    };
    assert_int_equal(gmt_layers_parse(&layers, job->layers, NULL), GM_OK);
    size_t rows = gmt_ddp_max_rows(job->global_batch, world_size, job->accumulate);
    assert_int_equal(gmt_mlp_init(&worker->mlp, &layers, rows, 9, NULL), GM_OK);
    if (job->first_weight != 0) worker->mlp.params.weights[0] = job->first_weight;
    assert_int_equal(gmt_optimizer_init(&worker->optimizer, &momentum,
                                        worker->mlp.params.n_elems, NULL),
                     GM_OK);
    assert_int_equal(gmt_ddp_init(&worker->ddp, &options, &worker->mlp, &worker->optimizer, NULL),
                     GM_OK);
}

static void worker_fini(struct worker *worker)
{
    gmt_ddp_fini(&worker->ddp);
    gmt_optimizer_fini(&worker->optimizer);
    gmt_mlp_fini(&worker->mlp);
}

static struct job job_of(int world_size, size_t batch)
{
    struct job job = { .layers = "12,9,5", .world_size = world_size, .global_batch = batch,
                       .batches = { batch, batch, batch }, .accumulate = 1 };
    for (size_t i = 0; i < MAX_BATCH * N_IN; i++)
        job.inputs[i] = (float)(2 * gmi_rng_unit(31, i) - 1);
    for (size_t i = 0; i < MAX_BATCH; i++) job.labels[i] = (uint8_t)gmi_rng_below(32, i, N_CLASSES);
    return job;
}

/* Runs the job on threads; workers are the caller's to free with worker_fini. */
static void run(struct job *job, struct worker *workers)
{
    int n = job->world_size > 0 ? job->world_size : 1;
    pthread_t threads[MAX_WORLD];
    job->world.world_size = n;
    assert_int_equal(pthread_barrier_init(&job->world.barrier, NULL, (unsigned)n), 0);
    for (int r = 0; r < n; r++) worker_init(&workers[r], job, r);
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, work, &workers[r]), 0);
    for (int r = 0; r < n; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    pthread_barrier_destroy(&job->world.barrier);
}

static void free_all(struct job *job, struct worker *workers)
{
    for (int r = 0; r < (job->world_size > 0 ? job->world_size : 1); r++) worker_fini(&workers[r]);
}

/* ---- tests: the same training for any number of ranks ---------------------------------------- */

static void compare_with_single(const struct job *job, const struct worker *workers)
{
    struct job alone = *job;
    struct worker single;
    alone.world_size = 0;
    alone.accumulate = 1;
    run(&alone, &single);
    assert_int_equal(single.status, GM_OK);
    for (int s = 0; s < 3 && job->batches[s] > 0; s++) {
        struct gmt_loss sum = { 0 };
        for (int r = 0; r < job->world_size; r++) {
            const struct gmt_step_report *report = &workers[r].reports[s];
            sum.loss_sum += report->loss.loss_sum;
            sum.n_correct += report->loss.n_correct;
            sum.n_rows += report->loss.n_rows;
        }
        assert_int_equal(sum.n_rows, job->batches[s]);
        assert_int_equal(sum.n_correct, single.reports[s].loss.n_correct);
        assert_true(fabs(sum.loss_sum - single.reports[s].loss.loss_sum) < 1e-4);
    }
    for (size_t i = 0; i < single.mlp.params.n_elems; i++) {
        float got = workers[0].mlp.params.weights[i], expected = single.mlp.params.weights[i];
        if (!(fabsf(got - expected) <= 1e-6f))
            fail_msg("world %d, batch %zu, accumulate %zu: weight %zu is %.9g, alone %.9g",
                     job->world_size, job->global_batch, job->accumulate, i, got, expected);
    }
    worker_fini(&single);
}

static void assert_same_on_all_ranks(const struct job *job, const struct worker *workers)
{
    size_t bytes = workers[0].mlp.params.n_elems * sizeof(float);
    for (int r = 1; r < job->world_size; r++) {
        assert_memory_equal(workers[r].mlp.params.weights, workers[0].mlp.params.weights, bytes);
        assert_memory_equal(workers[r].optimizer.states[0].values,
                            workers[0].optimizer.states[0].values, bytes);
    }
}

static void every_world_size_trains_like_a_single_process(void **state)
{
    (void)state;
    const size_t batches[][3] = { { 24, 24, 24 }, { 23, 23, 7 }, { 7, 7, 2 }, { 1, 1, 1 } };
    const size_t bucket_bytes[] = { 0, 4 * 17, 4096 };
    for (int world_size = 1; world_size <= MAX_WORLD; world_size++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (size_t accumulate = 1; accumulate <= 4; accumulate++) {
                struct worker workers[MAX_WORLD];
                struct job job = job_of(world_size, batches[b][0]);
                memcpy(job.batches, batches[b], sizeof job.batches);
                job.accumulate = accumulate;
                job.bucket_bytes = bucket_bytes[accumulate % 3];
                job.is_overlapping = (accumulate + b) % 2 == 0;
                run(&job, workers);
                size_t n_gathered = 0;
                for (int r = 0; r < world_size; r++) {
                    assert_int_equal(workers[r].status, GM_OK);
                    n_gathered += workers[r].n_gathered;
                }
                assert_int_equal(n_gathered, batches[b][0] + batches[b][1] + batches[b][2]);
                assert_same_on_all_ranks(&job, workers);
                compare_with_single(&job, workers);
                free_all(&job, workers);
            }
}

/* In every bucket of every step, also of those that are exchanged meanwhile. */
static void a_coarse_format_gets_its_losses_fed_back(void **state)
{
    (void)state;
    struct worker fine[MAX_WORLD], coarse[2][MAX_WORLD];
    struct job job = job_of(3, 24);
    job.bucket_bytes = 4 * 50;
    run(&job, fine);
    job.world.is_coarse = true;
    for (int is_overlapping = 0; is_overlapping < 2; is_overlapping++) {
        job.is_overlapping = is_overlapping;
        run(&job, coarse[is_overlapping]);
        assert_same_on_all_ranks(&job, coarse[is_overlapping]);
    }
    for (int r = 0; r < 3; r++) {
        const struct gmt_feedback *feedback = &coarse[0][r].ddp.feedback;
        size_t n_kept = 0, bytes = feedback->n_elems * sizeof(float);
        assert_null(fine[r].ddp.feedback.residual);
        assert_int_equal(coarse[1][r].status, GM_OK);
        assert_memory_equal(coarse[0][r].mlp.params.weights, coarse[1][r].mlp.params.weights, bytes);
        assert_memory_equal(feedback->residual, coarse[1][r].ddp.feedback.residual, bytes);
        for (size_t i = 0; i < feedback->n_elems; i++) {
            n_kept += feedback->residual[i] != 0;
            assert_true(fabsf(feedback->residual[i]) <= 0.0625f);
        }
        assert_true(n_kept > feedback->n_elems / 2);
    }
    free_all(&job, fine);
    free_all(&job, coarse[0]);
    free_all(&job, coarse[1]);
}

static void one_all_reduce_per_bucket_and_step(void **state)
{
    (void)state;
    for (int is_overlapping = 0; is_overlapping < 2; is_overlapping++) {
        struct worker workers[MAX_WORLD];
        struct job job = job_of(3, 12);
        job.accumulate = 2; /* makes no difference to this */
        job.bucket_bytes = 4 * 50;
        job.is_overlapping = is_overlapping;
        run(&job, workers);
        /* 167 elements: the last layer's 50, and 39, 39, 39 of the first. */
        assert_int_equal(workers[0].mlp.params.n_elems, 167);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(workers[r].comm.n_calls, 3 * 4);
            assert_int_equal(workers[r].comm.n_small_calls, 0);
            assert_int_equal(workers[r].comm.most_elems, 50);
            /* The last one is reduced at once: there is nothing else to do. */
            assert_int_equal(workers[r].comm.n_started, is_overlapping ? 3 * 3 : 0);
            assert_int_equal(workers[r].comm.n_handles, 0);
        }
        free_all(&job, workers);
    }
}

static void overlap_changes_no_bits(void **state)
{
    (void)state;
    static const size_t bucket_bytes[] = { 0, 4, 4 * 17, 4 * 50, 4096 };
    for (int world_size = 1; world_size <= MAX_WORLD; world_size++)
        for (size_t b = 0; b < sizeof bucket_bytes / sizeof *bucket_bytes; b++)
            for (size_t accumulate = 1; accumulate <= 3; accumulate += 2) {
                struct worker with[MAX_WORLD], without[MAX_WORLD];
                struct job job = job_of(world_size, 17);
                job.accumulate = accumulate;
                job.bucket_bytes = bucket_bytes[b];
                run(&job, without);
                job.is_overlapping = true;
                run(&job, with);
                for (int r = 0; r < world_size; r++) {
                    assert_int_equal(with[r].status, GM_OK);
                    assert_memory_equal(with[r].mlp.params.weights, without[0].mlp.params.weights,
                                        with[r].mlp.params.n_elems * sizeof(float));
                    assert_int_equal(with[r].comm.n_calls, without[r].comm.n_calls);
                    assert_int_equal(with[r].comm.n_handles, 0);
                    bool is_cut = bucket_bytes[b] > 0 && bucket_bytes[b] < 4096;
                    assert_int_equal(with[r].comm.n_started > 0, world_size > 1 && is_cut);
                }
                free_all(&job, with);
                free_all(&job, without);
            }
}

static void few_buckets_are_in_flight_at_a_time(void **state)
{
    (void)state;
    struct worker workers[MAX_WORLD];
    struct job job = job_of(2, 12);
    job.bucket_bytes = 4; /* 167 of them, more than the library takes */
    job.is_overlapping = true;
    run(&job, workers);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(workers[r].status, GM_OK);
        assert_int_equal(workers[r].comm.n_started, 3 * 166);
        assert_true(workers[r].comm.most_in_flight > 1 && workers[r].comm.most_in_flight <= 32);
    }
    free_all(&job, workers);
}

/* See gm_comm_traffic above. A blocking call hides nothing; here it even ends before the time that
 * it says it took. */
static void times_are_split_without_rest(void **state)
{
    (void)state;
    for (int is_overlapping = 0; is_overlapping < 2; is_overlapping++) {
        struct worker workers[MAX_WORLD];
        struct job job = job_of(2, 12);
        job.bucket_bytes = 4 * 50; /* four calls a step */
        job.is_overlapping = is_overlapping;
        run(&job, workers);
        for (int s = 0; s < 3; s++) {
            const struct gmt_step_report *report = &workers[1].reports[s];
            assert_int_equal(report->wait_ns, 4);
            assert_true(report->compute_ns > 0 && report->gather_ns >= 0);
            assert_true(report->comm_exposed_ns > 0 && report->comm_hidden_ns >= 0);
            int64_t library_ns = report->comm_exposed_ns + report->wait_ns;
            assert_int_equal(report->compute_ns + report->gather_ns + library_ns,
                             report->elapsed_ns);
            int64_t running_ns = library_ns + report->comm_hidden_ns;
            if (library_ns < 4 * CALL_NS) assert_int_equal(running_ns, 4 * CALL_NS);
            else assert_int_equal(running_ns, library_ns);
        }
        free_all(&job, workers);
    }
}

static void a_step_takes_no_memory(void **state)
{
    (void)state;
    struct worker worker;
    struct job job = job_of(1, 12);
    run(&job, &worker);
    assert_int_equal(worker.n_steps_done, 3);
    assert_int_equal(worker.n_allocations, 0);
    free_all(&job, &worker);
}

/* ---- tests: what is not finite --------------------------------------------------------------- */

/* All ranks stopped in the first step, with this culprit, one sentence that contains `words`, and
 * the weights that they started with. */
static void assert_stopped(struct job *job, struct worker *workers, int culprit, const char *words)
{
    int n = job->world_size > 0 ? job->world_size : 1;
    struct worker fresh;
    worker_init(&fresh, job, 0);
    for (int r = 0; r < n; r++) {
        assert_int_equal(workers[r].status, GM_ERR_STATE);
        assert_int_equal(workers[r].error.status, GM_ERR_STATE);
        assert_int_equal(workers[r].n_steps_done, 0);
        assert_true(workers[r].reports[0].is_non_finite);
        assert_int_equal(workers[r].reports[0].culprit, culprit);
        assert_int_equal(workers[r].error.culprit, culprit);
        assert_string_equal(workers[r].error.text, workers[0].error.text);
        assert_memory_equal(workers[r].mlp.params.weights, fresh.mlp.params.weights,
                            fresh.mlp.params.n_elems * sizeof(float));
        assert_int_equal(workers[r].optimizer.n_steps, 0);
    }
    if (strstr(workers[0].error.text, words) == NULL) fail_msg("\"%s\"", workers[0].error.text);
    assert_non_null(strstr(workers[0].error.text, "step 1:"));
    worker_fini(&fresh);
}

static void a_nan_in_the_samples_of_one_rank_stops_all_and_names_it(void **state)
{
    (void)state;
    for (int world_size = 0; world_size <= MAX_WORLD; world_size++)
        for (int bad = 0; bad < (world_size > 0 ? world_size : 1); bad++)
            for (int k = 1; k <= 2; k++) {
                struct worker workers[MAX_WORLD];
                struct job job = job_of(world_size, 10);
                size_t first, n;
                char words[40];
                gm_chunk(10, world_size > 0 ? world_size : 1, bad, &first, &n);
                job.inputs[(first + n - 1) * N_IN + 3] = NAN;
                job.accumulate = (size_t)k;
                job.bucket_bytes = k == 1 ? 0 : 64;
                job.is_overlapping = (bad + k) % 2 == 0;
                run(&job, workers);
                snprintf(words, sizeof words, "loss of rank %d is not finite", bad);
                assert_stopped(&job, workers, bad, words);
                free_all(&job, workers);
            }
}

static void the_first_of_several_is_named(void **state)
{
    (void)state;
    struct worker workers[MAX_WORLD];
    struct job job = job_of(4, 8);
    job.inputs[2 * N_IN] = job.inputs[7 * N_IN] = INFINITY; /* of ranks 1 and 3 */
    run(&job, workers);
    assert_stopped(&job, workers, 1, "rank 1");
    free_all(&job, workers);
}

/* A logit of -infinity on the label: the loss is infinite, the gradient (p - 1) x is not. */
static void bad_loss_case(size_t bucket_bytes, bool is_overlapping)
{
    struct worker workers[MAX_WORLD];
    struct job job = job_of(3, 6);
    job.bucket_bytes = bucket_bytes;
    job.is_overlapping = is_overlapping;
    job.layers = "12,5";
    job.first_weight = -3e38f;
    for (size_t i = 0; i < 6; i++) job.inputs[i * N_IN] = 0;
    job.inputs[3 * N_IN] = 2; /* of rank 1 */
    job.labels[3] = 0;
    run(&job, workers);
    assert_false(isfinite(workers[1].reports[0].loss.loss_sum));
    assert_true(isfinite(workers[0].reports[0].loss.loss_sum));
    assert_stopped(&job, workers, 1, "loss of rank 1");
    free_all(&job, workers);
}

static void a_bad_loss_with_a_finite_gradient_is_seen_by_all(void **state)
{
    (void)state;
    bad_loss_case(0, false);
    bad_loss_case(64, false);
    bad_loss_case(64, true);
}

static void a_bad_gradient_with_a_finite_loss_names_its_rank(void **state)
{
    (void)state;
    struct worker workers[MAX_WORLD];
    struct job job = job_of(3, 6);
    job.layers = "12,1,5"; /* a hidden unit that is off for this sample: NaN = 0 times infinity */
    job.first_weight = -1;
    for (size_t i = 0; i < 6; i++) job.inputs[i * N_IN] = 0;
    job.inputs[5 * N_IN] = INFINITY; /* of rank 2 */
    run(&job, workers);
    assert_true(isfinite(workers[2].reports[0].loss.loss_sum));
    assert_stopped(&job, workers, 2, "gradient of rank 2");
    free_all(&job, workers);
}

static void an_overflow_in_the_sum_alone_is_nobodys_fault(void **state)
{
    (void)state;
    struct worker workers[MAX_WORLD];
    struct job job = job_of(3, 6);
    job.world.overflows = true;
    run(&job, workers);
    assert_stopped(&job, workers, -1, "overflowed");
    for (int r = 0; r < 3; r++) assert_int_equal(workers[r].comm.n_small_calls, 1);
    free_all(&job, workers);
}

/* ---- tests: other failures ------------------------------------------------------------------- */

static void the_librarys_error_is_handed_on(void **state)
{
    (void)state;
    for (int is_overlapping = 0; is_overlapping < 2; is_overlapping++)
        for (uint64_t good_calls = 0; good_calls < 9; good_calls++) {
            struct worker workers[MAX_WORLD];
            struct job job = job_of(2, 6);
            job.bucket_bytes = 4 * 50; /* four calls a step */
            job.is_overlapping = is_overlapping;
            job.world.failure = GM_ERR_PEER_LOST;
            job.world.good_calls = good_calls;
            run(&job, workers);
            for (int r = 0; r < 2; r++) {
                assert_int_equal(workers[r].status, GM_ERR_PEER_LOST);
                assert_int_equal(workers[r].n_steps_done, good_calls / 4);
                assert_int_equal(workers[r].error.status, GM_ERR_PEER_LOST);
                assert_string_equal(workers[r].error.text, "rank 3 is gone");
                assert_false(workers[r].reports[good_calls / 4].is_non_finite);
                /* The caller may free the gradient: nothing is in flight. */
                assert_int_equal(workers[r].comm.n_in_flight, 0);
                assert_int_equal(workers[r].comm.n_handles, 0);
            }
            free_all(&job, workers);
        }
}

/* More in flight than the library takes, by a mistake of the caller's: nobody must wait for what
 * does not come. */
static void a_start_that_is_refused_ends_the_job(void **state)
{
    (void)state;
    struct worker workers[MAX_WORLD];
    struct job job = job_of(2, 6);
    job.bucket_bytes = 4 * 50;
    job.is_overlapping = true;
    job.n_handles_taken = MAX_HANDLES - 2;
    run(&job, workers);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(workers[r].status, GM_ERR_STATE);
        assert_int_equal(workers[r].n_steps_done, 0);
        assert_true(workers[r].comm.is_aborted);
        assert_int_equal(workers[r].comm.n_in_flight, 0);
    }
    free_all(&job, workers);
}

static void a_rank_without_samples_aborts_with_its_reason(void **state)
{
    (void)state;
    struct worker worker;
    struct job job = job_of(1, 6);
    job.gather_fails = true;
    run(&job, &worker);
    assert_int_equal(worker.status, GM_ERR_SYSTEM);
    assert_true(worker.comm.is_aborted);
    assert_string_equal(worker.comm.error.text, "the file of samples is gone");
    assert_int_equal(worker.comm.n_calls, 0);
    free_all(&job, &worker);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct worker worker;
    struct job job = job_of(0, 6);
    worker_init(&worker, &job, 0);
    struct gmt_ddp_options good = worker.ddp.options, bad = good;
    struct gmt_step_report report;
    struct gmt_ddp ddp;
    assert_int_equal(gmt_ddp_step(&worker.ddp, 0, 0.1, &report, NULL), GM_ERR_ARG);
    assert_int_equal(gmt_ddp_step(&worker.ddp, 7, 0.1, &report, NULL), GM_ERR_ARG);
    bad.global_batch = 0;
    assert_int_equal(gmt_ddp_init(&ddp, &bad, &worker.mlp, &worker.optimizer, NULL), GM_ERR_ARG);
    bad.global_batch = 7; /* the model was made for 6 */
    assert_int_equal(gmt_ddp_init(&ddp, &bad, &worker.mlp, &worker.optimizer, NULL), GM_ERR_ARG);
    bad = good;
    bad.accumulate = 0;
    assert_int_equal(gmt_ddp_init(&ddp, &bad, &worker.mlp, &worker.optimizer, NULL), GM_ERR_ARG);
    worker.optimizer.n_elems--;
    assert_int_equal(gmt_ddp_init(&ddp, &good, &worker.mlp, &worker.optimizer, NULL), GM_ERR_ARG);
    worker.optimizer.n_elems++;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        gmi_alloc_fail_at(nth);
        assert_int_equal(gmt_ddp_init(&ddp, &good, &worker.mlp, &worker.optimizer, NULL),
                         GM_ERR_NOMEM);
        gmi_alloc_fail_at(0);
    }
    worker_fini(&worker);
}

static void largest_micro_batch_is_computed(void **state)
{
    (void)state;
    assert_int_equal(gmt_ddp_max_rows(64, 1, 1), 64);
    assert_int_equal(gmt_ddp_max_rows(64, 4, 1), 16);
    assert_int_equal(gmt_ddp_max_rows(65, 4, 1), 17);
    assert_int_equal(gmt_ddp_max_rows(65, 4, 4), 5);
    assert_int_equal(gmt_ddp_max_rows(1, 8, 8), 1);
}

static int one_blas_thread(void **state)
{
    (void)state;
    gmt_set_blas_threads(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_world_size_trains_like_a_single_process),
        cmocka_unit_test(a_coarse_format_gets_its_losses_fed_back),
        cmocka_unit_test(one_all_reduce_per_bucket_and_step),
        cmocka_unit_test(overlap_changes_no_bits),
        cmocka_unit_test(few_buckets_are_in_flight_at_a_time),
        cmocka_unit_test(times_are_split_without_rest),
        cmocka_unit_test(a_step_takes_no_memory),
        cmocka_unit_test(a_nan_in_the_samples_of_one_rank_stops_all_and_names_it),
        cmocka_unit_test(the_first_of_several_is_named),
        cmocka_unit_test(a_bad_loss_with_a_finite_gradient_is_seen_by_all),
        cmocka_unit_test(a_bad_gradient_with_a_finite_loss_names_its_rank),
        cmocka_unit_test(an_overflow_in_the_sum_alone_is_nobodys_fault),
        cmocka_unit_test(the_librarys_error_is_handed_on),
        cmocka_unit_test(a_start_that_is_refused_ends_the_job),
        cmocka_unit_test(a_rank_without_samples_aborts_with_its_reason),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(largest_micro_batch_is_computed),
    };
    return cmocka_run_group_tests_name("ddp", tests, one_blas_thread, NULL);
}
