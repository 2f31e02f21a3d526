#include "net/poller.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

void gmi_poller_init(struct gmi_poller *p) { *p = (struct gmi_poller){ 0 }; }

void gmi_poller_fini(struct gmi_poller *p)
{
    gmi_free(p->slots);
    gmi_poller_init(p);
}

void gmi_poller_clear(struct gmi_poller *p)
{
    p->n_slots = 0;
    p->is_out_of_memory = p->is_skipped = false;
}

static struct pollfd *find(const struct gmi_poller *p, int fd)
{
    for (size_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].fd == fd) return &p->slots[i];
    }
    return NULL;
}

static bool grow(struct gmi_poller *p)
{
    size_t cap = p->cap_slots ? 2 * p->cap_slots : 16;
    struct pollfd *slots = gmi_alloc(cap, sizeof *slots);
    if (slots == NULL) return false;
    if (p->n_slots) memcpy(slots, p->slots, p->n_slots * sizeof *slots);
    struct pollfd *old = p->slots;
    p->slots = slots; /* before it is freed: a process forked in between frees its copy once */
    p->cap_slots = cap;
    gmi_free(old);
    return true;
}

void gmi_poller_add(struct gmi_poller *p, int fd, unsigned interest)
{
    short events = (short)((interest & GMI_READABLE ? POLLIN : 0) | (interest & GMI_WRITABLE ? POLLOUT : 0));
    struct pollfd *slot = find(p, fd);
    if (slot != NULL) {
        slot->events = (short)(slot->events | events);
        return;
    }
    if (p->n_slots == p->cap_slots && !grow(p)) {
        p->is_out_of_memory = true;
        return;
    }
    p->slots[p->n_slots++] = (struct pollfd){ .fd = fd, .events = events };
}

void gmi_poller_skip(struct gmi_poller *p) { p->is_skipped = true; }

gm_status gmi_poller_wait(struct gmi_poller *p, int64_t deadline_ns)
{
    if (p->is_out_of_memory) {
        errno = ENOMEM;
        return GM_ERR_NOMEM;
    }
    int n = poll(p->slots, (nfds_t)p->n_slots, p->is_skipped ? 0 : gmi_deadline_poll_ms(deadline_ns));
    if (n > 0) return GM_OK;
    for (size_t i = 0; i < p->n_slots; i++) p->slots[i].revents = 0;
    if (n == 0 && p->is_skipped) return GM_OK;
    if (n < 0 && errno == EINTR) return GM_OK;
    if (n < 0) return GM_ERR_NOMEM; /* ENOMEM is the only other answer of poll() to these arguments */
    return GM_AGAIN;
}

unsigned gmi_poller_ready(const struct gmi_poller *p, int fd)
{
    const struct pollfd *slot = find(p, fd);
    if (slot == NULL) return 0;
    unsigned ready = 0;
    if (slot->revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) ready |= GMI_READABLE;
    if (slot->revents & (POLLOUT | POLLERR | POLLNVAL)) ready |= GMI_WRITABLE;
    return ready;
}
