/* arrivals.h - who comes late to the exchanges of a step, and who waits for whom.
 *
 *     rank 0   computing |  waits     | exchange |
 *     rank 1   computing      | waits | exchange |
 *     rank 2   computing .............| exchange |      the last: it waits for nobody
 *                        ^arrival     ^last arrival
 *
 * An exchange makes the step of all ranks as long as that of the slowest, so the length of steps does not show who that
 * is; arrival times do. A rank's waiting is the time from when it stood still in an exchange to the arrival of the last
 * rank, but no longer than it stood there; the rest of the time that it stood there is communication.
 *
 * The rank that comes last to an exchange in which all stand still costs what it comes later than the one before it:
 * so much shorter would the step be if it came with that one.
 *
 * Times of different ranks are compared by rank 0's clock. Ranks of one machine have it. Others read how far theirs is ahead of
 * it before the first step and at each settling (gm_comm_clock), and between two readings it is taken to have drifted evenly.
 * A reading is right to within an error that is known: what two ranks are apart by no more than their errors is no difference, and
 * nobody is said to have come last by it. */
#ifndef GMT_ARRIVALS_H
#define GMT_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

/* One rank's part in one exchange, by its own clock. */
struct gmt_passage {
    int64_t arrival_ns; /* it was started */
    int64_t blocked_ns; /* the thread that computes stood still from here; = arrival_ns: from the beginning */
    int64_t end_ns;     /* ... to here */
};

/* What came of the exchanges of some steps. */
struct gmt_lateness {
    uint64_t n_steps;
    int64_t  wait_ns;       /* of this rank, all steps */
    int      last_rank;     /* the one that cost most; -1: there are no others, or no steps */
    int64_t  last_cost_ns;  /* of it, in all steps */
    uint64_t n_last;        /* steps in which it came last */
    int64_t  clock_error_ns; /* of the rank whose clock is known least */
};

/* How far the clock of this rank was ahead of rank 0's, when its own showed at_ns. */
struct gmt_clock_reading {
    int64_t at_ns, offset_ns;
};

/* Keeps the passages of steps until they are settled. */
struct gmt_arrivals {
    int                 n_ranks, rank;
    size_t              n_per_step; /* exchanges of a step: the same in each, and on all ranks */
    size_t              max_steps;  /* that are kept; later ones are not looked at */
    size_t              n_steps;
    struct gmt_passage *own;        /* (max_steps, n_per_step) */
    int64_t            *all;        /* (n_ranks, max_steps, n_per_step): arrivals by rank 0's clock, when settling */
    int64_t            *waits_ns;   /* (max_steps): of this rank in each step, once settled */
    bool                has_many_clocks;
    struct gmt_clock_reading first, last; /* before the steps that are kept, and behind them */
    int64_t            *errors_ns;  /* (n_ranks) of the two readings of each rank, the larger; (n_ranks) of the last alone */
    int64_t            *costs_ns;   /* (n_ranks) of the steps that were settled last, then (n_ranks) of all */
    uint64_t           *n_last;     /* the same */
    int64_t             all_wait_ns;
    uint64_t            n_all_steps;
};

/* comm NULL: a world of one, in which nothing is kept. On failure nothing is held. GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_arrivals_init(struct gmt_arrivals *arrivals, gm_comm *comm, size_t n_per_step, size_t max_steps,
                                        gm_error *error);
void gmt_arrivals_fini(struct gmt_arrivals *arrivals); /* all-zero is fine */

/* All ranks together: whether one clock tells the time of all of them, as on one machine. *n_gathered: the GM_I64 that
 * gm_all_gather moved. Statuses of gm_all_gather. */
GM_MUST_USE gm_status gmt_arrivals_compare_clocks(struct gmt_arrivals *arrivals, gm_comm *comm, size_t *n_gathered);

/* All ranks together, before the first step and right before settling: reads how far the clocks are apart, if there are
 * several. Statuses of gm_comm_clock. */
GM_MUST_USE gm_status gmt_arrivals_read_clocks(struct gmt_arrivals *arrivals, gm_comm *comm);

/* The next step's passages (n_per_step). */
void gmt_arrivals_add(struct gmt_arrivals *arrivals, const struct gmt_passage *passages);

/* How many numbers the gathering moves, and as what gm_all_gather takes it: (n, GM_I64). */
size_t gmt_arrivals_gathered(const struct gmt_arrivals *arrivals);

/* All ranks together, after the same steps: gathers the arrivals, fills *lateness and waits_ns, and forgets the steps.
 * Statuses of gm_all_gather. */
GM_MUST_USE gm_status gmt_arrivals_settle(struct gmt_arrivals *arrivals, gm_comm *comm, struct gmt_lateness *lateness);

/* What came of all steps that were settled. */
void gmt_arrivals_total(const struct gmt_arrivals *arrivals, struct gmt_lateness *lateness);

/* Whether the rank that cost most is a straggler: it came last to most steps, and cost more than 5 % of `elapsed_ns`,
 * which is how long they took. */
bool gmt_lateness_has_straggler(const struct gmt_lateness *lateness, int64_t elapsed_ns);

/* Settling without gathering: from what stands in `all`. */
void gmt_arrivals_judge(struct gmt_arrivals *arrivals, struct gmt_lateness *lateness);

#endif
