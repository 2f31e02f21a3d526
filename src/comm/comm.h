/* comm.h - a communicator: the group, its links, its memory and its two threads.
 *
 *     caller's thread                              service thread
 *       collectives that it waits for                control connections, accepting, (rank 0) the store,
 *       sleeps in one place: engine.c                collectives that nobody waits for
 *                                                    sleeps in one place: its loop in service.c
 *
 * Whichever of them holds the engine's lock moves collectives (comm/engine.h).
 * What both touch is in the part under `lock`. The service thread holds the lock while it steps and lets go
 * of it while it sleeps; stepping never blocks. Each side wakes the other through an event descriptor. */
#ifndef GMI_COMM_H
#define GMI_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/log.h"
#include "coll/cost.h"
#include "coll/op.h"
#include "coll/profile.h"
#include "comm/control.h"
#include "comm/engine.h"
#include "comm/placement.h"
#include "net/poller.h"
#include "rendezvous/acceptor.h"
#include "rendezvous/call.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server.h"
#include "transport/link.h"

/* More ranks than that are a slip of the pen, and would only cost memory. */
enum { GMI_NAME_BYTES = 32, GMI_MAX_RANKS = 65536 };

struct gmi_share;

/* The way to one peer on one lane: a port, and what is done to connect it. Under the root's lock, but for is_seen. */
struct gmi_line {
    struct gm_comm   *comm;
    enum gmi_lane     lane;
    int               peer;
    struct gmi_port  *port;
    struct gmi_call  *call;    /* we are calling the peer; else NULL */
    struct gmi_share *share;   /* memory is being passed over a new connection; else NULL */
    int64_t           knock_ns; /* when the peer is told that we call it in vain */
    bool              is_seen; /* that it is connected, by the caller's thread */
    uint64_t          seen_sent, seen_resent; /* packets, when the link was last looked at ... */
    int64_t           say_lossy_ns;           /* ... and not before then, it is said again that it loses some */
};

struct gm_comm {
    /* A split has no thread and no control connections of its own: it uses those of the communicator from which it
     * was made in the end. What is marked (root) is used there only. A split's failure is the failure of all. */
    struct gm_comm *root;         /* itself, if it was not made by a split */
    struct gm_comm *next;         /* the other communicators of this root; under both of its locks */
    int            *world_ranks;  /* of a split: its ranks' numbers in the root; else NULL: the same */
    int             n_users;      /* (root) itself, until it is destroyed, and its splits; under the lock */
    bool            is_destroyed; /* (root) only the splits need it still */

    /* Fixed at creation. */
    int                         rank, n_ranks;
    uint32_t                    group_id;
    char                        job_id[GMI_JOB_ID_BYTES], group_name[GMI_NAME_BYTES], algorithm[GMI_NAME_BYTES];
    const struct gmi_transport *transport;
    atomic_int                  stall_limit_ms; /* the caller may change them */
    atomic_int                  call_limit_ms;
    const struct gmi_wire      *wire; /* how f32 sums travel; NULL: as they are */
    struct gmi_costs            costs; /* by which algorithms are chosen */
    char                        site[GMI_SITE_TEXT_BYTES]; /* of the costs; empty: one rank */
    struct gmi_log              log;
    struct gmi_secret           secret; /* (root) */
    bool                        is_encrypted, is_checked; /* with checksums */
    char                       *fingerprint;
    pid_t                       owner_pid; /* a process forked from it has no service thread: not its member */
    const uint32_t             *owner_mark; /* (root) tells that too, without a system call; NULL: there is none */
    struct gmi_trace           *trace;  /* NULL: none */
    int64_t                     try_ns; /* how long a collective tries before it sleeps; 0: not at all */

    /* The caller's thread only. */
    struct gmi_group  groups[GMI_LANES]; /* their ports' links are set under the lock */
    struct gmi_placement placement;
    uint64_t          seq;   /* of the last collective that was started */
    gm_error          error;
    struct gmi_store  store;    /* holds our claim on the rank */
    struct gmi_user_op user_ops[GM_REDOP_USER_END - GM_REDOP_USER]; /* fn is NULL: free */

    struct gmi_line  *lines[GMI_LANES];   /* by rank; those of messages are made when first needed: NULL */
    struct gmi_engine engines[GMI_LANES]; /* what moves collectives, and messages */

    atomic_ullong entered_seq; /* of the last collective that was begun, or is about to be */
    atomic_bool is_in_call; /* some thread is inside a collective */
    atomic_bool is_alarmed; /* there has been a failure or a goodbye: look under the lock */

