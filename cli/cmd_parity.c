/* cmd_parity.c - `gradmesh parity`: does training by N processes compute the same as training by
 * one?
 *
 * The fixed job: 784-256-10, ReLU, softmax cross-entropy, plain SGD with rate 0.01, global batch
 * 64, seed 6, on MNIST where it is and else on the drawn digits. N workers do S steps of it;
 * then one process does them with each batch undivided, by the same kernels and with no
 * knowledge of the ring. Compared are
 *
 *   - the workers among themselves: their states must have one hash;
 *   - the workers with the one process: the order in which the gradient of a batch is summed differs, so
 *     the last bits may. By how much is bounded (bounds_for). With --reproducible the order is of no
 *     consequence, and all must be equal.
 *
 * For people, the same is shown once more with the settings of `gradmesh train`, where a rate
 * ten times as high and momentum magnify the differences; that one is bounded by nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/train_print.h"
#include "cli/train_setup.h"
#include "cli/worker.h"
#include "launch/launcher.h"
#include "train/bits.h"
#include "train/compare.h"
#include "train/ops.h"
#include "train/trainer.h"

static const char summary[] =
    "Trains a fixed job by N workers and again by one process, and compares: whether all workers hold the same\n"
    "bits, how many parameters equal the single process's to the bit, and how far the others are away.\n";

static const char notes[] =
    "The job: 784-256-10, plain SGD with rate 0.01, 64 samples a step in all, MNIST where it is and else drawn\n"
    "digits. Up to 60 steps, 138,412 of the 203,530 parameters must be equal and none may differ by more than\n"
    "2.98e-08. Up to 240 steps the difference allowed grows with steps / 60, the share of unequal parameters\n"
    "with its square root. After that nothing is bounded but the workers among themselves: sooner or later some\n"
    "unit stands so close to the corner of its ReLU that rounding decides, and the two runs part.\n"
    "\n"
    "With --reproducible nothing may differ: all 203,530 must be equal, after any number of steps. The one\n"
    "process then computes the same shards as the workers.\n"
    "\n"
    "exit status: 0 it is so; 1 the workers differ among themselves, or a bound is passed; 2 wrong usage;\n"
    "3 another worker failed.\n";

enum { FIXED_BATCH = 64 };

struct parity_args {
    int64_t     n_workers, n_steps, n_threads, shards;
    bool        has_workers, is_reproducible, has_shards;
    const char *data;
};

/* One job, done by all workers and by one process. */
struct trial {
    struct gmt_recipe     recipe;
    struct gmt_trainer    trainer, alone; /* alone: on rank 0 */
    struct gmt_end        end;
    struct gmt_difference difference;
};

struct parity {
    const struct parity_args *args;
    const struct cli_parsed  *parsed;
    struct gmt_data           data;
    gm_comm                  *comm;
    int                       rank, world_size;
    struct trial              fixed, usual;
    bool                      wants_usual;
    gm_error                  error;
};

/* ---- the bounds ------------------------------------------------------------------------------ */

enum { FIRST_STEPS = 60, BOUNDED_STEPS = 240 };

struct bounds {
    bool   are_there;
    double max_abs_diff;
    size_t min_equal;
};

/* A reproducible run must be equal, to the bit. Else: for the first steps 2^-25 (2.98e-08: one unit in the last place of a weight between 1/4 and
 * 1/2) and 138,412 equal, whatever the number of workers: it matters little (measured for 2 to
 * 8). Each step adds its rounding differences: the largest one is taken to grow at most
 * linearly, the share of parameters that are reached as a random walk does. From some hundred
 * steps on (measured: between 500 and 2000) a rounding difference switches a ReLU, and
 * differences jump; a bound would then be an accident. */
