/* cmd_check.c - `gradmesh check`: can every pair of ranks talk, over which address, and how well? */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/check_pairs.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/worker.h"

static const char summary[] =
    "Has every pair of ranks connect, as a job's ranks would, and measures latency and bandwidth. Alone it starts N ranks\n"
    "on this host. To check several hosts, start it once on each, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set as\n"
    "for a job (and GRADMESH_SOCKET_IFNAME, to choose an interface). Rank 0 prints the table; a rank that cannot be\n"
    "reached prints what it sees itself.\n";

static const char notes[] = "exit status: 0 when all pairs can talk, 1 when some cannot, 2 wrong usage.\n"
                            "\n"
                            "examples:\n"
                            "  gradmesh check -n 4\n"
                            "  RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=4100 gradmesh check\n";

static int count_blocked(const struct check_result *r, int *n_unknown)
{
    int n_blocked = 0;
    *n_unknown = 0;
    for (int low = 0; low < r->n_ranks; low++) {
        for (int high = low + 1; high < r->n_ranks; high++) {
            const struct check_pair *p = &r->pairs[low][high];
            n_blocked += p->is_known && !p->can_talk;
            *n_unknown += !p->is_known;
        }
    }
    return n_blocked;
}

static const char *transport_of(const struct check_pair *p) { return p->shares_memory ? "shm" : "tcp"; }

static void print_pair(FILE *file, const struct check_pair *p, int low, int high)
{
    if (p->can_talk) {
        fprintf(file, "  %3d -> %-3d  yes   %-5s %10.1f %10.0f %10.1f  %s%s%s\n", high, low, transport_of(p), p->latency_us,
                p->bandwidth_MBps, p->connect_ms, p->address, p->interface_name[0] ? " on " : "", p->interface_name);
    } else {
        fprintf(file, "  %3d -> %-3d  %s  %s\n", high, low, p->is_known ? "NO  " : "?   ",
                p->is_known ? p->why : "neither of them could be asked");
    }
}

/* A rank other than 0 prints only what it has seen, and only if there is something wrong. */
static void print_table(FILE *file, const struct check_result *r, bool has_all)
{
    fprintf(file, "   caller     talk  via   latency us  MB/s one way  connect ms  listening address\n");
    for (int low = 0; low < r->n_ranks; low++) {
        for (int high = low + 1; high < r->n_ranks; high++) {
            if (has_all || r->pairs[low][high].is_known) print_pair(file, &r->pairs[low][high], low, high);
        }
    }
}

/* A call takes as long as its slowest link: so a pair that is much farther apart than another is worth a line. */
static bool is_far(const struct check_pair *p, double least_us)
{
    enum { FAR_US = 2500, FAR_TIMES = 5 };
    return p->can_talk && !p->shares_memory && p->latency_us >= FAR_US && p->latency_us >= FAR_TIMES * least_us;
}

static double least_latency_us(const struct check_result *r)
{
    double least_us = INFINITY;
    for (int low = 0; low < r->n_ranks; low++) {
        for (int high = low + 1; high < r->n_ranks; high++) {
            const struct check_pair *p = &r->pairs[low][high];
            if (p->can_talk && !p->shares_memory && p->latency_us < least_us) least_us = p->latency_us;
        }
    }
    return least_us;
}

static void print_far(FILE *file, const struct check_result *r)
{
    double most_us = 0, least_us = least_latency_us(r);
    int    n_far = 0, n_of_rank[CHECK_MAX_RANKS] = { 0 };
    for (int low = 0; low < r->n_ranks; low++) {
        for (int high = low + 1; high < r->n_ranks; high++) {
            const struct check_pair *p = &r->pairs[low][high];
            if (!is_far(p, least_us)) continue;
            n_far++;
            n_of_rank[low]++;
            n_of_rank[high]++;
            if (p->latency_us > most_us) most_us = p->latency_us;
        }
    }
    if (n_far == 0) return;
    fprintf(file, "far apart: %d pair%s", n_far, n_far == 1 ? "" : "s");
    for (int k = 0, n_named = 0; k < r->n_ranks; k++) {
        if (n_of_rank[k] == n_far) fprintf(file, "%s rank %d", n_named++ == 0 ? ", with" : " and", k);
    }
    fprintf(file, "; latency up to %.1f ms, of the nearest pair %.2f ms\n", most_us / 1e3, least_us / 1e3);
}

static void print_verdict(FILE *file, const struct check_result *r)
{
    int n_pairs = r->n_ranks * (r->n_ranks - 1) / 2, n_unknown, n_blocked = count_blocked(r, &n_unknown);
    if (n_blocked + n_unknown == 0) {
        fprintf(file, "all %d pair%s of %d ranks can talk\n", n_pairs, n_pairs == 1 ? "" : "s", r->n_ranks);
        return;
    }
    fprintf(file, "%d of %d pairs cannot talk", n_blocked, n_pairs);
    if (n_unknown > 0) fprintf(file, ", and of %d nothing is known", n_unknown);
    fprintf(file, ": a job of these ranks would not start\n");
}

