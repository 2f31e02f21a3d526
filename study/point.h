/* point.h - one point of a scaling study: a training job in one setting, run on this machine and timed.
 *
 *     regime    BLAS threads of a worker    where it runs         samples of a step, all workers together
 *     shared    as many as there are cores  anywhere              512
 *     light     1                           on a core of its own  512
 *     heavy     1                           on a core of its own  2048
 *
 * N workers are started through launch/, meet, make a few steps on samples that lie in memory, then as many as
 * fit into the time, and leave what they saw in memory that the caller shares with them. When study_measure returns,
 * no process and no network of the point is left.
 *
 * The program that calls it must answer to STUDY_VARIABLE: a copy of it that finds the variable in its environment
 * calls study_work and exits with its value (cli/cmd_scaling.c does). */
#ifndef STUDY_POINT_H
#define STUDY_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/params.h"
#include "train/trainer.h"

#define STUDY_VARIABLE "GRADMESH_STUDY"

enum { STUDY_MAX_RANKS = 64 };

enum study_regime { STUDY_SHARED, STUDY_LIGHT, STUDY_HEAVY, STUDY_REGIME_END };

struct study_point {
    enum study_regime regime;
    int               world_size;   /* 1 .. STUDY_MAX_RANKS */
    bool              is_zero_comm; /* each worker trains its share of the batch by itself: no exchange at all */
    struct gmt_layers layers;
    size_t            batch;         /* of all workers; at least one sample for each */
    char              transport[16]; /* "auto", "tcp", "shm" */
    char              wire[8];       /* "f32", "bf16", "f16", "int8" */
    enum gmt_overlap  overlap;       /* of exchange and computing, as gradmesh train does it */
    char              network[24];   /* "loopback"; else a rate ("100mbit", "10gbit"): each worker on a host of its own */
    size_t            bucket_bytes;  /* GMT_BUCKET_BYTES_AUTO */
    double            seconds;       /* how long steps are timed */
};

/* What a rank did in an average step (of the middle half of the steps, by length). compute, exposed and wait make a step. */
struct study_rank {
    double compute_ms; /* forward, backward, update, bringing samples */
    double comm_exposed_ms;
    double comm_hidden_ms; /* beside computing */
    double wait_ms;        /* for ranks that came later */
    double median_ms;
    int    cpu;            /* the core that it is bound to; -1: none */
};

struct study_result {
    double   median_ms;    /* of the slowest rank */
    double   compute_ms, comm_exposed_ms, comm_hidden_ms, wait_ms; /* means over the ranks */
    double   cpu_s;        /* of all workers, for a step */
    uint64_t payload_bytes; /* that all workers sent in a step, together */
    double   clock_error_us; /* of arrival times of different ranks */
    int      n_steps, n_threads;
    int      n_cores;       /* that the workers may use together */
    bool     is_overlapping;
    bool     is_pinned;
    bool     are_identical; /* all ranks hold the same state at the end; true without communication */
    char     transport[16]; /* that was used: "tcp", "shm", "none" */
    int      last_rank;      /* that costs most by coming last to exchanges (train/arrivals.h); -1: a world of one */
    double   last_cost_ms;   /* ... in an average step */
    double   last_share;     /* of the steps that it came last to */
    struct study_rank ranks[STUDY_MAX_RANKS];
};

/* The point that the regime stands for, of the default model, over loopback. */
void study_point_default(struct study_point *point, enum study_regime regime, int world_size);

const char *study_regime_name(enum study_regime regime); /* "shared" */
size_t      study_regime_batch(enum study_regime regime);

/* Runs the point; seconds. What workers write to standard error is passed on. GM_OK: *result is filled. GM_ERR_ARG,
 * GM_ERR_NOMEM, GM_ERR_UNSUPPORTED (a network, and this user may make none), GM_ERR_ABORTED (a signal that asks the
 * program to end, which is in error->sys_errno), GM_ERR_SYSTEM (a worker failed; it has said why). */
GM_MUST_USE gm_status study_measure(const struct study_point *point, struct study_result *result, gm_error *error);

/* What a worker does; its exit status. */
int study_work(const char *value);

#endif