static struct bounds bounds_for(size_t n_params, uint64_t n_steps, bool is_reproducible)
{
    if (is_reproducible) return (struct bounds){ true, 0, n_params };
    const double  min_equal_share = 138412.0 / 203530.0;
    double        more = fmax(1, (double)n_steps / FIRST_STEPS);
    double        unequal = (1 - min_equal_share) * sqrt(more);
    struct bounds bounds = { n_steps <= BOUNDED_STEPS, 0x1p-25 * more, 0 };
    bounds.min_equal = more == 1 ? 138412 : (size_t)((double)n_params * (1 - unequal));
    return bounds;
}

static bool is_within(const struct bounds *bounds, const struct gmt_difference *difference)
{
    return !bounds->are_there || (difference->max_abs_diff <= bounds->max_abs_diff &&
                                  difference->n_equal >= bounds->min_equal);
}

/* ---- the work -------------------------------------------------------------------------------- */

/* V, or 0 when the runs are not to be reproducible. */
static size_t shards_of(const struct parity_args *args, size_t batch)
{
    if (!args->is_reproducible) return 0;
    return args->has_shards ? (size_t)args->shards : gmt_shards_default(batch);
}

static gm_status make_fixed_recipe(struct parity *parity, struct gmt_recipe *recipe)
{
    *recipe = (struct gmt_recipe){ .layers = { .sizes = { 784, 256, 10 }, .n_sizes = 3 },
                                   .learning_rate = 0.01,
                                   .schedule = GMT_CONSTANT,
                                   .schedule_steps = (uint64_t)parity->args->n_steps,
                                   .batch = FIXED_BATCH,
                                   .accumulate = 1,
                                   .seed = 6,
                                   .train_samples = parity->data.train.n_samples };
    snprintf(recipe->data, sizeof recipe->data, "%s", cli_data_or_default(parity->args->data));
    gmt_optimizer_options_default(&recipe->optimizer, GMT_SGD);
    recipe->shards = shards_of(parity->args, recipe->batch);
    return gmt_data_digest(&parity->data.train, recipe->data_digest, &parity->error);
}

static gm_status make_recipes(struct parity *parity)
{
    gm_status status = make_fixed_recipe(parity, &parity->fixed.recipe);
    if (status == GM_OK)
        status = cli_default_recipe(&parity->usual.recipe, parity->args->data, &parity->data,
                                    &parity->error);
    parity->usual.recipe.shards = shards_of(parity->args, parity->usual.recipe.batch);
    parity->fixed.recipe.total_steps = (uint64_t)parity->args->n_steps;
    parity->usual.recipe.total_steps = (uint64_t)parity->args->n_steps;
    if (parity->usual.recipe.schedule_steps < parity->usual.recipe.total_steps)
        parity->usual.recipe.schedule_steps = parity->usual.recipe.total_steps;
    return status;
}

/* The part of a trial in which all workers take part. */
static gm_status run_distributed(struct parity *parity, struct trial *trial)
{
    struct gmt_trainer_options options = { .comm = parity->comm, .data = &parity->data,
                                           .n_threads = (int)parity->args->n_threads };
    gm_status status = gmt_trainer_init(&trial->trainer, &trial->recipe, &options, &parity->error);
    if (status == GM_OK && trial->recipe.shards > 0) status = gmt_bits_check(&parity->error);
    if (status == GM_OK && parity->rank == 0)
        status = gmt_trainer_init_alone(&trial->alone, &trial->trainer, &parity->error);
    if (status != GM_OK) {
        gm_comm_abort(parity->comm, parity->error.text);
        return status;
    }
    return gmt_trainer_run(&trial->trainer, &trial->end, &parity->error);
}

/* The one process. */
static gm_status run_alone(struct parity *parity, struct trial *trial)
{
    struct gmt_step_report report;
    while (trial->alone.step < trial->recipe.total_steps) {
        gm_status status = gmt_trainer_step(&trial->alone, &report, &parity->error);
        if (status != GM_OK) return status;
    }
    trial->difference =
        gmt_compare(trial->trainer.mlp.params.weights, trial->alone.mlp.params.weights,
                    trial->alone.mlp.params.n_elems);
    return GM_OK;
}

