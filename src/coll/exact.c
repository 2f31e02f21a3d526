/* exact.c - all-reduce of exact sums: accumulators of all ranks become f32 numbers, rounded once, on all of them.
 *
 * The ways are those of the algorithms of the same names; only what travels is another:
 *
 *     up      partial sums, that is lanes and spilled numbers (exact_stream.h), are added up exactly
 *     once    the one rank that has the whole sum of a range of blocks rounds it, if all shards are in it
 *     down    f32 numbers, as they are
 *
 *                reduces in                    who rounds        afterwards
 *     ring       N-1 rounds, chunk by chunk    rank r chunk r    all-gather around the ring
 *     direct     chunks straight to owners     rank r chunk r    straight to all
 *     halving    log2 N exchanges of halves    its segment       the same way back
 *     tree       up a binomial tree, whole     rank 0 all        down the tree
 *
 * Exact addition has no order, so they give the same bits. Chunks and segments are whole blocks of 64 elements, numbered
 * as in chunks.h.
 *
 * Our own accumulator is only read, so it survives whatever happens here. Partial sums have lanes of their own in
 * op->work, and lists of spilled numbers that belong to the accumulator, since they grow. There are two of them, and in
 * each round what leaves comes from one and what arrives goes into the other. (Their lanes may be the same memory where
 * the two ranges are apart.) */
#include "coll/exact.h"

#include <string.h>

#include "base/check.h"
#include "coll/binomial.h"
#include "coll/direct.h"
#include "coll/exact_stream.h"
#include "coll/fold.h"
#include "coll/halving.h"
#include "coll/ring.h"
#include "coll/tree.h"
#include "coll/tree_reduce.h"

enum { ALIGNMENT = 64 };

struct exact {
    struct gmi_partial    own, sums[2];
    const struct gmi_partial *have; /* what goes on from here: our own, or one of the sums */
    uint64_t             *lanes[2]; /* of the sums */
    struct gmi_exact_out *outs;
    struct gmi_exact_in  *ins;
};

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static struct exact *exact_of(const struct gmi_op *op)
{
    return (struct exact *)(void *)(op->work + (ALIGNMENT - (uintptr_t)op->work % ALIGNMENT) % ALIGNMENT);
}

static size_t blocks_of(size_t count_elems) { return count_elems / GMI_EXACT_BLOCK + (count_elems % GMI_EXACT_BLOCK != 0); }

/* Part k of so many of all blocks. */
static struct gmi_blocks part(size_t count_elems, int n_parts, int k)
{
    size_t n_blocks = blocks_of(count_elems);
    return (struct gmi_blocks){ gmi_chunk_first(n_blocks, n_parts, k), gmi_chunk_elems(n_blocks, n_parts, k) };
}

static struct gmi_blocks chunk(const struct gmi_op *op, int k) { return part(op->count_elems, gmi_op_ranks(op), k); }
static struct gmi_blocks all(const struct gmi_op *op) { return part(op->count_elems, 1, 0); }

/* The elements in it; the last block may not be whole. */
static size_t first_elem(struct gmi_blocks b) { return b.first * GMI_EXACT_BLOCK; }
static size_t elems_in(size_t count_elems, struct gmi_blocks b)
{
    return gmi_min_size(count_elems, (b.first + b.n) * GMI_EXACT_BLOCK) - gmi_min_size(count_elems, first_elem(b));
}
static uint64_t f32_bytes(size_t count_elems, struct gmi_blocks b) { return elems_in(count_elems, b) * sizeof(float); }

static const uint64_t *own_lanes(const struct gmi_op *op, struct gmi_blocks b) { return op->exact->lanes + first_elem(b); }

/* ---- memory: state | streams out | streams in | their buffers | lanes of sums --------------------- */

static size_t work_bytes_for(int n_streams, size_t n_lanes)
{
    size_t n = (size_t)n_streams;
    size_t streams = round_up(n * sizeof(struct gmi_exact_out), ALIGNMENT) + round_up(n * sizeof(struct gmi_exact_in), ALIGNMENT);
    return ALIGNMENT + round_up(sizeof(struct exact), ALIGNMENT) + streams + n * 3 * round_up(GMI_PORTION_BYTES, ALIGNMENT) +
           n_lanes * sizeof(uint64_t);
}

