/* cmd_bench.c - `gradmesh bench COLLECTIVE`: how fast the collectives are here, and whether they
 * are right.
 *
 * Options, sizes, who takes part, and the order of things. What is measured stands in
 * bench_case.h, how in bench_measure.h, what it looks like in bench_print.h. `gradmesh bench
 * limits` is a command of its own, in bench_limits.c. */
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
#include "cli/bench_print.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/worker.h"
#include "launch/launcher.h"

/* By which a launching process tells its workers what it has measured for --fraction. */
#define LIMIT_VARIABLE "GRADMESH_BENCH_LIMIT"

static const char summary[] =
    "Times a collective for a range of sizes and checks every result: all_reduce, reduce_scatter,\n"
    "all_gather, broadcast or barrier. The table has the columns and definitions of nccl-tests.\n"
    "'gradmesh bench limits' measures what this machine can carry; it has a --help of its own.\n";

static const char notes[] =
    "With -n it starts the ranks itself; under `gradmesh run`, or with RANK, WORLD_SIZE,\n"
    "MASTER_ADDR and MASTER_PORT set, it is one of them.\n"
    "\n"
    "An iteration is barrier, clock, operation, clock; the slowest rank's time counts, and the\n"
    "median over the iterations is shown. size is that of the whole buffer: what all_gather\n"
    "collects, what reduce_scatter cuts up. algbw is size / time; busbw is algbw times 2(N-1)/N\n"
    "for all_reduce, (N-1)/N for reduce_scatter and all_gather, 1 for broadcast. #wrong counts\n"
    "wrong elements before and after the timed iterations; values depend on rank and index. JSON\n"
    "has more: spread, bytes sent, processor time, memory. With --wire the bandwidths are of the\n"
    "elements as they are in memory, and a result is right within what the format may round.\n"
    "\n"
    "exit status: 0 measured, and all results right; 1 wrong results, or it could not be done; 2\n"
    "wrong usage; 3 another rank failed.\n"
    "\n"
    "examples:\n"
    "  gradmesh bench all_reduce -n 2\n"
    "  gradmesh bench all_reduce -n 4 --sizes 4,64K,25M --in-place --transport tcp --json\n"
    "  gradmesh bench all_gather -n 2 --begin 1K --end 64M --factor 4 --fraction\n";

enum { MAX_NAMES = 32, MAX_FACTOR = 1 << 16 };

#define MAX_SIZE_BYTES (INT64_C(1) << 46)

struct bench_args {
    int64_t         n_workers, begin_bytes, end_bytes, factor, root;
    bool            has_workers, has_begin, has_end, has_factor, has_op, has_root;
    struct cli_list sizes;
    bool            in_place_only, wants_fraction;
    int             dtype, redop;
    const char     *algorithm, *transport, *wire;
    struct cli_bench_effort effort;
    const struct cli_bench_collective *collective;
};

/* ---- the sizes --------------------------------------------------------------------------------- */

/* The sizes asked for, as a list. False: a usage error, which has been said. */
static bool choose_sizes(const struct cli_command *command, struct bench_args *args)
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

static bool check_sizes(const struct cli_command *command, const struct bench_args *args)
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

/* ---- one rank's work --------------------------------------------------------------------------- */

struct bench {
    const struct bench_args *args;
    const struct cli_parsed *parsed;
    gm_comm                 *comm;
    int                      rank, n_ranks;
    struct cli_bench_setting setting;
    uint8_t                 *memory[2];
    struct cli_bench_row     rows[CLI_LIST_MAX];
    size_t                   n_rows;
    struct cli_bench_progress progress;
    gm_error                 error;
};

static gm_status get_memory(struct bench *bench)
{
    size_t most_bytes = 0;
    for (size_t i = 0; i < bench->args->sizes.n_values; i++) {
        size_t bytes = (size_t)bench->args->sizes.values[i];
        if (bytes > most_bytes) most_bytes = bytes;
    }
    bool   needs_two = bench->args->collective->has_ways && !bench->args->in_place_only;
    for (int i = 0; i < (needs_two ? 2 : 1); i++) {
        bench->memory[i] = gmi_alloc(most_bytes, 1);
        if (bench->memory[i] == NULL)
            return gmi_error_set(&bench->error, GM_ERR_NOMEM, "no memory for a buffer of %zu bytes",
                                 most_bytes);
    }
    return GM_OK;
}

