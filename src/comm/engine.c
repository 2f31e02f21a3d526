#include "comm/engine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "coll/message.h"
#include "comm/comm.h"
#include "net/socket.h"
#include "reduce/accumulator.h"
#include "trace/trace.h"

enum {
    /* A broken link waits so long for an earlier cause before it blames its peer. */
    EARLIER_CAUSE_MS = 100,
    LONG_ABSENCE_US = 200,
    /* Where each rank has a core, it keeps trying for so long before it asks whether somebody else wants the core. */
    TRIES_NS = 500,
    /* A rank that has been still for so long (or half the stall limit) tells rank 0 in which call it waits. */
    TELL_AFTER_MS = 200,
    /* A rank that has waited for too long gives rank 0 so long to say who is to blame. */
    ANSWER_MS = 1000,
    /* A link whose other host has not acknowledged for so long is broken; it is looked for so often. */
    UNANSWERED_MS = 2000,
    LOOK_EVERY_MS = 500,
};

/* ---- failures, as they strike the collective that runs ------------------------------------------- */

/* All that is told of ranks are their numbers in the root. */
static int own_rank(const struct gmi_engine *e) { return e->comm->root->rank; }
static int world_rank(const struct gmi_engine *e, int peer) { return gmi_world_rank(e->comm, peer); }

static const char *address_of(const struct gmi_engine *e, int rank)
{
    return rank >= 0 ? e->comm->root->control.members[rank].address : ""; /* fixed since creation */
}

static struct gmi_failure failure_of(const struct gmi_engine *e, gm_status status, int culprit)
{
    return (struct gmi_failure){ .status = status, .culprit = culprit, .reporter = own_rank(e),
                                 .op_seq = e->op.call.seq };
}

static gm_status report(struct gmi_engine *e)
{
    return gmi_comm_report_failure(e->comm, &e->op, &e->running->error);
}

static gm_status fail_and_report(struct gmi_engine *e, const struct gmi_failure *failure)
{
    gmi_comm_fail(e->comm, failure);
    return report(e);
}

/* A failure somewhere, or somebody who has left and can never take part in this call. */
static gm_status look_at_alarm(struct gmi_engine *e)
{
    struct gmi_failure failure;
    if (gmi_comm_has_failed(e->comm, &failure)) return report(e);
    struct gm_comm *root = e->comm->root;
    /* Calls are counted in goodbyes of the root's collectives only; others see the end of a link. */
    bool is_counted = e->comm == root && e->lane == GMI_LANE_DATA;
    pthread_mutex_lock(&root->lock);
    int      absentee = is_counted ? gmi_control_absentee(&root->control, e->op.call.seq) : -1;
    uint64_t left_after = absentee >= 0 ? root->control.members[absentee].left_after_seq : 0;
    gmi_alarm_quiet(e->comm);
    pthread_mutex_unlock(&root->lock);
    if (absentee < 0) return GM_OK;
    failure = failure_of(e, GM_ERR_PEER_LOST, absentee);
    snprintf(failure.cause, sizeof failure.cause,
             "rank %d (%s) has left the communicator after call #%llu, so this call can never complete", absentee,
             address_of(e, absentee), (unsigned long long)left_after);
    return fail_and_report(e, &failure);
}

/* A system call of ours failed for a reason of our own: the peer has nothing to do with it. */
static gm_status blame_ourselves(struct gmi_engine *e)
{
    const struct gmi_trouble *t = &e->op.trouble;
    int                       peer = world_rank(e, t->peer);
    struct gmi_failure        failure = failure_of(e, GM_ERR_SYSTEM, own_rank(e));
    failure.sys_errno = t->sys_errno;
    snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) cannot send to or receive from rank %d: %s", own_rank(e),
             address_of(e, own_rank(e)), peer, strerror(t->sys_errno));
    return fail_and_report(e, &failure);
}

/* The link to a peer broke, and nothing else has come to light since. */
static gm_status blame_peer(struct gmi_engine *e)
{
    const struct gmi_trouble *t = &e->op.trouble;
    int                       peer = world_rank(e, t->peer);
    struct gmi_failure        failure = failure_of(e, GM_ERR_PEER_LOST, peer);
    failure.sys_errno = t->sys_errno;
    pthread_mutex_lock(&e->comm->root->lock);
    bool has_left = e->comm->root->control.members[peer].has_left;
    pthread_mutex_unlock(&e->comm->root->lock);
    if (has_left) {
        snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) has left, so this call can never complete", peer,
                 address_of(e, peer));
    } else {
        snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) %s with rank %d (%s)", peer, address_of(e, peer),
                 t->what, own_rank(e), t->sys_errno ? strerror(t->sys_errno) : "end of file");
    }
    return fail_and_report(e, &failure);
}

