#include "cli/bench_tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/bench_case.h"
#include "cli/bench_print.h"
#include "cli/output.h"
#include "cli/tune_records.h"
#include "cli/whole_file.h"
#include "cli/worker.h"
#include "launch/launcher.h"
#include "plan/probe.h"

static const char summary[] =
    "Measures every algorithm of every collective on this machine, and makes a profile of it: which is\n"
    "fastest up to which size, by kind of link and number of ranks, and the constants of the cost model\n"
    "for all other worlds. GRADMESH_PROFILE=FILE makes \"auto\" choose by it; rank 0's counts for all.\n";

static const char notes[] =
    "It runs `gradmesh bench COLLECTIVE` with all algorithms again and again, in another order and with new communicators each\n"
    "time, and takes medians over the rounds. With RECORDS nothing is measured: it reads lines that --save-records kept, or that `gradmesh bench\n"
    "COLLECTIVE --algo all --json` printed, for example under `gradmesh run` on several hosts: so a network is tuned.\n"
    "\n"
    "A profile that is there keeps its other lines. The table says, for each collective, how far \"auto\" is behind the best\n"
    "algorithm in the records: by the profile of this program, by the fitted model alone, and by the new profile; the\n"
    "mean over the sizes, the worst one, and at how many sizes it is within 10 %. From one size to the next the algorithm\n"
    "changes only where that wins 20 % in sum over the sizes, and where the model is as good within 2 % on average it is\n"
    "left to choose: noise shall make no crossings.\n"
    "\n"
    "exit status: 0 done; 1 it could not be done; 2 wrong usage.\n"
    "\n"
    "examples:\n"
    "  gradmesh bench tune --save-profile here.profile\n"
    "  gradmesh bench tune --world 2 --transport tcp --collective all_reduce --save-records tcp.jsonl\n"
    "  gradmesh bench tune tcp.jsonl shm.jsonl --save-profile here.profile\n";

/* As much better than the model on average a choice must be to be written down. */
static const double WORTH_A_LINE = 1.02;

#define DEFAULT_SIZES "4,1K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,8M,24M"

enum { MAX_NAMES = 16, NAME_BYTES = 24, N_OPTIONS = 8, STRIDE = 5 };

struct tune_args {
    struct cli_list worlds;
    const char     *transports, *collectives, *profile_path, *records_path;
    struct cli_list sizes;
    int64_t         n_rounds;
    double          budget_s;
};

struct tune {
    const struct tune_args   *args;
    struct cli_tune_records   records;
    struct plan_contest      *contests;
    size_t                    n_contests;
    struct gmi_profile        before, model, after; /* ours; its constants fitted, no choices; with choices */
    struct cli_bench_progress progress;
    gm_error                  error;
};

/* ---- measuring ----------------------------------------------------------------------------------- */

struct names {
    int  n;
    char all[MAX_NAMES][NAME_BYTES];
};

static bool read_names(const char *text, struct names *names)
{
    names->n = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (length == 0 || length >= NAME_BYTES || names->n == MAX_NAMES) return false;
        snprintf(names->all[names->n++], NAME_BYTES, "%.*s", (int)length, at);
        at += length;
        if (*at == '\0') return true;
    }
}

/* All but messages, which have no choice. */
static void all_collectives(struct names *names)
{
    names->n = 0;
    for (size_t i = 0; cli_bench_row(i) != NULL && names->n < MAX_NAMES; i++) {
        if (cli_bench_row(i)->which < GM_SEND)
            snprintf(names->all[names->n++], NAME_BYTES, "%s", gm_collective_name(cli_bench_row(i)->which));
    }
}

/* 2, 3, 4, and where there are more cores powers of two up to their number. */
static void default_worlds(struct cli_list *worlds)
{
    for (int64_t n = 2; n <= 4; n++) worlds->values[worlds->n_values++] = n;
    for (int64_t n = 8; n <= plan_n_cores() && n <= LAUNCH_MAX_WORKERS; n *= 2) worlds->values[worlds->n_values++] = n;
}

static void list_sizes(const struct cli_list *sizes, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizes->n_values && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%lld", i > 0 ? "," : "", (long long)sizes->values[i]);
}

