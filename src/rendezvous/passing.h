/* passing.h - hands descriptors to the process at the other end of a TCP connection, if it is on
 * this host.
 *
 *     giver                                        taker
 *       listens on a local socket with a
 *       random name
 *       offer: name, secret, note     -- TCP -->
 *                                     <- local -     connects; sends the secret
 *       the same user? the secret?
 *       descriptors                   - local ->     the same user? takes them and tries them
 *                                     <-- TCP --     answer: what came of it
 *
 * The connection has been through a handshake, so who reads the offer is the rank that it is meant
 * for; the secret shows that who connects has read it; and the kernel tells each side under which
 * user the other one runs. A stranger who finds the name (they are listed in /proc/net/unix) is
 * sent away, and holds up nobody.
 *
 * Either side may find that it cannot: no descriptors left, a policy that forbids it, another host
 * after all. Then both learn why, and the connection is as good as before. It is the taker who
 * decides, and so the taker who has a time limit: two limits could end differently. Never blocks.
 * */
#ifndef GMI_PASSING_H
#define GMI_PASSING_H

#include "net/local.h"
#include "net/poller.h"

enum { GMI_OFFER_BYTES = 48, GMI_ANSWER_BYTES = 8, GMI_PASSING_SECRET_BYTES = 16 };

/* What stood in the way; on the wire. */
enum gmi_passing_trouble {
    GMI_PASSING_FINE = 0,
    GMI_PASSING_NOTHING_TO_GIVE, /* the giver could not make what it would pass */
    GMI_PASSING_NO_SOCKET,       /* ... or no local socket */
    GMI_PASSING_NOT_REACHED,     /* the taker found nobody under the name */
    GMI_PASSING_OTHER_USER,
    GMI_PASSING_NOT_SENT,
    GMI_PASSING_NOT_RECEIVED,
    GMI_PASSING_TOO_SLOW,
    GMI_PASSING_UNUSABLE,        /* the taker could not use what it was given */
    GMI_PASSING_TROUBLE_END
};

enum gmi_passing_state {
    GMI_PASSING_OFFERING,  /* giver */
    GMI_PASSING_WAITING,   /* giver: for the taker at the local socket, then for the answer */
    GMI_PASSING_HEARING,   /* taker: the offer */
    GMI_PASSING_RECEIVING, /* taker: the descriptors */
    GMI_PASSING_ANSWERING, /* taker */
    GMI_PASSING_OVER
};

/* The taker tries what it was given: true, or *sys_errno. What it does not keep is closed
 * afterwards, whatever it answers: it sets fds[i] to -1 for each descriptor that it keeps. */
typedef bool (*gmi_try_fds_fn)(void *user, int *fds, int n_fds, uint32_t note, int *sys_errno);

struct gmi_passing {
    int                    fd; /* the connection; the owner's */
    bool                   is_giver;
    enum gmi_passing_state state;

    enum gmi_passing_trouble trouble;
    int                      trouble_errno;
    bool                     is_trouble_ours; /* seen on this side */

    int            fds[GMI_LOCAL_MAX_FDS]; /* taker: owned; giver: lent. -1: none */
    int            n_fds;
    uint32_t       note; /* a number for the taker, with the offer */
    gmi_try_fds_fn try_fds;
    void          *user;

    int     listener_fd; /* giver */
    int     accept_errno; /* giver: why it could let nobody in */
    int     local_fd;    /* giver: who has knocked last; taker: to the giver */
    uint8_t name[GMI_LOCAL_NAME_BYTES], secret[GMI_PASSING_SECRET_BYTES], heard_secret[GMI_PASSING_SECRET_BYTES];
    size_t  heard_secret_bytes;
    int64_t timeout_ms, deadline_ns; /* taker */

    uint8_t  out[GMI_OFFER_BYTES], in[GMI_OFFER_BYTES];
    size_t   out_bytes, out_sent_bytes, in_bytes;
    uint64_t total_sent_bytes, total_recv_bytes; /* over the connection */
    int      sys_errno;                          /* of the connection, when it is lost */
};

/* Offers `fds`, which must stay open until this is over. n_fds 0: nothing could be made, for the
 * reason trouble_errno. */
void gmi_passing_give(struct gmi_passing *p, int fd, const int *fds, int n_fds, uint32_t note,
                      int trouble_errno);

/* Takes n_fds descriptors, within so much time after the offer. */
void gmi_passing_take(struct gmi_passing *p, int fd, int n_fds, gmi_try_fds_fn try_fds, void *user,
                      int64_t timeout_ms);

/* As far as it goes now. GM_OK: over, and both sides know what came of it: p->trouble. GM_AGAIN:
 * wait. GM_ERR_PEER_LOST, GM_ERR_PROTOCOL: the connection is of no use any more. */
gm_status gmi_passing_progress(struct gmi_passing *p);
void      gmi_passing_watch(const struct gmi_passing *p, struct gmi_poller *poller);
/* When it must be progressed all the same. */
int64_t gmi_passing_next_ns(const struct gmi_passing *p);

/* What this side or the other one (is_trouble_ours) met: "could not make the memory: Too many open
 * files". */
const char *gmi_passing_why(const struct gmi_passing *p, char *text, size_t text_bytes);

void gmi_passing_fini(struct gmi_passing *p);

#endif
