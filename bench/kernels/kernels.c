/* kernels - the reproducible matrix products beside OpenBLAS and BLIS, one thread, in one run.
 *
 *   make bench-kernels [KERNELS="--repeats 9 --rows 16,128 --variant plain"]
 *
 * For each shape the systems take turns; a sample is as many calls as take about 2 ms; what is
 * shown is the median sample, or with --take best the fastest, for a machine that others use too. The
 * BLAS libraries are loaded as shared objects, since both define cblas_sgemm; one that is not
 * installed is left out. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "train/bits.h"

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* of the CBLAS interface */
typedef void (*sgemm_fn)(int order, int a_order, int b_order, int m, int n, int k, float alpha,
                         const float *a, int a_stride, const float *b, int b_stride, float beta,
                         float *c, int c_stride);

enum { MAX_REPEATS = 101, N_SYSTEMS = 3 };
#define SAMPLE_S 2e-3

struct problem {
    size_t n_rows, n_in, n_out;
    float *x, *w, *b, *y, *dy, *dw, *dx;
};

struct system {
    const char *name;
    sgemm_fn sgemm; /* NULL: ours */
    struct gmt_bits *bits;
    bool is_here;
};

/* ---- what is measured ------------------------------------------------------------------------ */

static void forward(const struct system *s, const struct problem *p)
{
    int rows = (int)p->n_rows, in = (int)p->n_in, out = (int)p->n_out;
    if (s->sgemm == NULL)
        gmt_bits_linear_forward(s->bits, p->x, p->w, p->b, p->y, p->n_rows, p->n_in, p->n_out,
                                false);
    else s->sgemm(ROW_MAJOR, PLAIN, TRANSPOSED, rows, out, in, 1, p->x, in, p->w, in, 0, p->y, out);
}

static void backward_weight(const struct system *s, const struct problem *p)
{
    int rows = (int)p->n_rows, in = (int)p->n_in, out = (int)p->n_out;
    if (s->sgemm == NULL)
        gmt_bits_linear_backward_weight(s->bits, p->x, p->dy, p->dw, p->n_rows, p->n_in, p->n_out,
                                        0, p->n_out, false);
    else
        s->sgemm(ROW_MAJOR, TRANSPOSED, PLAIN, out, in, rows, 1, p->dy, out, p->x, in, 0, p->dw,
                 in);
}

static void backward_input(const struct system *s, const struct problem *p)
{
    int rows = (int)p->n_rows, in = (int)p->n_in, out = (int)p->n_out;
    if (s->sgemm == NULL)
        gmt_bits_linear_backward_input(s->bits, p->x, p->w, p->dy, p->dx, p->n_rows, p->n_in,
                                       p->n_out, false);
    else s->sgemm(ROW_MAJOR, PLAIN, PLAIN, rows, in, out, 1, p->dy, out, p->w, in, 0, p->dx, in);
}

static const struct operation {
    const char *name;
    void (*run)(const struct system *, const struct problem *);
} operations[] = { { "forward", forward }, { "dW", backward_weight }, { "dX", backward_input } };
#define N_OPERATIONS (sizeof operations / sizeof *operations)

static const struct layer {
    size_t n_in, n_out;
} layers[] = { { 784, 256 }, { 256, 10 }, { 784, 1024 }, { 1024, 10 } };
#define N_LAYERS (sizeof layers / sizeof *layers)

/* ---- measuring ------------------------------------------------------------------------------- */

/* Of this thread, the only one: what else runs on the machine does not count as time. */
static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_calls(const struct operation *operation, const struct system *system,
                         const struct problem *problem, int n_calls)
{
    double start = now_s();
    for (int call = 0; call < n_calls; call++) operation->run(system, problem);
    return now_s() - start;
}