/* Which of the two machines, or what between them, changed it cannot be known here. */
static gm_status corrupted(struct gmi_engine *e)
{
    int                peer = world_rank(e, e->op.trouble.peer);
    struct gmi_failure failure = failure_of(e, GM_ERR_CORRUPT, peer);
    snprintf(failure.cause, sizeof failure.cause, "what rank %d (%s) sent to rank %d arrived changed (CRC32C): the way between them, "
             "or the memory of one of them, flips bits", peer, address_of(e, peer), own_rank(e));
    return fail_and_report(e, &failure);
}

static gm_status mismatched(struct gmi_engine *e)
{
    struct gmi_descriptor theirs = e->op.trouble.theirs;
    theirs.rank = world_rank(e, e->op.trouble.peer);
    /* They are a call behind when ours could be finished without them, by a broadcast's root, say. */
    bool is_behind = theirs.seq == e->done_call.seq && theirs.seq != 0;
    struct gmi_failure failure = gmi_failure_of_mismatch(own_rank(e), &theirs, is_behind ? &e->done_call : &e->op.trouble.ours);
    return fail_and_report(e, &failure);
}

/* Nothing moves: has one of the links been cut, so that the kernel asks the other host in vain? */
static int find_unanswered(const struct gmi_engine *e)
{
    for (int k = 0; k < e->comm->n_ranks; k++) {
        struct gmi_link *link = e->op.group->ports[k].link;
        if (link != NULL && gmi_link_is_unanswered(link, UNANSWERED_MS)) return k;
    }
    return -1;
}

static gm_status cut_off(struct gmi_engine *e, int peer)
{
    int                    world_peer = world_rank(e, peer);
    struct gmi_failure     failure = failure_of(e, GM_ERR_PEER_LOST, world_peer);
    struct gmi_socket_fare fare = { 0 };
    char                   hint[GMI_HINT_BYTES];
    gmi_link_fare(e->op.group->ports[peer].link, &fare);
    snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) cannot be reached by rank %d: nothing has been acknowledged "
             "for %d ms%s", world_peer, address_of(e, world_peer), own_rank(e), UNANSWERED_MS, gmi_hint_at_packet_size(&fare, hint));
    return fail_and_report(e, &failure);
}

/* On whom the op waits, by its number in the root; -1: nobody. Has that one sent us its descriptor of this call? */
static int whom_we_wait_for(const struct gmi_engine *e, bool *has_entered)
{
    int                    peer = gmi_op_waits_for(&e->op);
    const struct gmi_port *port = peer >= 0 ? &e->op.group->ports[peer] : NULL;
    *has_entered = port != NULL && port->seq == e->op.call.seq && port->is_descriptor_matched;
    return world_rank(e, peer);
}

/* Rank 0 hears in which call we wait and for whom (-1: for nobody any more): it finds calls that differ and have
 * no link in common, and who is to blame for a stall. */
static void tell_waiting(struct gmi_engine *e, int peer, bool has_entered)
{
    pthread_mutex_lock(&e->comm->root->lock);
    gmi_control_tell_waiting(&e->comm->root->control, &e->op.call, peer, has_entered);
    pthread_mutex_unlock(&e->comm->root->lock);
    gmi_service_wake(e->comm);
}

/* The peer that we wait for may itself be waiting for another one: rank 0 knows. */
static void ask_who_is_to_blame(struct gmi_engine *e)
{
    bool               has_entered;
    int                peer = whom_we_wait_for(e, &has_entered);
    tell_waiting(e, peer, has_entered);
    pthread_mutex_lock(&e->comm->root->lock);
    e->will_answer = gmi_control_tell_stalled(&e->comm->root->control, &e->op.call, e->comm->stall_limit_ms);
    pthread_mutex_unlock(&e->comm->root->lock);
    gmi_service_wake(e->comm);
    e->answer_at_ns = gmi_deadline_after_ms(e->will_answer ? ANSWER_MS : 1);
}

/* Rank 0 has not answered: then it is not only late. */
static gm_status stalled(struct gmi_engine *e)
{
    bool               has_entered, will_answer = e->will_answer;
    int                peer = whom_we_wait_for(e, &has_entered);
    struct gmi_failure failure = failure_of(e, GM_ERR_TIMEOUT, will_answer ? 0 : peer);
    const char *which = e->lane == GMI_LANE_MESSAGES ? "does not answer to this message"
                        : has_entered ? "is in this call too" : "has not entered this call";
    snprintf(failure.cause, sizeof failure.cause, "no byte moved for %d ms while rank %d waited for rank %d (%s), which %s%s",
             e->comm->stall_limit_ms, own_rank(e), peer, address_of(e, peer), which,
             will_answer ? "; rank 0 does not answer" : "");
    return fail_and_report(e, &failure);
}

