/* control.h - the membership of a communicator as its control connections show it.
 *
 *              rank 0                         a star: one control connection for each other rank.
 *             /  |  \                         Its middle relays what one rank has to tell the others, so
 *        rank 1  2   3                        everybody hears of everything within two hops, also of
 *                                             ranks that are no neighbours in the ring. The middle is
 *                                             rank 0 and, when that leaves, the lowest that is left.
 *
 *     phase       what happens                                         next
 *     GATHERING   each rank sends JOIN; rank 0 answers MISSING          READY when all have joined
 *                 now and then, and compares fingerprints               (and agree)
 *     READY       FAILURE and GOODBYE travel                            until the end
 *
 * A connection that ends without a goodbye while READY is a lost rank. Its end is what the middle sees at once
 * when a process dies, whatever the rank was doing; so a death is known everywhere in the time of two
 * messages. When the middle dies, every other rank sees that itself. What dies or freezes without an end of
 * its connection shows by the heartbeats (control_pulse.c).
 *
 * Invariants:
 *   1. The first failure that a rank learns of is kept; later ones change nothing.
 *   2. Every failure is sent on once: by a rank to the middle, by that to all.
 *   3. GOODBYE is the last message of a rank; the end of its connection after that is no failure.
 *
 * All functions are called with the communicator's lock held; none blocks. */
#ifndef GMI_CONTROL_H
#define GMI_CONTROL_H

#include <stdatomic.h>

#include "base/log.h"
#include "base/process.h"
#include "coll/cost.h"
#include "comm/courier.h"
#include "comm/failure.h"
#include "comm/waits.h"
#include "net/address.h"
#include "rendezvous/hello.h"

enum gmi_phase { GMI_GATHERING, GMI_READY };

/* Message kinds. Bodies: docs/protocol.md. */
enum gmi_message { GMI_JOIN = 1, GMI_READY_TABLE = 2, GMI_MISSING = 3, GMI_FAILURE = 4, GMI_GOODBYE = 5,
                   GMI_CALL_BACK = 6, GMI_WAITING = 7, GMI_STALLED = 8, GMI_BEAT = 9, GMI_LOOK = 10,
                   GMI_SEEN = 11, GMI_NOTE = 12, GMI_KNOCK = 13 };

/* With which ranks a rank shares memory; on the wire. */
enum gmi_sharing { GMI_SHARES_NEVER = 0, GMI_SHARES_WHERE_IT_CAN = 1, GMI_SHARES_WITH_ALL = 2 };

/* What a rank is doing, as its heartbeats tell. */
enum gmi_doing { GMI_IN_USER_CODE, GMI_IN_A_CALL, GMI_WAITS_FOR };

struct gmi_progress {
    enum gmi_doing  doing;
    uint64_t        entered_seq, done_seq; /* of the root's collectives: the last that was begun, and that succeeded */
    int64_t         since_ns;              /* by this rank's clock; 0: not known */
    int64_t         told_ns;               /* when that was heard */
    struct gmi_wait wait;                  /* GMI_WAITS_FOR: in which call, and for whom */
};

/* How long it has been silent, and what that may mean. */
struct gmi_pulse {
    int64_t heard_ns;     /* the last byte of it ... */
    bool    is_suspected; /* ... was too long ago, and since then: */
    char    seen_state;   /* what an observer on its host sees (base/process.h) */
    int     seen_by;
    int64_t look_ns, tell_ns; /* look again, and say so again, not before */
};

struct gmi_member {
    struct gmi_courier courier; /* the middle: to this rank. Others: only that of the middle. */
    struct gmi_buffer  held;    /* for it, until it is connected */
    bool               has_joined;      /* at the middle: the first one or the present one */
    bool               has_left;        /* said goodbye ... */
    uint64_t           left_after_seq;  /* ... after so many collectives */
    char               address[GMI_ADDRESS_TEXT_BYTES]; /* where it listens */
    uint64_t           host_id; /* net/host.h; our own is set before joining, the others' are known when READY */
    enum gmi_sharing   sharing;
    int                n_cores; /* that it may run on; 0: one of several, to which it is bound */
    struct gmi_process process; /* like host_id */
    struct gmi_pulse   pulse;
    struct gmi_progress progress; /* known to the middle only, and one's own */
};

struct gmi_control {
    int                   rank, n_ranks;
    int                   hub; /* who is in the middle */
    uint32_t              group_id;
    uint32_t              epoch;
    const char           *fingerprint;
    const struct gmi_log *log;
    enum gmi_phase        phase;
    uint64_t              session; /* drawn by rank 0; tells this run from others of the same job */
    struct gmi_member    *members;
    struct gmi_address    meeting; /* where we reach the store: see gmi_address_localize */
    struct gmi_profile    profile; /* rank 0's, for all: by it algorithms are chosen */
    int                   n_left;
    bool                  has_failure;
    struct gmi_failure    failure;
    bool                  is_widely_known; /* ... as who left the middle has told it to all; else those who move must be told */
    bool                  has_pending; /* a failure that is made known only then, unless another comes first */
    struct gmi_failure    pending;
    int64_t               pending_until_ns;
    char                  missing[160]; /* the ranks that had not joined, by rank 0's last word */
    int64_t               next_missing_ns;
    bool                  is_leaving;
    bool                  was_hub;   /* ... and was in the middle then */
    bool                  is_moving; /* the middle has left, and we are not connected to the next one yet ... */
    int64_t               move_ns;   /* ... which is to be called from then on */

