/* plan_print.h - what `gradmesh plan` says, and its JSON. */
#ifndef CLI_PLAN_PRINT_H
#define CLI_PLAN_PRINT_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "plan/advice.h"
#include "plan/points.h"

/* All that there is to say. */
struct cli_plan {
    struct plan_machine machine;
    struct plan_points  points;
    double              measured_s;    /* that measuring the machine took; 0: nothing was measured */
    const char         *source;        /* then: where the figures are from */
    double              samples;       /* of an epoch */
    double              price;         /* of a worker for an hour; 0: not asked */
    bool                is_verified;
    struct plan_verdict verdict;
};

void   cli_plan_print_machine(FILE *file, const struct cli_plan *plan);
void   cli_plan_print_points(FILE *file, const struct cli_plan *plan); /* tables, what pays, what to change */
void   cli_plan_print_formula(FILE *file, const struct cli_plan *plan);
void   cli_plan_print_verdict(FILE *file, const struct cli_plan *plan);
cJSON *cli_plan_to_json(const struct cli_plan *plan); /* NULL: no memory */

#endif
