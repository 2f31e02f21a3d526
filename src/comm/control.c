#include "comm/control_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "coll/profile.h"
#include "net/socket.h"

enum { MISSING_EVERY_MS = 1000, EARLIER_CAUSE_MS = 100, MAX_FINGERPRINT_BYTES = 65 * 1024 };

gm_status gmi_control_init(struct gmi_control *c, int rank, int n_ranks, const char *fingerprint,
                           const struct gmi_log *log, void (*notify)(void *), void *notify_user)
{
    *c = (struct gmi_control){ .rank = rank, .n_ranks = n_ranks, .fingerprint = fingerprint, .log = log,
                               .notify = notify, .notify_user = notify_user, .own_limit_ms = -1 };
    gmi_profile_builtin(&c->profile);
    c->members = gmi_alloc((size_t)n_ranks, sizeof *c->members);
    if (c->members == NULL) return GM_ERR_NOMEM;
    for (int k = 0; k < n_ranks; k++) c->members[k].courier.stream = gmi_stream_plain(-1);
    c->members[rank].process = gmi_process_self();
    if (rank == 0 && gmi_waits_init(&c->waits, n_ranks) != GM_OK) return GM_ERR_NOMEM;
    c->next_missing_ns = gmi_deadline_after_ms(MISSING_EVERY_MS);
    return GM_OK;
}

void gmi_control_fini(struct gmi_control *c)
{
    for (int k = 0; c->members != NULL && k < c->n_ranks; k++) {
        gmi_courier_fini(&c->members[k].courier);
        gmi_buffer_fini(&c->members[k].held);
    }
    gmi_free(c->members);
    c->members = NULL;
    gmi_waits_fini(&c->waits);
}

void gmi_control_send_to(struct gmi_control *c, int rank, enum gmi_message kind, const struct gmi_buffer *body)
{
    struct gmi_member *m = &c->members[rank];
    if (gmi_control_is_expected(c, rank)) gmi_courier_frame(&m->held, (uint8_t)kind, body);
    else gmi_courier_send(&m->courier, (uint8_t)kind, body);
}

void gmi_control_send_to_hub(struct gmi_control *c, enum gmi_message kind, const struct gmi_buffer *body)
{
    gmi_control_send_to(c, c->hub, kind, body);
}

/* To everybody with whom we have a connection, except one rank (-1: nobody). */
void gmi_control_send_to_all_but(struct gmi_control *c, int spared, enum gmi_message kind, const struct gmi_buffer *body)
{
    for (int k = 0; k < c->n_ranks; k++) {
        if (k != spared) gmi_control_send_to(c, k, kind, body);
    }
}

/* ---- failures and goodbyes --------------------------------------------------------------------- */

void gmi_control_fail_from(struct gmi_control *c, const struct gmi_failure *failure, int from)
{
    if (c->has_failure) return;
    c->has_failure = true;
    c->failure = *failure;
    c->is_widely_known = from >= 0 && c->members[from].has_left;
    struct gmi_buffer body = { 0 };
    gmi_failure_encode(failure, &body);
    gmi_control_send_to_all_but(c, from, GMI_FAILURE, &body);
    gmi_buffer_fini(&body);
    /* At once: the caller may end the process as soon as it hears of it, and the others must know why. */
    for (int k = 0; k < c->n_ranks; k++) gmi_courier_flush(&c->members[k].courier);
    c->notify(c->notify_user);
}

void gmi_control_fail(struct gmi_control *c, const struct gmi_failure *failure) { gmi_control_fail_from(c, failure, -1); }

void gmi_control_fail_after(struct gmi_control *c, const struct gmi_failure *failure, int after_ms)
{
    if (c->has_failure || c->has_pending) return;
    c->has_pending = true;
    c->pending = *failure;
    c->pending_until_ns = gmi_deadline_after_ms(after_ms);
}

void gmi_control_fail_soon(struct gmi_control *c, const struct gmi_failure *failure)
{
    gmi_control_fail_after(c, failure, EARLIER_CAUSE_MS);
}

