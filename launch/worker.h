/* worker.h - starts one worker: a child with its own process group, environment, pipes and mask. */
#ifndef LAUNCH_WORKER_H
#define LAUNCH_WORKER_H

#include <stdbool.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "gradmesh.h"
#include "launch/signals.h"

/* What all workers of a job have in common. */
struct launch_spawn {
    int n_workers;
    char *const *argv;
    const char *const *extra_env; /* ends with NULL; may be NULL */
    const char *job_id;
    const char *secret_path; /* "": what the launcher's own environment says */
    int store_port, master_port;
    const struct launch_signals *signals;
    struct rlimit descriptors; /* the limit that the workers get back */
};

struct launch_worker {
    pid_t pid;
    int stdout_fd, stderr_fd; /* the reading ends */
};

/* Starts the worker and waits until it runs the program, so that on GM_OK it does. `core`: the one
 * core it may run on, or -1. GM_ERR_SYSTEM, GM_ERR_NOMEM: it does not exist; *error says why, and
 * *exit_status what a shell would return (126 or 127 when the program cannot be run, else 1). */
gm_status launch_worker_start(const struct launch_spawn *spawn, int rank, int core,
                              struct launch_worker *worker, int *exit_status, gm_error *error);

#endif
