#include "plan/probe.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "plan/probe_shared.h"
#include "study/crew.h"

enum { PROBE_LIMIT_MS = 120000 };

int plan_n_cores(void)
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

/* ---- what was seen -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

typedef const struct probe_run *(*runs_fn)(const struct probe_account *account, int index);

static const struct probe_run *steps_of(const struct probe_account *account, int index) { return account->steps[index]; }
static const struct probe_run *exchanges_of(const struct probe_account *account, int index) { return account->exchanges[index]; }
static const struct probe_run *updates_of(const struct probe_account *account, int index) { (void)index; return account->updates; }

/* When the first of them began: who comes second onto a shared core begins late, but has been waiting since then. */
static int64_t first_begin_ns(const struct probe_job *job, runs_fn runs, int index, int i)
{
    int64_t begin_ns = INT64_MAX;
    for (int r = 0; r < job->probe.workers; r++) {
        const struct probe_run *run = &runs(&job->accounts[r], index)[i];
        if (run->begin_ns < begin_ns) begin_ns = run->begin_ns;
    }
    return begin_ns;
}

/* From the moment when the first one began to that when the last one had ended; the median over the runs. */
static double last_ms(const struct probe_job *job, runs_fn runs, int index, int n_runs)
{
    double lengths_ms[PROBE_MAX_RUNS];
    for (int i = 0; i < n_runs; i++) {
        int64_t begin_ns = first_begin_ns(job, runs, index, i), end_ns = 0;
        for (int r = 0; r < job->probe.workers; r++) {
            const struct probe_run *run = &runs(&job->accounts[r], index)[i];
            if (run->end_ns > end_ns) end_ns = run->end_ns;
        }
        lengths_ms[i] = (double)(end_ns - begin_ns) / 1e6;
    }
    return median(lengths_ms, n_runs);
}

/* The same, until the mean of them had ended. */
static double mean_ms(const struct probe_job *job, runs_fn runs, int index, int n_runs)
{
    double lengths_ms[PROBE_MAX_RUNS];
    for (int i = 0; i < n_runs; i++) {
        int64_t begin_ns = first_begin_ns(job, runs, index, i);
        double  sum_ns = 0;
        for (int r = 0; r < job->probe.workers; r++) sum_ns += (double)(runs(&job->accounts[r], index)[i].end_ns - begin_ns);
        lengths_ms[i] = sum_ns / job->probe.workers / 1e6;
    }
    return median(lengths_ms, n_runs);
}

/* Processor time of a rank: the median over the runs, the mean over ranks. */
static double cpu_ms(const struct probe_job *job, runs_fn runs, int index, int n_runs)
{
    double sum_ms = 0, each_ms[PROBE_MAX_RUNS];
    for (int r = 0; r < job->probe.workers; r++) {
        for (int i = 0; i < n_runs; i++) each_ms[i] = (double)runs(&job->accounts[r], index)[i].cpu_ns / 1e6;
        sum_ms += median(each_ms, n_runs);
    }
    return sum_ms / job->probe.workers;
}

static void put_speed(struct plan_crew *crew, struct plan_speed speed)
{
    int at = 0;
    while (at < crew->n_speeds && crew->speeds[at].rows < speed.rows) at++;
    bool is_new = at == crew->n_speeds || crew->speeds[at].rows > speed.rows;
    if (is_new && crew->n_speeds == PLAN_MAX_SPEEDS) return;
    if (is_new)
        memmove(&crew->speeds[at + 1], &crew->speeds[at], (size_t)(crew->n_speeds++ - at) * sizeof speed);
    else if (!is_new && crew->speeds[at].step_ms <= speed.step_ms) return; /* what disturbs only makes it longer */
    crew->speeds[at] = speed;
}

static void put_exchange(struct plan_crew *crew, const struct probe_job *job)
{
    struct plan_exchange *exchange = (struct plan_exchange *)plan_crew_exchange(crew, job->transport, job->wire);
    if (exchange == NULL && crew->n_exchanges == PLAN_MAX_EXCHANGES) return;
    bool is_new = exchange == NULL || exchange->n_sizes != job->n_sizes;
    if (exchange == NULL) exchange = &crew->exchanges[crew->n_exchanges++];
    if (is_new) *exchange = (struct plan_exchange){ .n_sizes = job->n_sizes };
    snprintf(exchange->transport, sizeof exchange->transport, "%s", job->transport);
    snprintf(exchange->wire, sizeof exchange->wire, "%s", job->wire);
    for (int i = 0; i < job->n_sizes; i++) {
        int n_runs = job->accounts[0].n_exchanges[i];
        double ms = last_ms(job, exchanges_of, i, n_runs);
        if (!is_new && exchange->ms[i] <= ms) continue;
        exchange->bytes[i] = (double)job->sizes[i] * sizeof(float);
        exchange->ms[i] = ms;
        exchange->cpu_ms[i] = cpu_ms(job, exchanges_of, i, n_runs);
    }
}

