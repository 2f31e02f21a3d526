/* star.h - the rows of the algorithm table that star.c provides. */
#ifndef GMI_STAR_H
#define GMI_STAR_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_star_gather, gmi_star_scatter;

#endif
