/* The oracle of `gradmesh bench`: it must accept what is right and see what is not. What is
 * right is computed here from the ranks' own input, element by element, without the oracle's
 * formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/bench_case.h"
#include "tests/support/oracle.h"

enum { MAX_RANKS = 5, MAX_COUNT = 70 };

/* All ranks of one call, in one process. */
struct world {
    struct cli_bench_case cases[MAX_RANKS];
    union { double alignment; uint8_t bytes[MAX_COUNT * 8]; } memory[MAX_RANKS][2];
    double inputs[MAX_RANKS]
                 [MAX_COUNT]; /* by index of the whole buffer; NaN where a rank gives nothing */
};

static double get(const struct cli_bench_case *c, const uint8_t *buffer, size_t i)
{
    const uint8_t *elem = buffer + i * gm_dtype_bytes(c->dtype);
    uint64_t       bits = oracle_load(elem, c->dtype);
    switch (c->dtype) {
    case GM_I8: return (int8_t)bits;
    case GM_I32: return (int32_t)bits;
    case GM_U8: case GM_U32: case GM_I64: case GM_U64: return (double)bits; /* none is negative */
    default: return oracle_number(bits, c->dtype);
    }
}

static void put(const struct cli_bench_case *c, uint8_t *buffer, size_t i, uint64_t bits)
{
    oracle_store(buffer + i * gm_dtype_bytes(c->dtype), c->dtype, bits);
}

static uint64_t bits_of(const struct cli_bench_case *c, double value)
{
    return oracle_is_float(c->dtype) ? oracle_bits(value, c->dtype) : (uint64_t)(int64_t)value;
}

static void world_fill(struct world *w, const struct cli_bench_case *like, bool is_in_place)
{
    for (int r = 0; r < like->n_ranks; r++) {
        struct cli_bench_case *c = &w->cases[r];
        *c = *like;
        c->rank = r;
        c->recv = w->memory[r][0].bytes;
        c->send = w->memory[r][!is_in_place].bytes;
        cli_bench_fill(c);
        size_t first = 0, n = c->count_elems;
        if (c->collective->only_root_gives && r != c->root) continue;
        if (c->collective->gives == CLI_BENCH_CHUNK)
            gm_chunk(c->count_elems, c->n_ranks, r, &first, &n);
        for (size_t i = 0; i < n; i++)
            w->inputs[r][first + i] = get(c, c->send, (is_in_place ? first : 0) + i);
    }
}

static uint64_t combined(const struct world *w, size_t i)
{
    const struct cli_bench_case *c = &w->cases[0];
    uint64_t values[MAX_RANKS];
    for (int r = 0; r < c->n_ranks; r++) values[r] = bits_of(c, w->inputs[r][i]);
    return oracle_reduce(values, c->n_ranks, c->dtype, c->redop);
}

/* What rank `rank` has at index i afterwards. */
static uint64_t result_at(const struct world *w, int rank, size_t i)
{
    const struct cli_bench_case *c = &w->cases[0];
    size_t block = c->count_elems / (size_t)c->n_ranks;
    if (c->collective->is_reduction) return combined(w, i);
    if (c->collective->is_in_blocks)
        return bits_of(c, w->inputs[i / block][(size_t)rank * block + i % block]);
    if (c->collective->is_around) return bits_of(c, w->inputs[(rank + c->n_ranks - 1) % c->n_ranks][i]);
    if (c->collective->only_root_gives) return bits_of(c, w->inputs[c->root][i]);
    for (int r = 0;; r++) {
        size_t first, n;
        gm_chunk(c->count_elems, c->n_ranks, r, &first, &n);
        if (i >= first && i < first + n) return bits_of(c, w->inputs[r][i]);
    }
}

/* What the collective should do. */
static void world_run(struct world *w)
{
    for (int r = 0; r < w->cases[0].n_ranks; r++) {
        const struct cli_bench_case *c = &w->cases[r];
        size_t first = 0, n = c->collective->gets == CLI_BENCH_NOTHING ? 0 : c->count_elems;
        if (c->collective->only_root_gets && r != c->root) continue;
        if (c->collective->gets == CLI_BENCH_CHUNK)
            gm_chunk(c->count_elems, c->n_ranks, r, &first, &n);
        for (size_t i = 0; i < n; i++)
            put(c, c->recv, (cli_bench_is_in_place(c) ? first : 0) + i, result_at(w, r, first + i));
    }
}

