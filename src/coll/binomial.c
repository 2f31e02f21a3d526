#include "coll/binomial.h"

void gmi_binomial_peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    struct gmi_binomial t = gmi_binomial_of(s->n_ranks, s->rank, s->root);
    gmi_ring_peers(s, need, user);
    if (t.number != 0) need(user, gmi_binomial_parent(&t));
    for (int distance = 1; distance < t.span; distance *= 2) {
        if (gmi_binomial_has_child(&t, distance))
            need(user, gmi_binomial_rank(&t, t.number + distance));
    }
}
