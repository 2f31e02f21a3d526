/* star.c - gather and scatter straight between the root and every other rank.
 *
 *     gather                      scatter
 *       1   2   3                   1   2   3
 *        \  |  /                    ^   ^   ^        every chunk moves once, as little as can be;
 *        the root's link
 *         v v v                      \  |  /         carries all of them
 *          root                        root
 *
 * The root serves GMI_MAX_TRANSFERS ranks at a time, in the order of their distance. Neighbours in
 * the ring greet each other, so that ranks that call different things find out whomever they take
 * for the root.
 *
 * Cost: one latency for each batch. Gather: rank r sends chunk(r); scatter: the root sends D -
 * chunk(root).
 */
#include "coll/star.h"

#include "coll/rounds.h"

static int n_batches(const struct gmi_op *op)
{
    return gmi_op_rank(op) == op->call.root ? gmi_n_batches(gmi_op_ranks(op) - 1) : 1;
}

static bool prepare_gather(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op), root = op->call.root;
    if (index == n_batches(op)) return false;
    if (rank != root) {
        gmi_rounds_send(op, r, root, op->input, gmi_op_chunk_bytes(op, rank));
        return true;
    }
    for (int distance = gmi_batch_first(index); distance < gmi_batch_end(index, n - 1);
         distance++) {
        int from = (rank + distance) % n;
        gmi_rounds_recv(op, r, from, op->output + gmi_op_chunk_at(op, from),
                        gmi_op_chunk_bytes(op, from));
    }
    return true;
}

static bool prepare_scatter(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op), root = op->call.root;
    if (index == n_batches(op)) return false;
    if (rank != root) {
        gmi_rounds_recv(op, r, root, op->output, gmi_op_chunk_bytes(op, rank));
        return true;
    }
    for (int distance = gmi_batch_first(index); distance < gmi_batch_end(index, n - 1);
         distance++) {
        int to = (rank + distance) % n;
        gmi_rounds_send(op, r, to, op->input + gmi_op_chunk_at(op, to), gmi_op_chunk_bytes(op, to));
    }
    return true;
}

static void begin_gather(struct gmi_op *op)
{
    gmi_rounds_begin(op, n_batches(op), prepare_gather);
    gmi_rounds_greet_neighbours(op);
}

static void begin_scatter(struct gmi_op *op)
{
    gmi_rounds_begin(op, n_batches(op), prepare_scatter);
    gmi_rounds_greet_neighbours(op);
}

static void peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    if (s->rank == s->root) {
        gmi_all_peers(s, need, user);
        return;
    }
    gmi_ring_peers(s, need, user);
    need(user, s->root);
}

static uint64_t gather_bytes(const struct gmi_shape *s)
{
    return s->rank == s->root ? 0 : gmi_shape_own_bytes(s);
}

static uint64_t scatter_bytes(const struct gmi_shape *s)
{
    return s->rank == s->root ? gmi_shape_bytes(s) - gmi_shape_own_bytes(s) : 0;
}

/* The root's link carries everything, with no detours. Its messages do not wait for each other: two cost as much as
 * one that does. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    double moved = bytes * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = gmi_n_batches(n_ranks - 1),
                                .messages = (n_ranks - 1) / 2.0,
                                .all_messages = n_ranks - 1,
                                .recv_bytes = moved,
                                .all_bytes = moved };
}

#define STAR_ROW                                                                                   \
    .id = GMI_ALGO_DIRECT, .name = "direct", .progress = gmi_rounds_progress, .interest = gmi_rounds_interest, \
    .peers = peers, .effort = effort

const struct gmi_algo gmi_star_gather = {
    STAR_ROW,
    .collective = GM_GATHER,
    .summary = "every chunk straight to the root: chunk(r) bytes by rank r",
    .begin = begin_gather,
    .payload_sent_bytes = gather_bytes,
};
const struct gmi_algo gmi_star_scatter = {
    STAR_ROW,
    .collective = GM_SCATTER,
    .summary = "every chunk straight from the root: D - chunk(root) bytes by the root",
    .begin = begin_scatter,
    .payload_sent_bytes = scatter_bytes,
};
