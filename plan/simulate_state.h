/* simulate_state.h - what simulate.c keeps while it runs; made, checked and added up in simulate_state.c.
 *
 * No rank has memory of its own for gradients. All buffers are one range of addresses that nothing reads for its values, and
 * work memory is a range for each rank in which only those pages exist that an algorithm touches (its tables). */
#ifndef PLAN_SIMULATE_STATE_H
#define PLAN_SIMULATE_STATE_H

#include "coll/op.h"
#include "plan/charge.h"
#include "plan/network.h"
#include "plan/schedule.h"
#include "plan/simulate.h"

struct sim;

enum { SIM_MAX_ROUNDS = 1000 };

struct sim_rank {
    struct gmi_group group; /* first: find_port gets a pointer to it */
    struct sim      *sim;
    struct gmi_op    op;
    gm_traffic       traffic; /* of the calls that are over */

    int     call; /* which one runs, or comes next */
    int64_t round_ps; /* when its exchange of this round began */
    bool    is_in_call, is_asleep, is_run_scheduled;

    struct sim_core *core;         /* NULL: one of its own, that costs nothing to wait on */
    struct sim_rank *next_on_core; /* around */
    bool    is_ready;              /* it may have something to do */
    int     n_looks;               /* calls of a try that finds nothing */
    int64_t moved_ps;              /* when it had last something to do */

    double  slowness;
    int64_t begin_ps, compute_ps, stolen_ps; /* stolen: of the core, from the backward pass */
    int64_t busy_until_ps, finish_ps;
    int64_t asleep_ps, idle_ps, core_ps;
    int     sleeps_for;

    struct plan_end **ends; /* by a hash of the peer */
    uint32_t          n_peers, n_slots;
};

/* Whose ranks have it in turn. */
struct sim_core {
    struct sim_rank *at;      /* who has it, or had it last */
    int              n_ranks;
    bool             is_busy;
    int64_t          since_ps; /* that rank got it */
    int64_t          idle_ps;  /* nobody has anything to do since then */
};

struct sim {
    const struct plan_simulation *simulation;
    int                     n_ranks, ranks_per_host, cores_per_host, n_buckets, n_calls;
    bool                    overlaps;
    struct plan_schedule    schedule;
    struct gmi_layout       layout;
    struct gmi_wire         lean;
    struct gmi_codec        codec;
    struct plan_charge      charge;
    double                  add_ps, add_kept_ps;
    size_t                  part_bytes;
    struct plan_event_queue events;
    struct plan_network     network;
    struct plan_card       *cards;
    struct plan_turns       turns; /* all 0: not measured */
    struct sim_core        *cores; /* (hosts, cores_per_host); NULL: a rank has its own */
    struct sim_rank        *ranks;
    int64_t                *rounds_ps; /* n_rounds: the longest that a rank took; NULL: there are none */
    uint8_t                *memory, *work, *scratch;
    size_t                  memory_bytes, work_bytes;
};

gm_status sim_check(const struct plan_simulation *simulation, gm_error *error);
gm_status sim_init(struct sim *sim, const struct plan_simulation *simulation, gm_error *error);
void      sim_fini(struct sim *sim);
gm_status sim_result(const struct sim *sim, struct plan_simulation_result *result, gm_error *error);

/* NULL: there is no link between the two. */
struct plan_end *sim_end_to(const struct sim_rank *rank, int peer);

#endif
