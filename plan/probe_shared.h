/* probe_shared.h - the memory that the measuring program shares with the crew. */
#ifndef PLAN_PROBE_SHARED_H
#define PLAN_PROBE_SHARED_H

#include "plan/probe.h"

enum { PROBE_MAX_RUNS = 256, PROBE_MAX_WORKERS = 64, PROBE_FEW_ROWS = 32 };

struct probe_run {
    int64_t begin_ns, end_ns, cpu_ns;
};

/* Of a rank. */
struct probe_account {
    bool             is_complete;
    int              n_steps[PLAN_MAX_SPEEDS], n_exchanges[PLAN_MAX_SIZES];
    struct probe_run steps[PLAN_MAX_SPEEDS][PROBE_MAX_RUNS];
    struct probe_run exchanges[PLAN_MAX_SIZES][PROBE_MAX_RUNS];
    struct probe_run updates[PROBE_MAX_RUNS];
    int              n_updates;
};

struct probe_job {
    struct plan_probe    probe; /* without its texts: */
    char                 transport[8], wire[8];
    int                  n_sizes;
    size_t               sizes[PLAN_MAX_SIZES]; /* elements */
    struct probe_account accounts[]; /* (workers) */
};

#endif
