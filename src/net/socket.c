#include "net/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/sockios.h>
#include <linux/tcp.h> /* for tcpi_bytes_sent, which libc's netinet/tcp.h lacks */
#else
#include <netinet/tcp.h>
#endif

#include "base/error.h"

enum { BACKLOG = 1024 };

/* States of a connection whose peer has closed; the numbers are the kernel's (tcp_states.h is its own). */
enum { TCP_TIME_WAIT_STATE = 6, TCP_CLOSE_WAIT_STATE = 8, TCP_LAST_ACK_STATE = 9, TCP_CLOSING_STATE = 11 };

static int new_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

gm_status gmi_socket_listen(int *fd, const struct gmi_address *address, gm_error *error)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    int  one = 1;
    *fd = new_socket(address->storage.ss_family);
    if (*fd < 0) return gmi_error_set_errno(error, errno, "cannot make a socket");
    /* Lets a restarted job have its port back while old connections are in TIME_WAIT. Two listeners on
     * one port still conflict. */
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(*fd, (const struct sockaddr *)&address->storage, address->used_bytes) != 0 ||
        listen(*fd, BACKLOG) != 0) {
        int sys_errno = errno;
        gmi_socket_close(fd);
        return gmi_error_set_errno(error, sys_errno, "cannot listen on %s",
                                   gmi_address_format(address, text));
    }
    return GM_OK;
}

static bool is_later(int sys_errno) { return sys_errno == EAGAIN || sys_errno == EWOULDBLOCK || sys_errno == EINTR; }

gm_status gmi_socket_accept(int listener_fd, int *fd, int *sys_errno)
{
    *fd = accept4(listener_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (*fd >= 0) return GM_OK;
    *sys_errno = errno;
    /* A connection that died in the queue is no fault of the listener. */
    if (is_later(errno) || errno == ECONNABORTED || errno == EPROTO) return GM_AGAIN;
    return GM_ERR_SYSTEM;
}

gm_status gmi_socket_connect_start(int *fd, const struct gmi_address *to,
                                   const struct gmi_address *source, int *sys_errno)
{
    *fd = new_socket(to->storage.ss_family);
    if (*fd < 0) {
        *sys_errno = errno;
        return GM_ERR_PEER_LOST;
    }
    if (source != NULL &&
        bind(*fd, (const struct sockaddr *)&source->storage, source->used_bytes) != 0) {
        *sys_errno = errno;
        gmi_socket_close(fd);
        return GM_ERR_PEER_LOST;
    }
    gm_status status = GM_AGAIN;
    if (connect(*fd, (const struct sockaddr *)&to->storage, to->used_bytes) == 0) {
        status = gmi_socket_connect_finish(*fd, sys_errno);
    } else if (errno != EINPROGRESS && errno != EINTR) {
        *sys_errno = errno;
        status = GM_ERR_PEER_LOST;
    }
    if (status == GM_ERR_PEER_LOST) gmi_socket_close(fd);
    return status;
}

gm_status gmi_socket_connect_finish(int fd, int *sys_errno)
{
    int       pending = 0;
    socklen_t bytes = sizeof pending;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &bytes) != 0) pending = errno;
    if (pending != 0) {
        *sys_errno = pending;
        return GM_ERR_PEER_LOST;
    }
    struct gmi_address peer;
    if (gmi_socket_peer_address(fd, &peer) != GM_OK) {
        if (errno == ENOTCONN) return GM_AGAIN;
        *sys_errno = errno;
        return GM_ERR_PEER_LOST;
    }
    if (gmi_socket_is_self_connected(fd)) {
        *sys_errno = ECONNREFUSED;
        return GM_ERR_PEER_LOST;
    }
    return GM_OK;
}

bool gmi_socket_is_self_connected(int fd)
{
    struct gmi_address own, peer;
    return gmi_socket_own_address(fd, &own) == GM_OK && gmi_socket_peer_address(fd, &peer) == GM_OK &&
           gmi_address_equal(&own, &peer);
}

gm_status gmi_socket_send_some(int fd, const struct iovec *parts, int n_parts, size_t *moved_bytes,
                               int *sys_errno)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)n_parts };
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    *moved_bytes = sent > 0 ? (size_t)sent : 0;
    if (sent > 0) return GM_OK;
    if (sent == 0 || is_later(errno)) return GM_AGAIN;
    *sys_errno = errno;
    return GM_ERR_PEER_LOST;
}

gm_status gmi_socket_recv_some(int fd, const struct iovec *parts, int n_parts, size_t *moved_bytes,
                               int *sys_errno)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)n_parts };
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
    *moved_bytes = got > 0 ? (size_t)got : 0;
    if (got > 0) return GM_OK;
    if (got < 0 && is_later(errno)) return GM_AGAIN;
    *sys_errno = got == 0 ? 0 : errno;
    return GM_ERR_PEER_LOST;
}

bool gmi_socket_is_our_trouble(int sys_errno)
{
    static const int theirs[] = { 0, ECONNRESET, EPIPE, ETIMEDOUT, ECONNABORTED, ECONNREFUSED, ENOTCONN, ESHUTDOWN, EHOSTUNREACH,
                                  EHOSTDOWN, ENETUNREACH, ENETDOWN, ENETRESET, EPROTO };
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        if (sys_errno == theirs[i]) return false;
    }
    return true;
}

bool gmi_socket_is_over(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && !is_later(errno));
}

/* Both ends on this host: the same address, or loopback. */
static bool is_local(int fd)
{
    struct gmi_address own, peer;
    if (gmi_socket_own_address(fd, &own) != GM_OK || gmi_socket_peer_address(fd, &peer) != GM_OK) return false;
    if (gmi_address_is_loopback(&peer)) return true;
    gmi_address_set_port(&own, 0);
    gmi_address_set_port(&peer, 0);
    return gmi_address_equal(&own, &peer);
}

