/* blas_core.h - has OpenBLAS recognized this processor? An older OpenBLAS takes one that is newer for the oldest that it knows,
 * and computes at a fraction of its speed without a word. */
#ifndef GMT_BLAS_CORE_H
#define GMT_BLAS_CORE_H

#include <stdbool.h>

/* For a processor with such vectors: the core that OpenBLAS should take instead of this one. NULL: it is fine, or unknown. */
const char *gmt_blas_better_core(const char *core, bool has_avx2, bool has_avx512);

/* The same for this process and processor; *core, if it is not NULL, is what OpenBLAS takes. Static strings. */
const char *gmt_blas_better_core_here(const char **core);

#endif
