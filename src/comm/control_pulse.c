/* control_pulse.c - heartbeats: who has gone silent, and whether that is the end of him.
 *
 *     every BEAT_MS   each rank tells the middle, and the middle tells each rank, what it is doing
 *
 *     silence         on an observer's word                      without an observer
 *     SUSPECT_MS      stopped: a failure                         suspected
 *                     gone: a failure
 *                     anything else: a straggler, logged
 *     UNOBSERVED_MS                                              a failure
 *
 * An observer is a rank that sees the silent one's process in /proc: the watcher itself, or one that it asks.
 * The middle watches all others, who watch the middle.
 *
 *   1. A kernel goes on acknowledging for a frozen process, and a process in its caller's code goes on beating: so
 *      silence is about the process, never about its progress.
 *   2. A host or a link that is gone shows otherwise: what was sent stays unacknowledged, and the kernel ends the
 *      connection (gmi_socket_expect_answers).
 *   3. If the caller has set a stall limit, nothing is concluded from silence before that.
 *   4. A watcher that has slept for too long itself (a suspended machine, a stopped process) counts anew. */
#include <stdio.h>

#include "base/clock.h"
#include "comm/control_parts.h"

enum { BEAT_MS = 500, SUSPECT_MS = 2000, UNOBSERVED_MS = 5000, LOOK_EVERY_MS = 500, TELL_EVERY_MS = 10000 };

void gmi_control_heard(struct gmi_control *c, int rank)
{
    struct gmi_pulse *p = &c->members[rank].pulse;
    if (p->is_suspected) gmi_log(c->log, GM_LOG_INFO, "rank %d: rank %d is heard again", c->rank, rank);
    *p = (struct gmi_pulse){ .heard_ns = gmi_now_ns() };
}

/* ---- what we tell of ourselves ------------------------------------------------------------------- */

/* Our own, made fresh; the waits are noted when they are told. */
static const struct gmi_progress *own_progress(struct gmi_control *c)
{
    struct gmi_progress *own = &c->members[c->rank].progress;
    if (c->observe != NULL) c->observe(c->notify_user, own);
    own->told_ns = gmi_now_ns();
    if (own->wait.is_known) {
        own->doing = GMI_WAITS_FOR;
        own->since_ns = own->wait.since_ns;
    }
    return own;
}

static void send_beat(struct gmi_control *c)
{
    const struct gmi_progress *own = own_progress(c);
    struct gmi_buffer          body = { 0 };
    int64_t                    now_ns = gmi_now_ns();
    gmi_buffer_put_u32(&body, own->doing);
    gmi_buffer_put_u64(&body, own->entered_seq);
    gmi_buffer_put_u64(&body, own->done_seq);
    gmi_buffer_put_u64(&body, own->since_ns != 0 ? (uint64_t)(now_ns - own->since_ns) : UINT64_MAX);
    if (own->doing == GMI_WAITS_FOR) {
        gmi_buffer_put_u32(&body, (uint32_t)own->wait.peer);
        gmi_buffer_put_u32(&body, own->wait.has_other_entered);
        gmi_control_put_descriptor(&body, &own->wait.call);
    }
    for (int k = 0; k < c->n_ranks; k++) {
        /* Who does not read gets no more: its socket would fill. */
        if (!c->members[k].pulse.is_suspected) gmi_courier_send(&c->members[k].courier, GMI_BEAT, &body);
    }
    gmi_buffer_fini(&body);
}

void gmi_control_hear_beat(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_progress p = { .doing = (enum gmi_doing)gmi_reader_u32(r) };
    bool                is_good = true;
    p.entered_seq = gmi_reader_u64(r);
    p.done_seq = gmi_reader_u64(r);
    uint64_t for_ns = gmi_reader_u64(r);
    p.since_ns = for_ns < INT64_MAX ? gmi_now_ns() - (int64_t)for_ns : 0;
    if (p.doing == GMI_WAITS_FOR) {
        p.wait.is_known = true;
        p.wait.peer = (int)gmi_reader_u32(r);
        p.wait.has_other_entered = gmi_reader_u32(r) != 0;
        is_good = gmi_control_take_descriptor(r, from, &p.wait.call) && p.wait.peer >= 0 && p.wait.peer < c->n_ranks;
    }
    if (r->is_short || !is_good || (unsigned)p.doing > GMI_WAITS_FOR) {
        gmi_control_bad_message(c, from);
        return;
    }
    p.told_ns = gmi_now_ns();
    c->members[from].progress = p;
    if (gmi_control_is_hub(c) && p.wait.is_known) gmi_control_note_waiting(c, &p.wait.call, p.wait.peer, p.wait.has_other_entered);
}

