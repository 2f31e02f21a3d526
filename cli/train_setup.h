/* train_setup.h - the options that make a recipe, and loading the data that go with it. */
#ifndef CLI_TRAIN_SETUP_H
#define CLI_TRAIN_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/args.h"
#include "train/data.h"
#include "train/recipe.h"

struct cli_recipe_args {
    const char *data, *layers;
    int64_t     epochs, steps, batch, accumulate, seed, warmup_steps, bucket_bytes, shards;
    double      learning_rate, momentum, weight_decay, clip_norm;
    int         optimizer, schedule;
    bool        has_steps, has_lr, has_momentum, has_bucket_bytes, has_shards, is_reproducible;
};

enum { CLI_N_RECIPE_OPTIONS = 17 };

/* Fills options[CLI_N_RECIPE_OPTIONS]. */
void cli_list_recipe_options(struct cli_recipe_args *args, struct cli_option *options);

/* What the option table cannot say; CLI_EXIT_OK or CLI_EXIT_USAGE, after saying it. */
int cli_check_recipe_usage(const struct cli_command *command, const struct cli_recipe_args *args);

/* What --data means: its value, or MNIST where it is, or the digits that we draw. */
const char *cli_data_or_default(const char *data);

/* Loads the data. A launcher only looks whether they are all right: it draws no training digits.
 * Statuses of gmt_data_load. */
GM_MUST_USE gm_status cli_load_data(struct gmt_data *data, const struct cli_recipe_args *args,
                                    bool is_launcher, gm_error *error);

/* The recipe that the options and the data make. A launcher's lacks what it did not load (digest
 * and number of the training samples), and is for checking only. GM_ERR_ARG: options and data do
 * not fit. */
GM_MUST_USE gm_status cli_make_recipe(struct gmt_recipe *recipe, const struct cli_recipe_args *args,
                                      const struct gmt_data *data, bool is_launcher,
                                      gm_error *error);

/* The recipe of `gradmesh train` without options, on these data. */
GM_MUST_USE gm_status cli_default_recipe(struct gmt_recipe *recipe, const char *data_name,
                                         const struct gmt_data *data, gm_error *error);

#endif
