/* direct.c - reduce-scatter, all-gather and all-reduce without detours: every chunk straight to its owner.
 *
 *     reduce-scatter    rank r sends chunk j of its buffer to rank j, for all j, and combines the N
 *                       contributions to chunk r in the order of ranks 0, 1, ..., N-1
 *     all-gather        rank r sends the finished chunk r to all others
 *
 * The same bytes as the ring in two latencies instead of 2(N-1), at the price of N-1 peers. The owner sees every
 * contribution, so the bits depend on values and N only, not on where chunks begin, and what must be rounded
 * once can be.
 *
 * Each phase is one round, or several in a large world: a batch of distances 1 .. 15, 16 .. 30 and so on, in which
 * rank r sends to r + distance and receives from r - distance. Ranks need not be in the same batch: one that is
 * behind waits only for others in its batch or behind it, so somebody can always go on.
 *
 * Cost: D - chunk(r), then (N-1) chunk(r), bytes sent by rank r; over all ranks 2 (N-1) D. Source: the naming
 * and the bounds are those of Thakur, Rabenseifner, Gropp (2005), section 4.4.
 */
#include "coll/direct.h"

#include "coll/rounds.h"

static size_t own_bytes(const struct gmi_op *op) { return gmi_op_chunk_bytes(op, gmi_op_rank(op)); }

static uint8_t *own_output(const struct gmi_op *op)
{
    return op->own_output != NULL ? op->own_output : op->output + gmi_op_chunk_at(op, gmi_op_rank(op));
}

/* op->work: one slot for each rank's contribution to our chunk; the own slot stays unused. */
static uint8_t *slot(const struct gmi_op *op, int rank) { return op->work + (size_t)rank * own_bytes(op); }

static void settle(struct gmi_op *op)
{
    int rank = gmi_op_rank(op);
    struct gmi_contributions all = { .n = gmi_op_ranks(op),
                                     .base = op->work,
                                     .stride_bytes = own_bytes(op),
                                     .own = rank,
                                     .own_at = op->input + gmi_op_chunk_at(op, rank) };
    gmi_codec_settle(&op->codec, own_output(op), &all, own_bytes(op) / op->codec.elem_bytes);
}

/* ---- batches ------------------------------------------------------------------------------------ */

static int n_batches(const struct gmi_op *op)
{
    return (gmi_op_ranks(op) - 1 + GMI_MAX_TRANSFERS - 1) / GMI_MAX_TRANSFERS;
}

struct distances {
    int first, end;
};

static struct distances batch(const struct gmi_op *op, int index)
{
    int first = 1 + index * GMI_MAX_TRANSFERS, end = first + GMI_MAX_TRANSFERS;
    return (struct distances){ first, end < gmi_op_ranks(op) ? end : gmi_op_ranks(op) };
}

static void send_chunks_to_owners(struct gmi_op *op, struct gmi_rounds *r, struct distances d)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    for (int distance = d.first; distance < d.end; distance++) {
        int to = (rank + distance) % n, from = (rank - distance + n) % n;
        gmi_rounds_send(op, r, to, op->input + gmi_op_chunk_at(op, to), gmi_op_chunk_bytes(op, to));
        gmi_rounds_recv(op, r, from, slot(op, from), own_bytes(op));
    }
}

static void send_own_chunk_to_all(struct gmi_op *op, struct gmi_rounds *r, struct distances d)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    for (int distance = d.first; distance < d.end; distance++) {
        int to = (rank + distance) % n, from = (rank - distance + n) % n;
        gmi_rounds_send(op, r, to, own_output(op), own_bytes(op));
        gmi_rounds_recv(op, r, from, op->output + gmi_op_chunk_at(op, from), gmi_op_chunk_bytes(op, from));
    }
}

/* ---- the collectives ---------------------------------------------------------------------------- */

static bool prepare_reduce_scatter(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    if (index < n_batches(op)) {
        send_chunks_to_owners(op, r, batch(op, index));
        return true;
    }
    settle(op);
    return false;
}

static bool prepare_all_gather(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    if (index < n_batches(op)) send_own_chunk_to_all(op, r, batch(op, index));
    return index < n_batches(op);
}

static bool prepare_all_reduce(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = n_batches(op);
    if (index <= n && prepare_reduce_scatter(op, r, index)) return true;
    return prepare_all_gather(op, r, index - n);
}

static void begin_all_reduce(struct gmi_op *op) { gmi_rounds_begin(op, 2 * n_batches(op), prepare_all_reduce); }
static void begin_reduce_scatter(struct gmi_op *op) { gmi_rounds_begin(op, n_batches(op), prepare_reduce_scatter); }
static void begin_all_gather(struct gmi_op *op) { gmi_rounds_begin(op, n_batches(op), prepare_all_gather); }

static uint64_t reduce_scatter_bytes(int n_ranks, int rank, size_t count_elems, size_t elem_bytes, int root)
{
    (void)root;
    return (uint64_t)(count_elems - gmi_chunk_elems(count_elems, n_ranks, rank)) * elem_bytes;
}

static uint64_t all_gather_bytes(int n_ranks, int rank, size_t count_elems, size_t elem_bytes, int root)
{
    (void)root;
    return (uint64_t)gmi_chunk_elems(count_elems, n_ranks, rank) * elem_bytes * (uint64_t)(n_ranks - 1);
}

static uint64_t all_reduce_bytes(int n_ranks, int rank, size_t count_elems, size_t elem_bytes, int root)
{
    return reduce_scatter_bytes(n_ranks, rank, count_elems, elem_bytes, root) +
           all_gather_bytes(n_ranks, rank, count_elems, elem_bytes, root);
}

/* N slots of the longest chunk. */
static size_t work_bytes(int n_ranks, size_t count_elems, size_t elem_bytes, bool is_in_place)
{
    (void)is_in_place;
    return (size_t)n_ranks * gmi_chunk_elems(count_elems, n_ranks, 0) * elem_bytes;
}

#define DIRECT_ROW                                                                                 \
    .id = GMI_ALGO_DIRECT, .name = "direct", .shows = GMI_VIEW_ALL,                                \
    .progress = gmi_rounds_progress, .interest = gmi_rounds_interest, .peers = gmi_all_peers

const struct gmi_algo gmi_direct_all_reduce = {
    DIRECT_ROW,
    .collective = GM_ALL_REDUCE,
    .summary = "chunks straight to their owners, sums straight to all: 2 D (N-1)/N bytes, two rounds (more beyond 16 ranks)",
    .begin = begin_all_reduce,
    .payload_sent_bytes = all_reduce_bytes,
    .work_bytes = work_bytes,
};
const struct gmi_algo gmi_direct_reduce_scatter = {
    DIRECT_ROW,
    .collective = GM_REDUCE_SCATTER,
    .summary = "chunks straight to their owners: D (N-1)/N bytes, one round",
    .begin = begin_reduce_scatter,
    .payload_sent_bytes = reduce_scatter_bytes,
    .work_bytes = work_bytes,
};
const struct gmi_algo gmi_direct_all_gather = {
    DIRECT_ROW,
    .collective = GM_ALL_GATHER,
    .summary = "everybody's chunk straight to all: D (N-1)/N bytes, one round",
    .begin = begin_all_gather,
    .payload_sent_bytes = all_gather_bytes,
};
