/* tree_reduce.c - reduce up a binomial tree, for small buffers: ceil(log2 N) rounds of the whole
 * buffer.
 *
 * In the round of d = 1, 2, 4, ... the number v (counted from the root, see binomial.h) that has a
 * child v + d gets that child's sum and adds it to its own; a number whose lowest bit is d gives
 * its sum to its parent:
 *
 *     N = 6     d = 1           d = 2              d = 4
 *               0+1, 2+3, 4+5   (0+1)+(2+3)        ((0+1)+(2+3))+(4+5)
 *
 * The order depends on N and the root only, so the bits do too. Neighbours in the ring greet each
 * other, so that ranks that call different things find out whatever their trees are.
 *
 * Cost: ceil(log2 N) latencies; every rank but the root sends D bytes.
 */
#include "coll/tree_reduce.h"

#include "coll/binomial.h"
#include "coll/rounds.h"

/* op->work: what a child sent; behind it, on a rank with children that is not the root, our sum. */
static uint8_t *sum_of(const struct gmi_op *op, const struct gmi_binomial *t)
{
    return t->number == 0 ? op->output : op->work + gmi_op_bytes(op);
}

/* What this rank has after the rounds of the distances below `distance`. */
static const uint8_t *have(const struct gmi_op *op, const struct gmi_binomial *t, int distance)
{
    return distance == 1 || !gmi_binomial_has_child(t, 1) ? op->input : sum_of(op, t);
}

static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_binomial t = gmi_binomial_of_op(op);
    size_t bytes = gmi_op_bytes(op);
    int    distance = 1 << index, before = distance / 2;
    if (before > 0 && gmi_binomial_has_child(&t, before)) {
        gmi_codec_combine(&op->codec, sum_of(op, &t), op->work, have(op, &t, before),
                          op->count_elems);
    }
    if (index == gmi_binomial_rounds(t.n_ranks)) {
        if (t.number == 0 && op->codec.finish != NULL)
            op->codec.finish(op->output, op->count_elems, t.n_ranks);
        return false;
    }
    if (gmi_binomial_has_child(&t, distance)) {
        gmi_rounds_recv(op, r, gmi_binomial_rank(&t, t.number + distance), op->work, bytes);
    } else if (distance == t.span) {
        gmi_rounds_send(op, r, gmi_binomial_parent(&t), have(op, &t, distance), bytes);
    }
    return true;
}

static void begin(struct gmi_op *op)
{
    gmi_rounds_begin(op, gmi_binomial_rounds(gmi_op_ranks(op)), prepare);
    gmi_rounds_greet_neighbours(op);
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    return s->rank == s->root ? 0 : gmi_shape_bytes(s);
}

static struct gmi_effort effort(int n_ranks, double bytes)
{
    int rounds = gmi_binomial_rounds(n_ranks);
    return (struct gmi_effort){ .turns = rounds,
                                .messages = rounds,
                                .all_messages = 1.5 * (n_ranks - 1), /* to greet a neighbour is half of one */
                                .recv_bytes = bytes * rounds,
                                .all_bytes = bytes * (n_ranks - 1),
                                .reduced_bytes = bytes * rounds,
                                .kept_bytes = bytes };
}

static size_t work_bytes(const struct gmi_shape *s)
{
    struct gmi_binomial t = gmi_binomial_of(s->n_ranks, s->rank, s->root);
    if (!gmi_binomial_has_child(&t, 1)) return 0;
    return gmi_shape_bytes(s) * (t.number == 0 ? 1 : 2);
}

const struct gmi_algo gmi_tree_reduce = {
    .id = GMI_ALGO_TREE,
    .name = "tree",
    .collective = GM_REDUCE,
    .summary =
        "sums go up a binomial tree to the root: D bytes by all but the root, ceil(log2 N) rounds",
    .shows = GMI_VIEW_ONCE,
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = gmi_binomial_peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = work_bytes,
};
