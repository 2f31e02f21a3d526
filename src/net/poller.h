/* poller.h - a set of (file descriptor, interest) and the one place that sleeps.
 *
 * Used in rounds: clear, add what is of interest now, wait, ask what is ready. Adding a descriptor
 * twice merges the interests. Progress functions are handed a poller only to say what they wait for;
 * they never wait themselves. */
#ifndef GMI_POLLER_H
#define GMI_POLLER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

enum {
    GMI_HANGUP = 0,        /* only the end of the connection, which is always reported */
    GMI_READABLE = 1 << 0,
    GMI_WRITABLE = 1 << 1,
};

struct gmi_poller {
    struct pollfd *slots;
    size_t         n_slots, cap_slots;
    bool           is_out_of_memory; /* an add was lost; the next wait returns at once */
    bool           is_skipped;       /* something is ready already */
};

void gmi_poller_init(struct gmi_poller *p);
void gmi_poller_fini(struct gmi_poller *p);
void gmi_poller_clear(struct gmi_poller *p);
void gmi_poller_add(struct gmi_poller *p, int fd, unsigned interest);

/* Something is ready that no descriptor shows: the next wait looks at the descriptors, but does not sleep. */
void gmi_poller_skip(struct gmi_poller *p);

/* Sleeps until something is ready or `deadline_ns` (base/clock.h) has passed.
 * GM_OK: something may be ready (also after a signal). GM_AGAIN: the deadline passed. GM_ERR_NOMEM. */
gm_status gmi_poller_wait(struct gmi_poller *p, int64_t deadline_ns);

/* GMI_READABLE (also for end of file and errors) and GMI_WRITABLE, as of the last wait. */
unsigned gmi_poller_ready(const struct gmi_poller *p, int fd);

#endif
