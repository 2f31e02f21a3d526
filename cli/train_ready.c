#include <stdio.h>

#include "base/error.h"
#include "cli/trace_write.h"
#include "cli/train_worker.h"
#include "train/bits.h"

static void say_warning(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "gradmesh train: warning: %s; the one before it is tried\n", sentence);
}

static gm_status accept_checkpoint(void *user, const struct gmt_checkpoint *checkpoint,
                                   gm_error *error)
{
    const struct cli_train_worker *worker = user;
    struct gmt_recipe    saved;
    gm_status            status = gmt_recipe_read(&saved, checkpoint, error);
    if (status != GM_OK) return status;
    return gmt_recipe_check_resume(&worker->recipe, &saved, checkpoint->path, error);
}

/* Finds what --resume names and checks that it fits the options. With is_speaking the damaged
 * ones that are passed over are named. */
static gm_status find_checkpoint(struct cli_train_worker *worker, bool is_speaking)
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
static gm_status check_directory(struct cli_train_worker *worker)
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
static gm_status check_outputs(struct cli_train_worker *worker)
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
static void keep_buckets(struct cli_train_worker *worker)
{
    struct gmt_recipe saved;
    if (worker->from.path == NULL || worker->args->recipe.has_bucket_bytes) return;
    if (gmt_recipe_read(&saved, &worker->from, NULL) != GM_OK) return;
    worker->recipe.bucket_bytes = saved.bucket_bytes;
}

gm_status cli_train_prepare(struct cli_train_worker *worker, bool is_launcher)
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

gm_status cli_train_join(struct cli_train_worker *worker, const struct cli_join *place)
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