/* The caller's limit for a whole call has passed. */
static gm_status overtime(struct gmi_engine *e)
{
    bool has_entered;
    gmi_op_interest(&e->op, NULL);
    int                peer = whom_we_wait_for(e, &has_entered);
    struct gmi_failure failure = failure_of(e, GM_ERR_TIMEOUT, peer);
    snprintf(failure.cause, sizeof failure.cause, "this call took longer than its limit of %d ms; rank %d waited for rank %d (%s)",
             e->comm->call_limit_ms, own_rank(e), peer, address_of(e, peer));
    return fail_and_report(e, &failure);
}

/* The others are in this call already or will be, and must not wait for a rank that cannot follow. */
static gm_status out_of_memory(struct gmi_engine *e, size_t need_bytes)
{
    struct gmi_failure failure = failure_of(e, GM_ERR_NOMEM, own_rank(e));
    snprintf(failure.cause, sizeof failure.cause, "rank %d has no memory for %zu bytes of scratch", own_rank(e), need_bytes);
    return fail_and_report(e, &failure);
}

/* ---- the machine; all of this with the engine's lock held, and none of it blocks ------------------ */

static int64_t stall_deadline_ns(const struct gmi_engine *e)
{
    if (e->comm->stall_limit_ms <= 0) return GMI_NEVER;
    return e->still_since_ns + e->comm->stall_limit_ms * GMI_NS_PER_MS;
}

static int64_t tell_deadline_ns(const struct gmi_engine *e)
{
    int after_ms = TELL_AFTER_MS;
    if (e->comm->stall_limit_ms > 0 && e->comm->stall_limit_ms / 2 < after_ms) after_ms = e->comm->stall_limit_ms / 2;
    return e->still_since_ns + after_ms * GMI_NS_PER_MS;
}

