/* tree_gather.c - gather up a binomial tree and scatter down it, for small buffers: ceil(log2 N)
 * rounds.
 *
 * The chunks of a subtree lie side by side in the numbering from the root (binomial.h), so a rank
 * hands its whole subtree over at once:
 *
 *     N = 6, gather    d = 1                      d = 2          d = 4
 *                      1 -> 0, 3 -> 2, 5 -> 4     {2,3} -> 0     {4,5} -> 0
 *     scatter          the same arrows turned round, from right to left
 *
 * Chunks wait in op->work in the order of numbers. In the root's buffer they stand in the order of
 * ranks, in which the numbers wrap around behind the last rank; a subtree that does is handed over
 * as two transfers, on both sides. Neighbours in the ring greet each other, so that ranks that call
 * different things find out.
 *
 * Cost: ceil(log2 N) latencies. Gather: a rank sends the chunks of its subtree once; scatter: those
 * of its subtree without its own. A chunk travels once per level, so large ones had better go
 * straight (star.c).
 */
#include "coll/tree_gather.h"

#include <string.h>

#include "coll/binomial.h"
#include "coll/rounds.h"

/* ---- where chunks are ------------------------------------------------------------------------ */

/* Bytes of the chunks of numbers first .. end - 1. */
static size_t range_bytes(const struct gmi_binomial *t, const struct gmi_shape *s, int first,
                          int end)
{
    size_t bytes = 0;
    for (int number = first; number < end; number++)
        bytes += gmi_shape_chunk_bytes(s, gmi_binomial_rank(t, number));
    return bytes;
}

static struct gmi_shape shape_of(const struct gmi_op *op)
{
    return (struct gmi_shape){ .rank = gmi_op_rank(op),
                               .n_ranks = gmi_op_ranks(op),
                               .root = op->call.root,
                               .count_elems = op->count_elems,
                               .elem_bytes = op->codec.elem_bytes,
                               .counts = op->counts };
}

static bool has_children(const struct gmi_binomial *t) { return gmi_binomial_has_child(t, 1); }

/* The chunk of a number of our subtree, and those that follow up to the wrap. `whole`: the caller's
 * buffer here. */
static uint8_t *place(const struct gmi_op *op, const struct gmi_binomial *t, const uint8_t *whole,
                      int number)
{
    if (t->number == 0) return (uint8_t *)whole + gmi_op_chunk_at(op, gmi_binomial_rank(t, number));
    if (!has_children(t)) return (uint8_t *)whole;
    struct gmi_shape s = shape_of(op);
    return op->work + range_bytes(t, &s, t->number, number);
}

typedef void (*add_fn)(struct gmi_op *op, struct gmi_rounds *r, int peer, uint8_t *data,
                       size_t n_bytes);

static void add_send(struct gmi_op *op, struct gmi_rounds *r, int peer, uint8_t *data,
                     size_t n_bytes)
{
    gmi_rounds_send(op, r, peer, data, n_bytes);
}

static void add_recv(struct gmi_op *op, struct gmi_rounds *r, int peer, uint8_t *data,
                     size_t n_bytes)
{
    gmi_rounds_recv(op, r, peer, data, n_bytes);
}

/* The transfers of numbers first .. end - 1. */
static void add_range(struct gmi_op *op, struct gmi_rounds *r, add_fn add, int peer,
                      const uint8_t *whole, int first, int end)
{
    struct gmi_binomial t = gmi_binomial_of_op(op);
    struct gmi_shape    s = shape_of(op);
    int                 wrap = t.n_ranks - t.root; /* the number of rank 0 */
    if (first < wrap && wrap < end) {
        add(op, r, peer, place(op, &t, whole, first), range_bytes(&t, &s, first, wrap));
        first = wrap;
    }
    add(op, r, peer, place(op, &t, whole, first), range_bytes(&t, &s, first, end));
}

static void add_child(struct gmi_op *op, struct gmi_rounds *r, add_fn add, const uint8_t *whole,
                      int distance)
{
    struct gmi_binomial t = gmi_binomial_of_op(op);
    if (!gmi_binomial_has_child(&t, distance)) return;
    int child = t.number + distance;
    add_range(op, r, add, gmi_binomial_rank(&t, child), whole, child,
              gmi_binomial_end(&t, child, distance));
}