static uint8_t *take(uint8_t **free_bytes, size_t n_bytes)
{
    uint8_t *taken = *free_bytes;
    *free_bytes += round_up(n_bytes, ALIGNMENT);
    return taken;
}

static void lay_out(struct gmi_op *op, int n_streams, size_t n_lanes_of_first)
{
    struct exact *x = exact_of(op);
    uint8_t      *at = (uint8_t *)x;
    take(&at, sizeof *x);
    x->outs = (struct gmi_exact_out *)(void *)take(&at, (size_t)n_streams * sizeof *x->outs);
    x->ins = (struct gmi_exact_in *)(void *)take(&at, (size_t)n_streams * sizeof *x->ins);
    for (int i = 0; i < n_streams; i++) {
        for (int k = 0; k < 2; k++) x->outs[i].buffers[k] = take(&at, GMI_PORTION_BYTES);
        x->ins[i].buffer = take(&at, GMI_PORTION_BYTES);
    }
    x->lanes[0] = (uint64_t *)(void *)at;
    x->lanes[1] = x->lanes[0] + n_lanes_of_first;
}

static void begin(struct gmi_op *op, int n_streams, size_t n_lanes_of_first)
{
    GMI_CHECK(op->exact != NULL);
    struct exact *x = exact_of(op);
    *x = (struct exact){ .own.spills = &op->exact->spills, .have = &x->own };
    lay_out(op, n_streams, n_lanes_of_first);
    gmi_accumulator_shards(op->exact, &x->own.shards);
    gmi_spills_sort(x->own.spills);
    for (int i = 0; i < 2; i++) x->sums[i].spills = &op->exact->arriving[i];
    op->exact->sent_lane_bytes = op->exact->sent_spill_bytes = 0;
}

/* ---- partial sums -------------------------------------------------------------------------------- */

/* A sum begins with what `from` has of these blocks; its lanes are added with the first that arrive. */
static struct gmi_partial *begin_sum(struct gmi_op *op, int which, const struct gmi_partial *from, struct gmi_blocks b)
{
    struct gmi_partial *sum = &exact_of(op)->sums[which];
    gmi_spills_sort(from->spills);
    size_t at = gmi_spills_find(from->spills, first_elem(b)), end = gmi_spills_find(from->spills, first_elem(b) + b.n * GMI_EXACT_BLOCK);
    sum->shards = from->shards;
    sum->spills->n = 0;
    if (end > at && !gmi_spills_append(sum->spills, from->spills->at + at, end - at)) gmi_op_no_memory(op);
    return sum;
}

/* Rounds a sum that is whole into its place of the result. */
static void settle(struct gmi_op *op, const struct gmi_partial *sum, const uint64_t *lanes, struct gmi_blocks b)
{
    const gm_accumulator_options *o = &op->exact->options;
    if (b.n == 0) return;
    int missing = gmi_shards_first_missing(&sum->shards, o->n_shards);
    if (missing >= 0) {
        gmi_op_wrong_shard(op, -1, missing, o->n_shards, "has been added on no rank");
        return;
    }
    gmi_spills_sort(sum->spills);
    gmi_exact_settle((float *)(void *)op->output + first_elem(b), lanes, elems_in(op->count_elems, b), o->quantum_exponent,
                     sum->spills, first_elem(b));
}

static uint8_t *result_at(const struct gmi_op *op, struct gmi_blocks b) { return op->output + first_elem(b) * sizeof(float); }

static void send_result(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_blocks b)
{
    gmi_rounds_send(op, r, peer, result_at(op, b), f32_bytes(op->count_elems, b));
}
static void recv_result(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_blocks b)
{
    gmi_rounds_recv(op, r, peer, result_at(op, b), f32_bytes(op->count_elems, b));
}

/* ---- ring ---------------------------------------------------------------------------------------- */

