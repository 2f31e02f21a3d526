/* ring.c - reduce-scatter, all-gather and all-reduce around a ring of N ranks.
 *
 * Rank r sends only to r+1, its right, and receives only from r-1, its left. The buffer is cut into N
 * chunks, one for each rank. In step s rank r sends chunk c(s) and receives chunk c(s+1), where
 * c(s) = (r - 1 - s) mod N: what arrives in one step leaves in the next.
 *
 *     step         0 ......... N-2      N-1 ......... 2N-3
 *     phase        reduce-scatter       all-gather
 *     arriving     is added to ours     replaces ours
 *     afterwards   rank r has chunk r   every rank has every chunk
 *                  of the sum
 *
 * N = 4, what each rank sends in each step (it receives what its left neighbour sends):
 *
 *                  step 0   1   2   |  3   4   5
 *     rank 0            3   2   1   |  0   3   2
 *     rank 1            0   3   2   |  1   0   3
 *     rank 2            1   0   3   |  2   1   0
 *     rank 3            2   1   0   |  3   2   1
 *
 * Follow chunk 0: it leaves rank 1 in step 0 as rank 1's own values, rank 2 adds its own and sends it on in
 * step 1, rank 3 in step 2, and rank 0 adds the last contribution: it owns the sum of chunk 0. From step 3
 * on the finished chunk travels the same way once more, and is copied instead of added.
 *
 * Large chunks are cut into parts, and the ring goes around with all first parts while it begins with the second
 * ones: what was summed leaves again, and what was sent is overwritten, while it is still in a cache. A transfer is
 * part p in step s; transfers are ordered by their slot p + s, in a slot by s. The same on all ranks:
 *
 *     slot         0      1          2
 *     transfers    p0 s0  p1 s0      p2 s0
 *                         p0 s1      p1 s1
 *                                    p0 s2 ...
 *
 * Nothing waits for the end of a step. Two cursors only move forward through the transfers: `in` says how far arriving
 * bytes are settled (added, or in place), `out` how far we have sent. What may be sent is what is settled, one step
 * earlier. Bytes flow through a rank as soon as their element is summed.
 *
 *     1. No byte leaves before it is settled: part p in step s is behind `in` in part p, step s - 1.
 *     2. Less than one element is held back, and none at the end of a part.
 *     3. In the all-gather a byte is written over our own copy only after that copy was sent: the finished
 *        value contains our share, so it cannot exist before we sent it.
 *
 * It cannot freeze, whatever the sizes of chunks and socket buffers: what a transfer needs stands before it in the order
 * of all ranks, settling is local, so a rank can always take in what arrives, and one loop does both directions; nobody
 * sits in a send.
 *
 * Chunk k is summed in the order of ranks k+1, k+2, ..., k, whatever the timing. So all ranks get the same
 * bits, and so does every run with the same N. Zero elements, fewer elements than ranks and uneven chunks
 * are no special cases.
 *
 * Cost: 2(N-1) latencies, and 2 D (N-1)/N bytes sent by each rank, which is the least possible for large D
 * (Patarasuk and Yuan, 2009). To be exact: all chunks but r, then all chunks but r+1, so
 * 2 D - chunk(r) - chunk(r+1); over all ranks 2 (N-1) D.
 */
#include "coll/ring.h"

#include <limits.h>

#include "base/check.h"
#include "coll/intake.h"
#include "net/poller.h"

struct cursor {
    int    part, step; /* end_step: behind the last transfer */
    size_t at_bytes;   /* into this part of this step's chunk */
};

struct ring {
    struct gmi_op   *op;
    struct gmi_port *right, *left; /* the same one when N is 2 */
    int              first_step, end_step, n_parts;
    struct cursor    out, in;
    struct gmi_intake intake;    /* what is reduced comes through it */
};
_Static_assert(sizeof(struct ring) <= GMI_OP_STATE_BYTES, "the ring's state fits into an op");

static struct ring *ring_of(struct gmi_op *op) { return (struct ring *)op->state; }

/* ---- the schedule: which chunk belongs to which step ------------------------------------------- */

int gmi_ring_chunk(int rank, int n_ranks, int step)
{
    int chunk = (rank - 1 - step) % n_ranks;
    return chunk < 0 ? chunk + n_ranks : chunk;
}

static int chunk_of(const struct ring *r, int step)
{
    return gmi_ring_chunk(gmi_op_rank(r->op), gmi_op_ranks(r->op), step);
}

static size_t step_bytes(const struct ring *r, int step) { return gmi_op_chunk_bytes(r->op, chunk_of(r, step)); }

static size_t part_at(const struct ring *r, size_t chunk_bytes, int part)
{
    size_t elem_bytes = r->op->codec.elem_bytes;
    if (r->n_parts == 1) return part == 0 ? 0 : chunk_bytes; /* most calls, and no divisions */
    return gmi_chunk_first(chunk_bytes / elem_bytes, r->n_parts, part) * elem_bytes;
}

