/* control_waits.c - who waits for whom: two calls that differ, and who is to blame for a stall. */
#include <stdio.h>

#include "base/clock.h"
#include "comm/control_parts.h"

/* Rank 0: compares with the others that wait in the same call. */
void gmi_control_note_waiting(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered)
{
    struct gmi_progress *p = &c->members[call->rank].progress;
    if (call->group == c->group_id && call->seq > p->entered_seq) p->entered_seq = call->seq;
    const struct gmi_wait *other = gmi_waits_note(&c->waits, call, peer, has_entered);
    if (other == NULL) return;
    struct gmi_failure f = gmi_failure_of_mismatch(c->rank, call, &other->call);
    gmi_control_fail_from(c, &f, -1);
}

void gmi_control_put_descriptor(struct gmi_buffer *body, const struct gmi_descriptor *call)
{
    uint8_t wire[GMI_DESCRIPTOR_BYTES];
    gmi_descriptor_encode(call, wire);
    gmi_buffer_append(body, wire, sizeof wire);
}

/* The call of the rank that sent this; false: bad bytes. */
bool gmi_control_take_descriptor(struct gmi_reader *r, int from, struct gmi_descriptor *call)
{
    const uint8_t *wire = gmi_reader_take(r, GMI_DESCRIPTOR_BYTES);
    return wire != NULL && gmi_descriptor_decode(call, wire) && call->rank == from;
}

/* What our heartbeats say; of several waits the last one. */
static void note_own_wait(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered)
{
    struct gmi_wait *own = &c->members[c->rank].progress.wait;
    bool is_other = own->is_known && own->peer >= 0 && (own->call.group != call->group || own->call.seq != call->seq);
    if (peer < 0 && is_other) return;
    *own = (struct gmi_wait){ .is_known = peer >= 0, .call = *call, .peer = peer, .has_other_entered = has_entered,
                              .since_ns = call->arrival_ns };
}

