/* pairwise.h - the rows of the algorithm table that pairwise.c provides. */
#ifndef GMI_PAIRWISE_H
#define GMI_PAIRWISE_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_pairwise_all_to_all, gmi_direct_all_to_all;

#endif
