#include "cli/plan_simulate.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/output.h"
#include "plan/machine.h"
#include "train/params.h"

static const char summary[] =
    "Steps N workers through one training step in simulated time: the same algorithm files that real workers run, over links\n"
    "with a latency, a bandwidth and cards that the ranks of a host share, on cores on which calls, copies and sums cost time.\n"
    "Compares the ways to an all-reduce, names the best, and shows who waits for whom. A list of N makes a sweep.\n";

static const char notes[] =
    "Units: --bandwidth 10gbit (of the line; 94 % of it is payload) or 1.2GB (payload, each second); times 30us or 0.5ms.\n"
    "Columns: compute, of the median worker; waiting, from then on for the slowest; exchange, from there to the end;\n"
    "sent, payload of the worker that sends most; card, how much of the exchange the busiest one is in use.\n"
    "\"tree\" and \"chain\" are a reduce and then a broadcast.\n"
    "What is not said is measured nowhere: the defaults are a network of 10 Gbit/s and the built-in costs of the library.\n"
    "\n"
    "examples:\n"
    "  gradmesh plan --simulate 1024\n"
    "  gradmesh plan --simulate 2,8,32,128 --bandwidth 1gbit --latency 50us --model 784,4096,4096,10\n"
    "  gradmesh plan --simulate 64 --per-host 8 --straggler 5:1.5 --compute-ms 20\n"
    "  gradmesh plan --simulate 10000 --per-host 8 --algorithm hierarchical,halving\n";

enum { N_OPTIONS = 29, MAX_RING_RANKS = 4096, MAX_SWEPT_RANKS = 256, MAX_BYTES_BETWEEN_ALL = 1 << 22 };

static const char *const wire_names[] = { "f32", "bf16", "f16", "int8", NULL };
static const char *const overlap_names[] = { "off", "on", NULL };

struct arguments {
    struct cli_list worlds;
    const char     *model, *algorithms, *flops, *bandwidth, *latency, *local_bandwidth, *local_latency, *call, *wake, *copy, *add;
    const char     *stragglers, *delays, *profile;
    int64_t         size_bytes, batch, per_host, cores, bucket_bytes, seed, grain_bytes, burst_bytes, rounds;
    int             wire, overlap;
    double          compute_ms, jitter;
    bool            has_size, has_compute, wants_crossings;
};

/* ---- what was asked for -------------------------------------------------------------------------- */

/* Where 0 means that something costs nothing. */
static bool read_or_0(bool (*read)(double *, const char *), double *value, const char *text)
{
    *value = 0;
    return strcmp(text, "0") == 0 || read(value, text);
}

static bool read_links(const struct cli_command *command, const struct arguments *a, struct plan_links *l, int *status)
{
    const struct {
        const char *option, *text;
        double     *value;
        bool (*read)(double *, const char *);
    } all[] = {
        { "latency", a->latency, &l->latency_us, plan_read_seconds_us },
        { "bandwidth", a->bandwidth, &l->bandwidth_Bps, plan_read_bandwidth },
        { "local-latency", a->local_latency, &l->local_latency_us, plan_read_seconds_us },
        { "local-bandwidth", a->local_bandwidth, &l->local_bandwidth_Bps, plan_read_bandwidth },
        { "call", a->call, &l->call_us, plan_read_seconds_us },
        { "wake", a->wake, &l->wake_us, plan_read_seconds_us },
        { "copy", a->copy, &l->copy_Bps, plan_read_bandwidth },
        { "add", a->add, &l->add_Bps, plan_read_bandwidth },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (read_or_0(all[i].read, all[i].value, all[i].text)) continue;
        *status = cli_usage_error(command, "--%s '%s' is no %s", all[i].option, all[i].text,
                                  all[i].read == plan_read_seconds_us ? "time; 30us is one" : "rate; 10gbit and 1.2GB are two");
        return false;
    }
    return true;
}

