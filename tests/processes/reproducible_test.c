/* Reproducible training: the same bits whatever there is besides parameters, step and shards. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "train/bits.h"
#include "train/trainer.h"

/* What 60 steps of the job below end with, everywhere. It changes when the job, the initial weights, the
 * order of samples or the arithmetic does; then every reproducible run of before is another one, which the
 * changelog has to say. */
static const char golden_hash[] = "6f3346fdbd41c20117022ce2263705ae6525464575b40a1644f8ebb8981438c6";

enum { STEPS = 60, SAMPLES = 203, BATCH = 32, SHARDS = 6 };

static struct gmt_data data;

static int load_data(void **state)
{
    (void)state;
    return gmt_data_load(&data, "synthetic:203,101", GMT_DATA_SEED, GMT_DATA_BOTH, NULL) == GM_OK ? 0 : -1;
}

static int free_data(void **state)
{
    (void)state;
    gmt_data_free(&data);
    return 0;
}

/* 203 samples in batches of 32: seven to the epoch, the last of 11, so that shards have 1 to 6 samples. */
static struct gmt_recipe small_recipe(void)
{
    struct gmt_recipe recipe = { .learning_rate = 0.05,
                                 .schedule = GMT_COSINE,
                                 .schedule_steps = STEPS,
                                 .total_steps = STEPS,
                                 .batch = BATCH,
                                 .accumulate = 1,
                                 .shards = SHARDS,
                                 .clip_norm = 1,
                                 .seed = 11,
                                 .train_samples = data.train.n_samples };
    if (gmt_layers_parse(&recipe.layers, "784,20,12,10", NULL) != GM_OK) abort();
    gmt_optimizer_options_default(&recipe.optimizer, GMT_MOMENTUM);
    return recipe;
}

/* All that must be of no consequence. */
struct setting {
    int                world_size;
    const char        *algorithm, *transport;
    const char        *variants[2]; /* of even ranks, of odd ones; NULL: the best */
    int                n_threads;
    enum gmt_placement placement;
    bool               is_wire_raw;
    size_t             accumulate;
    uint64_t           report_every;
};

/* What came out. */
struct outcome {
    char     hash[GMT_HASH_HEX_BYTES];
    double   loss, test_loss;
    uint64_t n_reports;
    double   sum_of_reports; /* of losses and norms, in their order */
};
_Static_assert(sizeof(struct outcome) <= sizeof(uint64_t) * RANKS_NUMBERS, "it fits into a record");

static void note_report(void *user, const struct gmt_report *report)
{
    struct outcome *outcome = user;
    if (report->step % 10 != 0) return;
    outcome->n_reports++;
    outcome->sum_of_reports += report->loss * (double)report->step + report->gradient_norm;
}

static void train(struct rank_self *self)
{
    const struct setting *setting = self->user;
    const char           *variant = setting->variants[self->rank % 2];
    struct gmt_recipe     recipe = small_recipe();
    struct outcome        outcome = { .n_reports = 0 };
    struct gmt_trainer    trainer;
    struct gmt_end        end;
    gm_error              error;
    gmi_error_clear(&error);
    if (variant != NULL) rank_check(self, gmt_bits_use(variant));
    recipe.accumulate = setting->accumulate;
    rank_create(self);
    struct gmt_trainer_options options = { .comm = self->comm,
                                           .data = &data,
                                           .report_every = 10,
                                           .n_threads = setting->n_threads,
                                           .placement = setting->placement,
                                           .is_wire_raw = setting->is_wire_raw,
                                           .listener = { .report = note_report, .user = &outcome } };
    rank_ok(self, gmt_trainer_init(&trainer, &recipe, &options, &error));
    gm_status status = gmt_trainer_run(&trainer, &end, &error);
    if (status != GM_OK) rank_fail(self, __FILE__, __LINE__, "%s", error.text);
    rank_check(self, end.are_identical);
    memcpy(outcome.hash, end.state_hash, sizeof outcome.hash);
    outcome.loss = end.loss;
    outcome.test_loss = end.test.loss;
    memcpy(self->record->numbers, &outcome, sizeof outcome);
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
}

/* The outcome of each rank is `first`, which is filled if it is empty. */
static void run_and_compare(void **state, const struct setting *setting, struct outcome *first)
{
    struct ranks_job     job = { .n_ranks = setting->world_size,
                                 .body = train,
                                 .user = setting,
                                 .algorithm = setting->algorithm,
                                 .transport = setting->transport };
    struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
    for (int r = 0; r < setting->world_size; r++) {
        const void *outcome = shared->records[r].numbers;
        if (first->n_reports == 0) memcpy(first, outcome, sizeof *first);
        assert_string_equal(((const struct outcome *)outcome)->hash, golden_hash);
        assert_memory_equal(outcome, first, sizeof *first); /* losses and norms too, to the bit */
    }
    ranks_teardown(state);
}

