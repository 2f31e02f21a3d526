/* sim.h - N ranks in one thread: the real algorithms, ports and ops over links in memory.
 *
 *     op of rank a -> port -> [checksums] -> [watched] -> [faults by seed] -> memory <- ... <- port <- op of rank b
 *
 * Ranks are stepped in an order drawn from the seed, and only when something that they said they wait for
 * has come about, as a poller would. So these are found here, with the seed that shows them again:
 *   - a freeze: ranks that have not ended, of which none will ever be woken;
 *   - a lost wake-up: the same, though bytes are there that a rank did not ask for;
 *   - a spin: a rank that is woken again and again by something it then does not use.
 * Memory that an algorithm is given ends at an unreadable page. */
#ifndef SIM_H
#define SIM_H

#include "base/rng.h"
#include "coll/algo.h"
#include "tests/support/guard.h"
#include "transport/link.h"

enum { SIM_MAX_RANKS = 40 };

struct sim_plan {
    int      n_ranks;
    uint64_t seed;
    size_t   capacity_bytes;    /* of a link, in each direction */
    size_t   max_move_bytes;    /* of one call of a link; 0: what fits */
    double   delay_probability; /* that a link answers "later" for no reason; below 1 */
    uint32_t piece_bytes, part_bytes; /* 0: the library's */
    bool     never_lends;       /* links lend no bytes, as sockets */
    bool     is_failure_fatal;  /* a rank that fails closes its links, as a process that ends does */

    /* Which ranks share a host: all, some or none, drawn from this seed; or as `host_ids` says, by rank. */
    uint64_t        layout_seed;
    const uint64_t *host_ids;

    /* Only the links that this row says it needs, for this root. NULL: a link between any two ranks. */
    const struct gmi_algo *links_for;
    int                    links_root;

    /* Cut the link of `cut_rank` to `cut_peer` when so many bytes were sent, or received, by cut_rank. */
    bool     has_cut, is_cut_at_once;
    int      cut_rank, cut_peer;
    uint64_t cut_after_sent_bytes, cut_after_recv_bytes;

    /* At the same link: refuse to send; change a bit of what arrives. */
    uint64_t refused_after_sent_bytes, flipped_recv_bit;
    bool     is_checked; /* links carry checksums */

    /* This rank's process ends when its call has moved so many bytes. */
    bool     has_death;
    int      death_rank;
    uint64_t death_after_bytes;
};

/* What one rank has done on its link to another. */
struct sim_end {
    struct gmi_link *link; /* what the port holds; NULL once closed */
    uint64_t         sent_bytes, recv_bytes;
    unsigned         interest; /* as last said to the poller */
    bool             is_over;  /* cut or closed, on this side */
};

struct sim_rank {
    struct gmi_group group;
    struct gmi_port  ports[SIM_MAX_RANKS];
    struct gmi_op    op;
    struct guard     scratch, work;
    uint64_t         seq;
    gm_status        status;     /* GM_AGAIN: still running */
    bool             was_stepped; /* since its op began */
    bool             must_go_on;  /* something that it waits for is there already, and no link shows it */
    bool             is_dead;
    int              ended_at;    /* in which step of the simulation */
};

struct sim {
    struct sim_plan plan;
    struct gmi_rng  rng;
    struct gmi_layout layout;
    int             n_steps;
    struct sim_rank ranks[SIM_MAX_RANKS];
    struct sim_end  ends[SIM_MAX_RANKS][SIM_MAX_RANKS]; /* [rank][peer] */
};

/* Of a zeroed one, or one that was finished, whose memory is used again (it stays until the process ends: keep
 * a simulation in a static variable). */
void sim_init(struct sim *sim, const struct sim_plan *plan);
void sim_fini(struct sim *sim);

/* A plan drawn from the seed: tiny or moderate links, one-byte or larger moves, delays, small pieces. */
struct sim_plan sim_random_plan(int n_ranks, uint64_t seed);

/* Starts the next collective of a rank. A request that the library refuses fails the test. */
void sim_begin(struct sim *sim, int rank, const struct gmi_algo *algo, struct gmi_request request);

/* Steps until all that have begun have ended (true) or can never go on (false). A spin fails the test. */
bool sim_run(struct sim *sim);

/* Has every byte that was sent been received? */
bool sim_links_are_empty(const struct sim *sim);

/* "seed 17, 4 ranks, links of 5 bytes, ..."; valid until the next call. */
const char *sim_describe(const struct sim *sim);

/* Fails the test with the plan, unless `condition` holds. */
#define sim_assert(sim, condition) sim_assert_at((sim), (condition), #condition, __FILE__, __LINE__)
void sim_assert_at(const struct sim *sim, bool condition, const char *text, const char *file, int line);

#endif
