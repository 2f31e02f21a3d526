#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/bits.h"
#include "train/bucket.h"
#include "train/norm.h"
#include "train/trainer_parts.h"

#define EVALUATION_ROWS 256 /* at a time: enough for a fast matrix product */

enum { MOST_ARRIVALS = 1 << 16, MOST_KEPT_STEPS = 512 };

/* ---- calls of the library, accounted --------------------------------------------------------- */

void gmt_trainer_expect(struct gmt_trainer *trainer, gm_collective which, size_t count,
                        gm_dtype dtype)
{
    uint64_t bytes = 0;
    (void)gm_comm_payload_formula(trainer->options.comm, which, count, dtype, 0, &bytes);
    trainer->formula_bytes += bytes;
}

gm_status gmt_trainer_library_error(const struct gmt_trainer *trainer, gm_status status,
                                    gm_error *error)
{
    if (status != GM_OK && error != NULL && error->status == GM_OK)
        *error = *gm_comm_error(trainer->options.comm);
    return status;
}

/* The library's clocks; zeros without a communicator. */
static gm_traffic read_traffic(const struct gmt_trainer *trainer)
{
    gm_traffic traffic;
    memset(&traffic, 0, sizeof traffic);
    if (trainer->options.comm != NULL)
        (void)gm_comm_traffic(trainer->options.comm, GM_COLLECTIVE_END, &traffic);
    return traffic;
}