    /* Called when phase, failure or goodbyes change. */
    void (*notify)(void *user);
    void *notify_user;
    /* Called when the lower rank `peer` asks to be called, for a lane (one of n_lanes) of a communicator. */
    void (*call_back)(void *notify_user, int peer, uint32_t group_id, int lane);
    int              n_lanes;
    /* Called when the higher rank `peer` says that it calls us and gets no answer. */
    void (*knocked)(void *notify_user, int peer);
    struct gmi_waits waits; /* the middle */

    /* Heartbeats. `observe` fills in what this rank is doing, but for its waits. */
    void      (*observe)(void *notify_user, struct gmi_progress *own);
    atomic_int own_limit_ms; /* the stall limit, if the caller has set one: it rules. 0: none; -1: not set */
    int64_t    stepped_ns, next_beat_ns;
    int64_t    next_warning_ns;
};

gm_status gmi_control_init(struct gmi_control *c, int rank, int n_ranks, const char *fingerprint,
                           const struct gmi_log *log, void (*notify)(void *), void *notify_user);
void gmi_control_fini(struct gmi_control *c);

/* Rank 0: may this rank open a control connection? See gmi_judge_fn. */
gm_status gmi_control_judge(struct gmi_control *c, const struct gmi_hello *peer, char *why, size_t why_bytes);
/* Rank 0: the connection of `rank` after its handshake. */
void gmi_control_admit(struct gmi_control *c, int rank, struct gmi_stream stream);
/* Others: the connection to rank 0 after its handshake; joins with our listening address. */
void gmi_control_attach(struct gmi_control *c, struct gmi_stream stream, const char *own_address);
/* Rank 0: its own listening address. */
void gmi_control_join_self(struct gmi_control *c, const char *own_address);

/* The connection to the new middle. */
void gmi_control_moved(struct gmi_control *c, struct gmi_stream stream);
/* There is none to be had, and everybody ends. */
void gmi_control_cannot_move(struct gmi_control *c);

/* Records a failure unless there is one, and has it told to the others. */
void gmi_control_fail(struct gmi_control *c, const struct gmi_failure *failure);
/* The same, but in a moment: what struck us may have an earlier cause, of which we shall hear. */
void gmi_control_fail_soon(struct gmi_control *c, const struct gmi_failure *failure);

/* Says goodbye after `seq` collectives; the ends of connections are fine from now on. */
void gmi_control_leave(struct gmi_control *c, uint64_t seq);
/* Has everybody else closed his end, so that nothing of ours can be lost? */
bool gmi_control_is_drained(const struct gmi_control *c);

/* Asks a higher rank to call us, for a lane of a communicator. */
void gmi_control_ask_to_call(struct gmi_control *c, int peer, uint32_t group_id, int lane);

/* Tells a lower rank that we call it and get no answer. */
void gmi_control_knock(struct gmi_control *c, int peer);
/* Can somebody join only by calling us now? */
bool gmi_control_awaits_callers(const struct gmi_control *c);

/* Tells rank 0 that we have waited for a while in this call, for `peer` (-1: nobody), which has entered it or not.
 * Two ranks that wait in calls of one number that differ would wait for ever; mostly they find out by the
 * descriptors on their links, but the algorithms of the two calls may have no link in common. */
void gmi_control_tell_waiting(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered);

/* The stall limit has passed in our call. Rank 0, which knows who waits for whom, fails everybody with the
 * rank at the end of the chain. False: it is gone, nobody will. */
bool gmi_control_tell_stalled(struct gmi_control *c, const struct gmi_descriptor *call, int limit_ms);

/* A rank that has left and so can never take part in collective `seq`; -1: none. */
int gmi_control_absentee(const struct gmi_control *c, uint64_t seq);

/* Are this rank and `peer` on one host, as far as is known? How many ranks are, ourselves counted. Once READY. */
bool gmi_control_is_local(const struct gmi_control *c, int peer);
int  gmi_control_local_ranks(const struct gmi_control *c);

/* Are this rank and `peer` on one host, and both willing to share memory? The same answer on both. */
bool gmi_control_may_share(const struct gmi_control *c, int peer);

/* "1, 3" into `text`: who has not joined, as far as this rank knows. */
void gmi_control_missing(const struct gmi_control *c, char *text, size_t text_bytes);

/* Is the silence of somebody suspicious, so that it is too early to blame another one? */
bool gmi_control_is_in_doubt(const struct gmi_control *c);

/* What a rank is doing, as far as this one knows; a clause. Returns `text`. */
const char *gmi_control_doing(struct gmi_control *c, int rank, char *text, size_t text_bytes);

void gmi_control_watch(struct gmi_control *c, struct gmi_poller *poller);
void gmi_control_step(struct gmi_control *c);
/* When it must be stepped though no connection is ready. */
int64_t gmi_control_next_ns(const struct gmi_control *c);

#endif
