/* link_shm.c - a link through memory that two processes of one host share. shm_ring.h has the
 * picture.
 *
 *     memory      two rings, one for each direction
 *     bell        an event descriptor of each side, which the other one rings when this one sleeps
 *                 and what it waits for has come; who does not sleep costs nobody a system call
 *     lifeline    the TCP connection over which the two have met. Nothing is sent over it any
 *                 more. Its end is the end of the peer's process, or of its link, also after
 *                 SIGKILL; so a death is noticed as with any TCP link.
 *
 * watch() hands the poller bell and lifeline, and says in the segment what it waits for. The first
 * move after that takes the word back. If nobody had rung, something else has ended the sleep,
 * maybe the peer: only then, and only when nothing can be moved, the lifeline is looked at.
 *
 * Who adds what arrives to something else is lent the bytes where they lie in the ring, and spares a copy. */
#include <errno.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "net/poller.h"
#include "net/socket.h"
#include "transport/link.h"
#include "transport/shm_segment.h"

/* One move copies no more, so that the other side can begin with it while we go on. */
enum { MOVE_BYTES = 128 * 1024 };

struct shm_link {
    struct gmi_link        base;
    struct gmi_shm_segment segment;
    struct gmi_shm_end     sender, receiver;
    struct gmi_shm_asleep *own_asleep, *peer_asleep;
    int                    own_bell_fd, peer_bell_fd, lifeline_fd;
    bool                   has_watched; /* our word stands in the segment */
    bool                   must_look;   /* at the lifeline */
    gm_status              end;         /* not GM_OK: the peer is gone, or mad */
};

/* ---- sleeping and being woken ---------------------------------------------------------------- */

static void ring(struct shm_link *shm)
{
    uint64_t one = 1;
    ssize_t  written = write(shm->peer_bell_fd, &one, sizeof one);
    (void)written; /* a full counter is as loud as can be */
}

static void wake_peer(struct shm_link *shm, unsigned interest)
{
    if (gmi_shm_must_ring(shm->peer_asleep, interest)) ring(shm);
}

/* A ring that comes after our word was taken back ends the next sleep early, which is harmless; so
 * the bell is silenced in any case. */
static void come_back(struct shm_link *shm)
{
    uint64_t count;
    shm->has_watched = false;
    if (gmi_shm_say_awake(shm->own_asleep)) shm->must_look = true;
    ssize_t got = read(shm->own_bell_fd, &count, sizeof count);
    (void)got;
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    struct shm_link *shm = (struct shm_link *)link;
    gmi_poller_add(poller, shm->lifeline_fd, GMI_READABLE);
    if (interest == GMI_HANGUP) return;
    gmi_poller_add(poller, shm->own_bell_fd, GMI_READABLE);
    gmi_shm_say_asleep(shm->own_asleep, interest);
    shm->has_watched = true;
    bool is_ready = shm->end != GM_OK ||
                    ((interest & GMI_READABLE) && gmi_shm_can_take(&shm->receiver)) ||
                    ((interest & GMI_WRITABLE) && gmi_shm_can_put(&shm->sender));
    if (is_ready) gmi_poller_skip(poller);
}

/* ---- the end --------------------------------------------------------------------------------- */

static gm_status set_end(struct shm_link *shm, gm_status end, int sys_errno)
{
    shm->end = end;
    shm->base.sys_errno = sys_errno;
    return end;
}

/* GM_AGAIN: the peer lives. */
static gm_status look_at_lifeline(struct shm_link *shm)
{
    char         byte;
    struct iovec part = { &byte, 1 };
    size_t       moved;
    int          sys_errno = 0;
    gm_status    status = gmi_socket_recv_some(shm->lifeline_fd, &part, 1, &moved, &sys_errno);
    shm->must_look = false;
    if (status == GM_AGAIN) return status;
    return set_end(shm, status == GM_OK ? GM_ERR_PROTOCOL : status, sys_errno);
}

/* Nothing is there to take: will there be more? What was written before the end may have arrived between the two
 * looks, so the caller looks once more. */
static bool is_over(struct shm_link *shm)
{
    if (shm->end != GM_OK || gmi_shm_is_finished(&shm->receiver)) return true;
    return shm->must_look && look_at_lifeline(shm) != GM_AGAIN;
}

static gm_status end_of(const struct shm_link *shm) { return shm->end != GM_OK ? shm->end : GM_ERR_PEER_LOST; }

