#include "cli/train_worker.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/blas_words.h"
#include "cli/output.h"
#include "launch/launcher.h"
#include "train/compare.h"
#include "train/ops.h"

void cli_train_worker_fini(struct cli_train_worker *worker)
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

int cli_train_worker_failed(struct cli_train_worker *worker)
{
    return cli_failed("train", worker->rank, worker->world_size, &worker->error);
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Keeps the state in which the run begins, for the comparison at its end. */
static gm_status prepare_comparison(struct cli_train_worker *worker)
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

static gm_status open_outputs(struct cli_train_worker *worker)
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

static gm_status make_trainer(struct cli_train_worker *worker)
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
    options.listener = cli_train_listener(worker);
    gm_status status =
        gmt_trainer_init(&worker->trainer, &worker->recipe, &options, &worker->error);
    if (status == GM_OK && worker->from.path != NULL)
        status = gmt_trainer_resume(&worker->trainer, &worker->from, &worker->error);
    if (status == GM_OK) status = prepare_comparison(worker);
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The steps that are compared, by one process; *difference is of the parameters after them. */
static gm_status compare_with_one(struct cli_train_worker *worker, struct gmt_difference *difference)
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
static int say_end(struct cli_train_worker *worker, const struct gmt_end *end,
                   const struct gmt_difference *difference)
{
    cli_print_verdict(&worker->printer, end, difference, worker->compare_steps);
    cJSON *record = gmt_log_end(end);
    if (difference != NULL) add_difference(record, difference, worker->compare_steps);
    bool is_written = cli_write_json(worker->parsed, "train", record);
    cli_train_log(worker, record);
    return is_written && end->are_identical && !worker->log.has_failed ? CLI_EXIT_OK : CLI_EXIT_NO;
}

/* A loss or gradient that is not finite is known to all ranks, in the same words. Under a
 * launcher one says it, the one it began at; the others exit as those whose fault it is not. */
static int trained_not(struct cli_train_worker *worker)
{
    int  rank, world_size, culprit = worker->error.culprit < 0 ? 0 : worker->error.culprit;
    bool is_common = worker->error.status == GM_ERR_STATE && worker->rank != culprit;
    if (!is_common) return cli_train_worker_failed(worker);
    if (!cli_is_worker(&rank, &world_size)) cli_train_worker_failed(worker);
    return CLI_EXIT_PEER_FAILED;
}

static gm_status finish_trace(struct cli_train_worker *worker)
{
    char     *text = NULL;
    gm_status status = cli_train_trace_finish(&worker->args->trace, &worker->trainer,
                                              worker->live.page != NULL ? &text : NULL, &worker->error);
    cli_live_show_trace(worker->live.page, text);
    free(text);
    return status;
}

static int train(struct cli_train_worker *worker)
{
    struct gmt_end        end;
    struct gmt_difference difference = { 0, 0, 0 };
    if (worker->rank == 0 && !worker->args->recipe.is_reproducible) cli_say_blas("train");
    cli_train_say_start(worker);
    if (gmt_trainer_run(&worker->trainer, &end, &worker->error) != GM_OK) {
        cli_train_trace_leave(&worker->args->trace, &worker->trainer);
        return trained_not(worker);
    }
    if (finish_trace(worker) != GM_OK) return cli_train_worker_failed(worker);
    /* The others need not wait for what rank 0 still computes. */
    gm_comm_destroy(worker->comm);
    worker->comm = NULL;
    if (worker->rank != 0) return end.are_identical ? CLI_EXIT_OK : CLI_EXIT_NO;
    bool is_compared = worker->weights_then != NULL;
    if (is_compared && compare_with_one(worker, &difference) != GM_OK) return cli_train_worker_failed(worker);
    return say_end(worker, &end, is_compared ? &difference : NULL);
}

int cli_train_run_worker(struct cli_train_worker *worker, const struct cli_join *place)
{
    if (cli_place(place, &worker->rank, &worker->world_size, &worker->error) != GM_OK)
        return cli_train_worker_failed(worker);
    gmt_set_blas_threads((int)worker->args->n_threads);
    worker->room = cli_look_for_room(worker->world_size, (int)worker->args->n_threads);
    if (cli_train_prepare(worker, false) != GM_OK || cli_train_join(worker, place) != GM_OK)
        return cli_train_worker_failed(worker);
    if (open_outputs(worker) != GM_OK || make_trainer(worker) != GM_OK) {
        gm_comm_abort(worker->comm, worker->error.text);
        return cli_train_worker_failed(worker);
    }
    return train(worker);
}
