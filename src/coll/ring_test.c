#include "coll/ring.h"
#include "tests/support/trial.h"
#include "tests/support/test.h"

/* ---- the schedule -------------------------------------------------------------------------------- */

static void every_step_moves_every_chunk_once(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        for (int step = 0; step < 2 * n; step++) {
            int n_senders[9] = { 0 };
            for (int rank = 0; rank < n; rank++) {
                int chunk = gmi_ring_chunk(rank, n, step);
                assert_in_range(chunk, 0, n - 1);
                n_senders[chunk]++;
            }
            for (int k = 0; k < n; k++) assert_int_equal(n_senders[k], 1);
        }
    }
}

static void what_arrives_in_one_step_leaves_in_the_next(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        for (int step = 0; step < 2 * n; step++) {
            for (int rank = 0; rank < n; rank++) {
                int left = (rank + n - 1) % n;
                assert_int_equal(gmi_ring_chunk(left, n, step), gmi_ring_chunk(rank, n, step + 1));
            }
        }
    }
}

static void a_rank_owns_its_chunk_after_the_reduce_scatter(void **state)
{
    (void)state;
    for (int n = 2; n <= 9; n++) {
        for (int rank = 0; rank < n; rank++) {
            /* The last arrival of the reduce-scatter is the first chunk that the all-gather sends. */
            assert_int_equal(gmi_ring_chunk(rank, n, n - 1), rank);
            /* Its own chunk leaves last of all, from its right neighbour. */
            assert_int_equal(gmi_ring_chunk((rank + 1) % n, n, 0), rank);
        }
    }
}

static void the_schedule_of_four_is_the_one_that_is_drawn(void **state)
{
    (void)state;
    static const int drawn[4][6] = {
        { 3, 2, 1, 0, 3, 2 }, { 0, 3, 2, 1, 0, 3 }, { 1, 0, 3, 2, 1, 0 }, { 2, 1, 0, 3, 2, 1 }
    };
    for (int rank = 0; rank < 4; rank++) {
        for (int step = 0; step < 6; step++) assert_int_equal(gmi_ring_chunk(rank, 4, step), drawn[rank][step]);
    }
}

/* ---- what it costs ------------------------------------------------------------------------------- */

static void all_ranks_together_send_2_n_minus_1_times_the_data(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 2, 5, 6, 7, 8, 9, 10, 31, 1000, 100003, SIZE_MAX / 64 };
    for (int n = 2; n <= 9; n++) {
        for (size_t i = 0; i < TEST_COUNT(counts); i++) {
            unsigned __int128 total = 0;
            for (int rank = 0; rank < n; rank++) {
                size_t first, own, next;
                gm_chunk(counts[i], n, rank, &first, &own);
                gm_chunk(counts[i], n, (rank + 1) % n, &first, &next);
                struct gmi_shape shape = { .rank = rank, .n_ranks = n, .root = -1, .count_elems = counts[i], .elem_bytes = 4 };
                uint64_t bytes = gmi_ring_all_reduce.payload_sent_bytes(&shape);
                assert_true(bytes == 2 * (uint64_t)counts[i] * 4 - (uint64_t)own * 4 - (uint64_t)next * 4);
                total += bytes;
            }
            assert_true(total == (unsigned __int128)2 * (unsigned)(n - 1) * counts[i] * 4);
        }
    }
}

/* ---- steps as the user sees them ----------------------------------------------------------------- */

static void check_steps(const struct gmi_algo *algo)
{
    struct sim_plan    plan = { .n_ranks = 3, .seed = 1, .capacity_bytes = 4, .max_move_bytes = 1 };
    struct trial_shape shape = { .algo = algo, .count_elems = 7, .dtype = GM_F32, .redop = GM_SUM };
    struct trial       trial = { 0 };
    static struct sim  sim;
    sim_init(&sim, &plan);
    trial_prepare(&trial, 3, &shape);
    for (int rank = 0; rank < 3; rank++) {
        trial_begin(&trial, &sim, rank);
        assert_int_equal(sim.ranks[rank].op.step, 0);
    }
    int highest = 0;
    for (int turn = 0; turn < 10000; turn++) {
        struct sim_rank *r = &sim.ranks[turn % 3];
        struct gmi_op   *op = &r->op;
        if (r->status == GM_AGAIN) r->status = gmi_op_progress(op);
        assert_in_range(op->step, 0, op->n_steps - 1);
        if (op->step > highest) highest = op->step;
    }
    assert_int_equal(highest, sim.ranks[0].op.n_steps - 1);
    for (int rank = 0; rank < 3; rank++) assert_ok(sim.ranks[rank].status);
    trial_fini(&trial);
    sim_fini(&sim);
}

static void steps_are_counted_from_0_in_every_collective(void **state)
{
    (void)state;
    check_steps(&gmi_ring_all_reduce);
    check_steps(&gmi_ring_reduce_scatter);
    check_steps(&gmi_ring_all_gather);
    check_steps(&gmi_ring_barrier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_moves_every_chunk_once),
        cmocka_unit_test(what_arrives_in_one_step_leaves_in_the_next),
        cmocka_unit_test(a_rank_owns_its_chunk_after_the_reduce_scatter),
        cmocka_unit_test(the_schedule_of_four_is_the_one_that_is_drawn),
        cmocka_unit_test(all_ranks_together_send_2_n_minus_1_times_the_data),
        cmocka_unit_test(steps_are_counted_from_0_in_every_collective),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