/* Where a part of the chunk c(step) lies in the buffer, and how long it is. */
static size_t place(const struct ring *r, int step, int part)
{
    return gmi_op_chunk_at(r->op, chunk_of(r, step)) + part_at(r, step_bytes(r, step), part);
}

static size_t part_bytes(const struct ring *r, int step, int part)
{
    size_t chunk_bytes = step_bytes(r, step);
    return part_at(r, chunk_bytes, part + 1) - part_at(r, chunk_bytes, part);
}

static int last_reducing_step(const struct ring *r) { return gmi_op_ranks(r->op) - 2; }

static bool is_reducing(const struct ring *r) { return r->in.step <= last_reducing_step(r); }

/* What leaves: first our own values, later what has arrived. */
static const uint8_t *leaving(const struct ring *r)
{
    const uint8_t *whole = r->out.step == 0 ? r->op->input : r->op->output;
    return whole + place(r, r->out.step, r->out.part) + r->out.at_bytes;
}

/* Where that which arrives is put once it is settled. */
static uint8_t *home(const struct ring *r)
{
    size_t at = place(r, r->in.step + 1, r->in.part);
    if (r->in.step == last_reducing_step(r) && r->op->own_output != NULL) {
        return r->op->own_output + (at - place(r, r->in.step + 1, 0)) + r->in.at_bytes;
    }
    return r->op->output + at + r->in.at_bytes;
}

/* ---- the cursors ------------------------------------------------------------------------------- */

/* `out` walks the chunks c(step), `in` the chunks c(step + 1). */
enum { WALK_OUT = 0, WALK_IN = 1 };

static bool is_through(const struct ring *r, const struct cursor *c) { return c->step == r->end_step; }

static struct cursor first_in_slot(const struct ring *r, int slot)
{
    int last_part = r->n_parts - 1, part = slot < last_part ? slot : last_part;
    return (struct cursor){ .part = part, .step = r->first_step + slot - part };
}

static void go_on(const struct ring *r, struct cursor *c)
{
    if (c->part > 0 && c->step + 1 < r->end_step) {
        *c = (struct cursor){ .part = c->part - 1, .step = c->step + 1 };
    } else {
        *c = first_in_slot(r, c->part + c->step - r->first_step + 1);
    }
}

/* Moves a cursor on, over empty parts too (there are some when elements are fewer than ranks). */
static void advance(struct ring *r, struct cursor *cursor, int walk, size_t moved_bytes)
{
    cursor->at_bytes += moved_bytes;
    while (!is_through(r, cursor) && cursor->at_bytes == part_bytes(r, cursor->step + walk, cursor->part)) {
        go_on(r, cursor);
    }
    r->op->step = (r->in.step < r->end_step ? r->in.step : r->end_step - 1) - r->first_step;
}

/* How much of part `part` of what arrives in `step` is settled: SIZE_MAX, all of it. */
static size_t settled_bytes(const struct ring *r, int step, int part)
{
    int slot = part + step, slot_in = r->in.part + r->in.step;
    if (slot == slot_in && step == r->in.step) return r->in.at_bytes;
    bool is_behind = slot < slot_in || (slot == slot_in && step < r->in.step);
    return is_through(r, &r->in) || is_behind ? SIZE_MAX : 0;
}

/* How much of what leaves is settled and not yet sent. */
static size_t sendable_bytes(const struct ring *r)
{
    if (is_through(r, &r->out)) return 0;
    size_t ready_bytes = part_bytes(r, r->out.step, r->out.part); /* our own values are */
    if (r->out.step > r->first_step) {
        ready_bytes = gmi_min_size(ready_bytes, settled_bytes(r, r->out.step - 1, r->out.part));
    }
    GMI_CHECK(r->out.at_bytes <= ready_bytes);
    return ready_bytes - r->out.at_bytes;
}

static size_t leaving_bytes(const struct ring *r)
{
    return is_through(r, &r->out) ? 0 : part_bytes(r, r->out.step, r->out.part) - r->out.at_bytes;
}

static size_t arriving_bytes(const struct ring *r)
{
    if (is_through(r, &r->in)) return 0;
    return part_bytes(r, r->in.step + WALK_IN, r->in.part) - r->in.at_bytes;
}

static bool wants_to_send(const struct ring *r) { return sendable_bytes(r) > 0 || !r->right->is_descriptor_sent; }
static bool wants_to_recv(const struct ring *r) { return arriving_bytes(r) > 0 || !r->left->is_descriptor_matched; }

/* ---- moving bytes; all of these return at once ------------------------------------------------- */

