/* acceptor.h - a listening socket and the handshakes of those who have knocked and not yet proven
 * themselves.
 *
 * A stranger costs one slot of a small table for a few seconds, and nothing else: when the table is full
 * the oldest one makes room. Each refusal is one line in the log; only of those who do not speak the protocol,
 * such as a port scanner that comes again and again, not more than one in ten seconds after the first few. Never
 * blocks. */
#ifndef GMI_ACCEPTOR_H
#define GMI_ACCEPTOR_H

#include "base/log.h"
#include "rendezvous/handshake.h"

enum { GMI_MAX_PENDING = 64 };

/* Somebody has come in; `fd` is the receiver's. */
typedef void (*gmi_admit_fn)(void *user, int fd, const struct gmi_handshake *finished);

struct gmi_acceptor {
    int                   listener_fd;
    struct gmi_hello      own;
    gmi_judge_fn          judge;
    gmi_admit_fn          admit;
    void                 *user;
    const struct gmi_log *log;
    const char           *name; /* "store", "rank 3": for the log */
    struct gmi_handshake *pending[GMI_MAX_PENDING]; /* oldest first */
    int                   n_pending;
    int                   n_strangers;    /* told of, and ... */
    int                   n_untold;       /* ... not, since the last line */
    int64_t               quiet_until_ns; /* no line of a stranger until then */
    int64_t               paused_until_ns; /* no descriptors: do not spin on a readable listener */
};

/* Listens on `address`. GM_OK, GM_ERR_SYSTEM. */
gm_status gmi_acceptor_init(struct gmi_acceptor *a, const struct gmi_address *address,
                            const struct gmi_hello *own, gmi_judge_fn judge, gmi_admit_fn admit, void *user,
                            const struct gmi_log *log, const char *name, gm_error *error);
void gmi_acceptor_fini(struct gmi_acceptor *a);
void gmi_acceptor_watch(struct gmi_acceptor *a, struct gmi_poller *poller);
void gmi_acceptor_step(struct gmi_acceptor *a);

#endif
