/* Gradients that are exchanged while the backward pass goes on: the same bits as without, an
 * account of time that adds up, one decision on all ranks, and failures in the middle of it. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "tests/support/ranks.h"
#include "train/bucket.h"
#include "train/compare.h"
#include "train/ops.h"
#include "train/trainer.h"

enum { STEPS = 5, VICTIM = 1, BOUND_MS = 1000 };

static struct gmt_data data;

static int load_data(void **state)
{
    (void)state;
    gmt_set_blas_threads(1);
    return gmt_data_load(&data, "synthetic:150,10", GMT_DATA_SEED, GMT_DATA_BOTH, NULL) == GM_OK ? 0
                                                                                                 : -1;
}

static int free_data(void **state)
{
    (void)state;
    gmt_data_free(&data);
    return 0;
}

/* A network with large layers, so that there are blocks; the fifth batch is short, and smaller
 * than a world of four with three micro-batches would like. */
static struct gmt_recipe recipe_of(size_t bucket_bytes, size_t accumulate)
{
    struct gmt_recipe recipe = { .learning_rate = 0.05,
                                 .schedule = GMT_CONSTANT,
                                 .schedule_steps = STEPS,
                                 .total_steps = STEPS,
                                 .batch = 36,
                                 .accumulate = accumulate,
                                 .bucket_bytes = bucket_bytes,
                                 .seed = 11,
                                 .train_samples = data.train.n_samples };
    if (gmt_layers_parse(&recipe.layers, "784,192,128,10", NULL) != GM_OK) abort();
    gmt_optimizer_options_default(&recipe.optimizer, GMT_MOMENTUM);
    return recipe;
}

static void make_trainer(struct rank_self *self, struct gmt_trainer *trainer,
                         const struct gmt_recipe *recipe, enum gmt_overlap overlap, bool has_room)
{
    struct gmt_trainer_options options = {
        .comm = self->comm, .data = &data, .overlap = overlap, .has_room = has_room
    };
    gm_error error;
    gmi_error_clear(&error);
    if (gmt_trainer_init(trainer, recipe, &options, &error) != GM_OK)
        rank_fail(self, __FILE__, __LINE__, "%s", error.text);
}

/* ---- bits and times ---- */

/* Trains, checks the account of every step, and copies the weights. */
static void train(struct rank_self *self, const struct gmt_recipe *recipe, enum gmt_overlap overlap,
                  float *weights)
{
    struct gmt_trainer     trainer;
    struct gmt_step_report report;
    gm_error               error;
    gm_traffic             before, after;
    gmi_error_clear(&error);
    make_trainer(self, &trainer, recipe, overlap, false);
    rank_check(self, trainer.is_overlapping == (overlap == GMT_OVERLAP_ON && self->world_size > 1));
    for (int s = 0; s < STEPS; s++) {
        rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &before));
        rank_ok(self, gmt_trainer_step(&trainer, &report, &error));
        rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &after));
        /* What this thread did is all its time; and what it saw of the collectives, with what it
         * did not, is how long they ran, unless calls took longer than what they did. */
        int64_t running_ns = after.elapsed_ns - before.elapsed_ns;
        int64_t library_ns = report.comm_exposed_ns + report.wait_ns;
        rank_check(self, report.comm_hidden_ns >= 0 && report.wait_ns >= 0);
        rank_check(self, report.compute_ns + report.gather_ns + library_ns == report.elapsed_ns);
        if (running_ns > library_ns)
            rank_check(self, library_ns + report.comm_hidden_ns == running_ns);
        else rank_check(self, report.comm_hidden_ns == 0);
    }
    rank_check(self, trainer.formula_bytes ==
                         after.payload_sent_bytes - self->record->numbers[1]);
    self->record->numbers[1] = after.payload_sent_bytes; /* each trainer counts its own */
    memcpy(weights, trainer.mlp.params.weights, trainer.mlp.params.n_elems * sizeof *weights);
    gmt_trainer_fini(&trainer);
}

static void train_with_and_without(struct rank_self *self)
{
    static const size_t bucket_bytes[] = { 0, 1000, 30000, 200000, 1 << 20 };
    struct gmt_recipe   recipe = recipe_of(0, 1);
    struct gmt_trainer  shape, alone;
    rank_create(self);
    make_trainer(self, &shape, &recipe, GMT_OVERLAP_OFF, false);
    gm_traffic traffic;
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &traffic));
    rank_check(self, shape.formula_bytes == traffic.payload_sent_bytes);
    self->record->numbers[1] = traffic.payload_sent_bytes;
    size_t n_elems = shape.mlp.params.n_elems;
    float *with = calloc(n_elems, sizeof *with), *without = calloc(n_elems, sizeof *without);
    rank_ok(self, gmt_trainer_init_alone(&alone, &shape, NULL));
    struct gmt_step_report report;
    for (int s = 0; s < STEPS; s++) rank_ok(self, gmt_trainer_step(&alone, &report, NULL));
    for (size_t i = 0; i < sizeof bucket_bytes / sizeof *bucket_bytes; i++) {
        recipe = recipe_of(bucket_bytes[i], 1 + i % 3);
        train(self, &recipe, GMT_OVERLAP_OFF, without);
        train(self, &recipe, GMT_OVERLAP_ON, with);
        rank_check(self, memcmp(with, without, n_elems * sizeof *with) == 0);
        struct gmt_difference difference = gmt_compare(with, alone.mlp.params.weights, n_elems);
        rank_check(self, difference.max_abs_diff < 1e-6 && difference.n_equal > n_elems / 10);
    }
    gmt_trainer_fini(&alone);
    gmt_trainer_fini(&shape);
    free(with);
    free(without);
    rank_destroy(self);
}

