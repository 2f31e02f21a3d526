/* live_parts.h - what answers the requests of --live, apart from the socket they come from. For live.c and its tests. */
#ifndef CLI_LIVE_PARTS_H
#define CLI_LIVE_PARTS_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

enum { CLI_LIVE_TOKEN_BYTES = 16, CLI_LIVE_MOST_CONNECTIONS = 16 };

/* A page that asks: a number that it has drawn itself. */
struct cli_live_viewer {
    unsigned long long number;
    int64_t            asked_ns;
    bool               was_told; /* all there is, and that it is over */
};

struct cli_live {
    struct MHD_Daemon *daemon;
    char               token[2 * CLI_LIVE_TOKEN_BYTES + 1];
    char              *page;
    size_t             page_bytes;

    pthread_mutex_t        lock; /* of what follows: the training adds, the server's thread answers */
    pthread_cond_t         told; /* a viewer was */
    struct gmi_buffer      records; /* JSON texts, each with a comma in front */
    size_t                *ends;    /* (n_records) of each in there */
    size_t                 n_records, max_records;
    char                  *trace;   /* JSON, or NULL */
    unsigned long long     n_traces; /* that there were */
    bool                   is_over;
    struct cli_live_viewer viewers[CLI_LIVE_MOST_CONNECTIONS];
};

/* As MHD_start_daemon wants it; `live` is a struct cli_live. */
enum MHD_Result cli_live_answer(void *live, struct MHD_Connection *connection, const char *path, const char *method,
                                const char *version, const char *body, size_t *n_body_bytes, void **state);

#endif
