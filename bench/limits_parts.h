/* limits_parts.h - the measurements behind limits.h, one file each. Each makes one value: GB/s,
 * or for ping the median of half a round trip in microseconds. */
#ifndef BENCH_LIMITS_PARTS_H
#define BENCH_LIMITS_PARTS_H

#include "bench/crew.h"
#include "bench/limits.h"

/* Two connected sockets. */
struct bench_pair {
    int fds[2];
};

/* Connects two sockets as the limit wants them. GM_ERR_SYSTEM: *error says what, and nothing is
   left open. */
gm_status bench_pair_open(struct bench_pair *pair, const struct bench_limit *limit,
                          gm_error *error);
void      bench_pair_close(struct bench_pair *pair);

gm_status bench_measure_memory(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                               gm_error *error);
gm_status bench_measure_oneway(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                               gm_error *error);
gm_status bench_measure_duplex(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                               gm_error *error);
gm_status bench_measure_shm(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                            gm_error *error);
gm_status bench_measure_ping(const struct bench_limit *limit, size_t amount_bytes,
                             double *median_us, double *p99_us, gm_error *error);

#endif