const char *gmi_control_doing(struct gmi_control *c, int rank, char *text, size_t text_bytes)
{
    const struct gmi_member   *m = &c->members[rank];
    const struct gmi_progress *p = rank == c->rank ? own_progress(c) : &m->progress;
    char   since[32] = "", call[128];
    double for_s = (double)(gmi_now_ns() - p->since_ns) / 1e9;
    if (p->since_ns != 0) snprintf(since, sizeof since, " for %.1f s", for_s < 0 ? 0 : for_s);
    if (m->has_left) {
        snprintf(text, text_bytes, "has left after call #%llu", (unsigned long long)m->left_after_seq);
    } else if (m->pulse.is_suspected) {
        snprintf(text, text_bytes, "silent for %.1f s; its process is %s", (double)(gmi_now_ns() - m->pulse.heard_ns) / 1e9,
                 gmi_process_state_name(m->pulse.seen_state));
    } else if (p->doing == GMI_WAITS_FOR) {
        snprintf(text, text_bytes, "waits for rank %d in %s%s", p->wait.peer, gmi_descriptor_format(&p->wait.call, call, sizeof call),
                 since);
    } else if (p->doing == GMI_IN_A_CALL) {
        snprintf(text, text_bytes, "in call #%llu%s", (unsigned long long)p->entered_seq, since);
    } else {
        snprintf(text, text_bytes, "in its own code%s, after call #%llu", since, (unsigned long long)p->entered_seq);
    }
    return text;
}

/* ---- who is silent ------------------------------------------------------------------------------- */

static bool is_watched(const struct gmi_control *c, int rank)
{
    const struct gmi_member *m = &c->members[rank];
    if (rank == c->rank || m->has_left || m->pulse.heard_ns == 0) return false;
    return gmi_control_is_hub(c) ? c->phase == GMI_READY : rank == c->hub;
}

static bool is_watching(const struct gmi_control *c) { return !c->has_failure && !c->is_leaving; }

static int64_t silence_ns(const struct gmi_control *c, int rank, int64_t now_ns) { return now_ns - c->members[rank].pulse.heard_ns; }

/* So long a silence is borne; the caller's own limit rules. */
static int64_t patience_ns(const struct gmi_control *c, int64_t least_ms)
{
    int limit_ms = atomic_load(&c->own_limit_ms);
    if (limit_ms == 0) return GMI_NEVER;
    return (limit_ms > least_ms ? limit_ms : least_ms) * GMI_NS_PER_MS;
}

bool gmi_control_is_in_doubt(const struct gmi_control *c)
{
    if (!is_watching(c)) return false;
    int64_t now_ns = gmi_now_ns();
    for (int k = 0; k < c->n_ranks; k++) {
        int64_t silent_ns = is_watched(c, k) ? silence_ns(c, k, now_ns) : 0;
        if (silent_ns >= 2 * BEAT_MS * GMI_NS_PER_MS && silent_ns < (UNOBSERVED_MS + BEAT_MS) * GMI_NS_PER_MS) return true;
    }
    return false;
}

/* A rank that sees this one's process and is not silent itself; -1: none. */
static int find_observer(const struct gmi_control *c, int rank)
{
    for (int k = 0; k < c->n_ranks && gmi_control_is_hub(c); k++) {
        const struct gmi_member *m = &c->members[k];
        if (k == rank || m->has_left || m->pulse.is_suspected || !gmi_courier_is_open(&m->courier)) continue;
        if (gmi_process_is_near(&m->process, &c->members[rank].process)) return k;
    }
    return -1;
}

