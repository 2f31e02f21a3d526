/* call.h - calling somebody who may not be there yet, up to the end of the handshake; never blocks.
 *
 *     RESOLVING -> CONNECTING -> SHAKING -> DONE
 *         ^            |            |
 *         +-- PAUSED <-+------------+    nobody there, "come again", or broken half-way: a pause, then again
 *                                   +--> FAILED: turned away for good; or this machine refuses what a call needs,
 *                                        for seconds (GM_ERR_SYSTEM)
 *
 * All addresses of a name are tried in turn. A connection to oneself is not one (net/socket.h): it is closed
 * and tried again. Resolving a name may block in the resolver; numeric addresses do not. */
#ifndef GMI_CALL_H
#define GMI_CALL_H

#include "rendezvous/handshake.h"

enum gmi_call_state {
    GMI_CALL_RESOLVING,
    GMI_CALL_CONNECTING,
    GMI_CALL_SHAKING,
    GMI_CALL_PAUSED,
    GMI_CALL_DONE,
    GMI_CALL_FAILED
};

struct gmi_call {
    char                      host[256];
    int                       port;
    struct gmi_hello          own;
    const struct gmi_secret  *secret; /* NULL: none. Must outlive the call. */
    gmi_judge_fn              judge; /* of the answerer's hello; NULL: gmi_call_expects below */
    const struct gmi_address *source; /* call from this address; NULL: any. Must outlive the call. */

    enum gmi_call_state     state;
    struct gmi_address_list list;
    int                     index; /* of the address that is being tried */
    int                     fd;
    struct gmi_handshake    handshake;
    int                     pause_ms;
    int64_t                 next_ns; /* when a try is given up, or the pause is over */
    int64_t                 refused_since_ns; /* our own machine has refused every try since; 0: it does not */
    gm_error                error;   /* why the last try failed */
    uint64_t                sent_bytes, recv_bytes; /* of the handshake that succeeded */
};

void gmi_call_init(struct gmi_call *c, const char *host, int port, const struct gmi_hello *own,
                   const struct gmi_secret *secret, gmi_judge_fn judge);

/* GM_OK: gmi_call_take_fd or _take_stream has the connection. GM_AGAIN: wait. Else turned away; c->error says why. */
gm_status gmi_call_progress(struct gmi_call *c);

/* Adds what it waits for. It must also be progressed at gmi_call_next_ns. */
void    gmi_call_watch(const struct gmi_call *c, struct gmi_poller *poller);
int64_t gmi_call_next_ns(const struct gmi_call *c);

int  gmi_call_take_fd(struct gmi_call *c);
gm_status gmi_call_take_stream(struct gmi_call *c, struct gmi_stream *stream); /* instead; gmi_handshake_stream */
void gmi_call_fini(struct gmi_call *c);

#endif
