/* run.c - one collective to its end on the caller's thread: the one place where a collective sleeps.
 *
 * The op moves what can move and returns; then we sleep until a link is ready, somebody alarms us, or no
 * byte has moved for the stall limit. A failure is recorded once for the whole communicator (comm/control.h),
 * and every rank makes its own sentence from it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "coll/algo.h"
#include "comm/comm.h"

enum {
    /* A broken link waits so long for an earlier cause before it blames its peer. */
    EARLIER_CAUSE_MS = 100,
    LONG_ABSENCE_US = 200,
    /* A rank that has been still for so long (or half the stall limit) tells rank 0 in which call it waits. */
    TELL_AFTER_MS = 200,
    /* A rank that has waited for too long gives rank 0 so long to say who is to blame. */
    ANSWER_MS = 1000,
};

/* ---- failures ---------------------------------------------------------------------------------- */

void gmi_comm_fail(struct gm_comm *comm, const struct gmi_failure *failure)
{
    pthread_mutex_lock(&comm->lock);
    gmi_control_fail(&comm->control, failure);
    pthread_mutex_unlock(&comm->lock);
    gmi_service_wake(comm);
}

static bool has_failed(struct gm_comm *comm, struct gmi_failure *failure)
{
    pthread_mutex_lock(&comm->lock);
    bool has_failure = comm->control.has_failure;
    *failure = comm->control.failure;
    pthread_mutex_unlock(&comm->lock);
    return has_failure;
}

static const char *address_of(const struct gm_comm *comm, int rank)
{
    return comm->control.members[rank].address; /* fixed since creation */
}

/* Fills the record's sentence: who, doing what, where in it, what went wrong, how far, how long. */
static void write_sentence(gm_error *e, const struct gmi_op *op, const char *cause)
{
    char call[160] = "", where[48] = "", far[96] = "";
    if (op != NULL) {
        char text[128];
        snprintf(call, sizeof call, "%s%s", gmi_descriptor_format(&op->call, text, sizeof text),
                 e->n_steps > 0 ? ", " : ": ");
        if (e->n_steps > 0) snprintf(where, sizeof where, "step %d of %d: ", e->step, e->n_steps);
        snprintf(far, sizeof far, ", after %llu of %llu bytes, %lld ms after the start",
                 (unsigned long long)e->done_bytes, (unsigned long long)e->total_bytes,
                 (long long)(e->elapsed_ns / GMI_NS_PER_MS));
    }
    int wanted_bytes = snprintf(e->text, sizeof e->text, "rank %d: %s%s%s%s", e->rank, call, where, cause, far);
    (void)wanted_bytes; /* a long cause costs the sentence its end */
}

gm_status gmi_comm_report_failure(struct gm_comm *comm, bool is_in_op)
{
    struct gmi_failure failure;
    has_failed(comm, &failure);
    gm_error            *e = &comm->error;
    const struct gmi_op *op = is_in_op ? &comm->op : NULL;
    if (comm->failure_record.status != GM_OK) { /* later calls have the record of the first one that failed */
        *e = comm->failure_record;
        return e->status;
    }
    gmi_error_clear(e);
    e->status = failure.status;
    e->rank = comm->rank;
    e->culprit = failure.culprit;
    e->epoch = comm->control.epoch;
    e->sys_errno = failure.sys_errno;
    if (op != NULL) {
        e->op_seq = op->call.seq;
        e->op = gm_collective_name((gm_collective)op->call.collective);
        e->algorithm = op->algo->name;
        e->step = op->step;
        e->n_steps = op->n_steps;
        e->done_bytes = op->traffic.payload_recv_bytes;
        e->total_bytes = op->total_recv_bytes;
        e->elapsed_ns = gmi_now_ns() - op->begin_ns;
    }
    write_sentence(e, op, failure.cause);
    comm->failure_record = *e;
    return e->status;
}

static gm_status fail_and_report(struct gm_comm *comm, const struct gmi_failure *failure)
{
    gmi_comm_fail(comm, failure);
    return gmi_comm_report_failure(comm, true);
}