/* Near: queues of its own making are most of what a packet waits for. Beside: a quarter of a megabyte under way is enough for
 * 10 Gbit/s. */
enum { NEAR_US = 2000, BESIDE_US = 200, SEND_BUFFER_BYTES = 256 * 1024 };

/* Is the least round trip since the handshake shorter than that? Where it cannot be known, no. */
static bool is_within(int fd, unsigned round_trip_us)
{
#ifdef __linux__
    struct tcp_info info = { 0 };
    socklen_t       bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    return info.tcpi_min_rtt > 0 && info.tcpi_min_rtt < round_trip_us;
#else
    (void)fd, (void)round_trip_us;
    return false;
#endif
}

static bool is_bbr(int fd)
{
    char      name[16] = "";
    socklen_t bytes = sizeof name - 1;
    return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 && strncmp(name, "bbr", 3) == 0;
}

/* Within a host there is no bottleneck to pace for. On a short way bbr takes the round trip of the empty line for its
 * own (0.01 ms where a full one has 5 to 17), and now and then all flows of a collective crawl at a fraction of the line.
 * Reno does neither, and everybody may choose it. docs/tuning.md */
static bool wants_reno(int fd) { return is_local(fd) || (is_bbr(fd) && is_within(fd, NEAR_US)); }

void gmi_socket_tune(int fd)
{
    int one = 1, buffer_bytes = SEND_BUFFER_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* Refused: the machine's default stays. */
    if (wants_reno(fd)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    /* Less waits in the kernel, and the processor has less to do. docs/tuning.md */
    if (!is_local(fd) && is_within(fd, BESIDE_US)) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
}

void gmi_socket_probe_when_idle(int fd)
{
    int one = 1, probes = 2;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one); /* seconds */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void gmi_socket_expect_answers(int fd, int within_ms)
{
    unsigned limit_ms = (unsigned)within_ms;
    gmi_socket_probe_when_idle(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

bool gmi_socket_is_unanswered(int fd, int for_ms)
{
    struct tcp_info info = { 0 };
    socklen_t       bytes = sizeof info;
    enum { ASKED_OFTEN = 2 };
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    bool asks_in_vain = (info.tcpi_unacked > 0 && info.tcpi_retransmits >= ASKED_OFTEN) || info.tcpi_probes >= ASKED_OFTEN;
    return asks_in_vain && info.tcpi_last_ack_recv >= (unsigned)for_ms;
}

gm_status gmi_socket_own_address(int fd, struct gmi_address *a)
{
    memset(a, 0, sizeof *a);
    a->used_bytes = sizeof a->storage;
    return getsockname(fd, (struct sockaddr *)&a->storage, &a->used_bytes) == 0 ? GM_OK : GM_ERR_SYSTEM;
}

gm_status gmi_socket_peer_address(int fd, struct gmi_address *a)
{
    memset(a, 0, sizeof *a);
    a->used_bytes = sizeof a->storage;
    return getpeername(fd, (struct sockaddr *)&a->storage, &a->used_bytes) == 0 ? GM_OK : GM_ERR_SYSTEM;
}

gm_status gmi_socket_kernel_counts(int fd, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
#ifdef __linux__
    int queued = 0;
    if (ioctl(fd, SIOCOUTQ, &queued) != 0) return GM_ERR_UNSUPPORTED;
    if (queued != 0) return GM_AGAIN;
    struct tcp_info info = { 0 };
    socklen_t       bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return GM_ERR_UNSUPPORTED;
    if (bytes < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans) {
        return GM_ERR_UNSUPPORTED; /* a kernel before 4.19 */
    }
    *sent_bytes = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    /* The kernel counts the peer's FIN as one byte received. */
    bool has_fin = info.tcpi_state == TCP_CLOSE_WAIT_STATE || info.tcpi_state == TCP_LAST_ACK_STATE ||
                   info.tcpi_state == TCP_CLOSING_STATE || info.tcpi_state == TCP_TIME_WAIT_STATE;
    *recv_bytes = info.tcpi_bytes_received - (has_fin ? 1 : 0);
    return GM_OK;
#else
    (void)fd, (void)sent_bytes, (void)recv_bytes;
    return GM_ERR_UNSUPPORTED;
#endif
}

bool gmi_socket_fare(int fd, struct gmi_socket_fare *fare)
{
#ifdef __linux__
    struct tcp_info info = { 0 };
    socklen_t       bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    if (bytes < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans) return false; /* before 4.19 */
    uint64_t sent_bytes = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    unsigned least_rtt_us = info.tcpi_min_rtt != UINT32_MAX ? info.tcpi_min_rtt : 0;
    *fare = (struct gmi_socket_fare){ .sent_packets = info.tcpi_segs_out, .resent_packets = info.tcpi_total_retrans,
                                      .acked_bytes = info.tcpi_bytes_acked, .delivered_packets = info.tcpi_delivered,
                                      .unacked_bytes = sent_bytes > info.tcpi_bytes_acked ? sent_bytes - info.tcpi_bytes_acked : 0,
                                      .busy_ns = (int64_t)info.tcpi_busy_time * 1000, .rtt_us = info.tcpi_rtt, .least_rtt_us = least_rtt_us,
                                      .payload_bytes = info.tcpi_snd_mss };
    return true;
#else
    (void)fd, (void)fare;
    return false;
#endif
}

void gmi_socket_finish_sending(int fd) { shutdown(fd, SHUT_WR); }

void gmi_socket_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
