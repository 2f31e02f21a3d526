/* norm.h - the length of a gradient. Every rank computes it from the finished gradient, in one fixed order of
 * operations whatever the vector width: the same bits in, the same bits out. */
#ifndef GMT_NORM_H
#define GMT_NORM_H

#include <stdbool.h>
#include <stddef.h>

/* The Euclidean length of n values, in double. */
double gmt_norm(const float *values, size_t n);

/* Shortens them to max_norm if they are longer; returns the length that they had. */
double gmt_clip(float *values, size_t n, double max_norm);

/* values *= factor; whether all of them were finite, and are. */
bool gmt_scale(float *values, size_t n, float factor);

#endif
