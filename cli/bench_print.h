/* bench_print.h - the results of `gradmesh bench` as a table for people and as JSON.
 *
 * The table has the columns and the meaning of nccl-tests; lines that are no row begin with '#'. */
#ifndef CLI_BENCH_PRINT_H
#define CLI_BENCH_PRINT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/bench_measure.h"

/* What all rows have in common. */
struct cli_bench_setting {
    const struct cli_bench_collective *collective;
    int         n_ranks;
    gm_dtype    dtype;
    gm_redop    redop;
    int         root;
    const char *algorithm, *transport; /* as asked for: "auto", ... */
    bool        is_contest; /* of several algorithms */
    const char *site; /* where algorithms are chosen (gm_comm_site) */
    const char *wire; /* in which elements travel: "bf16", ...; NULL: in their own */
    double limit_gbps; /* what one process's link carries each way; 0: not asked for */
    int    limit_processes;
    bool   is_encrypted;
};

/* One row: one size with one algorithm, out of place, in place or both. */
struct cli_bench_row {
    size_t                  count_elems;
    const char             *asked, *ran; /* the algorithm: "auto", and what that was here */
    double                  over_best[2]; /* in a contest: its time over that of the best algorithm, "auto" apart */
    const char             *best[2];      /* ... and which that is */
    bool                    is_behind[2]; /* of "auto": slower than the best again and again, and not by chance (bench_contest.h) */
    bool                    has_result[2]; /* [1]: in place */
    struct cli_bench_result results[2];
};

void cli_bench_print_head(FILE *file, const struct cli_bench_setting *setting);
void cli_bench_print_row(FILE *file, const struct cli_bench_setting *setting,
                         const struct cli_bench_row *row);
void cli_bench_print_foot(FILE *file, const struct cli_bench_setting *setting,
                          const struct cli_bench_row *rows, size_t n_rows);

/* The whole, to be deleted by the caller; NULL: no memory. */
cJSON *cli_bench_to_json(const struct cli_bench_setting *setting, const struct cli_bench_row *rows,
                         size_t n_rows);

/* A size as people say it: "64 KiB" for 65536, else bytes. */
const char *cli_bench_size_text(size_t size_bytes, char *text, size_t text_bytes);

/* The line on standard error that says what is being measured. Live, each replaces the one
 * before; else nothing is printed unless is_wordy, and then line by line. */
struct cli_bench_progress {
    bool is_live, is_wordy;
    bool has_line;
};
void cli_bench_progress(struct cli_bench_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes the live line away, before something else is printed there. */
void cli_bench_progress_clear(struct cli_bench_progress *progress);

#endif
