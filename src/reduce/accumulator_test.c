/* accumulator_test.c - the exact sum is the correctly rounded sum, of any numbers, in any order, grouping and window. */
#include <math.h>

#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/rng.h"
#include "reduce/accumulator.h"
#include "tests/support/oracle.h"
#include "tests/support/test.h"

/* ---- numbers ------------------------------------------------------------------------------------- */

enum kind { GRADIENTS, WIDE, SUBNORMAL, CANCELLING, TIES, LARGE, NOT_FINITE, ANY_BITS, KINDS };

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The contribution of a shard to an element. */
static float number(enum kind kind, uint64_t seed, int shard, size_t i)
{
    uint64_t r = gmi_rng_u64(gmi_rng_key(seed, (uint64_t)shard), i), other = gmi_rng_u64(gmi_rng_key(seed, (uint64_t)(shard ^ 1)), i);
    float    sign = r >> 63 ? -1.0f : 1.0f, unit = 1 + (float)(r & 0x7fffff) / 0x800000;
    switch (kind) {
    case GRADIENTS: return i % 3 == 0 ? 0 : sign * ldexpf(unit, -4 - (int)(r >> 24 & 15));
    case WIDE: return r % 3 == 0 ? 0 : sign * ldexpf(unit, (int)(r >> 24 & 255) % 240 - 126);
    case SUBNORMAL: return of_bits((uint32_t)(r & 0x807fffff));
    case CANCELLING: return shard % 2 ? -number(WIDE, seed, shard - 1, i) : number(WIDE, seed, shard, i);
    case TIES: /* 1 or its successor, half an ulp of it, and now and then a little more or less */
        if (shard == 0) return i % 2 ? 1 : 1 + 0x1p-23f;
        if (shard == 1) return 0x1p-24f;
        return shard == 2 && i % 3 ? ldexpf(sign, -60 - (int)(other & 63)) : 0;
    case LARGE: return sign * ldexpf(unit, 127 - (int)(r >> 24 & 3));
    case NOT_FINITE: return i % 4 == 0 && r % 5 == 0 ? (r & 32 ? NAN : sign * INFINITY) : sign * unit;
    default: return of_bits((uint32_t)r);
    }
}

static void fill(float *x, enum kind kind, uint64_t seed, int shard, size_t count)
{
    for (size_t i = 0; i < count; i++) x[i] = number(kind, seed, shard, i);
}

/* ---- sums ---------------------------------------------------------------------------------------- */

enum { COUNT = 203, MOST_SHARDS = 9 };

static gm_accumulator *accumulator(size_t count, int n_shards, int quantum, int window)
{
    gm_accumulator        *acc;
    gm_accumulator_options options;
    gm_error               error;
    gm_accumulator_options_default(&options);
    options.count = count;
    options.n_shards = n_shards;
    options.quantum_exponent = quantum;
    options.window_bits = window;
    assert_ok(gm_accumulator_create(&acc, &options, &error));
    return acc;
}

static void expect(uint32_t *want, enum kind kind, uint64_t seed, int n_shards, size_t count)
{
    uint32_t bits[MOST_SHARDS];
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < n_shards; k++) bits[k] = bits_of(number(kind, seed, k, i));
        want[i] = oracle_exact_sum(bits, (size_t)n_shards);
    }
}

static void assert_same(const float *sum, const uint32_t *want, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (bits_of(sum[i]) == want[i]) continue;
        fail_msg("%s, element %zu: %#x, wanted %#x", what, i, bits_of(sum[i]), want[i]);
    }
}

/* Each kernel of this machine, at several windows. */
static void the_sum_is_the_exact_one_rounded_once(void **state)
{
    (void)state;
    static const int quanta[] = { -47, -44, -100, -126, -20, 10, 64 };
    float            x[COUNT], sum[COUNT];
    uint32_t         want[COUNT];
    for (int kind = 0; kind < KINDS; kind++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            int n_shards = 1 + (int)(seed % MOST_SHARDS), quantum = quanta[seed % TEST_COUNT(quanta)];
            expect(want, (enum kind)kind, seed, n_shards, COUNT);
            for (size_t k = 0; gmi_exact_kernels_row(k) != NULL; k++) {
                gm_accumulator *acc = accumulator(COUNT, n_shards, quantum, seed % 4 == 3 ? 43 : 51);
                acc->kernels = gmi_exact_kernels_row(k);
                for (int s = 0; s < n_shards; s++) {
                    fill(x, (enum kind)kind, seed, s, COUNT);
                    assert_ok(gm_accumulator_add(acc, s, x));
                }
                assert_ok(gm_accumulator_finish(acc, sum));
                assert_same(sum, want, COUNT, acc->kernels->name);
                gm_accumulator_destroy(acc);
            }
        }
    }
}

