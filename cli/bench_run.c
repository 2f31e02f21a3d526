#include "cli/bench_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "cli/bench_contest.h"
#include "cli/bench_limits.h"
#include "cli/bench_print.h"
#include "cli/output.h"
#include "cli/trace_write.h"
#include "cli/worker.h"

/* The events of a call are few, unless it is cut into many blocks. */
enum { TRACE_EVENTS = 64 * 1024 };

/* An algorithm, or "auto", with a communicator of its own. */
struct contender {
    const char *asked;
    gm_comm    *comm;
};

struct bench {
    const struct cli_bench_args *args;
    const struct cli_parsed *parsed;
    struct contender         contenders[CLI_BENCH_MAX_ALGORITHMS];
    size_t                   n_contenders;
    int                      rank, n_ranks;
    struct cli_bench_setting setting;
    uint8_t                 *memory[2];
    cli_bench_repeats        repeats[CLI_BENCH_MAX_ALGORITHMS]; /* of one size */
    struct cli_bench_row     rows[CLI_LIST_MAX * CLI_BENCH_MAX_ALGORITHMS];
    size_t                   n_rows;
    struct cli_bench_progress progress;
    gm_error                 error;
};

/* It is not touched here: what small sizes are said to need is not what the largest one needs. */
static uint8_t *get_buffer(size_t bytes)
{
    size_t padded;
    if (!gmi_add_sizes(bytes ? bytes : 1, GMI_CACHE_LINE - 1, &padded)) return NULL;
    return aligned_alloc(GMI_CACHE_LINE, padded - padded % GMI_CACHE_LINE);
}

static gm_status get_memory(struct bench *bench)
{
    size_t most_bytes = 0;
    for (size_t i = 0; i < bench->args->sizes.n_values; i++) {
        size_t bytes = (size_t)bench->args->sizes.values[i];
        if (bytes > most_bytes) most_bytes = bytes;
    }
    bool   needs_two = bench->args->collective->has_ways && !bench->args->in_place_only;
    for (int i = 0; i < (needs_two ? 2 : 1); i++) {
        bench->memory[i] = get_buffer(most_bytes);
        if (bench->memory[i] == NULL)
            return gmi_error_set(&bench->error, GM_ERR_NOMEM, "no memory for a buffer of %zu bytes",
                                 most_bytes);
    }
    return GM_OK;
}

/* ---- one size ---------------------------------------------------------------------------------- */

static struct cli_bench_case case_of(const struct bench *bench, size_t count_elems, bool is_in_place)
{
    const struct cli_bench_args *args = bench->args;
    struct cli_bench_case        c = { .collective = args->collective,
                                       .rank = bench->rank,
                                       .n_ranks = bench->n_ranks,
                                       .count_elems = count_elems,
                                       .dtype = (gm_dtype)args->dtype,
                                       .redop = (gm_redop)args->redop,
                                       .root = (int)args->root,
                                       .wire = gm_comm_wire(bench->contenders[0].comm),
                                       .recv = bench->memory[0],
                                       .send = bench->memory[is_in_place ? 0 : 1] };
    /* With one way only there is one buffer; whether that counts as "in place" depends on the
       collective. */
    if (c.send == NULL) c.send = c.recv;
    return c;
}

static void say_progress(struct bench *bench, size_t contender, int64_t repeat, bool is_in_place, size_t size_bytes)
{
    const struct cli_bench_args *args = bench->args;
    char                         size[32], more[96] = "";
    if (bench->rank != 0) return;
    if (bench->n_contenders > 1) {
        snprintf(more, sizeof more, "; %s, repeat %lld of %lld", bench->contenders[contender].asked,
                 (long long)repeat + 1, (long long)args->n_repeats);
    } else if (args->n_repeats > 1) {
        snprintf(more, sizeof more, "; repeat %lld of %lld", (long long)repeat + 1, (long long)args->n_repeats);
    }
    cli_bench_progress(&bench->progress, "measuring %s, %s%s: size %zu of %zu%s",
                       gm_collective_name(args->collective->which),
                       cli_bench_size_text(size_bytes, size, sizeof size), is_in_place ? " in place" : "",
                       bench->n_rows / bench->n_contenders + 1, args->sizes.n_values, more);
}

