#include "cli/bench_print.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/bench_contest.h"
#include "gradmesh.h"

/* ---- words ------------------------------------------------------------------------------------- */

static const char *redop_text(const struct cli_bench_setting *s)
{
    return s->collective->is_reduction ? gm_redop_name(s->redop) : "none";
}

static const char *dtype_text(const struct cli_bench_setting *s)
{
    return s->collective->gets == CLI_BENCH_NOTHING ? "none" : gm_dtype_name(s->dtype);
}

static const char *wire_text(const struct cli_bench_setting *s)
{
    return s->wire != NULL ? s->wire : dtype_text(s);
}

static int root_number(const struct cli_bench_setting *s)
{
    return s->collective->has_root ? s->root : -1;
}

const char *cli_bench_size_text(size_t size_bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t                   unit = 0, number = size_bytes;
    while (unit + 1 < sizeof units / sizeof units[0] && number >= 1024 && number % 1024 == 0) {
        number /= 1024;
        unit++;
    }
    snprintf(text, text_bytes, "%zu %s", number, units[unit]);
    return text;
}

/* ---- the table --------------------------------------------------------------------------------- */

void cli_bench_print_head(FILE *file, const struct cli_bench_setting *s)
{
    const char *fraction = s->limit_gbps > 0 ? "  frac" : "",
               *gap = s->limit_gbps > 0 ? "      " : "";
    fprintf(file, "# gradmesh %s: %s, %d rank%s, algorithm %s, transport %s%s%s\n", gm_version(),
            gm_collective_name(s->collective->which), s->n_ranks, s->n_ranks == 1 ? "" : "s",
            s->algorithm, s->transport, s->wire != NULL ? ", wire format " : "",
            s->wire != NULL ? s->wire : "");
    fprintf(file, "# time: median over the iterations, in each the slowest rank's; GB = 10^9 B\n");
    if (s->limit_gbps > 0)
        fprintf(file, "# frac: bus bandwidth over %.3f GB/s, %s %d processes\n", s->limit_gbps,
                s->is_encrypted ? "1 / (1/plain + 2/cipher), where plain is the duplex limit of" : "the duplex limit of",
                s->limit_processes);
    fprintf(file, "#\n#%42s%s%23s%s%25s\n", "", gap, "out-of-place", gap, "in-place");
    fprintf(file, "#%11s %13s %6s %6s %6s %9s %7s %7s%s %6s %9s %7s %7s%s %6s%s %s\n", "size", "count",
            "type", "redop", "root", "time", "algbw", "busbw", fraction, "#wrong", "time", "algbw",
            "busbw", fraction, "#wrong", s->is_contest ? "  over best " : "", "algo");
    fprintf(file, "#%11s %13s %6s %6s %6s %9s %7s %7s%s %6s %9s %7s %7s%s %6s\n", "(B)",
            "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", gap, "", "(us)", "(GB/s)",
            "(GB/s)", gap, "");
    fflush(file);
}

/* Five digits that matter, as few columns as they need. */
static const char *time_text(double us, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, us < 100 ? "%.2f" : us < 10000 ? "%.1f" : "%.0f", us);
    return text;
}

static void print_half(FILE *file, const struct cli_bench_setting *s,
                       const struct cli_bench_result *r)
{
    char time[32];
    if (r == NULL) {
        fprintf(file, " %9s %7s %7s%s %6s", "N/A", "N/A", "N/A", s->limit_gbps > 0 ? "   N/A" : "",
                "N/A");
        return;
    }
    fprintf(file, " %9s %7.3f %7.3f", time_text(r->median_us, time, sizeof time), r->algbw_gbps,
            r->busbw_gbps);
    if (s->limit_gbps > 0) fprintf(file, " %5.2f", r->busbw_gbps / s->limit_gbps);
    fprintf(file, " %6lld", (long long)r->n_wrong);
}

static void print_over_best(FILE *file, double ratio)
{
    char text[16] = "-";
    if (ratio > 0) snprintf(text, sizeof text, "%.2f", ratio);
    fprintf(file, " %5s", text);
}

void cli_bench_print_row(FILE *file, const struct cli_bench_setting *s,
                         const struct cli_bench_row *row)
{
    size_t elem_bytes = gm_dtype_bytes(s->dtype);
    fprintf(file, "%12zu %13zu %6s %6s %6d", row->count_elems * elem_bytes, row->count_elems,
            dtype_text(s), redop_text(s), root_number(s));
    for (int way = 0; way < 2; way++)
        print_half(file, s, row->has_result[way] ? &row->results[way] : NULL);
    for (int way = 0; s->is_contest && way < 2; way++) print_over_best(file, row->over_best[way]);
    bool is_chosen = s->is_contest && cli_bench_is_auto(row);
    fprintf(file, " %s%s\n", is_chosen ? "auto=" : "", row->ran);
    fflush(file);
}

