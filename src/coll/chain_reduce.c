/* chain_reduce.c - reduce along the ring, from the root's right neighbour to the root, for large
 * buffers.
 *
 *     root+1 -> root+2 -> ... -> root-1 -> root        (mod N)
 *
 * A pipeline: each rank adds its own values to the partial sums that pass and sends them on, so a
 * large buffer takes little longer than one hop. Every rank but the root sends D bytes, which is
 * the least that can be: what it contributes must leave it. The sum is taken in the order of ranks
 * root+1, root+2, ..., root.
 *
 * Between `in` and `out` partial sums stand in a window of op->work, used round and round:
 *
 *     1. out_bytes <= in_bytes <= out_bytes + window: nothing leaves before it was added up,
 *        nothing is overwritten before it has left. The root adds up in its output instead, the
 *        first rank sends from its input.
 *     2. Less than one element is held back.
 *
 * It cannot freeze: the root takes in whatever arrives, so does then the one before it, and so on.
 *
 * Every rank, the root too, sends its descriptor to the right and compares the left's, as in
 * chain.c.
 */
#include "coll/chain_reduce.h"

#include "coll/intake.h"
#include "net/poller.h"

enum { WINDOW_BYTES = 1024 * 1024 }; /* a multiple of every element's size */

struct chain {
    struct gmi_op   *op;
    struct gmi_port *right, *left;
    size_t           total_bytes, window_bytes;
    size_t           in_bytes, in_total_bytes; /* added up; of so many that come from the left */
    size_t           out_bytes, out_total_bytes;
    struct gmi_intake intake;
};
_Static_assert(sizeof(struct chain) <= GMI_OP_STATE_BYTES, "the chain's state fits into an op");

static struct chain *chain_of(struct gmi_op *op) { return (struct chain *)op->state; }

/* 0: the first to send; N-1: the root. */
static int place_of(int n_ranks, int rank, int root)
{
    return (rank - root - 1 + n_ranks) % n_ranks;
}

static void begin(struct gmi_op *op)
{
    struct chain *c = chain_of(op);
    int n = gmi_op_ranks(op), place = place_of(n, gmi_op_rank(op), op->call.root);
    *c = (struct chain){ .op = op, .right = gmi_op_neighbour(op, +1), .left = gmi_op_neighbour(op, -1) };
    c->total_bytes = gmi_op_bytes(op);
    c->window_bytes = gmi_min_size(WINDOW_BYTES, c->total_bytes);
    c->in_total_bytes = place == 0 ? 0 : c->total_bytes;
    c->out_total_bytes = place == n - 1 ? 0 : c->total_bytes;
    op->total_recv_bytes = c->in_total_bytes;
    gmi_port_begin(c->right, op);
    if (c->left != c->right) gmi_port_begin(c->left, op);
}

static bool is_root(const struct chain *c) { return c->out_total_bytes == 0; }
static bool is_first(const struct chain *c) { return c->in_total_bytes == 0; }

/* Where the sum of the element at this position is, or will be. */
static uint8_t *home(const struct chain *c, size_t at_bytes)
{
    return is_root(c) ? c->op->output + at_bytes : c->op->work + at_bytes % c->window_bytes;
}