static bool must_tell(const struct gmi_engine *e)
{
    return !e->is_told || e->told_peer != world_rank(e, gmi_op_waits_for(&e->op));
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* When the machine must be looked at though no link is ready. */
static int64_t next_ns(const struct gmi_engine *e)
{
    if (e->blame_at_ns != 0) return e->blame_at_ns;
    if (e->answer_at_ns != 0) return earlier(e->answer_at_ns, e->limit_at_ns);
    int64_t still_ns = earlier(stall_deadline_ns(e), must_tell(e) ? tell_deadline_ns(e) : GMI_NEVER);
    return earlier(e->limit_at_ns, earlier(still_ns, e->look_at_ns));
}

/* Notes on whom the op waits, and tells the poller (NULL: nobody). A broken link is not watched: it would be
 * ready all the time. */
static void note_interest(struct gmi_engine *e, struct gmi_poller *poller)
{
    if (e->blame_at_ns == 0) gmi_op_interest(&e->op, poller);
}

static gm_status grow_work(struct gmi_engine *e, size_t need_bytes)
{
    if (need_bytes <= e->work_bytes) return GM_OK;
    uint8_t *work = gmi_alloc(need_bytes, 1);
    if (work == NULL) return GM_ERR_NOMEM;
    gmi_free(e->work);
    e->work = work;
    e->work_bytes = need_bytes;
    return GM_OK;
}

/* One contribution from each rank: in an accumulator of ours, which is kept for the next call of this size. */
static gm_status make_exact(struct gmi_engine *e, struct gmi_request *r)
{
    gm_accumulator_options options;
    if (r->codec.id != GMI_CODEC_EXACT || r->exact != NULL) return GM_OK;
    size_t count = r->count_elems > 0 ? r->count_elems : 1; /* there is none of no elements */
    if (e->exact == NULL || e->exact->options.count != count) {
        gm_accumulator_options_default(&options);
        options.count = count;
        options.n_shards = e->comm->n_ranks;
        gm_accumulator_destroy(e->exact);
        if (gm_accumulator_create(&e->exact, &options, NULL) != GM_OK) return GM_ERR_NOMEM;
    }
    gm_status status = gm_accumulator_reset(e->exact);
    if (status == GM_OK && r->count_elems > 0) status = gm_accumulator_add(e->exact, e->comm->rank, r->send);
    r->exact = e->exact;
    return status;
}

static gm_status begin(struct gmi_engine *e)
{
    struct gm_work    *w = e->running;
    struct gmi_group  *group = &e->comm->groups[e->lane];
    size_t             need_bytes = gmi_op_work_bytes(&w->request, w->algo, group);
    gm_status          status = grow_work(e, need_bytes);
    if (status == GM_OK) status = make_exact(e, &w->request);
    int                limit_ms = atomic_load(&e->comm->call_limit_ms);
    group->id = e->comm->group_id;
    group->epoch = e->comm->root->control.epoch;
    e->op.group = group;
    e->op.scratch = e->scratch;
    e->op.work = e->work;
    e->blame_at_ns = 0;
    gmi_op_set_up(&e->op, w->algo, &w->request, w->seq);
    e->op.call.rank = own_rank(e);
    e->op.call.core = atomic_load(&e->n_callers_waiting) > 0 ? gmi_placement_core() : 0; /* the service thread's says nothing */
    e->limit_at_ns = limit_ms > 0 ? e->op.begin_ns + limit_ms * GMI_NS_PER_MS : GMI_NEVER;
    if (status != GM_OK) return out_of_memory(e, need_bytes);
    gmi_op_begin(&e->op);
    e->still_bytes = 0;
    e->still_since_ns = e->minded_ns = e->op.begin_ns;
    e->look_at_ns = e->op.begin_ns + UNANSWERED_MS * GMI_NS_PER_MS;
    e->is_told = false;
    e->answer_at_ns = 0;
    bool is_alarmed = atomic_load_explicit(&e->comm->is_alarmed, memory_order_acquire);
    return is_alarmed ? look_at_alarm(e) : GM_OK; /* after a failure a call fails at once */
}

/* On a crowded machine word of the cause may lie in our socket, and the service thread may not have had a core for
 * all this time. Before we blame anybody we read it ourselves. */
static gm_status listen_ourselves(struct gmi_engine *e)
{
    struct gm_comm *root = e->comm->root;
    pthread_mutex_lock(&root->lock);
    gmi_control_step(&root->control);
    pthread_mutex_unlock(&root->lock);
    return look_at_alarm(e);
}

static bool is_in_doubt(struct gmi_engine *e)
{
    struct gm_comm *root = e->comm->root;
    pthread_mutex_lock(&root->lock);
    bool is_somebody_silent = gmi_control_is_in_doubt(&root->control);
    pthread_mutex_unlock(&root->lock);
    return is_somebody_silent;
}

/* Moves the collective that runs. GM_OK: finished. GM_AGAIN: as far as it goes now. Else it has failed. */
static gm_status advance(struct gmi_engine *e)
{
    gm_status          status = e->blame_at_ns == 0 ? gmi_op_progress(&e->op) : GM_AGAIN;
    if (status == GM_OK) return GM_OK; /* nothing that has happened since can take that back */
    if (atomic_load_explicit(&e->comm->is_alarmed, memory_order_acquire)) {
        gm_status alarm = look_at_alarm(e);
        if (alarm != GM_OK) return alarm;
    }
    if (e->blame_at_ns != 0 && !gmi_deadline_passed(e->blame_at_ns)) return GM_AGAIN;
    if (e->blame_at_ns != 0) {
        gm_status word = listen_ourselves(e);
        if (word != GM_OK) return word;
        if (is_in_doubt(e)) { /* somebody is silent: the cause may be there */
            e->blame_at_ns = gmi_deadline_after_ms(EARLIER_CAUSE_MS);
            return GM_AGAIN;
        }
        return blame_peer(e);
    }
    if (status == GM_AGAIN && e->limit_at_ns != GMI_NEVER && gmi_deadline_passed(e->limit_at_ns)) return overtime(e);
    if (status == GM_ERR_PEER_LOST && gmi_socket_is_our_trouble(e->op.trouble.sys_errno)) return blame_ourselves(e);
    if (status == GM_ERR_PEER_LOST) { /* who broke it first is often known in a moment */
        e->blame_at_ns = gmi_deadline_after_ms(EARLIER_CAUSE_MS);
        return GM_AGAIN;
    }
    if (status == GM_ERR_CORRUPT) return corrupted(e);
    if (status == GM_ERR_MISMATCH && e->op.trouble.has_theirs) return mismatched(e);
    if (status != GM_OK && status != GM_AGAIN) {
        const struct gmi_trouble *t = &e->op.trouble;
        int                       peer = world_rank(e, t->peer);
        struct gmi_failure        failure = failure_of(e, t->status, peer);
        if (t->what == NULL) snprintf(failure.cause, sizeof failure.cause, "%s", t->sentence);
        else snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) %s", peer, address_of(e, peer), t->what);
        return fail_and_report(e, &failure);
    }
    return status;
}

