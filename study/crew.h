/* crew.h - workers that are started to be measured, and the memory in which they leave what they measured.
 *
 * They are copies of a program, quiet and bound to cores if wanted. The memory has no name: whoever started them holds its
 * descriptor, and they find it through /proc by an environment variable. */
#ifndef STUDY_CREW_H
#define STUDY_CREW_H

#include <stdbool.h>

#include "gradmesh.h"

struct study_crew {
    int                n_workers, n_threads; /* threads: of each worker's BLAS */
    bool               has_all_cores;        /* false: each is bound to one, in a circle */
    int                limit_ms;
    char *const       *argv;                 /* NULL: this program as `name` (argv[0] is its path) */
    const char        *name;
    const char *const *extra_env;            /* NULL-terminated "NAME=VALUE", at most 10 */
    const char        *failure;              /* the sentence when a worker fails */
};

/* Waits for all of them. GM_OK; GM_ERR_ABORTED with the signal in error->sys_errno; GM_ERR_SYSTEM; what launch_run returns. */
GM_MUST_USE gm_status study_crew_run(const struct study_crew *crew, gm_error *error);

/* In a worker: the memory at the path that its variable holds. NULL: it cannot be had. */
void *study_crew_memory(const char *path);

#endif
