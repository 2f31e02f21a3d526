/* kernels.h - loops over arrays of one element type; the table that codec.c picks from. */
#ifndef GMI_KERNELS_H
#define GMI_KERNELS_H

#include "gradmesh.h"

struct gmi_kernels {
    void (*combine[GM_REDOP_END])(void *out, const void *a, const void *b, size_t count_elems);
    void (*divide)(void *values, size_t count_elems, int divisor); /* NULL: not offered */
    void (*canonicalize)(void *values, size_t count_elems);        /* NULL: no NaNs */
};

extern const struct gmi_kernels gmi_kernels[GM_DTYPE_END];

#endif
