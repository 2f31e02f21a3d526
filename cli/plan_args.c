#include "cli/plan_args.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/plan_print.h"
#include "plan/machine.h"
#include "study/network.h"

static const char *const overlap_names[] = { "off", "on", "auto", NULL };
static const char *const wire_names[] = { "f32", "bf16", "f16", "int8", NULL };

void cli_plan_list_options(struct cli_plan_args *args, struct cli_option *options)
{
    const struct cli_option own[CLI_PLAN_OPTIONS] = {
        { .name = "model", .kind = CLI_TEXT, .text = &args->model, .value_name = "LAYERS", .default_text = "784,1024,10",
          .help = "sizes of the network, from inputs to classes" },
        { .name = "batch", .kind = CLI_INT, .integer = &args->batch, .was_given = &args->has_batch, .min = 1, .max = 1 << 28,
          .help = "samples of a step, of all workers together (default: the regime's)" },
        { .name = "world", .kind = CLI_INT_LIST, .list = &args->worlds, .value_name = "LIST", .default_text = "1,2,3,4", .min = 1,
          .max = 1 << 16, .was_given = &args->has_worlds, .help = "how many workers" },
        { .name = "regime", .kind = CLI_TEXT, .text = &args->regimes, .value_name = "shared,light,heavy", .default_text = "light",
          .was_given = &args->has_regimes, .help = "which of them; a list plans each (default: light; with --verify all)" },
        { .name = "network", .kind = CLI_TEXT, .text = &args->networks, .value_name = "loopback|100mbit|1gbit|10gbit",
          .was_given = &args->has_networks,
          .help = "what is between the workers, any rate; a list plans each\n(default: loopback; with --verify loopback,1gbit,100mbit as root)" },
        { .name = "transport", .kind = CLI_TEXT, .text = &args->transport, .value_name = "auto|tcp|shm", .default_text = "auto",
          .was_given = &args->has_transport, .help = "how bytes travel within a machine (with --verify: tcp)" },
        { .name = "wire", .kind = CLI_CHOICE, .choice = &args->wire, .choices = wire_names, .default_text = "f32",
          .help = "format in which gradients travel" },
        { .name = "overlap", .kind = CLI_CHOICE, .choice = &args->overlap, .choices = overlap_names, .default_text = "auto",
          .help = "exchange gradients while others are still computed; auto: between machines" },
        { .name = "bucket-bytes", .kind = CLI_BYTES, .size_bytes = &args->bucket_bytes, .was_given = &args->has_bucket_bytes, .min = 0,
          .max = INT64_C(1) << 40, .help = "cut the gradient into pieces of at most this size; 0: one piece (default: as gradmesh train)" },
        { .name = "accumulate", .kind = CLI_INT, .integer = &args->accumulate, .default_text = "1", .min = 1, .max = 1 << 20,
          .help = "parts in which a worker computes its share of a batch" },
        { .name = "threads", .kind = CLI_INT, .integer = &args->threads, .was_given = &args->has_threads, .min = 1, .max = 1024,
          .help = "threads of each worker for matrix products (default: the regime's)" },
        { .name = "flops", .kind = CLI_TEXT, .text = &args->flops, .value_name = "RATE",
          .help = "operations a worker makes in a second, instead of measuring" },
        { .name = "bandwidth", .kind = CLI_TEXT, .text = &args->bandwidth, .value_name = "RATE",
          .help = "of the network between workers, instead of --network" },
        { .name = "latency", .kind = CLI_TEXT, .text = &args->latency, .value_name = "TIME",
          .help = "of a message from one machine to another (default: 30us)" },
        { .name = "profile", .kind = CLI_TEXT, .text = &args->load_path, .value_name = "FILE",
          .help = "take the machine from this file instead of measuring" },
        { .name = "save-profile", .kind = CLI_TEXT, .text = &args->save_path, .value_name = "FILE",
          .help = "write down what was measured or given" },
        { .name = "samples", .kind = CLI_INT, .integer = &args->samples, .default_text = "60000", .min = 1, .max = INT64_C(1) << 50,
          .help = "samples of an epoch" },
        { .name = "price", .kind = CLI_REAL, .real = &args->price, .default_text = "0", .min_real = 0, .max_real = 1e9,
          .help = "of one worker for an hour, in any currency: shows what an epoch costs" },
        { .name = "verify", .kind = CLI_FLAG, .flag = &args->is_verifying, .help = "run the points on this machine and compare" },
        { .name = "repeats", .kind = CLI_INT, .integer = &args->n_repeats, .default_text = "1", .min = 1, .max = 9,
          .help = "with --verify: how often each is run; the fastest counts" },
        { .name = "results", .kind = CLI_TEXT, .text = &args->results, .value_name = "DIR", .default_text = "results",
          .help = "with --verify: where plan.json is written" },
    };
    memcpy(options, own, sizeof own);
}

/* ---- what was asked for --------------------------------------------------------------------------- */

static int read_names(const struct cli_command *command, const char *option, const char *text, struct cli_plan_names *names)
{
    names->n = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (names->n == CLI_PLAN_MAX_NAMES || length == 0 || length >= CLI_PLAN_NAME_BYTES)
            return cli_usage_error(command, "--%s %s: expected up to %d names with commas between them", option, text, CLI_PLAN_MAX_NAMES);
        snprintf(names->all[names->n++], CLI_PLAN_NAME_BYTES, "%.*s", (int)length, at);
        at += length;
        if (*at == '\0') return CLI_EXIT_OK;
    }
}

