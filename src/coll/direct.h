/* direct.h - the rows of the algorithm table that direct.c provides. */
#ifndef GMI_DIRECT_H
#define GMI_DIRECT_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_direct_all_reduce, gmi_direct_reduce, gmi_direct_reduce_scatter, gmi_direct_all_gather;

#endif
