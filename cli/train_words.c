#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/train_worker.h"

/* ---- while they train ------------------------------------------------------------------------ */

void cli_train_log(struct cli_train_worker *worker, cJSON *record)
{
    gm_error error;
    gmi_error_clear(&error);
    cli_train_live_add(&worker->live, record);
    if (gmt_trainlog_write(&worker->log, record, &error) != GM_OK)
        fprintf(stderr, "gradmesh train: warning: %s\n", error.text);
}

static bool has_log(const struct cli_train_worker *worker) { return worker->log.path != NULL || worker->live.page != NULL; }

static void on_report(void *user, const struct gmt_report *report)
{
    struct cli_train_worker *worker = user;
    if (has_log(worker)) cli_train_log(worker, gmt_log_step(report));
    cli_print_report(&worker->printer, report);
}

static void on_epoch(void *user, const struct gmt_epoch_report *report)
{
    struct cli_train_worker *worker = user;
    if (has_log(worker)) cli_train_log(worker, gmt_log_epoch(report));
    cli_print_epoch(&worker->printer, report);
}

static gm_status on_exchange(void *user, const struct gmt_report *report, gm_error *error)
{
    struct cli_train_worker *worker = user;
    return cli_train_live_exchange(&worker->live, &worker->trainer, &worker->args->trace, report, error);
}

static void on_step(void *user, uint64_t step, const struct gmt_step_report *share)
{
    struct cli_train_worker *worker = user;
    (void)share;
    if (worker->weights_then != NULL && step == worker->trainer.first_step + worker->compare_steps)
        memcpy(worker->weights_then, worker->trainer.mlp.params.weights,
               worker->trainer.mlp.params.n_elems * sizeof(float));
    cli_print_step(&worker->printer, step);
}

struct gmt_listener cli_train_listener(struct cli_train_worker *worker)
{
    struct gmt_listener listener = { .user = worker };
    if (worker->rank == 0) {
        listener.report = on_report;
        listener.epoch = on_epoch;
        listener.step = on_step;
    }
    listener.exchange = worker->args->has_live ? on_exchange : NULL;
    return listener;
}

/* ---- at the start ---------------------------------------------------------------------------- */

static void say_where_it_begins(struct cli_train_worker *worker)
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
static void describe_exchange(const struct cli_train_worker *worker, const char *way, const char *format,
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

void cli_train_say_start(struct cli_train_worker *worker)
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
        cli_train_log(worker, gmt_log_start(&worker->trainer, (int)args->n_threads,
                                        worker->data.test.n_samples));
}
