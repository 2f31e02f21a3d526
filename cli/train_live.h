/* train_live.h - what `gradmesh train --live` shows: the log's records, in those of steps where the time of each rank went,
 * and with --trace the last steps of all ranks. */
#ifndef CLI_TRAIN_LIVE_H
#define CLI_TRAIN_LIVE_H

#include <cjson/cJSON.h>

#include "cli/live.h"
#include "cli/train_trace.h"
#include "train/trainer.h"

/* Of every rank; all-zero is that of a run without --live. */
struct cli_train_live {
    struct cli_live *page;  /* on rank 0 */
    int64_t         *words; /* of all ranks, gathered: see train_live.c */
    int              n_ranks, rank;
    int64_t          traced_ns; /* when a trace was collected last */
};

/* Rank 0 serves the page. `log_path`: a log that is gone on with, whose records are shown too; NULL: there is none. */
GM_MUST_USE gm_status cli_train_live_open(struct cli_train_live *live, int rank, int n_ranks, const char *port,
                                          const char *log_path, gm_error *error);
void cli_train_live_close(struct cli_train_live *live); /* pages get the end first: see cli_live_stop */

/* All ranks, with each report: gathers what rank 0 shows. Statuses of gm_all_gather and cli_trace_collect. */
GM_MUST_USE gm_status cli_train_live_exchange(struct cli_train_live *live, const struct gmt_trainer *trainer,
                                              const struct cli_train_trace *wanted, const struct gmt_report *report,
                                              gm_error *error);

/* A record of the log; one of a step, with what was gathered last. The record stays the caller's and as it is. */
void cli_train_live_add(struct cli_train_live *live, const cJSON *record);

#endif
