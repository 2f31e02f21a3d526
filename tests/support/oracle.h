/* oracle.h - what reductions must give, element by element, in plain C that shares nothing with the library. */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>

#include "gradmesh.h"

/* Elements are their bits, in the lowest bytes of a number. */

/* The result of n values, combined in the order given; f16 and bf16 in double, rounded once. */
uint64_t oracle_reduce(const uint64_t *values, int n, gm_dtype dtype, gm_redop redop);

bool oracle_is_float(gm_dtype dtype);

/* Is the combination one that the header's table has? */
bool oracle_is_offered(gm_dtype dtype, gm_redop redop);
/* (GM_SUM_EXACT, which only gm_all_reduce of f32 has, does not count as offered here.) */
/* Does the header promise one rounding, so that the order does not matter? */
bool oracle_is_rounded_once(gm_dtype dtype, gm_redop redop);

/* The bits of the exact sum of n f32, rounded once. */
uint32_t oracle_exact_sum(const uint32_t *bits, size_t n);

/* The number that bits of a float stand for, and the bits nearest to a number, ties to even; NaN is canonical. */
double   oracle_number(uint64_t bits, gm_dtype dtype);
uint64_t oracle_bits(double number, gm_dtype dtype);

uint64_t oracle_load(const void *elem, gm_dtype dtype);
void     oracle_store(void *elem, gm_dtype dtype, uint64_t bits);

/* Lean formats, "bf16", "f16" or "int8": what comes out for numbers that travel together, and in how many bytes. */
void   oracle_lean(const char *format, float *to, const float *from, size_t count);
size_t oracle_lean_bytes(const char *format, size_t count);

#endif
