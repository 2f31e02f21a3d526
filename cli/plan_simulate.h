/* plan_simulate.h - `gradmesh plan --simulate N`: the real schedules over simulated links, as a table of algorithms. */
#ifndef CLI_PLAN_SIMULATE_H
#define CLI_PLAN_SIMULATE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

#include "plan/simulate.h"

/* Is there a --simulate among the words? Then its options are these. */
bool cli_is_plan_simulation(int argc, char **argv);
int  cli_plan_simulate(int argc, char **argv);

enum { CLI_MAX_SIMULATED = 256 };

/* One algorithm with one number of workers. */
struct cli_simulated {
    struct plan_simulation        simulation;
    struct plan_simulation_result result;
    const char                   *why_not; /* NULL: it was simulated */
};

/* Up to which size of a buffer another algorithm takes less time than the ring. */
struct cli_crossing {
    int         n_ranks;
    const char *algorithm;
    uint64_t    up_to_bytes; /* 0: the ring is always faster */
    bool        is_open;     /* and beyond, as far as was looked */
};

struct cli_simulations {
    const char          *model; /* NULL: only a size was given */
    int                  n_points, n_crossings;
    struct cli_simulated points[CLI_MAX_SIMULATED];
    struct cli_crossing  crossings[CLI_MAX_SIMULATED];
};

/* plan_simulate_print.c */
void   cli_print_simulations(FILE *file, const struct cli_simulations *all, bool is_verbose);
cJSON *cli_simulations_to_json(const struct cli_simulations *all);

#endif