static struct gmi_blocks ring_chunk(const struct gmi_op *op, int step)
{
    int n = gmi_op_ranks(op);
    return chunk(op, ((gmi_op_rank(op) - 1 - step) % n + n) % n);
}

static bool prepare_ring(struct gmi_op *op, struct gmi_rounds *r, int step)
{
    struct exact *x = exact_of(op);
    int           n = gmi_op_ranks(op), right = gmi_op_neighbour(op, +1)->peer, left = gmi_op_neighbour(op, -1)->peer;
    int           in = step % 2, out = 1 - in;
    if (step == 2 * n - 2) return false;
    struct gmi_blocks leaving = ring_chunk(op, step), arriving = ring_chunk(op, step + 1);
    if (step < n - 1) {
        const struct gmi_partial *from = step == 0 ? &x->own : &x->sums[out];
        struct gmi_partial       *to = begin_sum(op, in, &x->own, arriving);
        gmi_exact_send(op, r, right, x->outs, from, step == 0 ? own_lanes(op, leaving) : x->lanes[out], leaving);
        gmi_exact_recv(op, r, left, x->ins, to, x->lanes[in], own_lanes(op, arriving), arriving);
        return true;
    }
    if (step == n - 1) settle(op, &x->sums[out], x->lanes[out], leaving);
    send_result(op, r, right, leaving);
    recv_result(op, r, left, arriving);
    return true;
}

static size_t ring_lanes(size_t count_elems, int n_ranks) { return part(count_elems, n_ranks, 0).n * GMI_EXACT_BLOCK; }

static void begin_ring(struct gmi_op *op)
{
    int n = gmi_op_ranks(op);
    begin(op, 1, ring_lanes(op->count_elems, n));
    gmi_rounds_begin(op, 2 * n - 2, prepare_ring);
}

static size_t ring_work_bytes(const struct gmi_shape *s)
{
    return work_bytes_for(1, 2 * ring_lanes(s->count_elems, s->n_ranks));
}

/* ---- direct -------------------------------------------------------------------------------------- */

static void direct_up(struct gmi_op *op, struct gmi_rounds *r, int batch)
{
    struct exact     *x = exact_of(op);
    int               n = gmi_op_ranks(op), rank = gmi_op_rank(op);
    struct gmi_blocks own = chunk(op, rank);
    if (batch == 0) {
        begin_sum(op, 0, &x->own, own);
        memcpy(x->lanes[0], own_lanes(op, own), own.n * GMI_EXACT_BLOCK * sizeof *x->lanes[0]);
    }
    for (int d = gmi_batch_first(batch), i = 0; d < gmi_batch_end(batch, n - 1); d++, i++) {
        int to = (rank + d) % n, from = (rank - d + n) % n;
        gmi_exact_send(op, r, to, &x->outs[i], &x->own, own_lanes(op, chunk(op, to)), chunk(op, to));
        gmi_exact_recv(op, r, from, &x->ins[i], &x->sums[0], x->lanes[0], x->lanes[0], own);
    }
}

static bool prepare_direct(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct exact *x = exact_of(op);
    int           n = gmi_op_ranks(op), rank = gmi_op_rank(op), n_batches = gmi_n_batches(n - 1), down = index - n_batches;
    if (down == n_batches) return false;
    if (down < 0) {
        direct_up(op, r, index);
        return true;
    }
    if (down == 0) settle(op, &x->sums[0], x->lanes[0], chunk(op, rank));
    for (int d = gmi_batch_first(down); d < gmi_batch_end(down, n - 1); d++) {
        send_result(op, r, (rank + d) % n, chunk(op, rank));
        recv_result(op, r, (rank - d + n) % n, chunk(op, (rank - d + n) % n));
    }
    return true;
}

static int direct_streams(int n_ranks) { return n_ranks - 1 < GMI_MAX_TRANSFERS ? n_ranks - 1 : GMI_MAX_TRANSFERS; }

static void begin_direct(struct gmi_op *op)
{
    int n = gmi_op_ranks(op);
    begin(op, direct_streams(n), 0);
    gmi_rounds_begin(op, 2 * gmi_n_batches(n - 1), prepare_direct);
}

