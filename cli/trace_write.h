/* trace_write.h - traces as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open, and
 * `gradmesh report`. docs/tracing.md says what stands in it. */
#ifndef CLI_TRACE_WRITE_H
#define CLI_TRACE_WRITE_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/trace_collect.h"

/* For the file's "otherData": what the traced calls were. */
struct cli_trace_about {
    const char *command, *collective, *dtype;
    uint64_t    count;
    int         world_size;
};

/* `traces` are of the same ranks, of one communicator each, and their calls did not overlap. Completes their events with
 * what only the other end of a transfer, or all ranks together, know. False: it could not be written; errno. */
bool cli_trace_print(FILE *file, struct cli_trace *traces, size_t n_traces, const struct cli_trace_about *about);

/* The same as a file that appears whole or not at all. GM_ERR_SYSTEM, GM_ERR_NOMEM: *error has the sentence. */
GM_MUST_USE gm_status cli_trace_write(const char *path, struct cli_trace *traces, size_t n_traces,
                                      const struct cli_trace_about *about, gm_error *error);

/* Can such a file be written there? So that nobody trains for hours to learn that not. */
GM_MUST_USE gm_status cli_trace_check_path(const char *path, gm_error *error);

#endif
