/* browser.h - a Chromium without a window that opens a page and answers questions about it.
 *
 * Chromium speaks its DevTools protocol over two pipes: a message is a JSON object with a zero behind it. Nothing
 * listens on a port. It gets a profile of its own, which is removed at the end. */
#ifndef REPORT_BROWSER_H
#define REPORT_BROWSER_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "gradmesh.h"

struct gmr_browser;

/* `program`: Chromium, or what is made of it; looked for in PATH if it has no slash. */
gm_status gmr_browser_start(struct gmr_browser **browser, const char *program, gm_error *error);
void      gmr_browser_stop(struct gmr_browser *browser); /* NULL is fine */

/* Opens a file of this machine; `fragment` ("" or "#movie") goes behind its address. Waits until it is loaded. */
gm_status gmr_browser_open(struct gmr_browser *browser, const char *path, const char *fragment, gm_error *error);

/* What the expression's value is, waited for if it is a promise; to be deleted. NULL: it threw, or the browser is gone. */
cJSON *gmr_browser_evaluate(struct gmr_browser *browser, const char *expression, gm_error *error);

/* Any other command of the protocol; takes `parameters` over (may be NULL). */
cJSON *gmr_browser_command(struct gmr_browser *browser, const char *method, cJSON *parameters, gm_error *error);

/* A picture of the window as PNG, to be freed with free(). */
gm_status gmr_browser_picture(struct gmr_browser *browser, unsigned char **png, size_t *n_bytes, gm_error *error);

/* What went wrong in the page so far: thrown errors, errors on the console, and addresses that it asked for other than
 * files and data. An array of texts; the browser's. */
const cJSON *gmr_browser_problems(const struct gmr_browser *browser);

#endif
