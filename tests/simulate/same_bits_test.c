/* same_bits_test.c - results depend on values and on the number of ranks, never on timing; and NaN, zeros with
 * a sign, infinities and overflowing integers come out alike everywhere. */
#include <math.h>

#include "tests/support/trial.h"
#include "tests/support/test.h"

/* ---- timing -------------------------------------------------------------------------------------- */

static void run_shape(struct trial *t, struct sim *sim, uint64_t plan_seed, int n_ranks,
                      const struct trial_shape *shape)
{
    struct sim_plan plan = sim_random_plan(n_ranks, plan_seed);
    plan.layout_seed = shape->seed;
    sim_init(sim, &plan);
    trial_prepare(t, n_ranks, shape);
    for (int rank = 0; rank < n_ranks; rank++) trial_begin(t, sim, rank);
    sim_assert(sim, sim_run(sim));
}

/* All ranks' results one behind the other. */
static size_t gather_results(const struct trial *t, uint8_t *into)
{
    size_t used = 0, first, n;
    for (int rank = 0; rank < t->n_ranks; rank++) {
        const uint8_t *result = trial_result(t, rank, &first, &n);
        memcpy(into + used, result, n * t->elem_bytes);
        used += n * t->elem_bytes;
    }
    return used;
}

static void the_same_bits_whatever_the_timing(void **state)
{
    (void)state;
    static struct sim sim;
    static uint8_t    first_run[SIM_MAX_RANKS * 100 * 8], this_run[sizeof first_run];
    struct trial      trial = { 0 };
    static const gm_dtype dtypes[] = { GM_F32, GM_F64, GM_F32, GM_F16, GM_F64, GM_BF16, GM_I8 };
    uint64_t          n_timings = test_is_long() ? 100 : 4;
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (!trial_is_reduction(row)) continue;
        for (uint64_t s = 0; s < 20; s++) {
            int n_ranks = 2 + (int)(s % 5);
            struct trial_shape shape = { .algo = row, .count_elems = (size_t)gmi_rng_below(77, s, 100), .seed = s,
                                         .dtype = dtypes[s % TEST_COUNT(dtypes)], .redop = s % 7 ? GM_SUM : GM_AVG,
                                         .is_in_place = s % 2 == 1, .values = TRIAL_ROUGH, .root = (int)(s % 2) };
            size_t n_bytes = 0;
            if (trial_is_exact(row)) shape.dtype = GM_F32, shape.redop = GM_SUM_EXACT;
            if (!trial_is_offered(&shape)) continue;
            for (uint64_t timing = 0; timing < n_timings; timing++) {
                run_shape(&trial, &sim, 1000 * s + timing, n_ranks, &shape);
                n_bytes = gather_results(&trial, timing == 0 ? first_run : this_run);
                if (timing > 0) sim_assert(&sim, memcmp(first_run, this_run, n_bytes) == 0);
                sim_fini(&sim);
            }
        }
    }
    trial_fini(&trial);
}

/* ---- values that are not numbers, and the edges of those that are ---------------------------------- */

#define F32_MINUS_ZERO UINT64_C(0x80000000)
#define F32_INF UINT64_C(0x7f800000)
#define F32_MINUS_INF UINT64_C(0xff800000)
#define F64_MINUS_ZERO UINT64_C(0x8000000000000000)
#define F64_INF UINT64_C(0x7ff0000000000000)
#define F64_MINUS_INF UINT64_C(0xfff0000000000000)

struct special {
    gm_dtype dtype;
    uint64_t plain_bits, special_bits; /* of one rank */
};