    /* Under the root's lock. */
    pthread_mutex_t          lock; /* (root) */
    pthread_mutex_t          roster_lock; /* (root) held while the service thread moves the engines; taken before `lock` */
    struct gmi_control       control;
    gm_traffic               traffic[GM_COLLECTIVE_END + 1];
    uint64_t                 done_seq; /* of the last collective that succeeded */
    int64_t                  done_ns; /* (root) when a call ended last, in any of its communicators */
    gm_error                 failure_record; /* of the first call that met the failure */
    struct gmi_acceptor      acceptor;
    bool                     is_accepting;
    int64_t                  knocked_ns; /* when a rank last told us that it calls in vain */
    char                     name[16]; /* "rank 3", of the acceptor */
    struct gmi_store_server *store_server; /* rank 0 of a job without a launcher */
    int                      status_fd; /* (root) for `gradmesh status`; -1: none */
    int64_t                  next_fare_ns; /* (root) when the links are looked at */
    bool                     has_told_of_far; /* (root) that one link is much longer than another */
    int                      service_wake_fd;
    int                      caller_wake_fd; /* something changed; drained by gmi_caller_wait */
    int                      alarm_fd;       /* readable for good once there is a failure; for a while
                                                after a goodbye */
    struct gmi_call         *move_call; /* (root) to the new middle of the control connections; else NULL */
    int                      move_to;
    int                      n_calls, n_shares; /* (root) of all its lines */
    bool                     has_said_not_shared;
    bool                     is_stopping;
    bool                     has_service;
    pthread_t                service;
    struct gmi_poller        service_poller; /* (root) that thread's alone; here, so that a forked process can free its copy */
};

/* ---- service.c: the service thread ------------------------------------------------------------- */
gm_status gmi_service_start(struct gm_comm *comm, gm_error *error);
void      gmi_service_stop(struct gm_comm *comm);
void      gmi_service_wake(struct gm_comm *comm);
/* Our hello on a channel. */
struct gmi_hello gmi_comm_hello(const struct gm_comm *comm, enum gmi_channel channel, int target);
/* The communicator of this root with this number; NULL: none (yet). With the lock held. */
struct gm_comm *gmi_comm_find(struct gm_comm *root, uint32_t group_id);
/* The event descriptors of a communicator. */
gm_status gmi_caller_start(struct gm_comm *comm, gm_error *error);
void      gmi_caller_stop(struct gm_comm *comm);
/* Starts accepting connections from other ranks. With the lock held. */
gm_status gmi_service_listen(struct gm_comm *comm, const struct gmi_address *address, gm_error *error);
/* Wakes the caller's thread out of any wait. Any thread. */
void gmi_caller_wake(struct gm_comm *comm);
/* Sleeps until woken or the deadline; for waits of the caller's thread outside of collectives. */
void gmi_caller_wait(struct gm_comm *comm, int64_t deadline_ns);
/* Makes the alarm quiet again, after a goodbye that did not matter. With the lock held. */
void gmi_alarm_quiet(struct gm_comm *comm);
/* The control's knocked: a rank calls us in vain. */
void gmi_service_knocked(void *comm, int peer);
/* The control's notify: alarms and wakes the caller's thread. */
void gmi_service_notify(void *comm);

/* ---- move.c: calling the new middle of the control connections; with the lock held ------------------ */
void    gmi_move_step(struct gm_comm *root);
void    gmi_move_watch(const struct gm_comm *root, struct gmi_poller *poller);
int64_t gmi_move_next_ns(const struct gm_comm *root);
void    gmi_move_fini(struct gm_comm *root);

/* ---- fare.c: what the kernel knows of the links; with the lock held --------------------------------- */
void gmi_fare_step(struct gm_comm *root);
void gmi_fare_tell(struct gm_comm *root); /* at its end */

/* ---- status.c: answering who asks on this host ----------------------------------------------------- */
/* A rank that cannot be asked is as good as any other: no failure. */
void gmi_status_start(struct gm_comm *root);
/* With the lock held. */
void gmi_status_step(struct gm_comm *root);

/* ---- lines.c: from wanting a link to a connection -------------------------------------------------- */
/* The lines of a lane, made now if there are none. NULL: no memory. With the lock held. */
struct gmi_line *gmi_comm_lines(struct gm_comm *comm, enum gmi_lane lane);
/* Asks for a link, unless there is one or it is on its way. Of two ranks the higher calls the lower, who waits.
 * With the lock held; wake the service thread then. */