static cJSON *to_json(const struct check_result *r)
{
    int    n_unknown, n_blocked = count_blocked(r, &n_unknown);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "world_size", r->n_ranks);
    cJSON_AddBoolToObject(object, "all_can_talk", n_blocked + n_unknown == 0);
    cJSON *pairs = cJSON_AddArrayToObject(object, "pairs");
    for (int low = 0; low < r->n_ranks; low++) {
        for (int high = low + 1; high < r->n_ranks; high++) {
            const struct check_pair *p = &r->pairs[low][high];
            cJSON *each = cJSON_CreateObject();
            cJSON_AddItemToArray(pairs, each);
            cJSON_AddNumberToObject(each, "caller", high);
            cJSON_AddNumberToObject(each, "listener", low);
            cJSON_AddBoolToObject(each, "known", p->is_known);
            cJSON_AddBoolToObject(each, "can_talk", p->can_talk);
            cJSON_AddStringToObject(each, "address", p->address);
            cJSON_AddStringToObject(each, "interface", p->interface_name);
            if (p->can_talk) {
                cJSON_AddStringToObject(each, "transport", transport_of(p));
                cJSON_AddNumberToObject(each, "connect_ms", p->connect_ms);
                cJSON_AddNumberToObject(each, "latency_us", p->latency_us);
                cJSON_AddNumberToObject(each, "bandwidth_MBps", p->bandwidth_MBps);
            } else {
                cJSON_AddStringToObject(each, "why", p->why);
            }
        }
    }
    return object;
}

static void print_log_line(void *user, gm_log_level level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "gradmesh check: %s\n", line);
}

static int report(const struct check_result *r, const struct cli_parsed *parsed)
{
    int n_unknown, n_blocked = count_blocked(r, &n_unknown);
    if (r->rank != 0) {
        if (n_blocked > 0) print_table(stderr, r, false);
        return n_blocked > 0 ? CLI_EXIT_NO : CLI_EXIT_OK;
    }
    print_table(cli_text(parsed), r, true);
    print_far(cli_text(parsed), r);
    print_verdict(cli_text(parsed), r);
    cJSON *object = to_json(r);
    bool   is_written = cli_write_json(parsed, "check", object);
    cJSON_Delete(object);
    return n_blocked + n_unknown > 0 || !is_written ? CLI_EXIT_NO : CLI_EXIT_OK;
}

static int check_as_one_of_them(const struct cli_parsed *parsed, double timeout_s)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm_options_default(&options);
    options.log = print_log_line;
    if (gm_comm_options_from_env(&options, &error) != GM_OK) {
        fprintf(stderr, "gradmesh check: %s\n", error.text);
        return CLI_EXIT_USAGE;
    }
    if (parsed->is_verbose && options.log_level < GM_LOG_INFO) options.log_level = GM_LOG_INFO;
    struct check_result *result = gmi_alloc(1, sizeof *result);
    gm_status status = result != NULL ? check_run(result, &options, (int)(timeout_s * 1000), &error)
                                      : gmi_error_set(&error, GM_ERR_NOMEM, "no memory for the results");
    int exit_status = status == GM_OK ? report(result, parsed) : CLI_EXIT_NO;
    if (status != GM_OK) fprintf(stderr, "gradmesh check: %s\n", error.text);
    gmi_free(result);
    return exit_status;
}

/* Was it started as one of several, by a launcher or by hand? */
static bool is_one_of_several(void)
{
    gm_comm_options options;
    gm_comm_options_default(&options);
    return gm_comm_options_from_env(&options, NULL) != GM_OK || options.world_size > 1;
}

int cli_cmd_check(int argc, char **argv)
{
    int64_t n_workers = 0;
    double  timeout_s = 0;
    bool    has_workers = false;
    /* clang-format off */
    const struct cli_option options[] = {
        { .name = "workers", .letter = 'n', .kind = CLI_INT, .integer = &n_workers, .default_text = "2",
          .was_given = &has_workers, .min = 2, .max = CHECK_MAX_RANKS, .help = "how many ranks to start on this host" },
        { .name = "timeout", .kind = CLI_REAL, .real = &timeout_s, .default_text = "10", .value_name = "SECONDS",
          .min_real = 0.1, .max_real = 3600, .help = "how long a pair may take to meet" },
    };
    const struct cli_command command = {
        .name = "check", .usage = "[options]", .summary = summary, .notes = notes, .operands = CLI_OPERANDS_NONE,
        .options = options, .n_options = sizeof options / sizeof options[0],
    };
    /* clang-format on */
    char            **own_words = cli_own_words(argc, argv);
    struct cli_parsed parsed;
    int               status;
    if (own_words == NULL) return CLI_EXIT_NO;
    if (cli_parse(&command, argc, argv, &parsed, &status)) {
        status = is_one_of_several() ? check_as_one_of_them(&parsed, timeout_s)
                                     : cli_launch_self_in_small_worlds(&command, (int)n_workers, own_words, &parsed);
    }
    gmi_free(own_words);
    return status;
}
