/* model.h - how long a training step will take, in closed form.
 *
 *     step = compute + waiting for the slowest + exchange that is not hidden + update
 *
 *     compute    of one worker's share of the batch, at the occupancy that it will have (machine.h)
 *     exchange   alpha-beta-gamma: turns * alpha + bytes sent / beta + bytes added / gamma, with the effort of the algorithm
 *                that the library will choose (coll/cost.h); within a machine, where each byte is a core's work, as measured
 *     hidden     what of it runs beside the backward pass, bucket by bucket; what it takes of the core makes that longer
 *
 * Pure functions of their arguments. */
#ifndef PLAN_MODEL_H
#define PLAN_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/machine.h"

struct plan_job {
    struct gmt_layers layers;
    size_t batch;        /* of all workers */
    size_t accumulate;   /* parts in which a worker computes its share; at least 1 */
    int    threads;      /* of a worker */
    char   transport[8]; /* between workers of one machine: "tcp", "shm" */
    char   wire[8];
    bool   overlaps;
    size_t bucket_bytes; /* 0: one piece; GMT_BUCKET_BYTES_AUTO */

    bool             is_network;  /* each worker on a machine of its own; else all on one */
    struct plan_link link;
    double           burst_bytes; /* that the link takes at once after a pause: of a shaped one */
    bool             is_emulated; /* the machines are namespaces of this one, and share its cores */
};

struct plan_prediction {
    int    workers;
    double step_ms;
    double compute_ms; /* of the mean worker, with samples and the looks at the gradient */
    double wait_ms;    /* until the slowest has computed, too */
    double exposed_ms, hidden_ms; /* of the exchange */
    double update_ms;
    double exchange_ms;  /* all of it, were it alone */
    double link_ms, cpu_ms; /* of that: the link busy; a core busy */
    double zero_comm_ms; /* without any exchange */
    double speedup, efficiency, zero_comm_speedup; /* over plan_predict of one worker */
    bool   pays;         /* faster than one worker */
    double sent_bytes;   /* payload of the busiest worker */
    const char *algorithm; /* of the largest bucket; "" for one worker */
};

/* One step of so many workers (at least 1); speedup, efficiency and pays included. */
struct plan_prediction plan_predict(const struct plan_machine *machine, const struct plan_job *job, int workers);

/* Share of a line that streams to several at once make use of. Measured with 4 workers (docs/planner.md): 0.996 over
 * 100 Mbit/s, 0.96 and 0.97 over 1 Gbit/s. */
#define PLAN_UNEVEN_STREAMS 0.97

/* Parameters of the network, and floating-point operations of a sample in a step. */
double plan_n_params(const struct gmt_layers *layers);
double plan_sample_flops(const struct gmt_layers *layers);

/* The smallest batch from which that many workers are faster than one; 0: none up to 2^30. */
size_t plan_break_even_batch(const struct plan_machine *machine, const struct plan_job *job, int workers);

/* The fastest world up to so many workers. 1: none pays. */
int plan_best_world(const struct plan_machine *machine, const struct plan_job *job, int max_workers);

/* Up from 2: the last world, of those that follow one another, that is faster than one worker. 1: not even two are. */
int plan_pays_up_to(const struct plan_machine *machine, const struct plan_job *job, int max_workers);

/* The rate that the compute time means, in floating-point operations per second of one of so many workers. */
double plan_flops_of(const struct plan_machine *machine, const struct plan_job *job, int workers);

/* An all-reduce of so many bytes, of f32, alone. */
double plan_exchange_ms(const struct plan_machine *machine, const struct plan_job *job, int workers, double bytes);

#endif
