/* by_hand_test.c - reductions whose results anybody can compute, and that other libraries have got wrong: averages of
 * integers, halves that overflow on the way, small summands that vanish, NaN that is lost. Every algorithm that may
 * run them, in place, every element of every rank. No oracle: what must come out is written down. */
#include "tests/support/oracle.h"
#include "tests/support/sim.h"
#include "tests/support/test.h"

enum { MOST_RANKS = 8, COUNT = 2 * MOST_RANKS + 3 };

struct by_hand {
    gm_dtype dtype;
    gm_redop redop;
    int      n;
    uint64_t values[MOST_RANKS]; /* of each rank, in all its elements; as bits */
    uint64_t result;
};

static void check_rank(const struct sim *sim, const struct by_hand *h, const struct gmi_algo *row, int rank, const uint8_t *buffer)
{
    size_t bytes = gm_dtype_bytes(h->dtype), first = 0, n = COUNT;
    if (row->collective == GM_REDUCE_SCATTER) gm_chunk(COUNT, h->n, rank, &first, &n);
    for (size_t i = first; i < first + n; i++) {
        uint64_t have = oracle_load(buffer + i * bytes, h->dtype);
        if (have == h->result) continue;
        print_error("%s %s by %s %s: %#llx, not %#llx\n", gm_dtype_name(h->dtype), gm_redop_name(h->redop), row->name,
                    gm_collective_name(row->collective), (unsigned long long)have, (unsigned long long)h->result);
        sim_assert(sim, have == h->result);
    }
}

static void run_row(const struct by_hand *h, const struct gmi_algo *row)
{
    static struct sim sim;
    static uint8_t    buffers[MOST_RANKS][COUNT * 8];
    struct sim_plan   plan = { .n_ranks = h->n, .seed = 1, .capacity_bytes = 1000 };
    sim_init(&sim, &plan);
    for (int rank = 0; rank < h->n; rank++) {
        for (size_t i = 0; i < COUNT; i++) {
            oracle_store(buffers[rank] + i * gm_dtype_bytes(h->dtype), h->dtype, h->values[rank]);
        }
        struct gmi_request request = { .which = row->collective, .send = buffers[rank], .recv = buffers[rank], .count_elems = COUNT,
                                       .dtype = h->dtype, .redop = (int)h->redop, .root = -1 };
        sim_begin(&sim, rank, row, request);
    }
    sim_assert(&sim, sim_run(&sim));
    for (int rank = 0; rank < h->n; rank++) check_rank(&sim, h, row, rank, buffers[rank]);
    sim_fini(&sim);
}

static bool is_for(const struct gmi_algo *row, const struct by_hand *h)
{
    struct gmi_codec codec;
    assert_ok(gmi_codec_find(&codec, h->dtype, h->redop));
    bool is_reduction = row->collective == GM_ALL_REDUCE || row->collective == GM_REDUCE_SCATTER;
    return is_reduction && gmi_algo_serves(row, codec.needs) && (row->max_ranks == 0 || h->n <= row->max_ranks);
}

static void run(const struct by_hand *h)
{
    const struct gmi_algo *row;
    int                    n_rows = 0;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (!is_for(row, h)) continue;
        run_row(h, row);
        n_rows++;
    }
    assert_true(n_rows >= 3);
}

static void run_all(const struct by_hand *all, size_t n)
{
    for (size_t i = 0; i < n; i++) run(&all[i]);
}

/* ---- averages of integers ------------------------------------------------------------------------ */

#define I32(x) ((uint32_t)(int32_t)(x))