/* All algorithms, each round from another one on: who comes first at a size meets colder memory than the others. */
static void list_algorithms(int64_t round, char *text, size_t text_bytes)
{
    int    n = 0;
    size_t used = 0;
    while (gm_algorithm_name(n) != NULL) n++;
    for (int i = 0; i < n && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i > 0 ? "," : "",
                                 gm_algorithm_name((int)((i + STRIDE * round) % n)));
}

static gm_status measure_one(struct tune *tune, int64_t round, const char *collective, const char *transport, int64_t world, FILE *kept)
{
    char        n[24], budget[32], sizes[CLI_LIST_MAX * 16], algorithms[256];
    bool        has_sizes = cli_bench_find(collective)->gets != CLI_BENCH_NOTHING;
    const char *words[] = { collective, "-n", n, "--transport", transport, "--algo", algorithms, "--in-place", "--repeats", "1",
                            "--json", "--budget", budget, has_sizes ? "--sizes" : NULL, sizes, NULL };
    snprintf(n, sizeof n, "%lld", (long long)world);
    snprintf(budget, sizeof budget, "%.6f", tune->args->budget_s);
    list_algorithms(round, algorithms, sizeof algorithms);
    list_sizes(&tune->args->sizes, sizes, sizeof sizes);
    return cli_tune_measure(&tune->records, words, kept, &tune->error);
}

static gm_status measure_all(struct tune *tune, const struct names *collectives, const struct names *transports, FILE *kept)
{
    const struct cli_list *worlds = &tune->args->worlds;
    gm_status              status = GM_OK;
    for (int64_t round = 0; round < tune->args->n_rounds; round++) {
        for (int c = 0; c < collectives->n; c++) {
            for (int t = 0; t < transports->n; t++) {
                for (size_t w = 0; status == GM_OK && w < worlds->n_values; w++) {
                    cli_bench_progress(&tune->progress, "round %lld of %lld: %s, %lld ranks, %s", (long long)round + 1,
                                       (long long)tune->args->n_rounds, collectives->all[c], (long long)worlds->values[w],
                                       transports->all[t]);
                    status = measure_one(tune, round, collectives->all[c], transports->all[t], worlds->values[w], kept);
                }
            }
        }
    }
    cli_bench_progress_clear(&tune->progress);
    return status;
}

static gm_status measure(struct tune *tune, const struct names *collectives, const struct names *transports)
{
    const char           *path = tune->args->records_path;
    struct cli_whole_file kept = { .file = NULL };
    if (path != NULL && !cli_whole_open(&kept, path)) return gmi_error_set_errno(&tune->error, errno, "cannot write %.200s", path);
    gm_status status = measure_all(tune, collectives, transports, kept.file);
    if (path != NULL && !cli_whole_close(&kept, status == GM_OK) && status == GM_OK)
        status = gmi_error_set_errno(&tune->error, errno, "cannot write %.200s", path);
    return status;
}

/* ---- the profile ---------------------------------------------------------------------------------- */

static bool has_kind(const struct tune *tune, int kind)
{
    for (size_t i = 0; i < tune->n_contests; i++)
        if (tune->contests[i].site.kind == kind) return true;
    return false;
}

/* What the profile says of a contest: nothing where the model alone is as good. */
static size_t choices_of(const struct tune *tune, const struct plan_contest *c, struct gmi_choice choices[PLAN_TUNE_MAX_ALGOS])
{
    struct gmi_profile profile = { .n_choices = 0 };
    size_t             n = plan_tune_choices(c, choices);
    (void)gmi_profile_set_choices(&profile, choices, n);
    struct plan_verdict model = plan_tune_verdict(c, &tune->model), chosen = plan_tune_verdict(c, &profile);
    return model.mean == 0 || model.mean > WORTH_A_LINE * chosen.mean ? n : 0;
}

static gm_status make_profile(struct tune *tune)
{
    gm_status status = plan_tune_contests(tune->records.timings, tune->records.n, &tune->contests, &tune->n_contests, &tune->error);
    if (status != GM_OK) return status;
    if (tune->n_contests == 0)
        return gmi_error_set(&tune->error, GM_ERR_ARG, "the records hold no algorithm but auto: they come from gradmesh bench --algo all");
    gmi_profile_builtin(&tune->before);
    tune->model = tune->before;
    tune->model.n_choices = 0;
    for (int kind = 0; kind < GMI_KINDS; kind++)
        if (has_kind(tune, kind)) plan_tune_constants(tune->contests, tune->n_contests, kind, &tune->model.kinds[kind]);
    tune->after = tune->model;
    for (size_t i = 0; i < tune->n_contests; i++) {
        struct gmi_choice choices[PLAN_TUNE_MAX_ALGOS];
        size_t            n = choices_of(tune, &tune->contests[i], choices);
        if (!gmi_profile_set_choices(&tune->after, choices, n))
            return gmi_error_set(&tune->error, GM_ERR_ARG, "more than %d choices: tune fewer worlds at once", GMI_MAX_CHOICES);
    }
    return GM_OK;
}

