/* cmd_scaling.c - `gradmesh scaling`: whether training by several workers pays on this machine, and what eats the rest.
 *
 * It starts copies of itself as workers, point by point (study/point.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/blas_words.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/worker.h"
#include "launch/launcher.h"
#include "study/network.h"
#include "study/record.h"
#include "study/study.h"
#include "study/verdict.h"

static const char summary[] =
    "Measures whether training by several workers pays on this machine, for how many, and where the rest goes. Trains a\n"
    "network on random samples by 1, 2, ... workers that share each batch, in up to three regimes:\n"
    "\n"
    "  shared  one process may use all cores; more workers compete for them. 512 samples a step\n"
    "  light   each worker is bound to one core. 512 samples a step\n"
    "  heavy   each worker is bound to one core. 2048 samples a step\n";

static const char notes[] =
    "Columns: step in ms, the median step of the slowest rank; speed-up, over one worker of the regime; ceiling, the\n"
    "speed-up of as many trainings side by side that share the batch and exchange nothing; of that, how much of the\n"
    "ceiling is reached; then where an average rank spends a step: compute, exchange (of gradients, in which it is busy\n"
    "or bytes travel), waiting (for a rank that comes later), and what was hidden (exchanged while it computed). A rank\n"
    "is called slow when the others wait for it for more than 5 % of the step.\n"
    "\n"
    "All points are measured in turns, --repeats times; figures are medians. With more workers than cores, workers\n"
    "share cores in a circle. Other networks than loopback are made of network namespaces and limited by tc: that\n"
    "needs root. Every point becomes a line of RESULTS/scaling.jsonl, which gradmesh report draws.\n"
    "\n"
    "exit status: 0 measured; 1 it could not be done; 2 wrong usage.\n"
    "\n"
    "examples:\n"
    "  gradmesh scaling\n"
    "  gradmesh scaling --regime light --world 1,2 --transport tcp,shm\n"
    "  gradmesh scaling --regime heavy --world 2,4 --network 100mbit,1gbit --wire f32,int8 --overlap off,on\n";

enum { N_OPTIONS = 14 };

struct scaling_args {
    struct cli_list worlds;
    const char     *regimes, *transports, *wires, *overlaps, *networks, *layers, *results, *beside;
    int64_t         batch, n_repeats, bucket_bytes;
    double          seconds;
    bool            has_batch, has_bucket_bytes, is_appending;
};

static void list_options(struct scaling_args *args, struct cli_option *options)
{
    const struct cli_option own[N_OPTIONS] = {
        { .name = "world", .kind = CLI_INT_LIST, .list = &args->worlds, .value_name = "LIST", .default_text = "1,2,3,4", .min = 1,
          .max = STUDY_MAX_RANKS, .help = "how many workers" },
        { .name = "regime", .kind = CLI_TEXT, .text = &args->regimes, .value_name = "shared,light,heavy",
          .default_text = "shared,light,heavy", .help = "which of them" },
        { .name = "transport", .kind = CLI_TEXT, .text = &args->transports, .value_name = "auto|tcp|shm",
          .default_text = "auto", .help = "how bytes travel; a list measures each" },
        { .name = "wire", .kind = CLI_TEXT, .text = &args->wires, .value_name = "f32|bf16|f16|int8", .default_text = "f32",
          .help = "format in which gradients travel; a list measures each" },
        { .name = "overlap", .kind = CLI_TEXT, .text = &args->overlaps, .value_name = "off|on|auto", .default_text = "auto",
          .help = "exchange gradients while others are still computed; a list measures each" },
        { .name = "network", .kind = CLI_TEXT, .text = &args->networks, .value_name = "loopback|100mbit|1gbit|10gbit",
          .default_text = "loopback", .help = "what is between the workers, any rate; a list measures each" },
        { .name = "batch", .kind = CLI_INT, .integer = &args->batch, .was_given = &args->has_batch, .min = 1, .max = 1 << 24,
          .help = "samples of a step, of all workers together (default: the regime's)" },
        { .name = "layers", .kind = CLI_TEXT, .text = &args->layers, .value_name = "SIZES", .default_text = "784,1024,10",
          .help = "sizes from inputs to classes" },
        { .name = "bucket-bytes", .kind = CLI_BYTES, .size_bytes = &args->bucket_bytes, .was_given = &args->has_bucket_bytes,
          .min = 0, .max = INT64_C(1) << 40, .help = "cut the gradient into pieces of at most this size; 0: one piece (default: as gradmesh train)" },
        { .name = "repeats", .kind = CLI_INT, .integer = &args->n_repeats, .default_text = "5", .min = 1,
          .max = STUDY_MAX_REPEATS, .help = "how often all of it is measured" },
        { .name = "seconds", .kind = CLI_REAL, .real = &args->seconds, .default_text = "0.6", .min_real = 0, .max_real = 3600,
          .help = "how long each point is timed in each repeat; at least 8 steps" },
        { .name = "results", .kind = CLI_TEXT, .text = &args->results, .value_name = "DIR", .default_text = "results",
          .help = "where scaling.jsonl is written" },
        { .name = "beside", .kind = CLI_TEXT, .text = &args->beside, .value_name = "COMMAND",
          .help = "measure another program in turns with this one (bench/scaling/torch_ddp.py is PyTorch)" },
        { .name = "append", .kind = CLI_FLAG, .flag = &args->is_appending, .help = "add to the records that are there" },
    };
    memcpy(options, own, sizeof own);
}

/* ---- lists of names ------------------------------------------------------------------------------ */