/* ---- what can end an op early ------------------------------------------------------------------- */

/* A failure somewhere, or somebody who has left and can never take part in this call. */
static gm_status look_at_alarm(struct gm_comm *comm)
{
    struct gmi_failure failure;
    if (has_failed(comm, &failure)) return gmi_comm_report_failure(comm, true);
    pthread_mutex_lock(&comm->lock);
    int      absentee = gmi_control_absentee(&comm->control, comm->op.call.seq);
    uint64_t left_after = absentee >= 0 ? comm->control.members[absentee].left_after_seq : 0;
    gmi_alarm_quiet(comm);
    pthread_mutex_unlock(&comm->lock);
    if (absentee < 0) return GM_OK;
    failure = (struct gmi_failure){ .status = GM_ERR_PEER_LOST, .culprit = absentee, .reporter = comm->rank,
                                    .op_seq = comm->op.call.seq };
    snprintf(failure.cause, sizeof failure.cause,
             "rank %d (%s) has left the communicator after call #%llu, so this call can never complete", absentee,
             address_of(comm, absentee), (unsigned long long)left_after);
    return fail_and_report(comm, &failure);
}

/* Waits for word of a failure. GM_OK: there was none. */
static gm_status listen_for_a_cause(struct gm_comm *comm, int limit_ms)
{
    int64_t deadline_ns = gmi_deadline_after_ms(limit_ms);
    do {
        gm_status status = look_at_alarm(comm);
        if (status != GM_OK) return status;
        gmi_poller_clear(&comm->poller);
        gmi_poller_add(&comm->poller, comm->alarm_fd, GMI_READABLE);
        gmi_poller_wait(&comm->poller, deadline_ns);
    } while (!gmi_deadline_passed(deadline_ns));
    return look_at_alarm(comm);
}

/* The link to a peer broke. Who broke it first is often known in a moment. */
static gm_status link_broke(struct gm_comm *comm)
{
    const struct gmi_trouble *t = &comm->op.trouble;
    gm_status                 status = listen_for_a_cause(comm, EARLIER_CAUSE_MS);
    if (status != GM_OK) return status;
    struct gmi_failure failure = { .status = GM_ERR_PEER_LOST, .culprit = t->peer, .reporter = comm->rank,
                                   .op_seq = comm->op.call.seq, .sys_errno = t->sys_errno };
    snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) %s with rank %d (%s)", t->peer, address_of(comm, t->peer),
             t->what, comm->rank, t->sys_errno ? strerror(t->sys_errno) : "end of file");
    return fail_and_report(comm, &failure);
}

static gm_status mismatched(struct gm_comm *comm)
{
    struct gmi_descriptor theirs = comm->op.trouble.theirs;
    theirs.rank = comm->op.trouble.peer;
    /* They are a call behind when ours could be finished without them, by a broadcast's root, say. */
    bool is_behind = theirs.seq == comm->done_call.seq && theirs.seq != 0;
    struct gmi_failure failure = gmi_failure_of_mismatch(comm->rank, &theirs, is_behind ? &comm->done_call : &comm->op.call);
    return fail_and_report(comm, &failure);
}

static gm_status op_failed(struct gm_comm *comm)
{
    const struct gmi_trouble *t = &comm->op.trouble;
    if (t->status == GM_ERR_PEER_LOST) return link_broke(comm);
    if (t->status == GM_ERR_MISMATCH) return mismatched(comm);
    struct gmi_failure failure = { .status = t->status, .culprit = t->peer, .reporter = comm->rank,
                                   .op_seq = comm->op.call.seq };
    snprintf(failure.cause, sizeof failure.cause, "rank %d (%s) %s", t->peer, address_of(comm, t->peer), t->what);
    return fail_and_report(comm, &failure);
}

/* On whom the op waits; -1: nobody. Has that one sent us its descriptor of this call? */
static int whom_we_wait_for(const struct gm_comm *comm, bool *has_entered)
{
    int peer = gmi_op_waits_for(&comm->op);
    *has_entered = peer >= 0 && comm->group.ports[peer].is_descriptor_matched;
    return peer;
}