static void expect_no_wrong(struct world *w, const struct cli_bench_case *like, bool is_in_place)
{
    world_fill(w, like, is_in_place);
    world_run(w);
    for (int r = 0; r < like->n_ranks; r++) {
        int64_t n_wrong = cli_bench_count_wrong(&w->cases[r]);
        if (n_wrong != 0)
            fail_msg("%s %s %s, %d ranks, %zu elements, in place %d: %lld wrong on rank %d",
                     gm_collective_name(like->collective->which), gm_dtype_name(like->dtype),
                     gm_redop_name(like->redop), like->n_ranks, like->count_elems, is_in_place,
                     (long long)n_wrong, r);
    }
}

static void right_results_have_no_wrong_elements(void **state)
{
    (void)state;
    static struct world  w;
    const size_t         counts[] = { 0, 1, 4, 5, 7, MAX_COUNT };
    struct cli_bench_case like = { .root = 0 };
    for (size_t row = 0; (like.collective = cli_bench_row(row)) != NULL; row++)
        for (int dtype = 0; dtype < (int)GM_DTYPE_END; dtype++)
            for (int redop = 0; redop < (int)GM_REDOP_END; redop++)
                for (like.n_ranks = 1; like.n_ranks <= MAX_RANKS; like.n_ranks++)
                    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
                        if (!oracle_is_offered((gm_dtype)dtype, (gm_redop)redop)) continue;
                        like.dtype = (gm_dtype)dtype;
                        like.redop = (gm_redop)redop;
                        like.root = like.n_ranks - 1;
                        like.count_elems = counts[k];
                        if (like.collective->is_in_blocks) like.count_elems *= (size_t)like.n_ranks;
                        if (like.count_elems > MAX_COUNT) continue;
                        if (!like.collective->is_never_in_place) expect_no_wrong(&w, &like, true);
                        if (like.collective->has_ways) expect_no_wrong(&w, &like, false);
                    }
}

static const struct cli_bench_case all_reduce_of_three = {
    .n_ranks = 3, .count_elems = MAX_COUNT, .dtype = GM_F32, .redop = GM_SUM
};

static void a_call_that_does_nothing_is_seen(void **state)
{
    (void)state;
    static struct world w;
    struct cli_bench_case like = all_reduce_of_three;
    for (size_t row = 0; (like.collective = cli_bench_row(row)) != NULL; row++) {
        if (like.collective->gets == CLI_BENCH_NOTHING) continue;
        like.root = like.collective->only_root_gets ? 1 : 0;
        world_fill(&w, &like, true);
        assert_true(cli_bench_count_wrong(&w.cases[1]) > 0);
        if (!like.collective->has_ways) continue;
        world_fill(&w, &like, false);
        assert_true(cli_bench_count_wrong(&w.cases[1]) > 0);
    }
}

static void values_in_wrong_places_are_seen(void **state)
{
    (void)state;
    static struct world w;
    struct cli_bench_case like = all_reduce_of_three;
    for (size_t row = 0; (like.collective = cli_bench_row(row)) != NULL; row++) {
        if (like.collective->gets != CLI_BENCH_WHOLE) continue;
        like.root = like.collective->only_root_gets ? 1 : 0;
        like.count_elems = like.collective->is_in_blocks ? MAX_COUNT - MAX_COUNT % 3 : MAX_COUNT;
        world_fill(&w, &like, true);
        world_run(&w);
        float *values = (float *)(void *)w.cases[1].recv, first = values[0];
        memmove(values, values + 1, (like.count_elems - 1) * sizeof *values);
        values[like.count_elems - 1] = first;
        assert_true(cli_bench_count_wrong(&w.cases[1]) > MAX_COUNT / 2);
    }
}

static void a_single_wrong_element_is_counted_once(void **state)
{
    (void)state;
    static struct world w;
    struct cli_bench_case like = all_reduce_of_three;
    like.collective = cli_bench_find("all_reduce");
    world_fill(&w, &like, true);
    world_run(&w);
    ((float *)(void *)w.cases[2].recv)[MAX_COUNT - 1] += 1;
    assert_int_equal(cli_bench_count_wrong(&w.cases[2]), 1);
}

/* For every pair of ranks: one counted twice, the other left out. And the pairs that a sum over
 * plain rank numbers would not tell apart: 0 and 3 for 1 and 2. */
static void a_rank_counted_twice_is_seen_in_every_element(void **state)
{
    (void)state;
    static struct world w;
    struct cli_bench_case like = all_reduce_of_three;
    like.n_ranks = 4;
    like.collective = cli_bench_find("all_reduce");
    for (int twice = 0; twice < 4; twice++)
        for (int missing = 0; missing < 4; missing++) {
            if (twice == missing) continue;
            world_fill(&w, &like, true);
            memcpy(w.inputs[missing], w.inputs[twice], sizeof w.inputs[twice]);
            world_run(&w);
            assert_int_equal(cli_bench_count_wrong(&w.cases[0]), MAX_COUNT);
        }
    world_fill(&w, &like, true);
    memcpy(w.inputs[1], w.inputs[0], sizeof w.inputs[0]);
    memcpy(w.inputs[2], w.inputs[3], sizeof w.inputs[3]);
    world_run(&w);
    assert_int_equal(cli_bench_count_wrong(&w.cases[0]), MAX_COUNT);
}

