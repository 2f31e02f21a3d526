/* port.h - one running collective's end of a link: framing, comparing, counting.
 *
 *     on the link, in each direction, one collective after another:
 *
 *     | descriptor | len | piece ........ | len | piece ..... |   | descriptor | len | piece ...
 *       64 bytes     8     len bytes                               (the next collective)
 *
 * An algorithm moves *transfers*: consecutive bytes of its choice, such as the chunk of one step. The port
 * cuts a transfer into pieces of piece_bytes (the last one shorter), puts the descriptor in front of the first
 * in the same write, and takes all that away again at the other side. The length is announced before all
 * bytes of a piece are there, so bytes still flow as they settle.
 *
 * Invariants:
 *   1. Nothing is reported as received before the descriptor of its collective was compared and matched.
 *   2. No byte of the next collective is ever read: a read asks at most for the rest of a piece.
 *   3. Every byte moved is counted, as payload or as protocol.
 */
#ifndef GMI_PORT_H
#define GMI_PORT_H

#include "coll/descriptor.h"
#include "coll/record.h"
#include "transport/link.h"

struct gmi_op;

/* Header bytes on their way: a descriptor, a piece header, or the one in front of the other. */
struct gmi_port_header {
    uint8_t bytes[GMI_DESCRIPTOR_BYTES + GMI_PIECE_HEADER_BYTES];
    size_t  total_bytes, moved_bytes;
};

struct gmi_port {
    struct gmi_link *link; /* NULL: not connected */
    int              peer;
    struct gmi_op   *op; /* the collective that runs over it; NULL: none */
    uint64_t         seq; /* ... and its number */

    struct gmi_port_header out, in;
    size_t                 out_piece_left_bytes, in_piece_left_bytes;
    bool                   is_descriptor_sent, is_descriptor_matched;
    int64_t                peer_arrival_ns; /* by the peer's clock; valid once matched */
    uint16_t               peer_core;       /* of the descriptor; valid once matched */

    /* What a trace is told (coll/record.h). */
    struct gmi_flow out_flow, in_flow;
    const void     *home;            /* where that goes which arrives now over scratch; NULL: it does not */
    size_t          lent_left_bytes; /* of the transfer, when gmi_port_peek lent of it; and when that was */
    int64_t         lent_ns;

    /* On links for messages: what the peer wants from us, heard before we were to give it (coll/message.h). */
    bool                  has_request;
    struct gmi_descriptor request;
};

/* What gmi_port_begin does, one by one: queues a descriptor; takes what comes next for one. */
void gmi_port_say(struct gmi_port *port, const struct gmi_descriptor *call);
void gmi_port_listen(struct gmi_port *port);

/* Before each collective: queues its descriptor. */
void gmi_port_begin(struct gmi_port *port, struct gmi_op *op);

/* Sends from `data`: `ready_bytes` are settled now, of `transfer_left_bytes` that are left of this
 * transfer. With 0 left it sends what remains of the descriptor. Never blocks. GM_OK (also when
 * nothing could move: *moved_bytes is the payload), or a failure, which the op then knows. */
gm_status gmi_port_send_some(struct gmi_port *port, const void *data, size_t ready_bytes,
                             size_t transfer_left_bytes, size_t *moved_bytes);

/* Receives into `into`, at most `space_bytes`, of `transfer_left_bytes`. With 0 left it receives what
 * remains of the descriptor. Same results; GM_ERR_MISMATCH when the peer calls something else. */
gm_status gmi_port_recv_some(struct gmi_port *port, void *into, size_t space_bytes,
                             size_t transfer_left_bytes, size_t *moved_bytes);

/* The same without a copy, where the link lends what has arrived: *bytes, of this transfer and in one piece, good until
 * the next move over the port. gmi_port_consume takes the first of them. *n_bytes is 0 if there is nothing to lend;
 * gmi_port_recv_some may then have something still. */
gm_status gmi_port_peek(struct gmi_port *port, size_t transfer_left_bytes, const uint8_t **bytes, size_t *n_bytes);
void      gmi_port_consume(struct gmi_port *port, size_t n_bytes);

/* Has everything that was begun been sent, the descriptor at least? */
bool gmi_port_is_flushed(const struct gmi_port *port);

/* Tells the poller what this collective waits for at this link (GMI_READABLE, GMI_WRITABLE or both), and
 * the op on whom. */
void gmi_port_watch(struct gmi_port *port, struct gmi_poller *poller, unsigned interest);

#endif
