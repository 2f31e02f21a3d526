#include "cli/bench_case.h"

#include <ctype.h>
#include <math.h>
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
static gm_status reduce(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_reduce(comm, c->send, c->recv, c->count_elems, c->dtype, c->redop, c->root);
}

/* In place only the root's chunk is found in its place by the collective; the others say where. */
static uint8_t *chunk_for_call(const struct cli_bench_case *c, uint8_t *buffer)
{
    size_t first, n;
    gm_chunk(c->count_elems, c->n_ranks, c->rank, &first, &n);
    bool is_apart = !cli_bench_is_in_place(c) || c->rank == c->root;
    return is_apart ? buffer : buffer + first * gm_dtype_bytes(c->dtype);
}
static gm_status gather(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_gather(comm, chunk_for_call(c, c->send), c->recv, c->count_elems, c->dtype, c->root);
}
static gm_status scatter(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_scatter(comm, c->send, chunk_for_call(c, c->recv), c->count_elems, c->dtype, c->root);
}
static gm_status all_to_all(gm_comm *comm, const struct cli_bench_case *c)
{
    return gm_all_to_all(comm, c->send, c->recv, c->count_elems / (size_t)c->n_ranks, c->dtype);
}

/* To the right and from the left, as nccl-tests has it. */
static gm_status sendrecv(gm_comm *comm, const struct cli_bench_case *c)
{
    int right = (c->rank + 1) % c->n_ranks, left = (c->rank + c->n_ranks - 1) % c->n_ranks;
    return gm_sendrecv(comm, c->send, c->count_elems, right, 0, c->recv, c->count_elems, left, 0,
                       c->dtype);
}

