/* The training loop in one process: what it reports, how it resumes, how it stops. (With several
 * processes: tests/processes/train_test.c.) */
#include "train/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "train/ops.h"
#include "train/trainlog.h"

enum { TRAIN_SAMPLES = 300, TEST_SAMPLES = 100 };

static struct gmt_data data;

static int load_data(void **state)
{
    (void)state;
    gmt_set_blas_threads(1); /* as in the program */
    return gmt_data_load(&data, "synthetic:300,100", GMT_DATA_SEED, GMT_DATA_BOTH, NULL) == GM_OK
               ? 0
               : -1;
}

static int free_data(void **state)
{
    (void)state;
    gmt_data_free(&data);
    return 0;
}

/* 300 samples in batches of 32: ten to the epoch, the last of 12. */
static struct gmt_recipe small_recipe(enum gmt_optimizer_kind kind, uint64_t steps)
{
    struct gmt_recipe recipe = { .learning_rate = kind == GMT_ADAMW ? 0.003 : 0.05,
                                 .schedule = GMT_COSINE,
                                 .warmup_steps = 3,
                                 .schedule_steps = 40,
                                 .total_steps = steps,
                                 .batch = 32,
                                 .accumulate = 1,
                                 .bucket_bytes = 4096,
                                 .seed = 11,
                                 .data = "synthetic:300,100",
                                 .train_samples = TRAIN_SAMPLES };
    assert_int_equal(gmt_layers_parse(&recipe.layers, "784,16,10", NULL), GM_OK);
    gmt_optimizer_options_default(&recipe.optimizer, kind);
    recipe.optimizer.weight_decay = 0.001;
    assert_int_equal(gmt_data_digest(&data.train, recipe.data_digest, NULL), GM_OK);
    return recipe;
}

/* Runs a recipe from the beginning or from a checkpoint, and gives the hash of the state at its
 * end. */
static gm_status run(const struct gmt_recipe *recipe, const struct gmt_trainer_options *options,
                     const struct gmt_checkpoint *from, struct gmt_end *end, gm_error *error)
{
    struct gmt_trainer trainer;
    gmi_error_clear(error);
    gm_status status = gmt_trainer_init(&trainer, recipe, options, error);
    if (status != GM_OK) return status;
    if (from != NULL) status = gmt_trainer_resume(&trainer, from, error);
    if (status == GM_OK) status = gmt_trainer_run(&trainer, end, error);
    end->accounts = NULL;
    gmt_trainer_fini(&trainer);
    return status;
}

static void assert_runs(const struct gmt_recipe *recipe, const struct gmt_trainer_options *options,
                        const struct gmt_checkpoint *from, struct gmt_end *end)
{
    gm_error error;
    if (run(recipe, options, from, end, &error) != GM_OK) fail_msg("%s", error.text);
}

struct scratch {
    char                      path[64];
    struct gmt_checkpoint_dir dir;
};

static void scratch_open(struct scratch *scratch)
{
    strcpy(scratch->path, "/tmp/gradmesh_trainer_XXXXXX");
    assert_non_null(mkdtemp(scratch->path));
    assert_int_equal(gmt_checkpoint_dir_open(&scratch->dir, scratch->path, 100, NULL), GM_OK);
}

static void scratch_close(struct scratch *scratch)
{
    char command[128];
    gmt_checkpoint_dir_close(&scratch->dir);
    snprintf(command, sizeof command, "rm -rf %s", scratch->path);
    assert_int_equal(system(command), 0);
}

static void open_step(struct scratch *scratch, unsigned step, struct gmt_checkpoint *checkpoint)
{
    char path[128];
    snprintf(path, sizeof path, "%s/step-%09u.safetensors", scratch->path, step);
    assert_int_equal(gmt_checkpoint_open(checkpoint, path, NULL), GM_OK);
}

/* ---- tests ---- */

static void training_learns(void **state)
{
    (void)state;
    struct gmt_recipe          recipe = small_recipe(GMT_MOMENTUM, 40);
    struct gmt_trainer_options options = { .data = &data };
    struct gmt_end             end;
    assert_runs(&recipe, &options, NULL, &end);
    assert_int_equal(end.steps, 40);
    assert_int_equal(end.world_size, 1);
    assert_true(end.are_identical);
    assert_int_equal(end.test.n_samples, TEST_SAMPLES);
    assert_true(end.test.accuracy > 0.5); /* a guess is 0.1 */
    assert_true(end.loss < 1.5);          /* a guess is 2.3 */
}

