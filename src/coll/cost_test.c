/* The cost model: what it prefers where, and the constants that a profile may give it. */
#include "tests/support/test.h"

#include <string.h>

#include "coll/algo.h"
#include "coll/profile.h"
#include "coll/ring.h"

static const char *chosen(const struct gmi_costs *costs, gm_collective which, size_t bytes)
{
    return gmi_algo_choose("auto", which, costs, bytes, GMI_VIEW_PAIRS)->name;
}

/* A choice that goes back and forth would be a constant that makes no sense. */
static void few_turns_win_for_small_buffers_and_few_bytes_for_large_ones(void **state)
{
    (void)state;
    for (int kind = 0; kind < GMI_KINDS; kind++) {
        for (int n = 3; n <= 64; n++) {
            struct gmi_costs costs = gmi_costs_of_host(n, 2, (enum gmi_link_kind)kind);
            costs.profile.n_choices = 0; /* nothing was measured */
            if (kind == GMI_KIND_NETWORK) {
                costs.n_hosts = n;
                costs.most_on_a_host = 1;
            }
            const struct gmi_algo *small = gmi_algo_choose("auto", GM_ALL_REDUCE, &costs, 4, GMI_VIEW_PAIRS);
            const struct gmi_algo *large = gmi_algo_choose("auto", GM_ALL_REDUCE, &costs, (size_t)1 << 30, GMI_VIEW_PAIRS);
            assert_true(small->effort(n, 4).turns <= gmi_ring_all_reduce.effort(n, 4).turns);
            assert_true(large->effort(n, 1 << 30).all_bytes <= gmi_ring_all_reduce.effort(n, 1 << 30).all_bytes + 1);
        }
    }
}

/* The effort says what the byte formula says, summed up over all ranks. */
static void the_effort_of_every_row_moves_the_bytes_of_its_formula(void **state)
{
    (void)state;
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->effort == NULL || row->shows >= GMI_VIEW_LEAN || row->collective == GM_BARRIER) continue;
        for (int n = 2; n <= 16; n++) {
            size_t   elems = (size_t)n * 16 * 720720;
            uint64_t sum = 0;
            for (int rank = 0; rank < n; rank++) {
                struct gmi_shape shape = { .rank = rank, .n_ranks = n, .root = 0, .count_elems = elems, .elem_bytes = 4 };
                sum += row->payload_sent_bytes(&shape);
            }
            double all_bytes = row->effort(n, (double)elems * 4).all_bytes;
            double slack = row->collective == GM_GATHER || row->collective == GM_SCATTER ? 0.5 : 1e-6; /* of trees, about */
            if (all_bytes > (double)sum * (1 + slack) || all_bytes < (double)sum * (1 - slack)) {
                fail_msg("%s %s, %d ranks: effort %.0f, formula %.0f", gm_collective_name(row->collective), row->name, n,
                         all_bytes, (double)sum);
            }
        }
    }
}

static void the_choice_follows_the_constants(void **state)
{
    (void)state;
    struct gmi_costs       costs = gmi_costs_of_host(4, 2, GMI_KIND_LOOPBACK);
    struct gmi_link_costs *k = &costs.profile.kinds[GMI_KIND_LOOPBACK];
    costs.profile.n_choices = 0; /* nothing was measured */
    *k = (struct gmi_link_costs){ .turn_ns = 1000000000 };
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 1 << 20), "exchange");
    assert_string_equal(chosen(&costs, GM_BROADCAST, 1 << 20), "tree");
    *k = (struct gmi_link_costs){ .byte_ps = 1000, .keep_ps = 1000 };
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 1 << 20), "ring");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_turns_win_for_small_buffers_and_few_bytes_for_large_ones),
        cmocka_unit_test(the_effort_of_every_row_moves_the_bytes_of_its_formula),
        cmocka_unit_test(the_choice_follows_the_constants),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