/* Books what the library did since `before` as communication and waiting. */
static void book_communication(struct gmt_trainer *trainer, const gm_traffic *before)
{
    gm_traffic now = read_traffic(trainer);
    int64_t    waiting_ns = now.waiting_ns - before->waiting_ns;
    trainer->split.wait_ns += waiting_ns;
    trainer->split.comm_exposed_ns += now.elapsed_ns - before->elapsed_ns - waiting_ns;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Brings samples of the current global batch (gmt_gather_fn). */
static gm_status gather(void *user, size_t first_sample, size_t n_samples, float *inputs,
                        uint8_t *labels, gm_error *error)
{
    const struct gmt_trainer *trainer = user;
    (void)error;
    GMI_CHECK(first_sample + n_samples <= trainer->batch.n_samples);
    gmt_dataset_gather(&trainer->options.data->train, trainer->batch.indices + first_sample,
                       n_samples, inputs, labels);
    return GM_OK;
}

/* Whether all ranks exchange while they compute: an int that is 1 where there is room for it,
 * and its minimum. */
static gm_status settle_overlap(struct gmt_trainer *trainer, gm_error *error)
{
    const struct gmt_trainer_options *options = &trainer->options;
    int32_t is_overlapping = trainer->world_size > 1 && options->overlap != GMT_OVERLAP_OFF;
    if (is_overlapping && options->overlap == GMT_OVERLAP_AUTO) {
        is_overlapping = options->has_room;
        gm_status status = gm_all_reduce(options->comm, &is_overlapping, &is_overlapping, 1,
                                         GM_I32, GM_MIN);
        if (status != GM_OK) return gmt_trainer_library_error(trainer, status, error);
        gmt_trainer_expect(trainer, GM_ALL_REDUCE, 1, GM_I32);
    }
    trainer->is_overlapping = is_overlapping != 0;
    return GM_OK;
}

/* Without overlap every cut only costs. */
static void settle_buckets(struct gmt_trainer *trainer)
{
    size_t *bucket_bytes = &trainer->recipe.bucket_bytes;
    if (*bucket_bytes == GMT_BUCKET_BYTES_AUTO)
        *bucket_bytes =
            trainer->is_overlapping ? gmt_bucket_bytes_default(&trainer->mlp.params) : 0;
}

static bool is_reproducible(const struct gmt_trainer *trainer) { return trainer->recipe.shards > 0; }

static gm_status make_model(struct gmt_trainer *trainer, gm_error *error)
{
    const struct gmt_recipe *recipe = &trainer->recipe;
    size_t rows = gmt_ddp_max_rows(recipe->batch, trainer->world_size, recipe->accumulate);
    if (is_reproducible(trainer))
        rows = gmt_repro_max_rows(recipe->batch, recipe->shards, trainer->world_size,
                                  recipe->accumulate);
    gm_status status =
        gmt_mlp_init(&trainer->mlp, &recipe->layers,
                     rows < EVALUATION_ROWS ? EVALUATION_ROWS : rows, recipe->seed, error);
    if (status == GM_OK && is_reproducible(trainer)) {
        int n_threads = trainer->options.n_threads;
        status = gmt_bits_open(&trainer->bits, n_threads > 0 ? n_threads : 1, error);
        if (status == GM_OK) status = gmt_mlp_use_bits(&trainer->mlp, trainer->bits, error);
    }
    if (status != GM_OK) return status;
    return gmt_optimizer_init(&trainer->optimizer, &recipe->optimizer, trainer->mlp.params.n_elems,
                              error);
}

static gm_status make_ddp(struct gmt_trainer *trainer, gm_error *error)
{
    const struct gmt_recipe *recipe = &trainer->recipe;
    gm_status                status = settle_overlap(trainer, error);
    if (status != GM_OK) return status;
    settle_buckets(trainer);
    struct gmt_ddp_options ddp = { .comm = trainer->options.comm,
                                   .global_batch = recipe->batch,
                                   .accumulate = recipe->accumulate,
                                   .bucket_bytes = recipe->bucket_bytes,
                                   .is_overlapping = trainer->is_overlapping,
                                   .clip_norm = recipe->clip_norm,
                                   .gather = gather,
                                   .gather_user = trainer };
    return gmt_ddp_init(&trainer->ddp, &ddp, &trainer->mlp, &trainer->optimizer, error);
}

static gm_status make_repro(struct gmt_trainer *trainer, gm_error *error)
{
    const struct gmt_recipe *recipe = &trainer->recipe;
    settle_buckets(trainer);
    struct gmt_repro_options repro = { .comm = trainer->options.comm,
                                       .global_batch = recipe->batch,
                                       .n_shards = recipe->shards,
                                       .accumulate = recipe->accumulate,
                                       .placement = trainer->options.placement,
                                       .seed = recipe->seed,
                                       .clip_norm = recipe->clip_norm,
                                       .is_wire_raw = trainer->options.is_wire_raw,
                                       .gather = gather,
                                       .gather_user = trainer };
    return gmt_repro_init(&trainer->repro, &repro, &trainer->mlp, &trainer->optimizer, error);
}

/* What the library sends to read clocks has no formula: it is counted. */
static gm_status read_clocks(struct gmt_trainer *trainer, gm_error *error)
{
    gm_traffic before = read_traffic(trainer);
    gm_status  status = gmt_arrivals_read_clocks(&trainer->arrivals, trainer->options.comm);
    trainer->formula_bytes += read_traffic(trainer).payload_sent_bytes - before.payload_sent_bytes;
    return gmt_trainer_library_error(trainer, status, error);
}

/* So much is kept between two reports that gathering it weighs nothing beside the gradients. */
static gm_status make_arrivals(struct gmt_trainer *trainer, gm_error *error)
{
    size_t n_per_step = is_reproducible(trainer) ? 1 : trainer->ddp.n_buckets;
    size_t max_steps = MOST_ARRIVALS / ((size_t)trainer->world_size * n_per_step);
    if (max_steps < 1) max_steps = 1;
    gm_status status = gmt_arrivals_init(&trainer->arrivals, trainer->options.comm, n_per_step,
                                         gmi_min_size(max_steps, MOST_KEPT_STEPS), error);
    if (status != GM_OK) return status;
    size_t n_gathered;
    status = gmt_arrivals_compare_clocks(&trainer->arrivals, trainer->options.comm, &n_gathered);
    if (status != GM_OK) return gmt_trainer_library_error(trainer, status, error);
    if (n_gathered > 0) gmt_trainer_expect(trainer, GM_ALL_GATHER, n_gathered, GM_I64);
    return read_clocks(trainer, error);
}

static gm_status make_parts(struct gmt_trainer *trainer, gm_error *error)
{
    const struct gmt_recipe          *recipe = &trainer->recipe;
    const struct gmt_trainer_options *options = &trainer->options;
    gm_status                         status = make_model(trainer, error);
    if (status != GM_OK) return status;
    status = gmt_sampler_init(&trainer->sampler, recipe->seed, options->data->train.n_samples,
                              recipe->batch, error);
    if (status != GM_OK) return status;
    status = is_reproducible(trainer) ? make_repro(trainer, error) : make_ddp(trainer, error);
    if (status != GM_OK) return status;
    status = make_arrivals(trainer, error);
    if (status != GM_OK) return status;
    status = gmt_evaluator_init(&trainer->evaluator, options->comm, &options->data->test, error);
    if (status != GM_OK) return status;
    trainer->accounts = gmi_alloc((size_t)trainer->world_size, sizeof *trainer->accounts);
    if (trainer->accounts == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the accounts of %d ranks",
                             trainer->world_size);
    return GM_OK;
}

/* The recipe tells what is so. */
static void note_wire(struct gmt_trainer *trainer)
{
    const char *wire = trainer->world_size > 1 ? gm_comm_wire(trainer->options.comm) : "f32";
    snprintf(trainer->recipe.wire, sizeof trainer->recipe.wire, "%s", wire);
}

gm_status gmt_trainer_init(struct gmt_trainer *trainer, const struct gmt_recipe *recipe,
                           const struct gmt_trainer_options *options, gm_error *error)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->recipe = *recipe;
    trainer->options = *options;
    trainer->rank = options->comm == NULL ? 0 : gm_comm_rank(options->comm);
    trainer->world_size = options->comm == NULL ? 1 : gm_comm_size(options->comm);
    note_wire(trainer);
    gm_status status = gmt_recipe_check_data(recipe, &options->data->train, error);
    if (status == GM_OK) status = make_parts(trainer, error);
    if (status != GM_OK) {
        gmt_trainer_fini(trainer);
        return status;
    }
    gmt_state_list(&trainer->state, &trainer->mlp.params, &trainer->optimizer);
    return GM_OK;
}