static void the_same_recipe_gives_the_same_bits(void **state)
{
    (void)state;
    struct gmt_recipe          recipe = small_recipe(GMT_ADAMW, 15);
    struct gmt_trainer_options options = { .data = &data };
    struct gmt_end             first, second;
    assert_runs(&recipe, &options, NULL, &first);
    assert_runs(&recipe, &options, NULL, &second);
    assert_string_equal(first.state_hash, second.state_hash);
    recipe.seed++;
    assert_runs(&recipe, &options, NULL, &second);
    assert_string_not_equal(first.state_hash, second.state_hash);
}

static void a_resumed_run_ends_with_the_bits_of_one_that_never_stopped(void **state)
{
    (void)state;
    /* In the middle of an epoch, at its end, just after, and at the last step. */
    static const unsigned stops[] = { 7, 10, 11, 23, 25 };
    for (int kind = 0; kind < GMT_OPTIMIZER_END; kind++) {
        struct gmt_trainer_options options = { .data = &data };
        struct gmt_recipe          recipe = small_recipe((enum gmt_optimizer_kind)kind, 25);
        struct gmt_end             whole, part;
        assert_runs(&recipe, &options, NULL, &whole);
        for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
            struct scratch        scratch;
            struct gmt_checkpoint checkpoint;
            scratch_open(&scratch);
            struct gmt_trainer_options saving = options;
            saving.is_saving = true;
            saving.dir = &scratch.dir;
            struct gmt_recipe first_part = recipe;
            first_part.total_steps = stops[i];
            assert_runs(&first_part, &saving, NULL, &part);
            open_step(&scratch, stops[i], &checkpoint);
            assert_string_equal(checkpoint.state_hash, part.state_hash);
            assert_runs(&recipe, &options, &checkpoint, &part);
            assert_string_equal(part.state_hash, whole.state_hash);
            assert_int_equal(part.first_step, stops[i]);
            assert_int_equal(part.test.n_correct, whole.test.n_correct);
            gmt_checkpoint_close(&checkpoint);
            scratch_close(&scratch);
        }
    }
}

static void a_recipe_comes_back_from_a_checkpoint(void **state)
{
    (void)state;
    struct scratch             scratch;
    struct gmt_checkpoint      checkpoint;
    struct gmt_end             end;
    struct gmt_recipe          recipe = small_recipe(GMT_ADAMW, 1), saved;
    scratch_open(&scratch);
    struct gmt_trainer_options options = { .data = &data, .is_saving = true, .dir = &scratch.dir };
    recipe.learning_rate = 0.1 + 0.2; /* has no short decimal */
    recipe.seed = UINT64_MAX;
    assert_runs(&recipe, &options, NULL, &end);
    open_step(&scratch, 1, &checkpoint);
    assert_int_equal(gmt_recipe_read(&saved, &checkpoint, NULL), GM_OK);
    assert_memory_equal(&saved.optimizer, &recipe.optimizer, sizeof saved.optimizer);
    assert_true(saved.learning_rate == recipe.learning_rate);
    assert_true(saved.seed == UINT64_MAX);
    assert_int_equal(saved.schedule, recipe.schedule);
    assert_int_equal(saved.schedule_steps, 40);
    assert_string_equal(saved.data_digest, recipe.data_digest);
    assert_int_equal(gmt_recipe_check_resume(&recipe, &saved, "F", NULL), GM_OK);

    gm_error error;
    gmi_error_clear(&error);
    recipe.batch = 64;
    assert_int_equal(gmt_recipe_check_resume(&recipe, &saved, "F", &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "batch 32"));
    assert_non_null(strstr(error.text, "64"));
    recipe.batch = 32;
    recipe.learning_rate = 1;
    assert_int_equal(gmt_recipe_check_resume(&recipe, &saved, "F", NULL), GM_OK);
    gmt_checkpoint_close(&checkpoint);
    scratch_close(&scratch);
}

