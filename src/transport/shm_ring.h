/* shm_ring.h - one direction of bytes through memory that two processes share.
 *
 *     the segment    | words 0 | words 1 | asleep 0 | asleep 1 |   | bytes 0 .... | bytes 1 .... |
 *                      one page                                      capacity each, a power of two
 *
 *     bytes of one direction, as a ring; positions only grow, their place is position mod capacity:
 *
 *              taken                 written
 *                v                      v
 *     ...........|######################|.........      # under way: at most `capacity` bytes
 *                 the receiver takes here, the sender adds there
 *
 * Each position has one writer: the sender `written`, the receiver `taken`, on cache lines of their
 * own. A side remembers its own position and never reads it back from the segment; what the other
 * side says is taken over only when it is possible: between the last value and what can have been
 * moved since. So a peer gone mad can give us wrong bytes, which everything above must survive
 * anyway, but cannot make us read or write outside the ring: GM_ERR_PROTOCOL.
 *
 * Going to sleep without missing the last byte. The sleeper first says that it sleeps and then
 * looks at the position once more; the other side first moves the position and then looks whether
 * somebody sleeps:
 *
 *     sleeper                                   mover
 *       asleep[own] |= interest                   position = new
 *       look at the position; moved: stay up      asleep[other] & interest: take it back, and ring
 *       sleep until the bell                        the bell
 *
 * All four are sequentially consistent, so they have one order for both, and in no order do both
 * look before the other has spoken. Where nobody sleeps, no system call happens.
 *
 * This file knows memory only, no descriptor and no bell. link_shm.c makes a link of it. */
#ifndef GMI_SHM_RING_H
#define GMI_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gradmesh.h"

/* Neighbouring lines are fetched in pairs on many machines. */
#define GMI_SHM_LINE 128

/* Positions of one direction; in the segment. */
struct gmi_shm_words {
    _Alignas(GMI_SHM_LINE) _Atomic uint64_t written; /* the sender's: bytes ever put in */
    atomic_uint is_finished;                         /* the sender's: there will be no more */
    _Alignas(GMI_SHM_LINE) _Atomic uint64_t taken;   /* the receiver's: bytes ever taken out */
    atomic_uint is_left;                             /* the receiver's: it will take no more */
};

/* Who sleeps, waiting for what (GMI_READABLE, GMI_WRITABLE); in the segment. */
struct gmi_shm_asleep {
    _Alignas(GMI_SHM_LINE) atomic_uint interest;
};

/* One side's end of a direction; in its own memory. A sender's `own` is what it has written and
 * `seen` what it knows to be taken; a receiver's `own` is what it has taken and `seen` what it
 * knows to be written. */
struct gmi_shm_end {
    struct gmi_shm_words *words;
    uint8_t              *bytes;
    size_t                capacity_bytes;
    uint64_t              own, seen;
};

/* Moves as much as fits and is there, at most `limit_bytes`. GM_OK: *moved_bytes > 0. GM_AGAIN: no
 * room, or nothing there. GM_ERR_PROTOCOL: the other side's position is impossible. */
gm_status gmi_shm_put(struct gmi_shm_end *sender, const struct iovec *parts, int n_parts,
                      size_t limit_bytes, size_t *moved_bytes);
gm_status gmi_shm_take(struct gmi_shm_end *receiver, const struct iovec *parts, int n_parts,
                       size_t limit_bytes, size_t *moved_bytes);

/* Lends what is there and lies in one piece: GM_OK: *n_bytes > 0. Else as gmi_shm_take. */
gm_status gmi_shm_peek(struct gmi_shm_end *receiver, const uint8_t **bytes, size_t *n_bytes);
/* Takes the first n_bytes of what was lent. */
void gmi_shm_consume(struct gmi_shm_end *receiver, size_t n_bytes);

/* Would put (take) do anything else than GM_AGAIN? For the second look of a sleeper. */
bool gmi_shm_can_put(const struct gmi_shm_end *sender);
bool gmi_shm_can_take(const struct gmi_shm_end *receiver);

/* The end of the stream, said by the sender. It is sure to be reached when gmi_shm_take, called
 * after this said so, finds nothing. */
void gmi_shm_finish(struct gmi_shm_end *sender);
bool gmi_shm_is_finished(const struct gmi_shm_end *receiver);

/* Said by the receiver: there is nobody any more to send to. */
void gmi_shm_leave(struct gmi_shm_end *receiver);
bool gmi_shm_is_left(const struct gmi_shm_end *sender);

/* The sleeper's first step: says that it waits for this, on top of what it has said before. */
void gmi_shm_say_asleep(struct gmi_shm_asleep *own, unsigned interest);
/* The sleeper is back. False: the other side has taken the word back already, and rings or has
 * rung. */
bool gmi_shm_say_awake(struct gmi_shm_asleep *own);
/* After moving what somebody may wait for: must we ring? */
bool gmi_shm_must_ring(struct gmi_shm_asleep *other, unsigned interest);

#endif
