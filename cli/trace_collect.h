/* trace_collect.h - the ranks' traces in one place, by one clock.
 *
 *     rank r:  events of the communicator  ->  numbers and names, packed  --gatherv-->  rank 0: unpacked,
 *              how far its clock is ahead of rank 0's                                    times by rank 0's clock
 */
#ifndef CLI_TRACE_COLLECT_H
#define CLI_TRACE_COLLECT_H

#include "gradmesh.h"

enum { CLI_TRACE_NAME_BYTES = 32 };

struct cli_trace_rank {
    int64_t         clock_error_ns; /* times are right to within it; -1: they are this rank's own, as they are */
    uint64_t        n_dropped;      /* events that were asked for and are not there any more */
    size_t          n_events;
    gm_trace_event *events;         /* in the order in which they began */
    char          (*names)[CLI_TRACE_NAME_BYTES];
};

struct cli_trace {
    int                    n_ranks, first_rank; /* ranks[i] is rank first_rank + i; 0 on ranks that collect nothing */
    struct cli_trace_rank *ranks;
};

/* All ranks call it; on rank 0 *trace has them all, elsewhere it is empty. Of a training run the last n_steps steps (spans
 * of the category "step") and what came after them, or as many as every rank still has all events of; 0: everything.
 * Uses messages, small collectives and a gatherv, which are not recorded: it leaves the recording off. Statuses of
 * these; GM_ERR_STATE: there is no trace; GM_ERR_NOMEM. */
GM_MUST_USE gm_status cli_trace_collect(gm_comm *comm, int64_t n_steps, struct cli_trace *trace, gm_error *error);

/* This rank's trace alone, for a job that has failed. */
GM_MUST_USE gm_status cli_trace_take_own(gm_comm *comm, int64_t n_steps, struct cli_trace *trace, gm_error *error);

void cli_trace_free(struct cli_trace *trace); /* all-zero is fine */

#endif
