#include "comm/courier.h"

#include <errno.h>

#include "base/bytes.h"
#include "net/socket.h"

/* A host or a link that is gone is noticed so long after the next heartbeat. */
enum { ANSWER_MS = 2000 };

void gmi_courier_init(struct gmi_courier *c, struct gmi_stream stream)
{
    *c = (struct gmi_courier){ .stream = stream };
    if (stream.fd < 0) return;
    gmi_socket_tune(stream.fd);
    gmi_socket_expect_answers(stream.fd, ANSWER_MS);
}

void gmi_courier_fini(struct gmi_courier *c)
{
    gmi_stream_close(&c->stream);
    gmi_buffer_fini(&c->in);
    gmi_buffer_fini(&c->out);
}

void gmi_courier_frame(struct gmi_buffer *into, uint8_t kind, const struct gmi_buffer *body)
{
    uint8_t header[GMI_MESSAGE_HEADER_BYTES] = { 0 };
    size_t  body_bytes = body ? body->used_bytes : 0;
    gmi_put_u32(header, (uint32_t)body_bytes);
    header[4] = kind;
    gmi_buffer_append(into, header, sizeof header);
    if (body_bytes > 0) gmi_buffer_append(into, body->bytes, body_bytes);
}

void gmi_courier_send(struct gmi_courier *c, uint8_t kind, const struct gmi_buffer *body)
{
    if (!gmi_courier_is_open(c) || c->is_finished) return;
    gmi_courier_frame(&c->out, kind, body);
    if (c->out.is_out_of_memory || (body && body->is_out_of_memory)) {
        c->is_over = true; /* half a message must not go out */
        c->sys_errno = ENOMEM;
    }
}

void gmi_courier_flush(struct gmi_courier *c)
{
    while (gmi_courier_is_open(c) && c->out.used_bytes > 0) {
        struct iovec part = { c->out.bytes, c->out.used_bytes };
        size_t    moved;
        gm_status status = gmi_stream_send_some(&c->stream, &part, 1, &moved, &c->sys_errno);
        gmi_buffer_consume(&c->out, moved);
        if (status == GM_AGAIN) return;
        if (status != GM_OK) {
            /* What the peer said last may still be readable: its reason for going, say. But who cannot send for a
             * reason of his own must not live on in silence. */
            c->out.used_bytes = 0;
            c->is_over = gmi_socket_is_our_trouble(c->sys_errno);
            return;
        }
    }
    if (c->is_finished && c->stream.fd >= 0) gmi_socket_finish_sending(c->stream.fd);
}

void gmi_courier_finish(struct gmi_courier *c)
{
    c->is_finished = true;
    gmi_courier_flush(c);
}

void gmi_courier_go_deaf(struct gmi_courier *c)
{
    c->is_over = false;
    c->is_deaf = true;
}

static bool read_more(struct gmi_courier *c)
{
    uint8_t      bytes[4096];
    struct iovec part = { bytes, sizeof bytes };
    size_t       moved;
    gm_status    status = gmi_stream_recv_some(&c->stream, &part, 1, &moved, &c->sys_errno);
    if (status == GM_AGAIN) return false;
    if (status != GM_OK) {
        c->is_over = true;
        if (status == GM_ERR_PROTOCOL) c->sys_errno = EPROTO;
        return false;
    }
    gmi_buffer_append(&c->in, bytes, moved);
    if (c->in.is_out_of_memory) {
        c->is_over = true;
        c->sys_errno = ENOMEM;
    }
    return !c->is_over;
}

bool gmi_courier_next(struct gmi_courier *c, size_t max_body_bytes, uint8_t *kind, struct gmi_reader *body)
{
    gmi_buffer_consume(&c->in, c->in_used_bytes);
    c->in_used_bytes = 0;
    while (gmi_courier_is_open(c) && !c->is_deaf) {
        if (c->in.used_bytes >= GMI_MESSAGE_HEADER_BYTES) {
            size_t body_bytes = gmi_get_u32(c->in.bytes);
            if (body_bytes > max_body_bytes) {
                c->is_over = true;
                c->sys_errno = EPROTO;
                return false;
            }
            if (c->in.used_bytes >= GMI_MESSAGE_HEADER_BYTES + body_bytes) {
                *kind = c->in.bytes[4];
                *body = (struct gmi_reader){ .bytes = c->in.bytes + GMI_MESSAGE_HEADER_BYTES,
                                             .left_bytes = body_bytes };
                c->in_used_bytes = GMI_MESSAGE_HEADER_BYTES + body_bytes;
                return true;
            }
        }
        if (!read_more(c)) return false;
    }
    return false;
}

void gmi_courier_watch(const struct gmi_courier *c, struct gmi_poller *poller)
{
    if (!gmi_courier_is_open(c)) return;
    bool has_more = c->out.used_bytes > 0;
    if (c->is_deaf && !has_more) return; /* its end of file would be ready all the time */
    gmi_stream_watch(&c->stream, poller, (c->is_deaf ? 0u : GMI_READABLE) | (has_more ? GMI_WRITABLE : 0u));
}
