/* binomial.h - the tree over which rooted collectives of small buffers go.
 *
 * Ranks are numbered from the root. The parent of number v is v without its lowest bit; so the
 * subtree of v is the numbers v, v+1, ..., v + low(v) - 1, as far as they exist, and all of a
 * subtree lies side by side:
 *
 *     N = 6          0
 *                 /  |  \
 *                1   2   4        subtree of 2: 2, 3      of 4: 4, 5
 *                    |   |
 *                    3   5
 *
 * ceil(log2 N) rounds go up or down this tree; between number v and its child v + d in the round of
 * d. */
#ifndef GMI_BINOMIAL_H
#define GMI_BINOMIAL_H

#include "coll/algo.h"

struct gmi_binomial {
    int n_ranks, root;
    int number; /* of the rank itself */
    int span;   /* its lowest bit; of the root the smallest power of two that is not below N */
};

static inline int gmi_binomial_rounds(int n_ranks)
{
    int rounds = 0;
    while (1 << rounds < n_ranks) rounds++;
    return rounds;
}

static inline struct gmi_binomial gmi_binomial_of(int n_ranks, int rank, int root)
{
    int number = (rank - root + n_ranks) % n_ranks;
    int span = number == 0 ? 1 << gmi_binomial_rounds(n_ranks) : number & -number;
    return (
        struct gmi_binomial){ .n_ranks = n_ranks, .root = root, .number = number, .span = span };
}

static inline struct gmi_binomial gmi_binomial_of_op(const struct gmi_op *op)
{
    return gmi_binomial_of(gmi_op_ranks(op), gmi_op_rank(op), op->call.root);
}

static inline int gmi_binomial_rank(const struct gmi_binomial *t, int number)
{
    return (number + t->root) % t->n_ranks;
}
static inline int gmi_binomial_parent(const struct gmi_binomial *t)
{
    return gmi_binomial_rank(t, t->number - t->span);
}

/* Does it have a child at this distance? */
static inline bool gmi_binomial_has_child(const struct gmi_binomial *t, int distance)
{
    return distance < t->span && t->number + distance < t->n_ranks;
}

/* The first number behind the subtree of `number`, which is a child at this distance or the rank
 * itself. */
static inline int gmi_binomial_end(const struct gmi_binomial *t, int number, int distance)
{
    return number + distance < t->n_ranks ? number + distance : t->n_ranks;
}

/* For rows: parent and children, and the neighbours in the ring, who greet each other. */
void gmi_binomial_peers(const struct gmi_shape *s, gmi_need_fn need, void *user);

#endif