static void every_setting_ends_with_the_same_bits(void **state)
{
    static const struct setting settings[] = {
        { .world_size = 1 },
        { .world_size = 1, .n_threads = 2, .variants = { "plain" } },
        { .world_size = 1, .accumulate = 3, .variants = { "avx2" } },
        { .world_size = 1, .variants = { "avx512" } },
        { .world_size = 2, .transport = "tcp", .algorithm = "ring" },
        { .world_size = 2, .transport = "shm", .variants = { "plain", NULL }, .is_wire_raw = true },
        { .world_size = 2, .variants = { "avx2", "avx512" } },
        { .world_size = 3, .transport = "shm", .algorithm = "direct", .placement = GMT_PLACE_RANDOM },
        { .world_size = 4, .transport = "tcp", .algorithm = "halving", .n_threads = 2 },
        { .world_size = 5, .transport = "tcp", .algorithm = "tree", .variants = { "avx2", "plain" } },
        { .world_size = 7, .transport = "shm", .algorithm = "ring", .placement = GMT_PLACE_RANDOM,
          .is_wire_raw = true },
        { .world_size = 8, .transport = "tcp", .placement = GMT_PLACE_RANDOM, .accumulate = 2 },
    };
    struct outcome first = { .n_reports = 0 };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct setting setting = settings[i];
        bool           runs_here = true;
        const char    *chosen = gmt_bits_variant();
        for (int k = 0; k < 2; k++)
            if (setting.variants[k] != NULL) runs_here = runs_here && gmt_bits_use(setting.variants[k]);
        assert_true(gmt_bits_use(chosen));
        if (!runs_here) continue; /* no such instructions on this processor */
        if (setting.accumulate == 0) setting.accumulate = 1;
        run_and_compare(state, &setting, &first);
    }
}

/* ---- what may not become an update ------------------------------------------------------------- */

/* A rank whose placement is not the others': some shards are computed twice, others by nobody. */
static void disagree(struct rank_self *self)
{
    struct gmt_recipe      recipe = small_recipe();
    struct gmt_trainer     trainer;
    struct gmt_step_report report;
    char                   before[GMT_HASH_HEX_BYTES], after[GMT_HASH_HEX_BYTES];
    gm_error               error;
    gmi_error_clear(&error);
    rank_create(self);
    struct gmt_trainer_options options = { .comm = self->comm,
                                           .data = &data,
                                           .placement = self->rank == 1 ? GMT_PLACE_RANDOM
                                                                        : GMT_PLACE_BLOCKS };
    rank_ok(self, gmt_trainer_init(&trainer, &recipe, &options, &error));
    rank_ok(self, gmt_state_hash(&trainer.state, before, &error));
    rank_record(self, gmt_trainer_step(&trainer, &report, &error));
    self->record->error = error;
    rank_ok(self, gmt_state_hash(&trainer.state, after, &error));
    rank_check(self, strcmp(before, after) == 0);
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
}

static void a_shard_that_is_counted_twice_or_not_at_all_is_an_error_on_every_rank(void **state)
{
    struct ranks_job     job = { .n_ranks = 3, .body = disagree };
    struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(shared->records[r].status, GM_ERR_MISMATCH);
        assert_non_null(strstr(shared->records[r].error.text, "shard "));
    }
}

/* A sample that makes the loss not finite: of shard 3, whoever computes that. */
static void train_on_poison(struct rank_self *self)
{
    struct gmt_recipe      recipe = small_recipe();
    struct gmt_trainer     trainer;
    struct gmt_step_report report;
    gm_error               error;
    gmi_error_clear(&error);
    rank_create(self);
    struct gmt_trainer_options options = { .comm = self->comm, .data = &data };
    rank_ok(self, gmt_trainer_init(&trainer, &recipe, &options, &error));
    /* The bias of one hidden unit, on the rank that computes shard 3 and there alone. */
    if (gmt_shard_owner(GMT_PLACE_BLOCKS, 0, 0, SHARDS, self->world_size, 3) == self->rank)
        trainer.mlp.params.weights[784 * 20] = NAN;
    rank_record(self, gmt_trainer_step(&trainer, &report, &error));
    self->record->error = error;
    self->record->numbers[0] = trainer.optimizer.n_steps;
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
}

static void what_is_not_finite_stops_all_ranks_and_its_shard_is_named(void **state)
{
    struct ranks_job     job = { .n_ranks = 6, .body = train_on_poison };
    struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
    for (int r = 0; r < 6; r++) {
        assert_int_equal(shared->records[r].status, GM_ERR_STATE);
        assert_int_equal(shared->records[r].error.culprit, 3);
        assert_int_equal(shared->records[r].numbers[0], 0);
        assert_string_equal(shared->records[r].error.text, shared->records[0].error.text);
        assert_non_null(strstr(shared->records[r].error.text,
                               "step 1: the loss of shard 3 (samples 17 to 21 of the batch) is not finite"));
    }
}

static void refuse_lean(struct rank_self *self)
{
    struct gmt_recipe  recipe = small_recipe();
    struct gmt_trainer trainer;
    gm_error           error;
    gmi_error_clear(&error);
    self->options.wire = "bf16";
    rank_create(self);
    struct gmt_trainer_options options = { .comm = self->comm, .data = &data };
    self->record->status = gmt_trainer_init(&trainer, &recipe, &options, &error);
    self->record->error = error;
    rank_destroy(self);
}

static void sums_that_would_be_rounded_on_their_way_are_refused(void **state)
{
    struct ranks_job     job = { .n_ranks = 2, .body = refuse_lean };
    struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(shared->records[r].status, GM_ERR_ARG);
        assert_non_null(strstr(shared->records[r].error.text, "wire format bf16"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_setting_ends_with_the_same_bits, ranks_teardown),
        cmocka_unit_test_teardown(a_shard_that_is_counted_twice_or_not_at_all_is_an_error_on_every_rank,
                                  ranks_teardown),
        cmocka_unit_test_teardown(what_is_not_finite_stops_all_ranks_and_its_shard_is_named,
                                  ranks_teardown),
        cmocka_unit_test_teardown(sums_that_would_be_rounded_on_their_way_are_refused, ranks_teardown),
    };
    return cmocka_run_group_tests_name("reproducible", tests, load_data, free_data);
}