/* ---- moving ---------------------------------------------------------------------------------- */

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct shm_link *shm = (struct shm_link *)link;
    *moved_bytes = 0;
    if (shm->has_watched) come_back(shm);
    if (shm->end != GM_OK) return shm->end;
    gm_status status = gmi_shm_put(&shm->sender, parts, n_parts, MOVE_BYTES, moved_bytes);
    if (status == GM_OK) wake_peer(shm, GMI_READABLE);
    if (status == GM_AGAIN && gmi_shm_is_left(&shm->sender))
        return set_end(shm, GM_ERR_PEER_LOST, 0);
    if (status == GM_AGAIN && shm->must_look) return look_at_lifeline(shm);
    return status == GM_ERR_PROTOCOL ? set_end(shm, status, 0) : status;
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct shm_link *shm = (struct shm_link *)link;
    *moved_bytes = 0;
    if (shm->has_watched) come_back(shm);
    if (shm->end == GM_ERR_PROTOCOL) return shm->end;
    gm_status status = gmi_shm_take(&shm->receiver, parts, n_parts, MOVE_BYTES, moved_bytes);
    if (status == GM_AGAIN && is_over(shm)) {
        status = gmi_shm_take(&shm->receiver, parts, n_parts, MOVE_BYTES, moved_bytes);
        if (status == GM_AGAIN) status = end_of(shm);
    }
    if (status == GM_OK) wake_peer(shm, GMI_WRITABLE);
    return status == GM_ERR_PROTOCOL ? set_end(shm, status, 0) : status;
}

static gm_status peek(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes)
{
    struct shm_link *shm = (struct shm_link *)link;
    *n_bytes = 0;
    if (shm->has_watched) come_back(shm);
    if (shm->end == GM_ERR_PROTOCOL) return shm->end;
    gm_status status = gmi_shm_peek(&shm->receiver, bytes, n_bytes);
    if (status == GM_AGAIN && is_over(shm)) {
        status = gmi_shm_peek(&shm->receiver, bytes, n_bytes);
        if (status == GM_AGAIN) status = end_of(shm);
    }
    *n_bytes = gmi_min_size(*n_bytes, MOVE_BYTES);
    return status == GM_ERR_PROTOCOL ? set_end(shm, status, 0) : status;
}

static void consume(struct gmi_link *link, size_t n_bytes)
{
    struct shm_link *shm = (struct shm_link *)link;
    gmi_shm_consume(&shm->receiver, n_bytes);
    wake_peer(shm, GMI_WRITABLE);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void finish(struct gmi_link *link)
{
    struct shm_link *shm = (struct shm_link *)link;
    gmi_shm_finish(&shm->sender);
    wake_peer(shm, GMI_READABLE);
}

/* Said in the segment too, for a peer that is awake and does not look at its lifeline. */
static void close_link(struct gmi_link *link)
{
    struct shm_link *shm = (struct shm_link *)link;
    gmi_shm_leave(&shm->receiver);
    finish(link);
    gmi_shm_segment_unmap(&shm->segment);
    gmi_socket_close(&shm->own_bell_fd);
    gmi_socket_close(&shm->peer_bell_fd);
    gmi_socket_close(&shm->lifeline_fd);
    gmi_free(shm);
}

/* The lifeline has carried a handshake. */
static gm_status kernel_counts(struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    return gmi_socket_kernel_counts(((struct shm_link *)link)->lifeline_fd, sent_bytes, recv_bytes);
}

static const struct gmi_link_ops shm_ops = {
    .name = "shm",
    .send_some = send_some,
    .recv_some = recv_some,
    .peek = peek,
    .consume = consume,
    .watch = watch,
    .finish = finish,
    .close = close_link,
    .kernel_counts = kernel_counts,
};

struct gmi_link *gmi_link_shm_create(int lifeline_fd, struct gmi_shm_segment *segment, int side,
                                     const int bell_fds[2])
{
    struct shm_link *shm = gmi_alloc(1, sizeof *shm);
    if (shm == NULL) return NULL;
    *shm = (struct shm_link){
        .base = { .ops = &shm_ops, .is_shared_memory = true },
        .segment = *segment,
        .sender = gmi_shm_segment_sender(segment, side),
        .receiver = gmi_shm_segment_receiver(segment, side),
        .own_asleep = gmi_shm_segment_asleep(segment, side),
        .peer_asleep = gmi_shm_segment_asleep(segment, 1 - side),
        .own_bell_fd = bell_fds[side],
        .peer_bell_fd = bell_fds[1 - side],
        .lifeline_fd = lifeline_fd,
    };
    *segment = (struct gmi_shm_segment){ 0 };
    return &shm->base;
}
