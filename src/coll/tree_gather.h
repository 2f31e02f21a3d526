/* tree_gather.h - the rows of the algorithm table that tree_gather.c provides. */
#ifndef GMI_TREE_GATHER_H
#define GMI_TREE_GATHER_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_tree_gather, gmi_tree_scatter;

#endif
