/* naive.c - all-reduce by circulating everything: the baseline that the ring is compared with.
 *
 * Everybody's whole contribution travels around the ring, so every rank sees all N of them and adds them
 * up itself. Each rank sends D (N-1) bytes, N/2 times as many as the ring all-reduce. It is also the plain
 * oracle: the sum is taken in the order of ranks 0, 1, ..., N-1, on every rank alike.
 *
 * To keep memory small the buffer is cut into blocks, and each block makes its whole round before it is
 * added up. In turn t = (block b, step s), s = 0 .. N-2,
 *
 *     rank r sends      the contribution of rank r - s        (mod N) to block b,
 *     rank r receives   the contribution of rank r - s - 1    (mod N) to block b,
 *
 * so what arrives in step s leaves in step s + 1, as in ring.c, with the same two cursors. Two sets of N
 * slots hold the contributions to two blocks:
 *
 *     1. A contribution leaves only as far as it has arrived (or is our own).
 *     2. Block b uses the slots of block b - 2, so neither cursor enters block b before both have left
 *        block b - 2. It cannot freeze: for all ranks to hold back, each rank's `in` would have to be two
 *        blocks ahead of its `out`, hence each rank's `out` behind its left neighbour's, all around.
 *     3. Our own contribution is copied to its slot when its block is entered, before the result overwrites
 *        it (in place both are the same memory).
 */
#include "coll/naive.h"

#include <string.h>

#include "net/poller.h"

enum { BLOCK_BYTES = 64 * 1024, SETS = 2 };

struct turn {
    size_t block;
    int    step;
    size_t at_bytes; /* into the block */
};

struct naive {
    struct gmi_op   *op;
    struct gmi_port *right, *left;
    size_t           total_bytes, n_blocks, slot_bytes;
    size_t           entered_blocks; /* own contributions copied so far */
    struct turn      out, in;
};
_Static_assert(sizeof(struct naive) <= GMI_OP_STATE_BYTES, "the state fits into an op");

static struct naive *naive_of(struct gmi_op *op) { return (struct naive *)op->state; }

/* ---- blocks and slots -------------------------------------------------------------------------- */

static size_t block_bytes(const struct naive *v, size_t block)
{
    return gmi_min_size(BLOCK_BYTES, v->total_bytes - block * BLOCK_BYTES);
}

static uint8_t *slot(const struct naive *v, size_t block, int contributor)
{
    size_t set = block % SETS, n = (size_t)gmi_op_ranks(v->op);
    return v->op->work + (set * n + (size_t)contributor) * v->slot_bytes;
}

static int contributor(const struct naive *v, int steps_back)
{
    int n = gmi_op_ranks(v->op);
    return ((gmi_op_rank(v->op) - steps_back) % n + n) % n;
}

/* Invariant 2. */
static bool may_enter(const struct naive *v, size_t block)
{
    return v->out.block + SETS > block && v->in.block + SETS > block;
}

static void enter(struct naive *v, size_t block)
{
    if (block < v->entered_blocks) return;
    memcpy(slot(v, block, gmi_op_rank(v->op)), v->op->input + block * BLOCK_BYTES, block_bytes(v, block));
    v->entered_blocks = block + 1;
}

/* All contributions to the block are here: adds them up in the order of ranks. */
static void add_up(struct naive *v, size_t block)
{
    struct gmi_op           *op = v->op;
    struct gmi_contributions all = { .n = gmi_op_ranks(op), .base = slot(v, block, 0), .stride_bytes = v->slot_bytes, .own = -1 };
    gmi_codec_settle(&op->codec, op->output + block * BLOCK_BYTES, &all, block_bytes(v, block) / op->codec.elem_bytes);
}

/* ---- the cursors ------------------------------------------------------------------------------- */

static bool is_over(const struct naive *v, const struct turn *t) { return t->block == v->n_blocks; }

/* True when the block has made its round. */
static bool advance(const struct naive *v, struct turn *t, size_t moved_bytes)
{
    t->at_bytes += moved_bytes;
    if (is_over(v, t) || t->at_bytes < block_bytes(v, t->block)) return false;
    t->at_bytes = 0;
    if (++t->step < gmi_op_ranks(v->op) - 1) return false;
    t->step = 0;
    t->block++;
    return true;
}

static size_t leaving_bytes(const struct naive *v)
{
    return is_over(v, &v->out) ? 0 : block_bytes(v, v->out.block) - v->out.at_bytes;
}

static size_t sendable_bytes(const struct naive *v)
{
    if (is_over(v, &v->out)) return 0;
    if (v->out.step == 0) return may_enter(v, v->out.block) ? leaving_bytes(v) : 0;
    /* Compared as (block, step): `out` may have begun a block that `in` has not. */
    if (v->in.block != v->out.block) return v->in.block > v->out.block ? leaving_bytes(v) : 0;
    if (v->in.step >= v->out.step) return leaving_bytes(v);
    return v->in.step == v->out.step - 1 ? v->in.at_bytes - v->out.at_bytes : 0;
}

static size_t arriving_bytes(const struct naive *v)
{
    if (is_over(v, &v->in) || !may_enter(v, v->in.block)) return 0;
    return block_bytes(v, v->in.block) - v->in.at_bytes;
}