static void averages_of_integers_are_exact_and_rounded_to_the_nearest(void **state)
{
    (void)state;
    static const struct by_hand all[] = {
        { GM_I32, GM_AVG, 3, { 1, 2, 4 }, 2 },                          /* 2.33 */
        { GM_I32, GM_AVG, 2, { I32(-7), 2 }, I32(-2) },                 /* -2.5: to the even one */
        { GM_I32, GM_AVG, 2, { I32(-7), 0 }, I32(-4) },                 /* -3.5 */
        { GM_I32, GM_AVG, 2, { 1, 2 }, 2 },                             /* 1.5 */
        { GM_I32, GM_AVG, 2, { 0, 1 }, 0 },                             /* 0.5 */
        { GM_I32, GM_AVG, 3, { I32(-1), I32(-1), 0 }, I32(-1) },        /* -0.67 */
        { GM_I32, GM_AVG, 4, { INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX }, INT32_MAX },
        { GM_I32, GM_AVG, 4, { I32(INT32_MIN), I32(INT32_MIN), I32(INT32_MIN), I32(INT32_MIN) }, I32(INT32_MIN) },
        { GM_U8, GM_AVG, 3, { 255, 255, 255 }, 255 },
        { GM_U8, GM_AVG, 3, { 255, 255, 254 }, 255 },
        { GM_I8, GM_AVG, 2, { 0x80, 0x7f }, 0 },                        /* -0.5: to the even one */
        { GM_U32, GM_AVG, 3, { UINT32_MAX, UINT32_MAX, UINT32_MAX }, UINT32_MAX },
        { GM_I64, GM_AVG, 3, { INT64_MAX, INT64_MAX, INT64_MAX }, INT64_MAX },
        { GM_I64, GM_AVG, 2, { (uint64_t)INT64_MIN, (uint64_t)INT64_MIN }, (uint64_t)INT64_MIN },
        { GM_U64, GM_AVG, 8, { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX },
          UINT64_MAX },
    };
    run_all(all, TEST_COUNT(all));
}

static void sums_of_integers_wrap(void **state)
{
    (void)state;
    static const struct by_hand all[] = {
        { GM_U8, GM_SUM, 2, { 200, 100 }, 44 },
        { GM_I32, GM_SUM, 2, { INT32_MAX, 1 }, I32(INT32_MIN) },
        { GM_I32, GM_SUM, 3, { I32(INT32_MIN), I32(INT32_MIN), I32(-1) }, I32(-1) },
        { GM_I8, GM_PROD, 2, { 0x80, 0xff }, 0x80 },
        { GM_U64, GM_PROD, 2, { UINT64_MAX, UINT64_MAX }, 1 },
        { GM_I64, GM_SUM, 2, { INT64_MAX, INT64_MAX }, (uint64_t)-2 },
    };
    run_all(all, TEST_COUNT(all));
}

static void bits_are_combined(void **state)
{
    (void)state;
    static const struct by_hand all[] = {
        { GM_U8, GM_BAND, 3, { 0xf7, 0x3f, 0xfe }, 0x36 },
        { GM_U8, GM_BOR, 3, { 0x01, 0x10, 0x80 }, 0x91 },
        { GM_I32, GM_BXOR, 3, { I32(-1), 0x0ff0, 0xff }, I32(~0x0f0f) },
        { GM_U64, GM_BXOR, 2, { UINT64_MAX, UINT64_C(0x00ff00ff00ff00ff) }, UINT64_C(0xff00ff00ff00ff00) },
    };
    run_all(all, TEST_COUNT(all));
}

/* ---- halves -------------------------------------------------------------------------------------- */

static uint64_t f16(double x) { return oracle_bits(x, GM_F16); }
static uint64_t bf16(double x) { return oracle_bits(x, GM_BF16); }

static struct by_hand of_eight(gm_dtype dtype, gm_redop redop, uint64_t each, uint64_t result)
{
    struct by_hand h = { dtype, redop, 8, { 0 }, result };
    for (int k = 0; k < 8; k++) h.values[k] = each;
    return h;
}

static void an_average_of_halves_does_not_overflow_on_the_way(void **state)
{
    (void)state;
    struct by_hand all[] = {
        of_eight(GM_F16, GM_AVG, f16(16384), f16(16384)),
        of_eight(GM_F16, GM_SUM, f16(16384), 0x7c00), /* 131072 does not fit: Inf */
        of_eight(GM_F16, GM_AVG, 1, 1),               /* the smallest subnormal */
        of_eight(GM_F16, GM_AVG, f16(65504), f16(65504)),
        of_eight(GM_BF16, GM_AVG, 0x7f7f, 0x7f7f),    /* the largest numbers */
        of_eight(GM_BF16, GM_AVG, 1, 1),
    };
    run_all(all, TEST_COUNT(all));
    struct by_hand mixed = of_eight(GM_F16, GM_AVG, f16(-16000), f16(3000));
    for (int a = 0; a < 8; a++) {
        for (int b = 0; b < a; b++) {
            struct by_hand h = mixed;
            h.values[a] = h.values[b] = f16(60000); /* (2 * 60000 - 6 * 16000) / 8, and f16(60000) is exact */
            run(&h);
        }
    }
    struct by_hand two = { GM_BF16, GM_AVG, 2, { 0x7f7f, 0x7f7f }, 0x7f7f };
    run(&two);
}