static gm_status measure_one(struct bench *bench, struct cli_bench_row *row, bool is_in_place)
{
    const struct bench_args *args = bench->args;
    char                     size[32];
    struct cli_bench_case    c = { .collective = args->collective,
                                   .rank = bench->rank,
                                   .n_ranks = bench->n_ranks,
                                   .count_elems = row->count_elems,
                                   .dtype = (gm_dtype)args->dtype,
                                   .redop = (gm_redop)args->redop,
                                   .root = (int)args->root,
                                   .wire = gm_comm_wire(bench->comm),
                                   .recv = bench->memory[0],
                                   .send = bench->memory[is_in_place ? 0 : 1] };
    /* With one way only there is one buffer; whether that counts as "in place" depends on the
       collective. */
    if (c.send == NULL) c.send = c.recv;
    if (bench->rank == 0) {
        cli_bench_progress(
            &bench->progress, "measuring %s, %s%s: size %zu of %zu",
            gm_collective_name(args->collective->which),
            cli_bench_size_text(row->count_elems * gm_dtype_bytes(c.dtype), size, sizeof size),
            is_in_place ? " in place" : "", bench->n_rows + 1, args->sizes.n_values);
    }
    gm_status status = cli_bench_measure(bench->comm, &c, &args->effort, &row->results[is_in_place],
                                         &bench->error);
    row->results[is_in_place].is_in_place = is_in_place;
    row->has_result[is_in_place] = status == GM_OK;
    /* The whole record, not its sentence alone: it says whose fault it was. */
    if (status != GM_OK && bench->error.status == GM_OK) bench->error = *gm_comm_error(bench->comm);
    return status;
}

static gm_status measure_row(struct bench *bench, size_t size_bytes)
{
    const struct cli_bench_collective *collective = bench->args->collective;
    struct cli_bench_row              *row = &bench->rows[bench->n_rows];
    row->count_elems = size_bytes / gm_dtype_bytes((gm_dtype)bench->args->dtype);
    if (collective->is_in_blocks) row->count_elems -= row->count_elems % (size_t)bench->n_ranks;
    bool wants_in_place = collective->gets != CLI_BENCH_NOTHING && !collective->is_never_in_place;
    bool wants_out_of_place =
        !wants_in_place || (collective->has_ways && !bench->args->in_place_only);
    gm_status status = wants_out_of_place ? measure_one(bench, row, false) : GM_OK;
    if (status == GM_OK && wants_in_place) status = measure_one(bench, row, true);
    if (status != GM_OK) return status;
    bench->n_rows++;
    cli_bench_progress_clear(&bench->progress);
    if (bench->rank == 0) cli_bench_print_row(cli_text(bench->parsed), &bench->setting, row);
    return GM_OK;
}

/* Ranks that were started by hand with other options would measure other things. */
static void write_fingerprint(const struct bench_args *args, char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(
        text, text_bytes,
        "collective=%s\ndtype=%s\nop=%s\nroot=%lld\nin_place=%d\niters=%lld\nwarmup=%lld\n"
        "budget=%.17g\ncheck=%d\nsizes=",
        gm_collective_name(args->collective->which), gm_dtype_name((gm_dtype)args->dtype),
        gm_redop_name((gm_redop)args->redop), (long long)args->root, args->in_place_only,
        (long long)args->effort.n_iters, (long long)args->effort.n_warmup, args->effort.budget_s,
        args->effort.checks_all);
    for (size_t i = 0; i < args->sizes.n_values && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)args->sizes.values[i]);
    if (used < text_bytes) snprintf(text + used, text_bytes - used, "\n");
}

static gm_status join(struct bench *bench, const struct cli_join *place)
{
    char            fingerprint[4096];
    struct cli_join with = *place;
    write_fingerprint(bench->args, fingerprint, sizeof fingerprint);
    with.fingerprint = fingerprint;
    return cli_join(&bench->comm, &with, &bench->error);
}

