/* socket.h - one non-blocking stream socket: listen, accept, connect, send some, receive some.
 *
 * Every descriptor made here is non-blocking and closed on exec. A transfer has three outcomes that are
 * three results: GM_OK (some bytes moved), GM_AGAIN (later: ask the poller), GM_ERR_PEER_LOST (the
 * connection is over; *sys_errno says how, 0 for a plain end of file). Nothing here knows a rank. */
#ifndef GMI_SOCKET_H
#define GMI_SOCKET_H

#include <sys/uio.h>

#include "net/address.h"

/* Listens; port 0 in the address takes any free one. GM_OK, GM_ERR_SYSTEM (says address and port). */
gm_status gmi_socket_listen(int *fd, const struct gmi_address *address, gm_error *error);

/* GM_OK: a connection. GM_AGAIN: none now. GM_ERR_SYSTEM: *sys_errno (no descriptors, say). */
gm_status gmi_socket_accept(int listener_fd, int *fd, int *sys_errno);

/* Starts connecting, from `source` if it is not NULL. GM_OK: connected already. GM_AGAIN: wait until
 * writable, then gmi_socket_connect_finish. Else GM_ERR_PEER_LOST with *sys_errno; no descriptor is left. */
gm_status gmi_socket_connect_start(int *fd, const struct gmi_address *to,
                                   const struct gmi_address *source, int *sys_errno);

/* GM_OK: connected, to somebody else. GM_AGAIN: not yet. GM_ERR_PEER_LOST: refused, *sys_errno; also when the
 * socket has connected to itself (then ECONNREFUSED), which TCP allows: a connect() to a port of the
 * ephemeral range to which nobody is bound can draw that very port as its own source. */
gm_status gmi_socket_connect_finish(int fd, int *sys_errno);

bool gmi_socket_is_self_connected(int fd);

/* GM_ERR_PEER_LOST with *sys_errno (0: end of file) when it did not work; gmi_socket_is_our_trouble tells whose fault it is. */
gm_status gmi_socket_send_some(int fd, const struct iovec *parts, int n_parts, size_t *moved_bytes,
                               int *sys_errno);
gm_status gmi_socket_recv_some(int fd, const struct iovec *parts, int n_parts, size_t *moved_bytes,
                               int *sys_errno);

/* Does this error number tell of this process and its machine (no memory, not permitted), rather than of the peer or
 * the way to it? Then nobody else is to blame. */
bool gmi_socket_is_our_trouble(int sys_errno);

/* True when the peer has closed or reset and nothing is left to read. Takes no bytes. */
bool gmi_socket_is_over(int fd);

/* Small messages go out at once (TCP_NODELAY); connections within this host, and near ones whose congestion control is
 * bbr, go by reno; towards hosts beside this one the send buffer is small. Of a connected socket. */
void gmi_socket_tune(int fd);

/* The kernel ends the connection (ETIMEDOUT) when the other host has not answered for so long, idle or not. On a
 * socket whose peer always reads: a peer that only reads slowly would be taken for one that is gone. */
void gmi_socket_expect_answers(int fd, int within_ms);

/* The same for an idle socket only, within about 3 s. */
void gmi_socket_probe_when_idle(int fd);

/* Has nothing been acknowledged for so long, though the kernel asks again and again? A peer whose process does not
 * read answers all the same. */
bool gmi_socket_is_unanswered(int fd, int for_ms);

gm_status gmi_socket_own_address(int fd, struct gmi_address *address);
gm_status gmi_socket_peer_address(int fd, struct gmi_address *address);

/* How a TCP connection fares, by the kernel, since it was made. */
struct gmi_socket_fare {
    uint64_t sent_packets, resent_packets; /* with and without payload; of these, sent again */
    uint64_t acked_bytes, unacked_bytes, delivered_packets;
    int64_t  busy_ns;        /* something was sent and not acknowledged */
    unsigned rtt_us;         /* smoothed */
    unsigned least_rtt_us;   /* of the last minutes: without most of what waits in queues; 0: none yet */
    unsigned payload_bytes;  /* of a packet of full size */
};
/* False: it cannot be told. */
bool gmi_socket_fare(int fd, struct gmi_socket_fare *fare);

/* The kernel's own counters: bytes sent without retransmissions, bytes received. GM_OK; GM_AGAIN:
 * something is still unsent or unacknowledged; GM_ERR_UNSUPPORTED. */
gm_status gmi_socket_kernel_counts(int fd, uint64_t *sent_bytes, uint64_t *recv_bytes);

/* No more will be sent; the peer reads an end of file behind what is under way. */
void gmi_socket_finish_sending(int fd);
void gmi_socket_close(int *fd); /* sets it to -1; -1 is fine */

#endif