static void add_traffic(gm_traffic *to, const gm_traffic *more)
{
    to->calls += more->calls;
    to->payload_sent_bytes += more->payload_sent_bytes;
    to->payload_recv_bytes += more->payload_recv_bytes;
    to->protocol_sent_bytes += more->protocol_sent_bytes;
    to->protocol_recv_bytes += more->protocol_recv_bytes;
    to->memory_sent_bytes += more->memory_sent_bytes;
    to->memory_recv_bytes += more->memory_recv_bytes;
    to->elapsed_ns += more->elapsed_ns;
    to->waiting_ns += more->waiting_ns;
}

static void give_back(struct gmi_engine *e, struct gm_work *w)
{
    w->next = e->free_works;
    e->free_works = w;
}

/* The caller may add to its accumulator again. */
static void let_go(struct gm_work *w)
{
    if (w->request.exact != NULL) atomic_store(&w->request.exact->is_in_call, false);
}

static bool is_pooled(const struct gmi_engine *e, const struct gm_work *w)
{
    return w >= e->pool && w < e->pool + GMI_MAX_WORKS;
}

static void complete(struct gmi_engine *e, gm_status status)
{
    struct gm_work    *w = e->running;
    int64_t            now_ns = gmi_now_ns();
    if (e->is_told) tell_waiting(e, -1, false);
    e->running = NULL;
    e->op.traffic.elapsed_ns = now_ns - e->op.begin_ns;
    if (e->op.trace != NULL) gmi_record_call(&e->op, status);
    pthread_mutex_lock(&e->comm->root->lock);
    e->comm->root->done_ns = now_ns;
    add_traffic(&e->comm->traffic[e->op.call.collective], &e->op.traffic);
    add_traffic(&e->comm->traffic[GM_COLLECTIVE_END], &e->op.traffic);
    if (status == GM_OK) {
        if (e->lane == GMI_LANE_DATA) e->comm->done_seq = w->seq;
        e->done_call = e->op.call;
    }
    atomic_fetch_sub(&e->n_unfinished, 1);
    let_go(w);
    atomic_store_explicit(&w->status, (int)status, memory_order_release);
    if (is_pooled(e, w) && w->is_released) give_back(e, w); /* of a blocking call's nothing may be read: it may have returned */
    pthread_mutex_unlock(&e->comm->root->lock);
}

static bool take_next(struct gmi_engine *e)
{
    pthread_mutex_lock(&e->comm->root->lock);
    struct gm_work *w = e->first;
    if (w != NULL) e->first = w->next;
    if (e->first == NULL) e->last = NULL;
    pthread_mutex_unlock(&e->comm->root->lock);
    e->running = w;
    e->has_begun = false;
    return w != NULL;
}

/* Runs what is queued as far as it goes. True: something runs and waits for a link. */
static bool advance_queue(struct gmi_engine *e, const struct gm_work *until)
{
    while (e->running != NULL || take_next(e)) {
        struct gm_work *w = e->running;
        gm_status       status = e->has_begun ? GM_OK : begin(e);
        e->has_begun = true;
        if (status == GM_OK) status = advance(e);
        if (status == GM_AGAIN) return true;
        complete(e, status);
        if (w == until) return false;
    }
    return false;
}

static void restart_stillness(struct gmi_engine *e, int64_t now_ns)
{
    if (e->is_told) tell_waiting(e, -1, false);
    e->still_bytes = e->op.moved_bytes;
    e->still_since_ns = now_ns;
    e->look_at_ns = now_ns + UNANSWERED_MS * GMI_NS_PER_MS;
    e->is_told = false;
    e->answer_at_ns = 0;
}

/* The time that we were away counts for nobody's stall: on a machine that was suspended, all were. */
static bool has_overslept(const struct gmi_engine *e, int64_t now_ns)
{
    int64_t wanted_ns = earlier(e->look_at_ns, next_ns(e));
    if (wanted_ns < e->minded_ns) wanted_ns = e->minded_ns;
    return now_ns - wanted_ns > GMI_OVERSLEPT_MS * GMI_NS_PER_MS;
}

/* Before sleeping: how long has no byte moved? (Waking up without one, by a signal or a goodbye, is no
 * progress.) True: too long, and the collective that runs is done with that. */
