/* trainlog.h - the run as JSON lines: one object with "event" = start | step | epoch | end each.
 *
 * Each line is flushed when it is written, so that the log of a run that was killed ends at its
 * last report. The end record is also what `gradmesh train --json` prints. Fields: docs and
 * trainlog.c; times are milliseconds, accuracies fractions 0..1; a number that there is none of
 * (the loss of no samples) is null. */
#ifndef GMT_TRAINLOG_H
#define GMT_TRAINLOG_H

#include <stdbool.h>

#include <cjson/cJSON.h>

#include "gradmesh.h"
#include "train/trainer.h"

/* The records. NULL when there is no memory; freed with cJSON_Delete. */
cJSON *gmt_log_start(const struct gmt_trainer *trainer, int n_threads, uint64_t n_test_samples);
cJSON *gmt_log_step(const struct gmt_report *report);
cJSON *gmt_log_epoch(const struct gmt_epoch_report *report);
cJSON *gmt_log_end(const struct gmt_end *end);

struct gmt_trainlog {
    char *path;
    int   fd;
    bool  has_failed; /* a line could not be written; later ones are not tried */
};

/* Opens the file: empties it, or with is_resuming goes on behind what is there. GM_ERR_SYSTEM,
 * GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_trainlog_open(struct gmt_trainlog *log, const char *path,
                                        bool is_resuming, gm_error *error);
void gmt_trainlog_close(struct gmt_trainlog *log); /* all-zero is fine */

/* Writes one record, in a single write, and frees it. A log that was not opened takes it and
 * does nothing. The first failure is returned, later ones are not: training goes on without a
 * log. */
GM_MUST_USE gm_status gmt_trainlog_write(struct gmt_trainlog *log, cJSON *record, gm_error *error);

#endif
