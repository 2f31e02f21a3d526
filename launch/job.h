/* job.h - what the files of the launcher share: a job while it lives.
 *
 *     prepare.c      what it needs before its first worker, the workers' start, and giving all of it back
 *     launcher.c     its life, and the order of its states
 *     ending.c       who is to blame, and how the others are ended
 *     last_words.c   what is said of it in the end */
#ifndef LAUNCH_JOB_H
#define LAUNCH_JOB_H

#include <sys/resource.h>

#include "base/log.h"
#include "launch/deaths.h"
#include "launch/guardian.h"
#include "launch/launcher.h"
#include "launch/relay.h"
#include "launch/secret.h"
#include "launch/signals.h"
#include "net/poller.h"
#include "rendezvous/store_server.h"

enum {
    LAUNCH_MAX_SPARED = 64,
    LAUNCH_FAILURE_GRACE_MS = 2000, /* between TERM and KILL, when a rank has failed */
};

/* See launcher.c. */
enum launch_job_state { LAUNCH_RUNNING, LAUNCH_SETTLING, LAUNCH_ENDING, LAUNCH_SWEEPING, LAUNCH_DRAINING, LAUNCH_REPORTING, LAUNCH_OVER };

struct launch_job {
    const struct launch_options *options;
    struct launch_result *result;
    enum launch_job_state state;
    int64_t start_ns, timeout_ns, noticed_ns, settle_ns, term_ns, kill_ns, give_up_ns, sweep_ns, look_ns;
    int n_alive, n_sweeps;
    bool was_killed;      /* KILL was sent: nobody is asked politely any more */
    bool gives_up_output; /* the reader is not waited for any longer */
    int sent_signal;      /* the last that went to the workers; 0: none */

    struct launch_signals signals;
    struct launch_guardian guardian;
    struct launch_deaths deaths;
    struct launch_relay *relay;
    struct gmi_poller poller;
    struct gmi_log log;
    struct launch_secret secret;
    struct gmi_store_server *store;
    int master_fd, master_port; /* a port kept free for the program's own use */
    int *cores;                 /* of the mask, for LAUNCH_BIND_CORES */
    int n_cores;
    struct rlimit descriptors; /* as it was before */
    bool is_in_charge;
    int was_subreaper;
    unsigned long long born_ticks;
    pid_t spared[LAUNCH_MAX_SPARED]; /* children from before the job, and the guardian */
    size_t n_spared;
};

/* A line "gradmesh: ..." of the launcher's own. */
void launch_job_say(struct launch_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- prepare.c ---- */
/* Everything that a job needs before its first worker. */
gm_status launch_job_prepare(struct launch_job *job, gm_error *error);
/* From here on orphans of the job come to us, and somebody watches over us. */
gm_status launch_job_take_charge(struct launch_job *job, gm_error *error);
gm_status launch_job_start_workers(struct launch_job *job, gm_error *error);
/* Where the store is, and what about the machine is easily overlooked. */
void      launch_job_say_where(struct launch_job *job);
void      launch_job_release(struct launch_job *job);

/* ---- ending.c ---- */
/* How heavily a rank's end weighs; the later ones more. */
enum launch_blame { LAUNCH_INNOCENT, LAUNCH_REPORTS_ANOTHER, LAUNCH_FAILED, LAUNCH_WAS_KILLED };
enum launch_blame launch_blame_of(const struct launch_rank *rank);

void launch_job_enter(struct launch_job *job, enum launch_job_state state);
void launch_job_signal(struct launch_job *job, int signal); /* all workers that live */
/* Why the job ends is settled here; how it is ended too: `signal` first, KILL after the grace. */
void launch_job_end(struct launch_job *job, enum launch_end why, int signal, int64_t grace_ms);
/* Because `rank` failed, or one that was stopped before. */
void launch_job_end_for_failure(struct launch_job *job, int rank);
void launch_job_end_politely(struct launch_job *job);
void launch_job_end_now(struct launch_job *job);
/* Reaps everybody who is dead and, while the job runs, decides whether one of them ends it. */
void launch_job_reap(struct launch_job *job);

/* ---- last_words.c ---- */
void launch_job_say_last_words(struct launch_job *job);

#endif
