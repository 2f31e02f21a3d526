/* The order of samples: each one once an epoch, the same for every world size and on every machine.
 */
#include "train/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"

static struct gmt_sampler make(uint64_t seed, size_t n_samples, size_t batch_samples)
{
    struct gmt_sampler sampler;
    gm_error error;
    if (gmt_sampler_init(&sampler, seed, n_samples, batch_samples, &error) != GM_OK) {
        fail_msg("%s", error.text);
    }
    return sampler;
}

/* Writes an epoch as a world sees it, share after share; returns the number of samples. */
static size_t play_epoch(struct gmt_sampler *sampler, uint64_t epoch, int world_size,
                         uint32_t *order)
{
    size_t n = 0;
    for (uint64_t batch = 0; batch < gmt_sampler_n_batches(sampler); batch++) {
        size_t in_batch = 0;
        for (int rank = 0; rank < world_size; rank++) {
            struct gmt_cursor cursor = { epoch, batch };
            struct gmt_share share = gmt_sampler_share(sampler, cursor, world_size, rank);
            memcpy(order + n + in_batch, share.indices, share.n_samples * sizeof *order);
            in_batch += share.n_samples;
            assert_true(in_batch <= share.batch_samples);
            assert_true(share.batch_samples <= sampler->batch_samples);
            if (rank == world_size - 1) assert_int_equal(in_batch, share.batch_samples);
        }
        n += in_batch;
    }
    return n;
}

static void each_sample_is_used_once_an_epoch(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 2, 7, 64, 100, 1000, 1009 },
                        batches[] = { 1, 3, 8, 64, 5000 };
    uint32_t order[1009];
    int used[1009];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            struct gmt_sampler sampler = make(5, sizes[s], batches[b]);
            for (int world_size = 1; world_size <= 8; world_size++) {
                memset(used, 0, sizeof used);
                assert_int_equal(play_epoch(&sampler, 3, world_size, order), sizes[s]);
                for (size_t i = 0; i < sizes[s]; i++) {
                    assert_true(order[i] < sizes[s]);
                    used[order[i]]++;
                }
                for (size_t i = 0; i < sizes[s]; i++) assert_int_equal(used[i], 1);
            }
            gmt_sampler_fini(&sampler);
        }
    }
}

static void every_world_size_sees_the_same_batches(void **state)
{
    (void)state;
    uint32_t alone[997], together[997];
    struct gmt_sampler sampler = make(9, 997, 60);
    assert_int_equal(play_epoch(&sampler, 2, 1, alone), 997);
    for (int world_size = 2; world_size <= 64; world_size++) {
        assert_int_equal(play_epoch(&sampler, 2, world_size, together), 997);
        assert_memory_equal(alone, together, sizeof alone);
    }
    gmt_sampler_fini(&sampler);
}

static void shares_are_the_chunks_of_the_library(void **state)
{
    (void)state;
    struct gmt_sampler sampler = make(1, 103, 20);
    for (uint64_t batch = 0; batch < 6; batch++) {
        struct gmt_cursor cursor = { 0, batch };
        struct gmt_share whole = gmt_sampler_share(&sampler, cursor, 1, 0);
        assert_int_equal(whole.n_samples, batch < 5 ? 20 : 3);
        for (int rank = 0; rank < 7; rank++) {
            size_t first, n;
            gm_chunk(whole.n_samples, 7, rank, &first, &n);
            struct gmt_share share = gmt_sampler_share(&sampler, cursor, 7, rank);
            assert_int_equal(share.n_samples, n);
            assert_ptr_equal(share.indices, whole.indices + first);
        }
    }
    gmt_sampler_fini(&sampler);
}

/* The epoch alone decides, not what was played before it. */
static void an_epoch_does_not_depend_on_the_one_before(void **state)
{
    (void)state;
    uint32_t first[100], again[100], other[100];
    struct gmt_sampler a = make(7, 100, 10), b = make(7, 100, 33);
    play_epoch(&a, 5, 1, first);
    play_epoch(&b, 4, 1, other);
    play_epoch(&b, 5, 1, again); /* other batches, same order */
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    play_epoch(&a, 0, 1, other);
    play_epoch(&a, 5, 1, again);
    assert_memory_equal(first, again, sizeof first);
    gmt_sampler_fini(&a);
    gmt_sampler_fini(&b);
    a = make(8, 100, 10);
    play_epoch(&a, 5, 1, other);
    assert_memory_not_equal(first, other, sizeof first);
    gmt_sampler_fini(&a);
}

/* Written down once: a checkpoint of today must find the same order tomorrow and elsewhere. */
static void the_order_is_written_in_stone(void **state)
{
    (void)state;
    static const uint32_t expected[] = { 11, 10, 3, 0, 8, 7, 9, 1, 5, 4, 6, 2 };
    uint32_t order[12];
    struct gmt_sampler sampler = make(42, 12, 5);
    play_epoch(&sampler, 1, 3, order);
    for (int i = 0; i < 12; i++) assert_int_equal(order[i], expected[i]);
    gmt_sampler_fini(&sampler);
}