static double average_busbw(const struct cli_bench_row *rows, size_t n_rows)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        for (int way = 0; way < 2; way++) {
            if (!rows[i].has_result[way]) continue;
            sum += rows[i].results[way].busbw_gbps;
            n++;
        }
    }
    return n > 0 ? sum / (double)n : 0;
}

static int64_t count_all_wrong(const struct cli_bench_row *rows, size_t n_rows)
{
    int64_t n_wrong = 0;
    for (size_t i = 0; i < n_rows; i++)
        n_wrong += rows[i].results[0].n_wrong + rows[i].results[1].n_wrong; /* absent ones are 0 */
    return n_wrong;
}

/* Where "auto" is held against the others: how often, and how it did. */
struct choice_counts {
    int n, n_within, n_unclear;
    const struct cli_bench_row *worst; /* NULL: it did not take part, or nobody else did */
    int                         worst_way;
};

static struct choice_counts count_choices(const struct cli_bench_row *rows, size_t n_rows)
{
    struct choice_counts c = { .n = 0 };
    for (size_t i = 0; i < 2 * n_rows; i++) {
        const struct cli_bench_row *row = &rows[i / 2];
        int                         way = (int)(i % 2);
        if (!cli_bench_is_auto(row) || row->over_best[way] == 0) continue;
        bool is_within = row->over_best[way] <= CLI_BENCH_AS_GOOD;
        c.n++;
        c.n_within += is_within;
        c.n_unclear += !is_within && !row->is_behind[way];
        if (c.worst != NULL && row->over_best[way] <= c.worst->over_best[c.worst_way]) continue;
        c.worst = row;
        c.worst_way = way;
    }
    return c;
}

static void print_behind(FILE *file, const struct cli_bench_row *rows, size_t n_rows)
{
    const char *before = "; behind at ";
    char        size[32];
    for (size_t i = 0; i < 2 * n_rows; i++) {
        const struct cli_bench_row *row = &rows[i / 2];
        int                         way = (int)(i % 2);
        if (!row->is_behind[way] || row->over_best[way] <= CLI_BENCH_AS_GOOD) continue;
        fprintf(file, "%s%s (%s, and %s is faster)", before,
                cli_bench_size_text(row->results[way].size_bytes, size, sizeof size), row->ran, row->best[way]);
        before = ", ";
    }
}

static void print_choices(FILE *file, const struct cli_bench_row *rows, size_t n_rows)
{
    struct choice_counts c = count_choices(rows, n_rows);
    char                 size[32];
    if (c.worst == NULL) return;
    fprintf(file, "# auto takes at most   : %.2f times as long as the best algorithm (%s, %s)\n", c.worst->over_best[c.worst_way],
            cli_bench_size_text(c.worst->results[c.worst_way].size_bytes, size, sizeof size), c.worst->ran);
    fprintf(file, "# auto within 10 %%     : %d of %d", c.n_within, c.n);
    if (c.n_unclear > 0) fprintf(file, "; %d more cannot be told from the best", c.n_unclear);
    print_behind(file, rows, n_rows);
    fprintf(file, "\n");
}

void cli_bench_print_foot(FILE *file, const struct cli_bench_setting *s,
                          const struct cli_bench_row *rows, size_t n_rows)
{
    int64_t n_wrong = count_all_wrong(rows, n_rows);
    if (s->is_contest) print_choices(file, rows, n_rows);
    fprintf(file, "# Out of bounds values : %lld %s\n", (long long)n_wrong,
            n_wrong == 0 ? "OK" : "FAILED");
    fprintf(file, "# Avg bus bandwidth    : %g\n", average_busbw(rows, n_rows));
    fflush(file);
}

/* ---- JSON -------------------------------------------------------------------------------------- */

/* Digits beyond those that were measured only make records long. */
static double rounded(double value, double step) { return round(value / step) * step; }

static void add_rounded(cJSON *object, const char *name, double value, int n_decimals)
{
    char text[48];
    if (!isfinite(value)) {
        cJSON_AddNullToObject(object, name);
        return;
    }
    snprintf(text, sizeof text, "%.*f", n_decimals, rounded(value, pow(10, -n_decimals)));
    cJSON_AddRawToObject(object, name, text);
}

