#include "plan/points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/network.h"

/* ---- networks ------------------------------------------------------------------------------------- */

bool plan_set_network(struct plan_job *job, const char *network, double latency_us, bool is_emulated)
{
    if (!study_network_is_rate(network)) return false;
    job->is_network = strcmp(network, "loopback") != 0;
    if (!job->is_network) return true;
    if (!plan_read_bandwidth(&job->link.bandwidth_Bps, network)) return false;
    job->link.latency_us = latency_us;
    job->is_emulated = is_emulated;
    if (is_emulated) job->burst_bytes = 1024 * study_network_burst_kB(network);
    return true;
}

/* ---- points --------------------------------------------------------------------------------------- */

static const struct plan_point *alone_in(const struct plan_points *points, enum study_regime regime)
{
    for (int i = 0; i < points->n_points; i++)
        if (points->points[i].regime == regime && points->points[i].prediction.workers == 1) return &points->points[i];
    return NULL;
}

bool plan_add_point(struct plan_points *points, const struct plan_machine *machine, enum study_regime regime, const char *network,
                    const struct plan_job *job, int workers)
{
    if (workers == 1 && alone_in(points, regime) != NULL) return true;
    if (points->n_points == PLAN_MAX_POINTS) return false;
    struct plan_point *point = &points->points[points->n_points++];
    *point = (struct plan_point){ .regime = regime, .job = *job, .prediction = plan_predict(machine, job, workers) };
    snprintf(point->network, sizeof point->network, "%s", network);
    return true;
}

/* ---- measuring ------------------------------------------------------------------------------------ */

static struct study_point to_run(const struct plan_point *point, double seconds)
{
    struct study_point run;
    study_point_default(&run, point->regime, point->prediction.workers);
    run.layers = point->job.layers;
    run.batch = point->job.batch;
    run.overlap = point->job.overlaps ? GMT_OVERLAP_ON : GMT_OVERLAP_OFF;
    run.bucket_bytes = point->job.bucket_bytes;
    run.seconds = seconds;
    snprintf(run.transport, sizeof run.transport, "%s", point->job.transport);
    snprintf(run.wire, sizeof run.wire, "%s", point->job.wire);
    snprintf(run.network, sizeof run.network, "%s", point->job.is_network ? point->network : "loopback");
    return run;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare_numbers);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

gm_status plan_measure_points(struct plan_points *points, double seconds, int repeats, plan_progress_fn progress, void *user,
                              gm_error *error)
{
    struct study_result result;
    for (int k = 0; k < repeats; k++) {
        for (int i = 0; i < points->n_points; i++) {
            struct plan_point *point = &points->points[i];
            struct study_point run = to_run(point, seconds);
            if (progress != NULL) progress(user, point, k * points->n_points + i, repeats * points->n_points);
            gm_status status = study_measure(&run, &result, error);
            if (status != GM_OK) return status;
            if (k > 0 && result.median_ms >= point->result.median_ms) continue;
            point->result = result;
            point->measured_ms = result.median_ms;
            point->was_measured = true;
        }
    }
    return GM_OK;
}

/* ---- comparing ------------------------------------------------------------------------------------ */

static void compare_point(const struct plan_points *points, struct plan_point *point)
{
    const struct plan_point *alone = alone_in(points, point->regime);
    const struct plan_prediction *p = &point->prediction;
    point->error = point->measured_ms > 0 ? p->step_ms / point->measured_ms - 1 : 0;
    if (alone == NULL || point->measured_ms <= 0) return;
    point->measured_speedup = alone->measured_ms / point->measured_ms;
    point->measured_pays = p->workers > 1 && point->measured_speedup > 1;
    bool is_close = fabs(p->speedup - 1) < PLAN_MARGIN_BAR || fabs(point->measured_speedup - 1) < PLAN_MARGIN_BAR;
    point->is_wrong_side = p->workers > 1 && point->measured_pays != p->pays && !is_close;
}

struct plan_verdict plan_compare(struct plan_points *points)
{
    struct plan_verdict verdict = { .worst = -1 };
    double              errors[PLAN_MAX_POINTS];
    for (int i = 0; i < points->n_points; i++) {
        struct plan_point *point = &points->points[i];
        if (!point->was_measured) continue;
        compare_point(points, point);
        verdict.n_wrong_side += point->is_wrong_side;
        errors[verdict.n_measured++] = fabs(point->error);
        if (verdict.worst >= 0 && fabs(point->error) <= verdict.largest_error) continue;
        verdict.largest_error = fabs(point->error);
        verdict.worst = i;
    }
    verdict.median_error = median(errors, verdict.n_measured);
    verdict.is_held = verdict.n_measured > 0 && verdict.median_error <= PLAN_ERROR_BAR && verdict.n_wrong_side == 0;
    return verdict;
}
