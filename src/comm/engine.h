/* engine.h - the queue of collectives and the one machine that runs them.
 *
 *     start: queued -> running -> done            one runs at a time, in the order in which they were started,
 *                                                 which is the same on all ranks
 *
 * Two threads can move the machine: the caller's while it waits for something, the service thread otherwise.
 *
 *     1. Whoever holds `lock` moves it. Moving never blocks; so the lock is never held for long, except
 *        by a caller that sleeps inside a wait, and then the service thread leaves the machine alone.
 *     2. `n_callers_waiting` is raised before the caller takes the lock: the service thread neither moves the
 *        machine nor watches its links then. When the caller lets go and something is left, it wakes the
 *        service thread.
 *     3. The queue and the pool of works are under the communicator's lock. A work's status is written last
 *        and once, and read without a lock.
 *
 * No memory is taken on the way, except when a collective needs more scratch than any before it. */
#ifndef GMI_ENGINE_H
#define GMI_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "coll/algo.h"
#include "net/poller.h"

enum { GMI_MAX_WORKS = 128 }; /* in flight, per communicator */

struct gm_work {
    struct gm_comm        *comm;
    struct gm_work        *next; /* in the queue, or in the pool */
    struct gmi_request     request;
    const struct gmi_algo *algo;
    uint64_t               seq;
    atomic_int             status; /* gm_status; GM_AGAIN until it is done */
    bool                   is_released; /* the caller does not want to hear of it any more */
    gm_error               error;
};

/* A communicator has two: one for collectives, and one for messages, which keep no order with collectives. */
enum gmi_lane { GMI_LANE_DATA, GMI_LANE_MESSAGES, GMI_LANES };

/* The last choice of an algorithm: of like calls, one after another, only the first one is weighed. */
struct gmi_last_choice {
    const struct gmi_algo *algo; /* NULL: none yet */
    size_t                 size_bytes;
    enum gmi_view          needs;
};

struct gmi_engine {
    struct gm_comm *comm;
    enum gmi_lane   lane;
    pthread_mutex_t lock;
    atomic_int      n_callers_waiting;
    atomic_int      n_unfinished; /* queued or running */

    /* The caller's thread only. */
    struct gmi_last_choice choices[GM_COLLECTIVE_END];

    /* Under the communicator's lock. */
    struct gm_work *first, *last; /* the queue, without the one that runs */
    struct gm_work *pool, *free_works;

    /* Under `lock`. */
    struct gm_work   *running;
    bool              has_begun; /* op belongs to `running` */
    struct gmi_op     op;
    struct gmi_poller poller;
    struct gm_accumulator *exact; /* of exact sums whose caller has none; NULL: none yet */
    uint8_t          *scratch, *work;
    size_t            work_bytes;
    struct gmi_descriptor done_call;  /* the last that succeeded */
    uint64_t          still_bytes;    /* op.moved_bytes when it last grew ... */
    int64_t           still_since_ns; /* ... and when that was */
    int64_t           minded_ns;      /* when that was last looked at */
    int64_t           look_at_ns;     /* links are looked at then, if it is still all the time */
    bool              is_told;        /* rank 0 knows in which call we wait, and for whom: */
    int               told_peer;
    int64_t           answer_at_ns;   /* we have asked rank 0 who is to blame for a stall; 0: not */
    bool              will_answer;
    int64_t           limit_at_ns;    /* the caller's limit for the whole call; GMI_NEVER: none */
    int64_t           blame_at_ns;    /* a link broke: whom to blame is decided then, at the latest; 0: none did */
};

gm_status gmi_engine_init(struct gmi_engine *e, struct gm_comm *comm, enum gmi_lane lane); /* GM_ERR_NOMEM */
void      gmi_engine_fini(struct gmi_engine *e);

/* The service thread does not touch the machine any more; what is unfinished is given up. */
void gmi_engine_halt(struct gmi_engine *e);

/* One call from its start to its end, on the caller's thread. The error goes to comm->error. */
gm_status gmi_engine_run(struct gmi_engine *e, const struct gmi_request *request);

/* Queues a collective. GM_ERR_STATE: too many are in flight. */
gm_status gmi_engine_start(struct gmi_engine *e, const struct gmi_request *request, struct gm_work **work);

/* Moves the machine until `work` is done or the deadline has passed. */
void gmi_engine_wait(struct gmi_engine *e, struct gm_work *work, int64_t deadline_ns);

/* The caller is done with it; one that is unfinished goes on unattended. */
void gmi_engine_release(struct gmi_engine *e, struct gm_work *work);

/* For the service thread, without the communicator's lock: moves what can move; adds what it waits for to
 * the poller; when it must be moved again though no descriptor says so. */
void    gmi_engine_step(struct gmi_engine *e);
void    gmi_engine_watch(struct gmi_engine *e, struct gmi_poller *poller);
int64_t gmi_engine_next_ns(struct gmi_engine *e);

#endif