static gm_status measure_one(struct bench *bench, size_t contender, int64_t repeat, bool is_in_place)
{
    gm_comm              *comm = bench->contenders[contender].comm;
    struct cli_bench_row *row = &bench->rows[bench->n_rows + contender];
    struct cli_bench_case c = case_of(bench, row->count_elems, is_in_place);
    struct cli_bench_result *result = &bench->repeats[contender][is_in_place][repeat];
    say_progress(bench, contender, repeat, is_in_place, row->count_elems * gm_dtype_bytes(c.dtype));
    gm_status status = cli_bench_measure(comm, &c, &bench->args->effort, result, &bench->error);
    result->is_in_place = is_in_place;
    row->has_result[is_in_place] = status == GM_OK;
    /* The whole record, not its sentence alone: it says whose fault it was. */
    if (status != GM_OK && bench->error.status == GM_OK) bench->error = *gm_comm_error(comm);
    return status;
}

/* Of the repeats the one in the middle; wrong elements of all of them. */
static void settle_repeats(struct bench *bench, size_t contender, bool is_in_place)
{
    struct cli_bench_row    *row = &bench->rows[bench->n_rows + contender];
    struct cli_bench_result *all = bench->repeats[contender][is_in_place];
    if (row->has_result[is_in_place])
        row->results[is_in_place] = cli_bench_middle(all, (size_t)bench->args->n_repeats);
}

static gm_status measure_ways(struct bench *bench, size_t contender, int64_t repeat)
{
    const struct cli_bench_collective *collective = bench->args->collective;
    bool wants_in_place = collective->gets != CLI_BENCH_NOTHING && !collective->is_never_in_place;
    bool wants_out_of_place = !wants_in_place || (collective->has_ways && !bench->args->in_place_only);
    gm_status status = wants_out_of_place ? measure_one(bench, contender, repeat, false) : GM_OK;
    return status == GM_OK && wants_in_place ? measure_one(bench, contender, repeat, true) : status;
}

/* The contenders in turn; every other repeat the other way round. */
static gm_status measure_all(struct bench *bench)
{
    for (int64_t repeat = 0; repeat < bench->args->n_repeats; repeat++) {
        for (size_t i = 0; i < bench->n_contenders; i++) {
            size_t    contender = repeat % 2 == 0 ? i : bench->n_contenders - 1 - i;
            gm_status status = measure_ways(bench, contender, repeat);
            if (status != GM_OK) return status;
        }
    }
    return GM_OK;
}

/* ---- the trace: one call of each row, when its time has been taken ------------------------------ */

static gm_status trace_way(struct bench *bench, size_t contender, bool is_in_place)
{
    gm_comm              *comm = bench->contenders[contender].comm;
    struct cli_bench_case c = case_of(bench, bench->rows[bench->n_rows + contender].count_elems, is_in_place);
    cli_bench_fill(&c);
    gm_status status = gm_barrier(comm);
    (void)gm_trace_record(comm, 1);
    if (status == GM_OK) status = c.collective->call(comm, &c);
    (void)gm_trace_record(comm, 0);
    if (status != GM_OK && bench->error.status == GM_OK) bench->error = *gm_comm_error(comm);
    return status;
}

static gm_status trace_ways(struct bench *bench)
{
    gm_status status = GM_OK;
    if (bench->args->trace_path == NULL) return GM_OK;
    for (size_t i = 0; i < bench->n_contenders; i++) {
        for (int way = 0; way < 2; way++) {
            if (status == GM_OK && bench->rows[bench->n_rows + i].has_result[way]) status = trace_way(bench, i, way);
        }
    }
    return status;
}

static gm_status write_trace(struct bench *bench)
{
    const struct cli_bench_args *args = bench->args;
    struct cli_trace             traces[CLI_BENCH_MAX_ALGORITHMS] = { { 0 } };
    const struct cli_bench_row  *last = &bench->rows[bench->n_rows - 1];
    struct cli_trace_about       about = { .command = "bench", .collective = gm_collective_name(args->collective->which),
                                           .dtype = gm_dtype_name((gm_dtype)args->dtype), .count = last->count_elems,
                                           .world_size = bench->n_ranks };
    gm_status status = GM_OK;
    if (args->trace_path == NULL) return GM_OK;
    for (size_t i = 0; status == GM_OK && i < bench->n_contenders; i++)
        status = cli_trace_collect(bench->contenders[i].comm, 0, &traces[i], &bench->error);
    if (status == GM_OK && bench->rank == 0)
        status = cli_trace_write(args->trace_path, traces, bench->n_contenders, &about, &bench->error);
    for (size_t i = 0; i < bench->n_contenders; i++) cli_trace_free(&traces[i]);
    return status;
}

