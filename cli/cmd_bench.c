/* cmd_bench.c - `gradmesh bench COLLECTIVE`: how fast the collectives are here, and whether they
 * are right.
 *
 * Options, sizes, who takes part, and the order of things. What is measured stands in
 * bench_case.h, how in bench_measure.h, what a rank does in bench_run.h, what it looks like in bench_print.h. `gradmesh bench
 * limits` and `gradmesh bench tune` are commands of their own, in bench_limits.c and bench_tune.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "bench/limits.h"
#include "cli/args.h"
#include "cli/bench_limits.h"
#include "cli/bench_run.h"
#include "cli/bench_tune.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/trace_write.h"
#include "cli/worker.h"
#include "launch/launcher.h"

static const char summary[] =
    "Times a collective for a range of sizes and checks every result: all_reduce, reduce,\n"
    "reduce_scatter, all_gather, gather, scatter, all_to_all, broadcast, sendrecv or barrier. The\n"
    "table has the columns and definitions of nccl-tests.\n"
    "'gradmesh bench limits' measures what this machine can carry, 'gradmesh bench tune' makes \"auto\" choose\n"
    "by what is fastest here; each has a --help of its own.\n";

static const char notes[] =
    "With -n it starts the ranks itself; under `gradmesh run`, or with RANK, WORLD_SIZE,\n"
    "MASTER_ADDR and MASTER_PORT set, it is one of them.\n"
    "\n"
    "An iteration is barrier, clock, operation, clock; the slowest rank's time counts, and the\n"
    "median over the iterations is shown. size is that of the whole buffer: what all_gather\n"
    "collects, what reduce_scatter cuts up. algbw is size / time; busbw is algbw times 2(N-1)/N\n"
    "for all_reduce, 1 for broadcast, reduce and sendrecv (to the right, from the left), (N-1)/N\n"
    "for the others. #wrong counts wrong elements before and after the timed iterations; values\n"
    "depend on rank and index. JSON has more: spread, bytes sent, processor time, memory. With\n"
    "--wire the bandwidths are of the elements as they are in memory, and a result is right within\n"
    "what the format may round.\n"
    "\n"
    "exit status: 0 measured, and all results right; 1 wrong results, or it could not be done; 2\n"
    "wrong usage; 3 another rank failed.\n"
    "\n"
    "examples:\n"
    "  gradmesh bench all_reduce -n 2\n"
    "  gradmesh bench all_reduce -n 4 --sizes 4,64K,25M --in-place --transport tcp --json\n"
    "  gradmesh bench all_reduce -n 4 --algo all --in-place   # is auto as good as the best?\n"
    "  gradmesh bench all_reduce -n 4 --sizes 4M --algo ring,naive --trace rings.json\n"
    "  gradmesh bench all_gather -n 2 --begin 1K --end 64M --factor 4 --fraction\n";

enum { MAX_NAMES = 32, MAX_FACTOR = 1 << 16 };

#define MAX_SIZE_BYTES (INT64_C(1) << 46)

/* ---- the sizes --------------------------------------------------------------------------------- */

/* The sizes asked for, as a list. False: a usage error, which has been said. */
static bool choose_sizes(const struct cli_command *command, struct cli_bench_args *args)
{
    bool has_range = args->has_begin || args->has_end || args->has_factor;
    if (args->collective->gets == CLI_BENCH_NOTHING) {
        if (has_range || args->sizes.n_values > 0) {
            cli_usage_error(command, "%s moves no data, so there are no sizes to choose",
                            gm_collective_name(args->collective->which));
            return false;
        }
        args->sizes = (struct cli_list){ .n_values = 1 };
        return true;
    }
    if (args->sizes.n_values > 0) {
        if (has_range)
            cli_usage_error(command,
                            "--sizes says which sizes; --begin, --end and --factor say it too");
        return !has_range;
    }
    if (args->begin_bytes > args->end_bytes) {
        cli_usage_error(command, "--begin %lld is beyond --end %lld", (long long)args->begin_bytes,
                        (long long)args->end_bytes);
        return false;
    }
    /* From 1 to MAX_SIZE_BYTES by twos it is 47 sizes. */
    for (int64_t size = args->begin_bytes; size <= args->end_bytes; size *= args->factor)
        args->sizes.values[args->sizes.n_values++] = size;
    return true;
}

static bool check_sizes(const struct cli_command *command, const struct cli_bench_args *args)
{
    int64_t elem_bytes = (int64_t)gm_dtype_bytes((gm_dtype)args->dtype);
    for (size_t i = 0; i < args->sizes.n_values; i++) {
        if (args->sizes.values[i] % elem_bytes == 0) continue;
        cli_usage_error(command,
                        "%lld bytes are not a whole number of %s elements (%lld bytes each)",
                        (long long)args->sizes.values[i], gm_dtype_name((gm_dtype)args->dtype),
                        (long long)elem_bytes);
        return false;
    }
    return true;
}