void gmt_trainer_fini(struct gmt_trainer *trainer)
{
    /* A save that hangs in the kernel still reads the state: leave it where it is, the process
     * ends. */
    if (trainer->is_save_stuck) return;
    gmt_ddp_fini(&trainer->ddp);
    gmt_repro_fini(&trainer->repro);
    gmt_bits_close(trainer->bits);
    gmt_arrivals_fini(&trainer->arrivals);
    gmt_evaluator_fini(&trainer->evaluator);
    gmt_sampler_fini(&trainer->sampler);
    gmt_optimizer_fini(&trainer->optimizer);
    gmt_mlp_fini(&trainer->mlp);
    gmi_free(trainer->accounts);
    memset(trainer, 0, sizeof *trainer);
}

gm_status gmt_trainer_resume(struct gmt_trainer *trainer, const struct gmt_checkpoint *checkpoint,
                             gm_error *error)
{
    struct gmt_cursor cursor = { checkpoint->epoch, checkpoint->batch };
    if (!gmt_cursor_is_valid(&trainer->sampler, cursor) ||
        gmt_cursor_steps(&trainer->sampler, cursor) != checkpoint->step)
        return gmi_error_set(
            error, GM_ERR_ARG,
            "checkpoint %s: step %llu is not at batch %llu of epoch %llu with this batch "
            "size and data",
            checkpoint->path, (unsigned long long)checkpoint->step,
            (unsigned long long)checkpoint->batch, (unsigned long long)checkpoint->epoch);
    gm_status status = gmt_checkpoint_restore(checkpoint, &trainer->state, error);
    if (status != GM_OK) return status;
    trainer->cursor = cursor;
    trainer->step = trainer->first_step = checkpoint->step;
    trainer->optimizer.n_steps = checkpoint->step;
    return GM_OK;
}