/* For the trace: the chunk is seen from where it lies, the step is the cursor's. */
static void note(const struct ring *r, struct gmi_port *port, enum gmi_direction direction, const struct cursor *c)
{
    struct gmi_place place = GMI_NOWHERE;
    place.step = c->step - r->first_step;
    place.is_added = c->step <= last_reducing_step(r); /* by who receives it */
    if (!is_through(r, c)) gmi_record_note(direction == GMI_OUT ? &port->out_flow : &port->in_flow, place);
}

static gm_status send_some(struct ring *r)
{
    const uint8_t *from = NULL;
    size_t         ready_bytes = sendable_bytes(r), sent_bytes;
    if (ready_bytes > 0) from = leaving(r);
    if (r->op->trace != NULL) note(r, r->right, GMI_OUT, &r->out);
    gm_status status = gmi_port_send_some(r->right, from, ready_bytes, leaving_bytes(r), &sent_bytes);
    advance(r, &r->out, WALK_OUT, sent_bytes);
    return status;
}

/* Adds what arrives to ours. */
static gm_status reduce_some(struct ring *r, size_t *settled_bytes)
{
    struct gmi_op *op = r->op;
    size_t         left_bytes = arriving_bytes(r);
    uint8_t       *to = home(r);
    const uint8_t *own = op->input + place(r, r->in.step + WALK_IN, r->in.part) + r->in.at_bytes;
    gm_status status = gmi_intake_some(&r->intake, r->left, to, own, left_bytes, left_bytes, settled_bytes);
    if (*settled_bytes > 0 && r->in.step == last_reducing_step(r) && op->codec.finish != NULL) {
        op->codec.finish(to, *settled_bytes / op->codec.elem_bytes, gmi_op_ranks(op));
    }
    return status;
}

/* A finished chunk goes straight into its place. */
static gm_status gather_some(struct ring *r, size_t *got_bytes)
{
    size_t   left_bytes = arriving_bytes(r);
    uint8_t *into = left_bytes > 0 ? home(r) : NULL;
    return gmi_port_recv_some(r->left, into, left_bytes, left_bytes, got_bytes);
}

static gm_status recv_some(struct ring *r)
{
    size_t    settled_bytes;
    if (r->op->trace != NULL) note(r, r->left, GMI_IN, &r->in);
    gm_status status = is_reducing(r) ? reduce_some(r, &settled_bytes) : gather_some(r, &settled_bytes);
    if (settled_bytes > 0) advance(r, &r->in, WALK_IN, settled_bytes);
    return status;
}

/* ---- the machine ------------------------------------------------------------------------------- */

/* As many parts as the largest chunk needs. */
static int count_parts(const struct gmi_op *op)
{
    size_t most_bytes = 0;
    for (int k = 0; k < gmi_op_ranks(op); k++) {
        size_t bytes = gmi_op_chunk_bytes(op, k);
        if (bytes > most_bytes) most_bytes = bytes;
    }
    size_t n = most_bytes / op->part_bytes + (most_bytes % op->part_bytes != 0);
    return n == 0 ? 1 : n < INT_MAX / 4 ? (int)n : INT_MAX / 4;
}

static void begin(struct gmi_op *op, int first_step, int end_step)
{
    struct ring *r = ring_of(op);
    *r = (struct ring){ .op = op,
                        .right = gmi_op_neighbour(op, +1),
                        .left = gmi_op_neighbour(op, -1),
                        .first_step = first_step,
                        .end_step = end_step,
                        .n_parts = count_parts(op) };
    r->out = r->in = first_in_slot(r, 0);
    op->n_steps = end_step - first_step;
    for (int step = first_step; step < end_step; step++) op->total_recv_bytes += step_bytes(r, step + WALK_IN);
    gmi_port_begin(r->right, op);
    if (r->left != r->right) gmi_port_begin(r->left, op);
    advance(r, &r->out, WALK_OUT, 0);
    advance(r, &r->in, WALK_IN, 0);
}

static bool is_finished(const struct ring *r)
{
    return is_through(r, &r->out) && is_through(r, &r->in) && r->right->is_descriptor_sent &&
           r->left->is_descriptor_matched && gmi_port_is_flushed(r->right);
}

static gm_status progress(struct gmi_op *op)
{
    struct ring *r = ring_of(op);
    for (;;) {
        uint64_t  before_bytes = op->moved_bytes;
        gm_status status = wants_to_send(r) ? send_some(r) : GM_OK;
        if (status == GM_OK && wants_to_recv(r)) status = recv_some(r);
        if (status != GM_OK) return status;
        if (is_finished(r)) return GM_OK;
        if (op->moved_bytes == before_bytes) return GM_AGAIN;
    }
}

static void interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct ring *r = ring_of(op);
    if (wants_to_send(r)) gmi_port_watch(r->right, poller, GMI_WRITABLE);
    if (wants_to_recv(r)) gmi_port_watch(r->left, poller, GMI_READABLE);
}