static cJSON *result_to_json(const struct cli_bench_setting *s, const struct cli_bench_row *row, int way)
{
    const struct cli_bench_result *r = &row->results[way];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "collective", gm_collective_name(s->collective->which));
    cJSON_AddStringToObject(object, "algo", row->asked);
    cJSON_AddStringToObject(object, "ran", row->ran);
    cJSON_AddStringToObject(object, "transport", s->transport);
    cJSON_AddStringToObject(object, "wire", wire_text(s));
    cJSON_AddStringToObject(object, "dtype", dtype_text(s));
    cJSON_AddStringToObject(object, "op", redop_text(s));
    cJSON_AddNumberToObject(object, "root", root_number(s));
    cJSON_AddNumberToObject(object, "world_size", s->n_ranks);
    cJSON_AddStringToObject(object, "site", s->site);
    cJSON_AddNumberToObject(object, "size_bytes", (double)r->size_bytes);
    cJSON_AddNumberToObject(object, "count", (double)r->count_elems);
    cJSON_AddBoolToObject(object, "in_place", r->is_in_place);
    cJSON_AddNumberToObject(object, "iters", (double)r->n_iters);
    add_rounded(object, "median_us", r->median_us, 3);
    add_rounded(object, "min_us", r->min_us, 3);
    add_rounded(object, "p99_us", r->p99_us, 3);
    add_rounded(object, "max_us", r->max_us, 3);
    add_rounded(object, "back_to_back_us", r->back_to_back_us, 3);
    add_rounded(object, "algbw_GBps", r->algbw_gbps, 6);
    add_rounded(object, "busbw_GBps", r->busbw_gbps, 6);
    if (s->limit_gbps > 0)
        add_rounded(object, "fraction_of_limit", r->busbw_gbps / s->limit_gbps, 4);
    if (row->over_best[way] > 0) add_rounded(object, "over_best", row->over_best[way], 4);
    if (row->over_best[way] > 0 && cli_bench_is_auto(row)) cJSON_AddBoolToObject(object, "behind", row->is_behind[way]);
    cJSON_AddNumberToObject(object, "wrong", (double)r->n_wrong);
    cJSON_AddNumberToObject(object, "payload_bytes", (double)r->payload_bytes);
    cJSON_AddNumberToObject(object, "protocol_bytes", (double)r->protocol_bytes);
    cJSON_AddNumberToObject(object, "all_payload_bytes", (double)r->all_payload_bytes);
    add_rounded(object, "cpu_s_per_GB", r->cpu_s_per_gb, 4);
    cJSON_AddNumberToObject(object, "peak_rss_bytes", (double)r->peak_rss_bytes);
    return object;
}

cJSON *cli_bench_to_json(const struct cli_bench_setting *s, const struct cli_bench_row *rows,
                         size_t n_rows)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "version", gm_version());
    cJSON_AddStringToObject(object, "collective", gm_collective_name(s->collective->which));
    cJSON_AddNumberToObject(object, "world_size", s->n_ranks);
    if (s->limit_gbps > 0) add_rounded(object, "limit_GBps", s->limit_gbps, 4);
    cJSON_AddNumberToObject(object, "wrong", (double)count_all_wrong(rows, n_rows));
    add_rounded(object, "avg_busbw_GBps", average_busbw(rows, n_rows), 6);
    cJSON *results = cJSON_AddArrayToObject(object, "results");
    for (size_t i = 0; i < n_rows; i++) {
        for (int way = 0; way < 2; way++) {
            if (rows[i].has_result[way])
                cJSON_AddItemToArray(results, result_to_json(s, &rows[i], way));
        }
    }
    return object;
}

/* ---- progress ---------------------------------------------------------------------------------- */

void cli_bench_progress_clear(struct cli_bench_progress *progress)
{
    if (progress->has_line) fputs("\033[A\r\033[2K", stderr);
    progress->has_line = false;
}

void cli_bench_progress(struct cli_bench_progress *progress, const char *format, ...)
{
    if (!progress->is_live && !progress->is_wordy) return;
    char    text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_bench_progress_clear(progress);
    /* A whole line each time, since a launcher passes on nothing else; unwrapped, to be taken
       back by one. */
    if (progress->is_live) fprintf(stderr, "\033[?7l%s\033[?7h\n", text);
    else fprintf(stderr, "%s\n", text);
    fflush(stderr);
    progress->has_line = progress->is_live;
}
