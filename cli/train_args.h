/* train_args.h - the options of `gradmesh train`, and which of them do not go together. */
#ifndef CLI_TRAIN_ARGS_H
#define CLI_TRAIN_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/args.h"
#include "cli/train_setup.h"
#include "cli/train_trace.h"

/* The options as given. */
struct cli_train_args {
    struct cli_recipe_args recipe;
    int64_t                n_workers, n_threads, save_every, keep, report_every, compare_steps;
    bool                   has_workers, has_resume, has_live, is_encrypted;
    const char            *checkpoint_dir, *resume_file, *log_path, *live_port, *transport, *algorithm, *wire, *checksum;
    struct cli_train_trace trace;
    int                    overlap; /* an enum gmt_overlap */
    int                    placement; /* an enum gmt_placement */
    int                    exact_wire; /* 1: raw */
};

extern const char *const cli_train_overlaps[], *const cli_train_placements[]; /* by enum gmt_overlap, enum gmt_placement */

enum { CLI_N_TRAIN_OPTIONS = 20 + CLI_N_RECIPE_OPTIONS };

/* Fills options[CLI_N_TRAIN_OPTIONS]. */
void cli_list_train_options(struct cli_train_args *args, struct cli_option *options);

/* What the option table cannot say; CLI_EXIT_OK or CLI_EXIT_USAGE, after saying it. */
int cli_check_train_usage(const struct cli_command *command, const struct cli_train_args *args);

#endif