/* ---- one step -------------------------------------------------------------------------------- */

static void expect_gradient(struct gmt_trainer *trainer)
{
    size_t n_elems = trainer->mlp.params.n_elems;
    if (trainer->options.comm == NULL) return;
    trainer->naive_bytes += 4 * (uint64_t)n_elems * (uint64_t)(trainer->world_size - 1);
    if (is_reproducible(trainer)) { /* what floats would have taken: exact sums depend on the values */
        gmt_trainer_expect(trainer, GM_ALL_REDUCE, n_elems, GM_F32);
        return;
    }
    for (size_t end = n_elems; end > 0;) {
        struct gmt_bucket bucket = gmt_bucket_before(&trainer->mlp.params,
                                                     trainer->recipe.bucket_bytes, end);
        gmt_trainer_expect(trainer, GM_ALL_REDUCE, bucket.n_elems, GM_F32);
        end = bucket.first_elem;
    }
}

static void keep_arrivals(struct gmt_trainer *trainer, const struct gmt_step_report *report)
{
    size_t n_before = trainer->arrivals.n_steps;
    gmt_arrivals_add(&trainer->arrivals, is_reproducible(trainer) ? &trainer->repro.passage : trainer->ddp.passages);
    if (trainer->arrivals.n_steps == n_before) return;
    trainer->asleep_ns += report->wait_ns;
    trainer->kept_ns += report->elapsed_ns;
}

