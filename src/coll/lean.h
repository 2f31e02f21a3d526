/* lean.h - the rows of the algorithm table that lean.c provides. */
#ifndef GMI_LEAN_H
#define GMI_LEAN_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_lean_all_reduce, gmi_lean_reduce_scatter;

#endif
