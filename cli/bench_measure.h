/* bench_measure.h - times one collective with one size, on all ranks together.
 *
 * An iteration is: barrier, clock, operation, clock. The slowest rank's time counts, and of the
 * iterations the median is reported. What cannot be told apart from the barrier that way
 * (processor time, bytes sent) is taken from a second series, in which operation follows
 * operation. Before and after both the result of one operation is checked, element by element;
 * with checks_all each timed operation is. */
#ifndef CLI_BENCH_MEASURE_H
#define CLI_BENCH_MEASURE_H

#include "cli/bench_case.h"

enum { CLI_BENCH_MIN_ITERS = 5, CLI_BENCH_MAX_ITERS = 1000, CLI_BENCH_MAX_REPEATS = 99 };

struct cli_bench_effort {
    int64_t n_iters;  /* 0: as many as fit into budget_s, within the bounds above */
    int64_t n_warmup; /* -1: 10 for small sizes, else 1 */
    double  budget_s; /* for one series */
    bool    checks_all;
};

struct cli_bench_result {
    size_t  size_bytes, count_elems;
    bool    is_in_place;
    int64_t n_iters;
    double  median_us, min_us, p99_us, max_us;
    double  back_to_back_us;  /* of one operation, on average, without barriers */
    double  algbw_gbps, busbw_gbps;
    int64_t n_wrong;          /* elements, of all ranks and all checks */
    uint64_t payload_bytes, protocol_bytes; /* one operation, the rank that sends most of it */
    uint64_t all_payload_bytes;             /* one operation, all ranks together */
    /* Processor time of all ranks per 10^9 bytes that cross their links at least (n_ranks times
       size times bus factor). NaN: nothing crosses. */
    double   cpu_s_per_gb;
    uint64_t peak_rss_bytes;  /* memory in use at most, so far, by the rank that used most */
};

/* Every rank calls it with its own case; all get the same result. Waits for the others. A status
 * of the collectives, or GM_ERR_NOMEM; gm_comm_error has the sentence, except after
 * GM_ERR_NOMEM, where *error has. */
gm_status cli_bench_measure(gm_comm *comm, const struct cli_bench_case *c,
                            const struct cli_bench_effort *effort, struct cli_bench_result *result,
                            gm_error *error);

/* Of several results of one case the one whose median is in the middle, with the wrong elements of all. */
struct cli_bench_result cli_bench_middle(const struct cli_bench_result *results, size_t n_results);

#endif
