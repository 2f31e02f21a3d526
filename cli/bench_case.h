/* bench_case.h - what `gradmesh bench` can measure: the collectives as rows of a table, and the
 * values that travel in them.
 *
 * A row says which part of the buffer a rank gives and which it gets; everything else (layout in
 * place and out of place, filling, checking) follows from that, so a further collective is one
 * further row.
 *
 * The value of rank r at index i of the whole buffer is a(i) + w(r) b(i), with small whole
 * numbers a, w and b > 0 that look random (for products of floats, a power of two). So every
 * result is exact in every type, in whatever order it was summed; what it should be costs the same
 * for two ranks and for a thousand, except for products and bitwise reductions; and a value that
 * stands in a wrong place, comes from a wrong rank or was counted twice differs from what is
 * expected there. Where elements travel in a lean wire format, a result is right within what that
 * format may round. */
#ifndef CLI_BENCH_CASE_H
#define CLI_BENCH_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

enum cli_bench_part { CLI_BENCH_NOTHING, CLI_BENCH_WHOLE, CLI_BENCH_CHUNK };

struct cli_bench_case;

struct cli_bench_collective {
    gm_collective       which;
    bool                is_reduction, has_root;
    bool                only_root_gives, only_root_gets;
    bool                is_in_blocks; /* block k of the whole goes to rank k, and block k comes from it */
    bool                has_ways; /* offered both in place and out of place */
    bool                is_never_in_place; /* with has_ways: out of place only */
    bool                is_around;         /* a rank gets what its left neighbour gives */
    enum cli_bench_part gives, gets;
    /* Bytes of the size that must pass each rank's link at least, as nccl-tests counts them: the
     * bus bandwidth is size / time times this. */
    double (*bus_factor)(int n_ranks);
    gm_status (*call)(gm_comm *comm, const struct cli_bench_case *c);
};

/* The row with this name; '-' and '_' may be left out of it. NULL: there is none. */
const struct cli_bench_collective *cli_bench_find(const char *name);
/* All rows, index from 0; NULL behind the last. */
const struct cli_bench_collective *cli_bench_row(size_t index);

/* One collective with one size, as one rank calls it. `send` and `recv` hold count_elems
 * elements; in place they are the same. */
struct cli_bench_case {
    const struct cli_bench_collective *collective;
    int       rank, n_ranks;
    size_t    count_elems;
    gm_dtype  dtype;
    gm_redop  redop;
    int       root;
    const char *wire; /* format in which sums of f32 travel; NULL: "f32" */
    uint8_t  *send, *recv;
};

/* Do the elements travel in another format than their own? */
bool cli_bench_is_lean(const struct cli_bench_case *c);

static inline bool cli_bench_is_in_place(const struct cli_bench_case *c)
{
    return c->send == c->recv;
}

/* Puts this rank's values where the call reads them, and something that is no result everywhere
   else. */
void cli_bench_fill(const struct cli_bench_case *c);

/* How many elements of the result are not what they should be; after the call that followed
 * cli_bench_fill. Elements of a `send` that was changed out of place count too. */
int64_t cli_bench_count_wrong(const struct cli_bench_case *c);

#endif