/* What a call counts: of blocks, those of one. */
static size_t call_count(const struct bench *bench, size_t count_elems)
{
    return bench->args->collective->is_in_blocks ? count_elems / (size_t)bench->n_ranks : count_elems;
}

static gm_status measure_size(struct bench *bench, size_t size_bytes)
{
    const struct cli_bench_args *args = bench->args;
    struct cli_bench_row        *rows = &bench->rows[bench->n_rows];
    size_t                       count = size_bytes / gm_dtype_bytes((gm_dtype)args->dtype);
    if (args->collective->is_in_blocks) count -= count % (size_t)bench->n_ranks;
    for (size_t i = 0; i < bench->n_contenders; i++) {
        const char *ran = gm_comm_algorithm(bench->contenders[i].comm, args->collective->which,
                                            call_count(bench, count), (gm_dtype)args->dtype, (gm_redop)args->redop);
        rows[i] = (struct cli_bench_row){ .count_elems = count, .asked = bench->contenders[i].asked,
                                          .ran = ran != NULL ? ran : "?" };
    }
    gm_status status = measure_all(bench);
    if (status == GM_OK) status = trace_ways(bench);
    if (status != GM_OK) return status;
    for (size_t i = 0; i < bench->n_contenders; i++) {
        settle_repeats(bench, i, false);
        settle_repeats(bench, i, true);
    }
    cli_bench_compare(rows, bench->n_contenders, bench->repeats, (size_t)args->n_repeats);
    bench->n_rows += bench->n_contenders;
    cli_bench_progress_clear(&bench->progress);
    for (size_t i = 0; bench->rank == 0 && i < bench->n_contenders; i++)
        cli_bench_print_row(cli_text(bench->parsed), &bench->setting, &rows[i]);
    return GM_OK;
}

/* ---- taking part ------------------------------------------------------------------------------- */

/* Ranks that were started by hand with other options would measure other things. */
static void write_fingerprint(const struct cli_bench_args *args, char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(
        text, text_bytes,
        "collective=%s\ndtype=%s\nop=%s\nroot=%lld\nin_place=%d\niters=%lld\nwarmup=%lld\n"
        "budget=%.17g\ncheck=%d\nrepeats=%lld\nalgorithms=%s\ntrace=%d\nsizes=",
        gm_collective_name(args->collective->which), gm_dtype_name((gm_dtype)args->dtype),
        gm_redop_name((gm_redop)args->redop), (long long)args->root, args->in_place_only,
        (long long)args->effort.n_iters, (long long)args->effort.n_warmup, args->effort.budget_s,
        args->effort.checks_all, (long long)args->n_repeats,
        args->n_algorithms > 0 ? args->algorithm : "one", args->trace_path != NULL);
    for (size_t i = 0; i < args->sizes.n_values && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)args->sizes.values[i]);
    if (used < text_bytes) snprintf(text + used, text_bytes - used, "\n");
}

static gm_status join_as(struct bench *bench, const struct cli_join *with, const char *asked)
{
    struct contender *c = &bench->contenders[bench->n_contenders];
    gm_status         status = cli_join(&c->comm, with, &bench->error);
    c->asked = asked;
    if (status == GM_OK) (void)gm_trace_record(c->comm, 0);
    if (status == GM_OK) bench->n_contenders++;
    return status;
}

/* A collective of this size of world need not have them all. */
static void drop_what_is_not_there(struct bench *bench)
{
    const struct cli_bench_args *args = bench->args;
    size_t                       n = 0;
    for (size_t i = 0; i < bench->n_contenders; i++) {
        struct contender c = bench->contenders[i];
        const char *ran = gm_comm_algorithm(c.comm, args->collective->which, 1024, (gm_dtype)args->dtype,
                                            (gm_redop)args->redop);
        if (strcmp(c.asked, "auto") == 0 || (ran != NULL && strcmp(ran, c.asked) == 0)) {
            bench->contenders[n++] = c;
        } else {
            if (bench->rank == 0 && strcmp(args->algorithm, "all") != 0)
                fprintf(stderr, "gradmesh bench: %s is no algorithm for this %s by %d ranks; it is left out\n", c.asked,
                        gm_collective_name(args->collective->which), bench->n_ranks);
            gm_comm_destroy(c.comm);
        }
    }
    bench->n_contenders = n;
}

