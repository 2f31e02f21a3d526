#include "tests/support/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"

/* The queue of a way is memory that is touched when it is used: 50 ms of 20 Gbit/s. */
enum { FRAME_BYTES = 1 << 17, QUEUE_BYTES = 1 << 27, AT_ONCE = 32, DEFAULT_ROOM_MS = 50, DEFAULT_LIMIT_S = 60, NS_PER_S = 1000000000 };

struct frame {
    int64_t due_ns;
    size_t  n_bytes; /* 0: the queue goes on at its front */
};

struct way {
    int                 from, to;
    uint8_t            *queue;
    size_t              first, end, used; /* used: with what is left out at the back */
    int64_t             free_ns;          /* when the line will have sent all that it took */
    struct gmi_rng      rng;
    struct relay_counts counts;
};

int relay_open(const char *name)
{
    struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
    int          fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, TUNSETIFF, &request) == 0 && ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) == 0) return fd;
    close(fd);
    return -1;
}

/* Room for one more frame, in one piece; NULL: none. */
static struct frame *room_at_end(struct way *w)
{
    size_t needed = sizeof(struct frame) + FRAME_BYTES;
    if (w->used + 2 * needed > QUEUE_BYTES) return NULL;
    if (QUEUE_BYTES - w->end < needed) {
        *(struct frame *)(void *)(w->queue + w->end) = (struct frame){ 0 };
        w->used += QUEUE_BYTES - w->end;
        w->end = 0;
    }
    return (struct frame *)(void *)(w->queue + w->end);
}

static size_t step_of(size_t n_bytes) { return sizeof(struct frame) + (n_bytes + 15) / 16 * 16; }

/* When the frame is at the other end; 0: nowhere. */
static int64_t due_at(struct way *w, const struct relay_options *o, size_t n_bytes)
{
    int64_t now_ns = gmi_now_ns(), room_ns = o->room_ns > 0 ? o->room_ns : DEFAULT_ROOM_MS * GMI_NS_PER_MS;
    if (o->loss > 0 && (double)(gmi_rng_next(&w->rng) >> 11) * 0x1p-53 < o->loss) {
        w->counts.n_lost++;
        return 0;
    }
    if (o->bits_per_s == 0) return now_ns + o->delay_ns;
    if (w->free_ns < now_ns) w->free_ns = now_ns;
    if (w->free_ns - now_ns > room_ns) {
        w->counts.n_cut++;
        return 0;
    }
    w->free_ns += (int64_t)((double)n_bytes * 8 * NS_PER_S / (double)o->bits_per_s);
    return w->free_ns + o->delay_ns;
}

/* False: the device is gone. */
static bool take(struct way *w, const struct relay_options *o)
{
    for (int i = 0; i < AT_ONCE; i++) {
        struct frame *f = room_at_end(w);
        uint8_t       thrown[FRAME_BYTES];
        ssize_t       n = read(w->from, f != NULL ? (uint8_t *)(f + 1) : thrown, FRAME_BYTES);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        if (f == NULL) w->counts.n_cut++;
        int64_t due_ns = f != NULL ? due_at(w, o, (size_t)n - sizeof(struct virtio_net_hdr)) : 0;
        if (due_ns == 0) continue;
        *f = (struct frame){ due_ns, (size_t)n };
        w->end += step_of(f->n_bytes);
        w->used += step_of(f->n_bytes);
    }
    return true;
}

/* Hands on what is due. Returns when the next one is. */
static int64_t give(struct way *w)
{
    while (w->used > 0) {
        struct frame *f = (struct frame *)(void *)(w->queue + w->first);
        if (f->n_bytes == 0) {
            w->used -= QUEUE_BYTES - w->first;
            w->first = 0;
            continue;
        }
        if (f->due_ns > gmi_now_ns()) return f->due_ns;
        /* A device that is down, or full, loses it. */
        if (write(w->to, f + 1, f->n_bytes) < 0) w->counts.n_cut++;
        w->counts.n_frames++;
        w->counts.n_bytes += f->n_bytes - sizeof(struct virtio_net_hdr);
        w->first += step_of(f->n_bytes);
        w->used -= step_of(f->n_bytes);
    }
    w->first = w->end = 0;
    return GMI_NEVER;
}

static bool carry(struct way ways[2], const struct relay_options *o, int64_t end_ns)
{
    struct pollfd   fds[2] = { { .fd = ways[0].from, .events = POLLIN }, { .fd = ways[1].from, .events = POLLIN } };
    int64_t         next_ns = end_ns, now_ns = gmi_now_ns();
    for (int i = 0; i < 2; i++) {
        int64_t due_ns = give(&ways[i]);
        if (due_ns < next_ns) next_ns = due_ns;
    }
    int64_t         wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    struct timespec wait = { wait_ns / NS_PER_S, wait_ns % NS_PER_S };
    if (ppoll(fds, 2, &wait, NULL) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; i++) {
        if (fds[i].revents & POLLNVAL || (fds[i].revents != 0 && !take(&ways[i], o))) return false;
    }
    return true;
}

void relay_run(int fd_a, int fd_b, const struct relay_options *options, struct relay_counts counts[2])
{
    int64_t    end_ns = gmi_now_ns() + (options->limit_ns > 0 ? options->limit_ns : INT64_C(1) * DEFAULT_LIMIT_S * NS_PER_S);
    struct way ways[2] = { { .from = fd_a, .to = fd_b, .rng.key = options->seed },
                           { .from = fd_b, .to = fd_a, .rng.key = options->seed + 1 } };
    bool       is_good = true;
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < 2; i++) {
        ways[i].queue = mmap(NULL, QUEUE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        is_good &= ways[i].queue != MAP_FAILED;
    }
    while (is_good && gmi_now_ns() < end_ns) is_good = carry(ways, options, end_ns);
    for (int i = 0; i < 2; i++) {
        if (ways[i].queue != MAP_FAILED) munmap(ways[i].queue, QUEUE_BYTES);
        counts[i] = ways[i].counts;
    }
}