/* Rank 0 hears in which call we wait and for whom (-1: for nobody any more): it finds calls that differ and have
 * no link in common, and who is to blame for a stall. */
static void tell_waiting(struct gm_comm *comm, int peer, bool has_entered)
{
    pthread_mutex_lock(&comm->lock);
    gmi_control_tell_waiting(&comm->control, &comm->op.call, peer, has_entered);
    pthread_mutex_unlock(&comm->lock);
    gmi_service_wake(comm);
}

/* The peer that we wait for may itself be waiting for another one: rank 0 knows. If it does not answer, then
 * it is not only late. */
static gm_status stalled(struct gm_comm *comm)
{
    bool has_entered;
    int  peer = whom_we_wait_for(comm, &has_entered);
    tell_waiting(comm, peer, has_entered);
    pthread_mutex_lock(&comm->lock);
    bool will_answer = gmi_control_tell_stalled(&comm->control, comm->op.call.seq, comm->stall_limit_ms);
    pthread_mutex_unlock(&comm->lock);
    gmi_service_wake(comm);
    gm_status status = listen_for_a_cause(comm, will_answer ? ANSWER_MS : 1);
    if (status != GM_OK) return status;
    struct gmi_failure failure = { .status = GM_ERR_TIMEOUT, .culprit = will_answer ? 0 : peer, .reporter = comm->rank,
                                   .op_seq = comm->op.call.seq };
    snprintf(failure.cause, sizeof failure.cause, "no byte moved for %d ms while rank %d waited for rank %d (%s), which %s%s",
             comm->stall_limit_ms, comm->rank, peer, peer >= 0 ? address_of(comm, peer) : "",
             has_entered ? "is in this call too" : "has not entered this call",
             will_answer ? "; rank 0 does not answer" : "");
    return fail_and_report(comm, &failure);
}

static gm_status cannot_wait(struct gm_comm *comm)
{
    struct gmi_failure failure = { .status = GM_ERR_NOMEM, .culprit = comm->rank, .reporter = comm->rank,
                                   .op_seq = comm->op.call.seq };
    snprintf(failure.cause, sizeof failure.cause, "rank %d has no memory to wait for its links", comm->rank);
    return fail_and_report(comm, &failure);
}

/* ---- the loop ---------------------------------------------------------------------------------- */

/* Since when no byte has moved. Waking up without one (a signal, a goodbye) is no progress. */
struct stillness {
    uint64_t moved_bytes;
    int64_t  since_ns;
    bool     is_told; /* rank 0 knows in which call we wait, and for whom: */
    int      told_peer;
};

static int64_t stall_deadline_ns(const struct gm_comm *comm, int64_t since_ns)
{
    return comm->stall_limit_ms <= 0 ? GMI_NEVER : since_ns + comm->stall_limit_ms * GMI_NS_PER_MS;
}

static int64_t tell_deadline_ns(const struct gm_comm *comm, int64_t since_ns)
{
    int after_ms = TELL_AFTER_MS;
    if (comm->stall_limit_ms > 0 && comm->stall_limit_ms / 2 < after_ms) after_ms = comm->stall_limit_ms / 2;
    return since_ns + after_ms * GMI_NS_PER_MS;
}

/* Going to sleep and being woken takes longer than a small message, so we first keep trying for a bounded
 * while. Between two tries others may run: where ranks share a core that is what lets the peer go on, and where
 * they do not it costs next to nothing. Somebody else's work on our core shows as a long absence that brings
 * no byte; then we sleep, since a sleeper is woken ahead of a thread that computes. */
