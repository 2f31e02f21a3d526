/* handshake.h - both sides of a new connection say who they are and judge each other.
 *
 *     caller                                    answerer
 *       hello (96 bytes)            ------>       judges the hello
 *                                   <------       hello, verdict
 *       judges the answerer's hello
 *       verdict                     ------>
 *
 * A verdict is 4 bytes (status, length) and, when it is a refusal, a sentence; so both sides know why a
 * connection was refused. Nothing else is read before the end, and never a byte beyond it. Whoever sends
 * bytes that are no hello gets one line of text and is closed.
 *
 * States, changed in one place: SAYING_HELLO -> HEARING_HELLO -> ... ; see handshake.c. Never blocks. */
#ifndef GMI_HANDSHAKE_H
#define GMI_HANDSHAKE_H

#include "net/address.h"
#include "net/poller.h"
#include "rendezvous/hello.h"

enum { GMI_VERDICT_TEXT_BYTES = 400 };

/* Decides on a hello: GM_OK, or a refusal with its sentence in `why`; GM_ERR_STATE means "not now, come
 * again". */
typedef gm_status (*gmi_judge_fn)(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes);

enum gmi_handshake_state {
    GMI_SHAKE_SENDING_HELLO,     /* caller */
    GMI_SHAKE_RECEIVING_HELLO,   /* both */
    GMI_SHAKE_SENDING_ANSWER,    /* answerer: hello and verdict */
    GMI_SHAKE_RECEIVING_VERDICT, /* both */
    GMI_SHAKE_SENDING_VERDICT,   /* caller */
    GMI_SHAKE_DONE,
    GMI_SHAKE_FAILED
};

struct gmi_handshake {
    int                      fd; /* owned until taken with gmi_handshake_take_fd */
    bool                     is_caller;
    enum gmi_handshake_state state;
    struct gmi_hello         own, peer;
    gmi_judge_fn             judge;
    void                    *judge_user;
    int64_t                  deadline_ns;
    gm_error                 error;  /* why it failed */
    bool                     is_refusal_ours; /* we turned the peer away, not he us */

    uint8_t  out[GMI_HELLO_BYTES + 4 + GMI_VERDICT_TEXT_BYTES];
    size_t   out_bytes, out_sent_bytes;
    uint8_t  in[GMI_HELLO_BYTES + 4 + GMI_VERDICT_TEXT_BYTES];
    size_t   in_bytes, in_want_bytes;
    uint64_t total_sent_bytes, total_recv_bytes; /* to be accounted as protocol */
};

/* `fd` is owned by the handshake from then on. `judge` is called once with the peer's hello. */
void gmi_handshake_init(struct gmi_handshake *h, int fd, bool is_caller, const struct gmi_hello *own,
                        gmi_judge_fn judge, void *judge_user, int64_t timeout_ms);

/* As far as it goes now. GM_OK: done, both agreed. GM_AGAIN: wait. Else h->error; the socket is closed. */
gm_status gmi_handshake_progress(struct gmi_handshake *h);
void      gmi_handshake_watch(const struct gmi_handshake *h, struct gmi_poller *poller);

/* The connected socket, when done. */
int  gmi_handshake_take_fd(struct gmi_handshake *h);
void gmi_handshake_fini(struct gmi_handshake *h);

#endif
