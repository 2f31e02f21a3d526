/* direct.c - reduce-scatter, all-gather, all-reduce and reduce without detours: every chunk
 * straight to its owner.
 *
 *     reduce-scatter    rank r sends chunk j of its buffer to rank j, for all j, and combines the N
 *                       contributions to chunk r in the order of ranks 0, 1, ..., N-1
 *     all-gather        rank r sends the finished chunk r to all others
 *     gather            rank r sends the finished chunk r to the root
 *
 * All-reduce is the first and the second, reduce the first and the third. The same bytes as the
 * ring in two latencies instead of 2(N-1), at the price of N-1 peers. The owner sees every
 * contribution, so the bits depend on values and N only, not on where chunks begin, and what must
 * be rounded once can be.
 *
 * Each phase is one round, or several in a large world: a batch of distances 1 .. 15, 16 .. 30 and
 * so on, in which rank r sends to r + distance and receives from r - distance. Ranks need not be in
 * the same batch: one that is behind waits only for others in its batch or behind it, so somebody
 * can always go on.
 *
 * Cost: D - chunk(r), then (N-1) chunk(r) or, to the root, chunk(r) bytes sent by rank r. Source:
 * the naming and the bounds are those of Thakur, Rabenseifner, Gropp (2005), section 4.4.
 */
#include "coll/direct.h"

#include "coll/rounds.h"

static size_t own_bytes(const struct gmi_op *op) { return gmi_op_chunk_bytes(op, gmi_op_rank(op)); }

static uint8_t *own_output(const struct gmi_op *op)
{
    return op->own_output != NULL ? op->own_output
                                  : op->output + gmi_op_chunk_at(op, gmi_op_rank(op));
}

/* op->work: one slot for each rank's contribution to our chunk; the own slot stays unused. */
static uint8_t *slot(const struct gmi_op *op, int rank)
{
    return op->work + (size_t)rank * own_bytes(op);
}

static void settle(struct gmi_op *op, uint8_t *to)
{
    int rank = gmi_op_rank(op);
    struct gmi_contributions all = { .n = gmi_op_ranks(op),
                                     .base = op->work,
                                     .stride_bytes = own_bytes(op),
                                     .own = rank,
                                     .own_at = op->input + gmi_op_chunk_at(op, rank) };
    gmi_codec_settle(&op->codec, to, &all, own_bytes(op) / op->codec.elem_bytes);
}

static int n_batches(const struct gmi_op *op) { return gmi_n_batches(gmi_op_ranks(op) - 1); }

static void send_chunks_to_owners(struct gmi_op *op, struct gmi_rounds *r, int batch)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    for (int distance = gmi_batch_first(batch); distance < gmi_batch_end(batch, n - 1);
         distance++) {
        int to = (rank + distance) % n, from = (rank - distance + n) % n;
        gmi_rounds_send(op, r, to, op->input + gmi_op_chunk_at(op, to), gmi_op_chunk_bytes(op, to));
        gmi_rounds_recv(op, r, from, slot(op, from), own_bytes(op));
    }
}

static void send_own_chunk_to_all(struct gmi_op *op, struct gmi_rounds *r, int batch)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    for (int distance = gmi_batch_first(batch); distance < gmi_batch_end(batch, n - 1);
         distance++) {
        int to = (rank + distance) % n, from = (rank - distance + n) % n;
        gmi_rounds_send(op, r, to, own_output(op), own_bytes(op));
        gmi_rounds_recv(op, r, from, op->output + gmi_op_chunk_at(op, from),
                        gmi_op_chunk_bytes(op, from));
    }
}

static void send_own_chunk_to_root(struct gmi_op *op, struct gmi_rounds *r, int batch)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op), root = op->call.root;
    if (rank != root) {
        if (batch == 0) gmi_rounds_send(op, r, root, slot(op, rank), own_bytes(op));
        return;
    }
    for (int distance = gmi_batch_first(batch); distance < gmi_batch_end(batch, n - 1);
         distance++) {
        int from = (rank - distance + n) % n;
        gmi_rounds_recv(op, r, from, op->output + gmi_op_chunk_at(op, from),
                        gmi_op_chunk_bytes(op, from));
    }
}

/* ---- the collectives ------------------------------------------------------------------------- */

static bool prepare_reduce_scatter(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    if (index < n_batches(op)) {
        send_chunks_to_owners(op, r, index);
        return true;
    }
    settle(op, own_output(op));
    return false;
}

static bool prepare_all_gather(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    if (index < n_batches(op)) send_own_chunk_to_all(op, r, index);
    return index < n_batches(op);
}

static bool prepare_all_reduce(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = n_batches(op);
    if (index <= n && prepare_reduce_scatter(op, r, index)) return true;
    return prepare_all_gather(op, r, index - n);
}

static bool prepare_reduce(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = n_batches(op), rank = gmi_op_rank(op);
    if (index < n) {
        send_chunks_to_owners(op, r, index);
        return true;
    }
    if (index == n) settle(op, rank == op->call.root ? own_output(op) : slot(op, rank));
    if (index < 2 * n) send_own_chunk_to_root(op, r, index - n);
    return index < 2 * n;
}

