/* trace_items.h - what follows from the events of all ranks together: which receive belongs to which send, who was waited
 * for in a call, and which track shows what. */
#ifndef CLI_TRACE_ITEMS_H
#define CLI_TRACE_ITEMS_H

#include "cli/trace_collect.h"

/* Kinds of tracks, numbered as in the file. What overlaps on one goes to further ones of its kind. */
enum cli_track { CLI_TRACK_TRAINING, CLI_TRACK_CALLS, CLI_TRACK_MESSAGES, CLI_TRACK_SENDS, CLI_TRACK_RECEIVES, CLI_N_TRACKS };
enum { CLI_MAX_LANES = 16 }; /* of a kind; more share the last one */

struct cli_trace_item {
    gm_trace_event *event;
    int             rank;
    int64_t         flow;      /* SEND, RECEIVE: the number of the pair; 0: the other end is not in the trace */
    int             waits_for; /* CALL of a collective: who came last of all ranks ... */
    int64_t         wait_ns;   /* ... and for how long this one waited, at most until its call was over */
    enum cli_track  track;
    int             lane;      /* 0: the first track of its kind */
};

struct cli_trace_items {
    size_t                 n;
    struct cli_trace_item *items; /* rank by rank, in the order in which they began */
};

/* Events stay the trace's; what their other ends know of them is filled in. *n_flows counts on. GM_ERR_NOMEM. */
GM_MUST_USE gm_status cli_trace_items_make(struct cli_trace_items *items, struct cli_trace *trace, int64_t *n_flows);
void                  cli_trace_items_free(struct cli_trace_items *items);

#endif
