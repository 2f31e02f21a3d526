/* cmd_train.c - `gradmesh train`: trains a network, as one process or as N.
 *
 *     gradmesh train -n 4 ...      checks everything that can be checked, then starts itself 4 times
 *         gradmesh train -n 4 ...  as a worker: joins the others and trains; rank 0 speaks
 *
 * Under `gradmesh run`, or started by hand with RANK and WORLD_SIZE, it is a worker at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/trace_write.h"
#include "cli/train_args.h"
#include "cli/train_live.h"
#include "cli/train_print.h"
#include "cli/worker.h"
#include "launch/launcher.h"
#include "train/bits.h"
#include "train/compare.h"
#include "train/ops.h"
#include "train/trainer.h"
#include "train/trainlog.h"

static const char summary[] =
    "Trains a multi-layer perceptron on labelled pictures, by one process or by N that share each batch:\n"
    "every worker computes the gradient of its part, an all-reduce averages them, and all make the same step.\n";

static const char notes[] =
    "With -n it starts the workers itself; under `gradmesh run`, or with RANK, WORLD_SIZE, MASTER_ADDR and\n"
    "MASTER_PORT set, it is one of them. --batch is what all workers compute together in one step, so the\n"
    "learning rate means the same for any number of workers.\n"
    "\n"
    "--steps ends a run early; the schedule of the learning rate is as long as --epochs say (or --steps, if\n"
    "that is longer). So a run that is stopped, by whatever, and resumed with the same options ends with the\n"
    "same bits as one that never stopped. (With --wire int8 if both save after the same steps: what rounding\n"
    "owes to later steps is not saved, and is dropped at each save.) --resume without a file takes the newest good checkpoint in\n"
    "--checkpoint DIR, and starts from the beginning when there is none.\n"
    "\n"
    "--reproducible makes the trained bits those of one process, with any number of workers: the batch is cut\n"
    "into --shards pieces, each computed by whichever worker in operations whose order is fixed, and their\n"
    "gradients are added exactly. Each line of the log and each checkpoint then says which bits they are:\n"
    "gradmesh verify compares them.\n"
    "\n"
    "exit status: 0 trained; 1 it could not be done, or the workers ended with different bits; 2 wrong usage;\n"
    "3 another worker failed.\n"
    "\n"
    "examples:\n"
    "  gradmesh train -n 4\n"
    "  gradmesh train -n 2 --layers 784,512,10 --optimizer adamw --checkpoint runs/a --log a.jsonl\n"
    "  gradmesh train -n 3 --layers 784,512,10 --optimizer adamw --checkpoint runs/a --log a.jsonl --resume\n";

/* ---- one worker ------------------------------------------------------------------------------ */

/* What a worker holds; all-zero holds nothing. */
struct worker {
    const struct cli_train_args *args;
    const struct cli_parsed *parsed;
    struct gmt_data          data;
    struct gmt_recipe        recipe;
    struct gmt_checkpoint    from; /* path NULL: from the beginning */
    struct gmt_checkpoint_dir dir;
    gm_comm                 *comm;
    int                      rank, world_size;
    struct cli_room          room;
    struct gmt_trainer       trainer;
    struct gmt_trainlog      log;
    struct cli_train_live    live;
    struct cli_train_printer printer;
    /* For --compare-steps, on rank 0: */
    struct gmt_trainer       alone;
    float                   *weights_then; /* of the distributed run after the steps that are compared */
    uint64_t                 compare_steps;
    gm_error                 error;
};

static void worker_fini(struct worker *worker)
{
    gmt_trainer_fini(&worker->alone);
    gmt_trainer_fini(&worker->trainer);
    gm_comm_destroy(worker->comm);
    gmt_checkpoint_dir_close(&worker->dir);
    gmt_checkpoint_close(&worker->from);
    gmt_trainlog_close(&worker->log);
    cli_train_live_close(&worker->live);
    gmt_data_free(&worker->data);
    gmi_free(worker->weights_then);
}

static int worker_failed(struct worker *worker)
{
    return cli_failed("train", worker->rank, worker->world_size, &worker->error);
}

static void say_warning(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "gradmesh train: warning: %s; the one before it is tried\n", sentence);
}

