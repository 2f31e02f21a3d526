/* link_tcp.c - a link over a connected TCP socket, encrypted or not. */
#include "base/alloc.h"
#include "net/socket.h"
#include "net/stream.h"
#include "transport/link.h"

enum { N_RECORDS = 16 }; /* of TLS that a system call moves */

struct tcp_link {
    struct gmi_link   base;
    struct gmi_stream stream;
};

static struct gmi_stream *stream_of(struct gmi_link *link) { return &((struct tcp_link *)link)->stream; }

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    return gmi_stream_send_some(stream_of(link), parts, n_parts, moved_bytes, &link->sys_errno);
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    return gmi_stream_recv_some(stream_of(link), parts, n_parts, moved_bytes, &link->sys_errno);
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    gmi_stream_watch(stream_of(link), poller, interest);
}

static void finish(struct gmi_link *link) { gmi_socket_finish_sending(stream_of(link)->fd); }

static void close_link(struct gmi_link *link)
{
    gmi_stream_close(stream_of(link));
    gmi_free(link);
}

static gm_status kernel_counts(struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    return gmi_socket_kernel_counts(stream_of(link)->fd, sent_bytes, recv_bytes);
}

static bool is_unanswered(struct gmi_link *link, int for_ms)
{
    return gmi_socket_is_unanswered(stream_of(link)->fd, for_ms);
}

static void overhead(const struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    gmi_tls_overhead(((const struct tcp_link *)link)->stream.tls, sent_bytes, recv_bytes);
}

static bool fare(const struct gmi_link *link, struct gmi_socket_fare *fare)
{
    return gmi_socket_fare(((const struct tcp_link *)link)->stream.fd, fare);
}

static const struct gmi_link_ops tcp_ops = {
    .name = "tcp",
    .send_some = send_some,
    .recv_some = recv_some,
    .watch = watch,
    .finish = finish,
    .close = close_link,
    .kernel_counts = kernel_counts,
    .is_unanswered = is_unanswered,
    .fare = fare,
};

static const struct gmi_link_ops tls_ops = {
    .name = "tcp, encrypted",
    .send_some = send_some,
    .recv_some = recv_some,
    .watch = watch,
    .finish = finish,
    .close = close_link,
    .kernel_counts = kernel_counts,
    .is_unanswered = is_unanswered,
    .fare = fare,
    .overhead = overhead,
};

static struct tcp_link *make(int fd, const struct gmi_link_ops *ops)
{
    struct tcp_link *tcp = gmi_alloc(1, sizeof *tcp);
    if (tcp == NULL) {
        gmi_socket_close(&fd);
        return NULL;
    }
    tcp->base.ops = ops;
    tcp->stream = gmi_stream_plain(fd);
    gmi_socket_tune(fd);
    gmi_socket_probe_when_idle(fd);
    return tcp;
}

struct gmi_link *gmi_link_tcp_create(int fd)
{
    struct tcp_link *tcp = make(fd, &tcp_ops);
    return tcp != NULL ? &tcp->base : NULL;
}

struct gmi_link *gmi_link_tls_create(int fd, bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES])
{
    struct tcp_link *tcp = make(fd, &tls_ops);
    if (tcp == NULL) return NULL;
    tcp->stream.tls = gmi_tls_create(fd, is_client, key, N_RECORDS);
    if (tcp->stream.tls != NULL) return &tcp->base;
    close_link(&tcp->base);
    return NULL;
}

gm_status gmi_link_tls_shake(struct gmi_link *link) { return gmi_tls_shake(stream_of(link)->tls, &link->sys_errno); }
