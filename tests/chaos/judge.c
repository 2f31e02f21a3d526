/* judge.c - is what the ranks report what is right after such a fault? */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/chaos/chaos.h"

struct hearing {
    const struct chaos_plan *plan;
    struct ranks_shared     *shared;
    int                      other_end; /* of what was cut; -1: not known */
    struct chaos_verdict     verdict;
};

__attribute__((format(printf, 3, 4))) static void complain(struct hearing *h, bool *kind, const char *format, ...)
{
    va_list args;
    *kind = true;
    if (h->verdict.why[0] != '\0') return;
    va_start(args, format);
    vsnprintf(h->verdict.why, sizeof h->verdict.why, format, args);
    va_end(args);
}

static bool is_guilty(const struct hearing *h, int culprit)
{
    const struct chaos_plan *p = h->plan;
    if (chaos_is_victim(p, culprit)) return true;
    if (p->fault->outcome != CHAOS_CUT || culprit < 0) return false;
    if (h->other_end >= 0) return culprit == h->other_end;
    return h->shared->records[culprit].numbers[CHAOS_IS_OVER]; /* whose end was gone when it was looked for */
}

/* In words, where there is no culprit in the record yet: "still missing: rank 2". */
static bool names_victim(const struct hearing *h, const char *text)
{
    for (const char *c = strstr(text, "rank"); c != NULL; c = strstr(c + 1, "rank")) {
        for (const char *d = c + 4; *d != '\0' && strchr("(s) ,0123456789and", *d) != NULL; d++) {
            int number, used = 0;
            if (sscanf(d, "%d%n", &number, &used) == 1 && chaos_is_victim(h->plan, number)) return true;
        }
    }
    return false;
}

static bool is_right_error(const struct hearing *h, const struct rank_record *r)
{
    if (is_guilty(h, r->error.culprit)) return true;
    if (r->error.culprit < 0 && h->plan->phase != CHAOS_CALLING) return names_victim(h, r->error.text);
    return h->plan->fault->outcome == CHAOS_MISMATCH && r->status == GM_ERR_MISMATCH && names_victim(h, r->error.text);
}

/* While creating, a missing rank is only known by the time limit of those who wait for it. */
static int64_t bound_ns(const struct hearing *h)
{
    int64_t bound_ms = h->plan->fault->bound_ms + (h->plan->phase == CHAOS_CREATING ? CHAOS_CONNECT_MS : 0);
    return (bound_ms * 5 + 1000) * GMI_NS_PER_MS * ranks_slowness(); /* the machine is ours with others */
}

static void hear_error(struct hearing *h, int rank, const struct rank_record *r)
{
    struct chaos_verdict *v = &h->verdict;
    if (h->plan->fault->outcome == CHAOS_HARMLESS || !v->has_happened) {
        complain(h, &v->is_false_alarm, "rank %d reports %s", rank, r->error.text);
        return;
    }
    if (!is_right_error(h, r)) {
        complain(h, &v->is_wrong_culprit, "rank %d blames rank %d: %s", rank, r->error.culprit, r->error.text);
        return;
    }
    int64_t took_ns = r->at_ns - atomic_load(&h->shared->times_ns[CHAOS_MARK_FAULT]);
    v->n_detected++;
    if (took_ns > v->slowest_ns) v->slowest_ns = took_ns;
    if (took_ns > bound_ns(h)) complain(h, &v->is_late, "rank %d needed %lld ms", rank, (long long)(took_ns / GMI_NS_PER_MS));
}

static bool is_gone(const struct hearing *h, int rank)
{
    return h->plan->fault->outcome == CHAOS_LOSS && chaos_is_victim(h->plan, rank) && h->verdict.has_happened;
}

static void hear(struct hearing *h, int rank, struct ranks *ranks, bool was_in_time)
{
    const struct rank_record *r = &h->shared->records[rank];
    struct chaos_verdict     *v = &h->verdict;
    if (is_gone(h, rank)) return;
    if (!r->numbers[CHAOS_IS_OVER]) {
        if (!was_in_time)
            complain(h, &v->is_hang, "rank %d did not end within %d ms", rank, CHAOS_LIMIT_MS * ranks_slowness());
        else
            complain(h, &v->is_hang, "rank %d ended before its end, with wait status 0x%x: %s", rank,
                     (unsigned)ranks_wait_status(ranks, rank), ranks_said(ranks, rank));
        return;
    }
    if (r->numbers[CHAOS_WRONG])
        complain(h, &v->is_wrong_result, "rank %d: call %d gave something else", rank, (int)r->numbers[CHAOS_WRONG]);
    if (r->numbers[CHAOS_LEAKED]) complain(h, &v->is_leak, "rank %d leaked: %s", rank, ranks_said(ranks, rank));
    if (r->status != GM_OK) hear_error(h, rank, r);
}

struct chaos_verdict chaos_judge(const struct chaos_plan *plan, struct ranks *ranks, bool was_in_time)
{
    struct hearing h = { .plan = plan, .shared = ranks_shared(ranks) };
    h.other_end = (int)h.shared->records[plan->victim].numbers[CHAOS_OTHER_END] - 1;
    h.verdict.has_happened = atomic_load(&h.shared->marks[CHAOS_MARK_FAULT]) > 0;
    for (int k = 0; k < plan->n_ranks; k++) hear(&h, k, ranks, was_in_time);
    return h.verdict;
}
