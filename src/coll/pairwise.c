/* pairwise.c - all-to-all: every rank has a chunk for every rank.
 *
 *     round i = 1 .. N-1:   rank r sends to r + i and receives from r - i     (mod N)
 *
 * Each chunk moves once, straight. Pairwise exchange has one peer on either side at a time, so that
 * a link carries one full stream and nobody is flooded; "direct" is the same with up to
 * GMI_MAX_TRANSFERS rounds at once, which saves latencies for small chunks. Every pair of ranks
 * compares descriptors, with the count of that pair.
 *
 * Cost: D - chunk(r) bytes sent by rank r; N-1 latencies, or one for each batch. In place the input
 * is copied first.
 */
#include "coll/pairwise.h"

#include "coll/rounds.h"

static void exchange(struct gmi_op *op, struct gmi_rounds *r, int distance)
{
    int n = gmi_op_ranks(op), to = (gmi_op_rank(op) + distance) % n,
        from = (gmi_op_rank(op) - distance + n) % n;
    gmi_rounds_send(op, r, to, op->input + gmi_op_chunk_at(op, to), gmi_op_chunk_bytes(op, to));
    gmi_rounds_recv(op, r, from, op->output + gmi_op_arrival_at(op, from),
                    gmi_op_arrival_bytes(op, from));
}

static bool prepare_one(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    if (index == gmi_op_ranks(op) - 1) return false;
    exchange(op, r, index + 1);
    return true;
}

static bool prepare_many(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n_peers = gmi_op_ranks(op) - 1;
    if (index == gmi_n_batches(n_peers)) return false;
    for (int distance = gmi_batch_first(index); distance < gmi_batch_end(index, n_peers);
         distance++)
        exchange(op, r, distance);
    return true;
}

static void begin_one(struct gmi_op *op)
{
    gmi_rounds_begin(op, gmi_op_ranks(op) - 1, prepare_one);
}
static void begin_many(struct gmi_op *op)
{
    gmi_rounds_begin(op, gmi_n_batches(gmi_op_ranks(op) - 1), prepare_many);
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    return gmi_shape_bytes(s) - gmi_shape_own_bytes(s);
}

static size_t work_bytes(const struct gmi_shape *s)
{
    return s->is_in_place ? gmi_shape_bytes(s) : 0;
}

static struct gmi_effort in_rounds(int n_ranks, double bytes, int n_rounds, double kept_bytes)
{
    double moved = bytes * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = n_rounds,
                                .messages = n_ranks - 1,
                                .all_messages = n_ranks * (n_ranks - 1),
                                .sent_bytes = moved, .recv_bytes = moved,
                                .all_bytes = moved * n_ranks,
                                .kept_bytes = kept_bytes };
}

static struct gmi_effort pairwise_effort(int n_ranks, double bytes)
{
    return in_rounds(n_ranks, bytes, n_ranks - 1, bytes / n_ranks);
}

static struct gmi_effort direct_effort(int n_ranks, double bytes)
{
    return in_rounds(n_ranks, bytes, gmi_n_batches(n_ranks - 1), bytes * (n_ranks - 1) / n_ranks);
}

#define ALL_TO_ALL_ROW                                                                             \
    .collective = GM_ALL_TO_ALL, .progress = gmi_rounds_progress, .interest = gmi_rounds_interest, \
    .peers = gmi_all_peers, .payload_sent_bytes = payload_sent_bytes, .work_bytes = work_bytes

const struct gmi_algo gmi_pairwise_all_to_all = {
    ALL_TO_ALL_ROW,
    .id = GMI_ALGO_PAIRWISE,
    .name = "pairwise",
    .summary = "one peer on either side at a time: D (N-1)/N bytes, N-1 rounds",
    .begin = begin_one,
    .effort = pairwise_effort,
};
const struct gmi_algo gmi_direct_all_to_all = {
    ALL_TO_ALL_ROW,
    .id = GMI_ALGO_DIRECT,
    .name = "direct",
    .summary = "all peers at once: D (N-1)/N bytes, one round",
    .begin = begin_many,
    .effort = direct_effort,
};
