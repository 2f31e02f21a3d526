/* control_move.c - the middle of the star moves on when it leaves.
 *
 *     rank 0 leaves:      goodbye -> 1, 2, 3            each ends its side of the connection, after all it had to
 *                                                       say; rank 0 passes that on, and goes when all have ended
 *     everybody:          the next middle is the lowest rank that has not left
 *     the others:         call it a moment later; what they have to tell is held until then
 *     the new middle:     holds what is for those who have not called yet, and misses those who never do
 *                         (control_pulse.c)
 *
 *   1. All know the same goodbyes in the end, so all choose the same middle; who knows less for a moment calls one
 *      that has left, is told to come again, and hears of it over the old connection.
 *   2. Who leaves while the middle moves calls at once, says goodbye there, and is not drained before.
 *   3. With a failure nothing begins to move. A move that has begun goes on, if only to tell of the failure: who ends
 *      before the others have called takes the reason with him, and would be blamed for it. */
#include <stdio.h>

#include "base/clock.h"
#include "comm/control_parts.h"

/* At the end of a job most leave together; they need no new middle. */
enum { GRACE_MS = 20 };

bool gmi_control_is_expected(const struct gmi_control *c, int rank)
{
    const struct gmi_member *m = &c->members[rank];
    if (c->phase != GMI_READY || rank == c->rank || m->has_left || m->courier.stream.fd >= 0) return false;
    return gmi_control_is_hub(c) ? !m->has_joined : c->is_moving && rank == c->hub;
}

bool gmi_control_awaits_callers(const struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks && gmi_control_is_hub(c); k++) {
        if (c->phase == GMI_GATHERING ? !c->members[k].has_joined : gmi_control_is_expected(c, k)) return true;
    }
    return false;
}

static int lowest_left_over(const struct gmi_control *c)
{
    int rank = 0;
    while (rank < c->rank && c->members[rank].has_left) rank++;
    return rank;
}

/* Those who have not called yet are missed from now on. */
static void become_hub(struct gmi_control *c)
{
    if (c->waits.all == NULL && gmi_waits_init(&c->waits, c->n_ranks) != GM_OK) {
        struct gmi_failure f = { .status = GM_ERR_NOMEM, .culprit = c->rank, .reporter = c->rank };
        snprintf(f.cause, sizeof f.cause, "rank %d has no memory to take over from a rank that left", c->rank);
        gmi_control_fail_from(c, &f, -1);
        return;
    }
    for (int k = 0; k < c->n_ranks; k++) {
        if (k == c->rank || c->members[k].has_left) continue;
        c->members[k].has_joined = false;
        gmi_control_heard(c, k);
    }
}

void gmi_control_move(struct gmi_control *c)
{
    struct gmi_member *old = &c->members[c->hub];
    bool must_say_goodbye = c->is_leaving && c->is_moving; /* else it is on the old connection */
    gmi_courier_finish(&old->courier);
    gmi_buffer_fini(&old->held); /* but for a goodbye: what ranks tell is told again with each heartbeat */
    if (c->has_pending && c->pending.culprit == c->hub) c->has_pending = false;
    c->is_moving = false;
    if (c->has_failure || c->phase != GMI_READY || (c->is_leaving && !must_say_goodbye)) return;
    c->hub = lowest_left_over(c);
    if (gmi_control_is_hub(c)) {
        become_hub(c);
        c->was_hub = must_say_goodbye;
    } else {
        c->is_moving = true;
        c->move_ns = gmi_deadline_after_ms(must_say_goodbye ? 1 : GRACE_MS);
        gmi_control_heard(c, c->hub);
    }
    if (must_say_goodbye) gmi_control_send_goodbye(c, -1, c->rank, c->members[c->rank].left_after_seq);
}

gm_status gmi_control_judge_move(struct gmi_control *c, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    if (c->phase != GMI_READY || peer->session != c->session) {
        snprintf(why, why_bytes, "this is another run of the same job");
        return GM_ERR_REFUSED;
    }
    if (!gmi_control_is_expected(c, peer->rank) || (c->is_leaving && !c->was_hub)) {
        snprintf(why, why_bytes, "rank %d does not expect a control connection of rank %d now; come again", c->rank, (int)peer->rank);
        return GM_ERR_STATE;
    }
    return GM_OK;
}

void gmi_control_connect(struct gmi_control *c, int rank, struct gmi_stream stream)
{
    struct gmi_member *m = &c->members[rank];
    m->has_joined = true;
    gmi_courier_fini(&m->courier);
    gmi_courier_init(&m->courier, stream);
    m->courier.out = m->held;
    m->held = (struct gmi_buffer){ 0 };
    gmi_control_heard(c, rank);
    gmi_courier_flush(&m->courier);
}

void gmi_control_moved(struct gmi_control *c, struct gmi_stream stream)
{
    c->is_moving = false;
    gmi_control_connect(c, c->hub, stream);
    gmi_log(c->log, GM_LOG_DEBUG, "rank %d: rank %d is in the middle of the control connections now", c->rank, c->hub);
    if (c->is_leaving) gmi_courier_finish(&c->members[c->hub].courier);
}

void gmi_control_cannot_move(struct gmi_control *c)
{
    c->is_moving = false;
    c->notify(c->notify_user);
}