static void a_checkpoint_of_another_batch_or_model_is_refused(void **state)
{
    (void)state;
    struct scratch        scratch;
    struct gmt_checkpoint checkpoint;
    struct gmt_end        end;
    gm_error              error;
    scratch_open(&scratch);
    struct gmt_trainer_options options = { .data = &data, .is_saving = true, .dir = &scratch.dir };
    struct gmt_recipe          recipe = small_recipe(GMT_MOMENTUM, 12);
    assert_runs(&recipe, &options, NULL, &end);
    open_step(&scratch, 12, &checkpoint);
    recipe.total_steps = 13;
    recipe.batch = 16;
    assert_int_equal(run(&recipe, &options, &checkpoint, &end, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "step 12"));
    recipe = small_recipe(GMT_SGD, 13);
    assert_int_equal(run(&recipe, &options, &checkpoint, &end, &error), GM_ERR_ARG);
    recipe = small_recipe(GMT_ADAMW, 13);
    assert_int_equal(run(&recipe, &options, &checkpoint, &end, &error), GM_ERR_ARG);
    recipe = small_recipe(GMT_MOMENTUM, 13);
    recipe.layers.sizes[1] = 17;
    assert_int_equal(run(&recipe, &options, &checkpoint, &end, &error), GM_ERR_ARG);
    gmt_checkpoint_close(&checkpoint);
    scratch_close(&scratch);
}

static void a_finished_run_only_evaluates(void **state)
{
    (void)state;
    struct scratch             scratch;
    struct gmt_checkpoint      checkpoint;
    struct gmt_end             first, again;
    scratch_open(&scratch);
    struct gmt_trainer_options options = { .data = &data, .is_saving = true, .dir = &scratch.dir };
    struct gmt_recipe          recipe = small_recipe(GMT_MOMENTUM, 5);
    assert_runs(&recipe, &options, NULL, &first);
    open_step(&scratch, 5, &checkpoint);
    assert_runs(&recipe, &options, &checkpoint, &again);
    assert_string_equal(first.state_hash, again.state_hash);
    assert_int_equal(first.test.n_correct, again.test.n_correct);
    assert_true(isnan(again.loss));
    gmt_checkpoint_close(&checkpoint);
    scratch_close(&scratch);
}

static void micro_batches_give_the_same_gradient(void **state)
{
    (void)state;
    struct gmt_trainer_options options = { .data = &data };
    struct gmt_recipe          recipe = small_recipe(GMT_SGD, 10);
    struct gmt_trainer         whole, parts;
    struct gmt_step_report     report;
    assert_int_equal(gmt_trainer_init(&whole, &recipe, &options, NULL), GM_OK);
    recipe.accumulate = 5; /* does not divide 32 */
    assert_int_equal(gmt_trainer_init(&parts, &recipe, &options, NULL), GM_OK);
    for (int i = 0; i < 10; i++) { /* the tenth batch is the short one */
        assert_int_equal(gmt_trainer_step(&whole, &report, NULL), GM_OK);
        assert_int_equal(gmt_trainer_step(&parts, &report, NULL), GM_OK);
    }
    assert_int_equal(report.loss.n_rows, 12);
    double worst = 0;
    for (size_t i = 0; i < whole.mlp.params.n_elems; i++)
        worst = fmax(
            worst, fabs((double)whole.mlp.params.weights[i] - (double)parts.mlp.params.weights[i]));
    assert_true(worst < 1e-6);
    gmt_trainer_fini(&whole);
    gmt_trainer_fini(&parts);
}

/* What the listener heard. */
struct heard {
    int      n_reports, n_epochs, n_saved, n_steps;
    uint64_t report_steps[16], epoch_steps[16], saved_steps[16];
    double   last_loss;
};

static void hear_report(void *user, const struct gmt_report *report)
{
    struct heard *heard = user;
    heard->report_steps[heard->n_reports++] = report->step;
    heard->last_loss = report->loss;
    assert_true(report->samples_per_s > 0);
    assert_true(report->split.compute_ns > 0);
}

static void hear_epoch(void *user, const struct gmt_epoch_report *report)
{
    struct heard *heard = user;
    heard->epoch_steps[heard->n_epochs++] = report->step;
    assert_int_equal(report->test.n_samples, TEST_SAMPLES);
}

static void hear_saved(void *user, uint64_t step, const char *dir_path)
{
    struct heard *heard = user;
    heard->saved_steps[heard->n_saved++] = step;
    assert_non_null(dir_path);
}

static void hear_step(void *user, uint64_t step, const struct gmt_step_report *share)
{
    struct heard *heard = user;
    assert_int_equal(step, ++heard->n_steps);
    assert_true(share->loss.n_rows == 32 || share->loss.n_rows == 12);
}