/* The oracle is the test's own; here another one, which cannot be wrong in the same way. */
static void it_agrees_with_quadruple_precision_where_that_is_exact(void **state)
{
    (void)state;
    float x[COUNT], sum[COUNT];
    for (uint64_t seed = 0; seed < 200; seed++) {
        __float128      exact[COUNT] = { 0 };
        gm_accumulator *acc = accumulator(COUNT, 7, -47, 51);
        for (int s = 0; s < 7; s++) {
            fill(x, seed % 2 ? GRADIENTS : TIES, seed, s, COUNT);
            if (seed % 2 == 0 && s == 2) memset(x, 0, sizeof x);
            for (int i = 0; i < COUNT; i++) exact[i] += x[i];
            assert_ok(gm_accumulator_add(acc, s, x));
        }
        assert_ok(gm_accumulator_finish(acc, sum));
        for (int i = 0; i < COUNT; i++) assert_int_equal(bits_of(sum[i]), bits_of((float)exact[i] + 0.0f));
        gm_accumulator_destroy(acc);
    }
}

/* ---- order, grouping, window ---------------------------------------------------------------------- */

static uint64_t hash_of(const float *sum, size_t count)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < count; i++) h = (h ^ bits_of(sum[i])) * UINT64_C(1099511628211);
    return h;
}

/* Parts of the sum by packing, as they travel: what `from` has is added to `to`. */
static void merge(gm_accumulator *to, gm_accumulator *from, bool is_raw)
{
    static uint8_t    packed[8 * (1 + 64 * 8)];
    struct gmi_shards shards;
    size_t            n_bytes = gmi_exact_pack(packed, from->lanes, from->n_blocks, is_raw);
    assert_true(n_bytes <= sizeof packed && gmi_exact_is_packed(packed, n_bytes, from->n_blocks));
    gmi_exact_unpack_add(to->lanes, to->lanes, packed, from->n_blocks);
    assert_true(gmi_spills_append(&to->spills, from->spills.at, from->spills.n));
    assert_int_equal(gmi_accumulator_shards(from, &shards), -1);
    for (int k = 0; k < from->options.n_shards; k++) {
        if (shards.words[k / 64] >> (k % 64) & 1) atomic_store(&to->added[k], to->options.count);
    }
}

/* Shards in a random order go to a random number of accumulators, which are merged one after another. */
static uint64_t sum_somehow(enum kind kind, struct gmi_rng *rng, int n_shards)
{
    static const int quanta[] = { -47, -44, -30, -60, -126, 10 };
    int             order[MOST_SHARDS], n_parts = 1 + (int)gmi_rng_next_below(rng, (uint64_t)n_shards);
    int             quantum = quanta[gmi_rng_next_below(rng, TEST_COUNT(quanta))];
    gm_accumulator *parts[MOST_SHARDS];
    float           x[COUNT], sum[COUNT];
    for (int p = 0; p < n_parts; p++) parts[p] = accumulator(COUNT, n_shards, quantum, 26 + (int)gmi_rng_next_below(rng, 26));
    for (int k = 0; k < n_shards; k++) {
        int at = (int)gmi_rng_next_below(rng, (uint64_t)k + 1);
        order[k] = order[at];
        order[at] = k;
    }
    for (int k = 0; k < n_shards; k++) {
        fill(x, kind, 5, order[k], COUNT);
        assert_ok(gm_accumulator_add(parts[gmi_rng_next_below(rng, (uint64_t)n_parts)], order[k], x));
    }
    for (int p = 1; p < n_parts; p++) merge(parts[0], parts[p], gmi_rng_next_below(rng, 4) == 0);
    assert_ok(gm_accumulator_finish(parts[0], sum));
    for (int p = 0; p < n_parts; p++) gm_accumulator_destroy(parts[p]);
    return hash_of(sum, COUNT);
}