static int read_regimes(const struct cli_command *command, const char *text, struct cli_plan_choices *c)
{
    struct cli_plan_names names;
    int          status = read_names(command, "regime", text, &names);
    for (int i = 0; i < names.n && status == CLI_EXIT_OK; i++) {
        int regime = 0;
        while (regime < STUDY_REGIME_END && strcmp(names.all[i], study_regime_name((enum study_regime)regime)) != 0) regime++;
        if (regime == STUDY_REGIME_END || c->n_regimes == STUDY_REGIME_END)
            return cli_usage_error(command, "--regime %s: expected each once of shared, light, heavy", text);
        c->regimes[c->n_regimes++] = (enum study_regime)regime;
    }
    return status;
}

static int read_networks(const struct cli_command *command, const struct cli_plan_args *args, struct cli_plan_choices *c)
{
    const char *text = args->networks != NULL ? args->networks : "loopback";
    if (args->networks == NULL && args->is_verifying && geteuid() == 0) text = "loopback,1gbit,100mbit";
    if (c->bandwidth_Bps > 0) text = "loopback";
    int status = read_names(command, "network", text, &c->networks);
    for (int i = 0; i < c->networks.n && status == CLI_EXIT_OK; i++)
        if (!study_network_is_rate(c->networks.all[i]))
            return cli_usage_error(command, "--network '%s': expected loopback, or a rate such as 100mbit, 1gbit or 10gbit",
                                   c->networks.all[i]);
    return status;
}

static int read_amounts(const struct cli_command *command, const struct cli_plan_args *args, struct cli_plan_choices *c)
{
    if (args->flops != NULL && !plan_read_flops(&c->flops, args->flops))
        return cli_usage_error(command, "--flops '%s': expected operations per second, as 50G or 1.2T", args->flops);
    if (args->bandwidth != NULL && !plan_read_bandwidth(&c->bandwidth_Bps, args->bandwidth))
        return cli_usage_error(command, "--bandwidth '%s': expected a rate, as 1gbit (of the line) or 117MB (payload)", args->bandwidth);
    if (args->latency != NULL && !plan_read_seconds_us(&c->latency_us, args->latency))
        return cli_usage_error(command, "--latency '%s': expected a time, as 25us or 0.2ms", args->latency);
    if (args->load_path != NULL && args->flops != NULL)
        return cli_usage_error(command, "--profile and --flops both say how fast the machine computes; leave one out");
    if (args->bandwidth != NULL && args->networks != NULL)
        return cli_usage_error(command, "--bandwidth and --network both say what is between the workers; leave one out");
    if (args->is_verifying && (args->flops != NULL || args->bandwidth != NULL))
        return cli_usage_error(command, "--verify runs on this machine, whatever %s says: leave it out, or give --profile",
                               args->flops != NULL ? "--flops" : "--bandwidth");
    c->is_measured = args->flops == NULL && args->load_path == NULL;
    return CLI_EXIT_OK;
}

static int check_amount(const struct cli_command *command, const struct cli_plan_args *args)
{
    bool has_one = false;
    for (size_t i = 0; i < args->worlds.n_values; i++) {
        has_one |= args->worlds.values[i] == 1;
        if (args->has_batch && args->batch < args->worlds.values[i])
            return cli_usage_error(command, "--batch %lld is not enough for %lld workers: each needs a sample", (long long)args->batch,
                                   (long long)args->worlds.values[i]);
        if (args->is_verifying && args->worlds.values[i] > STUDY_MAX_RANKS)
            return cli_usage_error(command, "--verify cannot run %lld workers here: %d at most", (long long)args->worlds.values[i],
                                   STUDY_MAX_RANKS);
    }
    if (args->is_verifying && !has_one)
        return cli_usage_error(command, "--verify compares with one worker: add 1 to --world");
    if (args->is_verifying && (args->accumulate != 1 || args->has_threads))
        return cli_usage_error(command, "--verify runs the regimes as they are: leave out %s",
                               args->has_threads ? "--threads" : "--accumulate");
    return CLI_EXIT_OK;
}

int cli_plan_read_choices(const struct cli_command *command, const struct cli_plan_args *args, struct cli_plan_choices *c)
{
    gm_error error;
    gmi_error_clear(&error);
    *c = (struct cli_plan_choices){ .is_measured = true, .wire = wire_names[args->wire] };
    int status = read_amounts(command, args, c);
    bool takes_all = args->is_verifying && !args->has_regimes;
    if (status == CLI_EXIT_OK) status = read_regimes(command, takes_all ? "shared,light,heavy" : args->regimes, c);
    if (status == CLI_EXIT_OK) status = read_networks(command, args, c);
    if (status == CLI_EXIT_OK) status = check_amount(command, args);
    if (status == CLI_EXIT_OK && gmt_layers_parse(&c->layers, args->model, &error) != GM_OK)
        status = cli_usage_error(command, "%s", error.text);
    if (status == CLI_EXIT_OK && strcmp(args->transport, "auto") != 0 && strcmp(args->transport, "tcp") != 0 &&
        strcmp(args->transport, "shm") != 0)
        status = cli_usage_error(command, "--transport '%s': expected auto, tcp or shm", args->transport);
    return status;
}
