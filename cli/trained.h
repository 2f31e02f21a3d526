/* trained.h - a checkpoint made ready for use: the network with its parameters, and a test set
 * that fits. */
#ifndef CLI_TRAINED_H
#define CLI_TRAINED_H

#include "gradmesh.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/mlp.h"

struct cli_trained {
    struct gmt_checkpoint checkpoint;
    struct gmt_data       data; /* the test set only */
    struct gmt_mlp        mlp;
    struct gmt_bits      *bits; /* what it computes by, if it was trained reproducibly */
};

/* Reads the file, or the newest good one in a directory (damaged ones are named on standard
 * error), and the test set of `data`, or of what it was trained on if that is NULL. *trained
 * needs cli_free_trained in either case. *error is one sentence. */
GM_MUST_USE gm_status cli_load_trained(struct cli_trained *trained, const char *command,
                                       const char *path, const char *data, gm_error *error);
void cli_free_trained(struct cli_trained *trained);

#endif