enum { MAX_NAMES = 16, NAME_BYTES = 24 };

struct names {
    int  n;
    char all[MAX_NAMES][NAME_BYTES];
};

/* "a,b" as names, each among `known` (NULL: any). */
static int read_names(const struct cli_command *command, const char *option, const char *text, const char *const *known,
                      struct names *names)
{
    *names = (struct names){ 0 };
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (names->n == MAX_NAMES || length == 0 || length >= NAME_BYTES)
            return cli_usage_error(command, "--%s %s: expected names with commas between them", option, text);
        char *name = names->all[names->n++];
        memcpy(name, at, length);
        name[length] = '\0';
        bool is_known = known == NULL;
        for (int i = 0; !is_known && known[i] != NULL; i++) is_known = strcmp(known[i], name) == 0;
        if (!is_known) {
            char list[200] = "";
            for (int i = 0; known[i] != NULL; i++)
                snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? ", " : "", known[i]);
            return cli_usage_error(command, "--%s '%s': expected one or more of %s", option, name, list);
        }
        at += length;
        if (*at == '\0') return CLI_EXIT_OK;
    }
}

static int index_of(const char *const *known, const char *name)
{
    int i = 0;
    while (known[i] != NULL && strcmp(known[i], name) != 0) i++;
    return i;
}

/* ---- the points ----------------------------------------------------------------------------------- */

static const char *const regime_names[] = { "shared", "light", "heavy", NULL };
static const char *const overlap_names[] = { "off", "on", "auto", NULL };
static const char *const transport_names[] = { "auto", "tcp", "shm", NULL };
static const char *const wire_names[] = { "f32", "bf16", "f16", "int8", NULL };

struct choices {
    struct names regimes, transports, wires, overlaps, networks;
    struct gmt_layers layers;
};

static int read_choices(const struct cli_command *command, const struct scaling_args *args, struct choices *c)
{
    gm_error error;
    gmi_error_clear(&error);
    int status = read_names(command, "regime", args->regimes, regime_names, &c->regimes);
    if (status == CLI_EXIT_OK) status = read_names(command, "transport", args->transports, transport_names, &c->transports);
    if (status == CLI_EXIT_OK) status = read_names(command, "wire", args->wires, wire_names, &c->wires);
    if (status == CLI_EXIT_OK) status = read_names(command, "overlap", args->overlaps, overlap_names, &c->overlaps);
    if (status == CLI_EXIT_OK) status = read_names(command, "network", args->networks, NULL, &c->networks);
    if (status != CLI_EXIT_OK) return status;
    for (int i = 0; i < c->networks.n; i++)
        if (!study_network_is_rate(c->networks.all[i]))
            return cli_usage_error(command, "--network '%s': expected loopback, or a rate such as 100mbit, 1gbit or 10gbit",
                                   c->networks.all[i]);
    if (gmt_layers_parse(&c->layers, args->layers, &error) != GM_OK) return cli_usage_error(command, "%s", error.text);
    for (size_t i = 0; i < args->worlds.n_values; i++)
        if (args->has_batch && args->batch < args->worlds.values[i])
            return cli_usage_error(command, "--batch %lld is not enough for %lld workers: each needs a sample",
                                   (long long)args->batch, (long long)args->worlds.values[i]);
    return CLI_EXIT_OK;
}

static gm_status add_worlds(struct study *study, const struct scaling_args *args, struct study_point *point, gm_error *error)
{
    gm_status status = GM_OK;
    for (size_t i = 0; i < args->worlds.n_values && status == GM_OK; i++) {
        point->world_size = (int)args->worlds.values[i];
        status = study_add(study, point, error);
    }
    return status;
}

static gm_status add_points(struct study *study, const struct scaling_args *args, const struct choices *c, gm_error *error)
{
    int       n = c->regimes.n * c->networks.n * c->transports.n * c->wires.n * c->overlaps.n;
    gm_status status = GM_OK;
    for (int i = 0; i < n && status == GM_OK; i++) {
        struct study_point point;
        int                left = i;
        const char        *overlap = c->overlaps.all[left % c->overlaps.n];
        left /= c->overlaps.n;
        const char *wire = c->wires.all[left % c->wires.n];
        left /= c->wires.n;
        const char *transport = c->transports.all[left % c->transports.n];
        left /= c->transports.n;
        const char *network = c->networks.all[left % c->networks.n];
        left /= c->networks.n;
        study_point_default(&point, (enum study_regime)index_of(regime_names, c->regimes.all[left]), 1);
        point.layers = c->layers;
        if (args->has_batch) point.batch = (size_t)args->batch;
        if (args->has_bucket_bytes) point.bucket_bytes = (size_t)args->bucket_bytes;
        point.seconds = args->seconds;
        point.overlap = (enum gmt_overlap)index_of(overlap_names, overlap);
        snprintf(point.wire, sizeof point.wire, "%.7s", wire);
        snprintf(point.transport, sizeof point.transport, "%.15s", transport);
        snprintf(point.network, sizeof point.network, "%s", network);
        status = add_worlds(study, args, &point, error);
    }
    return status;
}