static void write_constants(struct tune *tune, FILE *file)
{
    for (int kind = 0; kind < GMI_KINDS; kind++) {
        for (int i = 0; has_kind(tune, kind) && gmi_link_constant_name(i) != NULL; i++)
            fprintf(file, "%s.%s=%u\n", gmi_link_kind_name(kind), gmi_link_constant_name(i),
                    (unsigned)*gmi_link_constant(&tune->after.kinds[kind], i));
    }
}

static void write_choices(struct tune *tune, FILE *file)
{
    for (size_t i = 0; i < tune->n_contests; i++) {
        const struct plan_contest *c = &tune->contests[i];
        struct gmi_choice          choices[PLAN_TUNE_MAX_ALGOS];
        char                       site[GMI_SITE_TEXT_BYTES], text[GMI_CHOICES_TEXT_BYTES];
        size_t                     n = choices_of(tune, c, choices);
        if (n == 0) continue;
        fprintf(file, "%s.%s=%s\n", gmi_site_text(c->site, site), gm_collective_name(c->collective),
                gmi_choices_text(choices, n, text));
    }
}

/* Is the line's key one of those in `ours`, lines as well? */
static bool is_replaced(const char *line, const char *ours)
{
    size_t n = strcspn(line, "=\n");
    if (line[n] != '=') return false;
    for (const char *at = ours; at != NULL && *at != '\0'; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, n + 1) == 0) return true;
    return false;
}

/* What is in the profile already, but for lines that are replaced. */
static void copy_others(const char *path, const char *ours, FILE *to)
{
    FILE  *old = fopen(path, "re");
    char  *line = NULL;
    size_t room = 0;
    while (old != NULL && getline(&line, &room, old) >= 0)
        if (!is_replaced(line, ours)) fprintf(to, "%s%s", line, strchr(line, '\n') == NULL ? "\n" : "");
    free(line);
    if (old != NULL) fclose(old);
}

static gm_status save_profile(struct tune *tune)
{
    const char           *path = tune->args->profile_path;
    char                 *ours = NULL;
    size_t                n = 0;
    FILE                 *memory = open_memstream(&ours, &n);
    struct cli_whole_file file;
    if (memory == NULL) return gmi_error_set(&tune->error, GM_ERR_NOMEM, "no memory for the profile");
    write_constants(tune, memory);
    write_choices(tune, memory);
    fclose(memory);
    bool is_good = ours != NULL && cli_whole_open(&file, path);
    if (is_good) {
        if (!file.is_special) copy_others(path, ours, file.file);
        is_good = cli_whole_close(&file, fputs(ours, file.file) >= 0);
    }
    free(ours);
    return is_good ? GM_OK : gmi_error_set_errno(&tune->error, errno, "cannot write the profile %.200s", path);
}

/* ---- what came of it ------------------------------------------------------------------------------ */

static void print_verdict(FILE *file, const struct plan_verdict *v, int n_sizes)
{
    char size[32];
    if (v->mean == 0) {
        fprintf(file, "  %31s", "-");
        return;
    }
    fprintf(file, "  %5.2f %5.2f %-11s %2d/%-2d", v->mean, v->worst, cli_bench_size_text(v->worst_bytes, size, sizeof size),
            v->n_within, n_sizes);
}

static void print_verdicts(const struct tune *tune, FILE *file)
{
    fprintf(file, "# auto over the best algorithm: mean, worst and its size, sizes within 10 %%\n#%-31s  %-28s  %-28s  %-28s\n", "",
            "built in", "fitted model alone", "new profile");
    for (size_t i = 0; i < tune->n_contests; i++) {
        const struct plan_contest *c = &tune->contests[i];
        char                       site[GMI_SITE_TEXT_BYTES], name[64], text[GMI_CHOICES_TEXT_BYTES];
        struct gmi_choice          choices[PLAN_TUNE_MAX_ALGOS];
        const struct gmi_profile  *profiles[] = { &tune->before, &tune->model, &tune->after };
        snprintf(name, sizeof name, "%s.%s", gmi_site_text(c->site, site), gm_collective_name(c->collective));
        fprintf(file, "%-32s", name);
        for (int p = 0; p < 3; p++) {
            struct plan_verdict v = plan_tune_verdict(c, profiles[p]);
            print_verdict(file, &v, c->n_sizes);
        }
        size_t n = choices_of(tune, c, choices);
        fprintf(file, "  %s\n", n > 0 ? gmi_choices_text(choices, n, text) : "as the model");
    }
}