static void reports_epochs_and_saves_come_when_they_are_due(void **state)
{
    (void)state;
    struct scratch scratch;
    struct heard   heard = { 0 };
    struct gmt_end end;
    scratch_open(&scratch);
    struct gmt_trainer_options options = {
        .data = &data, .report_every = 4, .save_every = 6, .is_saving = true, .dir = &scratch.dir,
        .listener = { hear_report, hear_epoch, hear_saved, hear_step, &heard }
    };
    struct gmt_recipe recipe = small_recipe(GMT_MOMENTUM, 23);
    assert_runs(&recipe, &options, NULL, &end);
    static const uint64_t reports[] = { 4, 8, 10, 12, 16, 20, 23 };
    static const uint64_t epochs[] = { 10, 20, 23 };
    static const uint64_t saves[] = { 6, 12, 18, 23 };
    assert_int_equal(heard.n_reports, 7);
    assert_memory_equal(heard.report_steps, reports, sizeof reports);
    assert_int_equal(heard.n_epochs, 3);
    assert_memory_equal(heard.epoch_steps, epochs, sizeof epochs);
    assert_int_equal(heard.n_saved, 4);
    assert_memory_equal(heard.saved_steps, saves, sizeof saves);
    assert_int_equal(heard.n_steps, 23);
    assert_true(heard.last_loss == end.loss); /* the last epoch had one report only */
    scratch_close(&scratch);
}

static void a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint(void **state)
{
    (void)state;
    struct scratch        scratch;
    struct gmt_checkpoint checkpoint;
    struct gmt_end        end;
    gm_error              error;
    scratch_open(&scratch);
    struct gmt_trainer_options options = {
        .data = &data, .save_every = 1, .is_saving = true, .dir = &scratch.dir
    };
    struct gmt_recipe recipe = small_recipe(GMT_SGD, 40);
    recipe.learning_rate = 1e30;
    assert_int_equal(run(&recipe, &options, NULL, &end, &error), GM_ERR_STATE);
    assert_non_null(strstr(error.text, "not finite"));
    bool was_found;
    assert_int_equal(gmt_checkpoint_newest(&checkpoint, &was_found, scratch.path, NULL, NULL),
                     GM_OK);
    assert_true(was_found);
    char expected[32];
    snprintf(expected, sizeof expected, "step %llu:", (unsigned long long)checkpoint.step + 1);
    assert_non_null(strstr(error.text, expected));
    gmt_checkpoint_close(&checkpoint);
    scratch_close(&scratch);
}

static void a_save_that_fails_stops_with_its_reason(void **state)
{
    (void)state;
    struct scratch scratch;
    struct gmt_end end;
    gm_error       error;
    char           command[160];
    scratch_open(&scratch);
    struct gmt_trainer_options options = {
        .data = &data, .save_every = 3, .is_saving = true, .dir = &scratch.dir
    };
    struct gmt_recipe recipe = small_recipe(GMT_SGD, 9);
    snprintf(command, sizeof command, "mkdir -p %s/step-000000006.safetensors/x", scratch.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(run(&recipe, &options, NULL, &end, &error), GM_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "step-000000006"));
    struct gmt_checkpoint checkpoint;
    open_step(&scratch, 3, &checkpoint);
    gmt_checkpoint_close(&checkpoint);
    scratch_close(&scratch);
}

static void data_that_do_not_fit_the_network_are_refused(void **state)
{
    (void)state;
    struct gmt_trainer_options options = { .data = &data };
    struct gmt_recipe          recipe = small_recipe(GMT_SGD, 1);
    struct gmt_end             end;
    gm_error                   error;
    recipe.layers.sizes[0] = 100;
    assert_int_equal(run(&recipe, &options, NULL, &end, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "100 inputs"));
    recipe = small_recipe(GMT_SGD, 1);
    recipe.layers.sizes[2] = 9;
    assert_int_equal(run(&recipe, &options, NULL, &end, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "9 classes"));
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number '%s'", key);
    return item->valuedouble;
}

