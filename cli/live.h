/* live.h - the report's page while a training runs: an HTTP server beside it, on loopback.
 *
 * The training hands over each record of its log, and traces of its last steps; a page asks for what came since it asked
 * last. The training never waits for a page, but at its end: see cli_live_stop. Who wants an answer must have the token
 * that is in the printed address. */
#ifndef CLI_LIVE_H
#define CLI_LIVE_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "gradmesh.h"

struct cli_live;

/* NULL or a number as --live=PORT has it ("" and NULL: any free port). -1: it is none. */
int cli_live_port(const char *text);

/* Whether the page's parts are there; to be asked before anything is started. */
GM_MUST_USE gm_status cli_live_check(gm_error *error);

/* Says where the page is on standard error. */
GM_MUST_USE gm_status cli_live_start(struct cli_live **live, int port, gm_error *error);

/* Both do nothing with a NULL object, and leave out what there is no memory for. The trace is as --trace writes it; a new
 * one takes the place of the one before. */
void cli_live_add(struct cli_live *live, const cJSON *record);
void cli_live_show_trace(struct cli_live *live, const char *text);

/* Whether a page has asked in the last three seconds. */
bool cli_live_is_looked_at(struct cli_live *live);

/* NULL is fine. Pages that are being looked at get the rest first, and the word that it is over, if they ask within three
 * seconds. */
void cli_live_stop(struct cli_live *live);

#endif
