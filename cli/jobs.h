/* jobs.h - asks the jobs that run on this host what their ranks are doing.
 *
 * Every rank listens on an abstract Unix socket (src/comm/status.c); here they are found in /proc/net/unix, all asked
 * at once, and what they say is put together: each rank's own word counts, then what the one in the middle of the
 * control connections knows of it, then what the kernel knows of a process that does not answer. */
#ifndef CLI_JOBS_H
#define CLI_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/job_links.h"
#include "net/local.h"

enum { CLI_JOBS_MAX = 64, CLI_JOB_TEXT_BYTES = 400 };

enum cli_rank_state {
    CLI_RANK_UNKNOWN,   /* it is not of this host, or has not come yet */
    CLI_RANK_USER_CODE,
    CLI_RANK_IN_CALL,
    CLI_RANK_WAITING,
    CLI_RANK_LEFT,
    CLI_RANK_NO_ANSWER, /* its process is there and does not answer */
};

struct cli_job_rank {
    enum cli_rank_state state;
    bool      is_own_word, is_here;
    long      pid;
    char      process_state; /* base/process.h, of one that does not answer */
    uint64_t  entered_seq, done_seq;
    int       peer;          /* CLI_RANK_WAITING: for whom */
    long long for_ms, silent_ms; /* -1: not known */
    char      call[160], says[256], address[80];
    bool      has_spent;     /* its own word: */
    long long now_ns, waiting_ns; /* its clock, and how long it slept in calls so far */
    uint64_t  n_calls;
    double    waiting_share; /* of the time between two questions (cli_jobs_compare); -1: not known */
};

struct cli_job {
    char      id[40], group[40];
    int       n_ranks;
    bool      is_ready;
    char      failure[CLI_JOB_TEXT_BYTES], missing[CLI_JOB_TEXT_BYTES];
    struct cli_job_rank *ranks;
    struct cli_links     links; /* over TCP, of the ranks that run here */
    int       straggler;      /* for whom the others wait in the end; -1: nobody */
    bool      is_moving;      /* calls ended between two questions; then the straggler is who waits least, by far */
    double    straggler_share; /* ... and this is how much less it waits than the others do, of the time */
    double    straggler_ms;   /* ... which is so much in each call */
};

struct cli_jobs {
    int            n_jobs;
    int            n_others; /* sockets of other users, which were not asked */
    struct cli_job jobs[CLI_JOBS_MAX];
};

/* Asks for `within_ms` at the most. `id`: of one job, NULL: all. False: /proc/net/unix cannot be read. */
bool cli_jobs_ask(struct cli_jobs *jobs, const char *id, int within_ms);
/* What changed since the same question was asked `before`. In a job that moves, whom the others wait for at one moment says
 * little; over some time the slow rank is the one that hardly waits while the others do. */
void cli_jobs_compare(struct cli_jobs *jobs, const struct cli_jobs *before);

/* ---- the parts of cli_jobs_ask that are useful alone ---- */

/* Where a rank can be asked. */
struct cli_job_socket {
    char        name[GMI_LOCAL_TEXT_BYTES + 1];
    long        pid;
    int         rank;
    const char *job_id; /* in `name` */
};
/* From a line of /proc/net/unix. False: it is no rank's. */
bool cli_job_socket_read(struct cli_job_socket *socket, const char *line);

/* What a rank has answered, of which nothing is left; that one of this user is there and has not; and, once all have,
 * who holds up whom. */
void cli_jobs_take(struct cli_jobs *jobs, char *answer);
void cli_jobs_take_silence(struct cli_jobs *jobs, const struct cli_job_socket *socket);
void cli_jobs_judge(struct cli_jobs *jobs);

void cli_jobs_fini(struct cli_jobs *jobs);

const char *cli_rank_state_name(enum cli_rank_state state);

#endif