static void a_changed_send_buffer_is_seen(void **state)
{
    (void)state;
    static struct world w;
    struct cli_bench_case like = all_reduce_of_three;
    like.collective = cli_bench_find("all_reduce");
    world_fill(&w, &like, false);
    world_run(&w);
    ((float *)(void *)w.cases[1].send)[3] += 1;
    assert_int_equal(cli_bench_count_wrong(&w.cases[1]), 1);
    assert_int_equal(cli_bench_count_wrong(&w.cases[0]), 0);
}

static void sums_of_the_largest_world_are_exact_in_float(void **state)
{
    (void)state;
    enum { N_RANKS = 1024 };
    struct cli_bench_case c = { .collective = cli_bench_find("all_reduce"), .n_ranks = N_RANKS,
                                .count_elems = MAX_COUNT, .dtype = GM_F32, .redop = GM_SUM };
    float sum[MAX_COUNT] = { 0 }, values[MAX_COUNT];
    for (int r = 0; r < N_RANKS; r++) {
        c.rank = r;
        c.send = c.recv = (uint8_t *)values;
        cli_bench_fill(&c);
        for (size_t i = 0; i < MAX_COUNT; i++) sum[i] += values[i];
    }
    memcpy(values, sum, sizeof sum);
    assert_int_equal(cli_bench_count_wrong(&c), 0);
}

/* Sums that went through a format, as they come out: right. One that belongs to another index, or lacks a rank: not. */
static void results_in_a_lean_format_are_right_within_its_rounding(void **state)
{
    (void)state;
    enum { N_RANKS = 4, COUNT = 4096 };
    static const char *const formats[] = { "bf16", "f16", "int8" };
    static float values[COUNT], seen[COUNT], sum[COUNT];
    struct cli_bench_case c = { .collective = cli_bench_find("all_reduce"), .n_ranks = N_RANKS, .count_elems = COUNT,
                                .dtype = GM_F32, .redop = GM_SUM, .send = (uint8_t *)values, .recv = (uint8_t *)values };
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        c.wire = formats[f];
        assert_true(cli_bench_is_lean(&c));
        memset(sum, 0, sizeof sum);
        for (c.rank = 0; c.rank < N_RANKS; c.rank++) {
            cli_bench_fill(&c);
            oracle_lean(c.wire, seen, values, COUNT);
            for (size_t i = 0; i < COUNT; i++) sum[i] += seen[i];
        }
        c.rank = 0;
        oracle_lean(c.wire, values, sum, COUNT);
        assert_int_equal(cli_bench_count_wrong(&c), 0);
        memmove(values, values + 1, sizeof values - sizeof values[0]);
        assert_true(cli_bench_count_wrong(&c) > COUNT * 3 / 4);
        c.redop = GM_MAX;
        assert_false(cli_bench_is_lean(&c));
        c.redop = GM_SUM;
    }
    c.wire = "f32";
    assert_false(cli_bench_is_lean(&c));
}

static void collectives_are_found_by_name_with_or_without_dashes(void **state)
{
    (void)state;
    assert_ptr_equal(cli_bench_find("allreduce"), cli_bench_find("all_reduce"));
    assert_ptr_equal(cli_bench_find("All-Reduce"), cli_bench_find("all_reduce"));
    assert_null(cli_bench_find("all_reduc"));
    assert_null(cli_bench_find(""));
    assert_int_equal(cli_bench_find("sendrecv")->which, GM_SENDRECV);
    for (int which = 0; which < (int)GM_SEND; which++) {
        const struct cli_bench_collective *row =
            cli_bench_find(gm_collective_name((gm_collective)which));
        if (row == NULL)
            fail_msg("bench does not know %s", gm_collective_name((gm_collective)which));
        else assert_int_equal(row->which, which);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_results_have_no_wrong_elements),
        cmocka_unit_test(a_call_that_does_nothing_is_seen),
        cmocka_unit_test(values_in_wrong_places_are_seen),
        cmocka_unit_test(a_single_wrong_element_is_counted_once),
        cmocka_unit_test(a_rank_counted_twice_is_seen_in_every_element),
        cmocka_unit_test(a_changed_send_buffer_is_seen),
        cmocka_unit_test(sums_of_the_largest_world_are_exact_in_float),
        cmocka_unit_test(results_in_a_lean_format_are_right_within_its_rounding),
        cmocka_unit_test(collectives_are_found_by_name_with_or_without_dashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
