#include "cli/train_setup.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "train/shards.h"

/* What gives 98 % on MNIST in ten epochs, for each optimizer. */
static const double default_rates[] = {
    [GMT_SGD] = 0.1, [GMT_MOMENTUM] = 0.1, [GMT_ADAMW] = 0.002
};

static const char *const optimizers[] = { "sgd", "momentum", "adamw", NULL };
static const char *const schedules[] = { "constant", "linear", "cosine", NULL };

void cli_list_recipe_options(struct cli_recipe_args *args, struct cli_option *options)
{
    const struct cli_option list[CLI_N_RECIPE_OPTIONS] = {
        { .name = "data", .kind = CLI_TEXT, .text = &args->data, .value_name = "mnist|synthetic|DIR",
          .help = "what to learn: MNIST, digits that are drawn here, or a directory with four IDX files\n"
                  "(default: mnist where it is, else synthetic)" },
        { .name = "layers", .kind = CLI_TEXT, .text = &args->layers, .value_name = "SIZES",
          .help = "sizes from inputs to classes (default: 784,256,10, ends as the data want)" },
        { .name = "epochs", .kind = CLI_INT, .integer = &args->epochs, .default_text = "10", .min = 1,
          .max = 1000000, .help = "how often each sample is used" },
        { .name = "steps", .kind = CLI_INT, .integer = &args->steps, .was_given = &args->has_steps,
          .min = 1, .max = INT64_C(1) << 52, .help = "end after so many steps" },
        { .name = "batch", .kind = CLI_INT, .integer = &args->batch, .default_text = "128", .min = 1,
          .max = INT64_C(1) << 30, .help = "samples of one step, of all workers together" },
        { .name = "accumulate", .kind = CLI_INT, .integer = &args->accumulate, .default_text = "1",
          .min = 1, .max = 1 << 20, .help = "parts in which a worker computes its share of a batch" },
        { .name = "optimizer", .kind = CLI_CHOICE, .choice = &args->optimizer, .choices = optimizers,
          .default_text = "momentum", .help = "how a gradient becomes a step" },
        { .name = "lr", .kind = CLI_REAL, .real = &args->learning_rate, .was_given = &args->has_lr,
          .min_real = 0, .max_real = 1e30, .help = "learning rate (default: 0.1, with adamw 0.002)" },
        { .name = "momentum", .kind = CLI_REAL, .real = &args->momentum, .was_given = &args->has_momentum,
          .min_real = 0, .max_real = 1, .help = "for the optimizer momentum (default: 0.9)" },
        { .name = "weight-decay", .kind = CLI_REAL, .real = &args->weight_decay, .default_text = "0",
          .min_real = 0, .max_real = 1e6, .help = "pull of the parameters towards 0" },
        { .name = "clip-norm", .kind = CLI_REAL, .real = &args->clip_norm, .default_text = "0",
          .min_real = 0, .max_real = 1e30,
          .help = "shorten gradients that are longer than this to this length; 0: never" },
        { .name = "schedule", .kind = CLI_CHOICE, .choice = &args->schedule, .choices = schedules,
          .default_text = "cosine", .help = "how the learning rate falls" },
        { .name = "warmup-steps", .kind = CLI_INT, .integer = &args->warmup_steps, .default_text = "0",
          .min = 0, .max = INT64_C(1) << 52, .help = "steps in which the rate rises to --lr" },
        { .name = "seed", .kind = CLI_INT, .integer = &args->seed, .default_text = "42", .min = 0,
          .max = INT64_MAX, .help = "of the first weights and the order of samples" },
        { .name = "bucket-bytes", .kind = CLI_BYTES, .size_bytes = &args->bucket_bytes,
          .was_given = &args->has_bucket_bytes, .min = 0, .max = INT64_C(1) << 40,
          .help = "cut the gradient into pieces of at most this size; 0: one piece\n"
                  "(default: with overlap an eighth of it, from 256K to 4M; without, one piece)" },
        { .name = "reproducible", .kind = CLI_FLAG, .flag = &args->is_reproducible,
          .help = "the same bits with any number of workers, on any processor (docs/determinism.md)" },
        { .name = "shards", .kind = CLI_INT, .integer = &args->shards, .was_given = &args->has_shards,
          .min = 1, .max = GMT_MAX_SHARDS,
          .help = "with --reproducible: pieces of the batch that workers compute as wholes\n"
                  "(default: 2 to 48, so that a piece has 16 samples or more)" },
    };
    memcpy(options, list, sizeof list);
}

/* V, or 0 where that is not asked for. */
static size_t shards_of(const struct cli_recipe_args *args)
{
    if (!args->is_reproducible) return 0;
    return args->has_shards ? (size_t)args->shards : gmt_shards_default((size_t)args->batch);
}

static int check_reproducible_usage(const struct cli_command     *command,
                                    const struct cli_recipe_args *args)
{
    gm_error error;
    gmi_error_clear(&error);
    if (args->has_shards && !args->is_reproducible)
        return cli_usage_error(command, "--shards belongs to --reproducible");
    if (!args->is_reproducible) return CLI_EXIT_OK;
    if (args->has_bucket_bytes)
        return cli_usage_error(command, "--bucket-bytes: a reproducible run exchanges its gradient in one "
                                        "piece; leave it out");
    if (gmt_shards_check(shards_of(args), (size_t)args->batch, &error) != GM_OK)
        return cli_usage_error(command, "%s", error.text);
    return CLI_EXIT_OK;
}

