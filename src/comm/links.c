/* links.c - data links to ranks that are no neighbours in the ring, made when an algorithm first needs them.
 *
 * Of two ranks the higher one calls the lower. The lower one, when it needs the link, asks the higher one
 * to call, by a control message that rank 0 passes on; the higher one's service thread does so whatever its
 * caller's thread is doing. So a rank that calls something else than the others still gets its links, and with
 * the first descriptor on them everybody learns of the mismatch. */
#include <stdio.h>

#include "base/clock.h"
#include "coll/algo.h"
#include "comm/comm.h"

struct wish {
    struct gm_comm *comm;
    int             n_missing, first_missing;
};

static void count_missing(void *user, int peer)
{
    struct wish *w = user;
    if (w->comm->has_link[peer]) return;
    if (w->n_missing++ == 0) w->first_missing = peer;
}

static void ask_for(void *user, int peer)
{
    struct wish *w = user;
    if (w->comm->has_link[peer]) return;
    if (peer < w->comm->rank) {
        gmi_service_want_link(w->comm, peer);
    } else if (w->comm->group.ports[peer].link == NULL) {
        gmi_control_ask_to_call(&w->comm->control, peer);
    }
}

static void note_present(void *user, int peer)
{
    struct wish *w = user;
    w->comm->has_link[peer] = w->comm->group.ports[peer].link != NULL;
}

static struct wish look(struct gm_comm *comm, const struct gmi_algo *algo, int root)
{
    struct wish w = { .comm = comm, .first_missing = -1 };
    algo->peers(comm->n_ranks, comm->rank, root, count_missing, &w);
    return w;
}

static void give_up(struct gm_comm *comm, int peer)
{
    struct gmi_failure f = { .status = GM_ERR_TIMEOUT, .culprit = peer, .reporter = comm->rank, .op_seq = comm->seq + 1 };
    char               reason[256];
    pthread_mutex_lock(&comm->lock);
    gmi_service_link_trouble(comm, peer, reason, sizeof reason);
    pthread_mutex_unlock(&comm->lock);
    snprintf(f.cause, sizeof f.cause, "no connection between rank %d and rank %d within %d ms; %.180s", comm->rank, peer,
             comm->stall_limit_ms, reason);
    gmi_comm_fail(comm, &f);
}

/* The record names the call, though it has not begun. */
static gm_status report(struct gm_comm *comm, const struct gmi_algo *algo, const struct gmi_request *request)
{
    struct gmi_op op = { .group = &comm->group };
    gmi_op_describe(&op, algo, request, comm->seq + 1);
    return gmi_comm_report_failure(comm, &op, &comm->error);
}

gm_status gmi_comm_need_links(struct gm_comm *comm, const struct gmi_algo *algo, const struct gmi_request *request)
{
    int root = request->root;
    if (algo->peers == NULL) return GM_OK;
    struct wish w = look(comm, algo, root);
    if (w.n_missing == 0) return GM_OK;
    int64_t deadline_ns = gmi_deadline_after_ms(comm->stall_limit_ms);
    pthread_mutex_lock(&comm->lock);
    algo->peers(comm->n_ranks, comm->rank, root, ask_for, &w);
    pthread_mutex_unlock(&comm->lock);
    gmi_service_wake(comm);
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        bool has_failure = comm->control.has_failure;
        int  absentee = gmi_control_absentee(&comm->control, comm->seq + 1);
        algo->peers(comm->n_ranks, comm->rank, root, note_present, &w);
        pthread_mutex_unlock(&comm->lock);
        if (has_failure) return report(comm, algo, request);
        w = look(comm, algo, root);
        if (w.n_missing == 0 || absentee >= 0) return GM_OK; /* the op itself reports who has left */
        if (gmi_deadline_passed(deadline_ns)) {
            give_up(comm, w.first_missing);
        } else {
            gmi_caller_wait(comm, deadline_ns);
        }
    }
}