void gmi_control_tell_waiting(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered)
{
    note_own_wait(c, call, peer, has_entered);
    if (gmi_control_is_hub(c)) {
        gmi_control_note_waiting(c, call, peer, has_entered);
        return;
    }
    struct gmi_buffer body = { 0 };
    gmi_control_put_descriptor(&body, call);
    gmi_buffer_put_u32(&body, (uint32_t)peer);
    gmi_buffer_put_u32(&body, has_entered);
    gmi_control_send_to_hub(c, GMI_WAITING, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_hear_waiting(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_descriptor call;
    bool is_good = gmi_control_take_descriptor(r, from, &call);
    int  peer = (int)gmi_reader_u32(r);
    bool has_entered = gmi_reader_u32(r) != 0;
    if (r->is_short || !gmi_control_is_hub(c) || !is_good || peer < -1 || peer >= c->n_ranks) {
        gmi_control_bad_message(c, from);
        return;
    }
    gmi_control_note_waiting(c, &call, peer, has_entered);
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

/* Has it not begun this collective of the root, by a heartbeat that is younger than the wait? */
static bool is_absent(const struct gmi_control *c, const struct gmi_wait *wait, int rank)
{
    const struct gmi_member *m = &c->members[rank];
    if (wait->call.group != c->group_id || gmi_is_message((gm_collective)wait->call.collective)) return false;
    return !m->has_left && m->progress.told_ns >= wait->since_ns && m->progress.entered_seq < wait->call.seq;
}

/* "; nor has rank 5, 6": who besides `named` has not begun this collective of the root, by the heartbeats. */
static void list_other_absentees(const struct gmi_control *c, const struct gmi_wait *wait, char *text, size_t text_bytes)
{
    size_t used = 0;
    int    n = 0;
    text[0] = '\0';
    for (int k = 0; k < c->n_ranks; k++) {
        if (k == wait->peer || !is_absent(c, wait, k)) continue;
        if (used + 16 < text_bytes) used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", n ? ", " : "; nor has rank ", k);
        n++;
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
        char others[80] = "";
        if (!last->has_other_entered) list_other_absentees(c, last, others, sizeof others);
        snprintf(text, text_bytes, "no byte moved for %d ms while rank %d waited for rank %d (%s), which %s%s", limit_ms,
                 (int)last->call.rank, last->peer, c->members[last->peer].address,
                 last->has_other_entered ? "is in this call too" : "has not entered this call", others);
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
    gmi_control_fail_from(c, &f, -1);
}

bool gmi_control_tell_stalled(struct gmi_control *c, const struct gmi_descriptor *call, int limit_ms)
{
    if (gmi_control_is_hub(c)) {
        blame_for_stall(c, call, limit_ms);
        return c->has_failure;
    }
    struct gmi_buffer body = { 0 };
    gmi_control_put_descriptor(&body, call);
    gmi_buffer_put_u32(&body, (uint32_t)limit_ms);
    gmi_control_send_to_hub(c, GMI_STALLED, &body);
    gmi_buffer_fini(&body);
    return c->is_moving || gmi_courier_is_open(&c->members[c->hub].courier);
}

void gmi_control_hear_stalled(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_descriptor call;
    bool is_good = gmi_control_take_descriptor(r, from, &call);
    int  limit_ms = (int)gmi_reader_u32(r);
    if (r->is_short || !gmi_control_is_hub(c) || !is_good) {
        gmi_control_bad_message(c, from);
    } else {
        blame_for_stall(c, &call, limit_ms);
    }
}

/* ---- stragglers -------------------------------------------------------------------------------- */

enum { WARN_AFTER_MS = 5000, WARN_EVERY_MS = 10000 };

static int64_t warn_after_ns(const struct gmi_control *c)
{
    int limit_ms = atomic_load(&c->own_limit_ms);
    return (limit_ms > 0 && limit_ms / 2 < WARN_AFTER_MS ? limit_ms / 2 : WARN_AFTER_MS) * GMI_NS_PER_MS;
}

static const struct gmi_wait *longest_wait(const struct gmi_waits *w)
{
    const struct gmi_wait *longest = NULL;
    for (int i = 0; i < w->n_ranks * GMI_WAITS_PER_RANK; i++) {
        const struct gmi_wait *each = &w->all[i];
        if (!each->is_known || each->peer < 0) continue;
        if (longest == NULL || each->since_ns < longest->since_ns) longest = each;
    }
    return longest;
}

/* "rank 2 (in its own code for 7.1 s after call #16), rank 5 (...)": for whom the call waits in the end. */
static void list_stragglers(struct gmi_control *c, const struct gmi_wait *wait, char *text, size_t text_bytes)
{
    struct gmi_chain chain = gmi_waits_chain(&c->waits, &wait->call);
    size_t used = 0;
    char   doing[160];
    for (int k = 0; k < c->n_ranks && used + 200 < text_bytes; k++) {
        bool is_last = chain.n_waits > 0 && chain.last->peer == k;
        if (!is_last && !is_absent(c, wait, k)) continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%srank %d (%s)", used ? ", " : "", k,
                                 gmi_control_doing(c, k, doing, sizeof doing));
    }
    if (used == 0) snprintf(text, text_bytes, "rank %d", wait->peer);
}

void gmi_control_name_stragglers(struct gmi_control *c, int64_t now_ns)
{
    const struct gmi_wait *wait = longest_wait(&c->waits);
    if (wait == NULL || now_ns - wait->since_ns < warn_after_ns(c) || now_ns < c->next_warning_ns) return;
    char who[600], call[128], text[800];
    list_stragglers(c, wait, who, sizeof who);
    snprintf(text, sizeof text, "%s has waited for %.1f s, on rank %d and others, for %s",
             gmi_descriptor_format(&wait->call, call, sizeof call), (double)(now_ns - wait->since_ns) / 1e9,
             (int)wait->call.rank, who);
    c->next_warning_ns = now_ns + WARN_EVERY_MS * GMI_NS_PER_MS;
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_text(&body, text);
    for (int k = 0; k < c->n_ranks; k++) {
        if (gmi_waits_is_waiting(&c->waits, k)) gmi_courier_send(&c->members[k].courier, GMI_NOTE, &body);
    }
    gmi_buffer_fini(&body);
    gmi_log(c->log, GM_LOG_WARN, "rank %d: straggler: %s", c->rank, text);
}

void gmi_control_hear_note(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_failure line = { 0 }; /* for its one-line rule: what others say goes into our log */
    gmi_reader_text(r, line.cause, sizeof line.cause);
    if (r->is_short || from != c->hub) {
        gmi_control_bad_message(c, from);
        return;
    }
    gmi_failure_make_one_line(&line);
    gmi_log(c->log, GM_LOG_WARN, "rank %d: straggler: %s", c->rank, line.cause);
}
