/* points.h - the points of a plan: regimes, networks and world sizes, each predicted, and by plan_verify run and compared. */
#ifndef PLAN_POINTS_H
#define PLAN_POINTS_H

#include "plan/machine.h"
#include "plan/model.h"
#include "study/point.h"

enum { PLAN_MAX_POINTS = 256, PLAN_MAX_NETWORKS = 8, PLAN_MAX_WORLDS = 64 };

/* What is right within this share is good; who pays is only known where the margin is larger than this. */
#define PLAN_ERROR_BAR 0.10
#define PLAN_MARGIN_BAR 0.05

struct plan_point {
    enum study_regime regime;
    char              network[24]; /* "loopback", "1gbit", "link" (given by the user) */
    struct plan_job   job;
    struct plan_prediction prediction;

    /* With --verify: */
    bool   was_measured;
    double measured_ms, measured_speedup;
    bool   measured_pays;
    double error;         /* predicted / measured - 1 */
    bool   is_wrong_side; /* pays, and was predicted not to, or the other way round, by more than the margin */
    struct study_result result;
};

struct plan_points {
    int               n_points;
    struct plan_point points[PLAN_MAX_POINTS];
};

/* What of the points is compared. */
struct plan_verdict {
    int    n_measured, n_wrong_side;
    double median_error, largest_error; /* magnitudes */
    int    worst;                       /* the point of the largest */
    bool   is_held;
};

/* "loopback": all workers on this machine; a rate as study/network.h takes it: a machine for each, or with is_emulated namespaces
 * of this one. False: neither. */
bool plan_set_network(struct plan_job *job, const char *network, double latency_us, bool is_emulated);

/* Adds a point and predicts it. One worker is the same on every network: it is added once for each regime. False: too many. */
bool plan_add_point(struct plan_points *points, const struct plan_machine *machine, enum study_regime regime, const char *network,
                    const struct plan_job *job, int workers);

/* Told before each. */
typedef void (*plan_progress_fn)(void *user, const struct plan_point *point, int n_done, int n_all);

/* Runs every point on this machine, each for so many seconds of steps; `repeats` times in turns, of which the
 * fastest counts, since what disturbs only makes it longer. Statuses of
 * study_measure. */
GM_MUST_USE gm_status plan_measure_points(struct plan_points *points, double seconds, int repeats, plan_progress_fn progress, void *user,
                                          gm_error *error);

/* Fills what is compared, and says whether the bar is held. Pure. */
struct plan_verdict plan_compare(struct plan_points *points);

#endif
