#include "coll/port.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "coll/algo.h"
#include "coll/op.h"
#include "net/poller.h"

void gmi_port_say(struct gmi_port *port, const struct gmi_descriptor *call)
{
    port->out = (struct gmi_port_header){ .total_bytes = GMI_DESCRIPTOR_BYTES };
    gmi_descriptor_encode(call, port->out.bytes);
    port->out_piece_left_bytes = 0;
    port->is_descriptor_sent = false;
}

void gmi_port_listen(struct gmi_port *port)
{
    port->in = (struct gmi_port_header){ .total_bytes = GMI_DESCRIPTOR_BYTES };
    port->in_piece_left_bytes = 0;
    port->is_descriptor_matched = false;
}

void gmi_port_begin(struct gmi_port *port, struct gmi_op *op)
{
    struct gmi_descriptor call = gmi_op_call_to(op, port->peer);
    port->op = op;
    port->seq = op->call.seq;
    port->out_flow.has_note = port->in_flow.has_note = false;
    gmi_port_say(port, &call);
    gmi_port_listen(port);
}

static bool is_header_done(const struct gmi_port_header *h) { return h->moved_bytes == h->total_bytes; }

/* How much of what was moved belongs to the header; the rest is payload. */
static size_t take_header(struct gmi_port_header *h, size_t moved_bytes)
{
    size_t part = gmi_min_size(moved_bytes, h->total_bytes - h->moved_bytes);
    h->moved_bytes += part;
    return part;
}

/* The header that is under way (if any), then payload. */
static int make_parts(struct iovec parts[2], struct gmi_port_header *h, const void *data, size_t data_bytes)
{
    int n = 0;
    if (!is_header_done(h)) {
        parts[n++] = (struct iovec){ h->bytes + h->moved_bytes, h->total_bytes - h->moved_bytes };
    }
    if (data_bytes > 0) parts[n++] = (struct iovec){ (void *)data, data_bytes };
    return n;
}

/* A finished header makes room for the next one. The descriptor keeps its place in front. */
static void append_piece_header(struct gmi_port_header *h, bool is_behind_descriptor)
{
    if (!is_behind_descriptor) *h = (struct gmi_port_header){ 0 };
    h->total_bytes += GMI_PIECE_HEADER_BYTES;
}

static gm_status link_failed(struct gmi_port *port, gm_status status)
{
    if (status == GM_ERR_CORRUPT) return gmi_op_corrupt(port->op, port);
    if (status != GM_ERR_PROTOCOL) return gmi_op_link_broke(port->op, port);
    return gmi_op_bad_bytes(port->op, port, port->link->is_shared_memory
                                                ? "wrote what cannot be right into the memory of the link"
                                                : "sent bytes that are not encrypted with the key of the connection");
}

/* ---- sending ----------------------------------------------------------------------------------- */

static void begin_piece_out(struct gmi_port *port, size_t piece_bytes)
{
    append_piece_header(&port->out, !port->is_descriptor_sent);
    uint8_t *header = port->out.bytes + port->out.total_bytes - GMI_PIECE_HEADER_BYTES;
    gmi_put_u32(header, (uint32_t)piece_bytes);
    gmi_put_u32(header + 4, (uint32_t)port->op->call.seq);
    port->out_piece_left_bytes = piece_bytes;
}

gm_status gmi_port_send_some(struct gmi_port *port, const void *data, size_t ready_bytes,
                             size_t transfer_left_bytes, size_t *moved_bytes)
{
    struct gmi_op *op = port->op;
    *moved_bytes = 0;
    if (ready_bytes > 0 && port->out_piece_left_bytes == 0) {
        begin_piece_out(port, gmi_min_size(transfer_left_bytes, op->call.piece_bytes));
    }
    struct iovec parts[2];
    int n_parts = make_parts(parts, &port->out, data, gmi_min_size(ready_bytes, port->out_piece_left_bytes));
    if (n_parts == 0) return GM_OK;

    size_t    moved;
    int64_t   try_ns = op->trace != NULL ? gmi_now_ns() : 0;
    gm_status status = gmi_link_send_some(port->link, parts, n_parts, &moved);
    if (status == GM_AGAIN) return GM_OK;
    if (status != GM_OK) return link_failed(port, status);

    size_t header = take_header(&port->out, moved);
    if (port->out.moved_bytes >= GMI_DESCRIPTOR_BYTES) port->is_descriptor_sent = true;
    *moved_bytes = moved - header;
    port->out_piece_left_bytes -= *moved_bytes;
    op->traffic.protocol_sent_bytes += header;
    op->traffic.payload_sent_bytes += *moved_bytes;
    if (op->trace != NULL && *moved_bytes > 0)
        gmi_record_moved(port, GMI_OUT, data, NULL, *moved_bytes, transfer_left_bytes, try_ns);
    if (port->link->is_shared_memory) op->traffic.memory_sent_bytes += moved;
    op->moved_bytes += moved;
    return GM_OK;
}

bool gmi_port_is_flushed(const struct gmi_port *port)
{
    return is_header_done(&port->out) && port->out_piece_left_bytes == 0;
}

/* ---- receiving --------------------------------------------------------------------------------- */

