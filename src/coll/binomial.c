#include "coll/binomial.h"

void gmi_binomial_peers(int n_ranks, int rank, int root, gmi_need_fn need, void *user)
{
    struct gmi_binomial t = gmi_binomial_of(n_ranks, rank, root);
    gmi_ring_peers(n_ranks, rank, root, need, user);
    if (t.number != 0) need(user, gmi_binomial_parent(&t));
    for (int distance = 1; distance < t.span; distance *= 2) {
        if (gmi_binomial_has_child(&t, distance))
            need(user, gmi_binomial_rank(&t, t.number + distance));
    }
}
