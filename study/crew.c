#include "study/crew.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "launch/launcher.h"

gm_status study_crew_run(const struct study_crew *crew, gm_error *error)
{
    char        path[PATH_MAX] = "/proc/self/exe", name[32], threads[40];
    char       *self[] = { path, name, NULL };
    const char *env[12] = { threads };
    ssize_t     n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n > 0) path[n] = '\0';
    snprintf(name, sizeof name, "%s", crew->name != NULL ? crew->name : "");
    for (int i = 0; i < 10 && crew->extra_env[i] != NULL; i++) env[i + 1] = crew->extra_env[i];
    snprintf(threads, sizeof threads, "OPENBLAS_NUM_THREADS=%d", crew->n_threads);
    const struct launch_options options = { .n_workers = crew->n_workers,
                                            .argv = crew->argv != NULL ? crew->argv : self,
                                            .extra_env = env,
                                            .timeout_ms = crew->limit_ms,
                                            .bind = crew->has_all_cores ? LAUNCH_BIND_NONE : LAUNCH_BIND_CORES,
                                            .stdout_to_stderr = true,
                                            .has_small_worlds = true,
                                            .hides_pids = true };
    struct launch_result result;
    gm_status            status = launch_run(&options, &result, error);
    if (status == GM_OK && result.end == LAUNCH_END_SIGNAL) {
        status = gmi_error_set(error, GM_ERR_ABORTED, "stopped by a signal");
        error->sys_errno = result.signal;
    } else if (status == GM_OK && result.exit_status != 0) {
        status = gmi_error_set(error, GM_ERR_SYSTEM, "%s", crew->failure);
    }
    launch_result_fini(&result);
    return status;
}

void *study_crew_memory(const char *path)
{
    struct stat facts;
    int         fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts) != 0) return NULL;
    void *memory = mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}
