/* shared.h - the memory that who measures a point shares with the workers of the point. */
#ifndef STUDY_SHARED_H
#define STUDY_SHARED_H

#include <stdatomic.h>
#include <sys/types.h>

#include "study/point.h"

enum { STUDY_MAX_STEPS = 1000, STUDY_MIN_STEPS = 8 };

struct study_step {
    int64_t elapsed_ns, compute_ns, comm_exposed_ns, comm_hidden_ns, wait_ns;
};

struct study_account {
    bool              is_complete;
    int               n_steps;
    int               cpu; /* -1: not bound to one */
    int               n_cpus;
    bool              is_overlapping;
    bool              uses_memory, uses_tcp;
    int64_t           cpu_ns;
    int               last_rank; /* that cost most by coming last; the same on all ranks */
    int64_t           last_cost_ns; /* in an average step */
    double            last_share;   /* of the steps that it came last to */
    int64_t           clock_error_ns;
    uint64_t          payload_bytes;
    char              state_hash[GMT_HASH_HEX_BYTES];
    struct study_step steps[STUDY_MAX_STEPS];
};

struct study_job {
    struct study_point point;
    int                n_threads;
    pid_t              hosts[STUDY_MAX_RANKS]; /* whose network namespace is the rank's; 0: none */
    atomic_int         n_done;                 /* workers that have made all their timed steps */
    struct study_account accounts[];           /* (world_size) */
};

/* The parent's part: what the accounts say. Pure. */
void study_summarize(const struct study_job *job, struct study_result *result);

#endif
