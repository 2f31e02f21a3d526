/* dial.h - a call (rendezvous/call.h) that is waited for, up to a deadline.
 *
 * Blocks; used while a communicator is created, by the thread that creates it. */
#ifndef GMI_DIAL_H
#define GMI_DIAL_H

#include "base/log.h"
#include "rendezvous/call.h"

struct gmi_dial {
    const char             *host; /* resolved at every try; may be numeric */
    int                     port;
    const struct gmi_hello *own;
    const struct gmi_secret *secret; /* NULL: none */
    gmi_judge_fn            judge; /* of the answerer; NULL: it must be own->target */
    const char             *whom;  /* "the store", "rank 3": for messages */
    int64_t                 deadline_ns;
    int64_t                 look_again_ns; /* GM_AGAIN after this, to look for a newer address; or GMI_NEVER */
    const struct gmi_log   *log;
};

/* GM_OK: *stream is connected, both sides agreed. GM_ERR_TIMEOUT: says the last reason. Refusals: as the peer
 * gave them. GM_ERR_NOMEM. */
gm_status gmi_dial(const struct gmi_dial *dial, struct gmi_stream *stream, gm_error *error);

#endif
