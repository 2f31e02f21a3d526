/* launcher.h - starts N copies of a program as one job on this machine and sees them to their end.
 *
 * The launcher serves the store through which the ranks meet, tells every worker who it is by its
 * environment, passes the workers' output on in whole lines, and takes care that the job ends as
 * one: when a worker fails, when a signal arrives, when the time is up, and when the launcher
 * itself is killed. It does not restart anything and starts nothing on other machines. */
#ifndef LAUNCH_LAUNCHER_H
#define LAUNCH_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gradmesh.h"

enum { LAUNCH_MAX_WORKERS = 1024, LAUNCH_JOB_ID_BYTES = 32 };

/* Exit statuses that the launcher gives a meaning. */
enum {
    LAUNCH_EXIT_SYSTEM = 1,      /* the job could not be started or its output not be written */
    LAUNCH_EXIT_PEER_FAILED = 3, /* by which a worker says: another rank failed, not I */
    LAUNCH_EXIT_TIMEOUT = 124,
    LAUNCH_EXIT_NOT_EXECUTABLE = 126,
    LAUNCH_EXIT_NOT_FOUND = 127,
    LAUNCH_EXIT_SIGNAL = 128, /* plus the signal's number */
};

enum launch_bind {
    LAUNCH_BIND_NONE,  /* workers may run wherever the launcher may */
    LAUNCH_BIND_CORES, /* rank r runs on the r-th core of the launcher's mask, counted in a circle
                        */
};

struct launch_options {
    int n_workers;                /* 1 .. LAUNCH_MAX_WORKERS */
    char *const *argv;            /* the program and its arguments, ends with NULL */
    const char *const *extra_env; /* "NAME=VALUE" for every worker, ends with NULL; may be NULL */
    int port;                     /* of the store; 0: any free one */
    int64_t timeout_ms;           /* the job is ended then; 0: no limit */
    enum launch_bind bind;
    bool prefix_stdout, prefix_stderr; /* "[R] " before each line of a worker */
    bool colour_stdout, colour_stderr; /* ... in a colour for each rank */
    bool stdout_to_stderr;             /* standard output is kept free for the caller */
    bool has_small_worlds;             /* workers may meet in parts: none is missed in the whole */
    bool hides_pids;       /* no "rank R pid P" at the start */
    bool is_verbose;
};

/* What became of one worker. */
struct launch_rank {
    pid_t pid;
    bool was_started, has_ended;
    bool was_ended_by_us; /* it died of a signal that the launcher had sent */
    bool was_stopped;     /* ... after it had been stopped, for which the others gave up on it */
    int64_t stopped_ns;   /* while it lives: since when it has been stopped; 0: it is not */
    int exit_status;      /* 0 when it died of a signal */
    int signal;           /* 0 when it exited */
    int64_t elapsed_ns;   /* from the start of the job to its end */
};

/* Why the job came to its end. */
enum launch_end {
    LAUNCH_END_DONE,    /* every worker exited with 0 */
    LAUNCH_END_FAILURE, /* first_failed is the rank */
    LAUNCH_END_SIGNAL,  /* the launcher was told to stop by `signal` */
    LAUNCH_END_TIMEOUT,
    LAUNCH_END_OUTPUT, /* standard output or error could not be written any more */
    LAUNCH_END_START,  /* it never came to a start; the error says why */
};

struct launch_result {
    int exit_status; /* what the command should exit with */
    enum launch_end end;
    int first_failed; /* -1: none */
    int signal;
    int n_ranks_joined; /* ranks that met at the store */
    int64_t elapsed_ns;
    char job_id[LAUNCH_JOB_ID_BYTES];
    int n_ranks;
    struct launch_rank *ranks; /* NULL when memory was short */
};

/* Runs the job to its end. Messages go to standard error. INT, TERM, HUP and QUIT are caught
 * meanwhile and passed on; the process adopts the orphans of its descendants; it must have one
 * thread that matters and run one job at a time. All of that is put back afterwards. When it
 * returns, no process of the job is left.
 *
 * GM_OK: the job was started; *result says how it ended. Anything else: it could not be started,
 * *error says why in a sentence and result->exit_status is 1, 126 or 127. *result needs
 * launch_result_fini in either case. */
gm_status launch_run(const struct launch_options *options, struct launch_result *result,
                     gm_error *error);
void launch_result_fini(struct launch_result *result);

/* "exited with status 7", "was killed by SIGSEGV (Segmentation fault)". */
const char *launch_describe_end(const struct launch_rank *rank, char *text, size_t text_bytes);

#endif
