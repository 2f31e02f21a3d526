/* tree_reduce.h - the row of the algorithm table that tree_reduce.c provides. */
#ifndef GMI_TREE_REDUCE_H
#define GMI_TREE_REDUCE_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_tree_reduce;

#endif
