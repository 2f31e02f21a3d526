/* driver.h - what the drivers of the peers have in common: the values, the statistics and the
 * line they print.
 *
 * Everything is as in `gradmesh bench all_reduce --in-place`: an iteration is barrier, clock,
 * operation, clock; the slowest rank's time counts; a second series without barriers gives the
 * processor time. One JSON line per size. For C and C++. BENCH_BUDGET: seconds for the
 * iterations of one size. */
#ifndef BENCH_PEERS_DRIVER_H
#define BENCH_PEERS_DRIVER_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { DRIVER_MIN_ITERS = 5, DRIVER_MAX_ITERS = 1000 };

static inline double driver_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Small whole numbers, so that every sum is exact; they depend on rank and index. */
static inline void driver_fill(float *values, size_t n_elems, int rank)
{
    for (size_t i = 0; i < n_elems; i++)
        values[i] = (float)(i % 97) + (float)rank * (float)(i % 13);
}

static inline long driver_count_wrong(const float *values, size_t n_elems, int n_ranks)
{
    long  n_wrong = 0;
    float ranks = (float)(n_ranks * (n_ranks - 1) / 2);
    for (size_t i = 0; i < n_elems; i++)
        n_wrong += values[i] != (float)n_ranks * (float)(i % 97) + ranks * (float)(i % 13);
    return n_wrong;
}

static inline int driver_warmup(size_t size_bytes) { return size_bytes <= 65536 ? 10 : 1; }

static inline int driver_iters(double estimate_s)
{
    const char *budget = getenv("BENCH_BUDGET");
    double      n = (budget ? atof(budget) : 0.3) / (estimate_s > 1e-9 ? estimate_s : 1e-9);
    return n < DRIVER_MIN_ITERS   ? DRIVER_MIN_ITERS
           : n > DRIVER_MAX_ITERS ? DRIVER_MAX_ITERS
                                  : (int)n;
}

static inline double driver_cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static inline double driver_peak_rss_bytes(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss * 1024;
}

static inline int driver_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* What rank 0 knows in the end. times_s: n_iters, the slowest rank's; is sorted. */
struct driver_result {
    int     n_ranks, n_iters;
    size_t  size_bytes;
    double *times_s;
    double  back_to_back_s; /* of one operation */
    double  cpu_s;          /* of one operation, all ranks together */
    double  peak_rss_bytes; /* of the rank that used most */
    long    n_wrong;
};

static inline void driver_print(const struct driver_result *r)
{
    int    n = r->n_iters, p99 = n * 99 / 100 < n ? n * 99 / 100 : n - 1;
    double factor = 2.0 * (r->n_ranks - 1) / r->n_ranks;
    qsort(r->times_s, (size_t)n, sizeof *r->times_s, driver_compare);
    double median = r->times_s[n / 2], algbw = (double)r->size_bytes / median / 1e9;
    printf("{\"collective\":\"all_reduce\",\"world_size\":%d,\"size_bytes\":%zu,\"in_place\":true,"
           "\"iters\":%d,"
           "\"median_us\":%.3f,\"min_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f,\"back_to_back_us\":"
           "%.3f,"
           "\"algbw_GBps\":%.6f,\"busbw_GBps\":%.6f,\"wrong\":%ld,\"cpu_s_per_GB\":%.4f,\"peak_rss_"
           "bytes\":%.0f}\n",
           r->n_ranks, r->size_bytes, n, median * 1e6, r->times_s[0] * 1e6, r->times_s[p99] * 1e6,
           r->times_s[n - 1] * 1e6, r->back_to_back_s * 1e6, algbw, algbw * factor, r->n_wrong,
           r->cpu_s / ((double)r->size_bytes * factor * r->n_ranks / 1e9), r->peak_rss_bytes);
    fflush(stdout);
}

#endif
