/* simd.h - lets the compiler build a loop for several vector widths and choose at load time.
 *
 * The default build runs on the oldest x86-64. Contraction is off in the whole build (-ffp-contract=off), so
 * every version computes the same bits. Off under sanitizers, which do not get along with ifuncs. */
#ifndef GMI_SIMD_H
#define GMI_SIMD_H

#include <features.h> /* __GLIBC__ */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(GMI_NO_CLONES) && defined(__GNUC__) && !defined(__clang__)
#define GMI_SIMD __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define GMI_SIMD
#endif

/* In front of a loop: no element depends on the result of another one. For loops whose output may be the very
 * array that is an input, which makes some compilers give up vectors at run time. */
#if defined(__clang__)
#define GMI_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define GMI_INDEPENDENT _Pragma("GCC ivdep")
#else
#define GMI_INDEPENDENT
#endif

#endif
