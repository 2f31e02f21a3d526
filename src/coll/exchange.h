/* exchange.h - the row of the algorithm table that exchange.c provides. */
#ifndef GMI_EXCHANGE_H
#define GMI_EXCHANGE_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_exchange_all_reduce;

#endif
