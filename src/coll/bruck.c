/* bruck.c - all-gather in ceil(log2 N) rounds, for small chunks and many ranks; N need not be a
 * power of two.
 *
 * Rank r always has the chunks of r-h+1, ..., r-1, r (mod N), with h = 1 at first. In a round it
 * sends as many of them as are still wanted, the m = min(h, N - h) nearest to its own, to rank r +
 * h, and gets as many, those of r-h-m+1, ..., r-h, from rank r - h:
 *
 *     N = 5, rank 4     {4}     {3,4}     {1,2,3,4}     {0,1,2,3,4}
 *
 * (In the source it goes to the left; to the right neighbours compare calls as in the
 * ring.) Chunks go straight to their places. A run of chunks that wraps around behind the last rank
 * is two transfers, on both sides.
 *
 * Cost: ceil(log2 N) latencies; rank r sends D less one chunk, more or less, as chunks differ: the
 * sum of what it sends in the rounds above. Source: Bruck, Ho, Kipnis, Upfal, Weathersby,
 * "Efficient algorithms for all-to-all communications in multiport message-passing systems", IEEE
 * Trans. Parallel and Distributed Systems 8 (1997).
 */
#include "coll/bruck.h"

#include "coll/rounds.h"

static int n_rounds(int n_ranks)
{
    int rounds = 0;
    while (1 << rounds < n_ranks) rounds++;
    return rounds;
}

static int n_moved(int n_ranks, int have) { return have < n_ranks - have ? have : n_ranks - have; }

static size_t range_bytes(const struct gmi_op *op, int first, int end)
{
    size_t bytes = 0;
    for (int k = first; k < end; k++) bytes += gmi_op_chunk_bytes(op, k);
    return bytes;
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

/* The `n_chunks` chunks from `first` on, around the ring. */
static void add_run(struct gmi_op *op, struct gmi_rounds *r, add_fn add, int peer, int first,
                    int n_chunks)
{
    int n = gmi_op_ranks(op), end = first + n_chunks;
    add(op, r, peer, op->output + gmi_op_chunk_at(op, first),
        range_bytes(op, first, end < n ? end : n));
    if (end > n) add(op, r, peer, op->output, range_bytes(op, 0, end - n));
}

static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    if (index == n_rounds(n)) return false;
    int have = 1 << index, m = n_moved(n, have);
    add_run(op, r, add_send, (rank + have) % n, (rank - m + 1 + n) % n, m);
    add_run(op, r, add_recv, (rank - have + n) % n, (rank - have - m + 1 + 2 * n) % n, m);
    return true;
}

static void begin(struct gmi_op *op) { gmi_rounds_begin(op, n_rounds(gmi_op_ranks(op)), prepare); }

static void peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    for (int distance = 1; distance < s->n_ranks; distance *= 2) {
        need(user, (s->rank + distance) % s->n_ranks);
        need(user, (s->rank - distance + s->n_ranks) % s->n_ranks);
    }
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    uint64_t bytes = 0;
    for (int have = 1; have < s->n_ranks; have *= 2) {
        for (int k = 0; k < n_moved(s->n_ranks, have); k++)
            bytes += gmi_shape_chunk_bytes(s, (s->rank - k + s->n_ranks) % s->n_ranks);
    }
    return bytes;
}

static struct gmi_effort effort(int n_ranks, double bytes)
{
    double moved = bytes * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = n_rounds(n_ranks),
                                .messages = n_rounds(n_ranks),
                                .all_messages = n_rounds(n_ranks) * n_ranks,
                                .sent_bytes = moved, .recv_bytes = moved,
                                .all_bytes = moved * n_ranks,
                                .kept_bytes = moved };
}

const struct gmi_algo gmi_bruck_all_gather = {
    .id = GMI_ALGO_BRUCK,
    .name = "bruck",
    .collective = GM_ALL_GATHER,
    .summary = "what a rank has doubles in each round: D (N-1)/N bytes, ceil(log2 N) rounds",
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
};
