/* chain.c - broadcast along the ring, from the root to the root's left neighbour.
 *
 *     root -> root+1 -> root+2 -> ... -> root-1        (mod N)
 *
 * A pipeline: every rank passes bytes on as soon as it has them, so a large buffer takes little longer
 * than one hop, D/bandwidth + (N-2) pieces. Rank root-1 sends no payload, all others send D bytes once.
 *
 * Every rank, the last one too, sends its descriptor to the right and compares the left's. So any two
 * ranks that call different things, two roots for instance, have a pair of neighbours between them that
 * notices in this very call.
 *
 * Invariant: out_bytes <= in_bytes (the root has everything from the start).
 */
#include "coll/chain.h"

#include "net/poller.h"

struct chain {
    struct gmi_op   *op;
    struct gmi_port *right, *left;
    size_t           total_bytes;
    size_t           in_bytes, in_total_bytes;   /* from the left; the root expects nothing */
    size_t           out_bytes, out_total_bytes; /* to the right; the last rank sends nothing */
};
_Static_assert(sizeof(struct chain) <= GMI_OP_STATE_BYTES, "the chain's state fits into an op");

static struct chain *chain_of(struct gmi_op *op) { return (struct chain *)op->state; }

static int distance_from_root(int n_ranks, int rank, int root) { return (rank - root + n_ranks) % n_ranks; }

static void begin(struct gmi_op *op)
{
    struct chain *c = chain_of(op);
    int n = gmi_op_ranks(op), place = distance_from_root(n, gmi_op_rank(op), op->call.root);
    *c = (struct chain){ .op = op, .right = gmi_op_neighbour(op, +1), .left = gmi_op_neighbour(op, -1) };
    c->total_bytes = op->count_elems * op->codec.elem_bytes;
    c->in_total_bytes = place == 0 ? 0 : c->total_bytes;
    c->out_total_bytes = place == n - 1 ? 0 : c->total_bytes;
    op->total_recv_bytes = c->in_total_bytes;
    gmi_port_begin(c->right, op);
    if (c->left != c->right) gmi_port_begin(c->left, op);
}

static size_t sendable_bytes(const struct chain *c)
{
    if (c->out_total_bytes == 0) return 0;
    return (c->in_total_bytes == 0 ? c->total_bytes : c->in_bytes) - c->out_bytes;
}

static bool wants_to_send(const struct chain *c) { return sendable_bytes(c) > 0 || !c->right->is_descriptor_sent; }
static bool wants_to_recv(const struct chain *c)
{
    return c->in_bytes < c->in_total_bytes || !c->left->is_descriptor_matched;
}

static gm_status send_some(struct chain *c)
{
    size_t    sent_bytes, ready_bytes = sendable_bytes(c);
    const uint8_t *from = ready_bytes > 0 ? c->op->output + c->out_bytes : NULL;
    gm_status status = gmi_port_send_some(c->right, from, ready_bytes, c->out_total_bytes - c->out_bytes,
                                          &sent_bytes);
    c->out_bytes += sent_bytes;
    return status;
}

static gm_status recv_some(struct chain *c)
{
    size_t    got_bytes, left_bytes = c->in_total_bytes - c->in_bytes;
    uint8_t  *into = left_bytes > 0 ? c->op->output + c->in_bytes : NULL;
    /* Who passes them on takes no more at once than stays in a core's cache until it has. */
    size_t    space_bytes = c->out_total_bytes > 0 ? gmi_min_size(left_bytes, GMI_SCRATCH_BYTES) : left_bytes;
    gm_status status = gmi_port_recv_some(c->left, into, space_bytes, left_bytes, &got_bytes);
    c->in_bytes += got_bytes;
    return status;
}

static bool is_finished(const struct chain *c)
{
    return c->in_bytes == c->in_total_bytes && c->out_bytes == c->out_total_bytes &&
           c->right->is_descriptor_sent && c->left->is_descriptor_matched && gmi_port_is_flushed(c->right);
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
    bool is_last = distance_from_root(s->n_ranks, s->rank, s->root) == s->n_ranks - 1;
    return is_last ? 0 : gmi_shape_bytes(s);
}

/* A pipeline: its length is that of the buffer and of one portion for each further hop. */
static struct gmi_effort effort(int n_ranks, double bytes)
{
    double portion = bytes < GMI_SCRATCH_BYTES ? bytes : GMI_SCRATCH_BYTES, path = bytes + (n_ranks - 2) * portion;
    return (struct gmi_effort){ .turns = n_ranks - 1, .messages = 1, .all_messages = n_ranks, .sent_bytes = path,
                                .recv_bytes = n_ranks == 2 ? 0 : path, .all_bytes = bytes * (n_ranks - 1), .stays_with_neighbours = true };
}

const struct gmi_algo gmi_chain_broadcast = {
    .id = GMI_ALGO_RING,
    .name = "ring",
    .collective = GM_BROADCAST,
    .summary = "a pipeline along the ring, from the root to its left neighbour: D bytes by all but the last",
    .begin = begin,
    .progress = progress,
    .interest = interest,
    .payload_sent_bytes = payload_sent_bytes,
    .effort = effort,
};
