#include "cli/bench_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

/* One measurement under way. */
struct bout {
    gm_comm                       *comm;
    const struct cli_bench_case   *c;
    const struct cli_bench_effort *effort;
    struct cli_bench_result       *result;
    int64_t                        n_iters, n_wrong;
    double                        *times_us; /* n_iters */
    double                         back_to_back_us, cpu_s; /* of one operation */
    gm_traffic                     traffic;                /* of n_back_to_back operations */
    int64_t                        n_back_to_back;
};

static gm_status call(const struct bout *b) { return b->c->collective->call(b->comm, b->c); }

static gm_status checked_call(struct bout *b)
{
    cli_bench_fill(b->c);
    gm_status status = call(b);
    if (status == GM_OK) b->n_wrong += cli_bench_count_wrong(b->c);
    return status;
}

/* Sums that are added to themselves in place grow without end; zeros stay. */
static void quiet_values(const struct bout *b)
{
    size_t bytes = b->c->count_elems * gm_dtype_bytes(b->c->dtype);
    if (cli_bench_is_in_place(b->c)) memset(b->c->recv, 0, bytes);
}

/* ---- how many ---------------------------------------------------------------------------------- */

static gm_status warm_up(struct bout *b, double *estimate_us)
{
    int64_t n = b->effort->n_warmup;
    if (n < 0) n = b->result->size_bytes <= 65536 ? 10 : 1;
    int64_t begin_ns = gmi_now_ns();
    for (int64_t i = 0; i < n; i++) {
        gm_status status = call(b);
        if (status != GM_OK) return status;
    }
    double us = n > 0 ? (double)(gmi_now_ns() - begin_ns) / 1e3 / (double)n : 0;
    *estimate_us = us;
    return gm_all_reduce(b->comm, estimate_us, estimate_us, 1, GM_F64, GM_MAX);
}

static int64_t choose_iters(const struct cli_bench_effort *effort, double estimate_us)
{
    if (effort->n_iters > 0) return effort->n_iters;
    double fitting = effort->budget_s * 1e6 / fmax(estimate_us, 1e-3);
    if (fitting < CLI_BENCH_MIN_ITERS) return CLI_BENCH_MIN_ITERS;
    return fitting > CLI_BENCH_MAX_ITERS ? CLI_BENCH_MAX_ITERS : (int64_t)fitting;
}

/* ---- the two series ---------------------------------------------------------------------------- */

