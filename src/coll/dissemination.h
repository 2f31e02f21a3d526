/* dissemination.h - the row of the algorithm table that dissemination.c provides. */
#ifndef GMI_DISSEMINATION_H
#define GMI_DISSEMINATION_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_dissemination_barrier;

#endif
