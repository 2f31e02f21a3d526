/* bench_limits.h - `gradmesh bench limits`, and its short form for --fraction. */
#ifndef CLI_BENCH_LIMITS_H
#define CLI_BENCH_LIMITS_H

#include <stdbool.h>

#include "gradmesh.h"

/* argv[0] is "limits". The exit status. */
int cli_bench_limits(int argc, char **argv);

/* With how many processes a world of n_ranks is compared: at least 2, at most 16. */
int cli_bench_limit_processes(int n_ranks);

/* What each of so many processes can send and receive at once over loopback TCP, in GB/s: the
 * duplex limit by three repeats of 256 MiB, five to ten seconds. Encrypted: what is left of it, 1 / (1/plain + 2/cipher),
 * if a core does nothing but move each byte, seal it and open it; both are measured, in turn. Starts processes; the caller
 * should have no threads that matter. GM_ERR_SYSTEM: *error says what. */
gm_status cli_bench_quick_limit(int n_ranks, bool is_encrypted, double *limit_gbps, gm_error *error);

#endif