static gm_status time_iterations(struct bout *b)
{
    for (int64_t i = 0; i < b->n_iters; i++) {
        if (b->effort->checks_all) cli_bench_fill(b->c);
        gm_status status = gm_barrier(b->comm);
        int64_t   begin_ns = gmi_now_ns();
        if (status == GM_OK) status = call(b);
        if (status != GM_OK) return status;
        b->times_us[i] = (double)(gmi_now_ns() - begin_ns) / 1e3;
        if (b->effort->checks_all) b->n_wrong += cli_bench_count_wrong(b->c);
    }
    return gm_all_reduce(b->comm, b->times_us, b->times_us, (size_t)b->n_iters, GM_F64, GM_MAX);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static gm_status run_back_to_back(struct bout *b)
{
    gm_traffic before;
    quiet_values(b);
    b->n_back_to_back = b->n_iters / 2 > 2 ? b->n_iters / 2 : 2;
    gm_status status = gm_barrier(b->comm);
    gm_comm_traffic(b->comm, b->c->collective->which, &before);
    double  cpu_s = cpu_seconds();
    int64_t begin_ns = gmi_now_ns();
    for (int64_t i = 0; status == GM_OK && i < b->n_back_to_back; i++) status = call(b);
    if (status != GM_OK) return status;
    b->back_to_back_us = (double)(gmi_now_ns() - begin_ns) / 1e3 / (double)b->n_back_to_back;
    b->cpu_s = (cpu_seconds() - cpu_s) / (double)b->n_back_to_back;
    gm_comm_traffic(b->comm, b->c->collective->which, &b->traffic);
    b->traffic.payload_sent_bytes -= before.payload_sent_bytes;
    b->traffic.protocol_sent_bytes -= before.protocol_sent_bytes;
    return GM_OK;
}

/* ---- what came of it --------------------------------------------------------------------------- */

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void sum_up_times(struct bout *b)
{
    struct cli_bench_result *r = b->result;
    qsort(b->times_us, (size_t)b->n_iters, sizeof *b->times_us, compare_doubles);
    int64_t last = b->n_iters - 1, p99 = b->n_iters * 99 / 100;
    r->n_iters = b->n_iters;
    r->min_us = b->times_us[0];
    r->median_us = b->times_us[b->n_iters / 2];
    r->p99_us = b->times_us[p99 < last ? p99 : last];
    r->max_us = b->times_us[last];
    double factor = b->c->collective->bus_factor(b->c->n_ranks);
    r->algbw_gbps = r->median_us > 0 ? (double)r->size_bytes / r->median_us / 1e3 : 0;
    r->busbw_gbps = r->algbw_gbps * factor;
}

/* The ranks' figures become one. */
static gm_status gather_figures(struct bout *b)
{
    struct cli_bench_result *r = b->result;
    uint64_t n = (uint64_t)b->n_back_to_back, payload = b->traffic.payload_sent_bytes / n;
    double   most[] = { b->back_to_back_us, (double)peak_rss_bytes() };
    int64_t  most_bytes[] = { (int64_t)payload, (int64_t)(b->traffic.protocol_sent_bytes / n) };
    int64_t  sums[] = { b->n_wrong, (int64_t)payload };
    double   cpu_s = b->cpu_s;
    gm_status status = gm_all_reduce(b->comm, most, most, 2, GM_F64, GM_MAX);
    if (status == GM_OK) status = gm_all_reduce(b->comm, most_bytes, most_bytes, 2, GM_I64, GM_MAX);
    if (status == GM_OK) status = gm_all_reduce(b->comm, sums, sums, 2, GM_I64, GM_SUM);
    if (status == GM_OK) status = gm_all_reduce(b->comm, &cpu_s, &cpu_s, 1, GM_F64, GM_SUM);
    if (status != GM_OK) return status;
    r->back_to_back_us = most[0];
    r->peak_rss_bytes = (uint64_t)most[1];
    r->payload_bytes = (uint64_t)most_bytes[0];
    r->protocol_bytes = (uint64_t)most_bytes[1];
    r->n_wrong = sums[0];
    r->all_payload_bytes = (uint64_t)sums[1];
    double crossing_gb =
        (double)r->size_bytes * b->c->collective->bus_factor(b->c->n_ranks) * b->c->n_ranks / 1e9;
    r->cpu_s_per_gb = crossing_gb > 0 ? cpu_s / crossing_gb : NAN;
    return GM_OK;
}

static gm_status run_bout(struct bout *b, double estimate_us, gm_error *error)
{
    b->n_iters = choose_iters(b->effort, estimate_us);
    b->times_us = gmi_alloc((size_t)b->n_iters, sizeof *b->times_us);
    if (b->times_us == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the times of %lld iterations",
                             (long long)b->n_iters);
    gm_status status = time_iterations(b);
    if (status == GM_OK) status = run_back_to_back(b);
    if (status == GM_OK) status = checked_call(b);
    if (status == GM_OK) status = gather_figures(b);
    if (status == GM_OK) sum_up_times(b);
    gmi_free(b->times_us);
    return status;
}

gm_status cli_bench_measure(gm_comm *comm, const struct cli_bench_case *c,
                            const struct cli_bench_effort *effort, struct cli_bench_result *result,
                            gm_error *error)
{
    struct bout b = { .comm = comm, .c = c, .effort = effort, .result = result };
    double      estimate_us = 0;
    *result = (struct cli_bench_result){ .size_bytes = c->count_elems * gm_dtype_bytes(c->dtype),
                                         .count_elems = c->count_elems,
                                         .is_in_place = cli_bench_is_in_place(c) };
    gm_status status = checked_call(&b);
    quiet_values(&b);
    if (status == GM_OK) status = gm_barrier(comm);
    if (status == GM_OK) status = warm_up(&b, &estimate_us);
    return status == GM_OK ? run_bout(&b, estimate_us, error) : status;
}

static size_t n_faster(const struct cli_bench_result *results, size_t n_results, size_t than)
{
    size_t n = 0;
    for (size_t i = 0; i < n_results; i++) {
        double a = results[i].median_us, b = results[than].median_us;
        n += a < b || (a == b && i < than);
    }
    return n;
}

struct cli_bench_result cli_bench_middle(const struct cli_bench_result *results, size_t n_results)
{
    size_t  middle = 0;
    int64_t n_wrong = 0;
    for (size_t i = 0; i < n_results; i++) {
        if (n_faster(results, n_results, i) == (n_results - 1) / 2) middle = i;
        n_wrong += results[i].n_wrong;
    }
    struct cli_bench_result result = results[middle];
    result.n_wrong = n_wrong;
    return result;
}