static void the_log_has_one_object_a_line_and_the_end_record_its_fields(void **state)
{
    (void)state;
    struct scratch scratch;
    struct gmt_end end = { .world_size = 2, .steps = 7, .loss = NAN, .are_identical = true };
    struct gmt_rank_account accounts[2] = { { "aa", 10, 10, 3, 0, 13, true },
                                            { "aa", 11, 11, 3, 5, 0, false } };
    end.accounts = accounts;
    end.test = (struct gmt_evaluation){ 100, 97, 0.97, 0.1 };
    strcpy(end.state_hash, "aa");
    scratch_open(&scratch);
    char path[128];
    snprintf(path, sizeof path, "%s/log", scratch.path);
    struct gmt_trainlog log;
    struct gmt_trainer  trainer = { .recipe = small_recipe(GMT_SGD, 7), .world_size = 2,
                                    .is_overlapping = true };
    struct gmt_report   step = { .step = 4, .loss = 0.5,
                                 .split = { .comm_exposed_ns = 2500000, .comm_hidden_ns = 1000000,
                                            .wait_ns = 500000 } };
    struct gmt_epoch_report epoch = { .step = 7, .test = end.test };
    for (int is_resuming = 0; is_resuming < 2; is_resuming++) {
        assert_int_equal(gmt_trainlog_open(&log, path, is_resuming, NULL), GM_OK);
        assert_int_equal(gmt_trainlog_write(&log, gmt_log_start(&trainer, 1, 100), NULL), GM_OK);
        assert_int_equal(gmt_trainlog_write(&log, gmt_log_step(&step), NULL), GM_OK);
        assert_int_equal(gmt_trainlog_write(&log, gmt_log_epoch(&epoch), NULL), GM_OK);
        assert_int_equal(gmt_trainlog_write(&log, gmt_log_end(&end), NULL), GM_OK);
        gmt_trainlog_close(&log);
    }
    static const char *const events[] = { "start", "step", "epoch", "end" };
    FILE *file = fopen(path, "r");
    char  line[8192];
    int   n_lines = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        const char *event = cJSON_GetObjectItem(object, "event")->valuestring;
        assert_string_equal(event, events[n_lines++ % 4]);
        if (strcmp(event, "start") == 0)
            assert_true(cJSON_IsTrue(cJSON_GetObjectItem(object, "overlap")));
        if (strcmp(event, "step") == 0) {
            assert_true(number_of(object, "comm_exposed_ms") == 2.5);
            assert_true(number_of(object, "comm_hidden_ms") == 1);
            assert_true(number_of(object, "wait_ms") == 0.5);
        }
        if (strcmp(event, "end") == 0) {
            assert_true(number_of(object, "world_size") == 2);
            assert_true(number_of(object, "steps") == 7);
            assert_true(number_of(object, "test_accuracy") == 0.97);
            assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "loss")));
            assert_string_equal(cJSON_GetObjectItem(object, "state_hash")->valuestring, "aa");
            cJSON *sent = cJSON_GetObjectItem(object, "payload_bytes_sent");
            assert_int_equal(cJSON_GetArraySize(sent), 2);
            assert_true(cJSON_GetArrayItem(sent, 1)->valuedouble == 11);
        }
        cJSON_Delete(object);
    }
    assert_int_equal(n_lines, 8);
    fclose(file);
    scratch_close(&scratch);
}

static void a_log_that_cannot_be_written_is_said_once(void **state)
{
    (void)state;
    struct gmt_trainlog log;
    gm_error            error;
    gmi_error_clear(&error);
    assert_int_equal(gmt_trainlog_open(&log, "/nowhere/log", false, &error), GM_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "/nowhere/log"));
    assert_int_equal(gmt_trainlog_write(&log, cJSON_CreateObject(), NULL), GM_OK);
    if (access("/dev/full", W_OK) != 0) return;
    assert_int_equal(gmt_trainlog_open(&log, "/dev/full", true, NULL), GM_OK);
    assert_int_equal(gmt_trainlog_write(&log, cJSON_CreateObject(), NULL), GM_ERR_SYSTEM);
    assert_int_equal(gmt_trainlog_write(&log, cJSON_CreateObject(), NULL), GM_OK);
    gmt_trainlog_close(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_learns),
        cmocka_unit_test(the_same_recipe_gives_the_same_bits),
        cmocka_unit_test(a_resumed_run_ends_with_the_bits_of_one_that_never_stopped),
        cmocka_unit_test(a_recipe_comes_back_from_a_checkpoint),
        cmocka_unit_test(a_checkpoint_of_another_batch_or_model_is_refused),
        cmocka_unit_test(a_finished_run_only_evaluates),
        cmocka_unit_test(micro_batches_give_the_same_gradient),
        cmocka_unit_test(reports_epochs_and_saves_come_when_they_are_due),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint),
        cmocka_unit_test(a_save_that_fails_stops_with_its_reason),
        cmocka_unit_test(data_that_do_not_fit_the_network_are_refused),
        cmocka_unit_test(the_log_has_one_object_a_line_and_the_end_record_its_fields),
        cmocka_unit_test(a_log_that_cannot_be_written_is_said_once),
    };
    return cmocka_run_group_tests_name("trainer", tests, load_data, free_data);
}
