/* stream.h - a connection after its handshake: a socket, encrypted or not. Who moves bytes over it does not see which. */
#ifndef GMI_STREAM_H
#define GMI_STREAM_H

#include "net/poller.h"
#include "net/tls.h"

struct gmi_stream {
    int             fd;  /* owned; -1: none */
    struct gmi_tls *tls; /* owned; NULL: not encrypted */
};

static inline struct gmi_stream gmi_stream_plain(int fd) { return (struct gmi_stream){ .fd = fd }; }

/* As gmi_socket_send_some and gmi_socket_recv_some (net/socket.h), and GM_ERR_PROTOCOL (net/tls.h). */
gm_status gmi_stream_send_some(struct gmi_stream *s, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno);
gm_status gmi_stream_recv_some(struct gmi_stream *s, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno);
void      gmi_stream_watch(const struct gmi_stream *s, struct gmi_poller *poller, unsigned interest);
void      gmi_stream_close(struct gmi_stream *s); /* none is fine */

#endif
