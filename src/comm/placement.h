/* placement.h - two ranks that wait for each other should not share a core while another one is free.
 *
 * The scheduler likes to put a thread that is woken where its waker runs. Two ranks that end up on one core then keep
 * yielding to each other, and neither ever sleeps, so neither is ever placed anew: small collectives take three
 * times as long, large ones twice, for seconds. So descriptors say on which core a rank entered its call. Of two
 * ranks of one host that were on the same core, though the host has a core for each of its ranks, the higher one moves
 * its thread away once. It stays free to run anywhere: a nudge, no binding. */
#ifndef GMI_PLACEMENT_H
#define GMI_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

struct gmi_placement {
    bool    has_core_each; /* the ranks of this host are no more than the cores they may use */
    int     n_calm;        /* calls in a row without a conflict */
    int64_t pause_ns;      /* how long we keep still after the next move ... */
    int64_t still_until_ns; /* ... and after the last one */
};

/* How many cores may this thread use? At least 1. */
int gmi_placement_cores(void);

void gmi_placement_init(struct gmi_placement *p, int n_local_ranks, int n_cores);

/* After each call: did one of our peers enter it on the core on which we did, and is it for us to give way?
 * True: we should move, now. Says so ever more seldom while that does not help. */
bool gmi_placement_should_move(struct gmi_placement *p, bool is_in_conflict, int64_t now_ns);

/* The core on which the calling thread runs, from 1; 0: not known. */
uint16_t gmi_placement_core(void);

/* Moves the calling thread to another core that it may use; its mask is the same afterwards. False: there is none. */
bool gmi_placement_move(void);

#endif