static bool wants_to_send(const struct naive *v) { return sendable_bytes(v) > 0 || !v->right->is_descriptor_sent; }
static bool wants_to_recv(const struct naive *v)
{
    return arriving_bytes(v) > 0 || !v->left->is_descriptor_matched;
}

/* For the trace: chunk is whose contribution it is. */
static void note(const struct naive *v, struct gmi_flow *flow, const struct turn *t, int whose)
{
    size_t           elem_bytes = v->op->codec.elem_bytes;
    struct gmi_place place = { .step = t->step, .chunk = whose, .is_added = -1 };
    place.first_elem = (int64_t)(t->block * BLOCK_BYTES / elem_bytes);
    place.n_elems = (int64_t)(block_bytes(v, t->block) / elem_bytes);
    gmi_record_note(flow, place);
}

/* ---- moving bytes ------------------------------------------------------------------------------ */

static gm_status send_some(struct naive *v)
{
    size_t sent_bytes, ready_bytes = sendable_bytes(v);
    const uint8_t *from = NULL;
    if (ready_bytes > 0) {
        enter(v, v->out.block);
        from = slot(v, v->out.block, contributor(v, v->out.step)) + v->out.at_bytes;
        if (v->op->trace != NULL) note(v, &v->right->out_flow, &v->out, contributor(v, v->out.step));
    }
    gm_status status = gmi_port_send_some(v->right, from, ready_bytes, leaving_bytes(v), &sent_bytes);
    if (sent_bytes > 0) advance(v, &v->out, sent_bytes);
    return status;
}

static gm_status recv_some(struct naive *v)
{
    size_t   got_bytes, left_bytes = arriving_bytes(v), block = v->in.block;
    uint8_t *into = NULL;
    if (left_bytes > 0) {
        enter(v, block);
        into = slot(v, block, contributor(v, v->in.step + 1)) + v->in.at_bytes;
        if (v->op->trace != NULL) note(v, &v->left->in_flow, &v->in, contributor(v, v->in.step + 1));
    }
    gm_status status = gmi_port_recv_some(v->left, into, left_bytes, left_bytes, &got_bytes);
    if (got_bytes > 0 && advance(v, &v->in, got_bytes)) add_up(v, block);
    return status;
}

/* ---- the machine ------------------------------------------------------------------------------- */

static void begin(struct gmi_op *op)
{
    struct naive *v = naive_of(op);
    *v = (struct naive){ .op = op, .right = gmi_op_neighbour(op, +1), .left = gmi_op_neighbour(op, -1) };
    v->total_bytes = op->count_elems * op->codec.elem_bytes;
    v->n_blocks = (v->total_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    v->slot_bytes = gmi_min_size(BLOCK_BYTES, v->total_bytes);
    op->total_recv_bytes = v->total_bytes * (uint64_t)(gmi_op_ranks(op) - 1);
    gmi_port_begin(v->right, op);
    if (v->left != v->right) gmi_port_begin(v->left, op);
}

static bool is_finished(const struct naive *v)
{
    return is_over(v, &v->out) && is_over(v, &v->in) && v->right->is_descriptor_sent &&
           v->left->is_descriptor_matched && gmi_port_is_flushed(v->right);
}

static gm_status progress(struct gmi_op *op)
{
    struct naive *v = naive_of(op);
    for (;;) {
        uint64_t  before_bytes = op->moved_bytes;
        gm_status status = wants_to_send(v) ? send_some(v) : GM_OK;
        if (status == GM_OK && wants_to_recv(v)) status = recv_some(v);
        if (status != GM_OK) return status;
        if (is_finished(v)) return GM_OK;
        if (op->moved_bytes == before_bytes) return GM_AGAIN;
    }
}

static void interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct naive *v = naive_of(op);
    if (wants_to_send(v)) gmi_port_watch(v->right, poller, GMI_WRITABLE);
    if (wants_to_recv(v)) gmi_port_watch(v->left, poller, GMI_READABLE);
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    return gmi_shape_bytes(s) * (uint64_t)(s->n_ranks - 1);
}

/* Kept are two blocks at the most, which fit into a cache. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    double moved = bytes * (n_ranks - 1);
    double messages = (n_ranks - 1) * (1 + bytes / BLOCK_BYTES);
    return (struct gmi_effort){ .turns = n_ranks - 1, .messages = messages, .all_messages = messages * n_ranks,
                                .sent_bytes = moved, .recv_bytes = moved, .all_bytes = moved * n_ranks, .reduced_bytes = moved,
                                .stays_with_neighbours = true };
}

static size_t work_bytes(const struct gmi_shape *s)
{
    return SETS * (size_t)s->n_ranks * gmi_min_size(BLOCK_BYTES, gmi_shape_bytes(s));
}

const struct gmi_algo gmi_naive_all_reduce = {
    .id = GMI_ALGO_NAIVE,
    .name = "naive",
    .collective = GM_ALL_REDUCE,
    .summary = "everybody's whole buffer travels around the ring: D (N-1) bytes; the baseline",
    .adding_phase = "circulate",
    .placing_phase = "circulate",
    .shows = GMI_VIEW_ALL,
    .begin = begin,
    .progress = progress,
    .interest = interest,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = work_bytes,
};
