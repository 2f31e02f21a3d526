#include "coll/message.h"

#include "net/poller.h"

/* The two halves; a port is NULL where there is none, and both are the same when a rank exchanges
 * with one peer. */
struct message {
    struct gmi_port *to, *from;
    struct gmi_descriptor offer, request; /* what we say: SEND to `to`, RECV to `from` */
    bool             is_offer_said;  /* queued at least */
    bool             is_wanted;      /* the peer's RECV has matched */
    bool             is_offered;     /* the peer's SEND has matched */
    bool             has_recalled;   /* looked at what was heard before this call */
    size_t           out_total_bytes, out_bytes;
    size_t           in_total_bytes, in_bytes;
};
_Static_assert(sizeof(struct message) <= GMI_OP_STATE_BYTES, "the state fits into an op");

static struct message *message_of(struct gmi_op *op) { return (struct message *)op->state; }

/* ---- descriptors ----------------------------------------------------------------------------- */

static struct gmi_descriptor half(const struct gmi_op *op, gm_collective which, int peer, int tag,
                                  size_t count_elems)
{
    struct gmi_descriptor d = op->call;
    d.collective = (uint8_t)which;
    d.root = tag;
    d.count_elems = count_elems;
    d.counts_hash = (uint32_t)peer;
    return d;
}

static struct gmi_descriptor offer_of(const struct gmi_op *op)
{
    return half(op, GM_SEND, op->message.to, op->message.send_tag, op->message.send_elems);
}

static struct gmi_descriptor request_of(const struct gmi_op *op)
{
    struct gmi_descriptor d =
        half(op, GM_RECV, op->message.from, op->message.recv_tag, op->message.recv_elems);
    if (op->message.to == op->message.from) d.counts_hash |= GMI_AND_SENDS;
    return d;
}

void gmi_message_describe(struct gmi_op *op)
{
    gm_collective which = (gm_collective)op->call.collective;
    struct gmi_descriptor d = op->message.to >= 0 ? offer_of(op) : request_of(op);
    d.collective = (uint8_t)which; /* GM_SENDRECV is known by what it sends */
    op->call = d;
}

/* Do a SEND and a RECV speak of the same message? */
static bool fit(const struct gmi_descriptor *a, const struct gmi_descriptor *b)
{
    return a->root == b->root && a->dtype == b->dtype && a->count_elems == b->count_elems &&
           a->group == b->group && a->epoch == b->epoch && a->piece_bytes == b->piece_bytes;
}