static void overlap_changes_no_bits_and_its_times_add_up(void **state)
{
    for (int n = 1; n <= 4; n++) {
        struct ranks_job job = { .n_ranks = n, .body = train_with_and_without };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

/* ---- the decision ---- */

static void decide(struct rank_self *self)
{
    struct gmt_recipe  recipe = recipe_of(GMT_BUCKET_BYTES_AUTO, 1);
    struct gmt_trainer trainer;
    rank_create(self);
    make_trainer(self, &trainer, &recipe, GMT_OVERLAP_AUTO, true);
    rank_check(self, trainer.is_overlapping);
    rank_check(self, trainer.recipe.bucket_bytes == gmt_bucket_bytes_default(&trainer.mlp.params));
    gmt_trainer_fini(&trainer);
    make_trainer(self, &trainer, &recipe, GMT_OVERLAP_AUTO, self->rank != 2);
    rank_check(self, !trainer.is_overlapping);
    rank_check(self, trainer.recipe.bucket_bytes == 0);
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
}

static void all_ranks_overlap_or_none(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = decide };
    ranks_run(state, &job);
}

/* ---- failures ---- */

/* The victim takes part in the exchange of two buckets and is gone then: the others cannot be
 * further than in the third, and have started more. */
static void die_in_the_middle(struct rank_self *self, const struct gmt_params *params,
                              size_t bucket_bytes)
{
    size_t end = params->n_elems;
    for (int b = 0; b < 2; b++) {
        struct gmt_bucket bucket = gmt_bucket_before(params, bucket_bytes, end);
        float            *values = params->gradients + bucket.first_elem;
        rank_check(self, bucket.first_elem > 0);
        rank_ok(self,
                gm_all_reduce(self->comm, values, values, bucket.n_elems, GM_F32, GM_SUM));
        end = bucket.first_elem;
    }
    raise(SIGKILL);
}

static void lose_one(struct rank_self *self)
{
    struct gmt_recipe      recipe = recipe_of(40000, 2);
    struct gmt_trainer     trainer;
    struct gmt_step_report report;
    gm_error               error;
    gmi_error_clear(&error);
    rank_create(self);
    make_trainer(self, &trainer, &recipe, GMT_OVERLAP_ON, false);
    if (self->rank == VICTIM)
        die_in_the_middle(self, &trainer.mlp.params, trainer.recipe.bucket_bytes);
    int64_t start_ns = gmi_now_ns();
    rank_expect(self, GM_ERR_PEER_LOST, gmt_trainer_step(&trainer, &report, &error));
    rank_check(self, gmi_now_ns() - start_ns < BOUND_MS * ranks_slowness() * GMI_NS_PER_MS);
    rank_check(self, error.status == GM_ERR_PEER_LOST && error.culprit == VICTIM);
    rank_check(self, strstr(error.text, "rank 1") != NULL);
    /* Nothing is in flight any more, so the gradients may go before the communicator does. */
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
}

static void a_rank_that_dies_while_buckets_are_in_flight_is_named(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = lose_one };
    struct ranks    *r = ranks_start(state, &job);
    ranks_expect_signal(r, VICTIM, SIGKILL);
    ranks_finish(r);
}

/* What is not finite on one rank, with other buckets in flight already when it is met. */
static void meet_a_nan(struct rank_self *self)
{
    struct gmt_recipe      recipe = recipe_of(40000, 1);
    struct gmt_trainer     trainer;
    struct gmt_step_report report;
    gm_error               error;
    gmi_error_clear(&error);
    rank_create(self);
    make_trainer(self, &trainer, &recipe, GMT_OVERLAP_ON, false);
    rank_ok(self, gmt_trainer_step(&trainer, &report, &error));
    if (self->rank == VICTIM) trainer.mlp.params.weights[784 * 192] = NAN; /* a bias */
    float *before = malloc(trainer.mlp.params.n_elems * sizeof *before);
    memcpy(before, trainer.mlp.params.weights, trainer.mlp.params.n_elems * sizeof *before);
    rank_expect(self, GM_ERR_STATE, gmt_trainer_step(&trainer, &report, &error));
    rank_check(self, report.is_non_finite && report.culprit == VICTIM && error.culprit == VICTIM);
    rank_check(self, strstr(error.text, "step 2: the loss of rank 1 is not finite") != NULL);
    rank_check(self, memcmp(before, trainer.mlp.params.weights,
                            trainer.mlp.params.n_elems * sizeof *before) == 0);
    rank_ok(self, gm_barrier(self->comm)); /* which is as good as before */
    free(before);
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
}

static void what_is_not_finite_is_found_in_the_same_step_by_all(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = meet_a_nan };
    ranks_run(state, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(overlap_changes_no_bits_and_its_times_add_up, ranks_teardown),
        cmocka_unit_test_teardown(all_ranks_overlap_or_none, ranks_teardown),
        cmocka_unit_test_teardown(a_rank_that_dies_while_buckets_are_in_flight_is_named,
                                  ranks_teardown),
        cmocka_unit_test_teardown(what_is_not_finite_is_found_in_the_same_step_by_all,
                                  ranks_teardown),
    };
    return cmocka_run_group_tests_name("overlap", tests, load_data, free_data);
}