/* As far as memory reaches without a break from this position of the window. */
static size_t to_the_end(const struct chain *c, size_t at_bytes)
{
    return c->window_bytes - at_bytes % c->window_bytes;
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t sendable_bytes(const struct chain *c)
{
    if (c->total_bytes == 0 || is_root(c)) return 0;
    if (is_first(c)) return c->total_bytes - c->out_bytes;
    return gmi_min_size(c->in_bytes - c->out_bytes, to_the_end(c, c->out_bytes));
}

static bool wants_to_send(const struct chain *c)
{
    return sendable_bytes(c) > 0 || !c->right->is_descriptor_sent;
}

static gm_status send_some(struct chain *c)
{
    size_t         sent_bytes, ready_bytes = sendable_bytes(c);
    const uint8_t *from = NULL;
    if (ready_bytes > 0) from = is_first(c) ? c->op->input + c->out_bytes : home(c, c->out_bytes);
    gm_status status = gmi_port_send_some(c->right, from, ready_bytes,
                                          c->out_total_bytes - c->out_bytes, &sent_bytes);
    c->out_bytes += sent_bytes;
    return status;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static size_t arriving_bytes(const struct chain *c) { return c->in_total_bytes - c->in_bytes; }

/* How many bytes may be added up now: whole elements that have room without a break. */
static size_t room_bytes(const struct chain *c)
{
    if (is_root(c) || arriving_bytes(c) == 0) return arriving_bytes(c);
    size_t free_bytes = c->window_bytes - (c->in_bytes - c->out_bytes);
    free_bytes -= free_bytes % c->op->codec.elem_bytes;
    return gmi_min_size(gmi_min_size(free_bytes, to_the_end(c, c->in_bytes)), arriving_bytes(c));
}

static bool wants_to_recv(const struct chain *c)
{
    return room_bytes(c) > 0 || !c->left->is_descriptor_matched;
}

static gm_status recv_some(struct chain *c)
{
    struct gmi_op *op = c->op;
    size_t         settled_bytes, room = room_bytes(c);
    uint8_t       *to = room > 0 ? home(c, c->in_bytes) : NULL;
    gm_status status = gmi_intake_some(&c->intake, c->left, to, op->input + c->in_bytes, room,
                                       arriving_bytes(c), &settled_bytes);
    if (settled_bytes > 0 && is_root(c) && op->codec.finish != NULL) {
        op->codec.finish(to, settled_bytes / op->codec.elem_bytes, gmi_op_ranks(op));
    }
    c->in_bytes += settled_bytes;
    return status;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static bool is_finished(const struct chain *c)
{
    return c->in_bytes == c->in_total_bytes && c->out_bytes == c->out_total_bytes &&
           c->right->is_descriptor_sent && c->left->is_descriptor_matched &&
           gmi_port_is_flushed(c->right);
}

static gm_status progress(struct gmi_op *op)
{
    struct chain *c = chain_of(op);
    for (;;) {
        uint64_t  before_bytes = op->moved_bytes;
        gm_status status = wants_to_send(c) ? send_some(c) : GM_OK;
        if (status == GM_OK && wants_to_recv(c)) status = recv_some(c);
        if (status != GM_OK) return status;
        if (is_finished(c)) return GM_OK;
        if (op->moved_bytes == before_bytes) return GM_AGAIN;
    }
}

static void interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct chain *c = chain_of(op);
    if (wants_to_send(c)) gmi_port_watch(c->right, poller, GMI_WRITABLE);
    if (wants_to_recv(c)) gmi_port_watch(c->left, poller, GMI_READABLE);
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    return s->rank == s->root ? 0 : gmi_shape_bytes(s);
}

/* A pipeline: its length is that of the buffer and of one portion for each further hop. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    double portion = bytes < GMI_SCRATCH_BYTES ? bytes : GMI_SCRATCH_BYTES;
    double path = bytes + (n_ranks - 2) * portion;
    return (struct gmi_effort){ .turns = n_ranks - 1,
                                .messages = 1,
                                .all_messages = n_ranks,
                                .sent_bytes = n_ranks == 2 ? 0 : path, .recv_bytes = path,
                                .all_bytes = bytes * (n_ranks - 1),
                                .reduced_bytes = path,
                                .kept_bytes = n_ranks == 2 ? 0 : bytes < WINDOW_BYTES ? bytes : WINDOW_BYTES,
                                .stays_with_neighbours = true };
}

static size_t work_bytes(const struct gmi_shape *s)
{
    int place = place_of(s->n_ranks, s->rank, s->root);
    return place == 0 || place == s->n_ranks - 1 ? 0
                                                 : gmi_min_size(WINDOW_BYTES, gmi_shape_bytes(s));
}

const struct gmi_algo gmi_chain_reduce = {
    .id = GMI_ALGO_RING,
    .name = "ring",
    .collective = GM_REDUCE,
    .summary = "a pipeline of partial sums along the ring to the root: D bytes by all but the root",
    .shows = GMI_VIEW_ONCE,
    .begin = begin,
    .progress = progress,
    .interest = interest,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
    .work_bytes = work_bytes,
};
