/* comm.h - a communicator: the group, its links, its memory and its two threads.
 *
 *     caller's thread                              service thread
 *       collectives: owns ports, op, scratch         control connections, accepting, (rank 0) the store
 *       sleeps in one place: gmi_comm_run            sleeps in one place: its loop in service.c
 *
 * What both touch is in the part under `lock`. The service thread holds the lock while it steps and lets go
 * of it while it sleeps; stepping never blocks. Each side wakes the other through an event descriptor. */
#ifndef GMI_COMM_H
#define GMI_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "coll/op.h"
#include "comm/control.h"
#include "net/poller.h"
#include "rendezvous/acceptor.h"
#include "rendezvous/call.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server.h"
#include "transport/link.h"

enum { GMI_NAME_BYTES = 32 };

struct gm_comm {
    /* Fixed at creation. */
    int                         rank, n_ranks;
    uint32_t                    group_id;
    char                        job_id[GMI_JOB_ID_BYTES], group_name[GMI_NAME_BYTES], algorithm[GMI_NAME_BYTES];
    const struct gmi_transport *transport;
    int                         stall_limit_ms;
    struct gmi_log              log;
    char                       *fingerprint;
    int64_t                     try_ns; /* how long a collective tries before it sleeps; 0: not at all */

    /* The caller's thread only. */
    struct gmi_group  group;
    struct gmi_op     op;
    uint8_t          *scratch, *work;
    size_t            work_bytes;
    uint64_t          seq;      /* of the last collective that was started */
    uint64_t          done_seq; /* of the last that succeeded ... */
    struct gmi_descriptor done_call; /* ... by other ranks' help */
    struct gmi_poller poller;
    gm_error          error, failure_record; /* of the last mistake; of the failure, once a call has met it */
    gm_traffic        traffic[GM_COLLECTIVE_END + 1];
    bool             *has_link; /* by rank: seen by this thread */
    struct gmi_store  store; /* holds our claim on the rank */

    atomic_bool is_in_call; /* some thread is inside a collective */
    atomic_bool is_alarmed; /* there has been a failure or a goodbye: look under the lock */

    /* Under the lock. */
    pthread_mutex_t          lock;
    struct gmi_control       control;
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

/* ---- create.c: from options to connected links -------------------------------------------------- */
gm_status gmi_comm_connect(struct gm_comm *comm, const gm_comm_options *options, gm_error *error);

/* ---- links.c: data links beyond the ring --------------------------------------------------------- */
/* Waits until the links that an algorithm needs are there. The failures of a collective. */
gm_status gmi_comm_need_links(struct gm_comm *comm, const struct gmi_algo *algo, int root);

/* ---- run.c: one collective to its end, and its error record ------------------------------------- */
gm_status gmi_comm_run(struct gm_comm *comm);
/* Fills comm->error from the failure of the communicator; returns its status. */
gm_status gmi_comm_report_failure(struct gm_comm *comm, bool is_in_op);
/* Makes the failure known to all, unless there is one already. Any thread. */
void gmi_comm_fail(struct gm_comm *comm, const struct gmi_failure *failure);

#endif