static void note_goodbye(struct gmi_control *c, int rank, uint64_t seq)
{
    if (c->members[rank].has_left) return;
    c->members[rank].has_left = true;
    c->members[rank].left_after_seq = seq;
    c->n_left++;
    if (rank == c->hub) gmi_control_move(c);
    c->notify(c->notify_user);
}

void gmi_control_send_goodbye(struct gmi_control *c, int spared, int rank, uint64_t seq)
{
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_u32(&body, (uint32_t)rank);
    gmi_buffer_put_u64(&body, seq);
    gmi_control_send_to_all_but(c, spared, GMI_GOODBYE, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_leave(struct gmi_control *c, uint64_t seq)
{
    if (c->is_leaving) return;
    c->is_leaving = true;
    c->was_hub = gmi_control_is_hub(c);
    c->move_ns = gmi_now_ns(); /* if the middle is moving: our goodbye waits for that */
    c->members[c->rank].left_after_seq = seq;
    gmi_control_send_goodbye(c, -1, c->rank, seq);
    /* Who is in the middle passes on what the others send until they, too, have ended their side. */
    for (int k = 0; k < c->n_ranks && !c->was_hub; k++) {
        if (gmi_courier_is_open(&c->members[k].courier)) gmi_courier_finish(&c->members[k].courier);
    }
}

/* Who is silent, or has failed the others by its silence, does not read our goodbye soon. */
static bool is_waited_for_at_the_end(const struct gmi_control *c, int rank)
{
    return !c->members[rank].pulse.is_suspected && !(c->has_failure && c->failure.culprit == rank);
}

bool gmi_control_is_drained(const struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks; k++) {
        const struct gmi_courier *courier = &c->members[k].courier;
        if (!is_waited_for_at_the_end(c, k)) continue;
        if (gmi_courier_is_open(courier) && (!courier->is_deaf || courier->out.used_bytes > 0)) return false;
        if (!c->is_widely_known && gmi_control_is_expected(c, k)) return false;
    }
    return true;
}

int gmi_control_absentee(const struct gmi_control *c, uint64_t seq)
{
    if (c->n_left == 0) return -1;
    for (int k = 0; k < c->n_ranks; k++) {
        if (c->members[k].has_left && c->members[k].left_after_seq < seq) return k;
    }
    return -1;
}

/* A system call of ours failed for a reason of our own. */
static void cannot_hear(struct gmi_control *c, int rank, int sys_errno)
{
    struct gmi_failure f = { .status = GM_ERR_SYSTEM, .culprit = c->rank, .reporter = c->rank, .sys_errno = sys_errno };
    snprintf(f.cause, sizeof f.cause, "rank %d (%s) cannot use its control connection to rank %d: %s", c->rank,
             c->members[c->rank].address[0] ? c->members[c->rank].address : "address unknown", rank, strerror(sys_errno));
    gmi_control_fail_from(c, &f, -1);
}

/* `fare`: of the connection, when it ended. */
static void lose(struct gmi_control *c, int rank, int sys_errno, const struct gmi_socket_fare *fare)
{
    char hint[GMI_HINT_BYTES] = "";
    if (gmi_socket_is_our_trouble(sys_errno)) {
        cannot_hear(c, rank, sys_errno);
        return;
    }
    struct gmi_failure f = { .status = GM_ERR_PEER_LOST, .culprit = rank, .reporter = c->rank, .sys_errno = sys_errno };
    if (sys_errno == ETIMEDOUT) gmi_hint_at_packet_size(fare, hint);
    snprintf(f.cause, sizeof f.cause, "rank %d (%s) is gone: its process ended or was cut off without a goodbye (%s)%s",
             rank, c->members[rank].address[0] ? c->members[rank].address : "address unknown",
             sys_errno ? strerror(sys_errno) : "end of file", hint);
    gmi_control_fail_from(c, &f, -1);
}

/* ---- messages ---------------------------------------------------------------------------------- */

void gmi_control_bad_message(struct gmi_control *c, int from)
{
    struct gmi_failure f = { .status = GM_ERR_PROTOCOL, .culprit = from, .reporter = c->rank };
    snprintf(f.cause, sizeof f.cause, "rank %d sent a control message that cannot be right", from);
    gmi_control_fail_from(c, &f, -1);
}

/* May `from` tell what another rank says? The middle passes things on, also one that has just left it. */
static bool may_tell(const struct gmi_control *c, int from, int whose)
{
    return from == whose || !gmi_control_is_hub(c) || c->members[from].has_left;
}

static void hear_goodbye(struct gmi_control *c, int from, struct gmi_reader *r)
{
    int      rank = (int)gmi_reader_u32(r);
    uint64_t seq = gmi_reader_u64(r);
    if (r->is_short || rank < 0 || rank >= c->n_ranks || !may_tell(c, from, rank)) {
        gmi_control_bad_message(c, from);
        return;
    }
    bool is_new = !c->members[rank].has_left, was_hub = gmi_control_is_hub(c);
    note_goodbye(c, rank, seq);
    if (was_hub && is_new) gmi_control_send_goodbye(c, from, rank, seq);
}

/* Who asks whom to call, for which lane of which communicator. */
struct call_back {
    int      asker, caller;
    uint32_t group_id;
    int      lane;
};

/* Rank 0 passes it on; everybody else has only rank 0 to send to. */
static void send_call_back(struct gmi_control *c, const struct call_back *k)
{
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_u32(&body, (uint32_t)k->asker);
    gmi_buffer_put_u32(&body, (uint32_t)k->caller);
    gmi_buffer_put_u32(&body, k->group_id);
    gmi_buffer_put_u32(&body, (uint32_t)k->lane);
    gmi_control_send_to(c, gmi_control_is_hub(c) ? k->caller : c->hub, GMI_CALL_BACK, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_ask_to_call(struct gmi_control *c, int peer, uint32_t group_id, int lane)
{
    struct call_back k = { .asker = c->rank, .caller = peer, .group_id = group_id, .lane = lane };
    send_call_back(c, &k);
}

static void hear_call_back(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct call_back k;
    k.asker = (int)gmi_reader_u32(r);
    k.caller = (int)gmi_reader_u32(r);
    k.group_id = gmi_reader_u32(r);
    k.lane = (int)gmi_reader_u32(r);
    if (r->is_short || k.asker < 0 || k.caller <= k.asker || k.caller >= c->n_ranks || k.lane < 0 ||
        k.lane >= c->n_lanes || !may_tell(c, from, k.asker)) {
        gmi_control_bad_message(c, from);
    } else if (k.caller == c->rank) {
        c->call_back(c->notify_user, k.asker, k.group_id, k.lane);
    } else if (gmi_control_is_hub(c)) {
        send_call_back(c, &k);
    }
}

/* On the same way. */
static void send_knock(struct gmi_control *c, int caller, int callee)
{
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_u32(&body, (uint32_t)caller);
    gmi_buffer_put_u32(&body, (uint32_t)callee);
    gmi_control_send_to(c, gmi_control_is_hub(c) ? callee : c->hub, GMI_KNOCK, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_knock(struct gmi_control *c, int peer) { send_knock(c, c->rank, peer); }

static void hear_knock(struct gmi_control *c, int from, struct gmi_reader *r)
{
    int caller = (int)gmi_reader_u32(r), callee = (int)gmi_reader_u32(r);
    if (r->is_short || callee < 0 || caller <= callee || caller >= c->n_ranks || !may_tell(c, from, caller)) {
        gmi_control_bad_message(c, from);
    } else if (callee == c->rank) {
        if (c->knocked != NULL) c->knocked(c->notify_user, caller);
    } else if (gmi_control_is_hub(c)) {
        send_knock(c, caller, callee);
    }
}

static void hear(struct gmi_control *c, int from, uint8_t kind, struct gmi_reader *r)
{
    struct gmi_failure failure;
    if (kind == GMI_FAILURE && gmi_failure_decode(&failure, r)) {
        gmi_control_fail_from(c, &failure, from);
    } else if (kind == GMI_GOODBYE) {
        hear_goodbye(c, from, r);
    } else if (kind == GMI_CALL_BACK) {
        hear_call_back(c, from, r);
    } else if (kind == GMI_KNOCK) {
        hear_knock(c, from, r);
    } else if (kind == GMI_WAITING) {
        gmi_control_hear_waiting(c, from, r);
    } else if (kind == GMI_STALLED) {
        gmi_control_hear_stalled(c, from, r);
    } else if (kind == GMI_BEAT) {
        gmi_control_hear_beat(c, from, r);
    } else if (kind == GMI_LOOK) {
        gmi_control_hear_look(c, from, r);
    } else if (kind == GMI_SEEN) {
        gmi_control_hear_seen(c, from, r);
    } else if (kind == GMI_NOTE) {
        gmi_control_hear_note(c, from, r);
    } else if (kind == GMI_JOIN && gmi_control_is_hub(c)) {
        gmi_control_hear_join(c, from, r);
    } else if (kind == GMI_MISSING && !gmi_control_is_hub(c)) {
        gmi_reader_text(r, c->missing, sizeof c->missing);
    } else if (kind != GMI_READY_TABLE || gmi_control_is_hub(c) || !gmi_control_hear_ready(c, r)) {
        gmi_control_bad_message(c, from);
    }
}

/* The connection has ended: is that a loss? */
static void connection_ended(struct gmi_control *c, int rank)
{
    struct gmi_member     *m = &c->members[rank];
    struct gmi_socket_fare fare = { 0 };
    int                    sys_errno = m->courier.sys_errno;
    if (c->was_hub && c->is_leaving && sys_errno == 0 && !m->has_left) { /* it will call the next one in the middle */
        gmi_courier_go_deaf(&m->courier);
        c->notify(c->notify_user);
        return;
    }
    gmi_socket_fare(m->courier.stream.fd, &fare);
    gmi_courier_fini(&m->courier);
    if (c->is_leaving) c->notify(c->notify_user); /* who waits for the last one to close */
    if (m->has_left || c->is_leaving) return;
    if (gmi_control_is_hub(c) && c->phase == GMI_GATHERING) {
        /* It may come back, or another process in its place. */
        gmi_log(c->log, GM_LOG_WARN, "rank %d went away while the others were still gathering", rank);
        m->has_joined = false;
        gmi_control_tell_who_is_missing_soon(c);
        return;
    }
    lose(c, rank, sys_errno, &fare);
}

static void step_member(struct gmi_control *c, int rank)
{
    struct gmi_courier *courier = &c->members[rank].courier;
    size_t              max_body_bytes = MAX_FINGERPRINT_BYTES + 1024 + (size_t)c->n_ranks * (GMI_ADDRESS_TEXT_BYTES + 40);
    uint8_t             kind;
    struct gmi_reader   body;
    if (courier->stream.fd < 0) return;
    while (gmi_courier_next(courier, max_body_bytes, &kind, &body)) {
        gmi_control_heard(c, rank);
        hear(c, rank, kind, &body);
    }
    if (courier->is_over) connection_ended(c, rank);
}

void gmi_control_watch(struct gmi_control *c, struct gmi_poller *poller)
{
    for (int k = 0; k < c->n_ranks; k++) gmi_courier_watch(&c->members[k].courier, poller);
}

int64_t gmi_control_next_ns(const struct gmi_control *c)
{
    int64_t next_ns = gmi_control_is_hub(c) && c->phase == GMI_GATHERING ? c->next_missing_ns : GMI_NEVER;
    int64_t pulse_ns = gmi_control_pulse_next_ns(c);
    if (pulse_ns < next_ns) next_ns = pulse_ns;
    return c->has_pending && c->pending_until_ns < next_ns ? c->pending_until_ns : next_ns;
}

void gmi_control_step(struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks; k++) step_member(c, k);
    if (gmi_control_is_hub(c) && c->phase == GMI_GATHERING && gmi_deadline_passed(c->next_missing_ns)) {
        gmi_control_tell_who_is_missing(c);
        c->next_missing_ns = gmi_deadline_after_ms(MISSING_EVERY_MS);
    }
    if (c->has_pending && gmi_deadline_passed(c->pending_until_ns)) {
        c->has_pending = false;
        gmi_control_fail_from(c, &c->pending, -1);
    }
    gmi_control_pulse_step(c);
    for (int k = 0; k < c->n_ranks; k++) gmi_courier_flush(&c->members[k].courier);
}