/* How many calls make a sample. The first call, which may set things up, does not count. */
static int calls_of_sample(const struct operation *operation, const struct system *system,
                           const struct problem *problem)
{
    time_calls(operation, system, problem, 1);
    double once = time_calls(operation, system, problem, 3) / 3;
    return once > SAMPLE_S ? 1 : (int)(SAMPLE_S / once);
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Fills gflops, 0 for a system that is not here. */
static void measure(const struct operation *operation, const struct system systems[N_SYSTEMS],
                    const struct problem *problem, int n_repeats, bool takes_best,
                    double gflops[N_SYSTEMS])
{
    double samples[N_SYSTEMS][MAX_REPEATS];
    int n_calls[N_SYSTEMS] = { 0 };
    double flops = 2.0 * (double)problem->n_rows * (double)problem->n_in * (double)problem->n_out;
    for (int s = 0; s < N_SYSTEMS; s++)
        if (systems[s].is_here) n_calls[s] = calls_of_sample(operation, &systems[s], problem);
    for (int repeat = 0; repeat < n_repeats; repeat++)
        for (int s = 0; s < N_SYSTEMS; s++)
            if (systems[s].is_here)
                samples[s][repeat] = flops * n_calls[s] /
                                     time_calls(operation, &systems[s], problem, n_calls[s]) * 1e-9;
    for (int s = 0; s < N_SYSTEMS; s++) {
        gflops[s] = 0;
        if (!systems[s].is_here) continue;
        qsort(samples[s], (size_t)n_repeats, sizeof samples[s][0], by_size);
        gflops[s] = samples[s][takes_best ? n_repeats - 1 : n_repeats / 2];
    }
}

static float *random_floats(size_t n, uint64_t key)
{
    float *values = gmi_alloc(n, sizeof *values);
    if (values == NULL) {
        fputs("no memory for the matrices\n", stderr);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) values[i] = (float)(2 * gmi_rng_unit(key, i) - 1);
    return values;
}

static void measure_layer(const struct system systems[N_SYSTEMS], struct layer layer, size_t n_rows,
                          int n_repeats, bool takes_best, double *worst)
{
    size_t n_in = layer.n_in, n_out = layer.n_out;
    struct problem problem = { n_rows,
                               n_in,
                               n_out,
                               .x = random_floats(n_rows * n_in, 1),
                               .w = random_floats(n_out * n_in, 2),
                               .b = random_floats(n_out, 3),
                               .y = random_floats(n_rows * n_out, 4),
                               .dy = random_floats(n_rows * n_out, 5),
                               .dw = random_floats(n_out * n_in, 6),
                               .dx = random_floats(n_rows * n_in, 7) };
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        double gflops[N_SYSTEMS];
        measure(&operations[o], systems, &problem, n_repeats, takes_best, gflops);
        double best = gflops[1] > gflops[2] ? gflops[1] : gflops[2];
        double ratio = best > 0 ? gflops[0] / best : 0;
        if (best > 0 && ratio < *worst) *worst = ratio;
        printf("| %zu x %zu x %zu | %s | %.1f | %.1f | %.1f | %.2f |\n", n_rows, n_in, n_out,
               operations[o].name, gflops[0], gflops[1], gflops[2], ratio);
        fflush(stdout);
    }
    float *all[] = {
        problem.x, problem.w, problem.b, problem.y, problem.dy, problem.dw, problem.dx
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) gmi_free(all[i]);
}

/* ---- the program ----------------------------------------------------------------------------- */

static void load_blas(struct system *system, const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "cblas_sgemm");
    if (symbol == NULL) fprintf(stderr, "%s is left out: %s\n", system->name, dlerror());
    memcpy(&system->sgemm, &symbol, sizeof symbol);
    system->is_here = symbol != NULL;
}

/* One thread each, and the kernels that the libraries choose for this processor. */
static void set_environment(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("BLIS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
}

int main(int argc, char **argv)
{
    int n_repeats = 15;
    const char *rows = "16,32,64,128,256,512";
    bool takes_best = false;
    size_t only_out = 0; /* 0: all layers */
    bool is_right = argc % 2 == 1;
    for (int i = 1; i + 1 < argc && is_right; i += 2)
        if (strcmp(argv[i], "--repeats") == 0) n_repeats = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rows") == 0) rows = argv[i + 1];
        else if (strcmp(argv[i], "--take") == 0) takes_best = strcmp(argv[i + 1], "best") == 0;
        else if (strcmp(argv[i], "--out") == 0) only_out = strtoul(argv[i + 1], NULL, 10);
        else is_right = strcmp(argv[i], "--variant") == 0 && gmt_bits_use(argv[i + 1]);
    if (!is_right || n_repeats < 1 || n_repeats > MAX_REPEATS) {
        fprintf(stderr,
                "usage: kernels [--repeats 1..%d] [--rows N,N,...] "
                "[--take median|best] [--out N (layers with so many outputs)] [--variant "
                "avx512|avx2|plain, if the "
                "processor has it]\n",
                MAX_REPEATS);
        return 2;
    }
    set_environment();
    struct system systems[N_SYSTEMS] = { { .name = "ours", .is_here = true },
                                         { .name = "OpenBLAS" },
                                         { .name = "BLIS" } };
    load_blas(&systems[1], "libopenblas.so.0");
    load_blas(&systems[2], "libblis.so.4");
    gm_error error = { 0 };
    if (gmt_bits_open(&systems[0].bits, 1, &error) != GM_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    double worst = 1e9;
    printf("GFLOP/s, one thread, %s of %d samples; ours: %s\n\n", takes_best ? "best" : "median",
           n_repeats, gmt_bits_variant());
    printf("| rows x in x out | operation | ours | OpenBLAS | BLIS | ours / better |\n"
           "|---|---|--:|--:|--:|--:|\n");
    for (size_t l = 0; l < N_LAYERS; l++)
        for (const char *at = rows; *at != 0 && (only_out == 0 || only_out == layers[l].n_out);) {
            char *end;
            size_t n_rows = strtoul(at, &end, 10);
            if (end == at || n_rows == 0) return 2;
            measure_layer(systems, layers[l], n_rows, n_repeats, takes_best, &worst);
            at = *end == ',' ? end + 1 : end;
        }
    if (worst < 1e9) printf("\nthe lowest ratio is %.2f\n", worst);
    gmt_bits_close(systems[0].bits);
    return 0;
}
