/* exact_spills.h - the numbers of an exact sum that did not fit into lanes, and arithmetic that is wide enough for them. */
#ifndef GMI_EXACT_SPILLS_H
#define GMI_EXACT_SPILLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A list that grows. A zeroed one is empty. Entries are those of gmi_spill. */
struct gmi_spills {
    uint64_t *at;
    size_t    n, room;
    bool      is_sorted; /* by element */
};

bool gmi_spills_append(struct gmi_spills *s, const uint64_t *more, size_t n); /* false: no memory */
void gmi_spills_sort(struct gmi_spills *s);
void gmi_spills_fini(struct gmi_spills *s);

/* The place of the first one of element `index` or behind it; of a sorted list. */
size_t gmi_spills_find(const struct gmi_spills *s, uint64_t index);

/* The bits of: the sum of `lane` quanta and n numbers, exact, rounded once. */
uint32_t gmi_exact_sum_bits(uint64_t lane, int quantum_exponent, const uint64_t *spills, size_t n);

#endif