static cJSON *verdict_to_json(const struct plan_verdict *v)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "mean", round(v->mean * 1e4) / 1e4);
    cJSON_AddNumberToObject(object, "worst", round(v->worst * 1e4) / 1e4);
    cJSON_AddNumberToObject(object, "worst_bytes", (double)v->worst_bytes);
    cJSON_AddNumberToObject(object, "within_10_percent", v->n_within);
    return object;
}

/* The medians that all of it comes from: sizes, and for each algorithm its times (0: not timed). */
static void add_times(cJSON *object, const struct plan_contest *c)
{
    double bytes[PLAN_TUNE_MAX_SIZES], us[PLAN_TUNE_MAX_SIZES];
    for (int s = 0; s < c->n_sizes; s++) bytes[s] = (double)c->bytes[s];
    cJSON_AddItemToObject(object, "bytes", cJSON_CreateDoubleArray(bytes, c->n_sizes));
    cJSON *times = cJSON_AddObjectToObject(object, "us");
    for (int a = 0; a < c->n_algos; a++) {
        for (int s = 0; s < c->n_sizes; s++) us[s] = round(c->us[s][a] * 10) / 10;
        cJSON_AddItemToObject(times, plan_tune_algorithm(c, a), cJSON_CreateDoubleArray(us, c->n_sizes));
    }
}

static cJSON *to_json(const struct tune *tune)
{
    cJSON *object = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(object, "contests");
    for (size_t i = 0; i < tune->n_contests; i++) {
        const struct plan_contest *c = &tune->contests[i];
        char                       site[GMI_SITE_TEXT_BYTES], text[GMI_CHOICES_TEXT_BYTES];
        struct gmi_choice          choices[PLAN_TUNE_MAX_ALGOS];
        struct plan_verdict        before = plan_tune_verdict(c, &tune->before), model = plan_tune_verdict(c, &tune->model),
                                   after = plan_tune_verdict(c, &tune->after);
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "site", gmi_site_text(c->site, site));
        cJSON_AddStringToObject(one, "collective", gm_collective_name(c->collective));
        cJSON_AddNumberToObject(one, "sizes", c->n_sizes);
        cJSON_AddStringToObject(one, "choices", gmi_choices_text(choices, choices_of(tune, c, choices), text));
        cJSON_AddItemToObject(one, "built_in", verdict_to_json(&before));
        cJSON_AddItemToObject(one, "model", verdict_to_json(&model));
        cJSON_AddItemToObject(one, "profile", verdict_to_json(&after));
        add_times(one, c);
        cJSON_AddItemToArray(list, one);
    }
    return object;
}

/* ---- the command ---------------------------------------------------------------------------------- */

static gm_status read_records(struct tune *tune, const struct cli_parsed *parsed)
{
    gm_status status = GM_OK;
    for (int i = 0; status == GM_OK && i < parsed->n_operands; i++)
        status = cli_tune_read(&tune->records, parsed->operands[i], &tune->error);
    return status;
}

static int run(struct tune *tune, const struct cli_parsed *parsed, const struct names *collectives, const struct names *transports)
{
    gm_status status = parsed->n_operands > 0 ? read_records(tune, parsed) : measure(tune, collectives, transports);
    if (status == GM_OK) status = make_profile(tune);
    if (status == GM_OK) print_verdicts(tune, cli_text(parsed));
    if (status == GM_OK && tune->args->profile_path != NULL) status = save_profile(tune);
    if (status != GM_OK) {
        fprintf(stderr, "gradmesh bench tune: %s\n", tune->error.text);
        return CLI_EXIT_NO;
    }
    cJSON *object = parsed->wants_json ? to_json(tune) : NULL;
    bool   is_written = cli_write_json(parsed, "bench tune", object);
    cJSON_Delete(object);
    return is_written ? CLI_EXIT_OK : CLI_EXIT_NO;
}