static gm_status join(struct parity *parity, const struct cli_join *place)
{
    char            text[4096];
    struct cli_join with = *place;
    char            arithmetic[24] = "any";
    const char     *extra[] = { "usual_settings_too", parity->wants_usual ? "yes" : "no",
                                "arithmetic", arithmetic, NULL };
    if (parity->args->is_reproducible)
        snprintf(arithmetic, sizeof arithmetic, "%016llx", (unsigned long long)gmt_bits_selftest());
    gmt_recipe_fingerprint(&parity->fixed.recipe, extra, text, sizeof text);
    with.fingerprint = text;
    return cli_join(&parity->comm, &with, &parity->error);
}

static gm_status run_parity(struct parity *parity, const struct cli_join *place)
{
    const char *data = cli_data_or_default(parity->args->data);
    gm_status   status = cli_place(place, &parity->rank, &parity->world_size, &parity->error);
    if (status == GM_OK)
        status = gmt_data_load(&parity->data, data, GMT_DATA_SEED, GMT_DATA_TRAIN, &parity->error);
    if (status == GM_OK) status = make_recipes(parity);
    if (status == GM_OK)
        status = gmt_recipe_check_data(&parity->fixed.recipe, &parity->data.train, &parity->error);
    if (status == GM_OK) status = join(parity, place);
    if (status == GM_OK) status = run_distributed(parity, &parity->fixed);
    if (status == GM_OK && parity->wants_usual) status = run_distributed(parity, &parity->usual);
    if (status != GM_OK) return status;
    gm_comm_destroy(parity->comm); /* what follows is rank 0's alone */
    parity->comm = NULL;
    if (parity->rank != 0) return GM_OK;
    status = run_alone(parity, &parity->fixed);
    if (status == GM_OK && parity->wants_usual) status = run_alone(parity, &parity->usual);
    return status;
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void print_trial(FILE *file, const struct trial *trial, int world_size)
{
    char n_equal[CLI_GROUPED_BYTES], n_elems[CLI_GROUPED_BYTES];
    fprintf(file, "  workers     %s\n",
            world_size == 1            ? "one, which has nobody to differ from"
            : trial->end.are_identical ? "bitwise identical"
                                       : "DIFFERENT");
    for (int r = 0; r < world_size; r++)
        fprintf(file, "    rank %-3d  %s\n", r, trial->end.accounts[r].state_hash);
    fprintf(file, "  one process %s of %s parameters equal to the bit\n",
            cli_grouped(trial->difference.n_equal, n_equal),
            cli_grouped(trial->difference.n_elems, n_elems));
    fprintf(file, "              maximum difference %.3g\n", trial->difference.max_abs_diff);
}

static void print_bounds(FILE *file, const struct bounds *bounds,
                         const struct gmt_difference *difference)
{
    char text[CLI_GROUPED_BYTES];
    if (bounds->are_there && bounds->max_abs_diff == 0) {
        fprintf(file, "  bounds      all equal: %s\n", is_within(bounds, difference) ? "kept" : "PASSED");
        return;
    }
    if (!bounds->are_there) {
        fprintf(file, "  bounds      none for more than %d steps\n", BOUNDED_STEPS);
        return;
    }
    fprintf(file, "  bounds      at least %s equal, difference at most %.3g: %s\n",
            cli_grouped(bounds->min_equal, text), bounds->max_abs_diff,
            is_within(bounds, difference) ? "kept" : "PASSED");
}

static void print_result(struct parity *parity, const struct bounds *bounds, bool is_good)
{
    FILE *file = cli_text(parity->parsed);
    char  text[CLI_GROUPED_BYTES];
    fprintf(file, "%s steps of the fixed job (784-256-10, SGD 0.01, batch 64, %s), %d worker%s\n",
            cli_grouped(parity->fixed.recipe.total_steps, text), parity->data.source,
            parity->world_size, parity->world_size == 1 ? "" : "s");
    print_trial(file, &parity->fixed, parity->world_size);
    print_bounds(file, bounds, &parity->fixed.difference);
    if (parity->wants_usual) {
        const struct gmt_recipe *usual = &parity->usual.recipe;
        fprintf(file,
                "\nfor information, with the settings of `gradmesh train` (%s %g, rate %g, batch "
                "%zu)\n",
                gmt_optimizer_name(usual->optimizer.kind), usual->optimizer.momentum,
                usual->learning_rate, usual->batch);
        print_trial(file, &parity->usual, parity->world_size);
    }
    fprintf(file, "\nparity: %s\n", is_good ? "yes" : "NO");
    fflush(file);
}

static cJSON *to_json(const struct parity *parity, const struct bounds *bounds)
{
    const struct trial *fixed = &parity->fixed;
    cJSON              *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "world_size", parity->world_size);
    cJSON_AddNumberToObject(object, "steps", (double)fixed->recipe.total_steps);
    cJSON_AddNumberToObject(object, "params", (double)fixed->difference.n_elems);
    cJSON_AddNumberToObject(object, "equal", (double)fixed->difference.n_equal);
    cJSON_AddNumberToObject(object, "max_abs_diff", fixed->difference.max_abs_diff);
    cJSON_AddBoolToObject(object, "workers_identical", fixed->end.are_identical);
    cJSON *hashes = cJSON_AddArrayToObject(object, "hashes");
    for (int r = 0; r < parity->world_size; r++)
        cJSON_AddItemToArray(hashes, cJSON_CreateString(fixed->end.accounts[r].state_hash));
    cJSON_AddBoolToObject(object, "reproducible", fixed->recipe.shards > 0);
    cJSON_AddNumberToObject(object, "shards", (double)fixed->recipe.shards);
    cJSON_AddNumberToObject(object, "min_equal_allowed",
                            bounds->are_there ? (double)bounds->min_equal : (double)NAN);
    cJSON_AddNumberToObject(object, "max_abs_diff_allowed",
                            bounds->are_there ? bounds->max_abs_diff : (double)NAN);
    cJSON_AddStringToObject(object, "data", parity->data.source);
    return object;
}

