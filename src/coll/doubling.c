/* doubling.c - all-reduce by recursive doubling, for small buffers: log2 N rounds of the whole buffer.
 *
 * With N a power of two, in round k rank r exchanges what it has with rank r xor 2^k, and both add:
 *
 *     N = 4      round 0        round 1
 *       0       0+1            (0+1)+(2+3)
 *       1       0+1            (0+1)+(2+3)
 *       2       2+3            (0+1)+(2+3)
 *       3       2+3            (0+1)+(2+3)
 *
 * For other N ranks are folded onto a power of two, P (fold.h): of each pair the even rank gives its values to the
 * odd one and rests, P ranks do the rounds above under new numbers, and in the end each odd one hands the result
 * to its even one.
 *
 * All ranks get the same bits: both sides of an exchange combine the same two values, and every reduction
 * commutes bit for bit (reduce/kernels.h); one that does not is not given to this algorithm.
 *
 * Cost: D log2 P bytes by a rank that works, and D more where pairs were formed; log2 P (+ 2) rounds. Source:
 * Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", Int. J. High
 * Performance Computing Applications 19 (2005), sections 4.4 and 4.5.
 */
#include "coll/doubling.h"

#include <string.h>

#include "coll/fold.h"
#include "coll/rounds.h"

/* op->work holds what a peer sent; op->output what we have. */
static void combine(struct gmi_op *op)
{
    gmi_codec_combine(&op->codec, op->output, op->work, op->output, op->count_elems);
}

static void finish(struct gmi_op *op)
{
    if (op->codec.finish != NULL) op->codec.finish(op->output, op->count_elems, gmi_op_ranks(op));
}

/* Round 0 forms the pairs, rounds 1 .. n exchange, round n + 1 hands the result back. Rounds in which a rank
 * has nothing to do are empty and pass at once. */
static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_fold p = gmi_fold_of(gmi_op_ranks(op), gmi_op_rank(op));
    size_t      bytes = op->count_elems * op->codec.elem_bytes;
    int         rank = gmi_op_rank(op), last = p.n_exchanges + 1;
    if (index > last) return false;
    if (p.is_resting) {
        if (index == 0) gmi_rounds_send(op, r, rank + 1, op->output, bytes);
        if (index == last) gmi_rounds_recv(op, r, rank + 1, op->output, bytes);
        return true;
    }
    if (index == 0) {
        if (p.has_partner) gmi_rounds_recv(op, r, rank - 1, op->work, bytes);
        return true;
    }
    if (index > 1 || p.has_partner) combine(op);
    if (index == last) {
        finish(op);
        if (p.has_partner) gmi_rounds_send(op, r, rank - 1, op->output, bytes);
        return true;
    }
    int peer = gmi_fold_partner(&p, index - 1);
    gmi_rounds_send(op, r, peer, op->output, bytes);
    gmi_rounds_recv(op, r, peer, op->work, bytes);
    return true;
}

static void begin(struct gmi_op *op)
{
    size_t bytes = op->count_elems * op->codec.elem_bytes;
    if (op->output != op->input && bytes > 0) memcpy(op->output, op->input, bytes);
    gmi_rounds_begin(op, gmi_fold_of(gmi_op_ranks(op), 0).n_exchanges + 2, prepare);
}

static void peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    struct gmi_fold p = gmi_fold_of(s->n_ranks, s->rank);
    if (p.is_resting) need(user, s->rank + 1);
    if (p.has_partner) need(user, s->rank - 1);
    for (int k = 0; !p.is_resting && k < p.n_exchanges; k++) need(user, gmi_fold_partner(&p, k));
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    struct gmi_fold p = gmi_fold_of(s->n_ranks, s->rank);
    int         times = p.is_resting ? 1 : p.n_exchanges + (p.has_partner ? 1 : 0);
    return gmi_shape_bytes(s) * (uint64_t)times;
}

/* Ranks that rest in pairs cost two rounds more, for whoever works for them too. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    struct gmi_fold p = gmi_fold_of(n_ranks, 0);
    double          rounds = p.n_exchanges, extra = p.n_pairs > 0;
    return (struct gmi_effort){ .turns = rounds + 2 * extra,
                                .messages = rounds + extra,
                                .all_messages = rounds * (1 << p.n_exchanges) + 2 * p.n_pairs,
                                .sent_bytes = bytes * (rounds + 2 * extra), .recv_bytes = bytes * (rounds + 2 * extra),
                                .all_bytes = bytes * (rounds * (1 << p.n_exchanges) + 2 * p.n_pairs),
                                .reduced_bytes = bytes * (rounds + extra),
                                .kept_bytes = bytes * (rounds + extra) };
}

const struct gmi_algo gmi_doubling_all_reduce = {
    .id = GMI_ALGO_DOUBLING,
    .name = "doubling",
    .collective = GM_ALL_REDUCE,
    .adding_phase = "exchange",
    .placing_phase = "hand back",
    .summary = "recursive doubling: whole buffers between rank r and r xor 2^k: D log2 N bytes, log2 N rounds",
    .shows = GMI_VIEW_PAIRS,
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = gmi_shape_bytes,
};
