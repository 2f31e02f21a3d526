/* acceptor.h - a listening socket and the handshakes of those who have knocked and not yet proven
 * themselves.
 *
 * A stranger costs one slot of a small table, some hundred bytes, for a few seconds, and nothing else: when the table
 * is full the oldest one makes room, first of those who have not even sent a hello. Each refusal is one line in the
 * log; only of those who cannot prove that they know the secret, such as a port scanner that comes again and again,
 * not more than one in ten seconds after the first few. Never blocks. */
#ifndef GMI_ACCEPTOR_H
#define GMI_ACCEPTOR_H

#include "base/log.h"
#include "rendezvous/handshake.h"

/* More than ranks of a large job that all call in one moment, which must not push one another out. */
enum { GMI_MAX_PENDING = 512 };

/* Those who leave, or must, before they have sent a hello; who speak something else; who do not know the secret. */
enum gmi_stranger_kind { GMI_STRANGER_SILENT, GMI_STRANGER_FOREIGN, GMI_STRANGER_UNPROVEN, GMI_STRANGER_KINDS };

/* Somebody has come in; `fd` is the receiver's. */
typedef void (*gmi_admit_fn)(void *user, int fd, const struct gmi_handshake *finished);

struct gmi_acceptor {
    int                   listener_fd;
    struct gmi_hello      own;
    const struct gmi_secret *secret;
    gmi_judge_fn          judge;
    gmi_admit_fn          admit;
    void                 *user;
    const struct gmi_log *log;
    const char           *name; /* "store", "rank 3": for the log */
    struct gmi_handshake *pending[GMI_MAX_PENDING]; /* oldest first */
    int                   n_pending;
    struct gmi_stranger_count {
        int     n_told, n_untold; /* of in the log; since the last line */
        int64_t quiet_until_ns;   /* no line until then */
    } strangers[GMI_STRANGER_KINDS];
    int64_t               paused_until_ns; /* no descriptors: do not spin on a readable listener */
    int64_t               refused_since_ns; /* no connection could be accepted since; 0: they can */
    int                   refused_errno;
    bool                  is_ending; /* members leave, who may end a call that they have begun: no warning then */
};

/* Listens on `address`. GM_OK, GM_ERR_SYSTEM; GM_ERR_ARG: beyond loopback without a secret. */
gm_status gmi_acceptor_init(struct gmi_acceptor *a, const struct gmi_address *address, const struct gmi_hello *own,
                            const struct gmi_secret *secret, gmi_judge_fn judge, gmi_admit_fn admit, void *user,
                            const struct gmi_log *log, const char *name, gm_error *error);
void gmi_acceptor_fini(struct gmi_acceptor *a);
void gmi_acceptor_watch(struct gmi_acceptor *a, struct gmi_poller *poller);
void gmi_acceptor_step(struct gmi_acceptor *a);

/* For how long has this machine refused every connection that came? 0: it does not. */
int64_t gmi_acceptor_refused_ns(const struct gmi_acceptor *a);
/* Listens no more: who calls is refused by the kernel, and so hears at once that it calls in vain. */
void gmi_acceptor_close(struct gmi_acceptor *a);

#endif