static void a_thousand_orders_groupings_and_windows_give_one_hash(void **state)
{
    (void)state;
    static const enum kind kinds[] = { GRADIENTS, WIDE, CANCELLING, ANY_BITS };
    for (size_t k = 0; k < TEST_COUNT(kinds); k++) {
        struct gmi_rng rng = { .key = gmi_rng_key(9, k) };
        uint64_t       first = sum_somehow(kinds[k], &rng, MOST_SHARDS);
        for (int turn = 1; turn < 1000; turn++) assert_true(sum_somehow(kinds[k], &rng, MOST_SHARDS) == first);
    }
}

/* All the lanes can take: 4,096 times the largest number that fits, of either sign; and as many that do not. */
static void the_most_shards_do_not_overflow(void **state)
{
    (void)state;
    static const float largest[] = { 8 - 0x1p-21f, -8, 0x1.fffffep127f, -0x1p-149f };
    gm_accumulator    *acc = accumulator(4, GM_MAX_SHARDS, -47, 51);
    float              sum[4];
    for (int s = 0; s < GM_MAX_SHARDS; s++) assert_ok(gm_accumulator_add(acc, s, largest));
    assert_ok(gm_accumulator_finish(acc, sum));
    assert_true(sum[0] == 4096 * largest[0] && sum[1] == -32768 && sum[2] == INFINITY && sum[3] == -0x1p-137f);
    assert_int_equal(acc->spills.n, 2 * GM_MAX_SHARDS);
    gm_accumulator_destroy(acc);
}

/* ---- tiles ---------------------------------------------------------------------------------------- */

static void tiles_add_up_to_the_whole(void **state)
{
    (void)state;
    enum { ROWS = 13, COLUMNS = 29, FIRST = 5, N = FIRST + ROWS * COLUMNS + 1 };
    float           x[N], sum[N], tile[ROWS * 40];
    uint32_t        want[N];
    gm_accumulator *acc = accumulator(N, 2, -47, 51);
    expect(want, WIDE, 3, 2, N);
    fill(x, WIDE, 3, 1, N);
    for (size_t c = 0; c < COLUMNS; c += 10) {
        size_t n_columns = COLUMNS - c < 10 ? COLUMNS - c : 10;
        for (size_t r = 0; r < ROWS; r++) {
            for (size_t j = 0; j < n_columns; j++) tile[r * 40 + j] = x[FIRST + r * COLUMNS + c + j];
        }
        assert_ok(gm_accumulator_add_tile(acc, 1, tile, 40, FIRST + c, COLUMNS, ROWS, n_columns));
    }
    assert_status(gm_accumulator_finish(acc, sum), GM_ERR_STATE);
    assert_ok(gm_accumulator_add_tile(acc, 1, x, FIRST, 0, FIRST, 1, FIRST));
    assert_ok(gm_accumulator_add_tile(acc, 1, x + N - 1, 1, N - 1, 1, 1, 1));
    fill(x, WIDE, 3, 0, N);
    assert_ok(gm_accumulator_add(acc, 0, x));
    assert_ok(gm_accumulator_finish(acc, sum));
    assert_same(sum, want, N, "tiles");
    gm_accumulator_destroy(acc);
}

/* ---- floating-point modes ------------------------------------------------------------------------- */

#if defined(__x86_64__)
static void the_mode_of_the_thread_does_not_matter(void **state)
{
    (void)state;
    if (!test_follows_float_modes()) skip();
    float    x[COUNT], sum[COUNT];
    uint32_t want[COUNT];
    for (uint32_t mode = 0; mode < 4; mode++) { /* rounds down, up, to zero; and flushes subnormals, both ways */
        enum kind       kind = mode % 2 ? SUBNORMAL : GRADIENTS;
        gm_accumulator *acc = accumulator(COUNT, 3, -47, 51);
        expect(want, kind, mode, 3, COUNT);
        for (int s = 0; s < 3; s++) {
            fill(x, kind, mode, s, COUNT);
            __builtin_ia32_ldmxcsr(0x1f80 | mode << 13 | 0x8040);
            assert_ok(gm_accumulator_add(acc, s, x));
            assert_int_equal(__builtin_ia32_stmxcsr() & 0xe040, mode << 13 | 0x8040); /* is left as it was */
            __builtin_ia32_ldmxcsr(0x1f80);
        }
        __builtin_ia32_ldmxcsr(0x1f80 | mode << 13 | 0x8040);
        gm_status status = gm_accumulator_finish(acc, sum);
        __builtin_ia32_ldmxcsr(0x1f80);
        assert_ok(status);
        assert_same(sum, want, COUNT, "mode");
        gm_accumulator_destroy(acc);
    }
}
#endif

