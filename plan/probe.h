/* probe.h - measures a crew: N workers at once on this machine, as training would have them there.
 *
 * They are started through launch/ as the workers of a job are, bound to cores alike, and compute the asked-for network's
 * real steps (train/ddp.h), each on its share and without exchange, all let go at the same moment: the slowest counts, and the
 * median over repeats. Then all-reduces of a few sizes, each behind a small real step, so that the gradient lies where a
 * backward pass leaves it and BLAS threads are as busy as it leaves them.
 *
 * The program that calls it must answer to PLAN_PROBE_VARIABLE: a copy that finds it in its environment calls
 * plan_probe_work and exits with its value. */
#ifndef PLAN_PROBE_H
#define PLAN_PROBE_H

#include "plan/machine.h"

#define PLAN_PROBE_VARIABLE "GRADMESH_PLAN_PROBE"

struct plan_probe {
    struct gmt_layers layers;
    int         workers, threads; /* bound to a core each if threads is 1 */
    int         n_rows;
    size_t      rows[PLAN_MAX_SPEEDS]; /* of a worker's share, rising */
    const char *transport;             /* "tcp", "shm" */
    const char *wire;
    double      seconds; /* for each figure */
};

/* Adds the crew to the machine; of a figure that it has already the lesser counts, since what disturbs only makes it longer. GM_OK; GM_ERR_ABORTED (a signal asked the program to end, it is
 * in error->sys_errno); GM_ERR_SYSTEM, GM_ERR_NOMEM, GM_ERR_ARG. */
GM_MUST_USE gm_status plan_probe_crew(struct plan_machine *machine, const struct plan_probe *probe, gm_error *error);

int plan_probe_work(const char *value);

/* Cores that this process may use. */
int plan_n_cores(void);

#endif
