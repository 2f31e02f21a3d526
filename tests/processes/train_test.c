/* Training by several processes: equal bits everywhere, close to one process, and no silence or
 * confusion when a disk is slow or a number is not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "train/compare.h"
#include "train/ops.h"
#include "train/trainer.h"

/* ---- a disk as slow as a test wants ---- */

static int slow_sync_ms; /* set in a rank's own process, before it trains */

/* In the place of the C library's. */
int fsync(int fd)
{
    struct timespec left = { slow_sync_ms / 1000, slow_sync_ms % 1000 * 1000000L };
    while (nanosleep(&left, &left) != 0) {}
    return (int)syscall(SYS_fsync, fd);
}

/* ---- the job ---- */

static struct gmt_data data;

static int load_data(void **state)
{
    (void)state;
    gmt_set_blas_threads(1);
    return gmt_data_load(&data, "synthetic:203,101", GMT_DATA_SEED, GMT_DATA_BOTH, NULL) == GM_OK
               ? 0
               : -1;
}

static int free_data(void **state)
{
    (void)state;
    gmt_data_free(&data);
    return 0;
}

/* 203 samples in batches of 32: seven to the epoch, the last of 11. */
static struct gmt_recipe small_recipe(uint64_t steps)
{
    struct gmt_recipe recipe = { .learning_rate = 0.05,
                                 .schedule = GMT_COSINE,
                                 .schedule_steps = 40,
                                 .total_steps = steps,
                                 .batch = 32,
                                 .accumulate = 2,
                                 .bucket_bytes = 10000,
                                 .seed = 11,
                                 .train_samples = data.train.n_samples };
    if (gmt_layers_parse(&recipe.layers, "784,16,10", NULL) != GM_OK) abort();
    gmt_optimizer_options_default(&recipe.optimizer, GMT_MOMENTUM);
    return recipe;
}

/* What a test wants of its ranks, and where they save. */
struct job {
    char dir_path[64];
    int  save_every, slow_sync_ms, save_limit_ms;
    bool has_nan_on_rank_1;
    const char *wire;
};

static void make_dir(struct job *job)
{
    strcpy(job->dir_path, "/tmp/gradmesh_train_XXXXXX");
    assert_non_null(mkdtemp(job->dir_path));
}

static void remove_dir(struct job *job)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", job->dir_path);
    assert_int_equal(system(command), 0);
}

/* A rank trains, and records how it ended; numbers: identical, test samples and correct ones,
 * steps. */
static void train(struct rank_self *self)
{
    const struct job         *job = self->user;
    struct gmt_recipe         recipe = small_recipe(17);
    struct gmt_checkpoint_dir dir = { .fd = -1 };
    struct gmt_trainer        trainer;
    struct gmt_end            end;
    gm_error                  error;
    gmi_error_clear(&error);
    self->options.wire = job->wire;
    rank_create(self);
    slow_sync_ms = job->slow_sync_ms;
    if (job->save_every > 0 && self->rank == 0)
        rank_ok(self, gmt_checkpoint_dir_open(&dir, job->dir_path, 3, &error));
    struct gmt_trainer_options options = { .comm = self->comm,
                                           .data = &data,
                                           .report_every = 3,
                                           .save_every = (uint64_t)job->save_every,
                                           .is_saving = job->save_every > 0,
                                           .dir = dir.path == NULL ? NULL : &dir,
                                           .save_limit_ms = job->save_limit_ms };
    rank_ok(self, gmt_trainer_init(&trainer, &recipe, &options, &error));
    if (job->has_nan_on_rank_1 && self->rank == 1)
        trainer.mlp.params.weights[784 * 16] = NAN; /* a bias */
    gm_status status = gmt_trainer_run(&trainer, &end, &error);
    rank_record(self, status);
    self->record->error = error;
    if (status == GM_OK) {
        self->record->numbers[0] = end.are_identical;
        self->record->numbers[1] = end.test.n_samples;
        self->record->numbers[2] = end.test.n_correct;
        self->record->numbers[3] = end.steps;
        for (int r = 0; r < self->world_size; r++)
            rank_check(self, end.accounts[r].payload_sent_bytes == end.accounts[r].formula_bytes);
    }
    bool is_save_stuck = trainer.is_save_stuck;
    gmt_trainer_fini(&trainer);
    rank_destroy(self);
    if (is_save_stuck) _exit(0); /* without a leak check: the thread still holds memory */
    gmt_checkpoint_dir_close(&dir);
}