/* ---- what is said -------------------------------------------------------------------------------- */

static void say_progress(void *user, const struct study_point *point, int n_done, int n_all)
{
    const bool *is_live = user;
    fprintf(stderr, "%spoint %d of %d: %s, %d worker%s%s%s%s", *is_live ? "\r\033[2K" : "", n_done + 1, n_all,
            study_regime_name(point->regime), point->world_size, point->world_size == 1 ? "" : "s",
            strcmp(point->network, "loopback") == 0 ? "" : ", ", strcmp(point->network, "loopback") == 0 ? "" : point->network,
            *is_live ? "" : "\n");
    fflush(stderr);
}

static void say_start(FILE *file, const struct study *study, const struct scaling_args *args)
{
    const struct gmt_layers *layers = &study->rows[0].point.layers;
    const char              *core_type = getenv("OPENBLAS_CORETYPE");
    size_t                   n_params = 0;
    for (int i = 0; i + 1 < layers->n_sizes; i++) n_params += (layers->sizes[i] + 1) * layers->sizes[i + 1];
    fprintf(file, "network %s, %zu parameters: each step averages a gradient of %.2f MB\n", args->layers, n_params, 4e-6 * (double)n_params);
    fprintf(file, "%ld cores; workers of light and heavy are bound to one each, in a circle, with 1 BLAS thread\n",
            sysconf(_SC_NPROCESSORS_ONLN));
    if (core_type != NULL)
        fprintf(file, "OPENBLAS_CORETYPE=%s is set: matrix products are made as for that processor, maybe slower than this one can\n",
                core_type);
    fprintf(file, "\n");
    fflush(file);
}

static cJSON *to_json(const struct study *study)
{
    cJSON *object = cJSON_CreateObject(), *points = cJSON_AddArrayToObject(object, "points");
    for (int i = 0; i < study->n_rows; i++) {
        cJSON *beside = study_record_beside(&study->rows[i], study->beside_system);
        cJSON_AddItemToArray(points, study_record(&study->rows[i]));
        if (beside != NULL) cJSON_AddItemToArray(points, beside);
    }
    return object;
}

static int say_failure(const gm_error *error)
{
    if (error->status == GM_ERR_ABORTED) return LAUNCH_EXIT_SIGNAL + error->sys_errno;
    fprintf(stderr, "gradmesh scaling: %s\n", error->text);
    return CLI_EXIT_NO;
}

static int run_study(struct study *study, const struct scaling_args *args, const struct cli_parsed *parsed)
{
    gm_error  error;
    FILE     *file = cli_text(parsed);
    bool      is_live = cli_is_live(STDERR_FILENO);
    gmi_error_clear(&error);
    cli_say_blas("scaling");
    say_start(file, study, args);
    gm_status status = study_run(study, (int)args->n_repeats, say_progress, &is_live, &error);
    if (is_live) fprintf(stderr, "\r\033[2K");
    if (status != GM_OK) return say_failure(&error);
    study_finish(study);
    study_print_table(file, study);
    study_print_beside(file, study);
    fprintf(file, "\n");
    study_print_verdict(file, study);
    if (study_write_records(study, args->results, args->is_appending, &error) != GM_OK) return say_failure(&error);
    fprintf(file, "\nrecords: %s/scaling.jsonl\n", args->results);
    cJSON *object = to_json(study);
    bool   is_written = cli_write_json(parsed, "scaling", object);
    cJSON_Delete(object);
    return is_written ? CLI_EXIT_OK : CLI_EXIT_NO;
}

int cli_cmd_scaling(int argc, char **argv)
{
    const char *worker = getenv(STUDY_VARIABLE);
    if (worker != NULL) return study_work(worker);
    struct scaling_args      args;
    struct choices           choices;
    struct cli_option        options[N_OPTIONS];
    struct cli_parsed        parsed;
    int                      status;
    gm_error                 error;
    gmi_error_clear(&error);
    list_options(&args, options);
    const struct cli_command command = { .name = "scaling", .usage = "[options]", .summary = summary, .notes = notes,
                                         .options = options, .n_options = N_OPTIONS };
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    status = read_choices(&command, &args, &choices);
    if (status != CLI_EXIT_OK) return status;
    struct study *study = gmi_alloc(1, sizeof *study);
    if (study == NULL) {
        fprintf(stderr, "gradmesh scaling: no memory\n");
        return CLI_EXIT_NO;
    }
    study->beside = args.beside;
    if (add_points(study, &args, &choices, &error) != GM_OK) status = cli_usage_error(&command, "%s", error.text);
    else status = run_study(study, &args, &parsed);
    gmi_free(study);
    return status;
}
