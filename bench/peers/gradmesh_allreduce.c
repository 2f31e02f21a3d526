/* gradmesh_allreduce.c - times gm_all_reduce of floats in place, as the peers' drivers time theirs.
 *
 *     gradmesh run -n N -- gradmesh_allreduce BYTES...
 *
 * See driver.h. Options come from the environment: GRADMESH_TRANSPORT, GRADMESH_WIRE. */
#include <gradmesh.h>
#include <string.h>

#include "driver.h"

struct bout {
    gm_comm *comm;
    int      rank, n_ranks;
    float   *values;
    size_t   size_bytes, n_elems;
};

static void must(const struct bout *b, gm_status status)
{
    if (status == GM_OK) return;
    fprintf(stderr, "gradmesh_allreduce: %s\n", gm_comm_error(b->comm)->text);
    exit(1);
}

static void all_reduce(const struct bout *b)
{
    must(b, gm_all_reduce(b->comm, b->values, b->values, b->n_elems, GM_F32, GM_SUM));
}

static double over_all(const struct bout *b, double value, gm_redop op)
{
    must(b, gm_all_reduce(b->comm, &value, &value, 1, GM_F64, op));
    return value;
}

static long checked(const struct bout *b)
{
    driver_fill(b->values, b->n_elems, b->rank);
    all_reduce(b);
    return driver_count_wrong(b->values, b->n_elems, b->n_ranks);
}

static int choose_iters(const struct bout *b)
{
    int    n_warmup = driver_warmup(b->size_bytes);
    double begin_s = driver_now_s();
    for (int i = 0; i < n_warmup; i++) all_reduce(b);
    return driver_iters(over_all(b, (driver_now_s() - begin_s) / n_warmup, GM_MAX));
}

static void time_iterations(const struct bout *b, struct driver_result *r)
{
    for (int i = 0; i < r->n_iters; i++) {
        must(b, gm_barrier(b->comm));
        double begin_s = driver_now_s();
        all_reduce(b);
        r->times_s[i] = driver_now_s() - begin_s;
    }
    must(b, gm_all_reduce(b->comm, r->times_s, r->times_s, (size_t)r->n_iters, GM_F64, GM_MAX));
}

static void run_back_to_back(const struct bout *b, struct driver_result *r)
{
    int n = r->n_iters / 2 > 2 ? r->n_iters / 2 : 2;
    must(b, gm_barrier(b->comm));
    double cpu_s = driver_cpu_s(), begin_s = driver_now_s();
    for (int i = 0; i < n; i++) all_reduce(b);
    r->back_to_back_s = over_all(b, (driver_now_s() - begin_s) / n, GM_MAX);
    r->cpu_s = over_all(b, (driver_cpu_s() - cpu_s) / n, GM_SUM);
}

static void measure(struct bout *b)
{
    struct driver_result r = { .n_ranks = b->n_ranks, .size_bytes = b->size_bytes };
    long                 n_wrong = checked(b);
    memset(b->values, 0, b->size_bytes); /* sums that are added to themselves grow without end; zeros stay */
    must(b, gm_barrier(b->comm));
    r.n_iters = choose_iters(b);
    r.times_s = malloc(sizeof *r.times_s * (size_t)r.n_iters);
    if (r.times_s == NULL) abort();
    time_iterations(b, &r);
    run_back_to_back(b, &r);
    r.n_wrong = (long)over_all(b, (double)(n_wrong + checked(b)), GM_SUM);
    r.peak_rss_bytes = over_all(b, driver_peak_rss_bytes(), GM_MAX);
    if (b->rank == 0) driver_print(&r);
    free(r.times_s);
}

int main(int argc, char **argv)
{
    gm_comm_options options;
    gm_error        error;
    struct bout     b;
    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK || gm_comm_create(&b.comm, &options, &error) != GM_OK) {
        fprintf(stderr, "gradmesh_allreduce: %s\n", error.text);
        return 1;
    }
    b.rank = gm_comm_rank(b.comm);
    b.n_ranks = gm_comm_size(b.comm);
    for (int i = 1; i < argc; i++) {
        b.size_bytes = strtoull(argv[i], NULL, 10);
        b.n_elems = b.size_bytes / sizeof(float);
        b.values = malloc(b.size_bytes);
        if (b.values == NULL) abort();
        measure(&b);
        free(b.values);
    }
    gm_comm_destroy(b.comm);
    return 0;
}