/* ---- the command ------------------------------------------------------------------------------- */

/* What no rank could do is one sentence here, and would be N from the ranks: the names of
 * algorithm and transport, and whether the collective offers this reduction of this type. A
 * world of one knows. */
static bool try_alone(const struct cli_command *command, const struct cli_bench_args *args, const char *algorithm)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;
    uint8_t         values[2][16] = { { 0 } };
    gm_comm_options_default(&options);
    options.rank = 0;
    options.world_size = 1;
    options.algorithm = algorithm;
    options.transport = args->transport;
    options.wire = args->wire;
    options.checksum = args->checksum;
    gmi_error_clear(&error);
    gm_status status = gm_comm_create(&comm, &options, &error);
    if (status == GM_OK) {
        struct cli_bench_case c = { .collective = args->collective, .n_ranks = 1, .count_elems = 1,
                                    .dtype = (gm_dtype)args->dtype, .redop = (gm_redop)args->redop,
                                    .send = values[0], .recv = values[args->collective->has_ways] };
        status = args->collective->call(comm, &c);
        if (status != GM_OK) error = *gm_comm_error(comm);
        gm_comm_destroy(comm);
    }
    if (status == GM_OK) return true;
    const char *sentence = strncmp(error.text, "rank 0: ", 8) == 0 ? error.text + 8 : error.text;
    cli_usage_error(command, "%s", sentence);
    return false;
}

/* ---- the algorithms ---------------------------------------------------------------------------- */

static bool add_algorithm(const struct cli_command *command, struct cli_bench_args *args, const char *name)
{
    if (args->n_algorithms == CLI_BENCH_MAX_ALGORITHMS) {
        cli_usage_error(command, "%d algorithms at the most", CLI_BENCH_MAX_ALGORITHMS);
        return false;
    }
    args->algorithms[args->n_algorithms++] = name;
    return true;
}

/* "all", or names with commas between them. False: a usage error, which has been said. */
static bool choose_algorithms(const struct cli_command *command, struct cli_bench_args *args)
{
    if (args->algorithm == NULL) return true;
    if (strcmp(args->algorithm, "all") == 0) {
        add_algorithm(command, args, "auto");
        for (int i = 0; gm_algorithm_name(i) != NULL; i++)
            if (!add_algorithm(command, args, gm_algorithm_name(i))) return false;
        return true;
    }
    if (strchr(args->algorithm, ',') == NULL) return true;
    if ((size_t)snprintf(args->names, sizeof args->names, "%s", args->algorithm) >= sizeof args->names) {
        cli_usage_error(command, "--algo names too many algorithms");
        return false;
    }
    char *rest = args->names, *name;
    while ((name = strsep(&rest, ",")) != NULL)
        if (!add_algorithm(command, args, name)) return false;
    return true;
}

static bool try_algorithms(const struct cli_command *command, const struct cli_bench_args *args)
{
    if (args->n_algorithms == 0) return try_alone(command, args, args->algorithm);
    for (size_t i = 0; i < args->n_algorithms; i++)
        if (!try_alone(command, args, args->algorithms[i])) return false;
    return true;
}

static bool check_words(const struct cli_command *command, const struct cli_parsed *parsed,
                        struct cli_bench_args *args)
{
    const char *names[MAX_NAMES] = { NULL };
    char        all[256] = "";
    size_t      used = 0;
    for (size_t i = 0; cli_bench_row(i) != NULL && i + 1 < MAX_NAMES; i++) {
        names[i] = gm_collective_name(cli_bench_row(i)->which);
        used += (size_t)snprintf(all + used, used < sizeof all ? sizeof all - used : 0, "%s%s",
                                 i ? ", " : "", names[i]);
    }
    if (parsed->n_operands == 0) {
        cli_usage_error(command, "say what to measure: %s, or limits", all);
        return false;
    }
    if (parsed->n_operands > 1) {
        cli_usage_error(command, "unexpected word '%s'", parsed->operands[1]);
        return false;
    }
    const char *word = parsed->operands[0];
    if (strcmp(word, "limits") == 0) {
        cli_usage_error(command, "write 'limits' first: gradmesh bench limits [options]");
        return false;
    }
    args->collective = cli_bench_find(word);
    if (args->collective != NULL) return true;
    const char *nearest = cli_nearest(word, names);
    cli_usage_error(command, "there is no collective '%s'%s%s%s: %s", word,
                    nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "",
                    all);
    return false;
}