int cli_check_recipe_usage(const struct cli_command *command, const struct cli_recipe_args *args)
{
    struct gmt_layers layers;
    gm_error          error;
    gmi_error_clear(&error);
    if (args->layers != NULL && gmt_layers_parse(&layers, args->layers, &error) != GM_OK)
        return cli_usage_error(command, "%s", error.text);
    if (args->has_momentum && args->optimizer != GMT_MOMENTUM)
        return cli_usage_error(command, "--momentum belongs to --optimizer momentum, not %s",
                               optimizers[args->optimizer]);
    return check_reproducible_usage(command, args);
}

const char *cli_data_or_default(const char *data)
{
    if (data != NULL) return data;
    return gmt_data_mnist_is_here() ? "mnist" : "synthetic";
}

gm_status cli_load_data(struct gmt_data *data, const struct cli_recipe_args *args, bool is_launcher,
                        gm_error *error)
{
    const char *name = cli_data_or_default(args->data);
    bool        is_drawn = strncmp(name, "synthetic", strlen("synthetic")) == 0;
    unsigned    parts = is_launcher && is_drawn ? GMT_DATA_TEST : GMT_DATA_BOTH;
    return gmt_data_load(data, name, GMT_DATA_SEED, parts, error);
}

/* The network that fits: 256 units between the picture and the classes. */
static void default_layers(struct gmt_layers *layers, const struct gmt_dataset *dataset)
{
    *layers = (struct gmt_layers){ .n_sizes = 3,
                                   .sizes = { (size_t)dataset->n_features, 256,
                                              (size_t)dataset->n_classes } };
}

/* Steps: as many as the epochs have, or as --steps says; and how long the schedule is. */
static void set_lengths(struct gmt_recipe *recipe, const struct cli_recipe_args *args)
{
    uint64_t n_batches = (recipe->train_samples + recipe->batch - 1) / recipe->batch;
    uint64_t whole = n_batches * (uint64_t)args->epochs;
    recipe->total_steps = args->has_steps ? (uint64_t)args->steps : whole;
    recipe->schedule_steps = recipe->total_steps > whole ? recipe->total_steps : whole;
    recipe->warmup_steps = (uint64_t)args->warmup_steps;
}

gm_status cli_make_recipe(struct gmt_recipe *recipe, const struct cli_recipe_args *args,
                          const struct gmt_data *data, bool is_launcher, gm_error *error)
{
    const struct gmt_dataset *dataset = data->train.n_samples > 0 ? &data->train : &data->test;
    *recipe = (struct gmt_recipe){ .learning_rate = args->has_lr ? args->learning_rate
                                                                 : default_rates[args->optimizer],
                                   .schedule = (enum gmt_schedule_kind)args->schedule,
                                   .batch = (size_t)args->batch,
                                   .accumulate = (size_t)args->accumulate,
                                   .bucket_bytes = args->has_bucket_bytes
                                                       ? (size_t)args->bucket_bytes
                                                       : GMT_BUCKET_BYTES_AUTO,
                                   .shards = shards_of(args),
                                   .clip_norm = args->clip_norm,
                                   .seed = (uint64_t)args->seed,
                                   .train_samples = data->train.n_samples };
    snprintf(recipe->data, sizeof recipe->data, "%s", cli_data_or_default(args->data));
    gmt_optimizer_options_default(&recipe->optimizer, (enum gmt_optimizer_kind)args->optimizer);
    if (args->has_momentum) recipe->optimizer.momentum = args->momentum;
    recipe->optimizer.weight_decay = args->weight_decay;
    gm_status status = GM_OK;
    if (args->layers == NULL) default_layers(&recipe->layers, dataset);
    else status = gmt_layers_parse(&recipe->layers, args->layers, error);
    if (status == GM_OK) status = gmt_recipe_check_data(recipe, dataset, error);
    if (status == GM_OK) set_lengths(recipe, args);
    if (status == GM_OK && !(is_launcher && data->train.n_samples == 0))
        status = gmt_data_digest(&data->train, recipe->data_digest, error);
    return status;
}

gm_status cli_default_recipe(struct gmt_recipe *recipe, const char *data_name,
                             const struct gmt_data *data, gm_error *error)
{
    struct cli_recipe_args   args;
    struct cli_option        options[CLI_N_RECIPE_OPTIONS];
    struct cli_parsed        parsed;
    int                      status;
    char                     name[] = "train";
    char                    *argv[] = { name, NULL };
    cli_list_recipe_options(&args, options);
    const struct cli_command command = { .name = name, .options = options,
                                         .n_options = CLI_N_RECIPE_OPTIONS };
    /* Reading an empty command line fills in the defaults, which are written down only there. */
    if (!cli_parse(&command, 1, argv, &parsed, &status))
        return gmi_error_set(error, GM_ERR_ARG, "the defaults cannot be read");
    args.data = data_name;
    return cli_make_recipe(recipe, &args, data, false, error);
}
