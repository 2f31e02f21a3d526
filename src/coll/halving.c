/* halving.c - all-reduce by recursive halving and doubling, for buffers of middle size: few rounds,
 * few bytes.
 *
 * With N = P a power of two the buffer is cut into P segments. In the reduce-scatter ranks whose
 * numbers differ in the lowest bit exchange halves and add, then those that differ in the next bit
 * quarters, and so on, until every rank has the sum of one segment; the all-gather goes the same
 * way back:
 *
 *     N = 4        round 1            round 2         round 3            round 4
 *     rank 0       adds 0,1 of 1      0 of 2          gets 1 from 2      2,3 from 1
 *     rank 1       adds 2,3 of 0      2 of 3          gets 3 from 3      0,1 from 0
 *     rank 2       adds 0,1 of 3      1 of 0          gets 0 from 0      2,3 from 3
 *     rank 3       adds 2,3 of 2      3 of 1          gets 2 from 1      0,1 from 2
 *
 * So the segment of a number is that number with its bits in reverse order, its seat. Beginning
 * with the lowest bit lets neighbours in the ring compare their calls first.
 *
 * For other N ranks are folded onto a power of two (fold.h), which costs D more in two more rounds.
 *
 * A segment is summed by one rank and copied by the others, so all get the same bits; the order is
 * the tree of the rounds, the same for all segments.
 *
 * Cost: 2 log2 P latencies and 2 D (P-1)/P bytes by a rank that works, and D more where pairs were
 * formed. Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations
 * in MPICH", Int. J. High Performance Computing Applications 19 (2005), section 4.5 (Rabenseifner's
 * algorithm).
 */
#include "coll/halving.h"

#include <string.h>

#include "coll/fold.h"
#include "coll/rounds.h"

/* Segments first .. end - 1, in bytes of the buffer. */
struct range {
    size_t at_bytes, n_bytes;
};

static struct range range_of(const struct gmi_fold *f, size_t count_elems, size_t elem_bytes,
                             int first, int end)
{
    int    p = 1 << f->n_exchanges;
    size_t at = gmi_chunk_first(count_elems, p, first),
           end_at = gmi_chunk_first(count_elems, p, end);
    return (struct range){ at * elem_bytes, (end_at - at) * elem_bytes };
}

static int seat_of(const struct gmi_fold *f, int number)
{
    int seat = 0;
    for (int bit = 0; bit < f->n_exchanges; bit++)
        seat |= (number >> bit & 1) << (f->n_exchanges - 1 - bit);
    return seat;
}

/* What `number` keeps in an exchange of the reduce-scatter. */
static struct range side_of(const struct gmi_fold *f, size_t count_elems, size_t elem_bytes,
                            int number, int exchange)
{
    int n_segments = 1 << (f->n_exchanges - 1 - exchange),
        first = seat_of(f, number) & ~(n_segments - 1);
    return range_of(f, count_elems, elem_bytes, first, first + n_segments);
}

/* ---- one op ---------------------------------------------------------------------------------- */

static struct range our_side(const struct gmi_op *op, const struct gmi_fold *f, int exchange)
{
    return side_of(f, op->count_elems, op->codec.elem_bytes, f->number, exchange);
}

static struct range their_side(const struct gmi_op *op, const struct gmi_fold *f, int exchange)
{
    return side_of(f, op->count_elems, op->codec.elem_bytes, f->number ^ 1 << exchange, exchange);
}

/* Adds what has come for this range to `own`, which is laid out as the whole buffer. */
static void combine(struct gmi_op *op, struct range range, const uint8_t *own)
{
    gmi_codec_combine(&op->codec, op->output + range.at_bytes, op->work, own + range.at_bytes,
                      range.n_bytes / op->codec.elem_bytes);
}

/* Our values before an exchange of the reduce-scatter: the caller's until something was added. */
static const uint8_t *values(const struct gmi_op *op, const struct gmi_fold *f, int exchange)
{
    return exchange == 0 && !f->has_partner ? op->input : op->output;
}

static void halve(struct gmi_op *op, struct gmi_rounds *r, const struct gmi_fold *f, int exchange)
{
    int          peer = gmi_fold_partner(f, exchange);
    struct range ours = our_side(op, f, exchange), theirs = their_side(op, f, exchange);
    gmi_rounds_send(op, r, peer, values(op, f, exchange) + theirs.at_bytes, theirs.n_bytes);
    gmi_rounds_recv(op, r, peer, op->work, ours.n_bytes);
}

static void settle_half(struct gmi_op *op, const struct gmi_fold *f, int exchange)
{
    combine(op, our_side(op, f, exchange), values(op, f, exchange));
}

static void finish(struct gmi_op *op, const struct gmi_fold *f)
{
    struct range own = our_side(op, f, f->n_exchanges - 1);
    if (op->codec.finish == NULL) return;
    op->codec.finish(op->output + own.at_bytes, own.n_bytes / op->codec.elem_bytes,
                     gmi_op_ranks(op));
}

