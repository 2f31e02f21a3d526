/* link.h - a link is an ordered byte stream to and from one peer. This is the porting guide.
 *
 * A transport fills the table below. It knows bytes, never elements, never ranks; who is at the other
 * end is the caller's business. Nothing here blocks.
 *
 *     link_tcp.c    over a connected socket, encrypted or not
 *     link_checked.c  wraps one of these: each block of bytes with its checksum
 *     link_shm.c    through memory shared with a process of the same host
 *     link_mem.c    between two ends inside one process, for stepping many ranks in one thread
 *     link_fault.c  wraps any link and makes its I/O partial, delayed or cut, by seed
 */
#ifndef GMI_LINK_H
#define GMI_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gradmesh.h"
#include "net/tls.h"

struct gmi_poller;
struct gmi_link;
struct gmi_socket_fare;

struct gmi_link_ops {
    const char *name;

    /* Takes as many bytes from the front of the parts as fit now. GM_OK: *moved_bytes > 0.
     * GM_AGAIN: none fit. GM_ERR_PEER_LOST: over; gmi_link.sys_errno is set. GM_ERR_PROTOCOL: the peer has done
     * what cannot be right, and the link is unusable. GM_ERR_CORRUPT: what arrived is not what was sent. n_parts >= 1, and the parts are not empty. */
    gm_status (*send_some)(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes);

    /* Fills the parts from the front with what has arrived. Same results; an end of file is
     * GM_ERR_PEER_LOST with sys_errno 0, after everything before it was delivered. */
    gm_status (*recv_some)(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes);

    /* Optional, both or none (NULL): lends what has arrived and lies in one piece, for a receiver that needs no copy of
     * its own. GM_OK: *n_bytes > 0, and *bytes are readable until the next move over the link; else as recv_some.
     * `consume` takes the first n_bytes of what was lent last; what it leaves is there for either way of receiving. */
    gm_status (*peek)(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes);
    void (*consume)(struct gmi_link *link, size_t n_bytes);

    /* Tells the poller what must happen before send_some (GMI_WRITABLE) or recv_some (GMI_READABLE) can
     * move more; net/poller.h. May do nothing if the link has no descriptor. The next move over the link ends the
     * watch: who sleeps on it must be woken then and watch again. */
    void (*watch)(struct gmi_link *link, struct gmi_poller *poller, unsigned interest);

    /* No more will be sent: the peer reads an end of file after what is under way. */
    void (*finish)(struct gmi_link *link);

    /* Ends the connection and frees the link. */
    void (*close)(struct gmi_link *link);

    /* Optional (NULL): what the kernel counted; see gmi_socket_kernel_counts. */
    gm_status (*kernel_counts)(struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes);

    /* Optional (NULL): has the other host not acknowledged for so long what it should have? */
    bool (*is_unanswered)(struct gmi_link *link, int for_ms);

    /* Optional (NULL): how its connection fares. False: that cannot be told. */
    bool (*fare)(const struct gmi_link *link, struct gmi_socket_fare *fare);

    /* Optional (NULL: none): how many bytes so far went over the wire beside those that were moved. */
    void (*overhead)(const struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes);
};

/* Embedded as the first member by every transport. */
struct gmi_link {
    const struct gmi_link_ops *ops;
    int                        sys_errno; /* why it ended; 0: the peer closed it */
    bool                       is_shared_memory; /* what moves passes no kernel that would count it */
};

static inline gm_status gmi_link_send_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                                           size_t *moved_bytes)
{
    return link->ops->send_some(link, parts, n_parts, moved_bytes);
}
static inline gm_status gmi_link_recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                                           size_t *moved_bytes)
{
    return link->ops->recv_some(link, parts, n_parts, moved_bytes);
}
static inline bool gmi_link_lends(const struct gmi_link *link) { return link->ops->peek != NULL; }
static inline gm_status gmi_link_peek(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes)
{
    return link->ops->peek(link, bytes, n_bytes);
}
static inline void gmi_link_consume(struct gmi_link *link, size_t n_bytes) { link->ops->consume(link, n_bytes); }
static inline void gmi_link_watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    link->ops->watch(link, poller, interest);
}
static inline void gmi_link_finish(struct gmi_link *link) { link->ops->finish(link); }
static inline bool gmi_link_is_unanswered(struct gmi_link *link, int for_ms)
{
    return link->ops->is_unanswered != NULL && link->ops->is_unanswered(link, for_ms);
}
static inline bool gmi_link_fare(const struct gmi_link *link, struct gmi_socket_fare *fare)
{
    return link->ops->fare != NULL && link->ops->fare(link, fare);
}
static inline void gmi_link_close(struct gmi_link *link)
{
    if (link != NULL) link->ops->close(link);
}

/* A link over a connected socket, which it owns from then on. NULL: no memory (the socket is closed). */
struct gmi_link *gmi_link_tcp_create(int fd);

/* The same, encrypted (net/tls.h). It moves nothing before gmi_link_tls_shake returns GM_OK; GM_AGAIN: wait for what a
 * watch adds; GM_ERR_PEER_LOST; GM_ERR_PROTOCOL: another key. */
struct gmi_link *gmi_link_tls_create(int fd, bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES]);
gm_status        gmi_link_tls_shake(struct gmi_link *link);

/* Wraps `inner`, which it owns from then on: both ends must. NULL: no memory (inner is closed; it may be NULL). */
struct gmi_link *gmi_link_checked_wrap(struct gmi_link *inner);

/* A link through a segment, as its side 0 or 1, in which it rings bell_fds[1 - side] and is woken by
 * bell_fds[side], event descriptors. The lifeline is a connected stream socket over which nothing more is sent. The link
 * owns all of these from then on. NULL: no memory (they stay the caller's). */
struct gmi_shm_segment;
struct gmi_link *gmi_link_shm_create(int lifeline_fd, struct gmi_shm_segment *segment, int side, const int bell_fds[2]);

/* Both ends of a stream inside this process; each direction holds up to `capacity_bytes` that are sent
 * and not yet received. */
gm_status gmi_link_mem_pair(struct gmi_link *ends[2], size_t capacity_bytes);

/* Which faults, drawn from `seed`. Zeros mean none. */
struct gmi_fault_plan {
    uint64_t seed;
    size_t   max_move_bytes;   /* each call moves 1 .. this many bytes */
    double   delay_probability; /* a call answers GM_AGAIN without trying */
    bool     never_lends;       /* though the wrapped link does */
    uint64_t cut_after_sent_bytes;  /* the link dies once so many bytes were sent (0: never) */
    uint64_t cut_after_recv_bytes;  /* ... or received */
    uint64_t refused_after_sent_bytes; /* from then on this machine refuses to send (0: never) */
    uint64_t flipped_recv_bit;      /* this bit of what is received, from 1, arrives changed (0: none) */
};
/* Wraps `inner`, which it owns from then on. NULL: no memory (inner is closed). */
struct gmi_link *gmi_link_fault_wrap(struct gmi_link *inner, const struct gmi_fault_plan *plan);
/* Cuts such a link now, whatever its plan says. */
void gmi_link_fault_cut(struct gmi_link *link);

/* The transports that a communicator can be told to use, by name: which of the links above two ranks make
 * once they are connected. */
struct gmi_transport {
    const char *name, *summary;
    bool        uses_memory;  /* between ranks of one host */
    bool        uses_sockets; /* between all others, and where memory cannot be shared */
};
/* "auto" is the first row. NULL: there is none of that name. */
const struct gmi_transport *gmi_transport_find(const char *name);
const char *gmi_transport_names(char *text, size_t text_bytes); /* "auto, tcp, shm" */

#endif
