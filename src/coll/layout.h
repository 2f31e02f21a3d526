/* layout.h - which ranks of a group share a host.
 *
 *     rank    0   1   2   3   4              host 0: 0 1 4   host 1: 2 3
 *     host    0   0   1   1   0              (numbered in the order of their first ranks)
 *     place   0   1   0   1   2              among the ranks of its host, in order
 *
 * Numbers only; the same on all ranks, since it follows from what all have been told. */
#ifndef GMI_LAYOUT_H
#define GMI_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

/* A zeroed one says nothing (n_hosts is 0). */
struct gmi_layout {
    int  n_hosts;
    int  least_on_a_host; /* ranks of the host that has fewest */
    int *host, *place;    /* by rank */
    int *first;           /* by host, and one more: where its ranks begin in ... */
    int *members;         /* ... all ranks, host by host */
};

/* By rank; 0: not known, a host of its own. GM_ERR_NOMEM. */
gm_status gmi_layout_init(struct gmi_layout *layout, const uint64_t *host_ids, int n_ranks);
void      gmi_layout_fini(struct gmi_layout *layout); /* also a zeroed one */

static inline int gmi_layout_host_ranks(const struct gmi_layout *l, int host) { return l->first[host + 1] - l->first[host]; }
static inline int gmi_layout_rank(const struct gmi_layout *l, int host, int place) { return l->members[l->first[host] + place]; }

#endif