static const struct special specials[] = {
    { GM_F32, 0x3f800000, 0x7fc00000 },      /* 1 and NaNs: quiet, with a payload, negative, signalling */
    { GM_F32, 0x3f800000, 0x7fc12345 },
    { GM_F32, 0x3f800000, 0xffc00001 },
    { GM_F32, 0x3f800000, 0x7f800001 },
    { GM_F32, 0x3f800000, 0xffbfffff },
    { GM_F32, 0x7fc00777, 0xffc00001 },      /* NaNs everywhere */
    { GM_F32, F32_INF, 0x7f800001 },
    { GM_F32, F32_INF, F32_MINUS_INF },      /* their sum is a NaN that nobody put in */
    { GM_F32, F32_MINUS_INF, 0x3f800000 },
    { GM_F32, 0, F32_MINUS_ZERO },
    { GM_F32, F32_MINUS_ZERO, 0 },
    { GM_F32, F32_MINUS_ZERO, F32_MINUS_ZERO },
    { GM_F32, 0x00000001, 0x80000001 },      /* subnormals stay */
    { GM_F32, 0x7f7fffff, 0x7f7fffff },      /* overflow to infinity */
    { GM_F64, UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff8000000000000) },
    { GM_F64, UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff8000000012345) },
    { GM_F64, UINT64_C(0x3ff0000000000000), UINT64_C(0xfff8000000000001) },
    { GM_F64, UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff0000000000001) },
    { GM_F64, UINT64_C(0xfff8000000000777), UINT64_C(0x7ff8000000000001) },
    { GM_F64, F64_INF, F64_MINUS_INF },
    { GM_F64, F64_MINUS_INF, UINT64_C(0x3ff0000000000000) },
    { GM_F64, 0, F64_MINUS_ZERO },
    { GM_F64, F64_MINUS_ZERO, 0 },
    { GM_F64, F64_MINUS_ZERO, F64_MINUS_ZERO },
    { GM_F64, 1, UINT64_C(0x8000000000000001) },
    { GM_F64, UINT64_C(0x7fefffffffffffff), UINT64_C(0x7fefffffffffffff) },
    { GM_I32, 0x7fffffff, 1 },               /* wrap around */
    { GM_I32, 0x80000000, 0xffffffff },
    { GM_I32, 0x80000000, 0x7fffffff },
    { GM_I64, UINT64_C(0x7fffffffffffffff), 1 },
    { GM_I64, UINT64_C(0x8000000000000000), UINT64_C(0xffffffffffffffff) },
    { GM_I64, UINT64_C(0x8000000000000000), UINT64_C(0x7fffffffffffffff) },
    { GM_I8, 0x7f, 1 },
    { GM_I8, 0x80, 0xff },
    { GM_U8, 0xff, 0xff },
    { GM_U8, 200, 100 },
    { GM_U32, 0xffffffff, 1 },
    { GM_U32, 0x80000000, 0x7fffffff },
    { GM_U64, UINT64_C(0xffffffffffffffff), 1 },
    { GM_U64, UINT64_C(0xffffffffffffffff), UINT64_C(0xfffffffffffffffe) },
    { GM_F16, 0x3c00, 0x7e00 },              /* 1 and NaNs, as above */
    { GM_F16, 0x3c00, 0x7e45 },
    { GM_F16, 0x3c00, 0xfe01 },
    { GM_F16, 0x3c00, 0x7c01 },
    { GM_F16, 0x3c00, 0xfdff },
    { GM_F16, 0x7e77, 0xfe01 },
    { GM_F16, 0x7c00, 0xfc00 },
    { GM_F16, 0xfc00, 0x3c00 },
    { GM_F16, 0, 0x8000 },
    { GM_F16, 0x8000, 0 },
    { GM_F16, 0x8000, 0x8000 },
    { GM_F16, 0x0001, 0x8001 },              /* subnormals */
    { GM_F16, 0x0001, 0x0001 },
    { GM_F16, 0x03ff, 0x0400 },
    { GM_F16, 0x7bff, 0x7bff },              /* overflow; an average does not */
    { GM_F16, 0x7bff, 0xfbff },
    { GM_BF16, 0x3f80, 0x7fc0 },
    { GM_BF16, 0x3f80, 0x7fc5 },
    { GM_BF16, 0x3f80, 0xffc1 },
    { GM_BF16, 0x3f80, 0x7f81 },
    { GM_BF16, 0x3f80, 0xffbf },
    { GM_BF16, 0x7fc7, 0xffc1 },
    { GM_BF16, 0x7f80, 0xff80 },
    { GM_BF16, 0xff80, 0x3f80 },
    { GM_BF16, 0, 0x8000 },
    { GM_BF16, 0x8000, 0 },
    { GM_BF16, 0x8000, 0x8000 },
    { GM_BF16, 0x0001, 0x8001 },
    { GM_BF16, 0x0001, 0x0001 },
    { GM_BF16, 0x007f, 0x0080 },
    { GM_BF16, 0x7f7f, 0x7f7f },
    { GM_BF16, 0x7f7f, 0xff7f },
};

static void try_special(struct trial *t, struct sim *sim, const struct gmi_algo *row, const struct special *special)
{
    int n_ranks = sim->plan.n_ranks;
    for (int redop = 0; redop < GM_REDOP_END; redop++) {
        for (int rank = 0; rank < n_ranks; rank++) {
            struct trial_shape shape = { .algo = row, .count_elems = (size_t)n_ranks + 2, .dtype = special->dtype,
                                         .redop = (gm_redop)redop, .values = TRIAL_SPECIAL, .special_rank = rank,
                                         .plain_bits = special->plain_bits, .special_bits = special->special_bits,
                                         .is_in_place = rank % 2 == 0 };
            if (!trial_is_offered(&shape)) continue;
            trial_prepare(t, n_ranks, &shape);
            trial_run(t, sim); /* against the oracle, so the same on all ranks and for all algorithms */
        }
    }
}

