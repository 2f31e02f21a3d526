/* handshake.h - both sides of a new connection say who they are, prove that they belong here, and judge each other.
 *
 *     caller                                    answerer
 *       hello (96 bytes)            ------>
 *                                   <------       hello, proof (32)
 *       checks the proof; judges
 *       proof, verdict              ------>       checks the proof; judges
 *                                   <------       verdict
 *
 * The proof (rendezvous/secret.h) shows that one knows the job's secret. Before it is there, nothing is read from the
 * caller but the hello, which is judged by its form only, and the proof itself; and neither side tells the
 * other more than its own hello. A verdict is 4 bytes (status, length) and, when it is a refusal, a sentence; so both know
 * why a connection was refused. Who cannot prove himself is told nothing: he knows his secret, and sees ours differ by
 * our proof. Never a byte beyond the handshake is read. Whoever sends bytes that are no hello gets one line of text and
 * is closed.
 *
 * With a secret, and if either side wants it (the hellos say so, and the proofs cover them), what follows is encrypted. The
 * two need not agree here: that all ranks have the same settings is seen later, and told over a connection that is
 * encrypted then.
 *
 * States: handshake.c. Never blocks. */
#ifndef GMI_HANDSHAKE_H
#define GMI_HANDSHAKE_H

#include "net/poller.h"
#include "net/stream.h"
#include "rendezvous/secret.h"

enum { GMI_VERDICT_TEXT_BYTES = 400, GMI_VERDICT_BYTES = 4 };

/* Decides on a hello: GM_OK, or a refusal with its sentence in `why`; GM_ERR_STATE means "not now, come
 * again". */
typedef gm_status (*gmi_judge_fn)(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes);

enum gmi_handshake_state {
    GMI_SHAKE_SENDING_HELLO,     /* caller */
    GMI_SHAKE_RECEIVING_HELLO,   /* both */
    GMI_SHAKE_SENDING_ANSWER,    /* answerer: hello and proof */
    GMI_SHAKE_RECEIVING_PROOF,   /* both */
    GMI_SHAKE_SENDING_PROOF,     /* caller: and verdict */
    GMI_SHAKE_RECEIVING_VERDICT, /* both */
    GMI_SHAKE_SENDING_VERDICT,   /* answerer */
    GMI_SHAKE_DONE,
    GMI_SHAKE_FAILED
};

/* Kept small: as long as the peer has proven nothing, this is what he costs. */
struct gmi_handshake {
    int                      fd; /* owned until taken with gmi_handshake_take_fd */
    bool                     is_caller;
    bool                     has_hello;       /* the whole of the peer's has come */
    bool                     is_proven;       /* the peer knows the secret */
    bool                     is_refusal_ours; /* we turned the peer away, not he us */
    enum gmi_handshake_state state;
    const struct gmi_secret *secret; /* NULL: none */
    gmi_judge_fn             judge;
    void                    *judge_user;
    int64_t                  deadline_ns;
    struct gmi_hello         peer;   /* once it has come */
    struct gmi_hellos        hellos; /* as they were sent */

    uint8_t  out[GMI_HELLO_BYTES + GMI_PROOF_BYTES];
    uint8_t  in[GMI_PROOF_BYTES];
    char    *text; /* of a refusal, while it comes; from one who has proven himself */
    uint16_t out_bytes, out_sent_bytes;
    uint16_t in_bytes, in_want_bytes;
    uint64_t total_sent_bytes, total_recv_bytes; /* to be accounted as protocol */
};

/* `fd` is owned by the handshake from then on. `judge` is called once with the peer's hello, which is proven then.
 * `secret` must outlive it. */
void gmi_handshake_init(struct gmi_handshake *h, int fd, bool is_caller, const struct gmi_hello *own,
                        const struct gmi_secret *secret, gmi_judge_fn judge, void *judge_user, int64_t timeout_ms);

/* As far as it goes now. GM_OK: done, both agreed. GM_AGAIN: wait. Else failed: *error (cleared before) says why, the socket
 * is closed, and it is not called again. */
gm_status gmi_handshake_progress(struct gmi_handshake *h, gm_error *error);
void      gmi_handshake_watch(const struct gmi_handshake *h, struct gmi_poller *poller);

/* The key of this connection, when done (gmi_secret_link_key). False: no memory. */
bool gmi_handshake_link_key(const struct gmi_handshake *h, uint8_t key[GMI_LINK_KEY_BYTES]);

/* The connected socket, when done. */
int  gmi_handshake_take_fd(struct gmi_handshake *h);
/* What becomes of it, if its channel has nothing else to settle before: encrypted, if either side wants that. GM_OK;
 * GM_ERR_NOMEM: it is closed. */
gm_status gmi_handshake_stream(const struct gmi_handshake *h, int fd, struct gmi_stream *stream);
void gmi_handshake_fini(struct gmi_handshake *h);

#endif