gm_status gmt_trainer_step(struct gmt_trainer *trainer, struct gmt_step_report *report,
                           gm_error *error)
{
    const struct gmt_recipe *recipe = &trainer->recipe;
    struct gmt_schedule      schedule = { .kind = recipe->schedule,
                                          .base_rate = recipe->learning_rate,
                                          .final_fraction = recipe->final_fraction,
                                          .warmup_steps = recipe->warmup_steps,
                                          .total_steps = recipe->schedule_steps };
    int64_t start_ns = gmi_now_ns(), span_ns = gm_trace_begin(trainer->options.comm);
    trainer->batch = gmt_sampler_share(&trainer->sampler, trainer->cursor, 1, 0);
    int64_t   shuffle_ns = gmi_now_ns() - start_ns;
    double    rate = gmt_schedule_rate(&schedule, trainer->step);
    size_t    n_samples = trainer->batch.n_samples;
    gm_status status = is_reproducible(trainer)
                           ? gmt_repro_step(&trainer->repro, n_samples, rate, report, error)
                           : gmt_ddp_step(&trainer->ddp, n_samples, rate, report, error);
    gm_trace_end(trainer->options.comm, span_ns, "step", "step", (int64_t)trainer->step + 1);
    report->gather_ns += shuffle_ns;
    report->elapsed_ns += shuffle_ns;
    trainer->split.compute_ns += report->compute_ns;
    trainer->split.loading_ns += report->gather_ns;
    trainer->split.comm_exposed_ns += report->comm_exposed_ns;
    trainer->split.comm_hidden_ns += report->comm_hidden_ns;
    trainer->split.wait_ns += report->wait_ns;
    trainer->split.elapsed_ns += report->elapsed_ns;
    if (status != GM_OK) return status;
    expect_gradient(trainer);
    keep_arrivals(trainer, report);
    trainer->n_samples += trainer->batch.n_samples;
    trainer->cursor = gmt_cursor_next(&trainer->sampler, trainer->cursor);
    trainer->step++;
    return GM_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

/* What a run keeps between its reports. */
struct run {
    int64_t               start_ns;
    struct gmt_loss       share;       /* this rank's since the last report */
    double                epoch_loss;  /* all ranks' sum since the epoch began */
    double                epoch_rows;
    double                last_loss;   /* mean of the last epoch */
    uint64_t              report_samples; /* trainer->n_samples at the last report */
    int64_t               step_ns;        /* inside of steps, all and at the last report */
    int64_t               report_step_ns;
    int64_t               late_steps_ns;  /* of the steps whose arrivals were settled */
    struct gmt_time_split report_split, epoch_split; /* trainer->split then */
    struct gmt_evaluation test;
    struct gmt_state_digest digest; /* at the last report */
    double                  gradient_norm; /* of the last step */
};

static struct gmt_time_split split_since(const struct gmt_time_split *now,
                                         const struct gmt_time_split *then)
{
    return (struct gmt_time_split){ .elapsed_ns = now->elapsed_ns - then->elapsed_ns,
                                    .compute_ns = now->compute_ns - then->compute_ns,
                                    .loading_ns = now->loading_ns - then->loading_ns,
                                    .comm_exposed_ns =
                                        now->comm_exposed_ns - then->comm_exposed_ns,
                                    .comm_hidden_ns = now->comm_hidden_ns - then->comm_hidden_ns,
                                    .wait_ns = now->wait_ns - then->wait_ns,
                                    .evaluation_ns = now->evaluation_ns - then->evaluation_ns,
                                    .checkpoint_ns = now->checkpoint_ns - then->checkpoint_ns };
}

static double per_second(uint64_t count, int64_t elapsed_ns)
{
    return elapsed_ns <= 0 ? 0 : (double)count * 1e9 / (double)elapsed_ns;
}

/* Of the finished gradient, which is still there; nobody has computed it unless it is limited. */
static double norm_of_last_step(const struct gmt_trainer *trainer, const struct run *run)
{
    if (!isnan(run->gradient_norm) || trainer->options.listener.report == NULL)
        return run->gradient_norm;
    return gmt_norm(is_reproducible(trainer) ? trainer->repro.sums : trainer->mlp.params.gradients,
                    trainer->mlp.params.n_elems);
}

/* Who came late since the last report. What was booked as waiting is how long this rank slept, as nobody else's clock was
 * known then; some of that was for bytes on their way, and a rank may also wait without sleeping. */
static gm_status settle_arrivals(struct gmt_trainer *trainer, struct run *run, struct gmt_lateness *lateness, gm_error *error)
{
    struct gmt_arrivals *arrivals = &trainer->arrivals;
    size_t               n_gathered = gmt_arrivals_gathered(arrivals);
    gm_traffic           before = read_traffic(trainer);
    gm_status            status = read_clocks(trainer, error);
    if (status == GM_OK) status = gmt_arrivals_settle(arrivals, trainer->options.comm, lateness);
    if (status != GM_OK) return gmt_trainer_library_error(trainer, status, error);
    if (n_gathered > 0) gmt_trainer_expect(trainer, GM_ALL_GATHER, n_gathered, GM_I64);
    book_communication(trainer, &before);
    int64_t more_ns = lateness->wait_ns - trainer->asleep_ns;
    trainer->split.wait_ns += more_ns;
    trainer->split.comm_exposed_ns -= more_ns;
    run->late_steps_ns += trainer->kept_ns;
    trainer->asleep_ns = trainer->kept_ns = 0;
    return GM_OK;
}

static gm_status listener_exchange(struct gmt_trainer *trainer, const struct gmt_report *what, gm_error *error)
{
    const struct gmt_listener *listener = &trainer->options.listener;
    gm_traffic                 before = read_traffic(trainer), *aside = &trainer->aside;
    if (listener->exchange == NULL) return GM_OK;
    gm_status  status = listener->exchange(listener->user, what, error);
    gm_traffic now = read_traffic(trainer);
    aside->payload_sent_bytes += now.payload_sent_bytes - before.payload_sent_bytes;
    aside->protocol_sent_bytes += now.protocol_sent_bytes - before.protocol_sent_bytes;
    aside->memory_sent_bytes += now.memory_sent_bytes - before.memory_sent_bytes;
    return status;
}

/* Sums the losses since the last report over the ranks and tells the listener. `batch` and
 * `epoch` are those of the step before. */
static gm_status report(struct gmt_trainer *trainer, struct run *run, struct gmt_cursor done,
                        bool is_epoch_end, gm_error *error)
{
    double     sums[3] = { run->share.loss_sum, (double)run->share.n_correct,
                           (double)run->share.n_rows };
    gm_traffic before = read_traffic(trainer);
    bool       is_known = is_reproducible(trainer); /* to all, after each step */
    int64_t    kept_ns = trainer->kept_ns;
    struct gmt_lateness lateness = { .last_rank = -1 };
    if (trainer->options.comm != NULL && !is_known) {
        gm_status status = gm_all_reduce(trainer->options.comm, sums, sums, 3, GM_F64, GM_SUM);
        if (status != GM_OK) return gmt_trainer_library_error(trainer, status, error);
        gmt_trainer_expect(trainer, GM_ALL_REDUCE, 3, GM_F64);
        book_communication(trainer, &before);
    }
    gm_status settled = settle_arrivals(trainer, run, &lateness, error);
    if (settled != GM_OK) return settled;
    trainer->split.elapsed_ns = gmi_now_ns() - run->start_ns;
    run->epoch_loss += sums[0];
    run->epoch_rows += sums[2];
    struct gmt_schedule schedule = { trainer->recipe.schedule, trainer->recipe.learning_rate,
                                     trainer->recipe.final_fraction, trainer->recipe.warmup_steps,
                                     trainer->recipe.schedule_steps };
    struct gmt_report what = { .step = trainer->step,
                               .epoch = done.epoch,
                               .batch = done.batch,
                               .n_batches = gmt_sampler_n_batches(&trainer->sampler),
                               .loss = sums[0] / sums[2],
                               .train_accuracy = sums[1] / sums[2],
                               .learning_rate = gmt_schedule_rate(&schedule, trainer->step - 1),
                               .samples_per_s = per_second(trainer->n_samples - run->report_samples,
                                                           run->step_ns - run->report_step_ns),
                               .split = split_since(&trainer->split, &run->report_split),
                               .lateness = lateness,
                               .late_steps_ns = kept_ns,
                               .gradient_norm = norm_of_last_step(trainer, run),
                               .is_epoch_end = is_epoch_end };
    if (is_known && trainer->options.listener.report != NULL) {
        gm_status status = gmt_state_digest(&trainer->state, &run->digest, error);
        if (status != GM_OK) return status;
        what.digest = &run->digest;
    }
    run->share = (struct gmt_loss){ 0, 0, 0 };
    run->report_samples = trainer->n_samples;
    run->report_step_ns = run->step_ns;
    run->report_split = trainer->split;
    gm_status exchanged = listener_exchange(trainer, &what, error);
    if (exchanged != GM_OK) return exchanged;
    if (trainer->options.listener.report != NULL)
        trainer->options.listener.report(trainer->options.listener.user, &what);
    return GM_OK;
}

/* Looks at the test set and closes the account of the epoch. */
static gm_status end_epoch(struct gmt_trainer *trainer, struct run *run, uint64_t epoch,
                           gm_error *error)
{
    int64_t   start_ns = gmi_now_ns();
    gm_status status = gmt_evaluate(&trainer->evaluator, &trainer->mlp, &run->test, error);
    if (status != GM_OK) return status;
    trainer->split.evaluation_ns += gmi_now_ns() - start_ns;
    trainer->split.elapsed_ns = gmi_now_ns() - run->start_ns;
    if (run->epoch_rows > 0) run->last_loss = run->epoch_loss / run->epoch_rows;
    struct gmt_epoch_report what = { .epoch = epoch,
                                     .step = trainer->step,
                                     .loss = run->last_loss,
                                     .test = run->test,
                                     .split = split_since(&trainer->split, &run->epoch_split) };
    run->epoch_loss = run->epoch_rows = 0;
    run->epoch_split = trainer->split;
    if (trainer->options.listener.epoch != NULL)
        trainer->options.listener.epoch(trainer->options.listener.user, &what);
    return GM_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What a rank sends about itself: five numbers, a flag, and 32 bytes of hash. */
enum { ACCOUNT_NUMBERS = 6, ACCOUNT_WORDS = ACCOUNT_NUMBERS + 4 };

static void hash_to_words(const char *hex, int64_t *words)
{
    for (int w = 0; w < 4; w++) {
        uint64_t word = 0;
        for (int i = 0; i < 16; i++) {
            char digit = hex[16 * w + i];
            word = word << 4 | (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        }
        words[w] = (int64_t)word;
    }
}

static void words_to_hash(const int64_t *words, char *hex)
{
    for (int i = 0; i < 64; i++)
        hex[i] = "0123456789abcdef"[(uint64_t)words[i / 16] >> (60 - 4 * (i % 16)) & 15];
    hex[64] = '\0';
}

static void own_account(struct gmt_trainer *trainer, const char *hash, int64_t *words)
{
    gm_traffic traffic = read_traffic(trainer);
    uint64_t   kernel_sent = 0, kernel_recv = 0;
    bool       has_kernel_count =
        trainer->options.comm != NULL && trainer->world_size > 1 &&
        gm_comm_kernel_traffic(trainer->options.comm, &kernel_sent, &kernel_recv) == GM_OK;
    const gm_traffic *aside = &trainer->aside;
    words[0] = (int64_t)(traffic.payload_sent_bytes - aside->payload_sent_bytes);
    words[1] = (int64_t)(trainer->formula_bytes + trainer->evaluator.formula_bytes);
    words[2] = (int64_t)(traffic.protocol_sent_bytes - aside->protocol_sent_bytes);
    words[3] = (int64_t)(kernel_sent + aside->memory_sent_bytes - aside->payload_sent_bytes - aside->protocol_sent_bytes);
    words[4] = has_kernel_count;
    words[5] = (int64_t)(traffic.memory_sent_bytes - aside->memory_sent_bytes);
    hash_to_words(hash, words + ACCOUNT_NUMBERS);
}

/* Everybody's hash and byte counts, taken before this last exchange. */
static gm_status gather_accounts(struct gmt_trainer *trainer, struct gmt_end *end, gm_error *error)
{
    size_t   n_words = (size_t)trainer->world_size * ACCOUNT_WORDS;
    int64_t *words = gmi_alloc(n_words, sizeof *words);
    if (words == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the accounts");
    own_account(trainer, end->state_hash, words + trainer->rank * ACCOUNT_WORDS);
    gm_status status = GM_OK;
    if (trainer->options.comm != NULL) {
        status = gm_all_gather(trainer->options.comm, words, words, n_words, GM_I64);
        gmt_trainer_library_error(trainer, status, error);
    }
    end->are_identical = true;
    for (int r = 0; r < trainer->world_size && status == GM_OK; r++) {
        const int64_t           *from = words + r * ACCOUNT_WORDS;
        struct gmt_rank_account *account = &trainer->accounts[r];
        *account = (struct gmt_rank_account){ .payload_sent_bytes = (uint64_t)from[0],
                                              .formula_bytes = (uint64_t)from[1],
                                              .protocol_sent_bytes = (uint64_t)from[2],
                                              .kernel_sent_bytes = (uint64_t)from[3],
                                              .has_kernel_count = from[4] != 0,
                                              .memory_sent_bytes = (uint64_t)from[5] };
        words_to_hash(from + ACCOUNT_NUMBERS, account->state_hash);
        end->are_identical &= strcmp(account->state_hash, end->state_hash) == 0;
    }
    gmi_free(words);
    return status;
}

static gm_status finish(struct gmt_trainer *trainer, struct run *run, struct gmt_end *end,
                        gm_error *error)
{
    gm_status status = gmt_state_hash(&trainer->state, end->state_hash, error);
    if (status != GM_OK) return status;
    status = gather_accounts(trainer, end, error);
    if (status != GM_OK) return status;
    trainer->split.elapsed_ns = gmi_now_ns() - run->start_ns;
    end->world_size = trainer->world_size;
    end->first_step = trainer->first_step;
    end->steps = trainer->step;
    end->loss = run->last_loss;
    end->test = run->test;
    end->accounts = trainer->accounts;
    snprintf(end->wire, sizeof end->wire, "%s", trainer->recipe.wire);
    end->shards = trainer->recipe.shards;
    if (end->shards > 0) {
        gm_accumulator_stats stats;
        (void)gm_accumulator_get_stats(trainer->repro.accumulator, &stats);
        end->added = stats.added_ever;
        end->spilled = stats.spilled_ever;
    }
    end->gradient_bytes = 4 * (uint64_t)trainer->mlp.params.n_elems;
    end->naive_bytes = trainer->naive_bytes;
    end->samples_per_s = per_second(trainer->n_samples, run->step_ns);
    end->split = trainer->split;
    end->late_steps_ns = run->late_steps_ns;
    gmt_arrivals_total(&trainer->arrivals, &end->lateness);
    return GM_OK;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool is_due(uint64_t step, uint64_t every) { return every > 0 && step % every == 0; }

/* What comes after a step: report, end of the epoch, checkpoint. At the last step, all of them. */
static gm_status after_step(struct gmt_trainer *trainer, struct run *run, struct gmt_cursor done,
                            gm_error *error)
{
    const struct gmt_trainer_options *options = &trainer->options;
    bool      is_last = trainer->step == trainer->recipe.total_steps;
    bool      is_epoch_end = trainer->cursor.epoch != done.epoch;
    gm_status status = GM_OK;
    int64_t   span_ns = gm_trace_begin(options->comm);
    if (is_last || is_epoch_end || is_due(trainer->step, options->report_every)) {
        status = report(trainer, run, done, is_epoch_end, error);
        gm_trace_end(options->comm, span_ns, "report", "report", (int64_t)trainer->step);
    }
    span_ns = gm_trace_begin(options->comm);
    if (status == GM_OK && (is_last || is_epoch_end)) {
        status = end_epoch(trainer, run, done.epoch, error);
        gm_trace_end(options->comm, span_ns, "evaluation", "evaluate", (int64_t)done.epoch);
    }
    span_ns = gm_trace_begin(options->comm);
    bool is_save_due =
        options->save_every > 0 ? is_due(trainer->step, options->save_every) : is_epoch_end;
    if (status == GM_OK && options->is_saving && (is_last || is_save_due))
        status = gmt_trainer_save(trainer, error);
    if (options->is_saving && (is_last || is_save_due))
        gm_trace_end(options->comm, span_ns, "checkpoint", "save", (int64_t)trainer->step);
    if (status == GM_OK && options->is_saving && (is_last || is_save_due))
        gmt_feedback_forget(&trainer->ddp.feedback); /* it is not in the checkpoint */
    return status;
}

gm_status gmt_trainer_run(struct gmt_trainer *trainer, struct gmt_end *end, gm_error *error)
{
    struct run run = { .start_ns = gmi_now_ns(), .last_loss = NAN };
    memset(end, 0, sizeof *end);
    while (trainer->step < trainer->recipe.total_steps) {
        struct gmt_cursor      done = trainer->cursor;
        struct gmt_step_report share = { 0 };
        gm_status status = gmt_trainer_step(trainer, &share, error);
        if (status != GM_OK) return status;
        run.step_ns += share.elapsed_ns;
        run.share.loss_sum += share.loss.loss_sum;
        run.share.n_correct += share.loss.n_correct;
        run.share.n_rows += share.loss.n_rows;
        run.gradient_norm = share.gradient_norm;
        if (trainer->options.listener.step != NULL)
            trainer->options.listener.step(trainer->options.listener.user, trainer->step, &share);
        status = after_step(trainer, &run, done, error);
        if (status != GM_OK) return status;
    }
    if (trainer->step == trainer->first_step) { /* a resumed run that was complete already */
        gm_status status = end_epoch(trainer, &run, trainer->cursor.epoch, error);
        if (status != GM_OK) return status;
    }
    return finish(trainer, &run, end, error);
}
