/* thin.h - of a long trace a page holds the end: what people can look at. */
#ifndef REPORT_THIN_H
#define REPORT_THIN_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "gradmesh.h"

/* Removes the arrows, which the page does not draw, and all but the newest n_most spans. What is left begins with a whole
 * step, if the trace has steps; a call that would lose some of its transfers loses all of them, as half of them would tell
 * lies. How many spans are gone stands in otherData.left_out_events (0 removes the field). GM_ERR_NOMEM: nothing is
 * removed. */
GM_MUST_USE gm_status gmr_thin_trace(cJSON *trace, size_t n_most, size_t *n_left);

#endif
