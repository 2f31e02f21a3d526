#include "train/blas_core.h"

#include <cblas.h>
#include <stddef.h>
#include <string.h>

const char *gmt_blas_better_core(const char *core, bool has_avx2, bool has_avx512)
{
    /* Those of OpenBLAS that use no AVX2. */
    static const char *const old[] = { "Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Atom", "Core2", "Penryn", "Dunnington",
                                       "Nehalem", "Sandybridge", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Nano", "Bobcat" };
    for (size_t i = 0; has_avx2 && i < sizeof old / sizeof *old; i++) {
        if (strcmp(core, old[i]) == 0) return has_avx512 ? "SkylakeX" : "Haswell";
    }
    return NULL;
}

const char *gmt_blas_better_core_here(const char **core)
{
    *core = openblas_get_corename();
#if defined(__x86_64__)
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
    return *core != NULL ? gmt_blas_better_core(*core, has_avx2, has_avx2 && has_avx512) : NULL;
#else
    return NULL;
#endif
}
