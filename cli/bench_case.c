#include "cli/bench_case.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

/* ---- the rows ---------------------------------------------------------------------------------- */

static double twice_all_but_own(int n_ranks) { return 2.0 * (n_ranks - 1) / n_ranks; }
static double all_but_own(int n_ranks) { return (double)(n_ranks - 1) / n_ranks; }
static double once(int n_ranks) { return n_ranks > 1; }
static double nothing(int n_ranks)
{
    (void)n_ranks;
    return 0;
}

static gm_status all_reduce(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_all_reduce(comm, c->send, c->recv, c->count_elems, c->dtype, c->redop);
}
static gm_status reduce_scatter(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_reduce_scatter(comm, c->send, c->recv, c->count_elems, c->dtype, c->redop);
}
static gm_status all_gather(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_all_gather(comm, c->send, c->recv, c->count_elems, c->dtype);
}
static gm_status broadcast(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_broadcast(comm, c->recv, c->count_elems, c->dtype, c->root);
}
static gm_status barrier(gm_comm *comm, const struct cli_bench_case *c)
{
    (void)c;
    return gm_barrier(comm);
}

static const struct cli_bench_collective rows[] = {
    { .which = GM_ALL_REDUCE, .is_reduction = true, .has_ways = true, .gives = CLI_BENCH_WHOLE,
      .gets = CLI_BENCH_WHOLE, .bus_factor = twice_all_but_own, .call = all_reduce },
    { .which = GM_REDUCE_SCATTER, .is_reduction = true, .has_ways = true, .gives = CLI_BENCH_WHOLE,
      .gets = CLI_BENCH_CHUNK, .bus_factor = all_but_own, .call = reduce_scatter },
    { .which = GM_ALL_GATHER, .has_ways = true, .gives = CLI_BENCH_CHUNK, .gets = CLI_BENCH_WHOLE,
      .bus_factor = all_but_own, .call = all_gather },
    { .which = GM_BROADCAST, .has_root = true, .gives = CLI_BENCH_WHOLE, .gets = CLI_BENCH_WHOLE,
      .bus_factor = once, .call = broadcast },
    { .which = GM_BARRIER, .gives = CLI_BENCH_NOTHING, .gets = CLI_BENCH_NOTHING,
      .bus_factor = nothing,
      .call = barrier },
};

const struct cli_bench_collective *cli_bench_row(size_t index)
{
    return index < sizeof rows / sizeof rows[0] ? &rows[index] : NULL;
}

static bool is_same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a == '-' || *a == '_') a++;
        while (*b == '-' || *b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (*a == '\0') return true;
        a++;
        b++;
    }
}

const struct cli_bench_collective *cli_bench_find(const char *name)
{
    const struct cli_bench_collective *row;
    for (size_t i = 0; (row = cli_bench_row(i)) != NULL; i++) {
        if (is_same_name(gm_collective_name(row->which), name)) return row;
    }
    return NULL;
}

/* ---- the values -------------------------------------------------------------------------------- *
 *
 * a < 1024, 0 < b < 8, w < 1021: the sum over 1024 ranks stays below 2^24, where float is exact. */

static int64_t a_of(size_t index) { return (int64_t)(gmi_mix64(index) & 1023); }
static int64_t b_of(size_t index) { return (int64_t)(1 + (gmi_mix64(index) >> 32) % 7); }

/* Squares, so that ranks 0 and 3 do not add up to what 1 and 2 do. */
static int64_t w_of(int rank) { return (int64_t)(rank + 1) * (rank + 1) % 1021; }

/* What stands at index i is scale a(i) + weight b(i), divided by divisor. */
struct formula {
    int64_t scale, weight, divisor;
};

static struct formula formula_of_rank(int rank) { return (struct formula){ 1, w_of(rank), 1 }; }

static struct formula formula_of_reduction(gm_redop redop, int n_ranks)
{
    int64_t sum = 0, least = w_of(0), most = w_of(0);
    for (int r = 0; r < n_ranks; r++) {
        int64_t w = w_of(r);
        sum += w;
        if (w < least) least = w;
        if (w > most) most = w;
    }
    switch (redop) {
    case GM_SUM: return (struct formula){ n_ranks, sum, 1 };
    case GM_AVG: return (struct formula){ n_ranks, sum, n_ranks };
    case GM_MIN: return (struct formula){ 1, least, 1 };
    case GM_MAX: return (struct formula){ 1, most, 1 };
    case GM_REDOP_END: break;
    }
    GMI_CHECK(!"the values of this reduction are known");
    return (struct formula){ 0 };
}

