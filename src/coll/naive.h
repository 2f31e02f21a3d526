/* naive.h - the row of the algorithm table that naive.c provides. */
#ifndef GMI_NAIVE_H
#define GMI_NAIVE_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_naive_all_reduce;

#endif
