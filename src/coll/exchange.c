/* exchange.c - all-reduce in one round, for very small buffers: everybody sends everything to everybody.
 *
 * Each rank then has all N contributions and adds them up itself, in the order of ranks 0, 1, ..., N-1, so all
 * get the same bits.
 *
 * Cost: one latency, N-1 messages and D (N-1) bytes by each rank. For few ranks and few bytes nothing is
 * faster; with many of either nothing is slower.
 */
#include "coll/exchange.h"

#include "coll/rounds.h"

/* op->work: one slot for each rank's contribution; the own slot stays unused. */
static uint8_t *slot(const struct gmi_op *op, int rank)
{
    return op->work + (size_t)rank * op->count_elems * op->codec.elem_bytes;
}

static void settle(struct gmi_op *op)
{
    struct gmi_contributions all = { .n = gmi_op_ranks(op),
                                     .base = op->work,
                                     .stride_bytes = op->count_elems * op->codec.elem_bytes,
                                     .own = gmi_op_rank(op),
                                     .own_at = op->input };
    gmi_codec_settle(&op->codec, op->output, &all, op->count_elems);
}

static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int    n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    size_t bytes = op->count_elems * op->codec.elem_bytes;
    if (index == 1) {
        settle(op);
        return false;
    }
    for (int distance = 1; distance < n; distance++) { /* not all to rank 0 first */
        gmi_rounds_send(op, r, (rank + distance) % n, op->input, bytes);
        gmi_rounds_recv(op, r, (rank - distance + n) % n, slot(op, (rank - distance + n) % n), bytes);
    }
    return true;
}

static void begin(struct gmi_op *op) { gmi_rounds_begin(op, 1, prepare); }

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    return gmi_shape_bytes(s) * (uint64_t)(s->n_ranks - 1);
}

static struct gmi_effort effort(int n_ranks, double bytes)
{
    double moved = bytes * (n_ranks - 1);
    return (struct gmi_effort){ .turns = 1, .messages = n_ranks - 1, .all_messages = n_ranks * (n_ranks - 1),
                                .sent_bytes = moved, .recv_bytes = moved, .all_bytes = moved * n_ranks,
                                .reduced_bytes = moved, .kept_bytes = moved };
}

static size_t work_bytes(const struct gmi_shape *s)
{
    return (size_t)s->n_ranks * gmi_shape_bytes(s);
}

const struct gmi_algo gmi_exchange_all_reduce = {
    .id = GMI_ALGO_EXCHANGE,
    .name = "exchange",
    .collective = GM_ALL_REDUCE,
    .summary = "everybody's whole buffer straight to everybody: D (N-1) bytes, one round",
    .max_ranks = GMI_MAX_TRANSFERS + 1,
    .adding_phase = "exchange",
    .placing_phase = "exchange",
    .shows = GMI_VIEW_ALL,
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = gmi_all_peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = work_bytes,
};
