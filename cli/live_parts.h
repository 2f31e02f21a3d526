/* live_parts.h - what answers the requests of --live, apart from the socket they come from. For live.c and its tests. */
#ifndef CLI_LIVE_PARTS_H
#define CLI_LIVE_PARTS_H

#include <limits.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_LIVE_TOKEN_BYTES = 16 };

struct cli_live {
    struct MHD_Daemon *daemon;
    char               token[2 * CLI_LIVE_TOKEN_BYTES + 1];
    char               log_path[PATH_MAX];
    char              *page;
    size_t             page_bytes;
    _Atomic int64_t    asked_ns;     /* when data were asked for last; 0: never */
    _Atomic bool       was_end_told; /* the data had the end record */
};

/* As MHD_start_daemon wants it; `live` is a struct cli_live. */
enum MHD_Result cli_live_answer(void *live, struct MHD_Connection *connection, const char *path, const char *method,
                                const char *version, const char *body, size_t *n_body_bytes, void **state);

#endif
