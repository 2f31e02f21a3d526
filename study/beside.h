/* beside.h - another program that trains the same, measured in the same setting: PyTorch, say (bench/scaling). */
#ifndef STUDY_BESIDE_H
#define STUDY_BESIDE_H

#include "study/point.h"

enum { STUDY_SYSTEM_BYTES = 40 };

/* Runs the shell command `command` once for each worker, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as any launcher
 * sets them, bound to cores as the point's regime says, and with STUDY_LAYERS, STUDY_BATCH, STUDY_SECONDS, STUDY_THREADS and
 * STUDY_OUT. Rank 0 writes {"system": NAME, "median_ms": MS} to the file STUDY_OUT. That counts also when a worker fails after
 * it was written, while it ends, say: then *failed_later. Statuses of study_measure, and GM_ERR_SYSTEM when it says something
 * else. */
GM_MUST_USE gm_status study_measure_beside(const struct study_point *point, const char *command, double *median_ms,
                                           char system[STUDY_SYSTEM_BYTES], bool *failed_later, gm_error *error);

#endif