/* ---- tests ---- */

/* Equal parameters and exact byte counts are checked by each rank. */
static void every_wire_format_trains(void **state)
{
    static const char *const formats[] = { "f32", "bf16", "f16", "int8" };
    uint64_t                 n_plain = 0;
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct job           job = { .wire = formats[f] };
        struct ranks_job     ranks = { .n_ranks = 1 + (int)f, .body = train, .user = &job };
        struct ranks_shared *shared = ranks_shared(ranks_run(state, &ranks));
        for (int r = 0; r < ranks.n_ranks; r++) {
            assert_int_equal(shared->records[r].status, GM_OK);
            assert_int_equal(shared->records[r].numbers[0], 1);
            assert_int_equal(shared->records[r].numbers[2], shared->records[0].numbers[2]);
        }
        uint64_t n_correct = shared->records[0].numbers[2];
        if (f == 0) n_plain = n_correct;
        assert_true(n_correct + 5 > n_plain && n_plain + 5 > n_correct); /* of 101 */
    }
}

/* A NaN of one rank is in the sum of all, whatever the format does to its neighbours. */
static void a_nan_stops_all_ranks_in_every_wire_format(void **state)
{
    static const char *const formats[] = { "bf16", "f16", "int8" };
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct job           job = { .wire = formats[f], .has_nan_on_rank_1 = true };
        struct ranks_job     ranks = { .n_ranks = 3, .body = train, .user = &job };
        struct ranks_shared *shared = ranks_shared(ranks_run(state, &ranks));
        for (int r = 0; r < 3; r++) {
            assert_int_equal(shared->records[r].status, GM_ERR_STATE);
            assert_int_equal(shared->records[r].error.culprit, 1);
            assert_string_equal(shared->records[r].error.text, shared->records[0].error.text);
        }
    }
}

/* Rank 0 does the steps again alone, and compares. */
static void train_and_compare(struct rank_self *self)
{
    struct gmt_recipe      recipe = small_recipe(17);
    struct gmt_trainer     trainer, alone;
    struct gmt_step_report report;
    struct gmt_end         end;
    gm_error               error;
    gmi_error_clear(&error);
    rank_create(self);
    struct gmt_trainer_options options = { .comm = self->comm, .data = &data };
    rank_ok(self, gmt_trainer_init(&trainer, &recipe, &options, &error));
    rank_ok(self, gmt_trainer_init_alone(&alone, &trainer, &error));
    rank_ok(self, gmt_trainer_run(&trainer, &end, &error));
    rank_check(self, end.are_identical);
    rank_check(self, end.world_size == self->world_size);
    for (int i = 0; i < 17; i++) rank_ok(self, gmt_trainer_step(&alone, &report, &error));
    struct gmt_difference difference = gmt_compare(
        trainer.mlp.params.weights, alone.mlp.params.weights, alone.mlp.params.n_elems);
    rank_check(self, difference.n_elems == 12730);
    rank_check(self, difference.max_abs_diff < 1e-6);
    rank_check(self, difference.n_equal > 0);
    self->record->numbers[0] = end.test.n_correct;
    self->record->numbers[1] = end.test.n_samples;
    gmt_trainer_fini(&trainer);
    gmt_trainer_fini(&alone);
    rank_destroy(self);
}

static void workers_hold_equal_bits_close_to_those_of_one_process(void **state)
{
    static const int world_sizes[] = { 1, 2, 3, 5 };
    for (size_t i = 0; i < sizeof world_sizes / sizeof world_sizes[0]; i++) {
        struct ranks_job job = { .n_ranks = world_sizes[i], .body = train_and_compare };
        struct ranks    *ranks = ranks_run(state, &job);
        for (int r = 0; r < job.n_ranks; r++) {
            assert_int_equal(ranks_shared(ranks)->records[r].numbers[1], 101);
            assert_int_equal(ranks_shared(ranks)->records[r].numbers[0],
                             ranks_shared(ranks)->records[0].numbers[0]);
        }
        ranks_teardown(state);
    }
}