static const struct cli_bench_collective rows[] = {
    { .which = GM_ALL_REDUCE, .is_reduction = true, .has_ways = true, .gives = CLI_BENCH_WHOLE,
      .gets = CLI_BENCH_WHOLE, .bus_factor = twice_all_but_own, .call = all_reduce },
    { .which = GM_REDUCE_SCATTER, .is_reduction = true, .has_ways = true, .gives = CLI_BENCH_WHOLE,
      .gets = CLI_BENCH_CHUNK, .bus_factor = all_but_own, .call = reduce_scatter },
    { .which = GM_ALL_GATHER, .has_ways = true, .gives = CLI_BENCH_CHUNK, .gets = CLI_BENCH_WHOLE,
      .bus_factor = all_but_own, .call = all_gather },
    { .which = GM_BROADCAST, .has_root = true, .only_root_gives = true, .gives = CLI_BENCH_WHOLE, .gets = CLI_BENCH_WHOLE,
      .bus_factor = once, .call = broadcast },
    { .which = GM_BARRIER, .gives = CLI_BENCH_NOTHING, .gets = CLI_BENCH_NOTHING,
      .bus_factor = nothing,
      .call = barrier },
    { .which = GM_REDUCE, .is_reduction = true, .has_root = true, .has_ways = true, .only_root_gets = true,
      .gives = CLI_BENCH_WHOLE, .gets = CLI_BENCH_WHOLE, .bus_factor = once, .call = reduce },
    { .which = GM_GATHER, .has_root = true, .has_ways = true, .only_root_gets = true, .gives = CLI_BENCH_CHUNK,
      .gets = CLI_BENCH_WHOLE, .bus_factor = all_but_own, .call = gather },
    { .which = GM_SCATTER, .has_root = true, .has_ways = true, .only_root_gives = true, .gives = CLI_BENCH_WHOLE,
      .gets = CLI_BENCH_CHUNK, .bus_factor = all_but_own, .call = scatter },
    { .which = GM_SENDRECV, .has_ways = true, .is_never_in_place = true, .is_around = true,
      .gives = CLI_BENCH_WHOLE, .gets = CLI_BENCH_WHOLE, .bus_factor = once, .call = sendrecv },
    { .which = GM_ALL_TO_ALL, .has_ways = true, .is_in_blocks = true, .gives = CLI_BENCH_WHOLE,
      .gets = CLI_BENCH_WHOLE, .bus_factor = all_but_own, .call = all_to_all },
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
 * a < 1024, 0 < b < 8, w < 1021: the sum over 1024 ranks stays below 2^24, where float is exact. For types of one or
 * two bytes a < 32, 0 < b < 4, w < 31: a value is below 128, which all of them hold. */

/* Squares, so that ranks 0 and 3 do not add up to what 1 and 2 do. */
static int64_t w_of(int rank, bool is_small)
{
    return (int64_t)(rank + 1) * (rank + 1) % (is_small ? 31 : 1021);
}

/* What stands at index i is scale a(i) + weight b(i), divided by divisor. Where a reduction has no such formula, it is
 * the values of n_folded ranks, folded one by one. Products of floats are of powers of two, whose exponents are the
 * values modulo 3, less 1. */
struct formula {
    int64_t  scale, weight, divisor;
    int      n_folded;
    gm_redop fold;
    bool     is_small, is_power;
    double   relative_error, absolute_error; /* that a result may have */
};

static bool is_float(gm_dtype dtype)
{
    return dtype == GM_F32 || dtype == GM_F64 || dtype == GM_F16 || dtype == GM_BF16;
}

bool cli_bench_is_lean(const struct cli_bench_case *c)
{
    gm_collective which = c->collective->which;
    bool          is_sum = c->redop == GM_SUM || c->redop == GM_AVG;
    if (c->wire == NULL || strcmp(c->wire, "f32") == 0 || c->dtype != GM_F32) return false;
    return is_sum && (which == GM_ALL_REDUCE || which == GM_REDUCE_SCATTER);
}

/* Numbers are rounded twice: each contribution, and their sum. None is negative, so what the
 * contributions are off by adds up to what a number as large as the sum may be off by. */
static void allow_rounding(const struct cli_bench_case *c, struct formula *f)
{
    double largest = (double)(31 * f->scale + 3 * f->weight) / (double)f->divisor;
    if (strcmp(c->wire, "bf16") == 0) f->relative_error = 2.01 * 0x1p-8;
    else if (strcmp(c->wire, "f16") == 0) f->relative_error = 2.01 * 0x1p-11;
    else f->absolute_error = 2.01 * largest / 254; /* int8 */
}

static struct formula formula_of_rank(const struct cli_bench_case *c, int rank)
{
    bool is_small = gm_dtype_bytes(c->dtype) <= 2 || cli_bench_is_lean(c);
    return (struct formula){ .scale = 1, .weight = w_of(rank, is_small), .divisor = 1, .is_small = is_small,
                             .is_power = c->collective->is_reduction && c->redop == GM_PROD && is_float(c->dtype) };
}

static struct formula formula_of_reduction(const struct cli_bench_case *c)
{
    struct formula f = formula_of_rank(c, 0);
    int64_t        sum = 0, least = f.weight, most = f.weight;
    for (int r = 0; r < c->n_ranks; r++) {
        int64_t w = w_of(r, f.is_small);
        sum += w;
        if (w < least) least = w;
        if (w > most) most = w;
    }
    switch (c->redop) {
    case GM_SUM: case GM_SUM_EXACT: f.scale = c->n_ranks, f.weight = sum; break;
    case GM_AVG: f.scale = f.divisor = c->n_ranks, f.weight = sum; break;
    case GM_MIN: f.weight = least; break;
    case GM_MAX: f.weight = most; break;
    case GM_PROD: case GM_BAND: case GM_BOR: case GM_BXOR: f.fold = c->redop, f.n_folded = c->n_ranks; break;
    default: GMI_CHECK(!"the values of this reduction are known");
    }
    if (cli_bench_is_lean(c)) allow_rounding(c, &f);
    return f;
}

static int64_t linear(const struct formula *f, int64_t scale, int64_t weight, size_t index)
{
    uint64_t mixed = gmi_mix64(index);
    int64_t  a = (int64_t)(mixed & (f->is_small ? 31 : 1023)), b = (int64_t)(1 + (mixed >> 32) % (f->is_small ? 3 : 7));
    return scale * a + weight * b;
}

/* The whole number at an index; modulo 2^64, as products of integers are. */
static int64_t whole_at(const struct formula *f, size_t index)
{
    if (f->n_folded == 0) return linear(f, f->scale, f->weight, index);
    uint64_t result = (uint64_t)linear(f, 1, w_of(0, f->is_small), index);
    for (int r = 1; r < f->n_folded; r++) {
        uint64_t next = (uint64_t)linear(f, 1, w_of(r, f->is_small), index);
        if (f->fold == GM_PROD) result *= next;
        else if (f->fold == GM_BAND) result &= next;
        else if (f->fold == GM_BOR) result |= next;
        else result ^= next;
    }
    return (int64_t)result;
}

/* The element as an integer: to nearest, ties to even, as GM_AVG of integers promises. */
static int64_t integer_at(const struct formula *f, size_t index)
{
    int64_t whole = whole_at(f, index);
    if (f->divisor == 1) return whole;
    int64_t quotient = whole / f->divisor, twice_rest = 2 * (whole % f->divisor);
    return quotient + (twice_rest > f->divisor || (twice_rest == f->divisor && quotient % 2 == 1));
}

static double power_at(const struct formula *f, size_t index)
{
    int exponent = 0, n = f->n_folded == 0 ? 1 : f->n_folded;
    for (int r = 0; r < n; r++) {
        int64_t weight = f->n_folded == 0 ? f->weight : w_of(r, f->is_small);
        exponent += (int)(linear(f, 1, weight, index) % 3) - 1;
    }
    return ldexp(1, exponent);
}

static double number_at(const struct formula *f, size_t index)
{
    return f->is_power ? power_at(f, index) : (double)whole_at(f, index) / (double)f->divisor;
}

/* Dividing an f32 in double and then rounding gives what dividing it in float does. */
static float f32_at(const struct formula *f, size_t index) { return (float)number_at(f, index); }

/* The nearest half to a number that is not negative. In units of its last place, which is the larger the higher its
 * exponent, it is the lower part of the bits, and the exponent the upper one. */
static uint16_t half_of(double x, int fraction_bits, int least_exponent, int inf)
{
    int exponent;
    frexp(x, &exponent);
    exponent = exponent - 1 < least_exponent || x == 0 ? least_exponent : exponent - 1;
    double bits = ldexp(exponent - least_exponent, fraction_bits) + rint(ldexp(x, fraction_bits - exponent));
    return (uint16_t)(bits < inf ? bits : inf);
}

static uint16_t f16_at(const struct formula *f, size_t index) { return half_of(number_at(f, index), 10, -14, 0x7c00); }
static uint16_t bf16_at(const struct formula *f, size_t index) { return half_of(number_at(f, index), 7, -126, 0x7f80); }

/* A run of elements whose values have one formula. */
struct run {
    uint8_t       *values;
    size_t         first_elem, n_elems; /* of the whole buffer */
    struct formula formula;
};

/* One loop for each type: as plain code it would be a branch for each element. */
#define EACH_ELEMENT(type, value_at, statement)                                                    \
    do {                                                                                           \
        type *values = (type *)(void *)run->values;                                                \
        for (size_t i = 0; i < run->n_elems; i++) {                                                \
            type value = (type)value_at(&run->formula, run->first_elem + i);                       \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

#define FOR_DTYPE(dtype, statement)                                          \
    switch (dtype) {                                                         \
    case GM_F32: EACH_ELEMENT(float, f32_at, statement); break;              \
    case GM_F64: EACH_ELEMENT(double, number_at, statement); break;          \
    case GM_F16: EACH_ELEMENT(uint16_t, f16_at, statement); break;           \
    case GM_BF16: EACH_ELEMENT(uint16_t, bf16_at, statement); break;         \
    case GM_I8: EACH_ELEMENT(int8_t, integer_at, statement); break;          \
    case GM_U8: EACH_ELEMENT(uint8_t, integer_at, statement); break;         \
    case GM_I32: EACH_ELEMENT(int32_t, integer_at, statement); break;        \
    case GM_U32: EACH_ELEMENT(uint32_t, integer_at, statement); break;       \
    case GM_I64: EACH_ELEMENT(int64_t, integer_at, statement); break;        \
    case GM_U64: EACH_ELEMENT(uint64_t, integer_at, statement); break;       \
    case GM_DTYPE_END: GMI_CHECK(!"the elements have a type");               \
    }

static void put_run(const struct run *run, gm_dtype dtype) { FOR_DTYPE(dtype, values[i] = value) }

static int64_t count_far(const struct run *run)
{
    const struct formula *f = &run->formula;
    const float          *values = (const float *)(const void *)run->values;
    int64_t               n_far = 0;
    for (size_t i = 0; i < run->n_elems; i++) {
        double want = number_at(f, run->first_elem + i), may = f->relative_error * want + f->absolute_error;
        n_far += !(fabs((double)values[i] - want) <= may);
    }
    return n_far;
}

static int64_t count_wrong(const struct run *run, gm_dtype dtype)
{
    int64_t n_wrong = 0;
    if (run->formula.relative_error + run->formula.absolute_error > 0) return count_far(run);
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
    run.formula = formula_of_rank(c, c->rank);
    return run;
}

static bool gives(const struct cli_bench_case *c) { return !c->collective->only_root_gives || c->rank == c->root; }
static bool gets(const struct cli_bench_case *c) { return !c->collective->only_root_gets || c->rank == c->root; }

void cli_bench_fill(const struct cli_bench_case *c)
{
    size_t bytes = c->count_elems * gm_dtype_bytes(c->dtype);
    memset(c->recv, 0xa5, bytes);
    if (!gives(c)) return;
    struct run given = part_of(c, c->collective->gives, c->send);
    put_run(&given, c->dtype);
}

static int64_t count_wrong_chunks(const struct cli_bench_case *c, const struct run *got)
{
    int64_t n_wrong = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        struct run chunk = { .formula = formula_of_rank(c, r) };
        gm_chunk(c->count_elems, c->n_ranks, r, &chunk.first_elem, &chunk.n_elems);
        chunk.values = got->values + chunk.first_elem * gm_dtype_bytes(c->dtype);
        n_wrong += count_wrong(&chunk, c->dtype);
    }
    return n_wrong;
}

/* Block k is the block of our number that rank k has given. */
static int64_t count_wrong_blocks(const struct cli_bench_case *c, const struct run *got)
{
    int64_t n_wrong = 0;
    size_t  block_elems = c->count_elems / (size_t)c->n_ranks;
    for (int r = 0; r < c->n_ranks; r++) {
        struct run block = { .formula = formula_of_rank(c, r), .n_elems = block_elems };
        block.first_elem = (size_t)c->rank * block_elems;
        block.values = got->values + (size_t)r * block_elems * gm_dtype_bytes(c->dtype);
        n_wrong += count_wrong(&block, c->dtype);
    }
    return n_wrong;
}

int64_t cli_bench_count_wrong(const struct cli_bench_case *c)
{
    const struct cli_bench_collective *row = c->collective;
    struct run got = part_of(c, row->gets, c->recv);
    int64_t    n_wrong = 0;
    if (row->is_reduction) got.formula = formula_of_reduction(c);
    else if (row->has_root) got.formula = formula_of_rank(c, c->root);
    else if (row->is_around) got.formula = formula_of_rank(c, (c->rank + c->n_ranks - 1) % c->n_ranks);
    if (!gets(c)) n_wrong = 0;
    else if (row->is_in_blocks) n_wrong += count_wrong_blocks(c, &got);
    else if (row->gives == CLI_BENCH_CHUNK) n_wrong += count_wrong_chunks(c, &got);
    else n_wrong += count_wrong(&got, c->dtype);
    if (cli_bench_is_in_place(c) || !gives(c)) return n_wrong;
    struct run given = part_of(c, row->gives, c->send);
    return n_wrong + count_wrong(&given, c->dtype);
}
