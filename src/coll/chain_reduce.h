/* chain_reduce.h - the row of the algorithm table that chain_reduce.c provides. */
#ifndef GMI_CHAIN_REDUCE_H
#define GMI_CHAIN_REDUCE_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_chain_reduce;

#endif
