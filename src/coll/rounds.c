#include "coll/rounds.h"

#include "base/check.h"
#include "net/poller.h"

_Static_assert(sizeof(struct gmi_rounds) <= GMI_OP_STATE_BYTES, "the rounds' state fits into an op");

static struct gmi_rounds *rounds_of(struct gmi_op *op) { return (struct gmi_rounds *)op->state; }

/* ---- a round ----------------------------------------------------------------------------------- */

/* The port to a peer, begun when this collective first uses it. */
static struct gmi_port *use_port(struct gmi_op *op, int peer)
{
    struct gmi_port *port = &op->group->ports[peer];
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

static bool is_sent(const struct gmi_transfer *t)
{
    return left_bytes(t) == 0 && t->port->is_descriptor_sent && gmi_port_is_flushed(t->port);
}

static bool is_received(const struct gmi_transfer *t) { return left_bytes(t) == 0 && t->port->is_descriptor_matched; }

static gm_status send_some(struct gmi_transfer *t)
{
    size_t    moved;
    gm_status status = gmi_port_send_some(t->port, t->data + t->moved_bytes, left_bytes(t), left_bytes(t), &moved);
    t->moved_bytes += moved;
    return status;
}

static gm_status recv_some(struct gmi_transfer *t)
{
    size_t    moved;
    gm_status status = gmi_port_recv_some(t->port, t->data + t->moved_bytes, left_bytes(t), left_bytes(t), &moved);
    t->moved_bytes += moved;
    return status;
}

/* GM_OK: all transfers of the round are done. GM_AGAIN: as far as it goes now. */
static gm_status move_round(struct gmi_rounds *r)
{
    bool is_done = true;
    for (int i = 0; i < r->n_sends; i++) {
        if (is_sent(&r->sends[i])) continue;
        gm_status status = send_some(&r->sends[i]);
        if (status != GM_OK) return status;
        is_done = is_done && is_sent(&r->sends[i]);
    }
    for (int i = 0; i < r->n_recvs; i++) {
        if (is_received(&r->recvs[i])) continue;
        gm_status status = recv_some(&r->recvs[i]);
        if (status != GM_OK) return status;
        is_done = is_done && is_received(&r->recvs[i]);
    }
    return is_done ? GM_OK : GM_AGAIN;
}

/* ---- the machine ------------------------------------------------------------------------------- */

gm_status gmi_rounds_progress(struct gmi_op *op)
{
    struct gmi_rounds *r = rounds_of(op);
    for (;;) {
        uint64_t  before_bytes = op->moved_bytes;
        gm_status status = move_round(r);
        if (status == GM_OK) {
            r->index++;
            if (!prepare(op, r)) return GM_OK;
        } else if (status != GM_AGAIN || op->moved_bytes == before_bytes) {
            return status;
        }
    }
}

void gmi_rounds_interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct gmi_rounds *r = rounds_of(op);
    for (int i = 0; i < r->n_sends; i++) {
        if (!is_sent(&r->sends[i])) gmi_port_watch(r->sends[i].port, poller, GMI_WRITABLE);
    }
    for (int i = r->n_recvs - 1; i >= 0; i--) { /* the first one that is missing is who we wait for */
        if (!is_received(&r->recvs[i])) gmi_port_watch(r->recvs[i].port, poller, GMI_READABLE);
    }
}
