/* check_pairs.h - can every pair of ranks talk? Each pair makes a communicator of its own, as a job would, and measures
 * over it: so a pair that cannot is one result among others, and nothing is tried that a job would not do. */
#ifndef CLI_CHECK_PAIRS_H
#define CLI_CHECK_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "gradmesh.h"

enum { CHECK_MAX_RANKS = 64, CHECK_TEXT_BYTES = 240 };

struct check_pair {
    uint8_t is_known, can_talk, shares_memory, is_waiting_side; /* who waits to be called knows less of why not */
    char    address[96];            /* where the lower rank listens and the higher one calls */
    char    interface_name[20];     /* that of the address, on the lower rank's host */
    char    why[CHECK_TEXT_BYTES];  /* not */
    double  connect_ms, latency_us, bandwidth_MBps;
};

struct check_result {
    int               rank, n_ranks;
    struct check_pair pairs[CHECK_MAX_RANKS][CHECK_MAX_RANKS]; /* [lower][higher] */
};

/* Measures with all others; `options` say who we are and where they meet. Then rank 0 has all that the others, as far
 * as it can reach them, found out. GM_ERR_ARG: the options are wrong, *error says why. */
gm_status check_run(struct check_result *result, const gm_comm_options *options, int pair_timeout_ms, gm_error *error);

#endif