static int check(const struct cli_command *command, const struct cli_parsed *parsed, struct tune_args *args, struct names *collectives,
                 struct names *transports)
{
    if (parsed->n_operands > 0 && args->records_path != NULL)
        return cli_usage_error(command, "--save-records keeps what is measured, and with records nothing is");
    if (args->worlds.n_values == 0) default_worlds(&args->worlds);
    if (!read_names(args->transports, transports))
        return cli_usage_error(command, "--transport %s: expected names with commas between them", args->transports);
    if (args->collectives == NULL) all_collectives(collectives);
    else if (!read_names(args->collectives, collectives))
        return cli_usage_error(command, "--collective %s: expected names with commas between them", args->collectives);
    for (int i = 0; i < transports->n; i++) {
        int status = cli_check_exchange(command, transports->all[i], NULL, NULL, NULL);
        if (status != CLI_EXIT_OK) return status;
    }
    for (int i = 0; i < collectives->n; i++) {
        const struct cli_bench_collective *row = cli_bench_find(collectives->all[i]);
        if (row == NULL || row->which >= GM_SEND)
            return cli_usage_error(command, "there is no collective '%s' that has algorithms to choose from", collectives->all[i]);
    }
    for (size_t i = 0; i < args->sizes.n_values; i++)
        if (args->sizes.values[i] % 4 != 0)
            return cli_usage_error(command, "%lld bytes are not a whole number of f32 elements", (long long)args->sizes.values[i]);
    return CLI_EXIT_OK;
}

int cli_bench_tune(int argc, char **argv)
{
    struct tune_args        args = { .worlds.n_values = 0 };
    const struct cli_option options[N_OPTIONS] = {
        { .name = "save-profile", .kind = CLI_TEXT, .text = &args.profile_path, .value_name = "FILE",
          .help = "write the profile" },
        { .name = "save-records", .kind = CLI_TEXT, .text = &args.records_path, .value_name = "FILE",
          .help = "keep what was measured, as JSON lines" },
        { .name = "world", .kind = CLI_INT_LIST, .list = &args.worlds, .value_name = "LIST", .min = 2, .max = LAUNCH_MAX_WORKERS,
          .help = "how many ranks (default: 2,3,4 and powers of two up to the cores)" },
        { .name = "transport", .kind = CLI_TEXT, .text = &args.transports, .value_name = "tcp,shm", .default_text = "tcp,shm",
          .help = "how bytes travel" },
        { .name = "collective", .kind = CLI_TEXT, .text = &args.collectives, .value_name = "LIST", .help = "which (default: all)" },
        { .name = "sizes", .kind = CLI_BYTES_LIST, .list = &args.sizes, .default_text = DEFAULT_SIZES, .min = 4,
          .max = INT64_C(1) << 40, .help = "of whole buffers" },
        { .name = "rounds", .kind = CLI_INT, .integer = &args.n_rounds, .default_text = "5", .min = 1, .max = 99,
          .help = "how often all of it is measured" },
        { .name = "budget", .kind = CLI_REAL, .real = &args.budget_s, .value_name = "SECONDS", .default_text = "0.01",
          .min_real = 0.001, .max_real = 60, .help = "time for the iterations of one size and algorithm in a round" },
    };
    const struct cli_command command = { .name = "bench tune", .usage = "[RECORDS...] [options]", .summary = summary, .notes = notes,
                                         .operands = CLI_OPERANDS_ANYWHERE, .options = options, .n_options = N_OPTIONS };
    struct cli_parsed parsed;
    struct names      collectives, transports;
    int               status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    status = check(&command, &parsed, &args, &collectives, &transports);
    if (status != CLI_EXIT_OK) return status;
    struct tune *tune = gmi_alloc(1, sizeof *tune);
    if (tune == NULL) {
        fprintf(stderr, "gradmesh bench tune: no memory\n");
        return CLI_EXIT_NO;
    }
    *tune = (struct tune){ .args = &args, .progress = { .is_live = cli_is_live(STDERR_FILENO), .is_wordy = parsed.is_verbose } };
    gmi_error_clear(&tune->error);
    status = run(tune, &parsed, &collectives, &transports);
    gmi_free(tune->contests);
    cli_tune_records_fini(&tune->records);
    gmi_free(tune);
    return status;
}
