/* train_worker.h - one worker of `gradmesh train`, in three files:
 *
 *     train_ready.c     before the workers meet: data, settings, the state to begin with; and the meeting
 *     train_words.c     what rank 0 says: at the start, and while they train
 *     train_worker.c    its course, from the trainer to the verdict */
#ifndef CLI_TRAIN_WORKER_H
#define CLI_TRAIN_WORKER_H

#include "cli/train_args.h"
#include "cli/train_live.h"
#include "cli/train_print.h"
#include "cli/worker.h"
#include "train/trainer.h"
#include "train/trainlog.h"

/* What a worker holds; all-zero holds nothing. */
struct cli_train_worker {
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

/* Says worker->error; the exit status. */
int cli_train_worker_failed(struct cli_train_worker *worker);

/* ---- train_ready.c ---- */
/* Everything before the workers meet: data, settings, the state to begin with. The launcher does
 * it too, so that a mistake is one sentence and not N. */
gm_status cli_train_prepare(struct cli_train_worker *worker, bool is_launcher);
gm_status cli_train_join(struct cli_train_worker *worker, const struct cli_join *place);

/* ---- train_words.c ---- */
void cli_train_say_start(struct cli_train_worker *worker);
/* To the log and to the page, as far as there are any. Takes the record over. */
void cli_train_log(struct cli_train_worker *worker, cJSON *record);
/* What rank 0 hears of the trainer, and says. */
struct gmt_listener cli_train_listener(struct cli_train_worker *worker);

/* ---- train_worker.c ---- */
/* Its whole life but the end of what it holds; the exit status. */
int  cli_train_run_worker(struct cli_train_worker *worker, const struct cli_join *place);
void cli_train_worker_fini(struct cli_train_worker *worker);

#endif
