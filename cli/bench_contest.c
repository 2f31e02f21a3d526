#include "cli/bench_contest.h"

#include <string.h>

bool cli_bench_is_auto(const struct cli_bench_row *row) { return strcmp(row->asked, "auto") == 0; }

/* The row of the fastest algorithm; n_rows: there is none. */
static size_t find_best(const struct cli_bench_row *rows, size_t n_rows, int way)
{
    size_t best = n_rows;
    for (size_t i = 0; i < n_rows; i++) {
        if (!rows[i].has_result[way] || cli_bench_is_auto(&rows[i])) continue;
        if (best == n_rows || rows[i].results[way].median_us < rows[best].results[way].median_us) best = i;
    }
    return best;
}

static bool is_steadily_slower(const struct cli_bench_result *one, const struct cli_bench_result *other, size_t n_repeats)
{
    size_t n_slower = 0;
    for (size_t i = 0; i < n_repeats; i++) n_slower += one[i].median_us > other[i].median_us;
    return 5 * n_slower >= 4 * n_repeats;
}

static bool is_behind(const struct cli_bench_row *rows, size_t n_rows, size_t automatic, size_t best, int way,
                      const cli_bench_repeats *repeats, size_t n_repeats)
{
    if (!is_steadily_slower(repeats[automatic][way], repeats[best][way], n_repeats)) return false;
    for (size_t i = 0; i < n_rows; i++) {
        if (cli_bench_is_auto(&rows[i]) || strcmp(rows[i].asked, rows[automatic].ran) != 0) continue;
        return i != best && is_steadily_slower(repeats[i][way], repeats[best][way], n_repeats);
    }
    return true; /* what it took did not take part */
}

void cli_bench_compare(struct cli_bench_row *rows, size_t n_rows, const cli_bench_repeats *repeats, size_t n_repeats)
{
    for (int way = 0; way < 2; way++) {
        size_t best = find_best(rows, n_rows, way);
        if (best == n_rows || rows[best].results[way].median_us <= 0) continue;
        for (size_t i = 0; i < n_rows; i++) {
            if (!rows[i].has_result[way]) continue;
            rows[i].over_best[way] = rows[i].results[way].median_us / rows[best].results[way].median_us;
            rows[i].best[way] = rows[best].asked;
            rows[i].is_behind[way] = cli_bench_is_auto(&rows[i]) && is_behind(rows, n_rows, i, best, way, repeats, n_repeats);
        }
    }
}