static gm_status join(struct bench *bench, const struct cli_join *place)
{
    const struct cli_bench_args *args = bench->args;
    char            fingerprint[4096];
    struct cli_join with = *place;
    write_fingerprint(args, fingerprint, sizeof fingerprint);
    with.fingerprint = fingerprint;
    if (args->n_algorithms == 0) return join_as(bench, &with, bench->setting.algorithm);
    gm_status status = GM_OK;
    for (size_t i = 0; status == GM_OK && i < args->n_algorithms; i++) {
        with.algorithm = with.group = args->algorithms[i];
        status = join_as(bench, &with, args->algorithms[i]);
    }
    if (status == GM_OK) drop_what_is_not_there(bench);
    return status;
}

/* What --fraction compares with: measured by rank 0 before the others are kept waiting in a
 * call, unless the process that started the ranks has done so. */
static gm_status find_limit(struct bench *bench)
{
    const char *known = getenv(CLI_BENCH_LIMIT_VARIABLE);
    if (!bench->args->wants_fraction || bench->rank != 0) return GM_OK;
    if (known != NULL && cli_read_real(known, &bench->setting.limit_gbps)) return GM_OK;
    return cli_bench_quick_limit(bench->n_ranks, bench->args->is_encrypted, &bench->setting.limit_gbps, &bench->error);
}

/* A format is worth a word where it changes something. */
static void name_format(struct bench *bench)
{
    struct cli_bench_case c = { .collective = bench->args->collective, .wire = gm_comm_wire(bench->contenders[0].comm),
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
    bench->setting.is_encrypted = bench->args->is_encrypted;
    bench->setting.limit_processes = cli_bench_limit_processes(bench->n_ranks);
    if (status == GM_OK) status = get_memory(bench);
    if (status == GM_OK) status = find_limit(bench);
    if (status == GM_OK) status = join(bench, place);
    if (status != GM_OK) return status;
    name_format(bench);
    bench->setting.site = gm_comm_site(bench->contenders[0].comm);
    if (bench->rank == 0) cli_bench_print_head(cli_text(bench->parsed), &bench->setting);
    for (size_t i = 0; status == GM_OK && i < bench->args->sizes.n_values; i++)
        status = measure_size(bench, (size_t)bench->args->sizes.values[i]);
    if (status == GM_OK) status = write_trace(bench);
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
static void name_ways(const struct cli_bench_args *args, struct cli_bench_setting *setting)
{
    gm_comm_options options;
    gm_comm_options_default(&options);
    setting->algorithm = setting->transport = "auto";
    if (gm_comm_options_from_env(&options, NULL) == GM_OK) {
        if (options.algorithm != NULL) setting->algorithm = options.algorithm;
        if (options.transport != NULL) setting->transport = options.transport;
    }
    if (args->algorithm != NULL) setting->algorithm = args->algorithm;
    setting->is_contest = args->n_algorithms > 0;
    if (args->transport != NULL) setting->transport = args->transport;
}

bool cli_bench_wants_live_line(const struct cli_parsed *parsed)
{
    return cli_is_live(STDERR_FILENO) && (isatty(STDOUT_FILENO) != 1 || cli_text(parsed) == stderr);
}

static void bench_fini(struct bench *bench)
{
    for (size_t i = bench->n_contenders; i > 0; i--) gm_comm_destroy(bench->contenders[i - 1].comm);
    for (int i = 0; i < 2; i++) free(bench->memory[i]);
    gmi_free(bench);
}

int cli_bench_run(const struct cli_bench_args *args, const struct cli_parsed *parsed, bool is_alone)
{
    struct bench   *bench = gmi_alloc(1, sizeof *bench);
    struct cli_join place = { .command = "bench", .world_size = is_alone ? 1 : 0,
                              .is_verbose = parsed->is_verbose, .transport = args->transport,
                              .algorithm = args->algorithm, .wire = args->wire, .checksum = args->checksum,
                              .is_encrypted = args->is_encrypted,
                              .trace_events = args->trace_path != NULL ? TRACE_EVENTS : 0 };
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
    bench->progress = (struct cli_bench_progress){ .is_live = cli_bench_wants_live_line(parsed),
                                                   .is_wordy = parsed->is_verbose };
    gmi_error_clear(&bench->error);
    int status = run_bench(bench, &place) == GM_OK
                     ? say_result(bench)
                     : cli_failed("bench", bench->rank, bench->n_ranks, &bench->error);
    bench_fini(bench);
    return status;
}