/* "5:1.5,7:2": ranks and numbers. */
static bool read_pairs(const char *text, bool are_delays, struct plan_simulation *s)
{
    while (text != NULL && *text != '\0') {
        char   *end;
        long    rank = strtol(text, &end, 10);
        if (end == text || *end != ':' || rank < 0 || rank > 1 << 30 || s->n_stragglers == PLAN_MAX_STRAGGLERS) return false;
        text = end + 1;
        double value = strtod(text, &end);
        if (end == text || (*end != ',' && *end != '\0')) return false;
        s->stragglers[s->n_stragglers++] = (struct plan_straggler){ (int)rank, are_delays ? 1 : value, are_delays ? value : 0 };
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

/* ---- what is simulated --------------------------------------------------------------------------- */

/* Forward and backward, without the gradient of the inputs. */
static double operations(const struct gmt_layers *layers, double samples)
{
    double n = 0;
    for (int i = 0; i + 1 < layers->n_sizes; i++) {
        n += (i == 0 ? 4.0 : 6.0) * (double)layers->sizes[i] * (double)layers->sizes[i + 1];
    }
    return n * samples;
}

static uint64_t gradient_bytes(const struct gmt_layers *layers)
{
    uint64_t n = 0;
    for (int i = 0; i + 1 < layers->n_sizes; i++) n += (layers->sizes[i] + 1) * layers->sizes[i + 1];
    return n * sizeof(float);
}

static bool is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
    }
    return false;
}

/* Of those that nobody named: what would take minutes is left out, with a word about it. */
static const char *why_left_out(const struct plan_simulation *s, bool is_named)
{
    const char *why;
    double      n = s->n_ranks;
    if (!plan_can_simulate(s, &why)) return why;
    if (is_named) return NULL;
    if (strcmp(s->algorithm, "naive") == 0 && n * n * (1 + (double)s->bytes / 65536) > MAX_BYTES_BETWEEN_ALL)
        return "it sends D (N-1) bytes: not simulated unless named";
    if (strcmp(s->algorithm, "ring") == 0 && s->n_ranks > MAX_RING_RANKS) return "it takes minutes to simulate: only if named";
    if (strcmp(s->algorithm, "direct") == 0 && n * n > 1 << 18) return "it takes a while to simulate: only if named";
    return NULL;
}

static bool simulate_one(struct cli_simulations *all, const struct plan_simulation *s, bool is_named, gm_error *error)
{
    struct cli_simulated *point = &all->points[all->n_points];
    point->simulation = *s;
    point->why_not = why_left_out(s, is_named);
    if (point->why_not == NULL && plan_simulate(&point->simulation, &point->result, error) != GM_OK) return false;
    all->n_points++;
    return true;
}

static bool exchange_ms(struct plan_simulation s, const char *algorithm, uint64_t bytes, double *ms, gm_error *error)
{
    struct plan_simulation_result result;
    s.algorithm = algorithm;
    s.bytes = bytes;
    s.compute_ms = 0;
    s.n_stragglers = 0;
    s.n_buckets = 1;
    s.overlaps = false;
    if (plan_simulate(&s, &result, error) != GM_OK) return false;
    *ms = result.step_ms;
    plan_simulation_free(&result);
    return true;
}

/* By halving the exponents: small buffers are a matter of rounds, large ones of bytes. */
static bool find_crossing(const struct plan_simulation *s, struct cli_crossing *c, gm_error *error)
{
    int low = 7, high = 27; /* 128 bytes: nobody looks further down; 64 MiB is looked at, not beyond */
    while (high - low > 1) {
        int    middle = (low + high) / 2;
        double ring_ms, other_ms;
        if (!exchange_ms(*s, "ring", UINT64_C(1) << middle, &ring_ms, error)) return false;
        if (!exchange_ms(*s, c->algorithm, UINT64_C(1) << middle, &other_ms, error)) return false;
        if (other_ms < ring_ms) low = middle;
        else high = middle;
    }
    c->up_to_bytes = low == 7 ? 0 : UINT64_C(1) << low;
    c->is_open = low == 26;
    return true;
}

static bool find_crossings(struct cli_simulations *all, const struct plan_simulation *s, gm_error *error)
{
    static const char *const others[] = { "halving", "doubling", "tree", "hierarchical" };
    for (size_t i = 0; i < sizeof others / sizeof others[0] && all->n_crossings < CLI_MAX_SIMULATED; i++) {
        const char            *why;
        struct plan_simulation other = *s;
        other.algorithm = others[i];
        if (!plan_can_simulate(&other, &why)) continue;
        struct cli_crossing *c = &all->crossings[all->n_crossings++];
        *c = (struct cli_crossing){ .n_ranks = s->n_ranks, .algorithm = others[i] };
        if (!find_crossing(s, c, error)) return false;
    }
    return true;
}

