/* live.h - the report's page while a training runs: an HTTP server beside it, on loopback.
 *
 * It reads the log as the training writes it, whenever a page asks; the training never waits for it. Who wants an answer
 * must have the token that is in the printed address. */
#ifndef CLI_LIVE_H
#define CLI_LIVE_H

#include "gradmesh.h"

struct cli_live;

/* NULL or a number as --live=PORT has it ("" and NULL: any free port). -1: it is none. */
int cli_live_port(const char *text);

/* Whether the page's parts are there; to be asked before anything is started. */
GM_MUST_USE gm_status cli_live_check(gm_error *error);

/* log_path: the training's log, which may still be empty. Says where the page is on standard error. */
GM_MUST_USE gm_status cli_live_start(struct cli_live **live, int port, const char *log_path, gm_error *error);

/* NULL is fine. A page that is being looked at gets the end of the log first, if it asks within three seconds. */
void cli_live_stop(struct cli_live *live);

#endif