static gm_status accept_checkpoint(void *user, const struct gmt_checkpoint *checkpoint,
                                   gm_error *error)
{
    const struct worker *worker = user;
    struct gmt_recipe    saved;
    gm_status            status = gmt_recipe_read(&saved, checkpoint, error);
    if (status != GM_OK) return status;
    return gmt_recipe_check_resume(&worker->recipe, &saved, checkpoint->path, error);
}

/* Finds what --resume names and checks that it fits the options. With is_speaking the damaged
 * ones that are passed over are named. */
static gm_status find_checkpoint(struct worker *worker, bool is_speaking)
{
    const struct cli_train_args *args = worker->args;
    if (!args->has_resume) return GM_OK;
    if (args->resume_file != NULL) {
        gm_status status = gmt_checkpoint_open(&worker->from, args->resume_file, &worker->error);
        return status == GM_OK ? accept_checkpoint(worker, &worker->from, &worker->error) : status;
    }
    struct gmt_checkpoint_filter filter = { accept_checkpoint, is_speaking ? say_warning : NULL,
                                            worker };
    bool                         was_found;
    return gmt_checkpoint_newest(&worker->from, &was_found, args->checkpoint_dir, &filter,
                                 &worker->error);
}

/* A run from the beginning must not mix its checkpoints with those of an earlier one. */
static gm_status check_directory(struct worker *worker)
{
    const struct cli_train_args *args = worker->args;
    uint64_t                 step;
    if (args->checkpoint_dir == NULL || args->has_resume) return GM_OK;
    if (!gmt_checkpoint_dir_last(args->checkpoint_dir, &step)) return GM_OK;
    return gmi_error_set(&worker->error, GM_ERR_STATE,
                         "%s holds checkpoints of an earlier run, up to step %llu: give --resume to go on "
                         "with that, or another directory by --checkpoint",
                         args->checkpoint_dir, (unsigned long long)step);
}

/* Whether rank 0 will be able to write what it is to write. */
static gm_status check_outputs(struct worker *worker)
{
    const struct cli_train_args  *args = worker->args;
    struct gmt_checkpoint_dir dir;
    struct gmt_trainlog       log;
    gm_status                 status = GM_OK;
    if (args->checkpoint_dir != NULL) {
        status =
            gmt_checkpoint_dir_open(&dir, args->checkpoint_dir, (int)args->keep, &worker->error);
        gmt_checkpoint_dir_close(&dir);
    }
    if (status == GM_OK && args->log_path != NULL) {
        status = gmt_trainlog_open(&log, args->log_path, true, &worker->error);
        gmt_trainlog_close(&log);
    }
    if (status == GM_OK && args->trace.path != NULL) status = cli_trace_check_path(args->trace.path, &worker->error);
    if (status == GM_OK && args->has_live) status = cli_live_check(&worker->error);
    return status;
}

/* The last bits of a sum over three ranks or more depend on the buckets: a run that goes on keeps
 * them, also where it would choose others now, unless they are asked for. */
static void keep_buckets(struct worker *worker)
{
    struct gmt_recipe saved;
    if (worker->from.path == NULL || worker->args->recipe.has_bucket_bytes) return;
    if (gmt_recipe_read(&saved, &worker->from, NULL) != GM_OK) return;
    worker->recipe.bucket_bytes = saved.bucket_bytes;
}

/* Everything before the workers meet: data, settings, the state to begin with. The launcher does
 * it too, so that a mistake is one sentence and not N. */
static gm_status prepare(struct worker *worker, bool is_launcher)
{
    const struct cli_train_args *args = worker->args;
    bool                     is_speaking = !is_launcher && worker->rank == 0;
    gm_status status = cli_load_data(&worker->data, &args->recipe, is_launcher, &worker->error);
    if (status == GM_OK)
        status = cli_make_recipe(&worker->recipe, &args->recipe, &worker->data, is_launcher,
                                 &worker->error);
    if (status == GM_OK && !(is_launcher && worker->data.train.n_samples == 0))
        status = find_checkpoint(worker, is_speaking);
    if (status == GM_OK) keep_buckets(worker);
    if (status == GM_OK && (is_launcher || worker->rank == 0)) status = check_directory(worker);
    if (status == GM_OK && is_launcher) status = check_outputs(worker);
    return status;
}

