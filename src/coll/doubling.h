/* doubling.h - the row of the algorithm table that doubling.c provides. */
#ifndef GMI_DOUBLING_H
#define GMI_DOUBLING_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_doubling_all_reduce;

#endif
