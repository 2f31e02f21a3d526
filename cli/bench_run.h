/* bench_run.h - one rank's part in `gradmesh bench COLLECTIVE`: joins, measures size by size, and, as
 * rank 0, says what came of it.
 *
 * With several algorithms there is a communicator for each of them, side by side, and every size is
 * measured with all of them in turn, repeat by repeat, so that a quiet or busy moment of the machine
 * meets them all. What "auto" takes can so be compared with the best of the others. */
#ifndef CLI_BENCH_RUN_H
#define CLI_BENCH_RUN_H

#include "cli/args.h"
#include "cli/bench_measure.h"

enum { CLI_BENCH_MAX_ALGORITHMS = 16 };

/* By which a launching process tells its workers what it has measured for --fraction. */
#define CLI_BENCH_LIMIT_VARIABLE "GRADMESH_BENCH_LIMIT"

struct cli_bench_args {
    int64_t         n_workers, begin_bytes, end_bytes, factor, root, n_repeats;
    bool            has_workers, has_begin, has_end, has_factor, has_op, has_root, has_repeats;
    struct cli_list sizes;
    bool            in_place_only, wants_fraction;
    int             dtype, redop;
    const char     *algorithm, *transport, *wire, *checksum;
    bool            is_encrypted;
    const char     *trace_path; /* NULL: no trace */
    char            names[256]; /* of several algorithms, each ended by a zero */
    const char     *algorithms[CLI_BENCH_MAX_ALGORITHMS];
    size_t          n_algorithms; /* 0: one, as `algorithm` or the environment says */
    struct cli_bench_effort effort;
    const struct cli_bench_collective *collective;
};

/* The exit status. is_alone: a world of one, whatever the environment says. */
int cli_bench_run(const struct cli_bench_args *args, const struct cli_parsed *parsed, bool is_alone);

/* On a terminal the rows themselves show how far it is; a live line would be in their way. */
bool cli_bench_wants_live_line(const struct cli_parsed *parsed);

#endif