static bool check_args(const struct cli_command *command, const struct cli_parsed *parsed,
                       struct cli_bench_args *args)
{
    if (!check_words(command, parsed, args)) return false;
    const char *name = gm_collective_name(args->collective->which);
    if (args->has_op && !args->collective->is_reduction) {
        cli_usage_error(command, "%s combines nothing, so --op has no meaning", name);
        return false;
    }
    if (args->has_root && !args->collective->has_root) {
        cli_usage_error(command, "%s has no root", name);
        return false;
    }
    if (!args->has_repeats && (args->algorithm != NULL && (strchr(args->algorithm, ',') || !strcmp(args->algorithm, "all"))))
        args->n_repeats = 5;
    if (args->in_place_only && (!args->collective->has_ways || args->collective->is_never_in_place))
        args->in_place_only = false; /* it has one way */
    return choose_sizes(command, args) && check_sizes(command, args) && choose_algorithms(command, args) &&
           try_algorithms(command, args);
}

/* Measures for --fraction once, before there are ranks to disturb it. */
static bool tell_limit(const struct cli_bench_args *args)
{
    double   limit_gbps;
    gm_error error;
    char     text[32];
    if (!args->wants_fraction || getenv(CLI_BENCH_LIMIT_VARIABLE) != NULL) return true;
    gmi_error_clear(&error);
    if (cli_bench_quick_limit((int)args->n_workers, args->is_encrypted, &limit_gbps, &error) != GM_OK) {
        fprintf(stderr, "gradmesh bench: %s\n", error.text);
        return false;
    }
    snprintf(text, sizeof text, "%.4f", limit_gbps);
    return setenv(CLI_BENCH_LIMIT_VARIABLE, text, 1) == 0;
}

static bool can_write_trace(const char *path)
{
    gm_error error;
    gmi_error_clear(&error);
    if (cli_trace_check_path(path, &error) == GM_OK) return true;
    fprintf(stderr, "gradmesh bench: %s\n", error.text);
    return false;
}

static int run_command(const struct cli_command *command, const struct cli_parsed *parsed,
                       struct cli_bench_args *args, char **own_words)
{
    int  rank, world_size;
    bool is_worker = cli_is_worker(&rank, &world_size);
    if (!check_args(command, parsed, args)) return CLI_EXIT_USAGE;
    if (is_worker && args->has_workers && world_size != args->n_workers)
        return cli_usage_error(
            command,
            "-n %lld would start ranks, but this process is already rank %d of %d: "
            "leave -n out",
            (long long)args->n_workers, rank, world_size);
    if (args->has_workers && args->root >= args->n_workers)
        return cli_usage_error(command, "there is no root %lld in a world of %lld",
                               (long long)args->root, (long long)args->n_workers);
    if (is_worker || args->n_workers <= 1)
        return cli_bench_run(args, parsed, !is_worker && args->has_workers);
    if (args->trace_path != NULL && !can_write_trace(args->trace_path)) return CLI_EXIT_NO;
    if (!tell_limit(args)) return CLI_EXIT_NO;
    return cli_launch_self(command, (int)args->n_workers, own_words, parsed,
                           cli_bench_wants_live_line(parsed));
}