static void a_slow_disk_is_no_stall(void **state)
{
    struct job       job = { .save_every = 8, .slow_sync_ms = 900 };
    struct ranks_job ranks_job = {
        .n_ranks = 3, .body = train, .user = &job, .stall_limit_ms = 700
    };
    make_dir(&job);
    struct ranks *ranks = ranks_run(state, &ranks_job);
    for (int r = 0; r < 3; r++) {
        struct rank_record *record = &ranks_shared(ranks)->records[r];
        if (record->status != GM_OK) fail_msg("rank %d: %s", r, record->error.text);
        assert_int_equal(record->numbers[0], 1);
        assert_int_equal(record->numbers[3], 17);
    }
    uint64_t step;
    assert_true(gmt_checkpoint_dir_last(job.dir_path, &step));
    assert_int_equal(step, 17);
    remove_dir(&job);
}

static void a_disk_that_does_not_answer_ends_the_run_at_its_limit(void **state)
{
    struct job       job = { .save_every = 8, .slow_sync_ms = 60000, .save_limit_ms = 300 };
    struct ranks_job ranks_job = { .n_ranks = 3, .body = train, .user = &job };
    make_dir(&job);
    struct ranks        *ranks = ranks_run(state, &ranks_job);
    struct rank_record *records = ranks_shared(ranks)->records;
    assert_int_equal(records[0].status, GM_ERR_TIMEOUT);
    assert_non_null(strstr(records[0].error.text, job.dir_path));
    for (int r = 1; r < 3; r++) {
        assert_int_equal(records[r].status, GM_ERR_ABORTED);
        assert_int_equal(records[r].error.culprit, 0);
        assert_non_null(strstr(records[r].error.text, "checkpoint of step 8"));
    }
    remove_dir(&job);
}

static void a_save_that_fails_stops_all_ranks_at_its_step(void **state)
{
    struct job       job = { .save_every = 8 };
    struct ranks_job ranks_job = { .n_ranks = 3, .body = train, .user = &job };
    char             command[128];
    make_dir(&job);
    snprintf(command, sizeof command, "mkdir -p %s/step-000000008.safetensors/x", job.dir_path);
    assert_int_equal(system(command), 0);
    struct ranks        *ranks = ranks_run(state, &ranks_job);
    struct rank_record *records = ranks_shared(ranks)->records;
    assert_int_equal(records[0].status, GM_ERR_SYSTEM);
    assert_non_null(strstr(records[0].error.text, "step-000000008"));
    for (int r = 1; r < 3; r++) {
        assert_int_equal(records[r].status, GM_ERR_ABORTED);
        assert_int_equal(records[r].error.culprit, 0);
    }
    remove_dir(&job);
}

static void what_is_not_finite_on_one_rank_stops_all_and_is_named_by_all(void **state)
{
    struct job       job = { .has_nan_on_rank_1 = true };
    struct ranks_job ranks_job = { .n_ranks = 4, .body = train, .user = &job };
    struct ranks        *ranks = ranks_run(state, &ranks_job);
    struct rank_record *records = ranks_shared(ranks)->records;
    for (int r = 0; r < 4; r++) {
        assert_int_equal(records[r].status, GM_ERR_STATE);
        assert_int_equal(records[r].error.culprit, 1);
        assert_string_equal(records[r].error.text, records[0].error.text);
        assert_non_null(strstr(records[r].error.text, "step 1: the loss of rank 1 is not finite"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(workers_hold_equal_bits_close_to_those_of_one_process,
                                  ranks_teardown),
        cmocka_unit_test_teardown(every_wire_format_trains, ranks_teardown),
        cmocka_unit_test_teardown(a_nan_stops_all_ranks_in_every_wire_format, ranks_teardown),
        cmocka_unit_test_teardown(a_slow_disk_is_no_stall, ranks_teardown),
        cmocka_unit_test_teardown(a_disk_that_does_not_answer_ends_the_run_at_its_limit,
                                  ranks_teardown),
        cmocka_unit_test_teardown(a_save_that_fails_stops_all_ranks_at_its_step, ranks_teardown),
        cmocka_unit_test_teardown(what_is_not_finite_on_one_rank_stops_all_and_is_named_by_all,
                                  ranks_teardown),
    };
    return cmocka_run_group_tests_name("train", tests, load_data, free_data);
}