static void look(struct gmi_control *c, int rank)
{
    struct gmi_member *m = &c->members[rank];
    m->pulse.look_ns = gmi_deadline_after_ms(LOOK_EVERY_MS);
    if (gmi_process_is_near(&c->members[c->rank].process, &m->process)) {
        m->pulse.seen_state = gmi_process_state(&m->process);
        m->pulse.seen_by = c->rank;
        return;
    }
    int observer = find_observer(c, rank);
    if (observer < 0) return;
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_u32(&body, (uint32_t)rank);
    gmi_courier_send(&c->members[observer].courier, GMI_LOOK, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_hear_look(struct gmi_control *c, int from, struct gmi_reader *r)
{
    uint32_t rank = gmi_reader_u32(r);
    if (r->is_short || from != c->hub || rank >= (uint32_t)c->n_ranks) {
        gmi_control_bad_message(c, from);
        return;
    }
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_u32(&body, rank);
    gmi_buffer_put_u32(&body, (uint8_t)gmi_process_state(&c->members[rank].process));
    gmi_control_send_to_hub(c, GMI_SEEN, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_hear_seen(struct gmi_control *c, int from, struct gmi_reader *r)
{
    uint32_t rank = gmi_reader_u32(r), state = gmi_reader_u32(r);
    if (r->is_short || !gmi_control_is_hub(c) || rank >= (uint32_t)c->n_ranks || state > 127) {
        gmi_control_bad_message(c, from);
        return;
    }
    if (!c->members[rank].pulse.is_suspected) return;
    c->members[rank].pulse.seen_state = (char)state;
    c->members[rank].pulse.seen_by = from;
}

/* ---- what it means ------------------------------------------------------------------------------- */

static void fail_silent(struct gmi_control *c, int rank, int64_t silent_ns)
{
    const struct gmi_member *m = &c->members[rank];
    struct gmi_failure f = { .status = GM_ERR_PEER_LOST, .culprit = rank, .reporter = c->rank };
    f.op_seq = m->progress.entered_seq;
    double silent_s = (double)silent_ns / 1e9;
    if (m->pulse.seen_state != GMI_PROCESS_UNKNOWN) {
        snprintf(f.cause, sizeof f.cause, "rank %d (%s) does not go on: its process %u is %s, as rank %d sees, and it has been "
                 "silent for %.1f s", rank, m->address, m->process.pid, gmi_process_state_name(m->pulse.seen_state),
                 m->pulse.seen_by, silent_s);
    } else {
        snprintf(f.cause, sizeof f.cause, "rank %d (%s) does not go on: it has been silent for %.1f s, and nobody on its host can "
                 "tell why", rank, m->address, silent_s);
    }
    gmi_control_fail_from(c, &f, -1);
}

static void tell_of_straggler(struct gmi_control *c, int rank, int64_t silent_ns)
{
    struct gmi_pulse *p = &c->members[rank].pulse;
    if (p->tell_ns != 0 && !gmi_deadline_passed(p->tell_ns)) return;
    p->tell_ns = gmi_deadline_after_ms(TELL_EVERY_MS);
    gmi_log(c->log, GM_LOG_WARN, "rank %d: rank %d has been silent for %.1f s, but its process is %s: a straggler", c->rank, rank,
            (double)silent_ns / 1e9, gmi_process_state_name(p->seen_state));
}

static void judge(struct gmi_control *c, int rank, int64_t now_ns)
{
    struct gmi_pulse *p = &c->members[rank].pulse;
    int64_t silent_ns = silence_ns(c, rank, now_ns);
    if (silent_ns < SUSPECT_MS * GMI_NS_PER_MS) return;
    p->is_suspected = true;
    if (p->look_ns == 0 || now_ns >= p->look_ns) look(c, rank);
    bool is_unseen = p->seen_state == GMI_PROCESS_UNKNOWN, is_gone = p->seen_state == GMI_PROCESS_GONE;
    bool is_stopped = p->seen_state == GMI_PROCESS_STOPPED;
    if (is_gone || (is_stopped && silent_ns >= patience_ns(c, SUSPECT_MS)) ||
        (is_unseen && silent_ns >= patience_ns(c, UNOBSERVED_MS))) {
        fail_silent(c, rank, silent_ns);
    } else if (!is_unseen && !is_stopped) {
        tell_of_straggler(c, rank, silent_ns);
    }
}

/* We have not looked for so long that we cannot know whether the others were silent. */
static void count_anew_if_overslept(struct gmi_control *c, int64_t now_ns)
{
    bool has_overslept = c->stepped_ns != 0 && now_ns - c->stepped_ns > GMI_OVERSLEPT_MS * GMI_NS_PER_MS;
    c->stepped_ns = now_ns;
    for (int k = 0; has_overslept && k < c->n_ranks; k++) {
        struct gmi_pulse *p = &c->members[k].pulse;
        if (p->heard_ns != 0) *p = (struct gmi_pulse){ .heard_ns = now_ns };
    }
}

void gmi_control_pulse_step(struct gmi_control *c)
{
    int64_t now_ns = gmi_now_ns();
    count_anew_if_overslept(c, now_ns);
    for (int k = 0; k < c->n_ranks && is_watching(c); k++) {
        if (is_watched(c, k)) judge(c, k, now_ns);
    }
    if (now_ns < c->next_beat_ns || c->has_failure) return;
    c->next_beat_ns = now_ns + BEAT_MS * GMI_NS_PER_MS;
    send_beat(c);
    if (gmi_control_is_hub(c) && is_watching(c) && c->phase == GMI_READY) gmi_control_name_stragglers(c, now_ns);
}

int64_t gmi_control_pulse_next_ns(const struct gmi_control *c)
{
    if (c->has_failure) return GMI_NEVER;
    int64_t next_ns = c->next_beat_ns;
    for (int k = 0; k < c->n_ranks && is_watching(c); k++) {
        const struct gmi_pulse *p = &c->members[k].pulse;
        if (!is_watched(c, k)) continue;
        int64_t at_ns = p->is_suspected ? p->look_ns : p->heard_ns + SUSPECT_MS * GMI_NS_PER_MS;
        if (at_ns < next_ns) next_ns = at_ns;
    }
    return next_ns;
}
