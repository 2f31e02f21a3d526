/* halving.h - the row of the algorithm table that halving.c provides. */
#ifndef GMI_HALVING_H
#define GMI_HALVING_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_halving_all_reduce;

#endif
