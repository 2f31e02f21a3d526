#ifndef GMI_EXACT_H
#define GMI_EXACT_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_exact_ring, gmi_exact_direct, gmi_exact_halving, gmi_exact_tree;

#endif