/* What the peer has said about us; of all else it is nonsense. */
static bool is_for_us(const struct gmi_op *op, const struct gmi_descriptor *theirs)
{
    return (theirs->collective == GM_SEND || theirs->collective == GM_RECV) &&
           theirs->algorithm == GMI_ALGO_MESSAGE &&
           (int)(theirs->counts_hash & ~GMI_AND_SENDS) == gmi_op_rank(op);
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* A peer that wants something. */
static gm_status hear_request(struct gmi_op *op, struct gmi_port *port,
                              const struct gmi_descriptor *theirs)
{
    struct message *m = message_of(op);
    if (port == m->to && !m->is_wanted) {
        if (!fit(theirs, &m->offer)) return gmi_op_mismatch(op, port, theirs, &m->offer);
        m->is_wanted = true;
        return GM_OK;
    }
    /* We only receive from it. Unless it is about to send as well, it waits for what we cannot give
     * now. */
    if (port->has_request || !(theirs->counts_hash & GMI_AND_SENDS))
        return gmi_op_mismatch(op, port, theirs, &m->request);
    port->request = *theirs;
    port->has_request = true;
    return GM_OK;
}

/* A peer that has something. */
static gm_status hear_offer(struct gmi_op *op, struct gmi_port *port,
                            const struct gmi_descriptor *theirs)
{
    struct message *m = message_of(op);
    if (port != m->from || m->is_offered)
        return gmi_op_mismatch(op, port, theirs, &m->offer); /* both are sending */
    if (!fit(theirs, &m->request)) return gmi_op_mismatch(op, port, theirs, &m->request);
    m->is_offered = true;
    port->is_descriptor_matched = true;
    return GM_OK;
}

static gm_status hear(struct gmi_op *op, struct gmi_port *port, const struct gmi_descriptor *theirs)
{
    if (!is_for_us(op, theirs)) return gmi_op_bad_bytes(op, port, "sent bytes that are no message");
    gmi_port_listen(port);
    return theirs->collective == GM_RECV ? hear_request(op, port, theirs)
                                         : hear_offer(op, port, theirs);
}

/* What a peer had said before this call: its SEND of the same call has been taken, so it only waits
 * for us. */
static gm_status recall(struct gmi_op *op)
{
    struct message *m = message_of(op);
    m->has_recalled = true;
    if (m->to != NULL && m->to->has_request) {
        m->to->has_request = false;
        return hear_request(op, m->to, &m->to->request);
    }
    if (m->from != NULL && m->from->has_request)
        return gmi_op_mismatch(op, m->from, &m->from->request, &m->request);
    return GM_OK;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void ready(struct gmi_port *port, struct gmi_op *op, const struct gmi_descriptor *call)
{
    port->op = op;
    port->seq = op->call.seq;
    gmi_port_say(port, call);
    gmi_port_listen(port);
}

static void begin(struct gmi_op *op)
{
    struct message *m = message_of(op);
    *m = (struct message){ 0 };
    if (op->message.from >= 0) {
        m->from = gmi_group_port(op->group, op->message.from);
        m->request = request_of(op);
        m->in_total_bytes = op->message.recv_elems * op->codec.elem_bytes;
        ready(m->from, op, &m->request);
    }
    if (op->message.to >= 0) {
        m->to = gmi_group_port(op->group, op->message.to);
        m->offer = offer_of(op);
        m->out_total_bytes = op->message.send_elems * op->codec.elem_bytes;
        m->is_offer_said = m->to != m->from;
        if (m->is_offer_said) ready(m->to, op, &m->offer);
    }
    op->total_recv_bytes = m->in_total_bytes;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static bool is_port_flushed(const struct gmi_port *port)
{
    return port->is_descriptor_sent && gmi_port_is_flushed(port);
}

static size_t leaving_bytes(const struct message *m)
{
    return m->is_offer_said && m->is_wanted ? m->out_total_bytes - m->out_bytes : 0;
}

/* The RECV leaves before the SEND on a link that carries both. */
static void say_offer(struct message *m)
{
    if (m->to == NULL || m->is_offer_said || !is_port_flushed(m->from)) return;
    m->is_offer_said = true;
    gmi_port_say(m->to, &m->offer);
}

static bool wants_to_send(const struct message *m, const struct gmi_port *port)
{
    return port != NULL && (!is_port_flushed(port) || (port == m->to && leaving_bytes(m) > 0));
}

static gm_status send_on(struct gmi_op *op, struct message *m, struct gmi_port *port)
{
    size_t         sent_bytes, left_bytes = port == m->to ? leaving_bytes(m) : 0;
    const uint8_t *from = left_bytes > 0 ? op->input + m->out_bytes : NULL;
    gm_status      status = gmi_port_send_some(port, from, left_bytes, left_bytes, &sent_bytes);
    m->out_bytes += sent_bytes;
    return status;
}

static size_t arriving_bytes(const struct message *m, const struct gmi_port *port)
{
    return port == m->from && m->is_offered ? m->in_total_bytes - m->in_bytes : 0;
}

static bool wants_to_recv(const struct message *m, const struct gmi_port *port)
{
    if (port == NULL) return false;
    bool waits_for_offer = port == m->from && !m->is_offered,
         waits_for_request = port == m->to && !m->is_wanted;
    return arriving_bytes(m, port) > 0 || waits_for_offer || waits_for_request;
}

static gm_status recv_on(struct gmi_op *op, struct message *m, struct gmi_port *port)
{
    size_t    got_bytes, left_bytes = arriving_bytes(m, port);
    uint8_t  *into = left_bytes > 0 ? op->output + m->in_bytes : NULL;
    if (left_bytes == 0 && port->is_descriptor_matched)
        gmi_port_listen(port); /* the payload is over */
    gm_status status = gmi_port_recv_some(port, into, left_bytes, left_bytes, &got_bytes);
    m->in_bytes += got_bytes;
    return status;
}

static gm_status move(struct gmi_op *op, struct message *m, struct gmi_port *port)
{
    gm_status status = wants_to_send(m, port) ? send_on(op, m, port) : GM_OK;
    return status == GM_OK && wants_to_recv(m, port) ? recv_on(op, m, port) : status;
}

static bool is_finished(const struct message *m)
{
    bool is_sent = m->to == NULL || (m->is_wanted && m->out_bytes == m->out_total_bytes &&
                                     m->is_offer_said && is_port_flushed(m->to));
    bool is_received = m->from == NULL || (m->is_offered && m->in_bytes == m->in_total_bytes &&
                                           is_port_flushed(m->from));
    return is_sent && is_received;
}

static gm_status progress(struct gmi_op *op)
{
    struct message *m = message_of(op);
    gm_status       status = m->has_recalled ? GM_OK : recall(op);
    while (status == GM_OK) {
        uint64_t before_bytes = op->moved_bytes;
        say_offer(m);
        status = move(op, m, m->from);
        if (status == GM_OK && m->to != m->from) status = move(op, m, m->to);
        if (status == GM_OK && is_finished(m)) return GM_OK;
        if (status == GM_OK && op->moved_bytes == before_bytes) return GM_AGAIN;
    }
    return status;
}

static void interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct message  *m = message_of(op);
    struct gmi_port *ports[2] = { m->to, m->from != m->to ? m->from : NULL };
    for (int i = 0; i < 2; i++) {
        if (wants_to_send(m, ports[i])) gmi_port_watch(ports[i], poller, GMI_WRITABLE);
        if (wants_to_recv(m, ports[i])) gmi_port_watch(ports[i], poller, GMI_READABLE);
    }
}

const struct gmi_algo gmi_message_algo = {
    .id = GMI_ALGO_MESSAGE,
    .name = "message",
    .collective = GM_SENDRECV,
    .summary = "payload when the receiver has asked for it",
    .begin = begin,
    .progress = progress,
    .interest = interest,
    .hear = hear,
};