static bool simulate_all(struct cli_simulations *all, const struct arguments *a, struct plan_simulation s,
                         const struct gmt_layers *layers, gm_error *error)
{
    const char *name;
    double      flops = 0;
    bool        is_lean = s.wire != NULL;
    if (a->flops != NULL) plan_read_flops(&flops, a->flops);
    for (size_t w = 0; w < a->worlds.n_values; w++) {
        s.n_ranks = (int)a->worlds.values[w];
        if (flops > 0) s.compute_ms = operations(layers, (double)a->batch / s.n_ranks) / flops * 1e3;
        for (int i = 0; (name = plan_simulated_algorithm(i)) != NULL && all->n_points < CLI_MAX_SIMULATED; i++) {
            bool is_named = a->algorithms != NULL && is_listed(a->algorithms, name);
            s.algorithm = name;
            s.wire = strcmp(name, "lean") == 0 ? wire_names[a->wire] : NULL;
            if (!is_named && (a->algorithms != NULL || (strcmp(name, "lean") == 0) != is_lean)) continue;
            if (!simulate_one(all, &s, is_named, error)) return false;
        }
        s.wire = NULL;
        s.algorithm = "ring";
        bool is_small = s.n_ranks > 2 && s.n_ranks <= MAX_SWEPT_RANKS && a->algorithms == NULL;
        if (!is_lean && (is_small || a->wants_crossings) && s.n_ranks > 1 && !find_crossings(all, &s, error)) return false;
        if (is_lean) s.wire = wire_names[a->wire];
    }
    return true;
}

static int check_algorithms(const struct cli_command *command, const char *list)
{
    char        names[256] = "", word[32];
    const char *known;
    for (int i = 0; (known = plan_simulated_algorithm(i)) != NULL; i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? ", " : "", known);
    }
    for (const char *at = list; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (plan_simulated_algorithm_summary(word) == NULL) {
            return cli_usage_error(command, "there is no algorithm '%s'; there are %s", word, names);
        }
        at += length + (at[length] == ',');
    }
    return CLI_EXIT_OK;
}

/* ---- the command --------------------------------------------------------------------------------- */

static int read_arguments(const struct cli_command *command, const struct arguments *a, struct plan_simulation *s,
                          struct gmt_layers *layers)
{
    gm_error error;
    int      status = check_algorithms(command, a->algorithms);
    double   flops;
    gmi_error_clear(&error);
    if (status != CLI_EXIT_OK) return status;
    if (gmt_layers_parse(layers, a->model, &error) != GM_OK) return cli_usage_error(command, "--model: %s", error.text);
    if (a->flops != NULL && !plan_read_flops(&flops, a->flops)) {
        return cli_usage_error(command, "--flops '%s' is no rate; 50G is one", a->flops);
    }
    if (a->flops != NULL && a->has_size) return cli_usage_error(command, "--flops goes with --model, not with --size");
    if (a->flops != NULL && a->has_compute) return cli_usage_error(command, "--flops and --compute-ms say the same thing twice");
    uint64_t bytes = a->has_size ? (uint64_t)a->size_bytes : gradient_bytes(layers);
    uint64_t buckets = a->bucket_bytes > 0 ? (bytes + (uint64_t)a->bucket_bytes - 1) / (uint64_t)a->bucket_bytes : 1;
    *s = (struct plan_simulation){ .ranks_per_host = (int)a->per_host, .cores_per_host = (int)a->cores, .bytes = bytes / 4 * 4,
                                   .compute_ms = a->compute_ms, .jitter = a->jitter / 100, .seed = (uint64_t)a->seed,
                                   .n_buckets = buckets > 4096 ? 4096 : buckets < 1 ? 1 : (int)buckets, .overlaps = a->overlap == 1,
                                   .grain_bytes = (uint64_t)a->grain_bytes, .n_rounds = (int)a->rounds };
    if (a->wire != 0) s->wire = wire_names[a->wire];
    if (!read_links(command, a, &s->links, &status)) return status;
    s->links.burst_bytes = (double)a->burst_bytes;
    if (!read_pairs(a->stragglers, false, s) || !read_pairs(a->delays, true, s)) {
        return cli_usage_error(command, "--straggler is RANK:FACTOR and --delay RANK:MS, with commas between several, %d at most",
                               PLAN_MAX_STRAGGLERS);
    }
    int64_t fewest = a->worlds.values[0];
    for (size_t i = 0; i < a->worlds.n_values; i++) fewest = a->worlds.values[i] < fewest ? a->worlds.values[i] : fewest;
    for (int i = 0; i < s->n_stragglers; i++) {
        if (s->stragglers[i].rank < fewest) continue;
        return cli_usage_error(command, "straggler %d is no rank: with %lld workers there are ranks 0 to %lld", s->stragglers[i].rank,
                               (long long)fewest, (long long)fewest - 1);
    }
    return CLI_EXIT_OK;
}

