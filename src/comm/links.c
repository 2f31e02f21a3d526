/* links.c - waiting for the links that a call needs; they are made when first needed (lines.c). */
#include <stdio.h>

#include "base/clock.h"
#include "coll/algo.h"
#include "comm/comm.h"

/* One call's wait: for its peers on its lane. */
struct wish {
    struct gm_comm           *comm;
    const struct gmi_algo    *algo;
    const struct gmi_request *request;
    struct gmi_line          *lines;
    int                       n_missing, first_missing;
};

/* Calls visit() for each peer that the call needs a link to. */
static void for_each_peer(struct wish *w, void (*visit)(void *wish, int peer))
{
    const struct gmi_message_call *m = &w->request->message;
    if (!gmi_is_message(w->request->which)) {
        struct gmi_shape shape = gmi_request_shape(w->request, &w->comm->groups[GMI_LANE_DATA]);
        (w->algo->peers != NULL ? w->algo->peers : gmi_ring_peers)(&shape, visit, w);
        return;
    }
    if (m->to >= 0) visit(w, m->to);
    if (m->from >= 0) visit(w, m->from);
}

static void count_missing(void *wish, int peer)
{
    struct wish *w = wish;
    if (w->lines[peer].is_seen) return;
    if (w->n_missing++ == 0) w->first_missing = peer;
}

static void ask_for(void *wish, int peer)
{
    struct wish     *w = wish;
    struct gmi_line *line = &w->lines[peer];
    struct gm_comm  *root = w->comm->root;
    int              world_peer = gmi_line_peer(line);
    if (line->is_seen) return;
    if (world_peer < root->rank) {
        gmi_line_want(line);
    } else if (line->port->link == NULL) {
        gmi_control_ask_to_call(&root->control, world_peer, w->comm->group_id, (int)line->lane);
    }
}

static void note_present(void *wish, int peer)
{
    struct wish *w = wish;
    w->lines[peer].is_seen = w->lines[peer].port->link != NULL;
}

static bool is_any_missing(struct wish *w)
{
    w->n_missing = 0;
    for_each_peer(w, count_missing);
    return w->n_missing > 0;
}

static void give_up(struct wish *w, int limit_ms)
{
    struct gm_comm    *comm = w->comm, *root = comm->root;
    int                peer = gmi_world_rank(comm, w->first_missing);
    struct gmi_failure f = {
        .status = GM_ERR_TIMEOUT, .culprit = peer, .reporter = root->rank, .op_seq = comm->seq + 1
    };
    char               reason[256];
    pthread_mutex_lock(&root->lock);
    gmi_line_trouble(&w->lines[w->first_missing], reason, sizeof reason);
    pthread_mutex_unlock(&root->lock);
    snprintf(f.cause, sizeof f.cause,
             "no connection between rank %d and rank %d within %d ms; %.180s", root->rank, peer,
             limit_ms, reason);
    gmi_comm_fail(comm, &f);
}

static void lost(struct wish *w, int peer)
{
    struct gmi_failure f = { .status = GM_ERR_PEER_LOST,
                             .culprit = peer,
                             .reporter = w->comm->root->rank };
    snprintf(f.cause, sizeof f.cause,
             "rank %d (%s) has left the communicator and cannot be reached", peer,
             w->comm->root->control.members[peer].address);
    gmi_comm_fail(w->comm, &f);
}

static void no_memory(struct gm_comm *comm)
{
    struct gmi_failure f = { .status = GM_ERR_NOMEM,
                             .culprit = comm->root->rank,
                             .reporter = comm->root->rank };
    snprintf(f.cause, sizeof f.cause, "rank %d has no memory for its connections",
             comm->root->rank);
    gmi_comm_fail(comm, &f);
}

/* The record names the call, though it has not begun. */
static gm_status report(struct wish *w)
{
    struct gm_comm *comm = w->comm;
    struct gmi_op   op = { .group = &comm->groups[GMI_LANE_DATA] };
    gmi_op_describe(&op, w->algo, w->request,
                    gmi_is_message(w->request->which) ? 0 : comm->seq + 1);
    return gmi_comm_report_failure(comm, &op, &comm->error);
}

/* The shorter of the two limits that there are; 0: there is none. */
static int limit_of(struct gm_comm *comm)
{
    int stall_ms = atomic_load(&comm->stall_limit_ms), call_ms = atomic_load(&comm->call_limit_ms);
    if (stall_ms == 0 || call_ms == 0) return stall_ms + call_ms;
    return stall_ms < call_ms ? stall_ms : call_ms;
}

/* A rank that has left and that the call needs; -1: none. Of a collective of the root the op itself
 * says it better. */
static int who_has_left(struct wish *w, bool *may_go_on)
{
    struct gmi_control *control = &w->comm->root->control;
    bool is_of_root = w->comm->root == w->comm && !gmi_is_message(w->request->which);
    *may_go_on = is_of_root && gmi_control_absentee(control, w->comm->seq + 1) >= 0;
    int missing = w->n_missing > 0 ? gmi_world_rank(w->comm, w->first_missing) : -1;
    return missing >= 0 && control->members[missing].has_left ? missing : -1;
}

gm_status gmi_comm_need_links(struct gm_comm *comm, const struct gmi_algo *algo,
                              const struct gmi_request *request)
{
    struct gm_comm *root = comm->root;
    enum gmi_lane   lane = gmi_is_message(request->which) ? GMI_LANE_MESSAGES : GMI_LANE_DATA;
    struct wish     w = { .comm = comm, .algo = algo, .request = request, .first_missing = -1 };
    /* Those of data are there from the start, those of messages may be made by the service thread.
     */
    if (lane != GMI_LANE_DATA) pthread_mutex_lock(&root->lock);
    w.lines = comm->lines[lane];
    if (lane != GMI_LANE_DATA) pthread_mutex_unlock(&root->lock);
    if (w.lines != NULL && !is_any_missing(&w)) return GM_OK;
    int     limit_ms = limit_of(comm);
    int64_t deadline_ns = limit_ms > 0 ? gmi_deadline_after_ms(limit_ms) : GMI_NEVER;
    pthread_mutex_lock(&root->lock);
    w.lines = gmi_comm_lines(comm, lane);
    if (w.lines != NULL) for_each_peer(&w, ask_for);
    pthread_mutex_unlock(&root->lock);
    if (w.lines == NULL) {
        no_memory(comm);
        return report(&w);
    }
    gmi_service_wake(comm);
    for (;;) {
        bool may_go_on;
        pthread_mutex_lock(&root->lock);
        bool has_failure = root->control.has_failure;
        for_each_peer(&w, note_present);
        bool is_missing = is_any_missing(&w);
        int  gone = who_has_left(&w, &may_go_on);
        pthread_mutex_unlock(&root->lock);
        if (has_failure) return report(&w);
        if (!is_missing || may_go_on) return GM_OK;
        if (gone >= 0) {
            lost(&w, gone);
        } else if (deadline_ns != GMI_NEVER && gmi_now_ns() - deadline_ns > GMI_OVERSLEPT_MS * GMI_NS_PER_MS) {
            deadline_ns = gmi_deadline_after_ms(limit_ms); /* we were away, and perhaps all others too */
        } else if (gmi_deadline_passed(deadline_ns)) {
            give_up(&w, limit_ms);
        } else {
            gmi_caller_wait(comm, deadline_ns);
        }
    }
}
