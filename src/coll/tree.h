/* tree.h - the row of the algorithm table that tree.c provides. */
#ifndef GMI_TREE_H
#define GMI_TREE_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_tree_broadcast;

#endif