static bool mind_stillness(struct gmi_engine *e)
{
    if (e->blame_at_ns != 0) return false;
    note_interest(e, NULL);
    int64_t now_ns = gmi_now_ns();
    if (has_overslept(e, now_ns)) restart_stillness(e, now_ns);
    e->minded_ns = now_ns;
    if (e->op.moved_bytes == e->still_bytes && gmi_deadline_passed(e->look_at_ns)) {
        int peer = find_unanswered(e);
        e->look_at_ns = gmi_deadline_after_ms(LOOK_EVERY_MS);
        if (peer >= 0) {
            complete(e, cut_off(e, peer));
            return true;
        }
    }
    if (e->op.moved_bytes != e->still_bytes) {
        restart_stillness(e, now_ns);
    } else if (e->answer_at_ns != 0) {
        if (!gmi_deadline_passed(e->answer_at_ns)) return false;
        complete(e, stalled(e));
        return true;
    } else if (gmi_deadline_passed(stall_deadline_ns(e))) {
        ask_who_is_to_blame(e);
    } else if (must_tell(e) && gmi_deadline_passed(tell_deadline_ns(e))) {
        bool has_entered;
        e->told_peer = whom_we_wait_for(e, &has_entered);
        e->is_told = true;
        tell_waiting(e, e->told_peer, has_entered);
    }
    return false;
}

/* ---- the caller's thread ------------------------------------------------------------------------- */

static bool is_done(struct gm_work *w) { return atomic_load_explicit(&w->status, memory_order_acquire) != GM_AGAIN; }

/* Going to sleep and being woken takes longer than a small message, so we first keep trying for a bounded
 * while. Between tries others may run: where ranks share a core that is what lets the peer go on, and where
 * they do not it costs next to nothing every now and then. Somebody else's work on our core shows as a long absence
 * that brings no byte; then we sleep, since a sleeper is woken ahead of a thread that computes.
 * True: something has moved, or is to be looked at. */
static bool keep_trying(struct gmi_engine *e, struct gm_work *w)
{
    uint64_t           before_bytes = e->op.moved_bytes;
    int64_t            from_ns = gmi_now_ns(), now_ns = from_ns, offered_ns = from_ns, away_ns;
    int64_t            tries_ns = e->comm->placement.has_core_each ? TRIES_NS : 0;
    const struct gm_work *waited_on = e->running;
    bool               has_moved = false;
    do {
        bool is_offered = now_ns - offered_ns >= tries_ns;
        if (is_offered) sched_yield();
        int64_t back_ns = gmi_now_ns();
        away_ns = back_ns - now_ns;
        now_ns = back_ns;
        if (is_offered) offered_ns = now_ns;
        e->op.traffic.waiting_ns += away_ns; /* before it ends, and is counted */
        has_moved = !advance_queue(e, w) || e->running != waited_on || e->op.moved_bytes != before_bytes;
    } while (!has_moved && away_ns < LONG_ABSENCE_US * 1000 && now_ns - from_ns < e->comm->try_ns);
    return has_moved;
}

/* In the call that has just ended, was a lower rank of this host on the core on which we were and are? */
static bool shares_core(const struct gmi_engine *e)
{
    const struct gm_comm *comm = e->comm;
    uint16_t              core = e->op.call.core;
    for (int k = 0; core != 0 && k < comm->rank; k++) {
        const struct gmi_port *port = &e->op.group->ports[k];
        if (port->link == NULL || port->seq != e->op.call.seq || !port->is_descriptor_matched || port->peer_core != core) continue;
        if (gmi_control_is_local(&comm->root->control, gmi_world_rank(comm, k))) return core == gmi_placement_core();
    }
    return false;
}

static void mind_placement(struct gmi_engine *e)
{
    struct gmi_placement *p = &e->comm->placement;
    if (!p->has_core_each || e->lane != GMI_LANE_DATA) return;
    if (gmi_placement_should_move(p, shares_core(e), e->op.begin_ns)) gmi_placement_move();
}

/* Sleeps until a link that the running collective needs is ready, an alarm, or a deadline. */
static void sleep_for_links(struct gmi_engine *e, int64_t deadline_ns)
{
    int64_t            from_ns = gmi_now_ns();
    gmi_poller_clear(&e->poller);
    gmi_poller_add(&e->poller, e->comm->alarm_fd, GMI_READABLE);
    note_interest(e, &e->poller);
    gmi_poller_wait(&e->poller, earlier(deadline_ns, next_ns(e)));
    e->op.traffic.waiting_ns += gmi_now_ns() - from_ns;
}

void gmi_engine_wait(struct gmi_engine *e, struct gm_work *w, int64_t deadline_ns)
{
    if (is_done(w)) return;
    atomic_fetch_add(&e->n_callers_waiting, 1);
    pthread_mutex_lock(&e->lock);
    while (!is_done(w) && advance_queue(e, w) && !is_done(w)) {
        if (gmi_deadline_passed(deadline_ns)) break;
        if (e->comm->try_ns > 0 && keep_trying(e, w)) continue;
        if (!mind_stillness(e)) sleep_for_links(e, deadline_ns);
    }
    if (is_done(w)) mind_placement(e);
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_sub(&e->n_callers_waiting, 1);
    if (atomic_load(&e->n_unfinished) > 0) gmi_service_wake(e->comm);
}