static void special_values_come_out_alike_from_every_rank_and_algorithm(void **state)
{
    (void)state;
    static struct sim      sim;
    struct trial           trial = { 0 };
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (!trial_is_reduction(row)) continue;
        for (int n_ranks = 2; n_ranks <= 5 && n_ranks <= TEST_MAX_RANKS; n_ranks++) {
            struct sim_plan plan = sim_random_plan(n_ranks, 5 + (uint64_t)n_ranks);
            plan.capacity_bytes = 500;
            sim_init(&sim, &plan);
            for (size_t s = 0; s < TEST_COUNT(specials); s++) try_special(&trial, &sim, row, &specials[s]);
            sim_fini(&sim);
        }
    }
    trial_fini(&trial);
}

/* The oracle above shares its idea of min and max with the test; here are a few results by hand. */
static uint64_t reduce_two(uint64_t a, uint64_t b, gm_dtype dtype, gm_redop redop)
{
    static struct sim  sim;
    struct trial       trial = { 0 };
    struct trial_shape shape = { .algo = gmi_algo_row(0), .count_elems = 1, .dtype = dtype, .redop = redop,
                                 .values = TRIAL_SPECIAL, .special_rank = 0, .special_bits = a, .plain_bits = b };
    uint64_t           result = 0;
    assert_int_equal(shape.algo->collective, GM_ALL_REDUCE);
    run_shape(&trial, &sim, 4, 2, &shape);
    memcpy(&result, trial.recv[1].bytes, trial.elem_bytes);
    sim_fini(&sim);
    trial_fini(&trial);
    return result;
}

static void a_few_results_by_hand(void **state)
{
    (void)state;
    const uint64_t one = 0x3f800000, two = 0x40000000, nan32 = 0x7fc00000;
    assert_true(reduce_two(one, one, GM_F32, GM_SUM) == two);
    assert_true(reduce_two(two, two, GM_F32, GM_AVG) == two);
    assert_true(reduce_two(one, 0xffc54321, GM_F32, GM_SUM) == nan32);
    assert_true(reduce_two(one, 0xffc54321, GM_F32, GM_MIN) == nan32);
    assert_true(reduce_two(0x7f800001, one, GM_F32, GM_MAX) == nan32);
    assert_true(reduce_two(0x7f800001, one, GM_F32, GM_AVG) == nan32);
    assert_true(reduce_two(F32_INF, F32_MINUS_INF, GM_F32, GM_SUM) == nan32);
    assert_true(reduce_two(0, F32_MINUS_ZERO, GM_F32, GM_MIN) == F32_MINUS_ZERO);
    assert_true(reduce_two(F32_MINUS_ZERO, 0, GM_F32, GM_MIN) == F32_MINUS_ZERO);
    assert_true(reduce_two(0, F32_MINUS_ZERO, GM_F32, GM_MAX) == 0);
    assert_true(reduce_two(F32_MINUS_ZERO, 0, GM_F32, GM_MAX) == 0);
    assert_true(reduce_two(F64_MINUS_ZERO, 0, GM_F64, GM_MIN) == F64_MINUS_ZERO);
    assert_true(reduce_two(0, F64_MINUS_ZERO, GM_F64, GM_MAX) == 0);
    assert_true(reduce_two(F64_INF, F64_MINUS_INF, GM_F64, GM_AVG) == UINT64_C(0x7ff8000000000000));
    assert_true(reduce_two(0x7fffffff, 1, GM_I32, GM_SUM) == 0x80000000);
    assert_true(reduce_two(UINT64_C(0x8000000000000000), UINT64_C(0xffffffffffffffff), GM_I64, GM_SUM) ==
                UINT64_C(0x7fffffffffffffff));
    assert_true(reduce_two(0xffffffff, 0, GM_I32, GM_MIN) == 0xffffffff);
    assert_true(reduce_two(0xffffffff, 0, GM_I32, GM_MAX) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_whatever_the_timing),
        cmocka_unit_test(special_values_come_out_alike_from_every_rank_and_algorithm),
        cmocka_unit_test(a_few_results_by_hand),
    };
    return cmocka_run_group_tests_name("same bits", tests, NULL, NULL);
}