/* 256 + 1 is 256 in bf16: adding one by one loses all seven. */
static void small_summands_are_not_lost_wherever_the_large_one_is(void **state)
{
    (void)state;
    assert_int_equal(bf16(256 + 1), bf16(256));
    assert_int_equal(bf16(263), bf16(264));
    for (int rank = 0; rank < 8; rank++) {
        struct by_hand h = of_eight(GM_BF16, GM_SUM, bf16(1), bf16(264));
        h.values[rank] = bf16(256);
        run(&h);
        h = of_eight(GM_F16, GM_SUM, f16(1), f16(2056)); /* exactly 2055: a tie, to the even one */
        h.values[rank] = f16(2048);
        run(&h);
    }
}

/* ---- NaN, zeros, infinities ---------------------------------------------------------------------- */

struct kind {
    gm_dtype dtype;
    uint64_t one, nan, odd_nan, inf, minus_inf, minus_zero;
};

static const struct kind kinds[] = {
    { GM_F32, 0x3f800000, 0x7fc00000, 0xff800001, 0x7f800000, 0xff800000, 0x80000000 },
    { GM_F64, UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff8000000000000), UINT64_C(0xfff0000000000001),
      UINT64_C(0x7ff0000000000000), UINT64_C(0xfff0000000000000), UINT64_C(0x8000000000000000) },
    { GM_F16, 0x3c00, 0x7e00, 0xfc01, 0x7c00, 0xfc00, 0x8000 },
    { GM_BF16, 0x3f80, 0x7fc0, 0xff81, 0x7f80, 0xff80, 0x8000 },
};

/* All ranks have `plain`, but one, each in turn, has `other`. */
static void run_with_one_other(const struct kind *kind, gm_redop redop, uint64_t plain, uint64_t other, uint64_t result)
{
    for (int n = 2; n <= 5; n++) {
        for (int rank = 0; rank < n; rank++) {
            struct by_hand h = of_eight(kind->dtype, redop, plain, result);
            h.n = n;
            h.values[rank] = other;
            run(&h);
        }
    }
}

static void no_nan_is_lost_whichever_rank_has_it(void **state)
{
    (void)state;
    static const gm_redop redops[] = { GM_SUM, GM_PROD, GM_MIN, GM_MAX, GM_AVG };
    for (size_t k = 0; k < TEST_COUNT(kinds); k++) {
        for (size_t r = 0; r < TEST_COUNT(redops); r++) {
            run_with_one_other(&kinds[k], redops[r], kinds[k].one, kinds[k].odd_nan, kinds[k].nan);
        }
    }
}

static void infinities_and_zeros_have_their_rules(void **state)
{
    (void)state;
    for (size_t k = 0; k < TEST_COUNT(kinds); k++) {
        const struct kind *kind = &kinds[k];
        run_with_one_other(kind, GM_SUM, kind->inf, kind->minus_inf, kind->nan);
        run_with_one_other(kind, GM_AVG, kind->inf, kind->minus_inf, kind->nan);
        run_with_one_other(kind, GM_SUM, kind->one, kind->inf, kind->inf);
        run_with_one_other(kind, GM_PROD, kind->inf, 0, kind->nan);
        run_with_one_other(kind, GM_MIN, kind->one, kind->minus_inf, kind->minus_inf);
        run_with_one_other(kind, GM_MIN, 0, kind->minus_zero, kind->minus_zero);
        run_with_one_other(kind, GM_MAX, kind->minus_zero, 0, 0);
        run_with_one_other(kind, GM_SUM, kind->minus_zero, kind->minus_zero, kind->minus_zero);
        run_with_one_other(kind, GM_SUM, kind->minus_zero, 0, 0);
        run_with_one_other(kind, GM_MAX, 1, 2, 2); /* subnormals */
        run_with_one_other(kind, GM_SUM, 0, 1, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_of_integers_are_exact_and_rounded_to_the_nearest),
        cmocka_unit_test(sums_of_integers_wrap),
        cmocka_unit_test(bits_are_combined),
        cmocka_unit_test(an_average_of_halves_does_not_overflow_on_the_way),
        cmocka_unit_test(small_summands_are_not_lost_wherever_the_large_one_is),
        cmocka_unit_test(no_nan_is_lost_whichever_rank_has_it),
        cmocka_unit_test(infinities_and_zeros_have_their_rules),
    };
    return cmocka_run_group_tests_name("by hand", tests, NULL, NULL);
}
