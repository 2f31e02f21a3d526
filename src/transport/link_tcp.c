/* link_tcp.c - a link over a connected TCP socket. */
#include "base/alloc.h"
#include "net/poller.h"
#include "net/socket.h"
#include "transport/link.h"

struct tcp_link {
    struct gmi_link base;
    int             fd;
};

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct tcp_link *tcp = (struct tcp_link *)link;
    return gmi_socket_send_some(tcp->fd, parts, n_parts, moved_bytes, &link->sys_errno);
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct tcp_link *tcp = (struct tcp_link *)link;
    return gmi_socket_recv_some(tcp->fd, parts, n_parts, moved_bytes, &link->sys_errno);
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    gmi_poller_add(poller, ((struct tcp_link *)link)->fd, interest);
}

static void finish(struct gmi_link *link) { gmi_socket_finish_sending(((struct tcp_link *)link)->fd); }

static void close_link(struct gmi_link *link)
{
    gmi_socket_close(&((struct tcp_link *)link)->fd);
    gmi_free(link);
}

static gm_status kernel_counts(struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    return gmi_socket_kernel_counts(((struct tcp_link *)link)->fd, sent_bytes, recv_bytes);
}

static bool is_unanswered(struct gmi_link *link, int for_ms)
{
    return gmi_socket_is_unanswered(((struct tcp_link *)link)->fd, for_ms);
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
};

struct gmi_link *gmi_link_tcp_create(int fd)
{
    struct tcp_link *tcp = gmi_alloc(1, sizeof *tcp);
    if (tcp == NULL) {
        gmi_socket_close(&fd);
        return NULL;
    }
    tcp->base.ops = &tcp_ops;
    tcp->fd = fd;
    gmi_socket_tune(fd);
    gmi_socket_probe_when_idle(fd);
    return &tcp->base;
}