void gmi_engine_release(struct gmi_engine *e, struct gm_work *w)
{
    pthread_mutex_lock(&e->comm->root->lock);
    if (atomic_load_explicit(&w->status, memory_order_relaxed) == GM_AGAIN) {
        w->is_released = true; /* given back when it is done */
    } else {
        give_back(e, w);
    }
    pthread_mutex_unlock(&e->comm->root->lock);
}

static void append(struct gmi_engine *e, struct gm_work *w)
{
    w->next = NULL;
    if (e->last != NULL) {
        e->last->next = w;
    } else {
        e->first = w;
    }
    e->last = w;
    atomic_fetch_add(&e->n_unfinished, 1);
}

static const struct gmi_algo *choose(struct gmi_engine *e, const struct gmi_request *request)
{
    if (e->lane == GMI_LANE_MESSAGES) return &gmi_message_algo;
    struct gmi_last_choice *last = &e->choices[request->which];
    size_t             size_bytes = gmi_request_size_for_choice(request);
    if (last->algo == NULL || last->size_bytes != size_bytes || last->needs != request->codec.needs) {
        *last = (struct gmi_last_choice){ .size_bytes = size_bytes, .needs = request->codec.needs };
        last->algo = gmi_algo_choose(e->comm->algorithm, request->which, &e->comm->costs, size_bytes, last->needs);
    }
    return last->algo;
}

/* Else there is nothing to wait for: in a world of one, or with a message to oneself. */
static bool needs_others(const struct gmi_engine *e, const struct gmi_request *request)
{
    return e->lane == GMI_LANE_MESSAGES ? request->message.to != e->comm->rank : e->comm->n_ranks > 1;
}

/* Chooses the algorithm and sees to its links; may wait for these, the first time. */
static gm_status prepare(struct gmi_engine *e, const struct gmi_request *request, struct gm_work *w)
{
    const struct gmi_algo *algo = choose(e, request);
    gm_status              status = GM_OK;
    struct gmi_failure     failure;
    if (e->lane == GMI_LANE_DATA) atomic_store_explicit(&e->comm->entered_seq, e->comm->seq + 1, memory_order_relaxed);
    if (needs_others(e, request)) {
        status = gmi_comm_need_links(e->comm, algo, request);
    } else if (atomic_load(&e->comm->is_alarmed) && gmi_comm_has_failed(e->comm, &failure)) {
        status = gmi_comm_report_failure(e->comm, NULL, &e->comm->error);
    }
    if (status != GM_OK) return status;
    w->comm = e->comm;
    w->request = *request;
    w->algo = algo;
    w->seq = e->lane == GMI_LANE_DATA ? ++e->comm->seq : 0;
    w->is_released = false;
    if (w->request.exact != NULL) atomic_store(&w->request.exact->is_in_call, true);
    gmi_error_clear(&w->error);
    atomic_store_explicit(&w->status, GM_AGAIN, memory_order_relaxed);
    return GM_OK;
}

/* What needs no others needs no machine. */
static void run_alone(struct gmi_engine *e, struct gm_work *w)
{
    const struct gmi_request *r = &w->request;
    size_t                    bytes = r->count_elems * r->codec.elem_bytes;
    int64_t                   begin_ns = gmi_now_ns();
    if (r->codec.id == GMI_CODEC_EXACT && r->exact != NULL) {
        let_go(w);
        gm_status status = gm_accumulator_finish(r->exact, r->recv);
        GMI_CHECK(status == GM_OK); /* by check_exact, and nobody else may have changed it */
    } else if (r->codec.id == GMI_CODEC_EXACT) {
        gmi_exact_settle_one(r->recv, r->send, r->count_elems);
    } else if (gmi_request_is_reduction(r)) {
        struct gmi_contributions own = { .n = 1, .own_at = r->send };
        gmi_codec_settle(&r->codec, r->recv, &own, r->count_elems);
    } else if (!gmi_request_is_in_place(r) && bytes > 0) {
        memcpy(r->recv, r->send, bytes);
    }
    gmi_record_alone(gmi_trace_of(e->comm->trace), r, w->algo, e->comm->rank, w->seq, begin_ns);
    pthread_mutex_lock(&e->comm->root->lock);
    e->comm->traffic[r->which].calls++;
    e->comm->traffic[GM_COLLECTIVE_END].calls++;
    if (e->lane == GMI_LANE_DATA) e->comm->done_seq = w->seq;
    pthread_mutex_unlock(&e->comm->root->lock);
    atomic_store_explicit(&w->status, GM_OK, memory_order_release);
}

