#include "comm/control.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/fingerprint.h"
#include "net/socket.h"

enum { MISSING_EVERY_MS = 1000, MISSING_AFTER_CHANGE_MS = 50, LATECOMERS_MS = 3000, EARLIER_CAUSE_MS = 100, MAX_FINGERPRINT_BYTES = 65 * 1024, GMI_MAX_CORES = 1 << 20 };

gm_status gmi_control_init(struct gmi_control *c, int rank, int n_ranks, const char *fingerprint,
                           const struct gmi_log *log, void (*notify)(void *), void *notify_user)
{
    *c = (struct gmi_control){ .rank = rank, .n_ranks = n_ranks, .fingerprint = fingerprint, .log = log,
                               .notify = notify, .notify_user = notify_user };
    c->members = gmi_alloc((size_t)n_ranks, sizeof *c->members);
    if (c->members == NULL) return GM_ERR_NOMEM;
    for (int k = 0; k < n_ranks; k++) c->members[k].courier.fd = -1;
    if (rank == 0 && gmi_waits_init(&c->waits, n_ranks) != GM_OK) return GM_ERR_NOMEM;
    c->next_missing_ns = gmi_deadline_after_ms(MISSING_EVERY_MS);
    return GM_OK;
}

void gmi_control_fini(struct gmi_control *c)
{
    for (int k = 0; c->members != NULL && k < c->n_ranks; k++) gmi_courier_fini(&c->members[k].courier);
    gmi_free(c->members);
    c->members = NULL;
    gmi_waits_fini(&c->waits);
}

static bool is_hub(const struct gmi_control *c) { return c->rank == 0; }

/* To everybody with whom we have a connection, except one rank (-1: nobody). */
static void send_to_all_but(struct gmi_control *c, int spared, enum gmi_message kind, const struct gmi_buffer *body)
{
    for (int k = 0; k < c->n_ranks; k++) {
        if (k != spared) gmi_courier_send(&c->members[k].courier, (uint8_t)kind, body);
    }
}

/* ---- failures and goodbyes --------------------------------------------------------------------- */

static void fail_from(struct gmi_control *c, const struct gmi_failure *failure, int from)
{
    if (c->has_failure) return;
    c->has_failure = true;
    c->failure = *failure;
    struct gmi_buffer body = { 0 };
    gmi_failure_encode(failure, &body);
    send_to_all_but(c, from, GMI_FAILURE, &body);
    gmi_buffer_fini(&body);
    /* At once: the caller may end the process as soon as it hears of it, and the others must know why. */
    for (int k = 0; k < c->n_ranks; k++) gmi_courier_flush(&c->members[k].courier);
    c->notify(c->notify_user);
}

void gmi_control_fail(struct gmi_control *c, const struct gmi_failure *failure) { fail_from(c, failure, -1); }

static void fail_after(struct gmi_control *c, const struct gmi_failure *failure, int after_ms)
{
    if (c->has_failure || c->has_pending) return;
    c->has_pending = true;
    c->pending = *failure;
    c->pending_until_ns = gmi_deadline_after_ms(after_ms);
}

void gmi_control_fail_soon(struct gmi_control *c, const struct gmi_failure *failure)
{
    fail_after(c, failure, EARLIER_CAUSE_MS);
}

static void note_goodbye(struct gmi_control *c, int rank, uint64_t seq)
{
    if (c->members[rank].has_left) return;
    c->members[rank].has_left = true;
    c->members[rank].left_after_seq = seq;
    c->n_left++;
    c->notify(c->notify_user);
}