static void add_parent(struct gmi_op *op, struct gmi_rounds *r, add_fn add, const uint8_t *whole,
                       int distance)
{
    struct gmi_binomial t = gmi_binomial_of_op(op);
    if (t.number == 0 || distance != t.span) return;
    add_range(op, r, add, gmi_binomial_parent(&t), whole, t.number,
              gmi_binomial_end(&t, t.number, distance));
}

/* ---- the rounds ------------------------------------------------------------------------------ */

static bool prepare_gather(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_binomial t = gmi_binomial_of_op(op);
    const uint8_t      *whole = t.number == 0 ? op->output : op->input;
    size_t              own_bytes = gmi_op_chunk_bytes(op, gmi_op_rank(op));
    if (index == 0 && t.number != 0 && has_children(&t) && own_bytes > 0)
        memcpy(op->work, op->input, own_bytes);
    if (index == gmi_binomial_rounds(t.n_ranks)) return false;
    add_child(op, r, add_recv, whole, 1 << index);
    add_parent(op, r, add_send, whole, 1 << index);
    return true;
}

static bool prepare_scatter(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_binomial t = gmi_binomial_of_op(op);
    const uint8_t      *whole = t.number == 0 ? op->input : op->output;
    size_t              own_bytes = gmi_op_chunk_bytes(op, gmi_op_rank(op));
    int                 last = gmi_binomial_rounds(t.n_ranks) - 1;
    if (index > last) {
        if (t.number != 0 && has_children(&t) && own_bytes > 0)
            memcpy(op->output, op->work, own_bytes);
        return false;
    }
    add_parent(op, r, add_recv, whole, 1 << (last - index));
    add_child(op, r, add_send, whole, 1 << (last - index));
    return true;
}

static void begin_gather(struct gmi_op *op)
{
    gmi_rounds_begin(op, gmi_binomial_rounds(gmi_op_ranks(op)), prepare_gather);
    gmi_rounds_greet_neighbours(op);
}

static void begin_scatter(struct gmi_op *op)
{
    gmi_rounds_begin(op, gmi_binomial_rounds(gmi_op_ranks(op)), prepare_scatter);
    gmi_rounds_greet_neighbours(op);
}

/* ---- what it takes --------------------------------------------------------------------------- */

static size_t subtree_bytes(const struct gmi_shape *s)
{
    struct gmi_binomial t = gmi_binomial_of(s->n_ranks, s->rank, s->root);
    return range_bytes(&t, s, t.number, gmi_binomial_end(&t, t.number, t.span));
}

static uint64_t gather_bytes(const struct gmi_shape *s)
{
    return s->rank == s->root ? 0 : subtree_bytes(s);
}
static uint64_t scatter_bytes(const struct gmi_shape *s)
{
    return subtree_bytes(s) - gmi_shape_own_bytes(s);
}

static size_t work_bytes(const struct gmi_shape *s)
{
    struct gmi_binomial t = gmi_binomial_of(s->n_ranks, s->rank, s->root);
    return t.number == 0 || !has_children(&t) ? 0 : subtree_bytes(s);
}

/* The root's link carries as much as without a tree, in ceil(log2 N) messages; inside the tree a chunk
 * travels once per level. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    int    rounds = gmi_binomial_rounds(n_ranks);
    double moved = bytes * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = rounds,
                                .messages = rounds / 2.0,
                                .all_messages = n_ranks - 1,
                                .recv_bytes = moved,
                                .all_bytes = bytes / 2 * rounds,
                                .kept_bytes = bytes / 2 };
}

#define TREE_ROW                                                                                   \
    .id = GMI_ALGO_TREE, .name = "tree", .progress = gmi_rounds_progress, .interest = gmi_rounds_interest, \
    .peers = gmi_binomial_peers, .work_bytes = work_bytes, .effort = effort

const struct gmi_algo gmi_tree_gather = {
    TREE_ROW,
    .collective = GM_GATHER,
    .summary =
        "subtrees go up a binomial tree: ceil(log2 N) rounds, a chunk travels once per level",
    .begin = begin_gather,
    .payload_sent_bytes = gather_bytes,
};
const struct gmi_algo gmi_tree_scatter = {
    TREE_ROW,
    .collective = GM_SCATTER,
    .summary =
        "subtrees go down a binomial tree: ceil(log2 N) rounds, a chunk travels once per level",
    .begin = begin_scatter,
    .payload_sent_bytes = scatter_bytes,
};