/* The machine outlives the simulation that points into it. */
static int read_profile(const struct arguments *a, struct plan_machine *machine, struct plan_simulation *s)
{
    gm_error error;
    gmi_error_clear(&error);
    if (a->profile == NULL) return CLI_EXIT_OK;
    gm_status status = plan_profile_load(machine, a->profile, &error);
    if (status == GM_OK && !machine->has_turns)
        status = gmi_error_set(&error, GM_ERR_ARG, "the profile %.200s does not say what turns on a core cost; make a new one with gradmesh "
                               "plan --save-profile", a->profile);
    if (status != GM_OK) {
        fprintf(stderr, "gradmesh plan: %s\n", error.text);
        return CLI_EXIT_USAGE;
    }
    s->turns = &machine->turns;
    if (s->cores_per_host == 0) s->cores_per_host = machine->n_cores;
    s->links.local_latency_us = s->links.local_bandwidth_Bps = 0; /* the sender's core does it all */
    return CLI_EXIT_OK;
}

static int run(const struct cli_parsed *parsed, const struct arguments *a, const struct plan_simulation *s,
               const struct gmt_layers *layers)
{
    gm_error                error;
    struct cli_simulations *all = gmi_alloc(1, sizeof *all);
    int                     status = CLI_EXIT_NO;
    gmi_error_clear(&error);
    if (all == NULL) {
        fprintf(stderr, "gradmesh plan: no memory\n");
        return CLI_EXIT_NO;
    }
    all->model = a->has_size ? NULL : a->model;
    if (simulate_all(all, a, *s, layers, &error)) {
        cli_print_simulations(cli_text(parsed), all, parsed->is_verbose);
        cJSON *object = parsed->wants_json ? cli_simulations_to_json(all) : NULL;
        status = cli_write_json(parsed, "plan", object) ? CLI_EXIT_OK : CLI_EXIT_NO;
        cJSON_Delete(object);
    } else {
        fprintf(stderr, "gradmesh plan: %s\n", error.text);
        status = error.status == GM_ERR_ARG ? CLI_EXIT_USAGE : CLI_EXIT_NO;
    }
    for (int i = 0; i < all->n_points; i++) plan_simulation_free(&all->points[i].result);
    gmi_free(all);
    return status;
}

bool cli_is_plan_simulation(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--simulate") == 0 || strncmp(argv[i], "--simulate=", 11) == 0) return true;
    }
    return false;
}

