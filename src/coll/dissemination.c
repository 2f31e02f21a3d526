/* dissemination.c - a barrier in ceil(log2 N) rounds.
 *
 * In round k every rank sends one byte to the rank 2^k to its right and waits for one from the rank 2^k to
 * its left. After round k it has heard, through others, of the 2^(k+1) - 1 ranks to its left; once that
 * covers N - 1, all have come. N need not be a power of two.
 *
 * Cost: ceil(log2 N) latencies and as many bytes. Source: Hensgen, Finkel, Manber, "Two algorithms for barrier
 * synchronization", Int. J. Parallel Programming 17 (1988).
 */
#include "coll/dissemination.h"

#include "coll/rounds.h"

static int n_rounds(int n_ranks)
{
    int rounds = 0;
    while (1 << rounds < n_ranks) rounds++;
    return rounds;
}

/* op->work: one byte to send, and one to receive in each round. */
static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    int n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    if (index == n_rounds(n)) return false;
    int distance = 1 << index;
    gmi_rounds_send(op, r, (rank + distance) % n, op->work, 1);
    gmi_rounds_recv(op, r, (rank - distance + n) % n, op->work + 1 + index, 1);
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
    return (uint64_t)n_rounds(s->n_ranks);
}

static size_t work_bytes(const struct gmi_shape *s)
{
    return 1 + (size_t)n_rounds(s->n_ranks);
}

static struct gmi_effort effort(int n_ranks, double bytes)
{
    int rounds = n_rounds(n_ranks);
    (void)bytes;
    return (struct gmi_effort){ .turns = rounds, .messages = rounds, .all_messages = rounds * n_ranks,
                                .sent_bytes = rounds, .recv_bytes = rounds, .all_bytes = rounds * n_ranks };
}

const struct gmi_algo gmi_dissemination_barrier = {
    .id = GMI_ALGO_DISSEMINATION,
    .name = "dissemination",
    .collective = GM_BARRIER,
    .summary = "in round k everybody tells the rank 2^k to the right: ceil(log2 N) bytes and rounds",
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = work_bytes,
};
