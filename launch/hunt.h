/* hunt.h - finds every process that belongs to a job, wherever it has gone.
 *
 * A worker's offspring may leave its process group or session and lose its parents. What it cannot
 * lose by itself is what /proc tells of it: the environment it was started with, and who its
 * ancestors are as long as they live. A process belongs to the job when one of these holds:
 *   - its environment carries the job's id, or names it among the jobs that its own is nested in;
 *   - it stands in the process group of a worker;
 *   - its parent belongs to the job, or is `ancestor` (who adopts orphans, so that this stays
 * true). After the launcher's death nobody adopts the orphans any more. Then one that has been
 * started with an empty environment, has left its session and has no ancestor left in the job is
 * not found. */
#ifndef LAUNCH_HUNT_H
#define LAUNCH_HUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LAUNCH_ENV_JOB_ID "GRADMESH_JOB_ID"
#define LAUNCH_ENV_OUTER_JOBS                                                                      \
    "GRADMESH_OUTER_JOBS" /* ids of the jobs around this one, with commas */

struct launch_hunt {
    const char *job_id;
    pid_t ancestor;      /* 0: none */
    const pid_t *groups; /* process groups of workers, all in session `session` */
    size_t n_groups;
    pid_t session;
    const pid_t *spared; /* these and their offspring are none of the job's */
    size_t n_spared;
    unsigned long long
        born_ticks; /* nothing that is older belongs to the job (launch_birth_ticks) */
};

/* Sends `signal` (0: none) to every living process of the job, never to the caller. Returns how
 * many there are, or -1 when /proc cannot be read or memory is short. Does not block. */
int launch_hunt(const struct launch_hunt *hunt, int signal);

/* The children of the calling process, into pids[max_pids]; returns how many. */
size_t launch_list_children(pid_t *pids, size_t max_pids);

/* Has the process begun to exit? (Also true when it is dead but not yet reaped.) */
bool launch_is_exiting(pid_t pid);

/* When the calling process was started, in clock ticks since the machine was. 0 if unknown. */
unsigned long long launch_birth_ticks(void);

#endif
