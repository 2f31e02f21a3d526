/* direct in worlds of more ranks than one round has transfers for. */
#include "coll/direct.h"
#include "coll/rounds.h"
#include "tests/support/test.h"
#include "tests/support/trial.h"

static const struct gmi_algo *const rows[] = { &gmi_direct_all_reduce, &gmi_direct_reduce_scatter, &gmi_direct_all_gather,
                                               &gmi_direct_reduce };

static void every_batch_boundary_gives_the_right_result_and_counts(void **state)
{
    (void)state;
    static struct sim   sim;
    static struct trial trial;
    const int           sizes[] = { GMI_MAX_TRANSFERS, GMI_MAX_TRANSFERS + 1, GMI_MAX_TRANSFERS + 2, 2 * GMI_MAX_TRANSFERS + 1,
                                    2 * GMI_MAX_TRANSFERS + 2, SIM_MAX_RANKS };
    for (size_t row = 0; row < TEST_COUNT(rows); row++) {
        for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
            struct sim_plan plan = { .n_ranks = sizes[i], .seed = i, .capacity_bytes = 100 + 60 * i, .max_move_bytes = 50 };
            sim_init(&sim, &plan);
            for (uint64_t k = 0; k < 4; k++) {
                struct trial_shape shape = { .algo = rows[row], .seed = k, .count_elems = (size_t)(k * k * 37 + k),
                                             .dtype = k % 2 ? GM_BF16 : GM_F32, .redop = k == 3 ? GM_AVG : GM_SUM,
                                             .is_in_place = k % 2 == 0 };
                trial_prepare(&trial, sizes[i], &shape);
                trial_run(&trial, &sim);
            }
            sim_fini(&sim);
        }
    }
    trial_fini(&trial);
}

static void all_ranks_together_send_as_much_as_by_the_ring(void **state)
{
    (void)state;
    for (int n = 2; n <= 40; n++) {
        for (size_t count = 0; count < 200; count += 13) {
            uint64_t total = 0;
            for (int rank = 0; rank < n; rank++) {
                struct gmi_shape shape = { .rank = rank, .n_ranks = n, .root = -1, .count_elems = count, .elem_bytes = 2 };
                total += gmi_direct_all_reduce.payload_sent_bytes(&shape);
            }
            assert_int_equal(total, 2 * (uint64_t)(n - 1) * count * 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_batch_boundary_gives_the_right_result_and_counts),
        cmocka_unit_test(all_ranks_together_send_as_much_as_by_the_ring),
    };
    return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}
