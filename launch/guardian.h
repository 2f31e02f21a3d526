/* guardian.h - the process that outlives the launcher, should it be killed.
 *
 * SIGKILL leaves the launcher no last word. So a small process in a session of its own waits at the
 * end of a pipe whose other end only the launcher holds: when that closes, the launcher is gone,
 * and the guardian kills what is left of the job until nothing is, then exits. It holds none of the
 * user's descriptors, so a pipeline that the launcher is part of never waits for it. */
#ifndef LAUNCH_GUARDIAN_H
#define LAUNCH_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

struct launch_guardian {
    pid_t pid; /* 0: none */
    int pipe_fd;
};

/* Starts it; before the first worker, and with signals held (launch_signals_hold). False: the
 * system refused (errno). */
bool launch_guardian_start(struct launch_guardian *guardian, const char *job_id);

/* Tells it of a worker's process group, and that the group is empty. */
void launch_guardian_add(struct launch_guardian *guardian, pid_t group);
void launch_guardian_forget(struct launch_guardian *guardian, pid_t group);

/* Ends it, when the job is over. */
void launch_guardian_dismiss(struct launch_guardian *guardian);

#endif
