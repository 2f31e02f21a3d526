/* bench_contest.h - "auto" held against the algorithms that it chose from.
 *
 * One machine's medians of the same code differ by more than 10 % from one communicator to the next where ranks share
 * cores. So "auto" counts as behind only where it was slower than the best algorithm in four of five repeats, which were
 * measured in turns, and where the algorithm that it took was so too when it was forced, over a communicator of its own. */
#ifndef CLI_BENCH_CONTEST_H
#define CLI_BENCH_CONTEST_H

#include "cli/bench_print.h"

/* What counts as being as good as the best. */
#define CLI_BENCH_AS_GOOD 1.1

typedef struct cli_bench_result cli_bench_repeats[2][CLI_BENCH_MAX_REPEATS]; /* [1]: in place */

bool cli_bench_is_auto(const struct cli_bench_row *row);

/* Fills over_best, best and is_behind in the rows of one size, each with its repeats. */
void cli_bench_compare(struct cli_bench_row *rows, size_t n_rows, const cli_bench_repeats *repeats, size_t n_repeats);

#endif