static void begin_all_reduce(struct gmi_op *op)
{
    gmi_rounds_begin(op, 2 * n_batches(op), prepare_all_reduce);
}
static void begin_reduce(struct gmi_op *op)
{
    gmi_rounds_begin(op, 2 * n_batches(op), prepare_reduce);
}
static void begin_reduce_scatter(struct gmi_op *op)
{
    gmi_rounds_begin(op, n_batches(op), prepare_reduce_scatter);
}
static void begin_all_gather(struct gmi_op *op)
{
    gmi_rounds_begin(op, n_batches(op), prepare_all_gather);
}

static uint64_t reduce_scatter_bytes(const struct gmi_shape *s)
{
    return gmi_shape_bytes(s) - gmi_shape_own_bytes(s);
}

static uint64_t all_gather_bytes(const struct gmi_shape *s)
{
    return gmi_shape_own_bytes(s) * (uint64_t)(s->n_ranks - 1);
}

static uint64_t all_reduce_bytes(const struct gmi_shape *s)
{
    return reduce_scatter_bytes(s) + all_gather_bytes(s);
}

static uint64_t reduce_bytes(const struct gmi_shape *s)
{
    return reduce_scatter_bytes(s) + (s->rank == s->root ? 0 : gmi_shape_own_bytes(s));
}

/* All peers at once: what comes is kept until the last of it is here. */
static struct gmi_effort once(int n_ranks, double bytes, bool is_summed)
{
    double moved = bytes * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = gmi_n_batches(n_ranks - 1),
                                .messages = n_ranks - 1,
                                .all_messages = n_ranks * (n_ranks - 1),
                                .sent_bytes = moved, .recv_bytes = moved,
                                .all_bytes = moved * n_ranks,
                                .reduced_bytes = is_summed ? moved : 0,
                                .kept_bytes = moved };
}

static struct gmi_effort reduce_scatter_effort(int n_ranks, double bytes)
{
    return once(n_ranks, bytes, true);
}

static struct gmi_effort all_gather_effort(int n_ranks, double bytes)
{
    return once(n_ranks, bytes, false);
}

static struct gmi_effort all_reduce_effort(int n_ranks, double bytes)
{
    return gmi_effort_sum(once(n_ranks, bytes, true), once(n_ranks, bytes, false));
}

/* All ranks send one chunk, and the root receives all. */
static struct gmi_effort reduce_effort(int n_ranks, double bytes)
{
    struct gmi_effort up = once(n_ranks, bytes, false);
    up.all_bytes = up.recv_bytes;
    up.sent_bytes = 0;
    up.all_messages = n_ranks - 1;
    return gmi_effort_sum(once(n_ranks, bytes, true), up);
}

/* N slots of our own chunk. */
static size_t work_bytes(const struct gmi_shape *s)
{
    return (size_t)s->n_ranks * gmi_shape_own_bytes(s);
}

#define DIRECT_ROW                                                                                 \
    .id = GMI_ALGO_DIRECT, .name = "direct", .shows = GMI_VIEW_ALL,                                \
    .progress = gmi_rounds_progress, .interest = gmi_rounds_interest, .peers = gmi_all_peers

const struct gmi_algo gmi_direct_all_reduce = {
    DIRECT_ROW,
    .collective = GM_ALL_REDUCE,
    .summary = "chunks straight to their owners, sums straight to all: 2 D (N-1)/N bytes, two "
               "rounds (more beyond 16 ranks)",
    .begin = begin_all_reduce,
    .payload_sent_bytes = all_reduce_bytes,
    .effort = all_reduce_effort,
    .work_bytes = work_bytes,
};
const struct gmi_algo gmi_direct_reduce = {
    DIRECT_ROW,
    .collective = GM_REDUCE,
    .summary = "chunks straight to their owners, sums straight to the root: D bytes, two rounds "
               "(more beyond 16 ranks)",
    .begin = begin_reduce,
    .payload_sent_bytes = reduce_bytes,
    .effort = reduce_effort,
    .work_bytes = work_bytes,
};
const struct gmi_algo gmi_direct_reduce_scatter = {
    DIRECT_ROW,
    .collective = GM_REDUCE_SCATTER,
    .summary = "chunks straight to their owners: D (N-1)/N bytes, one round",
    .begin = begin_reduce_scatter,
    .payload_sent_bytes = reduce_scatter_bytes,
    .effort = reduce_scatter_effort,
    .work_bytes = work_bytes,
};
const struct gmi_algo gmi_direct_all_gather = {
    DIRECT_ROW,
    .collective = GM_ALL_GATHER,
    .summary = "everybody's chunk straight to all: D (N-1)/N bytes, one round",
    .begin = begin_all_gather,
    .payload_sent_bytes = all_gather_bytes,
    .effort = all_gather_effort,
};