/* ---- the collectives are ranges of steps ------------------------------------------------------- */

static void begin_all_reduce(struct gmi_op *op) { begin(op, 0, 2 * gmi_op_ranks(op) - 2); }
static void begin_reduce_scatter(struct gmi_op *op) { begin(op, 0, gmi_op_ranks(op) - 1); }
static void begin_all_gather(struct gmi_op *op) { begin(op, gmi_op_ranks(op) - 1, 2 * gmi_op_ranks(op) - 2); }

/* A barrier is an all-gather of one byte from each rank: who has all N bytes knows that all have come. */
static void begin_barrier(struct gmi_op *op)
{
    op->count_elems = (size_t)gmi_op_ranks(op);
    op->output = op->work;
    begin_all_gather(op);
}

static size_t barrier_work_bytes(const struct gmi_shape *s) { return (size_t)s->n_ranks; }

/* Out of place, the partial sums on their way need a place that is not the caller's. */
static size_t reduce_scatter_work_bytes(const struct gmi_shape *s)
{
    return s->is_in_place ? 0 : gmi_shape_bytes(s);
}

/* All chunks but the one of rank `spared`. */
static uint64_t all_but(const struct gmi_shape *s, int spared)
{
    return gmi_shape_bytes(s) - gmi_shape_chunk_bytes(s, spared % s->n_ranks);
}

static uint64_t reduce_scatter_bytes(const struct gmi_shape *s) { return all_but(s, s->rank); }

static uint64_t all_gather_bytes(const struct gmi_shape *s) { return all_but(s, s->rank + 1); }

static uint64_t all_reduce_bytes(const struct gmi_shape *s) { return all_but(s, s->rank) + all_but(s, s->rank + 1); }

static uint64_t barrier_bytes(const struct gmi_shape *s) { return (uint64_t)s->n_ranks - 1; }

/* Once around, N-1 steps, in which a rank passes on all chunks but one. Nothing is kept: bytes leave as they come. */
static struct gmi_effort once_around(int n_ranks, double bytes, bool is_summed)
{
    double moved = bytes * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = n_ranks - 1, .messages = n_ranks - 1,
                                .all_messages = n_ranks * (n_ranks - 1), .sent_bytes = moved, .recv_bytes = moved,
                                .all_bytes = moved * n_ranks, .reduced_bytes = is_summed ? moved : 0,
                                .stays_with_neighbours = true };
}

static struct gmi_effort reduce_scatter_effort(int n_ranks, double bytes) { return once_around(n_ranks, bytes, true); }
static struct gmi_effort all_gather_effort(int n_ranks, double bytes) { return once_around(n_ranks, bytes, false); }
static struct gmi_effort barrier_effort(int n_ranks, double bytes) { return once_around(n_ranks, bytes + n_ranks, false); }

static struct gmi_effort all_reduce_effort(int n_ranks, double bytes)
{
    return gmi_effort_sum(once_around(n_ranks, bytes, true), once_around(n_ranks, bytes, false));
}

/* Partial sums travel, and a chunk is summed along one way only. */
#define RING_ROW                                                                                   \
    .id = GMI_ALGO_RING, .name = "ring", .shows = GMI_VIEW_ONCE, .progress = progress, .interest = interest

const struct gmi_algo gmi_ring_all_reduce = {
    RING_ROW,
    .collective = GM_ALL_REDUCE,
    .summary = "reduce-scatter, then all-gather, around the ring: 2 D (N-1)/N bytes, 2(N-1) steps",
    .begin = begin_all_reduce,
    .payload_sent_bytes = all_reduce_bytes,
    .effort = all_reduce_effort,
};
const struct gmi_algo gmi_ring_reduce_scatter = {
    RING_ROW,
    .collective = GM_REDUCE_SCATTER,
    .summary = "partial sums travel around the ring: D (N-1)/N bytes, N-1 steps",
    .begin = begin_reduce_scatter,
    .payload_sent_bytes = reduce_scatter_bytes,
    .effort = reduce_scatter_effort,
    .work_bytes = reduce_scatter_work_bytes,
};
const struct gmi_algo gmi_ring_all_gather = {
    RING_ROW,
    .collective = GM_ALL_GATHER,
    .summary = "chunks travel around the ring: D (N-1)/N bytes, N-1 steps",
    .begin = begin_all_gather,
    .payload_sent_bytes = all_gather_bytes,
    .effort = all_gather_effort,
};
const struct gmi_algo gmi_ring_barrier = {
    RING_ROW,
    .collective = GM_BARRIER,
    .summary = "an all-gather of one byte from each rank: N-1 bytes, N-1 steps",
    .begin = begin_barrier,
    .payload_sent_bytes = barrier_bytes,
    .effort = barrier_effort,
    .work_bytes = barrier_work_bytes,
};
