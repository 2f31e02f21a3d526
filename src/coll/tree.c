/* tree.c - broadcast down a binomial tree, for small buffers: ceil(log2 N) rounds.
 *
 * Ranks are counted from the root. In round k the first 2^k of them have the data, and number v hands it to
 * number v + 2^k, if there is one:
 *
 *     N = 6      round 0     round 1         round 2
 *                0 -> 1      0 -> 2, 1 -> 3  0 -> 4, 1 -> 5
 *
 * Parents and children alone would not notice all differences: with two roots, or with sizes that make some
 * ranks take the chain, ranks might wait for each other on different links, or believe that they are done. So
 * neighbours in the ring greet each other besides.
 *
 * Cost: ceil(log2 N) latencies; a rank sends D bytes to each of its children, N-1 times D over all ranks.
 */
#include "coll/tree.h"

#include "coll/rounds.h"

static int n_rounds(int n_ranks)
{
    int rounds = 0;
    while (1 << rounds < n_ranks) rounds++;
    return rounds;
}

static int number_of(int n_ranks, int rank, int root) { return (rank - root + n_ranks) % n_ranks; }
static int rank_of(int n_ranks, int number, int root) { return (number + root) % n_ranks; }

static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = gmi_op_ranks(op), root = op->call.root, number = number_of(n, gmi_op_rank(op), root);
    if (index == n_rounds(n)) return false;
    size_t bytes = op->count_elems * op->codec.elem_bytes;
    int    have = 1 << index;
    if (number < have && number + have < n) {
        gmi_rounds_send(op, r, rank_of(n, number + have, root), op->output, bytes);
    } else if (number >= have && number < 2 * have) {
        gmi_rounds_recv(op, r, rank_of(n, number - have, root), op->output, bytes);
    }
    return true;
}

static void begin(struct gmi_op *op)
{
    gmi_rounds_begin(op, n_rounds(gmi_op_ranks(op)), prepare);
    gmi_rounds_greet_neighbours(op);
}

static void peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    int number = number_of(s->n_ranks, s->rank, s->root);
    need(user, (s->rank + 1) % s->n_ranks);
    need(user, (s->rank + s->n_ranks - 1) % s->n_ranks);
    for (int have = 1; have < s->n_ranks; have *= 2) {
        if (number < have && number + have < s->n_ranks) need(user, rank_of(s->n_ranks, number + have, s->root));
        if (number >= have && number < 2 * have) need(user, rank_of(s->n_ranks, number - have, s->root));
    }
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    int      number = number_of(s->n_ranks, s->rank, s->root);
    uint64_t children = 0;
    for (int have = 1; have < s->n_ranks; have *= 2) children += number < have && number + have < s->n_ranks;
    return gmi_shape_bytes(s) * children;
}

/* The root sends the whole buffer in each round; to greet a neighbour is half a message. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    int rounds = n_rounds(n_ranks);
    return (struct gmi_effort){ .turns = rounds, .messages = rounds, .all_messages = 1.5 * (n_ranks - 1),
                                .sent_bytes = bytes * rounds, .all_bytes = bytes * (n_ranks - 1), .kept_bytes = bytes };
}

const struct gmi_algo gmi_tree_broadcast = {
    .id = GMI_ALGO_TREE,
    .name = "tree",
    .collective = GM_BROADCAST,
    .summary = "down a binomial tree from the root: D bytes to each child, ceil(log2 N) rounds",
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
};