static gm_status join(struct worker *worker, const struct cli_join *place)
{
    const struct cli_train_args *args = worker->args;
    char                     report_every[24], save_every[24], from_step[24], trace_steps[24];
    bool                     is_saving = args->checkpoint_dir != NULL;
    char                     arithmetic[24] = "any";
    if (worker->recipe.shards > 0)
        snprintf(arithmetic, sizeof arithmetic, "%016llx", (unsigned long long)gmt_bits_selftest());
    snprintf(report_every, sizeof report_every, "%lld", (long long)args->report_every);
    snprintf(save_every, sizeof save_every, "%lld", is_saving ? (long long)args->save_every : -1LL);
    snprintf(trace_steps, sizeof trace_steps, "%lld", args->trace.path != NULL ? (long long)args->trace.n_steps : -1LL);
    snprintf(from_step, sizeof from_step, "%llu", (unsigned long long)worker->from.step);
    const char *extra[] = { "log_every", report_every, "checkpoint_every", save_every,
                            "resume_step", from_step, "resume_state",
                            worker->from.path == NULL ? "none" : worker->from.state_hash,
                            "overlap", cli_train_overlaps[args->overlap],
                            "shard_placement", cli_train_placements[args->placement],
                            "trace_steps", trace_steps,
                            "live", args->has_live ? "shown" : "no",
                            "arithmetic", arithmetic, NULL };
    char            text[8192];
    struct cli_join with = *place;
    gmt_recipe_fingerprint(&worker->recipe, extra, text, sizeof text);
    with.fingerprint = text;
    with.trace_events = args->trace.path != NULL ? CLI_TRAIN_TRACE_EVENTS : 0;
    gm_status status = cli_join(&worker->comm, &with, &worker->error);
    /* Workers that differ among themselves have been told so by now; all of them may be wrong. */
    if (status == GM_OK && worker->recipe.shards > 0) {
        status = gmt_bits_check(&worker->error);
        if (status != GM_OK) gm_comm_abort(worker->comm, worker->error.text);
    }
    return status;
}

/* ---- what rank 0 says while it trains ---- */

/* To the log and to the page, as far as there are any. Takes the record over. */
static void write_log(struct worker *worker, cJSON *record)
{
    gm_error error;
    gmi_error_clear(&error);
    cli_train_live_add(&worker->live, record);
    if (gmt_trainlog_write(&worker->log, record, &error) != GM_OK)
        fprintf(stderr, "gradmesh train: warning: %s\n", error.text);
}

static bool has_log(const struct worker *worker) { return worker->log.path != NULL || worker->live.page != NULL; }

static void on_report(void *user, const struct gmt_report *report)
{
    struct worker *worker = user;
    if (has_log(worker)) write_log(worker, gmt_log_step(report));
    cli_print_report(&worker->printer, report);
}

static void on_epoch(void *user, const struct gmt_epoch_report *report)
{
    struct worker *worker = user;
    if (has_log(worker)) write_log(worker, gmt_log_epoch(report));
    cli_print_epoch(&worker->printer, report);
}

static gm_status on_exchange(void *user, const struct gmt_report *report, gm_error *error)
{
    struct worker *worker = user;
    return cli_train_live_exchange(&worker->live, &worker->trainer, &worker->args->trace, report, error);
}

static void on_step(void *user, uint64_t step, const struct gmt_step_report *share)
{
    struct worker *worker = user;
    (void)share;
    if (worker->weights_then != NULL && step == worker->trainer.first_step + worker->compare_steps)
        memcpy(worker->weights_then, worker->trainer.mlp.params.weights,
               worker->trainer.mlp.params.n_elems * sizeof(float));
    cli_print_step(&worker->printer, step);
}

/* ---- the course of a worker ---- */

/* Keeps the state in which the run begins, for the comparison at its end. */
static gm_status prepare_comparison(struct worker *worker)
{
    uint64_t left = worker->trainer.step < worker->recipe.total_steps
                        ? worker->recipe.total_steps - worker->trainer.step
                        : 0;
    uint64_t wanted = (uint64_t)worker->args->compare_steps;
    worker->compare_steps = wanted < left ? wanted : left;
    if (worker->compare_steps == 0 || worker->rank != 0) return GM_OK;
    gm_status status = gmt_trainer_init_alone(&worker->alone, &worker->trainer, &worker->error);
    if (status != GM_OK) return status;
    worker->weights_then = gmi_alloc(worker->trainer.mlp.params.n_elems, sizeof(float));
    if (worker->weights_then != NULL) return GM_OK;
    return gmi_error_set(&worker->error, GM_ERR_NOMEM, "no memory for the comparison");
}