/* The way back over the same exchange. */
static void join(struct gmi_op *op, struct gmi_rounds *r, const struct gmi_fold *f, int exchange)
{
    int          peer = gmi_fold_partner(f, exchange);
    struct range ours = our_side(op, f, exchange), theirs = their_side(op, f, exchange);
    gmi_rounds_send(op, r, peer, op->output + ours.at_bytes, ours.n_bytes);
    gmi_rounds_recv(op, r, peer, op->output + theirs.at_bytes, theirs.n_bytes);
}

/* With K = log2 P: round 0 forms the pairs, 1 .. K halve, K+1 .. 2K join, 2K+1 hands the result
 * back. Rounds in which a rank has nothing to do are empty and pass at once. */
static bool prepare(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_fold f = gmi_fold_of(gmi_op_ranks(op), gmi_op_rank(op));
    int             k = f.n_exchanges, rank = gmi_op_rank(op), last = 2 * k + 1;
    size_t          bytes = gmi_op_bytes(op);
    if (index > last) return false;
    if (f.is_resting) {
        if (index == 0) gmi_rounds_send(op, r, rank + 1, op->input, bytes);
        if (index == last) gmi_rounds_recv(op, r, rank + 1, op->output, bytes);
        return true;
    }
    if (index == 0) {
        if (f.has_partner) gmi_rounds_recv(op, r, rank - 1, op->work, bytes);
        return true;
    }
    if (index == 1 && f.has_partner) combine(op, (struct range){ 0, bytes }, op->input);
    if (index > 1 && index <= k + 1) settle_half(op, &f, index - 2);
    if (index == k + 1) finish(op, &f);
    if (index <= k) {
        halve(op, r, &f, index - 1);
    } else if (index < last) {
        join(op, r, &f, 2 * k - index);
    } else if (f.has_partner) {
        gmi_rounds_send(op, r, rank - 1, op->output, bytes);
    }
    return true;
}

static void begin(struct gmi_op *op)
{
    gmi_rounds_begin(op, 2 * gmi_fold_of(gmi_op_ranks(op), 0).n_exchanges + 2, prepare);
}

static void peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    struct gmi_fold f = gmi_fold_of(s->n_ranks, s->rank);
    if (f.is_resting) need(user, s->rank + 1);
    if (f.has_partner) need(user, s->rank - 1);
    for (int k = 0; !f.is_resting && k < f.n_exchanges; k++) need(user, gmi_fold_partner(&f, k));
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    struct gmi_fold f = gmi_fold_of(s->n_ranks, s->rank);
    uint64_t        bytes = f.is_resting || f.has_partner ? gmi_shape_bytes(s) : 0;
    for (int k = 0; !f.is_resting && k < f.n_exchanges; k++) {
        bytes +=
            side_of(&f, s->count_elems, s->elem_bytes, f.number ^ 1 << k, k).n_bytes; /* halving */
        bytes += side_of(&f, s->count_elems, s->elem_bytes, f.number, k).n_bytes;     /* joining */
    }
    return bytes;
}

/* Ranks that rest in pairs cost two rounds of the whole buffer. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    struct gmi_fold f = gmi_fold_of(n_ranks, 0);
    int             p = 1 << f.n_exchanges;
    double          one_way = bytes * (p - 1) / p, extra = f.n_pairs > 0;
    return (struct gmi_effort){ .turns = 2 * f.n_exchanges + 2 * extra,
                                .messages = 2 * f.n_exchanges + extra,
                                .all_messages = 2 * f.n_exchanges * p + 2 * f.n_pairs,
                                .sent_bytes = 2 * one_way + 2 * extra * bytes, .recv_bytes = 2 * one_way + 2 * extra * bytes,
                                .all_bytes = 2 * one_way * p + 2 * bytes * f.n_pairs,
                                .reduced_bytes = one_way + extra * bytes,
                                .kept_bytes = one_way + extra * bytes };
}

/* What a partner or the first peer sends. */
static size_t work_bytes(const struct gmi_shape *s)
{
    struct gmi_fold f = gmi_fold_of(s->n_ranks, s->rank);
    if (f.is_resting) return 0;
    if (f.has_partner) return gmi_shape_bytes(s);
    return side_of(&f, s->count_elems, s->elem_bytes, f.number, 0).n_bytes;
}

const struct gmi_algo gmi_halving_all_reduce = {
    .id = GMI_ALGO_HALVING,
    .name = "halving",
    .collective = GM_ALL_REDUCE,
    .summary = "recursive halving, then doubling: 2 D (N-1)/N bytes, 2 log2 N rounds",
    .shows = GMI_VIEW_ONCE,
    .begin = begin,
    .progress = gmi_rounds_progress,
    .interest = gmi_rounds_interest,
    .peers = peers,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = work_bytes,
};
