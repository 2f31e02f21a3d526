/* shm_segment.h - the memory that two processes share: made by one, checked and mapped by both.
 *
 * A memfd: it has no name, so it is gone with the last process that has it, however that one ends;
 * it is not bound by the size of /dev/shm; and its size is sealed, so that nobody can make the
 * other's next access a SIGBUS. Pages come into being when they are first touched. */
#ifndef GMI_SHM_SEGMENT_H
#define GMI_SHM_SEGMENT_H

#include "transport/shm_ring.h"

enum { GMI_SHM_MIN_CAPACITY_BYTES = 4096, GMI_SHM_MAX_CAPACITY_BYTES = 1 << 26 };

struct gmi_shm_segment {
    uint8_t *memory; /* NULL: none */
    size_t   size_bytes, capacity_bytes;
};

/* Makes one with this capacity for each direction, a power of two, and maps it. *fd is the
 * caller's. GM_OK; GM_ERR_SYSTEM: *sys_errno. */
gm_status gmi_shm_segment_create(struct gmi_shm_segment *segment, size_t capacity_bytes, int *fd,
                                 int *sys_errno);

/* Maps one that somebody else has made; `fd` stays the caller's. GM_OK; GM_ERR_PROTOCOL: it is not
 * what it must be, a sealed memfd of the right size; GM_ERR_SYSTEM: *sys_errno. */
gm_status gmi_shm_segment_map(struct gmi_shm_segment *segment, size_t capacity_bytes, int fd,
                              int *sys_errno);

void gmi_shm_segment_unmap(struct gmi_shm_segment *segment);

/* The ends of side 0 or 1: side 0 sends in direction 0 and receives in direction 1. */
struct gmi_shm_end     gmi_shm_segment_sender(const struct gmi_shm_segment *segment, int side);
struct gmi_shm_end     gmi_shm_segment_receiver(const struct gmi_shm_segment *segment, int side);
struct gmi_shm_asleep *gmi_shm_segment_asleep(const struct gmi_shm_segment *segment, int side);

#endif
