#include "net/stream.h"

#include <errno.h>

#include "net/socket.h"

gm_status gmi_stream_send_some(struct gmi_stream *s, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno)
{
    if (s->tls == NULL) return gmi_socket_send_some(s->fd, parts, n_parts, moved_bytes, sys_errno);
    return gmi_tls_send_some(s->tls, parts, n_parts, moved_bytes, sys_errno);
}

gm_status gmi_stream_recv_some(struct gmi_stream *s, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno)
{
    if (s->tls == NULL) return gmi_socket_recv_some(s->fd, parts, n_parts, moved_bytes, sys_errno);
    return gmi_tls_recv_some(s->tls, parts, n_parts, moved_bytes, sys_errno);
}

void gmi_stream_watch(const struct gmi_stream *s, struct gmi_poller *poller, unsigned interest)
{
    if (s->tls == NULL) gmi_poller_add(poller, s->fd, interest);
    else gmi_tls_watch(s->tls, poller, interest);
}

void gmi_stream_close(struct gmi_stream *s)
{
    gmi_tls_destroy(s->tls);
    s->tls = NULL;
    gmi_socket_close(&s->fd);
}
