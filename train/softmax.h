/* softmax.h - what both ways to a loss, by BLAS and on the bit path, have in common. */
#ifndef GMT_SOFTMAX_H
#define GMT_SOFTMAX_H

#include <stddef.h>

/* So many elements are worked on while they are in the nearest cache. */
#define GMT_SOFTMAX_BLOCK_ELEMS 2048

/* The first of the largest; n >= 1. */
static inline size_t gmt_index_of_largest(const float *values, size_t n)
{
    size_t largest = 0;
    for (size_t i = 1; i < n; i++)
        if (values[i] > values[largest]) largest = i;
    return largest;
}

#endif
