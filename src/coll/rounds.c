#include "coll/rounds.h"

#include "base/check.h"
#include "net/poller.h"

_Static_assert(sizeof(struct gmi_rounds) <= GMI_OP_STATE_BYTES, "the rounds' state fits into an op");

static struct gmi_rounds *rounds_of(struct gmi_op *op) { return (struct gmi_rounds *)op->state; }

/* ---- a round ----------------------------------------------------------------------------------- */

/* The port to a peer, begun when this collective first uses it. */
static struct gmi_port *use_port(struct gmi_op *op, int peer)
{
    struct gmi_port *port = gmi_group_port(op->group, peer);
    if (port->op != op || port->seq != op->call.seq) gmi_port_begin(port, op);
    return port;
}

static void add(struct gmi_op *op, struct gmi_transfer *transfers, int *n, int peer, void *data, size_t n_bytes)
{
    GMI_CHECK(*n < GMI_MAX_TRANSFERS);
    transfers[(*n)++] = (struct gmi_transfer){ .port = use_port(op, peer), .data = data, .total_bytes = n_bytes };
}

void gmi_rounds_send(struct gmi_op *op, struct gmi_rounds *r, int peer, const void *data, size_t n_bytes)
{
    add(op, r->sends, &r->n_sends, peer, (void *)data, n_bytes);
}

void gmi_rounds_recv(struct gmi_op *op, struct gmi_rounds *r, int peer, void *data, size_t n_bytes)
{
    add(op, r->recvs, &r->n_recvs, peer, data, n_bytes);
    op->total_recv_bytes += n_bytes;
}

void gmi_rounds_send_stream(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_stream *stream)
{
    gmi_rounds_send(op, r, peer, stream->data, stream->n_bytes);
    r->sends[r->n_sends - 1].stream = stream;
}

void gmi_rounds_recv_stream(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_stream *stream)
{
    gmi_rounds_recv(op, r, peer, stream->data, stream->n_bytes);
    r->recvs[r->n_recvs - 1].stream = stream;
}

static bool prepare(struct gmi_op *op, struct gmi_rounds *r)
{
    r->n_sends = r->n_recvs = 0;
    op->step = r->index;
    return r->prepare(op, r, r->index);
}

void gmi_rounds_begin(struct gmi_op *op, int n_rounds,
                      bool (*prepare_round)(struct gmi_op *op, struct gmi_rounds *rounds, int index))
{
    struct gmi_rounds *r = rounds_of(op);
    *r = (struct gmi_rounds){ .prepare = prepare_round };
    op->n_steps = n_rounds;
    GMI_CHECK(prepare(op, r));
}

/* ---- transfers --------------------------------------------------------------------------------- */

static size_t left_bytes(const struct gmi_transfer *t) { return t->total_bytes - t->moved_bytes; }

static bool is_over(const struct gmi_transfer *t) { return left_bytes(t) == 0 && t->stream == NULL; }

static bool is_sent(const struct gmi_transfer *t)
{
    return is_over(t) && t->port->is_descriptor_sent && gmi_port_is_flushed(t->port);
}

static bool is_received(const struct gmi_transfer *t) { return is_over(t) && t->port->is_descriptor_matched; }

/* On to the next portion of a stream, if this one has moved. */
static gm_status go_on(struct gmi_transfer *t)
{
    if (left_bytes(t) > 0 || t->stream == NULL) return GM_OK;
    gm_status status = t->stream->next(t->port->op, t->stream);
    t->data = t->stream->data;
    t->total_bytes = t->stream->n_bytes;
    t->moved_bytes = 0;
    if (t->total_bytes == 0) t->stream = NULL;
    return status;
}

/* A transfer of nothing may have no memory. */
static uint8_t *place_of(const struct gmi_transfer *t) { return t->data != NULL ? t->data + t->moved_bytes : NULL; }

static gm_status send_some(struct gmi_transfer *t)
{
    size_t    moved;
    gm_status status = gmi_port_send_some(t->port, place_of(t), left_bytes(t), left_bytes(t), &moved);
    t->moved_bytes += moved;
    return status == GM_OK ? go_on(t) : status;
}

