/* launch.h - the processes of a point. */
#ifndef STUDY_LAUNCH_H
#define STUDY_LAUNCH_H

#include "study/point.h"

/* BLAS threads of a worker. */
int study_regime_threads(enum study_regime regime);

/* Starts argv (NULL: this program) once for each worker, bound to cores if the regime says so, and sees them to their end. Statuses of
 * study_measure. */
GM_MUST_USE gm_status study_launch(const struct study_point *point, char *const *argv, const char *const *extra_env,
                                   gm_error *error);

#endif
