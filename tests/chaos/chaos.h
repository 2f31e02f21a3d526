/* chaos.h - seeded faults on real processes over real links, and what must come of them.
 *
 *     seed --> plan (plan.c): how many ranks, over what, which calls, which fault, who, where
 *                |
 *                v
 *              job (job.c): every rank makes the calls and checks what it gets; at the addressed point
 *                |          the victim, or both victims, do what the fault's row says (faults.c)
 *                v
 *              verdict (judge.c): what every rank reported, against what is right after such a fault
 *
 * A run is a function of its seed but for the moment within a call, which the machine decides. Adding a
 * fault is one row in faults.c. */
#ifndef TESTS_CHAOS_H
#define TESTS_CHAOS_H

#include "base/rng.h"
#include "tests/support/ranks.h"

/* What must come of a fault. */
enum chaos_outcome {
    CHAOS_HARMLESS, /* all ranks complete all calls */
    CHAOS_LOSS,     /* who still has calls to make fails and names a victim */
    CHAOS_CUT,      /* the same, or names the other end */
    CHAOS_MISMATCH  /* the same, or says that ranks call different things */
};

/* Where it happens. */
enum chaos_phase { CHAOS_CREATING, CHAOS_CALLING, CHAOS_DESTROYING };

struct chaos_plan;

/* The victim as the fault finds it, in the caller's thread or in one beside it. */
struct chaos_scene {
    struct rank_self        *self;
    const struct chaos_plan *plan;
    struct gmi_rng           rng;
};

struct chaos_fault {
    const char        *name;
    enum chaos_outcome outcome;
    int                weight;       /* how often it is drawn */
    int                bound_ms;     /* from the fault to every survivor's error */
    bool               needs_tcp;    /* has nothing to cut in shared memory */
    bool               only_calling; /* not while creating or destroying */
    bool               is_in_call;   /* the call at the point is itself what is wrong: nothing happens beside it */
    bool               not_with_sanitizers;
    bool               has_two_victims;
    void             (*act)(struct chaos_scene *scene);
};

const struct chaos_fault *chaos_fault_row(size_t i); /* NULL beyond the last */

enum { CHAOS_MAX_CALLS = 12, CHAOS_LIMIT_MS = 20000, CHAOS_CONNECT_MS = 3000 };

struct chaos_plan {
    uint64_t                  seed;
    int                       n_ranks, n_calls;
    const char               *transport, *algorithm;
    bool                      is_asynchronous; /* calls are started, and waited for */
    const struct chaos_fault *fault;
    int                       victim, second_victim; /* -1: none */
    enum chaos_phase          phase;
    int                       at_call;
    int                       delay_us; /* 0: before the call; else so long after it began, beside it */
};

/* With `fault` NULL one is drawn. */
struct chaos_plan chaos_plan_draw(uint64_t seed, const struct chaos_fault *fault);
const char       *chaos_plan_text(const struct chaos_plan *plan); /* valid until the next call */

static inline bool chaos_is_victim(const struct chaos_plan *p, int rank) { return rank == p->victim || rank == p->second_victim; }

/* ---- what the ranks say: record->numbers ------------------------------------------------------- */

enum chaos_number {
    CHAOS_IS_OVER,        /* it has come to its end, whatever that is */
    CHAOS_COMPLETED,      /* calls that gave what they must */
    CHAOS_WRONG,          /* 1 + the call that gave something else */
    CHAOS_LEAKED,         /* descriptors, threads */
    CHAOS_OTHER_END,      /* 1 + the rank at the other end of what was cut; 0: not known */
    CHAOS_LISTENS_AT,     /* port */
    CHAOS_PID
};
enum { CHAOS_MARK_FAULT = 0 };

/* The body of a rank; its user data is the plan. */
void chaos_live(struct rank_self *self);

/* ---- verdicts ----------------------------------------------------------------------------------- */

struct chaos_verdict {
    bool    has_happened, is_hang, is_wrong_result, is_wrong_culprit, is_leak, is_late, is_false_alarm;
    int     n_detected;     /* survivors that reported it */
    int64_t slowest_ns;     /* from the fault to the last of them; 0: none */
    char    why[700];       /* the first thing that is not right; "" */
};

struct chaos_verdict chaos_judge(const struct chaos_plan *plan, struct ranks *ranks, bool was_in_time);

static inline bool chaos_is_bad(const struct chaos_verdict *v) { return v->why[0] != '\0'; }

#endif
