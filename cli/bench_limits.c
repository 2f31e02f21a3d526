#include "cli/bench_limits.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "bench/crew.h"
#include "bench/limits.h"
#include "cli/args.h"
#include "cli/bench_print.h"
#include "cli/output.h"
#include "cli/worker.h"

static const char summary[] =
    "Measures what this machine can carry at most, as a yardstick for the collectives: copying\n"
    "memory, the library's float sums, the cipher of encrypted links, one-way and two-way streams over loopback TCP, Unix\n"
    "sockets and shared memory, and half a round trip of four bytes with a receiver that sleeps\n"
    "and one that spins.\n";

static const char notes[] =
    "WHAT is any of copy, reduce, exact, cipher, oneway, duplex, ping; without it all are measured. The duplex\n"
    "limit is the highest median among the two-way streams over TCP: two processes, one\n"
    "connection, each side walking an array of 25 MiB, writes of 64 KiB to 4 MiB, socket buffers\n"
    "automatic and of 4 MiB, every congestion control that this user may choose. GB are 10^9\n"
    "payload bytes, in one direction, of each process.\n"
    "\n"
    "exit status: 0 measured; 1 it could not be done; 2 wrong usage.\n"
    "\n"
    "examples:\n"
    "  gradmesh bench limits\n"
    "  gradmesh bench limits --quick --json=results/limits.json\n"
    "  gradmesh bench limits duplex --repeats 9 --json=limits.json\n";

struct limits_args {
    int64_t n_repeats, amount_bytes, n_processes;
    bool    is_tcp_only, is_quick;
};

enum { QUICK_ROUNDS = 3, QUICK_BYTES = 64 << 20 };

struct limits {
    struct bench_limit limits[BENCH_MAX_LIMITS];
    size_t             n_limits;
};

/* ---- measuring --------------------------------------------------------------------------------- */

/* Round by round, so that a quiet or busy minute of the machine meets all variants. */
static gm_status measure_all(struct limits *limits, int64_t n_repeats, size_t amount_bytes,
                             struct cli_bench_progress *progress, gm_error *error)
{
    for (int64_t repeat = 0; repeat < n_repeats; repeat++) {
        for (size_t i = 0; i < limits->n_limits; i++) {
            struct bench_limit *limit = &limits->limits[i];
            cli_bench_progress(
                progress, "measuring limits, round %lld of %lld: %s over %s, %zu of %zu",
                (long long)repeat + 1, (long long)n_repeats, bench_limit_name(limit->kind),
                bench_channel_name(limit->channel), i + 1, limits->n_limits);
            gm_status status = bench_limit_measure(limit, amount_bytes, error);
            if (status != GM_OK) return status;
        }
    }
    cli_bench_progress_clear(progress);
    return GM_OK;
}

int cli_bench_limit_processes(int n_ranks)
{
    if (n_ranks < 2) return 2;
    return n_ranks > BENCH_MAX_CREW ? BENCH_MAX_CREW : n_ranks;
}