/* Every sample comes to every place about equally often: 20,000 shuffles of 8, chi-square of 49
 * degrees of freedom, whose 99.9999 % quantile is 107. */
static void the_shuffle_is_even(void **state)
{
    (void)state;
    enum { N = 8, EPOCHS = 20000 };
    int count[N][N] = { { 0 } };
    double chi_square = 0, expected = (double)EPOCHS / N;
    struct gmt_sampler sampler = make(3, N, N);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        struct gmt_cursor cursor = { (uint64_t)epoch, 0 };
        struct gmt_share share = gmt_sampler_share(&sampler, cursor, 1, 0);
        for (int place = 0; place < N; place++) count[share.indices[place]][place]++;
    }
    for (int i = 0; i < N; i++) {
        for (int place = 0; place < N; place++) {
            double off = count[i][place] - expected;
            chi_square += off * off / expected;
        }
    }
    if (chi_square > 107) fail_msg("chi-square is %.1f", chi_square);
    gmt_sampler_fini(&sampler);
}

static void cursors_count_steps_and_back(void **state)
{
    (void)state;
    struct gmt_sampler sampler = make(1, 103, 20);
    struct gmt_cursor cursor = { 0, 0 };
    assert_int_equal(gmt_sampler_n_batches(&sampler), 6);
    for (uint64_t step = 0; step < 20; step++) {
        struct gmt_cursor there = gmt_cursor_at_step(&sampler, step);
        assert_int_equal(gmt_cursor_steps(&sampler, cursor), step);
        assert_true(gmt_cursor_is_valid(&sampler, cursor));
        assert_int_equal(there.epoch, cursor.epoch);
        assert_int_equal(there.batch, cursor.batch);
        assert_int_equal(cursor.epoch, step / 6);
        cursor = gmt_cursor_next(&sampler, cursor);
    }
    assert_false(gmt_cursor_is_valid(&sampler, (struct gmt_cursor){ 0, 6 }));
    assert_false(gmt_cursor_is_valid(&sampler, (struct gmt_cursor){ UINT64_MAX, 0 }));
    assert_false(gmt_cursor_is_valid(&sampler, (struct gmt_cursor){ 0, UINT64_MAX }));
    gmt_sampler_fini(&sampler);
}

/* A run that stops after some step and goes on with another number of workers uses the same
 * samples. */
static void resuming_elsewhere_uses_what_is_left(void **state)
{
    (void)state;
    int used[50] = { 0 };
    struct gmt_sampler sampler = make(4, 50, 8);
    struct gmt_cursor cursor = { 6, 0 };
    for (int step = 0; step < 7; step++) {
        int world_size = step < 3 ? 3 : 5; /* stopped after three */
        for (int rank = 0; rank < world_size; rank++) {
            struct gmt_share share = gmt_sampler_share(&sampler, cursor, world_size, rank);
            for (size_t i = 0; i < share.n_samples; i++) used[share.indices[i]]++;
        }
        cursor = gmt_cursor_next(&sampler, cursor);
        if (step == 2) {
            gmt_sampler_fini(&sampler);
            sampler = make(4, 50, 8);
        }
    }
    assert_int_equal(cursor.epoch, 7);
    assert_int_equal(cursor.batch, 0);
    for (int i = 0; i < 50; i++) assert_int_equal(used[i], 1);
    gmt_sampler_fini(&sampler);
}

static void wrong_sizes_and_no_memory_are_refused(void **state)
{
    (void)state;
    struct gmt_sampler sampler;
    gm_error error;
    assert_int_equal(gmt_sampler_init(&sampler, 0, 0, 1, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "0 samples"));
    assert_int_equal(gmt_sampler_init(&sampler, 0, 1, 0, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "batch"));
    assert_int_equal(gmt_sampler_init(&sampler, 0, (size_t)UINT32_MAX + 1, 1, &error), GM_ERR_ARG);
    gmi_alloc_fail_at(1);
    assert_int_equal(gmt_sampler_init(&sampler, 0, 10, 1, &error), GM_ERR_NOMEM);
    gmi_alloc_fail_at(0);
    gmt_sampler_fini(&sampler);
    gmt_sampler_fini(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_used_once_an_epoch),
        cmocka_unit_test(every_world_size_sees_the_same_batches),
        cmocka_unit_test(shares_are_the_chunks_of_the_library),
        cmocka_unit_test(an_epoch_does_not_depend_on_the_one_before),
        cmocka_unit_test(the_order_is_written_in_stone),
        cmocka_unit_test(the_shuffle_is_even),
        cmocka_unit_test(cursors_count_steps_and_back),
        cmocka_unit_test(resuming_elsewhere_uses_what_is_left),
        cmocka_unit_test(wrong_sizes_and_no_memory_are_refused),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
