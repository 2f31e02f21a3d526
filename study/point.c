#include "study/point.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "study/crew.h"
#include "study/launch.h"
#include "study/network.h"
#include "study/shared.h"
#include "train/bucket.h"

enum { POINT_LIMIT_MS = 300000 }; /* a point that takes longer hangs */

/* ---- the regimes -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t      batch;
    bool        has_all_cores;
} regimes[STUDY_REGIME_END] = {
    [STUDY_SHARED] = { "shared", 512, true },
    [STUDY_LIGHT] = { "light", 512, false },
    [STUDY_HEAVY] = { "heavy", 2048, false },
};

const char *study_regime_name(enum study_regime regime) { return regimes[regime].name; }

size_t study_regime_batch(enum study_regime regime) { return regimes[regime].batch; }

void study_point_default(struct study_point *point, enum study_regime regime, int world_size)
{
    *point = (struct study_point){ .regime = regime,
                                   .world_size = world_size,
                                   .layers = { .sizes = { 784, 1024, 10 }, .n_sizes = 3 },
                                   .batch = regimes[regime].batch,
                                   .transport = "auto",
                                   .wire = "f32",
                                   .overlap = GMT_OVERLAP_AUTO,
                                   .network = "loopback",
                                   .bucket_bytes = GMT_BUCKET_BYTES_AUTO,
                                   .seconds = 0.7 };
}

/* ---- shared memory -------------------------------------------------------------------------------- */

/* Workers open it through this process's descriptor, so that nothing lies in a file system. */
struct memory {
    int               fd;
    size_t            n_bytes;
    struct study_job *job;
};

static void close_memory(struct memory *memory)
{
    if (memory->job != NULL) munmap(memory->job, memory->n_bytes);
    if (memory->fd >= 0) close(memory->fd);
}

static gm_status open_memory(struct memory *memory, const struct study_point *point, gm_error *error)
{
    *memory = (struct memory){
        .n_bytes = sizeof(struct study_job) + (size_t)point->world_size * sizeof(struct study_account),
        .fd = memfd_create("gradmesh-study", MFD_CLOEXEC)
    };
    void *at = MAP_FAILED;
    if (memory->fd >= 0 && ftruncate(memory->fd, (off_t)memory->n_bytes) == 0)
        at = mmap(NULL, memory->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (at == MAP_FAILED) {
        close_memory(memory);
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for what %d workers measure", point->world_size);
    }
    memory->job = at;
    return GM_OK;
}

/* ---- running -------------------------------------------------------------------------------------- */

static int n_own_cores(void)
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

static gm_status check_point(const struct study_point *point, gm_error *error)
{
    if (point->world_size < 1 || point->world_size > STUDY_MAX_RANKS)
        return gmi_error_set(error, GM_ERR_ARG, "a world of %d: expected 1 to %d workers", point->world_size, STUDY_MAX_RANKS);
    if (point->batch < (size_t)point->world_size)
        return gmi_error_set(error, GM_ERR_ARG, "a batch of %zu samples is not enough for %d workers: each needs one",
                             point->batch, point->world_size);
    return gmt_layers_check(&point->layers, error);
}

int study_regime_threads(enum study_regime regime) { return regimes[regime].has_all_cores ? n_own_cores() : 1; }

gm_status study_launch(const struct study_point *point, char *const *argv, const char *const *extra_env, gm_error *error)
{
    char failure[96];
    snprintf(failure, sizeof failure, "the workers of %s, %d of them, did not get through", regimes[point->regime].name,
             point->world_size);
    const struct study_crew crew = { .n_workers = point->world_size, .n_threads = study_regime_threads(point->regime),
                                     .has_all_cores = regimes[point->regime].has_all_cores, .limit_ms = POINT_LIMIT_MS,
                                     .argv = argv, .name = "scaling", .extra_env = extra_env, .failure = failure };
    return study_crew_run(&crew, error);
}

/* Copies of this program, which find the memory. */
static gm_status run_workers(const struct memory *memory, gm_error *error)
{
    char where[64];
    snprintf(where, sizeof where, STUDY_VARIABLE "=/proc/%d/fd/%d", (int)getpid(), memory->fd);
    const char *const extra_env[] = { where, NULL };
    return study_launch(&memory->job->point, NULL, extra_env, error);
}

static gm_status measure(struct memory *memory, struct study_result *result, gm_error *error)
{
    const struct study_point *point = &memory->job->point;
    struct study_network      network;
    gm_status                 status = study_network_open(&network, point->network, point->world_size, error);
    if (status != GM_OK) return status;
    for (int r = 0; r < point->world_size; r++) memory->job->hosts[r] = network.hosts[r];
    status = run_workers(memory, error);
    study_network_close(&network);
    if (status != GM_OK) return status;
    study_summarize(memory->job, result);
    result->n_cores = n_own_cores();
    return GM_OK;
}

gm_status study_measure(const struct study_point *point, struct study_result *result, gm_error *error)
{
    struct memory memory;
    gm_status     status = check_point(point, error);
    if (status == GM_OK) status = open_memory(&memory, point, error);
    if (status != GM_OK) return status;
    memory.job->point = *point;
    memory.job->n_threads = study_regime_threads(point->regime);
    status = measure(&memory, result, error);
    close_memory(&memory);
    return status;
}
