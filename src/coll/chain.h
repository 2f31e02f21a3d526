/* chain.h - the row of the algorithm table that chain.c provides. */
#ifndef GMI_CHAIN_H
#define GMI_CHAIN_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_chain_broadcast;

#endif
