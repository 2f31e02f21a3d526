/* dial.h - connecting to somebody who may not be there yet, up to the end of the handshake.
 *
 * Blocks, up to a deadline; used while a communicator is created, by the thread that creates it. Retries
 * while nobody listens, while the name does not resolve, and when the answer is "come again". A connection
 * to oneself is not one (net/socket.h): it is closed and tried again. */
#ifndef GMI_DIAL_H
#define GMI_DIAL_H

#include "base/log.h"
#include "rendezvous/handshake.h"

struct gmi_dial {
    const char              *host; /* resolved at every try; may be numeric */
    int                      port;
    const struct gmi_hello  *own;
    gmi_judge_fn             judge;
    void                    *judge_user;
    const char              *whom; /* "the store", "rank 3": for messages */
    int64_t                  deadline_ns;
    int64_t                  first_deadline_ns; /* GM_AGAIN after this, to look for a newer address; or GMI_NEVER */
    const struct gmi_address *source; /* connect from it; NULL: any */
    int                      wake_fd; /* stop with GM_ERR_ABORTED when it becomes readable; -1: none */
    const struct gmi_log    *log;
};

/* GM_OK: *fd is connected, both sides agreed; the handshake's bytes are in the counters. GM_ERR_TIMEOUT:
 * says the last reason. Refusals: as the peer gave them. */
gm_status gmi_dial(const struct gmi_dial *dial, int *fd, uint64_t *sent_bytes, uint64_t *recv_bytes,
                   gm_error *error);

#endif
