/* simulate.h - one training step of N workers in simulated time: the real algorithms, stepped over simulated links.
 *
 *     compute                exchange: the algorithm files of src/coll over plan/network.h
 *     |---------------|xxxxxxxxxxxxxx|                rank 0
 *     |--------------------|xxxxxxxxx|                rank 1, a straggler: the others wait for it
 *
 * Each rank is a real op on a real group; it is woken when bytes have arrived, as by a poller, moves what it can, and sleeps.
 * What it does on its core costs time: calls, copies, sums. A host's ranks have a core each, or share `cores_per_host`, to which
 * they are bound in turn as the launcher binds them; who can go on waits for its core. With `turns` these costs are those of a
 * machine that was measured, and ranks that wait try for a while, giving up the core between two tries, as comm/engine.c does.
 *
 * With overlap the gradient becomes ready bucket by bucket during the backward pass, which is two thirds of the compute
 * time, and what the exchange takes of the core until then makes the compute phase so much longer.
 *
 * To be held against gradmesh bench, a simulation does as that does: rounds of a barrier and the exchange, one after the other.
 * A round has taken what the slowest rank needed from its own way out of the barrier on, and the median of the rounds counts. */
#ifndef PLAN_SIMULATE_H
#define PLAN_SIMULATE_H

#include <stdbool.h>

#include "bench/turns.h"
#include "gradmesh.h"

/* What one machine and its network are. 0 for a time: it costs nothing; for bytes per second: no limit. */
struct plan_links {
    double latency_us, bandwidth_Bps;             /* between hosts: one way; of a host's card, in each direction */
    double burst_bytes; /* that a card sends at once when it was idle, as shaped networks let it */
    double local_latency_us, local_bandwidth_Bps; /* within a host: of each link, in each direction */
    double call_us;                               /* on a core, for each send and each receive */
    double wake_us;                               /* ... for a rank that slept */
    double copy_Bps, add_Bps;                     /* ... bytes that it can send or receive, and add up */
};

struct plan_straggler {
    int    rank;
    double factor;   /* all that it does on its core takes so many times as long */
    double delay_ms; /* and it begins so much later */
};

enum { PLAN_MAX_STRAGGLERS = 16 };

struct plan_simulation {
    int         n_ranks;
    int         ranks_per_host; /* 0: 1 */
    int         cores_per_host; /* that its ranks share; 0: one for each */
    uint64_t    bytes;          /* of the gradient, as f32 */
    const char *algorithm;      /* one of plan_simulated_algorithms */
    const char *wire;           /* NULL: f32 */
    double      compute_ms;     /* of each rank, before its gradient is whole */
    double      jitter;         /* each rank's compute time is longer by 0 .. this share, by seed */
    uint64_t    seed;
    int         n_buckets; /* 0: 1 */
    bool        overlaps;
    int         n_rounds; /* 0: one step. Else as gradmesh bench times an exchange, below */
    struct plan_links     links;
    const struct bench_turns *turns; /* NULL: links says what a core's work costs; else this does, for links within a host, too */
    struct plan_straggler stragglers[PLAN_MAX_STRAGGLERS];
    int                   n_stragglers;
    uint64_t              grain_bytes; /* what arrives at a time, plan/network.h; 0: chosen */
};

struct plan_simulated_rank {
    double   compute_ms;           /* when its gradient is whole */
    double   finish_ms;            /* when it has the sum, too */
    double   idle_ms;              /* asleep in the exchange */
    double   core_ms;              /* busy with it */
    int      waits_for;            /* the peer for which it slept longest; -1: none */
    double   waits_for_ms;
    uint64_t payload_sent_bytes, protocol_sent_bytes;
};

struct plan_simulation_result {
    double step_ms;     /* until the last rank has finished */
    double compute_ms;  /* of the median rank */
    double wait_ms;     /* of the median rank: until the last one's gradient is whole */
    double exchange_ms; /* from then on: step_ms is the sum of these three */

    int    straggler; /* the rank whose gradient is whole last, if the others wait for it for long; else -1 */
    double straggler_costs_ms;

    uint64_t payload_bytes, protocol_bytes; /* sent by all ranks */
    uint64_t most_payload_bytes;            /* by the rank that sends most */
    int      busiest_host;                  /* whose card is busy longest; -1: none is used */
    bool     is_busiest_out;                /* in sending */
    uint64_t busiest_bytes;
    double   busiest_share; /* of the exchange */

    uint64_t grain_bytes, n_transfers, n_events, memory_bytes;
    double   wall_s; /* that the simulation took */

    int                         n_ranks;
    struct plan_simulated_rank *ranks;
};

/* Runs it. GM_OK; GM_ERR_ARG: a number or name makes no sense; GM_ERR_UNSUPPORTED: the algorithm does not go together
 * with the rest; GM_ERR_NOMEM. The result is to be freed after GM_OK. */
gm_status plan_simulate(const struct plan_simulation *simulation, struct plan_simulation_result *result, gm_error *error);
void      plan_simulation_free(struct plan_simulation_result *result);

/* The ways to an all-reduce: each algorithm of the library, and "tree" and "chain", which are a reduce and then a broadcast.
 * Index from 0; NULL behind the last. */
const char *plan_simulated_algorithm(int index);
const char *plan_simulated_algorithm_summary(const char *name);

/* Can this be simulated? Not what needs more links than fit into memory, and each algorithm has its own conditions: then
 * *why is a sentence. */
bool plan_can_simulate(const struct plan_simulation *simulation, const char **why);

/* Payload bytes that the rank sends, by the formulas of the algorithms themselves. */
uint64_t plan_formula_payload_bytes(const struct plan_simulation *simulation, int rank);

#endif