static gm_status keep_trying(struct gm_comm *comm)
{
    struct gmi_op *op = &comm->op;
    uint64_t       before_bytes = op->moved_bytes;
    int64_t        from_ns = gmi_now_ns(), now_ns = from_ns, away_ns;
    gm_status      status;
    do {
        sched_yield();
        int64_t back_ns = gmi_now_ns();
        away_ns = back_ns - now_ns;
        status = gmi_op_progress(op);
        now_ns = back_ns;
    } while (status == GM_AGAIN && op->moved_bytes == before_bytes && away_ns < LONG_ABSENCE_US * 1000 &&
             !atomic_load_explicit(&comm->is_alarmed, memory_order_relaxed) && now_ns - from_ns < comm->try_ns);
    op->traffic.waiting_ns += now_ns - from_ns;
    return status;
}

/* Sleeps until a link that the op needs is ready. GM_OK: try again. GM_AGAIN: the stall limit has passed. */
static gm_status wait_for_links(struct gm_comm *comm, struct stillness *still)
{
    struct gmi_op *op = &comm->op;
    int64_t        from_ns = gmi_now_ns();
    if (op->moved_bytes != still->moved_bytes) {
        if (still->is_told) tell_waiting(comm, -1, false);
        *still = (struct stillness){ .moved_bytes = op->moved_bytes, .since_ns = from_ns };
    }
    gmi_poller_clear(&comm->poller);
    gmi_poller_add(&comm->poller, comm->alarm_fd, GMI_READABLE);
    gmi_op_interest(op, &comm->poller);
    int64_t   stall_ns = stall_deadline_ns(comm, still->since_ns);
    bool      has_entered;
    int       peer = whom_we_wait_for(comm, &has_entered);
    bool      is_told = still->is_told && still->told_peer == peer;
    int64_t   tell_ns = is_told ? GMI_NEVER : tell_deadline_ns(comm, still->since_ns);
    gm_status status = gmi_poller_wait(&comm->poller, tell_ns < stall_ns ? tell_ns : stall_ns);
    op->traffic.waiting_ns += gmi_now_ns() - from_ns;
    if (status != GM_AGAIN || tell_ns >= stall_ns) return status;
    tell_waiting(comm, peer, has_entered);
    still->is_told = true;
    still->told_peer = peer;
    return GM_OK;
}

static gm_status run_to_end(struct gm_comm *comm)
{
    struct stillness still = { .since_ns = comm->op.begin_ns };
    for (;;) {
        if (atomic_load_explicit(&comm->is_alarmed, memory_order_acquire)) {
            gm_status status = look_at_alarm(comm);
            if (status != GM_OK) return status;
        }
        uint64_t  before_bytes = comm->op.moved_bytes;
        gm_status status = gmi_op_progress(&comm->op);
        if (status == GM_AGAIN && comm->try_ns > 0) {
            before_bytes = comm->op.moved_bytes;
            status = keep_trying(comm);
        }
        if (status == GM_OK) return GM_OK;
        if (status != GM_AGAIN) return op_failed(comm);
        if (comm->op.moved_bytes != before_bytes) continue;
        status = wait_for_links(comm, &still);
        if (status == GM_AGAIN) return stalled(comm);
        if (status != GM_OK) return cannot_wait(comm);
    }
}

static void add_traffic(gm_traffic *to, const gm_traffic *more)
{
    to->calls += more->calls;
    to->payload_sent_bytes += more->payload_sent_bytes;
    to->payload_recv_bytes += more->payload_recv_bytes;
    to->protocol_sent_bytes += more->protocol_sent_bytes;
    to->protocol_recv_bytes += more->protocol_recv_bytes;
    to->elapsed_ns += more->elapsed_ns;
    to->waiting_ns += more->waiting_ns;
}

gm_status gmi_comm_run(struct gm_comm *comm)
{
    struct gmi_op *op = &comm->op;
    gm_status      status = run_to_end(comm);
    op->traffic.elapsed_ns = gmi_now_ns() - op->begin_ns;
    pthread_mutex_lock(&comm->lock);
    add_traffic(&comm->traffic[op->call.collective], &op->traffic);
    add_traffic(&comm->traffic[GM_COLLECTIVE_END], &op->traffic);
    pthread_mutex_unlock(&comm->lock);
    if (status == GM_OK) {
        comm->done_seq = op->call.seq;
        comm->done_call = op->call;
    }
    return status;
}
