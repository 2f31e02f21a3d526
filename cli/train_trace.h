/* train_trace.h - what `gradmesh train --trace FILE` does at the end of a run, good or bad. */
#ifndef CLI_TRAIN_TRACE_H
#define CLI_TRAIN_TRACE_H

#include "train/trainer.h"

/* Room for the events of some hundred steps: 10 MB on each rank. */
enum { CLI_TRAIN_TRACE_EVENTS = 64 * 1024, CLI_TRAIN_TRACE_STEPS = 20 };

struct cli_train_trace {
    const char *path;    /* NULL: no trace is wanted */
    int64_t     n_steps; /* how many of the last ones go into the file */
};

/* All ranks call it, after the run: rank 0 writes the file. *text: as below; NULL: it is not wanted. Statuses of
 * cli_trace_collect and cli_trace_write. */
GM_MUST_USE gm_status cli_train_trace_finish(const struct cli_train_trace *wanted, const struct gmt_trainer *trainer,
                                             char **text, gm_error *error);

/* All ranks call it while the run goes on. On rank 0 *text becomes what the file would be now, to be freed with free(), or NULL
 * if there is no memory for it. */
GM_MUST_USE gm_status cli_train_trace_look(const struct cli_train_trace *wanted, const struct gmt_trainer *trainer,
                                           char **text, gm_error *error);

/* The run has failed, and the ranks do not answer each other any more: this one leaves what it has in FILE.rank2, say,
 * and says so, or why not, on standard error. */
void cli_train_trace_leave(const struct cli_train_trace *wanted, const struct gmt_trainer *trainer);

#endif