/* What --fraction compares with: measured by rank 0 before the others are kept waiting in a
 * call, unless the process that started the ranks has done so. */
static gm_status find_limit(struct bench *bench)
{
    const char *known = getenv(LIMIT_VARIABLE);
    if (!bench->args->wants_fraction || bench->rank != 0) return GM_OK;
    if (known != NULL && cli_read_real(known, &bench->setting.limit_gbps)) return GM_OK;
    return cli_bench_quick_limit(bench->n_ranks, &bench->setting.limit_gbps, &bench->error);
}

/* A format is worth a word where it changes something. */
static void name_format(struct bench *bench)
{
    struct cli_bench_case c = { .collective = bench->args->collective, .wire = gm_comm_wire(bench->comm),
                                .dtype = bench->setting.dtype, .redop = bench->setting.redop };
    if (cli_bench_is_lean(&c) && bench->n_ranks > 1) bench->setting.wire = c.wire;
}

static gm_status run_bench(struct bench *bench, const struct cli_join *place)
{
    gm_status status = cli_place(place, &bench->rank, &bench->n_ranks, &bench->error);
    if (status == GM_OK && bench->args->root >= bench->n_ranks)
        status = gmi_error_set(&bench->error, GM_ERR_ARG, "there is no root %lld in a world of %d",
                               (long long)bench->args->root, bench->n_ranks);
    bench->setting.n_ranks = bench->n_ranks;
    bench->setting.limit_processes = cli_bench_limit_processes(bench->n_ranks);
    if (status == GM_OK) status = get_memory(bench);
    if (status == GM_OK) status = find_limit(bench);
    if (status == GM_OK) status = join(bench, place);
    if (status != GM_OK) return status;
    name_format(bench);
    if (bench->rank == 0) cli_bench_print_head(cli_text(bench->parsed), &bench->setting);
    for (size_t i = 0; status == GM_OK && i < bench->args->sizes.n_values; i++)
        status = measure_row(bench, (size_t)bench->args->sizes.values[i]);
    cli_bench_progress_clear(&bench->progress);
    return status;
}

static int say_result(struct bench *bench)
{
    int64_t n_wrong = 0;
    for (size_t i = 0; i < bench->n_rows; i++)
        n_wrong += bench->rows[i].results[0].n_wrong + bench->rows[i].results[1].n_wrong;
    bool is_written = true;
    if (bench->rank == 0) {
        cli_bench_print_foot(cli_text(bench->parsed), &bench->setting, bench->rows, bench->n_rows);
        cJSON *object = bench->parsed->wants_json
                            ? cli_bench_to_json(&bench->setting, bench->rows, bench->n_rows) : NULL;
        is_written = cli_write_json(bench->parsed, "bench", object);
        cJSON_Delete(object);
    }
    return n_wrong == 0 && is_written ? CLI_EXIT_OK : CLI_EXIT_NO;
}

/* What the communicator will be told: the options, else the environment, else "auto". */
static void name_ways(const struct bench_args *args, struct cli_bench_setting *setting)
{
    gm_comm_options options;
    gm_comm_options_default(&options);
    setting->algorithm = setting->transport = "auto";
    if (gm_comm_options_from_env(&options, NULL) == GM_OK) {
        if (options.algorithm != NULL) setting->algorithm = options.algorithm;
        if (options.transport != NULL) setting->transport = options.transport;
    }
    if (args->algorithm != NULL) setting->algorithm = args->algorithm;
    if (args->transport != NULL) setting->transport = args->transport;
}

/* On a terminal the rows themselves show how far it is; the line would be in their way. */
static bool wants_live_line(const struct cli_parsed *parsed)
{
    return cli_is_live(STDERR_FILENO) && (isatty(STDOUT_FILENO) != 1 || cli_text(parsed) == stderr);
}

static void bench_fini(struct bench *bench)
{
    gm_comm_destroy(bench->comm);
    for (int i = 0; i < 2; i++) gmi_free(bench->memory[i]);
    gmi_free(bench);
}