/* ---- packing --------------------------------------------------------------------------------------- */

static void lanes_of_every_width_come_back(void **state)
{
    (void)state;
    enum { BLOCKS = 3, N = BLOCKS * GMI_EXACT_BLOCK };
    uint64_t lanes[N], base[N], sum[N];
    uint8_t  packed[BLOCKS * (1 + 64 * 8)];
    for (unsigned w = 0; w <= 8; w++) {
        for (int side = -1; side <= 1; side++) { /* the least and the most that fit, and all between */
            int64_t most = w == 0 ? 0 : w == 8 ? INT64_MAX : (INT64_C(1) << (8 * w - 1)) - 1;
            for (size_t i = 0; i < N; i++) {
                uint64_t r = gmi_rng_u64(w, i);
                int64_t  between = w == 0 ? 0 : (int64_t)(r << (64 - 8 * w)) >> (64 - 8 * w);
                lanes[i] = (uint64_t)(side == 0 || i % 64 != 7 ? between : side < 0 ? -most - (w > 0) : most);
                base[i] = gmi_rng_u64(99, i);
            }
            size_t n_bytes = gmi_exact_pack(packed, lanes, BLOCKS, false);
            assert_int_equal(n_bytes, BLOCKS * (1 + 64 * w));
            assert_true(gmi_exact_is_packed(packed, n_bytes, BLOCKS));
            assert_false(gmi_exact_is_packed(packed, n_bytes + 1, BLOCKS));
            assert_false(gmi_exact_is_packed(packed, n_bytes - 1, BLOCKS));
            gmi_exact_unpack_add(sum, base, packed, BLOCKS);
            for (size_t i = 0; i < N; i++) assert_true(sum[i] == base[i] + lanes[i]);
            assert_int_equal(gmi_exact_pack(packed, lanes, BLOCKS, true), BLOCKS * (1 + 64 * 8));
            gmi_exact_unpack_add(base, base, packed, BLOCKS);
            for (size_t i = 0; i < N; i++) assert_true(sum[i] == base[i]);
        }
    }
    packed[1] = 9;
    assert_false(gmi_exact_is_packed(packed, sizeof packed, BLOCKS));
}

/* ---- mistakes -------------------------------------------------------------------------------------- */

static gm_status create(size_t count, int n_shards, int quantum, int window, gm_error *error)
{
    gm_accumulator        *acc;
    gm_accumulator_options options;
    gm_accumulator_options_default(&options);
    options.count = count, options.n_shards = n_shards, options.quantum_exponent = quantum, options.window_bits = window;
    gm_status status = gm_accumulator_create(&acc, &options, error);
    assert_true((acc == NULL) == (status != GM_OK) && error->status == status);
    gm_accumulator_destroy(acc);
    return status;
}

static void options_that_cannot_be_right_are_refused(void **state)
{
    (void)state;
    gm_error error;
    assert_ok(create(1, 1, -47, 51, &error));
    assert_status(create(0, 1, -47, 51, &error), GM_ERR_ARG);
    assert_status(create((size_t)UINT32_MAX + 1, 1, -47, 51, &error), GM_ERR_UNSUPPORTED);
    assert_status(create(1, 0, -47, 51, &error), GM_ERR_ARG);
    assert_status(create(1, 4097, -47, 51, &error), GM_ERR_UNSUPPORTED);
    assert_contains(error.text, "could overflow");
    assert_status(create(1, 1, -127, 51, &error), GM_ERR_ARG);
    assert_status(create(1, 1, 65, 51, &error), GM_ERR_ARG);
    assert_status(create(1, 1, -47, 52, &error), GM_ERR_ARG);
    assert_status(create(1, 1, -47, 25, &error), GM_ERR_ARG);
    gmi_alloc_fail_at(2);
    assert_status(create(1000, 4, -47, 51, &error), GM_ERR_NOMEM);
    gmi_alloc_fail_at(0);
}