static size_t direct_work_bytes(const struct gmi_shape *s)
{
    return work_bytes_for(direct_streams(s->n_ranks), part(s->count_elems, s->n_ranks, s->rank).n * GMI_EXACT_BLOCK);
}

/* ---- what halving and tree share: sums that are laid out as the whole array ------------------------- */

static const uint64_t *lanes_of(const struct gmi_op *op, const struct gmi_partial *p, struct gmi_blocks b)
{
    const struct exact *x = exact_of(op);
    return (p == &x->own ? op->exact->lanes : x->lanes[0]) + first_elem(b);
}

/* In a round what we have leaves or grows, or parts of it do. */
static void give(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_blocks b)
{
    struct exact *x = exact_of(op);
    gmi_exact_send(op, r, peer, x->outs, x->have, lanes_of(op, x->have, b), b);
}

static void grow(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_blocks b)
{
    struct exact             *x = exact_of(op);
    const struct gmi_partial *had = x->have;
    struct gmi_partial       *sum = begin_sum(op, had == &x->sums[0] ? 1 : 0, had, b);
    gmi_exact_recv(op, r, peer, x->ins, sum, x->lanes[0] + first_elem(b), lanes_of(op, had, b), b);
    x->have = sum;
}

static void settle_what_we_have(struct gmi_op *op, struct gmi_blocks b)
{
    const struct gmi_partial *have = exact_of(op)->have;
    settle(op, have, lanes_of(op, have, b), b);
}

static void begin_whole(struct gmi_op *op) { begin(op, 1, 0); }

static size_t whole_work_bytes(const struct gmi_shape *s)
{
    return work_bytes_for(1, blocks_of(s->count_elems) * GMI_EXACT_BLOCK);
}

/* ---- halving; who does what: halving.c ------------------------------------------------------------- */

/* What `number` keeps in an exchange on the way up: segments are numbers with their bits in reverse order. */
static struct gmi_blocks half_of(size_t count_elems, const struct gmi_fold *f, int number, int exchange)
{
    int p = 1 << f->n_exchanges, n_segments = 1 << (f->n_exchanges - 1 - exchange), seat = 0;
    for (int bit = 0; bit < f->n_exchanges; bit++) seat |= (number >> bit & 1) << (f->n_exchanges - 1 - bit);
    int first = seat & ~(n_segments - 1), end = first + n_segments;
    size_t n_blocks = blocks_of(count_elems), at = gmi_chunk_first(n_blocks, p, first);
    return (struct gmi_blocks){ at, gmi_chunk_first(n_blocks, p, end) - at };
}

static struct gmi_blocks our_half(const struct gmi_op *op, const struct gmi_fold *f, int exchange)
{
    return half_of(op->count_elems, f, f->number, exchange);
}
static struct gmi_blocks their_half(const struct gmi_op *op, const struct gmi_fold *f, int exchange)
{
    return half_of(op->count_elems, f, f->number ^ 1 << exchange, exchange);
}

/* Round 0 forms the pairs, 1 .. K halve, K+1 .. 2K join, 2K+1 hands the result back. */
static bool prepare_halving(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_fold f = gmi_fold_of(gmi_op_ranks(op), gmi_op_rank(op));
    int             k = f.n_exchanges, rank = gmi_op_rank(op), last = 2 * k + 1;
    if (index > last) return false;
    if (f.is_resting) {
        if (index == 0) give(op, r, rank + 1, all(op));
        if (index == last) recv_result(op, r, rank + 1, all(op));
        return true;
    }
    if (index == 0) {
        if (f.has_partner) grow(op, r, rank - 1, all(op));
        return true;
    }
    if (index == k + 1) settle_what_we_have(op, our_half(op, &f, k - 1));
    if (index <= k) {
        int peer = gmi_fold_partner(&f, index - 1);
        give(op, r, peer, their_half(op, &f, index - 1));
        grow(op, r, peer, our_half(op, &f, index - 1));
    } else if (index < last) {
        int exchange = 2 * k - index, peer = gmi_fold_partner(&f, exchange);
        send_result(op, r, peer, our_half(op, &f, exchange));
        recv_result(op, r, peer, their_half(op, &f, exchange));
    } else if (f.has_partner) {
        send_result(op, r, rank - 1, all(op));
    }
    return true;
}