static void send_goodbye(struct gmi_control *c, int spared, int rank, uint64_t seq)
{
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_u32(&body, (uint32_t)rank);
    gmi_buffer_put_u64(&body, seq);
    send_to_all_but(c, spared, GMI_GOODBYE, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_leave(struct gmi_control *c, uint64_t seq)
{
    if (c->is_leaving) return;
    c->is_leaving = true;
    send_goodbye(c, -1, c->rank, seq);
    for (int k = 0; k < c->n_ranks; k++) {
        if (gmi_courier_is_open(&c->members[k].courier)) gmi_courier_finish(&c->members[k].courier);
    }
}

bool gmi_control_is_drained(const struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks; k++) {
        if (gmi_courier_is_open(&c->members[k].courier)) return false;
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
    fail_from(c, &f, -1);
}

static void lost(struct gmi_control *c, int rank, int sys_errno)
{
    if (gmi_socket_is_our_trouble(sys_errno)) {
        cannot_hear(c, rank, sys_errno);
        return;
    }
    struct gmi_failure f = { .status = GM_ERR_PEER_LOST, .culprit = rank, .reporter = c->rank, .sys_errno = sys_errno };
    snprintf(f.cause, sizeof f.cause, "rank %d (%s) is gone: its process ended or was cut off without a goodbye (%s)",
             rank, c->members[rank].address[0] ? c->members[rank].address : "address unknown",
             sys_errno ? strerror(sys_errno) : "end of file");
    fail_from(c, &f, -1);
}

/* ---- who is where ------------------------------------------------------------------------------- */

static void put_place(const struct gmi_member *m, struct gmi_buffer *body)
{
    gmi_buffer_put_text(body, m->address);
    gmi_buffer_put_u64(body, m->host_id);
    gmi_buffer_put_u32(body, m->sharing);
    gmi_buffer_put_u32(body, (uint32_t)m->n_cores);
}

/* False: bytes that cannot be right. */
static bool read_place(struct gmi_member *m, struct gmi_reader *r)
{
    gmi_reader_text(r, m->address, sizeof m->address);
    m->host_id = gmi_reader_u64(r);
    uint32_t sharing = gmi_reader_u32(r);
    uint32_t n_cores = gmi_reader_u32(r);
    m->sharing = (enum gmi_sharing)sharing;
    m->n_cores = (int)n_cores;
    return !r->is_short && sharing <= GMI_SHARES_WITH_ALL && n_cores <= GMI_MAX_CORES;
}

static bool can_share(const struct gmi_member *a, const struct gmi_member *b)
{
    return a->host_id == b->host_id && a->host_id != 0 && a->sharing != GMI_SHARES_NEVER && b->sharing != GMI_SHARES_NEVER;
}

bool gmi_control_may_share(const struct gmi_control *c, int peer) { return can_share(&c->members[c->rank], &c->members[peer]); }

/* Rank `asker` will share memory with everybody, and cannot with `other`. */
static void sharing_refused(struct gmi_control *c, int asker, int other)
{
    const struct gmi_member *a = &c->members[asker], *b = &c->members[other];
    struct gmi_failure       f = { .status = GM_ERR_UNSUPPORTED, .culprit = asker, .reporter = c->rank };
    char                     why[80] = "";
    if (b->sharing == GMI_SHARES_NEVER) {
        snprintf(why, sizeof why, "rank %d uses the transport tcp", other);
    } else if (a->host_id == 0) {
        snprintf(why, sizeof why, "rank %d cannot tell on which host it is", asker);
    } else {
        snprintf(why, sizeof why, "rank %d is on another host", other);
    }
    snprintf(f.cause, sizeof f.cause, "rank %d must share memory with all ranks (transport shm), but %s; the transport auto uses "
             "memory where it can be had and TCP elsewhere", asker, why);
    fail_from(c, &f, -1);
}

/* Has somebody asked for what cannot be? Known before the first data link is made. */
static bool is_sharing_refused(struct gmi_control *c)
{
    for (int a = 0; a < c->n_ranks; a++) {
        if (c->members[a].sharing != GMI_SHARES_WITH_ALL) continue;
        for (int b = 0; b < c->n_ranks; b++) {
            if (a == b || can_share(&c->members[a], &c->members[b])) continue;
            sharing_refused(c, a, b);
            return true;
        }
    }
    return false;
}

/* ---- gathering --------------------------------------------------------------------------------- */

void gmi_control_missing(const struct gmi_control *c, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (!is_hub(c)) {
        snprintf(text, text_bytes, "%s", c->missing);
        return;
    }
    for (int k = 0; k < c->n_ranks && used + 16 < text_bytes; k++) {
        if (c->members[k].has_joined) continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", used ? ", " : "", k);
    }
    if (used + 16 >= text_bytes) snprintf(text + used, text_bytes - used, ", ...");
}

gm_status gmi_control_judge(struct gmi_control *c, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    int rank = peer->rank;
    if (!is_hub(c) || rank <= 0) {
        snprintf(why, why_bytes, "control connections are for ranks 1 to %d, at rank 0; this is rank %d and you are %d",
                 c->n_ranks - 1, c->rank, rank);
        return GM_ERR_REFUSED;
    }
    struct gmi_member *m = &c->members[rank];
    if (c->has_failure && c->phase == GMI_GATHERING) {
        snprintf(why, why_bytes, "start-up has failed: %s", c->failure.cause);
        return c->failure.status;
    }
    if (m->has_left || c->is_leaving || c->has_failure) {
        snprintf(why, why_bytes, "this communicator is ending; come again");
        return GM_ERR_STATE;
    }
    if (m->has_joined && !gmi_socket_is_over(m->courier.fd)) {
        snprintf(why, why_bytes, "rank %d is already taken by the process at %s; each rank may be started once", rank,
                 m->address);
        return GM_ERR_REFUSED;
    }
    if (c->phase == GMI_READY) {
        snprintf(why, why_bytes, "this communicator is complete; come again");
        return GM_ERR_STATE;
    }
    return GM_OK;
}

void gmi_control_admit(struct gmi_control *c, int rank, int fd)
{
    struct gmi_member *m = &c->members[rank];
    gmi_courier_fini(&m->courier);
    gmi_courier_init(&m->courier, fd);
    m->has_joined = false;
}

/* Those who wait hear soon of somebody who has come or gone; not at once, as many may come together. */
static void tell_who_is_missing_soon(struct gmi_control *c)
{
    int64_t soon_ns = gmi_deadline_after_ms(MISSING_AFTER_CHANGE_MS);
    if (soon_ns < c->next_missing_ns) c->next_missing_ns = soon_ns;
}

static void join(struct gmi_control *c, int rank)
{
    c->members[rank].has_joined = true;
    tell_who_is_missing_soon(c);
}

static bool have_all_joined(const struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks; k++) {
        if (!c->members[k].has_joined) return false;
    }
    return true;
}

static void become_ready(struct gmi_control *c)
{
    c->phase = GMI_READY;
    c->notify(c->notify_user);
}

static void announce_ready(struct gmi_control *c)
{
    struct gmi_buffer body = { 0 };
    gmi_random_bytes(&c->session, sizeof c->session);
    gmi_buffer_put_u64(&body, c->session);
    gmi_buffer_put_u32(&body, c->epoch);
    gmi_buffer_put_u32(&body, (uint32_t)c->n_ranks);
    for (int k = 0; k < c->n_ranks; k++) put_place(&c->members[k], &body);
    send_to_all_but(c, -1, GMI_READY_TABLE, &body);
    gmi_buffer_fini(&body);
    become_ready(c);
}

static void conclude_if_complete(struct gmi_control *c)
{
    if (!have_all_joined(c)) return;
    if (c->has_pending) { /* settings differ, and now all are here to be told */
        fail_from(c, &c->pending, -1);
    } else if (!is_sharing_refused(c)) {
        announce_ready(c);
    }
}

static void set_own_address(struct gmi_control *c, const char *address)
{
    snprintf(c->members[c->rank].address, sizeof c->members[c->rank].address, "%s", address);
}

void gmi_control_join_self(struct gmi_control *c, const char *own_address)
{
    set_own_address(c, own_address);
    join(c, c->rank);
    conclude_if_complete(c);
}

void gmi_control_attach(struct gmi_control *c, int fd, const char *own_address)
{
    gmi_courier_init(&c->members[0].courier, fd);
    struct gmi_buffer body = { 0 };
    set_own_address(c, own_address);
    put_place(&c->members[c->rank], &body);
    gmi_buffer_put_text(&body, c->fingerprint);
    gmi_courier_send(&c->members[0].courier, GMI_JOIN, &body);
    gmi_buffer_fini(&body);
}

static void tell_who_is_missing(struct gmi_control *c)
{
    char text[sizeof c->missing];
    gmi_control_missing(c, text, sizeof text);
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_text(&body, text);
    send_to_all_but(c, -1, GMI_MISSING, &body);
    gmi_buffer_fini(&body);
}

/* ---- messages ---------------------------------------------------------------------------------- */

static void bad_message(struct gmi_control *c, int from)
{
    struct gmi_failure f = { .status = GM_ERR_PROTOCOL, .culprit = from, .reporter = c->rank };
    snprintf(f.cause, sizeof f.cause, "rank %d sent a control message that cannot be right", from);
    fail_from(c, &f, -1);
}

static void hear_join(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_member *m = &c->members[from];
    bool           is_good = read_place(m, r);
    size_t         theirs_bytes = gmi_reader_u32(r);
    const uint8_t *theirs = gmi_reader_take(r, theirs_bytes);
    if (!is_good || theirs == NULL || c->phase != GMI_GATHERING) {
        bad_message(c, from);
        return;
    }
    struct gmi_failure f = { .status = GM_ERR_MISMATCH, .culprit = from, .reporter = c->rank };
    if (!c->has_pending &&
        gmi_fingerprint_differs(c->fingerprint, 0, (const char *)theirs, theirs_bytes, from, f.cause, sizeof f.cause)) {
        fail_after(c, &f, LATECOMERS_MS); /* who comes a little later shall hear of it too */
    }
    join(c, from);
    conclude_if_complete(c);
}

static bool hear_ready(struct gmi_control *c, struct gmi_reader *r)
{
    c->session = gmi_reader_u64(r);
    c->epoch = gmi_reader_u32(r);
    if (gmi_reader_u32(r) != (uint32_t)c->n_ranks) return false;
    for (int k = 0; k < c->n_ranks; k++) {
        if (!read_place(&c->members[k], r)) return false;
        c->members[k].has_joined = true;
    }
    become_ready(c);
    return true;
}

static void hear_goodbye(struct gmi_control *c, int from, struct gmi_reader *r)
{
    int      rank = (int)gmi_reader_u32(r);
    uint64_t seq = gmi_reader_u64(r);
    if (r->is_short || rank < 0 || rank >= c->n_ranks || (is_hub(c) && rank != from)) {
        bad_message(c, from);
        return;
    }
    note_goodbye(c, rank, seq);
    if (is_hub(c)) send_goodbye(c, from, rank, seq);
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
    gmi_courier_send(&c->members[is_hub(c) ? k->caller : 0].courier, GMI_CALL_BACK, &body);
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
        k.lane >= c->n_lanes || (is_hub(c) && k.asker != from)) {
        bad_message(c, from);
    } else if (k.caller == c->rank) {
        c->call_back(c->notify_user, k.asker, k.group_id, k.lane);
    } else if (is_hub(c)) {
        send_call_back(c, &k);
    }
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Rank 0: compares with the others that wait in the same call. */
static void note_waiting(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered)
{
    const struct gmi_wait *other = gmi_waits_note(&c->waits, call, peer, has_entered);
    if (other == NULL) return;
    struct gmi_failure f = gmi_failure_of_mismatch(c->rank, call, &other->call);
    fail_from(c, &f, -1);
}

static void put_descriptor(struct gmi_buffer *body, const struct gmi_descriptor *call)
{
    uint8_t wire[GMI_DESCRIPTOR_BYTES];
    gmi_descriptor_encode(call, wire);
    gmi_buffer_append(body, wire, sizeof wire);
}

/* The call of the rank that sent this; false: bad bytes. */
static bool take_descriptor(struct gmi_reader *r, int from, struct gmi_descriptor *call)
{
    const uint8_t *wire = gmi_reader_take(r, GMI_DESCRIPTOR_BYTES);
    return wire != NULL && gmi_descriptor_decode(call, wire) && call->rank == from;
}

void gmi_control_tell_waiting(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered)
{
    if (is_hub(c)) {
        note_waiting(c, call, peer, has_entered);
        return;
    }
    struct gmi_buffer body = { 0 };
    put_descriptor(&body, call);
    gmi_buffer_put_u32(&body, (uint32_t)peer);
    gmi_buffer_put_u32(&body, has_entered);
    gmi_courier_send(&c->members[0].courier, GMI_WAITING, &body);
    gmi_buffer_fini(&body);
}

static void hear_waiting(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_descriptor call;
    bool is_good = take_descriptor(r, from, &call);
    int  peer = (int)gmi_reader_u32(r);
    bool has_entered = gmi_reader_u32(r) != 0;
    if (r->is_short || !is_hub(c) || !is_good || peer < -1 || peer >= c->n_ranks) {
        bad_message(c, from);
        return;
    }
    note_waiting(c, &call, peer, has_entered);
}

/* "rank 0 in send to rank 1 (...), rank 1 in ...": the waits of a circle, or as many as there is room for. */
static void list_waits(const struct gmi_chain *chain, char *text, size_t text_bytes)
{
    size_t used = 0;
    for (int i = 0; i < chain->n_waits && i < GMI_CHAIN_SHOWN && used < text_bytes; i++) {
        char call[96];
        used += (size_t)snprintf(text + used, text_bytes - used, "%srank %d in %s", i > 0 ? ", " : "",
                                 (int)chain->first[i]->call.rank,
                                 gmi_descriptor_format(&chain->first[i]->call, call, sizeof call));
    }
}

static void explain_stall(const struct gmi_control *c, const struct gmi_chain *chain, int limit_ms, char *text, size_t text_bytes)
{
    const struct gmi_wait *last = chain->last;
    bool with_messages = false;
    char waits[220];
    for (int i = 0; i < chain->n_waits && i < GMI_CHAIN_SHOWN; i++) {
        with_messages |= gmi_is_message((gm_collective)chain->first[i]->call.collective);
    }
    if (chain->is_circle && with_messages) {
        list_waits(chain, waits, sizeof waits);
        snprintf(text, text_bytes, "no byte moved for %d ms; ranks wait for each other: %s", limit_ms, waits);
    } else if (gmi_is_message((gm_collective)last->call.collective)) {
        snprintf(text, text_bytes, "no byte moved for %d ms while rank %d waited for rank %d (%s) in %s", limit_ms,
                 (int)last->call.rank, last->peer, c->members[last->peer].address,
                 gmi_descriptor_format(&last->call, waits, sizeof waits));
    } else {
        snprintf(text, text_bytes, "no byte moved for %d ms while rank %d waited for rank %d (%s), which %s", limit_ms,
                 (int)last->call.rank, last->peer, c->members[last->peer].address,
                 last->has_other_entered ? "is in this call too" : "has not entered this call");
    }
}

/* Rank 0: a rank has waited too long. It waits for somebody, who may wait for somebody else; who does not wait is
 * to blame. (All around a circle, when a network swallows bytes: then the first one it waits for.) */
static void blame_for_stall(struct gmi_control *c, const struct gmi_descriptor *call, int limit_ms)
{
    struct gmi_chain chain = gmi_waits_chain(&c->waits, call);
    if (chain.n_waits == 0) return;
    struct gmi_failure f = { .status = GM_ERR_TIMEOUT, .culprit = chain.last->peer, .reporter = call->rank, .op_seq = call->seq };
    explain_stall(c, &chain, limit_ms, f.cause, sizeof f.cause);
    fail_from(c, &f, -1);
}

bool gmi_control_tell_stalled(struct gmi_control *c, const struct gmi_descriptor *call, int limit_ms)
{
    if (is_hub(c)) {
        blame_for_stall(c, call, limit_ms);
        return c->has_failure;
    }
    struct gmi_buffer body = { 0 };
    put_descriptor(&body, call);
    gmi_buffer_put_u32(&body, (uint32_t)limit_ms);
    gmi_courier_send(&c->members[0].courier, GMI_STALLED, &body);
    gmi_buffer_fini(&body);
    return gmi_courier_is_open(&c->members[0].courier);
}

static void hear_stalled(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_descriptor call;
    bool is_good = take_descriptor(r, from, &call);
    int  limit_ms = (int)gmi_reader_u32(r);
    if (r->is_short || !is_hub(c) || !is_good) {
        bad_message(c, from);
    } else {
        blame_for_stall(c, &call, limit_ms);
    }
}

static void hear(struct gmi_control *c, int from, uint8_t kind, struct gmi_reader *r)
{
    struct gmi_failure failure;
    if (kind == GMI_FAILURE && gmi_failure_decode(&failure, r)) {
        fail_from(c, &failure, from);
    } else if (kind == GMI_GOODBYE) {
        hear_goodbye(c, from, r);
    } else if (kind == GMI_CALL_BACK) {
        hear_call_back(c, from, r);
    } else if (kind == GMI_WAITING) {
        hear_waiting(c, from, r);
    } else if (kind == GMI_STALLED) {
        hear_stalled(c, from, r);
    } else if (kind == GMI_JOIN && is_hub(c)) {
        hear_join(c, from, r);
    } else if (kind == GMI_MISSING && !is_hub(c)) {
        gmi_reader_text(r, c->missing, sizeof c->missing);
    } else if (kind != GMI_READY_TABLE || is_hub(c) || !hear_ready(c, r)) {
        bad_message(c, from);
    }
}

/* The connection has ended: is that a loss? */
static void connection_ended(struct gmi_control *c, int rank)
{
    struct gmi_member *m = &c->members[rank];
    int sys_errno = m->courier.sys_errno;
    gmi_courier_fini(&m->courier);
    if (c->is_leaving) c->notify(c->notify_user); /* who waits for the last one to close */
    if (m->has_left || c->is_leaving) return;
    if (is_hub(c) && c->phase == GMI_GATHERING) {
        /* It may come back, or another process in its place. */
        gmi_log(c->log, GM_LOG_WARN, "rank %d went away while the others were still gathering", rank);
        m->has_joined = false;
        tell_who_is_missing_soon(c);
        return;
    }
    lost(c, rank, sys_errno);
}

static void step_member(struct gmi_control *c, int rank)
{
    struct gmi_courier *courier = &c->members[rank].courier;
    size_t              max_body_bytes = MAX_FINGERPRINT_BYTES + 1024 + (size_t)c->n_ranks * (GMI_ADDRESS_TEXT_BYTES + 16);
    uint8_t             kind;
    struct gmi_reader   body;
    if (courier->fd < 0) return;
    while (gmi_courier_next(courier, max_body_bytes, &kind, &body)) hear(c, rank, kind, &body);
    if (courier->is_over) connection_ended(c, rank);
}

void gmi_control_watch(struct gmi_control *c, struct gmi_poller *poller)
{
    for (int k = 0; k < c->n_ranks; k++) gmi_courier_watch(&c->members[k].courier, poller);
}

int64_t gmi_control_next_ns(const struct gmi_control *c)
{
    int64_t next_ns = is_hub(c) && c->phase == GMI_GATHERING ? c->next_missing_ns : GMI_NEVER;
    return c->has_pending && c->pending_until_ns < next_ns ? c->pending_until_ns : next_ns;
}

void gmi_control_step(struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks; k++) step_member(c, k);
    if (is_hub(c) && c->phase == GMI_GATHERING && gmi_deadline_passed(c->next_missing_ns)) {
        tell_who_is_missing(c);
        c->next_missing_ns = gmi_deadline_after_ms(MISSING_EVERY_MS);
    }
    if (c->has_pending && gmi_deadline_passed(c->pending_until_ns)) {
        c->has_pending = false;
        fail_from(c, &c->pending, -1);
    }
    for (int k = 0; k < c->n_ranks; k++) gmi_courier_flush(&c->members[k].courier);
}