static gm_status recv_some(struct gmi_transfer *t)
{
    size_t    moved;
    gm_status status = gmi_port_recv_some(t->port, place_of(t), left_bytes(t), left_bytes(t), &moved);
    t->moved_bytes += moved;
    if (status != GM_OK || left_bytes(t) > 0 || t->stream == NULL) return status;
    status = go_on(t);
    t->port->op->total_recv_bytes += left_bytes(t);
    return status;
}

/* Two transfers with one peer stand side by side in the list. */
static bool must_wait(const struct gmi_transfer *transfers, int i)
{
    return i > 0 && transfers[i - 1].port == transfers[i].port && !is_over(&transfers[i - 1]);
}

/* GM_OK: all transfers of the round are done. GM_AGAIN: as far as it goes now. */
static gm_status move_round(struct gmi_rounds *r)
{
    bool is_done = true;
    for (int i = 0; i < r->n_sends; i++) {
        if (is_sent(&r->sends[i])) continue;
        gm_status status = must_wait(r->sends, i) ? GM_OK : send_some(&r->sends[i]);
        if (status != GM_OK) return status;
        is_done = is_done && is_sent(&r->sends[i]);
    }
    for (int i = 0; i < r->n_recvs; i++) {
        if (is_received(&r->recvs[i])) continue;
        gm_status status = must_wait(r->recvs, i) ? GM_OK : recv_some(&r->recvs[i]);
        if (status != GM_OK) return status;
        is_done = is_done && is_received(&r->recvs[i]);
    }
    return is_done ? GM_OK : GM_AGAIN;
}

/* ---- greetings --------------------------------------------------------------------------------- */

void gmi_rounds_greet_neighbours(struct gmi_op *op)
{
    struct gmi_rounds *r = rounds_of(op);
    r->right = use_port(op, gmi_op_neighbour(op, +1)->peer);
    r->left = use_port(op, gmi_op_neighbour(op, -1)->peer);
    op->n_steps++;
}

static bool wants_to_greet(const struct gmi_rounds *r) { return r->right != NULL && !r->right->is_descriptor_sent; }
static bool wants_greeting(const struct gmi_rounds *r) { return r->left != NULL && !r->left->is_descriptor_matched; }

static gm_status exchange_greetings(struct gmi_rounds *r)
{
    size_t    none;
    gm_status status = GM_OK;
    if (wants_to_greet(r)) status = gmi_port_send_some(r->right, NULL, 0, 0, &none);
    if (status == GM_OK && wants_greeting(r)) status = gmi_port_recv_some(r->left, NULL, 0, 0, &none);
    return status;
}

/* ---- the machine ------------------------------------------------------------------------------- */

/* GM_OK: on to the next round, or all rounds are over. */
static gm_status go_round(struct gmi_op *op, struct gmi_rounds *r)
{
    gm_status status = move_round(r);
    if (status != GM_OK) return status;
    r->index++;
    r->are_rounds_over = !prepare(op, r);
    return op->trouble.status;
}

gm_status gmi_rounds_progress(struct gmi_op *op)
{
    struct gmi_rounds *r = rounds_of(op);
    for (;;) {
        uint64_t  before_bytes = op->moved_bytes;
        int       before_index = r->index;
        gm_status status = op->trouble.status != GM_OK ? op->trouble.status : exchange_greetings(r);
        if (status == GM_OK && !r->are_rounds_over) status = go_round(op, r);
        if (status != GM_OK && status != GM_AGAIN) return status;
        if (r->are_rounds_over && !wants_to_greet(r) && !wants_greeting(r)) return GM_OK;
        if (op->moved_bytes == before_bytes && r->index == before_index) return GM_AGAIN;
    }
}

void gmi_rounds_interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct gmi_rounds *r = rounds_of(op);
    if (wants_to_greet(r)) gmi_port_watch(r->right, poller, GMI_WRITABLE);
    if (wants_greeting(r)) gmi_port_watch(r->left, poller, GMI_READABLE);
    for (int i = 0; i < r->n_sends; i++) {
        if (!is_sent(&r->sends[i])) gmi_port_watch(r->sends[i].port, poller, GMI_WRITABLE);
    }
    for (int i = r->n_recvs - 1; i >= 0; i--) { /* the first one that is missing is who we wait for */
        if (!is_received(&r->recvs[i])) gmi_port_watch(r->recvs[i].port, poller, GMI_READABLE);
    }
}