static gm_status open_outputs(struct worker *worker)
{
    const struct cli_train_args *args = worker->args;
    bool                     is_resuming = worker->from.path != NULL;
    gm_status                status = GM_OK;
    if (args->has_live)
        status = cli_train_live_open(&worker->live, worker->rank, worker->world_size, args->live_port,
                                     is_resuming ? args->log_path : NULL, &worker->error);
    if (status != GM_OK || worker->rank != 0) return status;
    if (args->checkpoint_dir != NULL)
        status = gmt_checkpoint_dir_open(&worker->dir, args->checkpoint_dir, (int)args->keep,
                                         &worker->error);
    if (status == GM_OK && args->log_path != NULL)
        status = gmt_trainlog_open(&worker->log, args->log_path, is_resuming, &worker->error);
    return status;
}

static gm_status make_trainer(struct worker *worker)
{
    const struct cli_train_args   *args = worker->args;
    struct gmt_trainer_options options = { .comm = worker->comm,
                                           .data = &worker->data,
                                           .report_every = (uint64_t)args->report_every,
                                           .save_every = (uint64_t)args->save_every,
                                           .is_saving = args->checkpoint_dir != NULL,
                                           .dir = worker->dir.path == NULL ? NULL : &worker->dir,
                                           .overlap = (enum gmt_overlap)args->overlap,
                                           .has_room = worker->room.is_enough,
                                           .n_threads = (int)args->n_threads,
                                           .placement = (enum gmt_placement)args->placement,
                                           .is_wire_raw = args->exact_wire == 1 };
    if (worker->rank == 0)
        options.listener = (struct gmt_listener){ .report = on_report, .epoch = on_epoch, .step = on_step };
    options.listener.exchange = args->has_live ? on_exchange : NULL;
    options.listener.user = worker;
    gm_status status =
        gmt_trainer_init(&worker->trainer, &worker->recipe, &options, &worker->error);
    if (status == GM_OK && worker->from.path != NULL)
        status = gmt_trainer_resume(&worker->trainer, &worker->from, &worker->error);
    if (status == GM_OK) status = prepare_comparison(worker);
    return status;
}

static void say_where_it_begins(struct worker *worker)
{
    struct gmt_recipe      saved;
    struct gmt_recipe_text now, then;
    if (worker->from.path == NULL) {
        if (worker->args->has_resume)
            fprintf(stderr,
                    "gradmesh train: note: %s holds no checkpoint yet, so this starts from the "
                    "beginning\n",
                    worker->args->checkpoint_dir);
        return;
    }
    if (gmt_recipe_read(&saved, &worker->from, NULL) != GM_OK) return;
    gmt_recipe_write(&worker->trainer.recipe, &now);
    gmt_recipe_write(&saved, &then);
    for (size_t i = 0; i < now.n_settings; i++) {
        const char *key = now.pairs[i].key;
        if (strcmp(key, "data") == 0 || strcmp(key, "steps") == 0) continue; /* a place; where it ends */
        if (strcmp(now.values[i], then.values[i]) != 0)
            fprintf(stderr, "gradmesh train: note: %s was %s in %s and is %s now\n", key,
                    then.values[i], worker->from.path, now.values[i]);
    }
    uint64_t last;
    if (worker->args->checkpoint_dir != NULL &&
        gmt_checkpoint_dir_last(worker->args->checkpoint_dir, &last) && last > worker->from.step)
        fprintf(stderr,
                "gradmesh train: note: %s also holds checkpoints after step %llu, up to step %llu; they stay "
                "until this run overwrites them\n",
                worker->args->checkpoint_dir, (unsigned long long)worker->from.step,
                (unsigned long long)last);
}