static int say_result(struct parity *parity)
{
    const struct trial *fixed = &parity->fixed;
    struct bounds       bounds = bounds_for(fixed->difference.n_elems, fixed->recipe.total_steps,
                                             fixed->recipe.shards > 0);
    bool is_good = fixed->end.are_identical && is_within(&bounds, &fixed->difference) &&
                   (!parity->wants_usual || parity->usual.end.are_identical);
    print_result(parity, &bounds, is_good);
    cJSON *object = parity->parsed->wants_json ? to_json(parity, &bounds) : NULL;
    bool   is_written = cli_write_json(parity->parsed, "parity", object);
    cJSON_Delete(object);
    return is_good && is_written ? CLI_EXIT_OK : CLI_EXIT_NO;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void parity_fini(struct parity *parity)
{
    struct trial *trials[] = { &parity->fixed, &parity->usual };
    for (size_t i = 0; i < 2; i++) {
        gmt_trainer_fini(&trials[i]->alone);
        gmt_trainer_fini(&trials[i]->trainer);
    }
    gm_comm_destroy(parity->comm);
    gmt_data_free(&parity->data);
}

static int run_worker(const struct parity_args *args, const struct cli_parsed *parsed,
                      bool is_alone)
{
    struct parity  *parity = gmi_alloc(1, sizeof *parity);
    struct cli_join place = { .command = "parity", .world_size = is_alone ? 1 : 0,
                              .is_verbose = parsed->is_verbose };
    if (parity == NULL) {
        fprintf(stderr, "gradmesh parity: no memory\n");
        return CLI_EXIT_NO;
    }
    parity->args = args;
    parity->parsed = parsed;
    parity->world_size = 1;
    parity->wants_usual = !(parsed->wants_json && parsed->json_path == NULL);
    gmi_error_clear(&parity->error);
    gmt_set_blas_threads((int)args->n_threads);
    if (is_alone) cli_say_pid();
    int status;
    if (run_parity(parity, &place) != GM_OK)
        status = cli_failed("parity", parity->rank, parity->world_size, &parity->error);
    else if (parity->rank != 0)
        status = parity->fixed.end.are_identical ? CLI_EXIT_OK : CLI_EXIT_NO;
    else
        status = say_result(parity);
    parity_fini(parity);
    gmi_free(parity);
    return status;
}

/* A mistake in the data is one sentence here, and would be N from the workers. */
static int check_data(const struct parity_args *args)
{
    const char     *name = cli_data_or_default(args->data);
    struct gmt_data data;
    gm_error        error;
    gmi_error_clear(&error);
    if (gmt_data_load(&data, name, GMT_DATA_SEED,
                      strncmp(name, "synthetic", 9) == 0 ? GMT_DATA_TEST : GMT_DATA_TRAIN,
                      &error) != GM_OK) {
        fprintf(stderr, "gradmesh parity: %s\n", error.text);
        return CLI_EXIT_NO;
    }
    gmt_data_free(&data);
    return CLI_EXIT_OK;
}

int cli_cmd_parity(int argc, char **argv)
{
    struct parity_args      args = { 0 };
    const struct cli_option options[] = {
        { .name = "workers", .letter = 'n', .kind = CLI_INT, .integer = &args.n_workers,
          .was_given = &args.has_workers, .min = 1, .max = LAUNCH_MAX_WORKERS,
          .help = "how many workers to start" },
        { .name = "steps", .kind = CLI_INT, .integer = &args.n_steps, .default_text = "60", .min = 1,
          .max = 1000000, .help = "how many steps" },
        { .name = "data", .kind = CLI_TEXT, .text = &args.data, .value_name = "mnist|synthetic|DIR",
          .help = "other data than those of the fixed job" },
        { .name = "threads", .kind = CLI_INT, .integer = &args.n_threads, .default_text = "1", .min = 1,
          .max = 1024, .help = "threads of each worker for matrix products" },
        { .name = "reproducible", .kind = CLI_FLAG, .flag = &args.is_reproducible,
          .help = "train reproducibly, workers and one process alike: all must be equal" },
        { .name = "shards", .kind = CLI_INT, .integer = &args.shards, .was_given = &args.has_shards,
          .min = 1, .max = FIXED_BATCH, .help = "of a reproducible run (default: 4)" },
    };
    const struct cli_command command = { .name = "parity", .usage = "-n N [options]", .summary = summary,
                                         .notes = notes, .options = options, .n_options = 6 };
    struct cli_parsed parsed;
    int               status, rank, world_size;
    char            **own_words = cli_own_words(argc, argv);
    if (own_words != NULL && cli_parse(&command, argc, argv, &parsed, &status)) {
        bool is_worker = cli_is_worker(&rank, &world_size);
        if (args.has_shards && !args.is_reproducible)
            status = cli_usage_error(&command, "--shards belongs to --reproducible");
        else if (is_worker && args.has_workers && world_size != args.n_workers)
            status = cli_usage_error(&command,
                                     "-n %lld would start workers, but this process is already "
                                     "worker %d of %d: leave -n out",
                                     (long long)args.n_workers, rank, world_size);
        else if (is_worker || args.n_workers <= 1)
            status = run_worker(&args, &parsed, !is_worker && args.has_workers);
        else if ((status = check_data(&args)) == CLI_EXIT_OK)
            status = cli_launch_self(&command, (int)args.n_workers, own_words, &parsed, false);
    }
    if (own_words == NULL) {
        fprintf(stderr, "gradmesh parity: no memory\n");
        status = CLI_EXIT_NO;
    }
    gmi_free(own_words);
    return status;
}