static void begin_halving(struct gmi_op *op)
{
    begin_whole(op);
    gmi_rounds_begin(op, 2 * gmi_fold_of(gmi_op_ranks(op), 0).n_exchanges + 2, prepare_halving);
}

/* ---- tree; up as in tree_reduce.c, and the same way down ---------------------------------------------- */

static void tree_up(struct gmi_op *op, struct gmi_rounds *r, const struct gmi_binomial *t, int distance)
{
    if (gmi_binomial_has_child(t, distance)) {
        grow(op, r, gmi_binomial_rank(t, t->number + distance), all(op));
    } else if (distance == t->span) {
        give(op, r, gmi_binomial_parent(t), all(op));
    }
}

static void tree_down(struct gmi_op *op, struct gmi_rounds *r, const struct gmi_binomial *t, int distance)
{
    if (gmi_binomial_has_child(t, distance)) {
        send_result(op, r, gmi_binomial_rank(t, t->number + distance), all(op));
    } else if (distance == t->span) {
        recv_result(op, r, gmi_binomial_parent(t), all(op));
    }
}

static bool prepare_tree(struct gmi_op *op, struct gmi_rounds *r, int index)
{
    struct gmi_binomial t = gmi_binomial_of(gmi_op_ranks(op), gmi_op_rank(op), 0);
    int                 n_up = gmi_binomial_rounds(t.n_ranks);
    if (index == n_up && t.number == 0) settle_what_we_have(op, all(op));
    if (index == 2 * n_up) return false;
    if (index < n_up) tree_up(op, r, &t, 1 << index);
    else tree_down(op, r, &t, 1 << (2 * n_up - 1 - index));
    return true;
}

static void begin_tree(struct gmi_op *op)
{
    begin_whole(op);
    gmi_rounds_begin(op, 2 * gmi_binomial_rounds(gmi_op_ranks(op)), prepare_tree);
    gmi_rounds_greet_neighbours(op);
}

static void tree_peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    struct gmi_shape from_0 = *s;
    from_0.root = 0;
    gmi_binomial_peers(&from_0, need, user);
}

/* ---- the rows ------------------------------------------------------------------------------------ *
 *
 * How many bytes are sent depends on the numbers. The formulas tell the most it can be when nothing is spilled: lanes of
 * 8 bytes, the widest set of shards. */

static uint64_t most_bytes_up(struct gmi_blocks b)
{
    if (b.n == 0) return 0;
    uint64_t n_slabs = (b.n + GMI_SLAB_BLOCKS - 1) / GMI_SLAB_BLOCKS;
    return GMI_SUM_HEAD_BYTES + n_slabs * GMI_SLAB_HEAD_BYTES + gmi_exact_packed_room(b.n);
}

static uint64_t ring_bytes(const struct gmi_shape *s)
{
    uint64_t bytes = 0;
    for (int k = 0; k < s->n_ranks; k++) {
        struct gmi_blocks b = part(s->count_elems, s->n_ranks, k);
        if (k != s->rank) bytes += most_bytes_up(b);
        if (k != (s->rank + 1) % s->n_ranks) bytes += f32_bytes(s->count_elems, b);
    }
    return bytes;
}

static uint64_t direct_bytes(const struct gmi_shape *s)
{
    uint64_t bytes = 0;
    for (int k = 0; k < s->n_ranks; k++) {
        if (k == s->rank) continue;
        bytes += most_bytes_up(part(s->count_elems, s->n_ranks, k));
        bytes += f32_bytes(s->count_elems, part(s->count_elems, s->n_ranks, s->rank));
    }
    return bytes;
}

