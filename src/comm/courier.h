/* courier.h - whole messages over a control connection, out of step with the data.
 *
 * A message is body_bytes u32, kind u8, three zero bytes, body. Sending queues it; the socket takes what it
 * can. Never blocks. Kinds and bodies: comm/message.h. */
#ifndef GMI_COURIER_H
#define GMI_COURIER_H

#include "base/buffer.h"
#include "net/stream.h"

enum { GMI_MESSAGE_HEADER_BYTES = 8 };

struct gmi_courier {
    struct gmi_stream stream; /* owned; fd -1: none */
    struct gmi_buffer in, out;
    size_t            in_used_bytes; /* of a message that was handed out by the last _next */
    bool              is_over;       /* the connection has ended, or sent what cannot be a message */
    bool              is_finished;   /* we have said that no more comes from us */
    bool              is_deaf;       /* no more comes from the peer, who still hears us */
    int               sys_errno;
};

void gmi_courier_init(struct gmi_courier *c, struct gmi_stream stream);
void gmi_courier_fini(struct gmi_courier *c);
static inline bool gmi_courier_is_open(const struct gmi_courier *c) { return c->stream.fd >= 0 && !c->is_over; }

/* The same bytes into a buffer, for a courier to come. */
void gmi_courier_frame(struct gmi_buffer *into, uint8_t kind, const struct gmi_buffer *body);
void gmi_courier_send(struct gmi_courier *c, uint8_t kind, const struct gmi_buffer *body);

/* Hands what is queued to the socket. */
void gmi_courier_flush(struct gmi_courier *c);

/* Sends what is queued, then an end of file. */
void gmi_courier_finish(struct gmi_courier *c);

/* The peer has ended its side (is_over without an error): we can go on sending. */
void gmi_courier_go_deaf(struct gmi_courier *c);

/* The next whole message that has arrived; its body is valid until the next call. False: none (yet), or
 * c->is_over. A body longer than max_body_bytes ends the connection before memory is taken for it. */
bool gmi_courier_next(struct gmi_courier *c, size_t max_body_bytes, uint8_t *kind, struct gmi_reader *body);

void gmi_courier_watch(const struct gmi_courier *c, struct gmi_poller *poller);

#endif
