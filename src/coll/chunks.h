/* chunks.h - how n elements are cut into N chunks, one for each rank.
 *
 * Chunk k begins at k q + min(k, n mod N), q = n / N, and has q elements, or q + 1 if k < n mod N. All
 * elements are covered, sizes differ by one at the most, and a chunk may be empty. */
#ifndef GMI_CHUNKS_H
#define GMI_CHUNKS_H

#include <stddef.h>

static inline size_t gmi_chunk_elems(size_t count_elems, int n_ranks, int chunk)
{
    size_t n = (size_t)n_ranks;
    return count_elems / n + ((size_t)chunk < count_elems % n);
}

static inline size_t gmi_chunk_first(size_t count_elems, int n_ranks, int chunk)
{
    size_t n = (size_t)n_ranks, k = (size_t)chunk, longer = count_elems % n;
    return k * (count_elems / n) + (k < longer ? k : longer);
}

/* The same for chunks of given sizes; counts NULL: as above. */
static inline size_t gmi_chunk_elems_of(const size_t *counts, size_t count_elems, int n_ranks, int chunk)
{
    return counts != NULL ? counts[chunk] : gmi_chunk_elems(count_elems, n_ranks, chunk);
}

static inline size_t gmi_chunk_first_of(const size_t *counts, size_t count_elems, int n_ranks, int chunk)
{
    if (counts == NULL) return gmi_chunk_first(count_elems, n_ranks, chunk);
    size_t first = 0;
    for (int k = 0; k < chunk; k++) first += counts[k];
    return first;
}

#endif