/* When and in what pieces, and with --overlap auto why. */
static void describe_exchange(const struct worker *worker, const char *way, const char *format,
                              char *text, size_t text_bytes)
{
    bool   is_overlapping = worker->trainer.is_overlapping;
    size_t bucket_bytes = worker->trainer.recipe.bucket_bytes;
    char   pieces[96] = "in one piece", reason[128] = "";
    if (bucket_bytes > 0)
        snprintf(pieces, sizeof pieces, "in pieces of up to %s bytes",
                 cli_grouped(bucket_bytes, (char[CLI_GROUPED_BYTES]){ 0 }));
    if (worker->args->overlap == GMT_OVERLAP_AUTO && is_overlapping != worker->room.is_enough)
        snprintf(reason, sizeof reason, " (some rank has no core to spare)");
    else if (worker->args->overlap == GMT_OVERLAP_AUTO)
        snprintf(reason, sizeof reason, " (%s)", worker->room.reason);
    snprintf(text, text_bytes, "%s%s%s, %s%s", way, format,
             is_overlapping ? "while the gradient is computed" : "after the gradient is computed",
             pieces, reason);
}

static void say_start(struct worker *worker)
{
    const struct cli_train_args *args = worker->args;
    const char              *wire = worker->trainer.recipe.wire;
    char                     way[64] = "", format[32] = "", exchange[400] = "";
    if (worker->rank != 0) return;
    worker->printer = (struct cli_train_printer){
        .file = cli_text(worker->parsed),
        .world_size = worker->world_size,
        .recipe = &worker->trainer.recipe,
        .n_batches = gmt_sampler_n_batches(&worker->trainer.sampler),
    };
    worker->printer.is_live = cli_is_live(fileno(worker->printer.file));
    if (args->algorithm != NULL || args->transport != NULL)
        snprintf(way, sizeof way, "by %.20s over %.20s, ",
                 args->algorithm != NULL ? args->algorithm : "auto",
                 args->transport != NULL ? args->transport : "auto");
    if (strcmp(wire, "f32") != 0) snprintf(format, sizeof format, "as %s, ", wire);
    if (worker->world_size > 1) describe_exchange(worker, way, format, exchange, sizeof exchange);
    say_where_it_begins(worker);
    cli_print_start(&worker->printer, &worker->data, exchange, (int)args->n_threads,
                    worker->trainer.first_step);
    if (has_log(worker))
        write_log(worker, gmt_log_start(&worker->trainer, (int)args->n_threads,
                                        worker->data.test.n_samples));
}

/* The steps that are compared, by one process; *difference is of the parameters after them. */
static gm_status compare_with_one(struct worker *worker, struct gmt_difference *difference)
{
    struct gmt_step_report report;
    for (uint64_t i = 0; i < worker->compare_steps; i++) {
        gm_status status = gmt_trainer_step(&worker->alone, &report, &worker->error);
        if (status != GM_OK) return status;
    }
    *difference = gmt_compare(worker->weights_then, worker->alone.mlp.params.weights,
                              worker->alone.mlp.params.n_elems);
    return GM_OK;
}

static void add_difference(cJSON *object, const struct gmt_difference *difference, uint64_t n_steps)
{
    cJSON_AddNumberToObject(object, "compare_steps", (double)n_steps);
    cJSON_AddNumberToObject(object, "params", (double)difference->n_elems);
    cJSON_AddNumberToObject(object, "equal", (double)difference->n_equal);
    cJSON_AddNumberToObject(object, "max_abs_diff", difference->max_abs_diff);
}

/* The verdict in its three forms; the exit status. */
static int say_end(struct worker *worker, const struct gmt_end *end,
                   const struct gmt_difference *difference)
{
    cli_print_verdict(&worker->printer, end, difference, worker->compare_steps);
    cJSON *record = gmt_log_end(end);
    if (difference != NULL) add_difference(record, difference, worker->compare_steps);
    bool is_written = cli_write_json(worker->parsed, "train", record);
    write_log(worker, record);
    return is_written && end->are_identical && !worker->log.has_failed ? CLI_EXIT_OK : CLI_EXIT_NO;
}

/* A loss or gradient that is not finite is known to all ranks, in the same words. Under a
 * launcher one says it, the one it began at; the others exit as those whose fault it is not. */
static int trained_not(struct worker *worker)
{
    int  rank, world_size, culprit = worker->error.culprit < 0 ? 0 : worker->error.culprit;
    bool is_common = worker->error.status == GM_ERR_STATE && worker->rank != culprit;
    if (!is_common) return worker_failed(worker);
    if (!cli_is_worker(&rank, &world_size)) worker_failed(worker);
    return CLI_EXIT_PEER_FAILED;
}

