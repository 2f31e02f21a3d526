#ifndef GMI_HIERARCHICAL_H
#define GMI_HIERARCHICAL_H

#include "coll/algo.h"

extern const struct gmi_algo gmi_hierarchical_all_reduce;

#endif