static int run_rank(const struct bench_args *args, const struct cli_parsed *parsed, bool is_alone)
{
    struct bench   *bench = gmi_alloc(1, sizeof *bench);
    struct cli_join place = { .command = "bench", .world_size = is_alone ? 1 : 0,
                              .is_verbose = parsed->is_verbose, .transport = args->transport,
                              .algorithm = args->algorithm, .wire = args->wire };
    if (bench == NULL) {
        fprintf(stderr, "gradmesh bench: no memory\n");
        return CLI_EXIT_NO;
    }
    bench->args = args;
    bench->parsed = parsed;
    bench->n_ranks = 1;
    bench->setting = (struct cli_bench_setting){ .collective = args->collective,
                                                 .dtype = (gm_dtype)args->dtype,
                                                 .redop = (gm_redop)args->redop,
                                                 .root = (int)args->root };
    name_ways(args, &bench->setting);
    bench->progress = (struct cli_bench_progress){ .is_live = wants_live_line(parsed),
                                                   .is_wordy = parsed->is_verbose };
    gmi_error_clear(&bench->error);
    int status = run_bench(bench, &place) == GM_OK
                     ? say_result(bench)
                     : cli_failed("bench", bench->rank, bench->n_ranks, &bench->error);
    bench_fini(bench);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------- */

/* What no rank could do is one sentence here, and would be N from the ranks: the names of
 * algorithm and transport, and whether the collective offers this reduction of this type. A
 * world of one knows. */
static bool try_alone(const struct cli_command *command, const struct bench_args *args)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;
    uint8_t         values[2][16] = { { 0 } };
    gm_comm_options_default(&options);
    options.rank = 0;
    options.world_size = 1;
    options.algorithm = args->algorithm;
    options.transport = args->transport;
    options.wire = args->wire;
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

static bool check_words(const struct cli_command *command, const struct cli_parsed *parsed,
                        struct bench_args *args)
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
                       struct bench_args *args)
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
    if (args->in_place_only && (!args->collective->has_ways || args->collective->is_never_in_place))
        args->in_place_only = false; /* it has one way */
    return choose_sizes(command, args) && check_sizes(command, args) && try_alone(command, args);
}

/* Measures for --fraction once, before there are ranks to disturb it. */
static bool tell_limit(const struct bench_args *args)
{
    double   limit_gbps;
    gm_error error;
    char     text[32];
    if (!args->wants_fraction || getenv(LIMIT_VARIABLE) != NULL) return true;
    gmi_error_clear(&error);
    if (cli_bench_quick_limit((int)args->n_workers, &limit_gbps, &error) != GM_OK) {
        fprintf(stderr, "gradmesh bench: %s\n", error.text);
        return false;
    }
    snprintf(text, sizeof text, "%.4f", limit_gbps);
    return setenv(LIMIT_VARIABLE, text, 1) == 0;
}

static int run_command(const struct cli_command *command, const struct cli_parsed *parsed,
                       struct bench_args *args, char **own_words)
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
        return run_rank(args, parsed, !is_worker && args->has_workers);
    if (!tell_limit(args)) return CLI_EXIT_NO;
    return cli_launch_self(command, (int)args->n_workers, own_words, parsed,
                           wants_live_line(parsed));
}

int cli_cmd_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "limits") == 0) return cli_bench_limits(argc - 1, argv + 1);
    struct bench_args args = { .collective = NULL };
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
          .value_name = "auto|ring|naive|...", .help = "algorithm (default: auto)" },
        { .name = "transport", .kind = CLI_TEXT, .text = &args.transport, .value_name = "auto|tcp|shm",
          .help = "how bytes travel (default: auto)" },
        { .name = "wire", .kind = CLI_TEXT, .text = &args.wire, .value_name = "f32|bf16|f16|int8",
          .help = "format in which sums of f32 travel (default: f32)" },
        { .name = "check", .letter = 'c', .kind = CLI_FLAG, .flag = &args.effort.checks_all,
          .help = "check the result of every timed iteration, not only before and after them" },
        { .name = "fraction", .kind = CLI_FLAG, .flag = &args.wants_fraction,
          .help = "measure what plain sockets carry, and show what fraction of it each row\n"
                  "reaches" },
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