gm_status cli_bench_quick_limit(int n_ranks, bool is_encrypted, double *limit_gbps, gm_error *error)
{
    struct bench_plan plan = { .kinds = 1u << BENCH_DUPLEX,
                               .is_tcp_only = true,
                               .n_processes = cli_bench_limit_processes(n_ranks) };
    struct cli_bench_progress progress = { .is_live = cli_is_live(STDERR_FILENO) };
    struct limits *limits = gmi_alloc(1, sizeof *limits);
    if (limits == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory");
    limits->n_limits = bench_limits_plan(&plan, limits->limits, BENCH_MAX_LIMITS);
    if (is_encrypted) {
        const struct bench_plan cipher = { .kinds = 1u << BENCH_CIPHER, .n_processes = plan.n_processes };
        limits->n_limits += bench_limits_plan(&cipher, limits->limits + limits->n_limits, BENCH_MAX_LIMITS - limits->n_limits);
    }
    gm_status status = measure_all(limits, 3, (size_t)256 << 20, &progress, error);
    if (status == GM_OK) {
        const struct bench_limit *l = limits->limits;
        *limit_gbps = bench_limit_median(bench_limits_best(l, limits->n_limits, BENCH_DUPLEX, BENCH_TCP));
        if (is_encrypted) {
            double cipher_gbps = bench_limit_median(bench_limits_best(l, limits->n_limits, BENCH_CIPHER, BENCH_MEMORY));
            *limit_gbps = 1 / (1 / *limit_gbps + 2 / cipher_gbps);
        }
    }
    gmi_free(limits);
    return status;
}

/* ---- what it says ------------------------------------------------------------------------------ */

static const char *buffer_text(const struct bench_limit *l)
{
    if (l->channel != BENCH_TCP && l->channel != BENCH_UNIX) return "-";
    return l->buffer_bytes > 0 || l->channel == BENCH_UNIX ? "4 MiB" : "auto";
}

static void print_limit(FILE *file, const struct bench_limit *l)
{
    char   array[32] = "-", write[32] = "-";
    bool   is_ping = l->kind == BENCH_PING;
    if (l->array_bytes > 0) cli_bench_size_text(l->array_bytes, array, sizeof array);
    if (l->write_bytes > 0) cli_bench_size_text(l->write_bytes, write, sizeof write);
    fprintf(file, "%-8s %-7s %5d %9s %9s %8s %8s %8s %9.3f %9.3f %9.3f\n",
            bench_limit_name(l->kind), bench_channel_name(l->channel), l->n_processes, array, write,
            buffer_text(l), l->congestion[0] ? l->congestion : "-",
            !is_ping         ? "-"
            : l->is_spinning ? "spins"
                             : "sleeps",
            bench_limit_median(l), bench_limit_least(l), bench_limit_most(l));
}

static void print_best(FILE *file, const struct limits *limits)
{
    const struct bench_limit *best =
        bench_limits_best(limits->limits, limits->n_limits, BENCH_DUPLEX, BENCH_TCP);
    char                      write[32];
    if (best == NULL) return;
    fprintf(file,
            "# duplex limit (%d processes, TCP): %.3f GB/s each way, by writes of %s, socket "
            "buffers %s, %s\n",
            best->n_processes, bench_limit_median(best),
            cli_bench_size_text(best->write_bytes, write, sizeof write), buffer_text(best),
            best->congestion[0] ? best->congestion : "the machine's congestion control");
}

static void print_limits(FILE *file, const struct limits *limits, const struct limits_args *args)
{
    fprintf(file,
            "# What this machine carries: GB/s (10^9 B, one direction, each process); ping: "
            "microseconds, half a\n"
            "# round trip. Median, least and most of %lld rounds.\n#\n",
            (long long)args->n_repeats);
    fprintf(file, "#%-7s %-7s %5s %9s %9s %8s %8s %8s %9s %9s %9s\n", "limit", "over", "procs",
            "array", "write", "buffers", "control", "receiver", "median", "least", "most");
    for (size_t i = 0; i < limits->n_limits; i++) print_limit(file, &limits->limits[i]);
    print_best(file, limits);
    fflush(file);
}

static void add_fixed(cJSON *object, const char *name, double value)
{
    char text[48];
    snprintf(text, sizeof text, "%.4f", value);
    cJSON_AddRawToObject(object, name, text);
}

static cJSON *limit_to_json(const struct bench_limit *l)
{
    cJSON *object = cJSON_CreateObject();
    bool is_ping = l->kind == BENCH_PING,
         is_socket = l->channel == BENCH_TCP || l->channel == BENCH_UNIX;
    cJSON_AddStringToObject(object, "limit", bench_limit_name(l->kind));
    cJSON_AddStringToObject(object, "over", bench_channel_name(l->channel));
    cJSON_AddNumberToObject(object, "processes", l->n_processes);
    if (l->array_bytes > 0) cJSON_AddNumberToObject(object, "array_bytes", (double)l->array_bytes);
    if (l->write_bytes > 0) cJSON_AddNumberToObject(object, "write_bytes", (double)l->write_bytes);
    if (is_socket) cJSON_AddStringToObject(object, "buffers", buffer_text(l));
    if (l->channel == BENCH_TCP)
        cJSON_AddStringToObject(object, "congestion_control",
                                l->congestion[0] ? l->congestion : "default");
    if (is_ping) cJSON_AddBoolToObject(object, "spinning", l->is_spinning);
    cJSON_AddNumberToObject(object, "repeats", l->n_values);
    add_fixed(object, is_ping ? "median_us" : "GBps", bench_limit_median(l));
    add_fixed(object, is_ping ? "min_us" : "min_GBps", bench_limit_least(l));
    add_fixed(object, is_ping ? "max_us" : "max_GBps", bench_limit_most(l));
    if (is_ping) add_fixed(object, "p99_us", l->p99_us);
    return object;
}

static cJSON *limits_to_json(const struct limits *limits)
{
    cJSON *object = cJSON_CreateObject();
    const struct bench_limit *best =
        bench_limits_best(limits->limits, limits->n_limits, BENCH_DUPLEX, BENCH_TCP);
    cJSON_AddStringToObject(object, "version", gm_version());
    if (best != NULL) add_fixed(object, "duplex_GBps", bench_limit_median(best));
    cJSON *results = cJSON_AddArrayToObject(object, "results");
    for (size_t i = 0; i < limits->n_limits; i++)
        cJSON_AddItemToArray(results, limit_to_json(&limits->limits[i]));
    return object;
}

/* ---- the command ------------------------------------------------------------------------------- */

static bool no_such_limit(const struct cli_command *command, const char *name)
{
    char   names[128];
    size_t used = 0;
    for (int kind = 0; kind < BENCH_LIMIT_KINDS; kind++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", kind ? ", " : "", bench_limit_name((enum bench_limit_kind)kind));
    cli_usage_error(command, "there is no limit '%s': %s", name, names);
    return false;
}

static bool choose_kinds(const struct cli_command *command, const struct cli_parsed *parsed,
                         unsigned *kinds)
{
    *kinds = parsed->n_operands == 0 ? (1u << BENCH_LIMIT_KINDS) - 1 : 0;
    for (int i = 0; i < parsed->n_operands; i++) {
        int kind = 0;
        while (kind < BENCH_LIMIT_KINDS &&
               strcmp(bench_limit_name((enum bench_limit_kind)kind), parsed->operands[i]) != 0)
            kind++;
        if (kind == BENCH_LIMIT_KINDS) return no_such_limit(command, parsed->operands[i]);
        *kinds |= 1u << kind;
    }
    return true;
}

static int run_limits(const struct limits_args *args, const struct cli_parsed *parsed,
                      unsigned kinds)
{
    struct limits            *limits = gmi_alloc(1, sizeof *limits);
    struct bench_plan         plan = { .kinds = kinds, .n_processes = (int)args->n_processes,
                                       .is_tcp_only = args->is_tcp_only };
    struct cli_bench_progress progress = { .is_live = cli_is_live(STDERR_FILENO),
                                           .is_wordy = parsed->is_verbose };
    gm_error                  error;
    gmi_error_clear(&error);
    if (limits == NULL) {
        fprintf(stderr, "gradmesh bench limits: no memory\n");
        return CLI_EXIT_NO;
    }
    limits->n_limits = bench_limits_plan(&plan, limits->limits, BENCH_MAX_LIMITS);
    gm_status status =
        measure_all(limits, args->n_repeats, (size_t)args->amount_bytes, &progress, &error);
    cli_bench_progress_clear(&progress);
    bool is_good = status == GM_OK;
    if (is_good) {
        print_limits(cli_text(parsed), limits, args);
        cJSON *object = parsed->wants_json ? limits_to_json(limits) : NULL;
        is_good = cli_write_json(parsed, "bench limits", object);
        cJSON_Delete(object);
    } else {
        fprintf(stderr, "gradmesh bench limits: %s\n", error.text);
    }
    gmi_free(limits);
    return is_good ? CLI_EXIT_OK : CLI_EXIT_NO;
}

static void make_quick(struct limits_args *args, unsigned *kinds)
{
    *kinds = 1u << BENCH_DUPLEX;
    args->is_tcp_only = true;
    args->n_repeats = QUICK_ROUNDS;
    args->amount_bytes = QUICK_BYTES;
}

int cli_bench_limits(int argc, char **argv)
{
    struct limits_args      args = { 0 };
    const struct cli_option options[] = {
        { .name = "repeats", .kind = CLI_INT, .integer = &args.n_repeats, .default_text = "5",
          .min = 1, .max = BENCH_MAX_REPEATS,
          .help = "rounds over all measurements; the median counts" },
        { .name = "amount", .kind = CLI_BYTES, .size_bytes = &args.amount_bytes,
          .default_text = "512M", .min = 1, .max = INT64_C(1) << 40,
          .help = "how much each measurement moves" },
        { .name = "processes", .kind = CLI_INT, .integer = &args.n_processes, .default_text = "2",
          .min = 2, .max = BENCH_MAX_CREW,
          .help = "for duplex: more than 2 send around a ring" },
        { .name = "quick", .kind = CLI_FLAG, .flag = &args.is_quick,
          .help = "only what the chart of gradmesh report wants, in some seconds: duplex over TCP" },
        { .name = "tcp-only", .kind = CLI_FLAG, .flag = &args.is_tcp_only, .help = "TCP only" },
    };
    const struct cli_command command = { .name = "bench limits", .usage = "[WHAT...] [options]",
                                         .summary = summary, .notes = notes,
                                         .operands = CLI_OPERANDS_ANYWHERE, .options = options,
                                         .n_options = sizeof options / sizeof options[0] };
    struct cli_parsed parsed;
    int               status;
    unsigned          kinds;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    if (!choose_kinds(&command, &parsed, &kinds)) return CLI_EXIT_USAGE;
    if (args.is_quick && parsed.n_operands > 0) return cli_usage_error(&command, "--quick measures duplex; leave '%s' out", parsed.operands[0]);
    if (args.is_quick) make_quick(&args, &kinds);
    return run_limits(&args, &parsed, kinds);
}
