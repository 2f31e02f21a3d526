/* machine.h - what a machine can do, as far as the prediction of a training step depends on it: measured (probe.h), given by
 * the user, or read from a profile.
 *
 *     crew       N workers that compute at once on the machine: how long the real training kernels take then, by the rows
 *                of a worker's share, and how long an all-reduce takes among them, by its size. Occupancy is everything:
 *                workers share cores, caches and memory.
 *     flops      in place of crews: floating-point operations per second of one worker
 *     link       a network between machines: latency (alpha), bandwidth (1 / beta)
 *     turns      what calls, turns on a core and bytes cost here, of which a simulation is made (simulate.h)
 *     reduce     what a byte costs that is added up (gamma), or made into a wire format and back
 *
 * A profile is a machine as JSON. */
#ifndef PLAN_MACHINE_H
#define PLAN_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/turns.h"
#include "gradmesh.h"
#include "train/params.h"

enum { PLAN_MAX_CREWS = 32, PLAN_MAX_SPEEDS = 12, PLAN_MAX_EXCHANGES = 4, PLAN_MAX_SIZES = 8 };

/* A step without an exchange, of the slowest of the crew. */
struct plan_speed {
    double rows;
    double step_ms; /* bringing samples, forward, backward, update */
    double mean_ms; /* the same, of the mean worker: what is missing to step_ms it waits for the slowest */
};

/* An all-reduce of the whole crew, behind a backward pass as in training. */
struct plan_exchange {
    char   transport[8]; /* "tcp", "shm" */
    char   wire[8];
    int    n_sizes;
    double bytes[PLAN_MAX_SIZES]; /* of the buffer, as f32; rising */
    double ms[PLAN_MAX_SIZES];    /* until the last rank has the sum */
    double cpu_ms[PLAN_MAX_SIZES]; /* of one rank's core */
};

struct plan_crew {
    int    workers, threads;
    int    n_speeds;
    struct plan_speed speeds[PLAN_MAX_SPEEDS]; /* rows rising */
    double update_ms; /* of that step: the optimizer's part */
    int    n_exchanges;
    struct plan_exchange exchanges[PLAN_MAX_EXCHANGES];
};

struct plan_link {
    double latency_us;      /* of a message, one way */
    double bandwidth_Bps;   /* payload, one way */
};

struct plan_machine {
    int               n_cores;
    struct gmt_layers layers; /* of the network that the crews computed */
    int               n_crews;
    struct plan_crew  crews[PLAN_MAX_CREWS];
    double            flops;  /* of a worker; 0: by the crews */
    double            memory_Bps; /* of the update, where no crew has shown it */
    bool              has_link;
    struct plan_link  link;   /* given by the user: the network, in place of what --network says */
    bool              has_turns;
    struct bench_turns turns;
    double            reduce_Bps; /* bytes added up in a second */
    double            codec_Bps;  /* f32 bytes to a wire format or back, in a second */
};

/* Nothing measured; constants that are the library's own (coll/cost.h). */
void plan_machine_init(struct plan_machine *machine);

/* The crew of so many workers and threads, or NULL. */
const struct plan_crew *plan_machine_crew(const struct plan_machine *machine, int workers, int threads);
struct plan_crew       *plan_machine_add_crew(struct plan_machine *machine, int workers, int threads); /* NULL: full */

/* Of the crew; NULL: it was not measured. */
const struct plan_exchange *plan_crew_exchange(const struct plan_crew *crew, const char *transport, const char *wire);

/* Written to a temporary name, synced and renamed. GM_ERR_SYSTEM. */
GM_MUST_USE gm_status plan_profile_save(const struct plan_machine *machine, const char *path, gm_error *error);
/* GM_ERR_ARG with a sentence when the file is damaged or something else; *machine is then unspecified. */
GM_MUST_USE gm_status plan_profile_load(struct plan_machine *machine, const char *path, gm_error *error);

/* ---- amounts with units: the whole of `text`, or false ---- */

bool plan_read_flops(double *flops, const char *text);          /* "50G", "50 GFLOP/s", "5e10" */
bool plan_read_seconds_us(double *us, const char *text);        /* "25us", "0.1ms", "25" (microseconds) */
/* "1gbit", "100mbit": of the line, from which what packets add is taken off; "117MB", "1.2GB/s", "1G": payload bytes. */
bool plan_read_bandwidth(double *bytes_per_s, const char *text);

#endif