static void a_shard_twice_or_missing_is_an_error_and_changes_nothing(void **state)
{
    (void)state;
    float           x[3] = { 1, 2, 3 }, sum[3] = { 0 };
    gm_accumulator *acc = accumulator(3, 2, -47, 51);
    assert_status(gm_accumulator_add(acc, 2, x), GM_ERR_ARG);
    assert_status(gm_accumulator_add(acc, -1, x), GM_ERR_ARG);
    assert_ok(gm_accumulator_add(acc, 1, x));
    assert_status(gm_accumulator_add(acc, 1, x), GM_ERR_STATE);
    assert_contains(gm_accumulator_error(acc)->text, "shard 1 of 2");
    assert_status(gm_accumulator_add_tile(acc, 1, x, 1, 0, 1, 1, 1), GM_ERR_STATE);
    assert_status(gm_accumulator_add_tile(acc, 0, x, 1, 3, 1, 1, 1), GM_ERR_ARG);
    assert_status(gm_accumulator_add_tile(acc, 0, x, 1, 2, SIZE_MAX / 2, 3, 1), GM_ERR_ARG);
    assert_status(gm_accumulator_add_tile(acc, 0, x, 2, 0, 1, 2, 2), GM_ERR_ARG); /* rows over each other */
    assert_status(gm_accumulator_finish(acc, sum), GM_ERR_STATE);
    assert_contains(gm_accumulator_error(acc)->text, "shard 0 of 2");
    assert_true(sum[0] == 0);
    assert_ok(gm_accumulator_add(acc, 0, x));
    assert_ok(gm_accumulator_finish(acc, sum));
    assert_true(sum[0] == 2 && sum[1] == 4 && sum[2] == 6);
    assert_ok(gm_accumulator_reset(acc));
    assert_status(gm_accumulator_finish(acc, sum), GM_ERR_STATE);
    gm_accumulator_destroy(acc);
}

static void spilled_numbers_are_counted(void **state)
{
    (void)state;
    float                x[4] = { 1, 100, NAN, 0x1p-48f };
    gm_accumulator      *acc = accumulator(4, 3, -47, 51);
    gm_accumulator_stats stats;
    assert_ok(gm_accumulator_add(acc, 0, x));
    assert_ok(gm_accumulator_reset(acc));
    assert_ok(gm_accumulator_add(acc, 0, x));
    assert_ok(gm_accumulator_add(acc, 2, x));
    assert_ok(gm_accumulator_get_stats(acc, &stats));
    assert_int_equal(stats.n_shards_added, 2);
    assert_int_equal(stats.spilled, 6);
    assert_int_equal(stats.spilled_ever, 9);
    assert_int_equal(stats.added_ever, 12);
    assert_true(stats.lane_bytes == 512 && stats.spill_bytes >= 6 * 8);
    gm_accumulator_destroy(acc);
}

static void without_memory_for_spilled_numbers_there_is_no_sum(void **state)
{
    (void)state;
    float           x[1] = { NAN }, sum[1];
    gm_accumulator *acc = accumulator(1, 1, -47, 51);
    gmi_alloc_fail_at(1);
    assert_status(gm_accumulator_add(acc, 0, x), GM_ERR_NOMEM);
    gmi_alloc_fail_at(0);
    assert_status(gm_accumulator_finish(acc, sum), GM_ERR_NOMEM);
    assert_ok(gm_accumulator_reset(acc));
    assert_ok(gm_accumulator_add(acc, 0, x));
    assert_ok(gm_accumulator_finish(acc, sum));
    gm_accumulator_destroy(acc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_is_the_exact_one_rounded_once),
        cmocka_unit_test(it_agrees_with_quadruple_precision_where_that_is_exact),
        cmocka_unit_test(a_thousand_orders_groupings_and_windows_give_one_hash),
        cmocka_unit_test(the_most_shards_do_not_overflow),
        cmocka_unit_test(tiles_add_up_to_the_whole),
#if defined(__x86_64__)
        cmocka_unit_test(the_mode_of_the_thread_does_not_matter),
#endif
        cmocka_unit_test(lanes_of_every_width_come_back),
        cmocka_unit_test(options_that_cannot_be_right_are_refused),
        cmocka_unit_test(a_shard_twice_or_missing_is_an_error_and_changes_nothing),
        cmocka_unit_test(spilled_numbers_are_counted),
        cmocka_unit_test(without_memory_for_spilled_numbers_there_is_no_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
