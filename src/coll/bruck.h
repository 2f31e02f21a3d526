/* bruck.h - the row of the algorithm table that bruck.c provides. */
#ifndef GMI_BRUCK_H
#define GMI_BRUCK_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_bruck_all_gather;

#endif