/* Once the 64 bytes are there, whatever may follow. */
static gm_status compare_descriptor(struct gmi_port *port)
{
    struct gmi_descriptor theirs;
    if (!gmi_descriptor_decode(&theirs, port->in.bytes)) {
        return gmi_op_bad_bytes(port->op, port, "sent bytes that are no descriptor of a collective");
    }
    if (port->op->algo->hear != NULL) return port->op->algo->hear(port->op, port, &theirs);
    struct gmi_descriptor expected = gmi_op_call_from(port->op, port->peer);
    if (!gmi_descriptor_same(&theirs, &expected)) return gmi_op_mismatch(port->op, port, &theirs, &expected);
    port->peer_arrival_ns = theirs.arrival_ns;
    port->peer_core = theirs.core;
    port->is_descriptor_matched = true;
    return GM_OK;
}

/* Both sides cut a transfer alike, so the length that arrives is known; another one is garbage. */
static gm_status check_piece_header(struct gmi_port *port, size_t expected_bytes)
{
    const uint8_t *header = port->in.bytes + port->in.total_bytes - GMI_PIECE_HEADER_BYTES;
    if (gmi_get_u32(header) != expected_bytes ||
        gmi_get_u32(header + 4) != (uint32_t)port->op->call.seq) {
        return gmi_op_bad_bytes(port->op, port, "sent a piece of another length than this step has");
    }
    return GM_OK;
}

static void count_in(struct gmi_port *port, size_t header_bytes, size_t payload_bytes)
{
    struct gmi_op *op = port->op;
    op->traffic.protocol_recv_bytes += header_bytes;
    op->traffic.payload_recv_bytes += payload_bytes;
    if (port->link->is_shared_memory) op->traffic.memory_recv_bytes += header_bytes + payload_bytes;
    op->moved_bytes += header_bytes + payload_bytes;
}

gm_status gmi_port_recv_some(struct gmi_port *port, void *into, size_t space_bytes,
                             size_t transfer_left_bytes, size_t *moved_bytes)
{
    struct gmi_op *op = port->op;
    *moved_bytes = 0;
    if (transfer_left_bytes > 0 && port->in_piece_left_bytes == 0) {
        append_piece_header(&port->in, !port->is_descriptor_matched);
        port->in_piece_left_bytes = gmi_min_size(transfer_left_bytes, op->call.piece_bytes);
    }
    bool     is_reading_header = !is_header_done(&port->in);
    size_t   piece_bytes = port->in_piece_left_bytes; /* of the whole piece, while its header is read */
    struct iovec parts[2];
    int n_parts = make_parts(parts, &port->in, into, gmi_min_size(space_bytes, port->in_piece_left_bytes));
    if (n_parts == 0) return GM_OK;

    size_t    moved;
    int64_t   try_ns = op->trace != NULL ? gmi_now_ns() : 0;
    gm_status status = gmi_link_recv_some(port->link, parts, n_parts, &moved);
    if (status == GM_AGAIN) return GM_OK;
    if (status != GM_OK) return link_failed(port, status);

    size_t header = take_header(&port->in, moved);
    count_in(port, header, moved - header);
    if (!port->is_descriptor_matched && port->in.moved_bytes >= GMI_DESCRIPTOR_BYTES) {
        status = compare_descriptor(port);
        if (status != GM_OK) return status;
    }
    if (is_reading_header && is_header_done(&port->in) && piece_bytes > 0) {
        status = check_piece_header(port, piece_bytes);
        if (status != GM_OK) return status;
    }
    *moved_bytes = moved - header;
    port->in_piece_left_bytes -= *moved_bytes;
    if (op->trace != NULL && *moved_bytes > 0)
        gmi_record_moved(port, GMI_IN, into, port->home, *moved_bytes, transfer_left_bytes, try_ns);
    return GM_OK;
}

gm_status gmi_port_peek(struct gmi_port *port, size_t transfer_left_bytes, const uint8_t **bytes, size_t *n_bytes)
{
    size_t    none;
    gm_status status = GM_OK;
    *n_bytes = 0;
    if (!gmi_link_lends(port->link) || transfer_left_bytes == 0) return GM_OK;
    if (port->in_piece_left_bytes == 0 || !is_header_done(&port->in)) {
        status = gmi_port_recv_some(port, NULL, 0, transfer_left_bytes, &none); /* the header alone */
        if (status != GM_OK || !is_header_done(&port->in)) return status;
    }
    if (port->op->trace != NULL) {
        port->lent_left_bytes = transfer_left_bytes;
        port->lent_ns = gmi_now_ns();
    }
    status = gmi_link_peek(port->link, bytes, n_bytes);
    *n_bytes = gmi_min_size(*n_bytes, port->in_piece_left_bytes);
    if (status == GM_AGAIN) return GM_OK;
    return status == GM_OK ? GM_OK : link_failed(port, status);
}

void gmi_port_consume(struct gmi_port *port, size_t n_bytes)
{
    gmi_link_consume(port->link, n_bytes);
    port->in_piece_left_bytes -= n_bytes;
    count_in(port, 0, n_bytes);
    if (port->op->trace != NULL)
        gmi_record_moved(port, GMI_IN, NULL, port->home, n_bytes, port->lent_left_bytes, port->lent_ns);
}

void gmi_port_watch(struct gmi_port *port, struct gmi_poller *poller, unsigned interest)
{
    /* A peer that has nothing to give is waited for; one that does not take is only the second guess. */
    if (interest & GMI_READABLE) {
        port->op->waits_for_recv = port->peer;
    } else if (interest & GMI_WRITABLE) {
        port->op->waits_for_send = port->peer;
    }
    if (poller != NULL && interest != 0) gmi_link_watch(port->link, poller, interest);
}