gm_status gmi_engine_run(struct gmi_engine *e, const struct gmi_request *request)
{
    struct gm_work w;
    gm_status      status = prepare(e, request, &w);
    if (status != GM_OK) return status;
    if (!needs_others(e, request)) {
        run_alone(e, &w);
        return GM_OK;
    }
    pthread_mutex_lock(&e->comm->root->lock);
    append(e, &w);
    pthread_mutex_unlock(&e->comm->root->lock);
    gmi_engine_wait(e, &w, GMI_NEVER);
    status = (gm_status)atomic_load_explicit(&w.status, memory_order_acquire);
    if (status != GM_OK) e->comm->error = w.error;
    return status;
}

gm_status gmi_engine_start(struct gmi_engine *e, const struct gmi_request *request, struct gm_work **work)
{
    pthread_mutex_lock(&e->comm->root->lock);
    struct gm_work *w = e->free_works;
    if (w != NULL) e->free_works = w->next;
    pthread_mutex_unlock(&e->comm->root->lock);
    if (w == NULL) {
        gmi_error_clear(&e->comm->error);
        return gmi_error_set(&e->comm->error, GM_ERR_STATE, "rank %d: %d collectives are in flight; wait for one and release it",
                             e->comm->rank, GMI_MAX_WORKS);
    }
    gm_status status = prepare(e, request, w);
    bool      is_queued = status == GM_OK && needs_others(e, request);
    if (status == GM_OK && !is_queued) run_alone(e, w);
    pthread_mutex_lock(&e->comm->root->lock);
    if (is_queued) append(e, w);
    if (status != GM_OK) give_back(e, w);
    pthread_mutex_unlock(&e->comm->root->lock);
    if (is_queued) gmi_service_wake(e->comm);
    if (status == GM_OK) *work = w;
    return status;
}

/* ---- the service thread -------------------------------------------------------------------------- */

/* Takes the machine unless a caller wants it. */
static bool take(struct gmi_engine *e)
{
    if (atomic_load(&e->n_unfinished) == 0 || atomic_load(&e->n_callers_waiting) > 0) return false;
    return pthread_mutex_trylock(&e->lock) == 0;
}

void gmi_engine_step(struct gmi_engine *e)
{
    if (!take(e)) return;
    while (advance_queue(e, NULL) && mind_stillness(e)) {}
    pthread_mutex_unlock(&e->lock);
}

void gmi_engine_watch(struct gmi_engine *e, struct gmi_poller *poller)
{
    if (!take(e)) return;
    if (e->running != NULL) note_interest(e, poller);
    pthread_mutex_unlock(&e->lock);
}

int64_t gmi_engine_next_ns(struct gmi_engine *e)
{
    int64_t            when_ns = GMI_NEVER;
    if (!take(e)) return when_ns;
    if (e->running != NULL) when_ns = next_ns(e);
    pthread_mutex_unlock(&e->lock);
    return when_ns;
}

/* ---- life ---------------------------------------------------------------------------------------- */

gm_status gmi_engine_init(struct gmi_engine *e, struct gm_comm *comm, enum gmi_lane lane)
{
    e->comm = comm;
    e->lane = lane;
    pthread_mutex_init(&e->lock, NULL);
    gmi_poller_init(&e->poller);
    if (lane == GMI_LANE_MESSAGES) return GM_OK; /* needs no memory, and has no works of its own */
    e->pool = gmi_alloc(GMI_MAX_WORKS, sizeof *e->pool);
    e->scratch = gmi_alloc(GMI_SCRATCH_BYTES, 1);
    if (e->pool == NULL || e->scratch == NULL) return GM_ERR_NOMEM;
    for (int i = 0; i < GMI_MAX_WORKS; i++) give_back(e, &e->pool[i]);
    return GM_OK;
}

void gmi_engine_halt(struct gmi_engine *e)
{
    atomic_fetch_add(&e->n_callers_waiting, 1); /* for good */
    pthread_mutex_lock(&e->lock);               /* until it has let go */
    pthread_mutex_unlock(&e->lock);
}

static void let_all_go(struct gmi_engine *e)
{
    if (e->running != NULL) let_go(e->running);
    for (struct gm_work *w = e->first; w != NULL; w = w->next) let_go(w);
}

void gmi_engine_fini(struct gmi_engine *e)
{
    gmi_poller_fini(&e->poller);
    let_all_go(e);
    gm_accumulator_destroy(e->exact);
    gmi_free(e->pool);
    gmi_free(e->scratch);
    gmi_free(e->work);
    pthread_mutex_destroy(&e->lock);
}
