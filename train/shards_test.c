#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "train/shards.h"

static const size_t shard_counts[] = { 1, 2, 3, 8, 24, 48, 4096 };
static const int world_sizes[] = { 1, 2, 3, 4, 5, 7, 8, 16, 100 };

static void every_shard_has_one_rank_in_every_placement(void **state)
{
    (void)state;
    static uint32_t list[GMT_MAX_SHARDS];
    static int      owners[GMT_MAX_SHARDS];
    for (size_t i = 0; i < sizeof shard_counts / sizeof shard_counts[0]; i++)
        for (size_t w = 0; w < sizeof world_sizes / sizeof world_sizes[0]; w++)
            for (int placement = 0; placement < GMT_PLACEMENT_END; placement++) {
                size_t n_shards = shard_counts[i], n_placed = 0;
                memset(owners, 0xff, sizeof owners);
                for (int r = 0; r < world_sizes[w]; r++) {
                    size_t n = gmt_shards_of_rank(placement, 7, 3, n_shards, world_sizes[w], r, list);
                    n_placed += n;
                    for (size_t k = 0; k < n; k++) {
                        assert_true(list[k] < n_shards && (k == 0 || list[k - 1] < list[k]));
                        assert_int_equal(owners[list[k]], -1);
                        owners[list[k]] = r;
                        assert_int_equal(gmt_shard_owner(placement, 7, 3, n_shards, world_sizes[w], list[k]), r);
                    }
                }
                assert_int_equal(n_placed, n_shards);
            }
}

static void a_random_placement_is_another_one_in_the_next_step(void **state)
{
    (void)state;
    int n_moved = 0, n_empty = 0;
    uint32_t list[48];
    for (size_t v = 0; v < 48; v++)
        n_moved += gmt_shard_owner(GMT_PLACE_RANDOM, 1, 5, 48, 8, v) !=
                   gmt_shard_owner(GMT_PLACE_RANDOM, 1, 6, 48, 8, v);
    assert_true(n_moved > 24);
    for (int r = 0; r < 48; r++) n_empty += gmt_shards_of_rank(GMT_PLACE_RANDOM, 1, 5, 48, 48, r, list) == 0;
    assert_true(n_empty > 5);
}

static void the_default_leaves_sixteen_samples_to_a_shard(void **state)
{
    (void)state;
    static const size_t expected[][2] = { { 1, 1 },    { 31, 1 },   { 32, 2 },   { 64, 4 },   { 128, 8 },
                                          { 192, 12 }, { 384, 24 }, { 768, 48 }, { 1 << 20, 48 } };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(gmt_shards_default(expected[i][0]), expected[i][1]);
}

static void impossible_numbers_are_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        size_t      n_shards, batch;
        const char *says;
    } cases[] = { { 0, 64, "0 shards" },
                  { 65, 64, "65 shards of a batch of 64" },
                  { 4097, 10000, "1 to 4096" },
                  { 8, (1 << 24) + 1, "16777216" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gm_error error;
        gmi_error_clear(&error);
        assert_int_equal(gmt_shards_check(cases[i].n_shards, cases[i].batch, &error), GM_ERR_ARG);
        assert_non_null(strstr(error.text, cases[i].says));
    }
    assert_int_equal(gmt_shards_check(64, 64, NULL), GM_OK);
    assert_int_equal(gmt_shards_check(4096, 1 << 24, NULL), GM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shard_has_one_rank_in_every_placement),
        cmocka_unit_test(a_random_placement_is_another_one_in_the_next_step),
        cmocka_unit_test(the_default_leaves_sixteen_samples_to_a_shard),
        cmocka_unit_test(impossible_numbers_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
