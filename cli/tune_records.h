/* tune_records.h - the timings that a profile is made of, from what `gradmesh bench --algo all --json` says. */
#ifndef CLI_TUNE_RECORDS_H
#define CLI_TUNE_RECORDS_H

#include <stdio.h>

#include "plan/tune.h"

struct cli_tune_records {
    struct plan_timing *timings;
    size_t              n, room;
};

/* Adds what one JSON object holds, of a bench or one of its results; what was measured without a site, of one rank or under
 * "auto" is passed over. GM_ERR_ARG: it is no such object. GM_ERR_NOMEM. */
GM_MUST_USE gm_status cli_tune_add(struct cli_tune_records *records, const char *json, gm_error *error);

/* The same of a file's lines. GM_ERR_ARG: with the number of the line that is wrong. */
GM_MUST_USE gm_status cli_tune_read(struct cli_tune_records *records, const char *path, gm_error *error);

/* Runs this program as `gradmesh bench COLLECTIVE` with these words (ended by NULL) and adds what it says; as a line to
 * `kept` too, unless that is NULL. GM_ERR_SYSTEM: it failed. */
GM_MUST_USE gm_status cli_tune_measure(struct cli_tune_records *records, const char *const *words, FILE *kept, gm_error *error);

void cli_tune_records_fini(struct cli_tune_records *records);

#endif
