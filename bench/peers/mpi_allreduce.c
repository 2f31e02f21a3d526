/* mpi_allreduce.c - times MPI_Allreduce of floats in place, by whichever MPI it was compiled with.
 *
 *     mpirun -n N mpi_allreduce BYTES...
 *
 * See driver.h. BENCH_EXIT leaves without MPI_Finalize, for an MPI in which that may hang. */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

struct bout {
    int    rank, n_ranks;
    float *values;
    size_t size_bytes, n_elems;
};

static void all_reduce(const struct bout *b)
{
    MPI_Allreduce(MPI_IN_PLACE, b->values, (int)b->n_elems, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
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
    double estimate_s = (driver_now_s() - begin_s) / n_warmup;
    MPI_Allreduce(MPI_IN_PLACE, &estimate_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return driver_iters(estimate_s);
}

static void time_iterations(const struct bout *b, struct driver_result *r)
{
    for (int i = 0; i < r->n_iters; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin_s = driver_now_s();
        all_reduce(b);
        r->times_s[i] = driver_now_s() - begin_s;
    }
    MPI_Allreduce(MPI_IN_PLACE, r->times_s, r->n_iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void run_back_to_back(const struct bout *b, struct driver_result *r)
{
    int n = r->n_iters / 2 > 2 ? r->n_iters / 2 : 2;
    MPI_Barrier(MPI_COMM_WORLD);
    double cpu_s = driver_cpu_s(), begin_s = driver_now_s();
    for (int i = 0; i < n; i++) all_reduce(b);
    r->back_to_back_s = (driver_now_s() - begin_s) / n;
    r->cpu_s = (driver_cpu_s() - cpu_s) / n;
}

static void measure(struct bout *b)
{
    struct driver_result r = { .n_ranks = b->n_ranks, .size_bytes = b->size_bytes };
    r.n_wrong = checked(b);
    memset(b->values, 0,
           b->size_bytes); /* sums that are added to themselves grow without end; zeros stay */
    MPI_Barrier(MPI_COMM_WORLD);
    r.n_iters = choose_iters(b);
    r.times_s = malloc(sizeof *r.times_s * (size_t)r.n_iters);
    if (r.times_s == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    time_iterations(b, &r);
    run_back_to_back(b, &r);
    r.n_wrong += checked(b);
    r.peak_rss_bytes = driver_peak_rss_bytes();
    MPI_Allreduce(MPI_IN_PLACE, &r.n_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &r.cpu_s, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &r.back_to_back_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &r.peak_rss_bytes, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (b->rank == 0) driver_print(&r);
    free(r.times_s);
}

int main(int argc, char **argv)
{
    struct bout b;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.n_ranks);
    for (int i = 1; i < argc; i++) {
        b.size_bytes = strtoull(argv[i], NULL, 10);
        b.n_elems = b.size_bytes / sizeof(float);
        b.values = malloc(b.size_bytes);
        if (b.values == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
        measure(&b);
        free(b.values);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (getenv("BENCH_EXIT") != NULL) _exit(0);
    MPI_Finalize();
    return 0;
}
