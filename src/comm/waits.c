#include "comm/waits.h"

#include "base/alloc.h"
#include "base/clock.h"

gm_status gmi_waits_init(struct gmi_waits *w, int n_ranks)
{
    *w = (struct gmi_waits){ .n_ranks = n_ranks };
    w->all = gmi_alloc((size_t)n_ranks * GMI_WAITS_PER_RANK, sizeof *w->all);
    return w->all != NULL ? GM_OK : GM_ERR_NOMEM;
}

void gmi_waits_fini(struct gmi_waits *w)
{
    gmi_free(w->all);
    w->all = NULL;
}

static struct gmi_wait *waits_of(const struct gmi_waits *w, int rank)
{
    return &w->all[rank * GMI_WAITS_PER_RANK];
}

static bool is_message(const struct gmi_descriptor *d)
{
    return gmi_is_message((gm_collective)d->collective);
}

/* One queue of one communicator. */
static bool is_same_queue(const struct gmi_descriptor *a, const struct gmi_descriptor *b)
{
    return a->group == b->group && is_message(a) == is_message(b);
}

/* The rank's place for this queue: the one it has, a free one, or that of a wait that is over. */
static struct gmi_wait *place_for(const struct gmi_waits *w, const struct gmi_descriptor *call)
{
    struct gmi_wait *own = waits_of(w, call->rank), *place = NULL;
    for (int i = 0; i < GMI_WAITS_PER_RANK; i++) {
        if (own[i].is_known && is_same_queue(&own[i].call, call)) return &own[i];
        if (place == NULL && (!own[i].is_known || own[i].peer < 0)) place = &own[i];
    }
    return place != NULL ? place : &own[0];
}

const struct gmi_wait *gmi_waits_note(struct gmi_waits *w, const struct gmi_descriptor *call,
                                      int peer, bool has_entered)
{
    struct gmi_wait *place = place_for(w, call);
    bool is_going_on = place->is_known && place->peer >= 0 && place->call.seq == call->seq && is_same_queue(&place->call, call);
    *place = (struct gmi_wait){ .is_known = true, .call = *call, .peer = peer, .has_other_entered = has_entered,
                                .since_ns = is_going_on ? place->since_ns : gmi_now_ns() };
    for (int i = 0; i < w->n_ranks * GMI_WAITS_PER_RANK && !is_message(call); i++) {
        const struct gmi_wait *other = &w->all[i];
        if (!other->is_known || !is_same_queue(&other->call, call) || other->call.seq != call->seq)
            continue;
        if (!gmi_descriptor_same(&other->call, call)) return other;
    }
    return NULL;
}

bool gmi_waits_is_waiting(const struct gmi_waits *w, int rank)
{
    const struct gmi_wait *own = waits_of(w, rank);
    for (int i = 0; w->all != NULL && i < GMI_WAITS_PER_RANK; i++) {
        if (own[i].is_known && own[i].peer >= 0) return true;
    }
    return false;
}

/* In what a rank waits, the same call rather than another one; NULL: it does not wait. */
static const struct gmi_wait *wait_of(const struct gmi_waits *w, int rank,
                                      const struct gmi_descriptor *like)
{
    const struct gmi_wait *own = waits_of(w, rank), *found = NULL;
    for (int i = 0; i < GMI_WAITS_PER_RANK; i++) {
        if (!own[i].is_known || own[i].peer < 0) continue;
        if (is_same_queue(&own[i].call, like) && own[i].call.seq == like->seq) return &own[i];
        found = &own[i];
    }
    return found;
}

struct gmi_chain gmi_waits_chain(const struct gmi_waits *w, const struct gmi_descriptor *call)
{
    struct gmi_chain       chain = { .n_waits = 0 };
    const struct gmi_wait *next = wait_of(w, call->rank, call);
    while (next != NULL && chain.n_waits < w->n_ranks && (chain.n_waits == 0 || next != chain.first[0])) {
        if (chain.n_waits < GMI_CHAIN_SHOWN) chain.first[chain.n_waits] = next;
        chain.n_waits++;
        chain.last = next;
        next = wait_of(w, next->peer, &next->call);
    }
    chain.is_circle = next != NULL;
    if (chain.is_circle) chain.last = chain.first[0];
    return chain;
}