static gm_status finish_trace(struct worker *worker)
{
    char     *text = NULL;
    gm_status status = cli_train_trace_finish(&worker->args->trace, &worker->trainer,
                                              worker->live.page != NULL ? &text : NULL, &worker->error);
    cli_live_show_trace(worker->live.page, text);
    free(text);
    return status;
}

static int train(struct worker *worker)
{
    struct gmt_end        end;
    struct gmt_difference difference = { 0, 0, 0 };
    say_start(worker);
    if (gmt_trainer_run(&worker->trainer, &end, &worker->error) != GM_OK) {
        cli_train_trace_leave(&worker->args->trace, &worker->trainer);
        return trained_not(worker);
    }
    if (finish_trace(worker) != GM_OK) return worker_failed(worker);
    /* The others need not wait for what rank 0 still computes. */
    gm_comm_destroy(worker->comm);
    worker->comm = NULL;
    if (worker->rank != 0) return end.are_identical ? CLI_EXIT_OK : CLI_EXIT_NO;
    bool is_compared = worker->weights_then != NULL;
    if (is_compared && compare_with_one(worker, &difference) != GM_OK) return worker_failed(worker);
    return say_end(worker, &end, is_compared ? &difference : NULL);
}

static int run_worker(struct worker *worker, const struct cli_join *place)
{
    if (cli_place(place, &worker->rank, &worker->world_size, &worker->error) != GM_OK)
        return worker_failed(worker);
    gmt_set_blas_threads((int)worker->args->n_threads);
    worker->room = cli_look_for_room(worker->world_size, (int)worker->args->n_threads);
    if (prepare(worker, false) != GM_OK || join(worker, place) != GM_OK)
        return worker_failed(worker);
    if (open_outputs(worker) != GM_OK || make_trainer(worker) != GM_OK) {
        gm_comm_abort(worker->comm, worker->error.text);
        return worker_failed(worker);
    }
    return train(worker);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Trains, or has N workers train. */
static int train_as_told(const struct cli_command *command, const struct cli_train_args *args,
                         const struct cli_parsed *parsed, char **own_words)
{
    int             status, rank, world_size;
    bool            is_worker = cli_is_worker(&rank, &world_size);
    bool            is_launcher = args->n_workers > 1 && !is_worker;
    struct worker  *worker = gmi_alloc(1, sizeof *worker);
    struct cli_join place = { .command = "train",
                              .world_size = args->n_workers == 1 && !is_worker ? 1 : 0,
                              .is_verbose = parsed->is_verbose,
                              .transport = args->transport,
                              .algorithm = args->algorithm,
                              .wire = args->wire,
                              .checksum = args->checksum,
                              .is_encrypted = args->is_encrypted };
    if (worker == NULL || own_words == NULL) {
        fprintf(stderr, "gradmesh train: no memory\n");
        gmi_free(worker);
        return CLI_EXIT_NO;
    }
    worker->args = args;
    worker->parsed = parsed;
    worker->world_size = 1;
    gmi_error_clear(&worker->error);
    if (place.world_size == 1) cli_say_pid();
    if (!is_launcher) status = run_worker(worker, &place);
    else status = prepare(worker, true) == GM_OK ? CLI_EXIT_OK : worker_failed(worker);
    worker_fini(worker);
    gmi_free(worker);
    if (!is_launcher || status != CLI_EXIT_OK) return status;
    return cli_launch_self(command, (int)args->n_workers, own_words, parsed,
                           cli_is_live(fileno(cli_text(parsed))));
}

int cli_cmd_train(int argc, char **argv)
{
    struct cli_train_args args;
    struct cli_option options[CLI_N_TRAIN_OPTIONS];
    struct cli_parsed parsed;
    int               status;
    cli_list_train_options(&args, options);
    const struct cli_command command = {
        .name = "train", .usage = "[-n N] [options]", .summary = summary, .notes = notes,
        .options = options, .n_options = CLI_N_TRAIN_OPTIONS,
    };
    char **own_words = cli_own_words(argc, argv);
    if (cli_parse(&command, argc, argv, &parsed, &status)) {
        status = cli_check_train_usage(&command, &args);
        if (status == CLI_EXIT_OK) status = train_as_told(&command, &args, &parsed, own_words);
    }
    gmi_free(own_words);
    return status;
}