static uint64_t halving_bytes(const struct gmi_shape *s)
{
    struct gmi_fold   f = gmi_fold_of(s->n_ranks, s->rank);
    struct gmi_blocks whole = part(s->count_elems, 1, 0);
    if (f.is_resting) return most_bytes_up(whole);
    uint64_t bytes = f.has_partner ? f32_bytes(s->count_elems, whole) : 0;
    for (int k = 0; k < f.n_exchanges; k++) {
        bytes += most_bytes_up(half_of(s->count_elems, &f, f.number ^ 1 << k, k));
        bytes += f32_bytes(s->count_elems, half_of(s->count_elems, &f, f.number, k));
    }
    return bytes;
}

static uint64_t tree_bytes(const struct gmi_shape *s)
{
    struct gmi_binomial t = gmi_binomial_of(s->n_ranks, s->rank, 0);
    struct gmi_blocks   whole = part(s->count_elems, 1, 0);
    uint64_t            bytes = t.number == 0 ? 0 : most_bytes_up(whole);
    for (int distance = 1; distance < t.span; distance *= 2) {
        if (gmi_binomial_has_child(&t, distance)) bytes += f32_bytes(s->count_elems, whole);
    }
    return bytes;
}

/* As the algorithm of that name, but what goes up is wider than f32, and is unpacked, added and packed. */
static struct gmi_effort wider(struct gmi_effort e)
{
    e.sent_bytes *= 1.5;
    e.recv_bytes *= 1.5;
    e.all_bytes *= 1.5;
    e.reduced_bytes *= 4;
    return e;
}

static struct gmi_effort ring_effort(int n_ranks, double bytes) { return wider(gmi_ring_all_reduce.effort(n_ranks, bytes)); }
static struct gmi_effort direct_effort(int n_ranks, double bytes) { return wider(gmi_direct_all_reduce.effort(n_ranks, bytes)); }
static struct gmi_effort halving_effort(int n_ranks, double bytes) { return wider(gmi_halving_all_reduce.effort(n_ranks, bytes)); }
static struct gmi_effort tree_effort(int n_ranks, double bytes)
{
    return wider(gmi_effort_sum(gmi_tree_reduce.effort(n_ranks, bytes), gmi_tree_broadcast.effort(n_ranks, bytes)));
}

static void halving_peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    gmi_halving_all_reduce.peers(s, need, user);
}

#define EXACT_ROW                                                                                  \
    .collective = GM_ALL_REDUCE, .shows = GMI_VIEW_EXACT, .progress = gmi_rounds_progress, .interest = gmi_rounds_interest

const struct gmi_algo gmi_exact_ring = {
    EXACT_ROW,
    .id = GMI_ALGO_RING,
    .name = "ring",
    .summary = "for exact sums: partial sums around the ring, rounded by their owners, then all-gather",
    .begin = begin_ring,
    .payload_sent_bytes = ring_bytes,
    .effort = ring_effort,
    .work_bytes = ring_work_bytes,
};
const struct gmi_algo gmi_exact_direct = {
    EXACT_ROW,
    .id = GMI_ALGO_DIRECT,
    .name = "direct",
    .summary = "for exact sums: chunks straight to their owners, results straight to all",
    .begin = begin_direct,
    .peers = gmi_all_peers,
    .payload_sent_bytes = direct_bytes,
    .effort = direct_effort,
    .work_bytes = direct_work_bytes,
};
const struct gmi_algo gmi_exact_halving = {
    EXACT_ROW,
    .id = GMI_ALGO_HALVING,
    .name = "halving",
    .summary = "for exact sums: recursive halving, then doubling with the results",
    .begin = begin_halving,
    .peers = halving_peers,
    .payload_sent_bytes = halving_bytes,
    .effort = halving_effort,
    .work_bytes = whole_work_bytes,
};
const struct gmi_algo gmi_exact_tree = {
    EXACT_ROW,
    .id = GMI_ALGO_TREE,
    .name = "tree",
    .summary = "for exact sums: up a binomial tree to rank 0, results down again",
    .begin = begin_tree,
    .peers = tree_peers,
    .payload_sent_bytes = tree_bytes,
    .effort = tree_effort,
    .work_bytes = whole_work_bytes,
};