/* A run of elements whose values have one formula. */
struct run {
    uint8_t       *values;
    size_t         first_elem, n_elems; /* of the whole buffer */
    struct formula formula;
};

/* One loop for each type: as plain code it would be a branch for each element. */
#define EACH_ELEMENT(type, statement)                                                              \
    do {                                                                                           \
        type *values = (type *)(void *)run->values;                                                \
        for (size_t i = 0; i < run->n_elems; i++) {                                                \
            size_t index = run->first_elem + i;                                                    \
            type value =                                                                           \
                (type)(run->formula.scale * a_of(index) + run->formula.weight * b_of(index));      \
            if (run->formula.divisor != 1) value = (type)(value / (type)run->formula.divisor);     \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

#define FOR_DTYPE(dtype, statement)                              \
    switch (dtype) {                                             \
    case GM_F32: EACH_ELEMENT(float, statement); break;          \
    case GM_F64: EACH_ELEMENT(double, statement); break;         \
    case GM_I32: EACH_ELEMENT(int32_t, statement); break;        \
    case GM_I64: EACH_ELEMENT(int64_t, statement); break;        \
    case GM_DTYPE_END: GMI_CHECK(!"the elements have a type");   \
    }

static void put_run(const struct run *run, gm_dtype dtype) { FOR_DTYPE(dtype, values[i] = value) }

static int64_t count_wrong(const struct run *run, gm_dtype dtype)
{
    int64_t n_wrong = 0;
    FOR_DTYPE(dtype, n_wrong += !(values[i] == value))
    return n_wrong;
}

/* ---- where they stand -------------------------------------------------------------------------- */

static struct run part_of(const struct cli_bench_case *c, enum cli_bench_part part, uint8_t *buffer)
{
    struct run run = { .values = buffer, .n_elems = part == CLI_BENCH_WHOLE ? c->count_elems : 0 };
    if (part == CLI_BENCH_CHUNK)
        gm_chunk(c->count_elems, c->n_ranks, c->rank, &run.first_elem, &run.n_elems);
    /* In place a chunk stands where it stands in the whole; alone it begins its own buffer. */
    if (cli_bench_is_in_place(c)) run.values += run.first_elem * gm_dtype_bytes(c->dtype);
    run.formula = formula_of_rank(c->rank);
    return run;
}

void cli_bench_fill(const struct cli_bench_case *c)
{
    size_t bytes = c->count_elems * gm_dtype_bytes(c->dtype);
    memset(c->recv, 0xa5, bytes);
    bool gives = !c->collective->has_root || c->rank == c->root;
    if (!gives) return;
    struct run given = part_of(c, c->collective->gives, c->send);
    put_run(&given, c->dtype);
}

static int64_t count_wrong_chunks(const struct cli_bench_case *c, const struct run *got)
{
    int64_t n_wrong = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        struct run chunk = { .formula = formula_of_rank(r) };
        gm_chunk(c->count_elems, c->n_ranks, r, &chunk.first_elem, &chunk.n_elems);
        chunk.values = got->values + chunk.first_elem * gm_dtype_bytes(c->dtype);
        n_wrong += count_wrong(&chunk, c->dtype);
    }
    return n_wrong;
}

int64_t cli_bench_count_wrong(const struct cli_bench_case *c)
{
    const struct cli_bench_collective *row = c->collective;
    struct run got = part_of(c, row->gets, c->recv);
    int64_t    n_wrong = 0;
    if (row->is_reduction) got.formula = formula_of_reduction(c->redop, c->n_ranks);
    else if (row->has_root) got.formula = formula_of_rank(c->root);
    if (row->gives == CLI_BENCH_CHUNK) n_wrong += count_wrong_chunks(c, &got);
    else n_wrong += count_wrong(&got, c->dtype);
    if (cli_bench_is_in_place(c)) return n_wrong;
    struct run given = part_of(c, row->gives, c->send);
    return n_wrong + count_wrong(&given, c->dtype);
}
