#include "transport/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW, HEAD_BYTES = 4096 };

struct head {
    struct gmi_shm_words  words[2];
    struct gmi_shm_asleep asleep[2];
};
_Static_assert(sizeof(struct head) <= HEAD_BYTES, "the rings begin on the next page");

static struct head *head_of(const struct gmi_shm_segment *s) { return (struct head *)s->memory; }

static bool is_possible(size_t capacity_bytes)
{
    return capacity_bytes >= GMI_SHM_MIN_CAPACITY_BYTES &&
           capacity_bytes <= GMI_SHM_MAX_CAPACITY_BYTES &&
           (capacity_bytes & (capacity_bytes - 1)) == 0;
}

static size_t size_for(size_t capacity_bytes) { return HEAD_BYTES + 2 * capacity_bytes; }

static gm_status map(struct gmi_shm_segment *s, size_t capacity_bytes, int fd, int *sys_errno)
{
    size_t size_bytes = size_for(capacity_bytes);
    void  *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        *sys_errno = errno;
        return GM_ERR_SYSTEM;
    }
    *s = (struct gmi_shm_segment){ memory, size_bytes, capacity_bytes };
    return GM_OK;
}

/* Never executable, where the kernel knows of that. */
static int make_memfd(void)
{
    int fd = memfd_create("gradmesh", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("gradmesh", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

gm_status gmi_shm_segment_create(struct gmi_shm_segment *s, size_t capacity_bytes, int *fd,
                                 int *sys_errno)
{
    *s = (struct gmi_shm_segment){ 0 };
    *fd = -1;
    *sys_errno = EINVAL;
    if (!is_possible(capacity_bytes)) return GM_ERR_SYSTEM;
    *fd = make_memfd();
    if (*fd >= 0 && ftruncate(*fd, (off_t)size_for(capacity_bytes)) == 0 &&
        fcntl(*fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) == 0) {
        if (map(s, capacity_bytes, *fd, sys_errno) == GM_OK) return GM_OK;
    } else {
        *sys_errno = errno;
    }
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return GM_ERR_SYSTEM;
}

gm_status gmi_shm_segment_map(struct gmi_shm_segment *s, size_t capacity_bytes, int fd,
                              int *sys_errno)
{
    struct stat found;
    *s = (struct gmi_shm_segment){ 0 };
    *sys_errno = 0;
    if (!is_possible(capacity_bytes)) return GM_ERR_PROTOCOL;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &found) != 0 ||
        found.st_size != (off_t)size_for(capacity_bytes)) {
        return GM_ERR_PROTOCOL;
    }
    return map(s, capacity_bytes, fd, sys_errno);
}

void gmi_shm_segment_unmap(struct gmi_shm_segment *s)
{
    if (s->memory != NULL) munmap(s->memory, s->size_bytes);
    *s = (struct gmi_shm_segment){ 0 };
}

static struct gmi_shm_end end_of(const struct gmi_shm_segment *s, int direction)
{
    return (struct gmi_shm_end){ .words = &head_of(s)->words[direction],
                                 .bytes =
                                     s->memory + HEAD_BYTES + (size_t)direction * s->capacity_bytes,
                                 .capacity_bytes = s->capacity_bytes };
}

struct gmi_shm_end gmi_shm_segment_sender(const struct gmi_shm_segment *s, int side)
{
    return end_of(s, side);
}
struct gmi_shm_end gmi_shm_segment_receiver(const struct gmi_shm_segment *s, int side)
{
    return end_of(s, 1 - side);
}
struct gmi_shm_asleep *gmi_shm_segment_asleep(const struct gmi_shm_segment *s, int side)
{
    return &head_of(s)->asleep[side];
}
