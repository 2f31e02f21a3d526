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
#include "coll/op.h"
#include "comm/control.h"
#include "comm/engine.h"
#include "net/poller.h"
#include "rendezvous/acceptor.h"
#include "rendezvous/call.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server.h"
#include "transport/link.h"

/* More ranks than that are a slip of the pen, and would only cost memory. */
enum { GMI_NAME_BYTES = 32, GMI_MAX_RANKS = 65536 };

struct gmi_share;

struct gm_comm {
    /* Fixed at creation. */
    int                         rank, n_ranks;
    uint32_t                    group_id;
    char                        job_id[GMI_JOB_ID_BYTES], group_name[GMI_NAME_BYTES], algorithm[GMI_NAME_BYTES];
    const struct gmi_transport *transport;
    int                         stall_limit_ms;
    const struct gmi_wire      *wire; /* how f32 sums travel; NULL: as they are */
    struct gmi_log              log;
    char                       *fingerprint;
    pid_t                       owner_pid; /* a process forked from it has no service thread: not its member */
    int64_t                     try_ns; /* how long a collective tries before it sleeps; 0: not at all */

    /* The caller's thread only. */
    struct gmi_group  group; /* its ports' links are set under the lock */
    uint64_t          seq;   /* of the last collective that was started */
    gm_error          error;
    struct gmi_store  store;    /* holds our claim on the rank */
    bool             *has_link; /* by rank: seen by this thread */
    struct gmi_user_op user_ops[GM_REDOP_USER_END - GM_REDOP_USER]; /* fn is NULL: free */

    struct gmi_engine engine; /* what moves collectives */

    atomic_bool is_in_call; /* some thread is inside a collective */
    atomic_bool is_alarmed; /* there has been a failure or a goodbye: look under the lock */

    /* Under the lock. */
    pthread_mutex_t          lock;
    struct gmi_control       control;
    gm_traffic               traffic[GM_COLLECTIVE_END + 1];
    uint64_t                 done_seq; /* of the last collective that succeeded */
    gm_error                 failure_record; /* of the first call that met the failure */
    struct gmi_acceptor      acceptor;
    bool                     is_accepting;
    char                     name[16]; /* "rank 3", of the acceptor */
    struct gmi_store_server *store_server; /* rank 0 of a job without a launcher */
    int                      service_wake_fd;
    int                      caller_wake_fd; /* something changed; drained by gmi_caller_wait */
    int                      alarm_fd;       /* readable for good once there is a failure; for a while
                                                after a goodbye */
    struct gmi_call        **calls; /* by rank: those that we are calling for a data link; else NULL */
    int                      n_calls;
    struct gmi_share       **shares; /* by rank: connections over which memory is being passed; else NULL */
    int                      n_shares;
    bool                     has_said_not_shared;
    bool                     is_stopping;
    bool                     has_service;
    pthread_t                service;
};

/* ---- service.c: the service thread ------------------------------------------------------------- */
gm_status gmi_service_start(struct gm_comm *comm, gm_error *error);
void      gmi_service_stop(struct gm_comm *comm);
void      gmi_service_wake(struct gm_comm *comm);
/* Asks for a data link to `peer`, unless there is one or it is on its way. Of two ranks the higher calls
 * the lower, who waits. With the lock held; wake the service thread then. */
void gmi_service_want_link(struct gm_comm *comm, int peer);
/* The control's call_back. */
void gmi_service_call_back(void *comm, int peer);
/* Why a wanted link is not there yet, a clause. With the lock held. */
void gmi_service_link_trouble(const struct gm_comm *comm, int peer, char *text, size_t text_bytes);
/* Our hello on a channel. */
struct gmi_hello gmi_comm_hello(const struct gm_comm *comm, enum gmi_channel channel, int target);
/* Starts accepting connections from other ranks. With the lock held. */
gm_status gmi_service_listen(struct gm_comm *comm, const struct gmi_address *address, gm_error *error);
/* Wakes the caller's thread out of any wait. Any thread. */
void gmi_caller_wake(struct gm_comm *comm);
/* Sleeps until woken or the deadline; for waits of the caller's thread outside of collectives. */
void gmi_caller_wait(struct gm_comm *comm, int64_t deadline_ns);
/* Makes the alarm quiet again, after a goodbye that did not matter. With the lock held. */
void gmi_alarm_quiet(struct gm_comm *comm);
/* The control's notify: alarms and wakes the caller's thread. */
void gmi_service_notify(void *comm);

/* ---- share.c: from connections to links ----------------------------------------------------------- */
/* A connection on the data channel whose handshake took so many bytes, from either side; takes it over. Now or
 * later it becomes the port's link. All of these with the lock held. */
void    gmi_share_connected(struct gm_comm *comm, int rank, int fd, bool is_caller, uint64_t sent_bytes, uint64_t recv_bytes);
void    gmi_share_step(struct gm_comm *comm);
void    gmi_share_watch(const struct gm_comm *comm, struct gmi_poller *poller);
int64_t gmi_share_next_ns(const struct gm_comm *comm);
void    gmi_share_end_all(struct gm_comm *comm);

/* ---- create.c: from options to connected links -------------------------------------------------- */
gm_status gmi_comm_connect(struct gm_comm *comm, const gm_comm_options *options, gm_error *error);

/* ---- comm.c -------------------------------------------------------------------------------------- */
/* Is this the process that created it? A forked child shares the sockets, and must not touch them. */
bool gmi_comm_is_ours(const struct gm_comm *comm);

/* ---- links.c: data links beyond the ring --------------------------------------------------------- */
/* Waits until the links that an algorithm needs are there. The failures of a collective. */
gm_status gmi_comm_need_links(struct gm_comm *comm, const struct gmi_algo *algo, const struct gmi_request *request);

/* ---- redop.c: the caller's own reductions -------------------------------------------------------- */
/* That of a number; fn is NULL if there is none. */
struct gmi_user_op gmi_comm_user_op(const struct gm_comm *comm, int redop);

/* ---- report.c: failures and error records --------------------------------------------------------- */
/* Makes the failure known to all, unless there is one already. Any thread. */
void gmi_comm_fail(struct gm_comm *comm, const struct gmi_failure *failure);
bool gmi_comm_has_failed(struct gm_comm *comm, struct gmi_failure *failure);
/* Fills a record from the failure of the communicator, as it struck `op` (NULL: before one). Its status. */
gm_status gmi_comm_report_failure(struct gm_comm *comm, const struct gmi_op *op, gm_error *error);

#endif