int cli_cmd_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "limits") == 0) return cli_bench_limits(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "tune") == 0) return cli_bench_tune(argc - 1, argv + 1);
    struct cli_bench_args args = { .collective = NULL };
    const char       *dtypes[MAX_NAMES] = { NULL }, *redops[MAX_NAMES] = { NULL };
    for (int i = 0; i < (int)GM_DTYPE_END; i++) dtypes[i] = gm_dtype_name((gm_dtype)i);
    for (int i = 0; i < (int)GM_REDOP_END; i++) redops[i] = gm_redop_name((gm_redop)i);
    const struct cli_option options[] = {
        { .name = "workers", .letter = 'n', .kind = CLI_INT, .integer = &args.n_workers,
          .was_given = &args.has_workers, .min = 1, .max = LAUNCH_MAX_WORKERS,
          .help = "how many ranks to start on this machine" },
        { .name = "sizes", .kind = CLI_BYTES_LIST, .list = &args.sizes, .min = 0,
          .max = MAX_SIZE_BYTES, .help = "these sizes" },
        { .name = "begin", .letter = 'b', .kind = CLI_BYTES, .size_bytes = &args.begin_bytes,
          .was_given = &args.has_begin, .default_text = "1K", .min = 1, .max = MAX_SIZE_BYTES,
          .help = "the smallest size" },
        { .name = "end", .letter = 'e', .kind = CLI_BYTES, .size_bytes = &args.end_bytes,
          .was_given = &args.has_end, .default_text = "64M", .min = 1, .max = MAX_SIZE_BYTES,
          .help = "no size beyond this one" },
        { .name = "factor", .letter = 'f', .kind = CLI_INT, .integer = &args.factor,
          .was_given = &args.has_factor, .default_text = "4", .min = 2, .max = MAX_FACTOR,
          .help = "from one size to the next" },
        { .name = "iters", .kind = CLI_INT, .integer = &args.effort.n_iters, .min = 1,
          .max = 1000000,
          .help = "timed iterations of each size (default: as many as --budget allows, 5 to\n"
                  "1000)" },
        { .name = "warmup", .letter = 'w', .kind = CLI_INT, .integer = &args.effort.n_warmup,
          .default_text = "-1", .min = -1, .max = 1000000,
          .help = "iterations before those; -1: 10 up to 64 KiB, else 1" },
        { .name = "budget", .kind = CLI_REAL, .real = &args.effort.budget_s,
          .value_name = "SECONDS", .default_text = "0.3", .min_real = 0.001, .max_real = 3600,
          .help = "time for the iterations of one size, when --iters does not say" },
        { .name = "in-place", .kind = CLI_FLAG, .flag = &args.in_place_only,
          .help = "in place only, not out of place too" },
        { .name = "dtype", .letter = 'd', .kind = CLI_CHOICE, .choice = &args.dtype,
          .choices = dtypes, .default_text = "f32", .help = "type of the elements" },
        { .name = "op", .letter = 'o', .kind = CLI_CHOICE, .choice = &args.redop, .choices = redops,
          .default_text = "sum", .was_given = &args.has_op, .help = "how elements are combined" },
        { .name = "root", .letter = 'r', .kind = CLI_INT, .integer = &args.root,
          .was_given = &args.has_root, .default_text = "0", .min = 0, .max = LAUNCH_MAX_WORKERS - 1,
          .help = "the root of a broadcast" },
        { .name = "algo", .kind = CLI_TEXT, .text = &args.algorithm,
          .value_name = "auto|ring|naive|...",
          .help = "algorithm (default: auto); several with commas, or all, are measured in turn\n"
                  "and compared" },
        { .name = "repeats", .kind = CLI_INT, .integer = &args.n_repeats, .was_given = &args.has_repeats,
          .default_text = "1", .min = 1, .max = CLI_BENCH_MAX_REPEATS,
          .help = "measures each size so often and shows the median (with several algorithms: 5)" },
        { .name = "transport", .kind = CLI_TEXT, .text = &args.transport, .value_name = "auto|tcp|shm",
          .help = "how bytes travel (default: auto)" },
        { .name = "encrypt", .kind = CLI_FLAG, .flag = &args.is_encrypted,
          .help = "encrypt what goes over TCP (TLS 1.3, by the job's secret); not shared memory" },
        { .name = "checksum", .kind = CLI_TEXT, .text = &args.checksum, .value_name = "off|crc32c",
          .help = "check all that ranks send each other, block by block (default: off)" },
        { .name = "wire", .kind = CLI_TEXT, .text = &args.wire, .value_name = "f32|bf16|f16|int8",
          .help = "format in which sums of f32 travel (default: f32)" },
        { .name = "check", .letter = 'c', .kind = CLI_FLAG, .flag = &args.effort.checks_all,
          .help = "check the result of every timed iteration, not only before and after them" },
        { .name = "trace", .kind = CLI_TEXT, .text = &args.trace_path, .value_name = "FILE",
          .help = "after the timed iterations of each row one more, as a trace that ui.perfetto.dev\n"
                  "opens (docs/tracing.md)" },
        { .name = "fraction", .kind = CLI_FLAG, .flag = &args.wants_fraction,
          .help = "measure what plain sockets carry, and show what fraction of it each row\n"
                  "reaches; with --encrypt of 1 / (1/plain + 2/cipher), both measured" },
    };
    const struct cli_command command = { .name = "bench", .usage = "COLLECTIVE -n N [options]",
                                         .summary = summary, .notes = notes,
                                         .operands = CLI_OPERANDS_ANYWHERE, .options = options,
                                         .n_options = sizeof options / sizeof options[0] };
    struct cli_parsed parsed;
    int               status = CLI_EXIT_NO;
    char            **own_words = cli_own_words(argc, argv);
    if (own_words == NULL) fprintf(stderr, "gradmesh bench: no memory\n");
    else if (cli_parse(&command, argc, argv, &parsed, &status))
        status = run_command(&command, &parsed, &args, own_words);
    gmi_free(own_words);
    return status;
}

