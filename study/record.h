/* record.h - a study as JSON lines, one for each row. */
#ifndef STUDY_RECORD_H
#define STUDY_RECORD_H

#include <cjson/cJSON.h>

#include "study/study.h"

/* One row. NULL: no memory. */
cJSON *study_record(const struct study_row *row);

/* What the program beside did in the same setting. NULL: nothing, or no memory. */
cJSON *study_record_beside(const struct study_row *row, const char *system);

/* Writes all rows into DIR/scaling.jsonl, whole or not at all; DIR is made when it is missing. With is_appending behind
 * the lines that are there. GM_ERR_SYSTEM, GM_ERR_NOMEM. */
GM_MUST_USE gm_status study_write_records(const struct study *study, const char *dir, bool is_appending, gm_error *error);

#endif
