/* bench_limits.h - `gradmesh bench limits`, and its short form for --fraction. */
#ifndef CLI_BENCH_LIMITS_H
#define CLI_BENCH_LIMITS_H

#include "gradmesh.h"

/* argv[0] is "limits". The exit status. */
int cli_bench_limits(int argc, char **argv);

/* With how many processes a world of n_ranks is compared: at least 2, at most 16. */
int cli_bench_limit_processes(int n_ranks);

/* What each of so many processes can send and receive at once over loopback TCP, in GB/s: the
 * duplex limit by three repeats of 256 MiB, five to ten seconds. Starts processes; the caller
 * should have no threads that matter. GM_ERR_SYSTEM: *error says what. */
gm_status cli_bench_quick_limit(int n_ranks, double *limit_gbps, gm_error *error);

#endif
