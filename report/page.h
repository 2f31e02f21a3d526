/* page.h - the report as one HTML file, and the data in it.
 *
 * The page's parts (index.html, page.css, the scripts, and the chart library that npm brought) stand in
 * a folder, share/gradmesh beside the program or its prefix. They are put into one text that needs
 * nothing else; report/page/README.md says what the page expects of its data. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "gradmesh.h"
#include "report/record.h"

/* The data of a page: {"version", "made_at", "files": [{"name", "kind", "data"}, ...]}. The records'
 * data move into it. NULL: no memory. */
cJSON *gmr_page_data(struct gmr_record *records, size_t n_records);

/* The folder with the page's parts: `wanted` if it is not NULL, else the one that belongs to this
 * program. The error says what to do when parts are missing. */
gm_status gmr_page_find_parts(const char *wanted, char *folder, size_t folder_bytes, gm_error *error);

/* The whole page, to be freed with free(). `data` may hold {"live": {"every_ms": 1000}} instead of
 * files: the page then fetches data.json beside it, with the same query, again and again. */
gm_status gmr_page_make(const char *folder, const cJSON *data, char **page, size_t *page_bytes, gm_error *error);

/* Writes a file that appears whole or not at all. */
gm_status gmr_write_file(const char *path, const void *bytes, size_t n_bytes, gm_error *error);

#endif
