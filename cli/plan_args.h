/* plan_args.h - the options of gradmesh plan, and what they ask for. */
#ifndef CLI_PLAN_ARGS_H
#define CLI_PLAN_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/args.h"
#include "study/point.h"
#include "train/params.h"

enum { CLI_PLAN_OPTIONS = 21, CLI_PLAN_MAX_NAMES = 8, CLI_PLAN_NAME_BYTES = 24 };

struct cli_plan_args {
    struct cli_list worlds;
    const char     *model, *regimes, *networks, *transport, *flops, *bandwidth, *latency, *load_path, *save_path, *results;
    int64_t         batch, accumulate, threads, bucket_bytes, samples, n_repeats;
    int             wire, overlap;
    double          price;
    bool            has_batch, has_bucket_bytes, has_threads, has_worlds, has_regimes, has_networks, has_transport, is_verifying;
};

struct cli_plan_names {
    int  n;
    char all[CLI_PLAN_MAX_NAMES][CLI_PLAN_NAME_BYTES];
};

struct cli_plan_choices {
    struct cli_plan_names networks;
    int                   n_regimes;
    enum study_regime     regimes[STUDY_REGIME_END];
    struct gmt_layers     layers;
    const char           *wire;
    double                flops, bandwidth_Bps, latency_us; /* 0: not given */
    bool                  is_measured;                      /* neither given nor from a profile */
};

void cli_plan_list_options(struct cli_plan_args *args, struct cli_option *options);

/* What the options mean together: an exit status of usage, and a sentence, if that is nothing. */
int cli_plan_read_choices(const struct cli_command *command, const struct cli_plan_args *args, struct cli_plan_choices *choices);

#endif