void gmi_line_want(struct gmi_line *line);
/* The control's call_back: the world rank `peer` waits for our call. */
void gmi_line_call_back(void *root, int peer, uint32_t group_id, int lane);
/* Why a wanted link is not there yet, a clause. With the lock held. */
void gmi_line_trouble(const struct gmi_line *line, char *text, size_t text_bytes);
/* May a rank connect to us on this channel (see gmi_judge_fn), and here it is. With the lock held. */
gm_status gmi_line_judge(struct gm_comm *root, const struct gmi_hello *peer, char *why, size_t why_bytes);
void      gmi_line_admit(struct gm_comm *root, int fd, const struct gmi_handshake *finished);
/* For the service thread, with the lock held. */
void    gmi_lines_step(struct gm_comm *root);
void    gmi_lines_watch(struct gm_comm *root, struct gmi_poller *poller);
int64_t gmi_lines_next_ns(struct gm_comm *root);
/* Ends what is under way and closes all links of a communicator. */
void    gmi_lines_fini(struct gm_comm *comm);

/* ---- share.c: from connections to links ----------------------------------------------------------- */
/* A connection after its handshake, which took so many bytes. */
struct gmi_connected {
    int      fd;
    bool     is_caller;
    uint64_t sent_bytes, recv_bytes;
    uint8_t  key[GMI_LINK_KEY_BYTES]; /* of its own */
};
/* Takes it over. Now or later it becomes the port's link. All of these with the lock held. */
void gmi_share_connected(struct gmi_line *line, const struct gmi_connected *connected);
bool gmi_share_is_securing(const struct gmi_line *line); /* or else passing memory */
void gmi_share_end(struct gmi_line *line); /* also if there is none */
/* While line->share is not NULL: */
void    gmi_share_step(struct gmi_line *line);
void    gmi_share_watch(const struct gmi_line *line, struct gmi_poller *poller);
int64_t gmi_share_next_ns(const struct gmi_line *line);

/* ---- create.c: from options to connected links -------------------------------------------------- */
gm_status gmi_comm_connect(struct gm_comm *comm, const gm_comm_options *options, gm_error *error);

/* ---- comm.c -------------------------------------------------------------------------------------- */
/* Is this the process that created it? A forked child shares the sockets, and must not touch them. */
bool gmi_comm_is_ours(const struct gm_comm *comm);
/* What a new communicator needs and tear_down frees, besides what is the root's. */
gm_status gmi_comm_set_up(struct gm_comm *comm, int rank, int n_ranks, size_t n_trace_events, gm_error *error);
/* Notes which of its ranks share a host, once the root is READY. GM_ERR_NOMEM. */
gm_status gmi_comm_lay_out(struct gm_comm *comm);
void      gmi_comm_tear_down(struct gm_comm *comm);

/* The number of one of its ranks in the root: that is what others are told, and what errors show. */
static inline int gmi_world_rank(const struct gm_comm *comm, int rank)
{
    return comm->world_ranks != NULL && rank >= 0 ? comm->world_ranks[rank] : rank;
}
static inline int gmi_line_peer(const struct gmi_line *line) { return gmi_world_rank(line->comm, line->peer); }

/* ---- links.c: waiting for links --------------------------------------------------------- */
/* Waits until the links that an algorithm needs are there. The failures of a collective. */
gm_status gmi_comm_need_links(struct gm_comm *comm, const struct gmi_algo *algo, const struct gmi_request *request);

/* ---- costs.c: what the choice of algorithms depends on --------------------------------------------- */
/* Sets comm->costs from who is where; once the ranks of the root know each other. */
gm_status gmi_comm_weigh(struct gm_comm *comm);
/* Constants from a file, over what *profile holds. GM_ERR_ARG: *error says what is wrong with it. */
gm_status gmi_profile_load(struct gmi_profile *profile, const char *path, gm_error *error);

/* ---- redop.c: the caller's own reductions -------------------------------------------------------- */
/* That of a number; fn is NULL if there is none. */
struct gmi_user_op gmi_comm_user_op(const struct gm_comm *comm, int redop);

/* ---- report.c: failures and error records --------------------------------------------------------- */
/* Is a call of this communicator under way? */
bool gmi_comm_is_busy(const struct gm_comm *comm);
/* The control's observe: what this rank is doing. With the lock held. */
void gmi_comm_observe(void *root, struct gmi_progress *own);
/* Makes the failure known to all, unless there is one already. Any thread. */
void gmi_comm_fail(struct gm_comm *comm, const struct gmi_failure *failure);
bool gmi_comm_has_failed(struct gm_comm *comm, struct gmi_failure *failure);
/* Fills a record from the failure of the communicator, as it struck `op` (NULL: before one). Its status. */
gm_status gmi_comm_report_failure(struct gm_comm *comm, const struct gmi_op *op, gm_error *error);

#endif
