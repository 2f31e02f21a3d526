/* ring.h - rows of the algorithm table that ring.c provides. */
#ifndef GMI_RING_H
#define GMI_RING_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_ring_all_reduce, gmi_ring_reduce_scatter, gmi_ring_all_gather, gmi_ring_barrier;

/* The schedule, for its test: which chunk rank r sends in a step; it receives the one of step + 1. */
int gmi_ring_chunk(int rank, int n_ranks, int step);

#endif