static gm_status take(struct plan_machine *machine, const struct probe_job *job, gm_error *error)
{
    bool              is_new = plan_machine_crew(machine, job->probe.workers, job->probe.threads) == NULL;
    struct plan_crew *crew = plan_machine_add_crew(machine, job->probe.workers, job->probe.threads);
    if (crew == NULL) return gmi_error_set(error, GM_ERR_ARG, "more than %d crews are too many for one profile", PLAN_MAX_CREWS);
    for (int i = 0; i < job->probe.n_rows; i++) {
        int    n_steps = job->accounts[0].n_steps[i];
        double step_ms = last_ms(job, steps_of, i, n_steps), mean = mean_ms(job, steps_of, i, n_steps);
        put_speed(crew, (struct plan_speed){ (double)job->probe.rows[i], step_ms, mean < step_ms ? mean : step_ms });
    }
    double update_ms = last_ms(job, updates_of, 0, job->accounts[0].n_updates);
    crew->update_ms = is_new || update_ms < crew->update_ms ? update_ms : crew->update_ms;
    if (job->probe.workers > 1) put_exchange(crew, job);
    return GM_OK;
}

/* ---- running -------------------------------------------------------------------------------------- */

/* An eighth of the gradient, half, and all of it: from these an all-reduce's fixed and its growing cost follow. */
static void choose_sizes(struct probe_job *job)
{
    static const size_t parts[] = { 8, 2, 1 };
    size_t n_params = 0;
    for (int l = 1; l < job->probe.layers.n_sizes; l++)
        n_params += (job->probe.layers.sizes[l - 1] + 1) * job->probe.layers.sizes[l];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t n = n_params / parts[i] > 0 ? n_params / parts[i] : 1;
        if (job->n_sizes == 0 || n > job->sizes[job->n_sizes - 1]) job->sizes[job->n_sizes++] = n;
    }
}

static gm_status run_crew(struct probe_job *job, int fd, gm_error *error)
{
    char where[80], failure[80];
    snprintf(where, sizeof where, PLAN_PROBE_VARIABLE "=/proc/%d/fd/%d", (int)getpid(), fd);
    snprintf(failure, sizeof failure, "measuring %d workers of %d threads failed", job->probe.workers, job->probe.threads);
    const char *const       extra_env[] = { where, NULL };
    const struct study_crew crew = { .n_workers = job->probe.workers, .n_threads = job->probe.threads,
                                     .has_all_cores = job->probe.threads != 1, .limit_ms = PROBE_LIMIT_MS, .name = "plan",
                                     .extra_env = extra_env, .failure = failure };
    return study_crew_run(&crew, error);
}

static gm_status measure(struct plan_machine *machine, struct probe_job *job, const struct plan_probe *probe, int fd, gm_error *error)
{
    job->probe = *probe;
    snprintf(job->transport, sizeof job->transport, "%s", probe->transport);
    snprintf(job->wire, sizeof job->wire, "%s", probe->wire);
    choose_sizes(job);
    gm_status status = run_crew(job, fd, error);
    return status == GM_OK ? take(machine, job, error) : status;
}

gm_status plan_probe_crew(struct plan_machine *machine, const struct plan_probe *probe, gm_error *error)
{
    if (probe->workers < 1 || probe->workers > PROBE_MAX_WORKERS)
        return gmi_error_set(error, GM_ERR_ARG, "%d workers cannot be measured here: 1 to %d", probe->workers, PROBE_MAX_WORKERS);
    size_t n_bytes = sizeof(struct probe_job) + (size_t)probe->workers * sizeof(struct probe_account);
    int    fd = memfd_create("gradmesh-plan", MFD_CLOEXEC);
    void  *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0) memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    gm_status status = memory == MAP_FAILED ? gmi_error_set(error, GM_ERR_NOMEM, "no memory for what %d workers measure", probe->workers)
                                            : measure(machine, memory, probe, fd, error);
    if (memory != MAP_FAILED) munmap(memory, n_bytes);
    if (fd >= 0) close(fd);
    return status;
}