int cli_plan_simulate(int argc, char **argv)
{
    struct arguments        a = { .has_size = false };
    const struct cli_option options[N_OPTIONS] = {
        { .name = "simulate", .kind = CLI_INT_LIST, .list = &a.worlds, .value_name = "N,...", .min = 1, .max = 100000,
          .help = "how many workers" },
        { .name = "model", .kind = CLI_TEXT, .text = &a.model, .value_name = "LAYERS", .default_text = "784,1024,10",
          .help = "sizes of the network, from inputs to classes" },
        { .name = "size", .kind = CLI_BYTES, .size_bytes = &a.size_bytes, .was_given = &a.has_size, .min = 4, .max = INT64_C(1) << 40,
          .help = "bytes of the gradient, instead of a model" },
        { .name = "batch", .kind = CLI_INT, .integer = &a.batch, .default_text = "512", .min = 1, .max = 1 << 28,
          .help = "samples of a step, of all workers together" },
        { .name = "flops", .kind = CLI_TEXT, .text = &a.flops, .value_name = "RATE",
          .help = "operations a worker makes in a second: with it comes the time to compute" },
        { .name = "compute-ms", .kind = CLI_REAL, .real = &a.compute_ms, .was_given = &a.has_compute, .default_text = "0",
          .min_real = 0, .max_real = 1e9, .help = "that time, instead" },
        { .name = "wire", .kind = CLI_CHOICE, .choice = &a.wire, .choices = wire_names, .default_text = "f32",
          .help = "format in which gradients travel" },
        { .name = "overlap", .kind = CLI_CHOICE, .choice = &a.overlap, .choices = overlap_names, .default_text = "off",
          .help = "exchange buckets while others are still computed" },
        { .name = "bucket-bytes", .kind = CLI_BYTES, .size_bytes = &a.bucket_bytes, .default_text = "0", .min = 0,
          .max = INT64_C(1) << 40, .help = "cut the gradient into buckets of this size; 0: one" },
        { .name = "algorithm", .kind = CLI_TEXT, .text = &a.algorithms, .value_name = "NAME,...", .help = "only these" },
        { .name = "crossover", .kind = CLI_FLAG, .flag = &a.wants_crossings,
          .help = "find the sizes where others beat the ring beyond 256 workers, too (minutes)" },
        { .name = "per-host", .kind = CLI_INT, .integer = &a.per_host, .value_name = "K", .default_text = "1", .min = 1, .max = 100000,
          .help = "workers of a host, which share its card" },
        { .name = "cores", .kind = CLI_INT, .integer = &a.cores, .default_text = "0", .min = 0, .max = 100000,
          .help = "cores of a host for the exchange; 0: one for each worker" },
        { .name = "latency", .kind = CLI_TEXT, .text = &a.latency, .value_name = "TIME", .default_text = "30us",
          .help = "of a message from one host to another" },
        { .name = "bandwidth", .kind = CLI_TEXT, .text = &a.bandwidth, .value_name = "RATE", .default_text = "10gbit",
          .help = "of a host's card, each way" },
        { .name = "burst", .kind = CLI_BYTES, .size_bytes = &a.burst_bytes, .default_text = "0", .min = 0, .max = INT64_C(1) << 40,
          .help = "that a card which was idle sends at once, as shaped networks let it" },
        { .name = "local-latency", .kind = CLI_TEXT, .text = &a.local_latency, .value_name = "TIME", .default_text = "3us",
          .help = "of a message within a host" },
        { .name = "local-bandwidth", .kind = CLI_TEXT, .text = &a.local_bandwidth, .value_name = "RATE", .default_text = "8GB",
          .help = "of a link within a host" },
        { .name = "profile", .kind = CLI_TEXT, .text = &a.profile, .value_name = "FILE",
          .help = "what a core's work costs was measured (gradmesh plan --save-profile): in place of --call, --wake,\n"
                  "--copy, --add and the local link; --cores then is that machine's, if it is not given" },
        { .name = "call", .kind = CLI_TEXT, .text = &a.call, .value_name = "TIME", .default_text = "2.5us",
          .help = "that a send or receive takes of a core" },
        { .name = "wake", .kind = CLI_TEXT, .text = &a.wake, .value_name = "TIME", .default_text = "0",
          .help = "that it takes to wake a worker up" },
        { .name = "copy", .kind = CLI_TEXT, .text = &a.copy, .value_name = "RATE", .default_text = "8GB",
          .help = "at which a core sends or receives; 0: it costs nothing" },
        { .name = "add", .kind = CLI_TEXT, .text = &a.add, .value_name = "RATE", .default_text = "20GB",
          .help = "at which a core adds up; 0: it costs nothing" },
        { .name = "straggler", .kind = CLI_TEXT, .text = &a.stragglers, .value_name = "RANK:FACTOR,...",
          .help = "workers that are slower by so much" },
        { .name = "delay", .kind = CLI_TEXT, .text = &a.delays, .value_name = "RANK:MS,...", .help = "workers that begin so much later" },
        { .name = "jitter", .kind = CLI_REAL, .real = &a.jitter, .default_text = "0", .min_real = 0, .max_real = 10000,
          .help = "computing takes longer by 0 to so many percent, drawn for each worker" },
        { .name = "seed", .kind = CLI_INT, .integer = &a.seed, .default_text = "1", .min = 0, .max = INT64_MAX,
          .help = "by which that is drawn" },
        { .name = "rounds", .kind = CLI_INT, .integer = &a.rounds, .default_text = "0", .min = 0, .max = 1000,
          .help = "as gradmesh bench times it: so many times a barrier and then the exchange; the median" },
        { .name = "grain-bytes", .kind = CLI_BYTES, .size_bytes = &a.grain_bytes, .default_text = "0", .min = 0, .max = 1 << 30,
          .help = "so much of a transfer arrives at a time; 0: 64K, more where there were too many" },
    };
    const struct cli_command command = { .name = "plan", .usage = "--simulate N,... [options]", .summary = summary, .notes = notes,
                                         .options = options, .n_options = N_OPTIONS };
    struct cli_parsed      parsed;
    struct plan_simulation simulation = { 0 };
    struct gmt_layers      layers;
    int                    status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    struct plan_machine machine;
    status = read_arguments(&command, &a, &simulation, &layers);
    if (status == CLI_EXIT_OK) status = read_profile(&a, &machine, &simulation);
    return status != CLI_EXIT_OK ? status : run(&parsed, &a, &simulation, &layers);
}
