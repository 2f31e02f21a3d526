/* stopped.h - which workers are stopped. A worker that is stopped dies of nothing, and its victims, who give up on
 * it, end first: whoever goes by exits alone takes a victim for the cause. */
#ifndef LAUNCH_STOPPED_H
#define LAUNCH_STOPPED_H

#include "launch/launcher.h"

/* Looks at all workers that live, and notes since when they have been stopped. */
void launch_stopped_look(struct launch_rank *ranks, int n_ranks);

/* The one that has been stopped for the longest time, and at least for so long; -1: none. */
int launch_stopped_find(const struct launch_rank *ranks, int n_ranks, int64_t for_ms);

#endif
