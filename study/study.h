/* study.h - a scaling study: points measured in turns, repeat by repeat, and what comes of them.
 *
 *     repeat 1:  light 1 | light 2 | light 2 without exchange | light 4 | ... | heavy 1 | ...
 *     repeat 2:  the same again, so that a busy moment of the machine meets them all
 *
 * Every figure is a median over the repeats; a ratio is made within a repeat first. Pure but for study_run. */
#ifndef STUDY_STUDY_H
#define STUDY_STUDY_H

#include "study/beside.h"
#include "study/point.h"

enum { STUDY_MAX_REPEATS = 25, STUDY_MAX_ROWS = 128 };

/* A rank that comes late costs at least this part of a step, or it is not worth a name. */
#define STUDY_SLOW_SHARE 0.05

/* One world size of one regime (and network, wire, overlap). */
struct study_row {
    struct study_point  point;
    int                 n_repeats;
    struct study_result runs[STUDY_MAX_REPEATS];
    double              zero_ms[STUDY_MAX_REPEATS]; /* of N independent trainings of B / N; of one worker: its own */
    double              beside_ms[STUDY_MAX_REPEATS]; /* of the program beside; 0: it was not measured */
    int                 base; /* the row of one worker that it is compared with */

    /* Made by study_finish: */
    double median_ms, zero_median_ms;
    double speedup;           /* one worker's step / this step */
    double zero_comm_speedup; /* what it would be without any exchange */
    double zero_comm_share;   /* speedup / zero_comm_speedup, up to 1 */
    double efficiency;        /* speedup / workers */
    double beside_median_ms, beside_speedup; /* 0: not measured; its step, and over one worker of its own */
    double beside_ratio;      /* its step / this step */
    double compute_ms, comm_exposed_ms, comm_hidden_ms, wait_ms, cpu_s;
    struct study_rank by_rank[STUDY_MAX_RANKS];
    int    slowest_rank;      /* that came last to most steps in most repeats and costs more than STUDY_SLOW_SHARE of a step; -1: none */
    double slowest_cost_ms;   /* by what a step would be shorter if it did not come late */
};

struct study {
    const char      *beside; /* a command that trains the same, over TCP on loopback, f32 (beside.h); NULL: none */
    char             beside_system[STUDY_SYSTEM_BYTES]; /* what it calls itself */
    int              n_beside_failed; /* runs of it in which a worker failed after the result was reported */
    int              n_rows;
    struct study_row rows[STUDY_MAX_ROWS];
};

/* Adds the row of a point and, where it is missing, before it that of one worker. GM_ERR_ARG: too many. */
GM_MUST_USE gm_status study_add(struct study *study, const struct study_point *point, gm_error *error);

/* Told before each run: which, of how many. */
typedef void (*study_progress_fn)(void *user, const struct study_point *point, int n_done, int n_all);

/* Measures all rows n_repeats times. Statuses of study_measure. */
GM_MUST_USE gm_status study_run(struct study *study, int n_repeats, study_progress_fn progress, void *user, gm_error *error);

/* Fills what study_finish makes of the runs. */
void study_finish(struct study *study);

double study_median(double *values, int n); /* puts them in order */

#endif
