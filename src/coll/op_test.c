#include "base/rng.h"
#include "coll/algo.h"
#include "tests/support/test.h"

/* ---- chunks -------------------------------------------------------------------------------------- */

static void chunks_cover_everything_in_order_and_differ_by_one(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 100003, SIZE_MAX - 1, SIZE_MAX };
    for (int n = 1; n <= 17; n++) {
        for (size_t i = 0; i < TEST_COUNT(counts); i++) {
            size_t end = 0, longest = 0, shortest = SIZE_MAX, before = SIZE_MAX;
            for (int k = 0; k < n; k++) {
                size_t first, elems;
                gm_chunk(counts[i], n, k, &first, &elems);
                assert_true(first == end);
                assert_true(elems <= before); /* the longer ones first */
                end = first + elems;
                before = elems;
                longest = elems > longest ? elems : longest;
                shortest = elems < shortest ? elems : shortest;
            }
            assert_true(end == counts[i]);
            assert_true(longest - shortest <= 1);
        }
    }
}

/* ---- codecs of requests -------------------------------------------------------------------------- */

static gm_status choose(gm_collective which, int dtype, int redop)
{
    struct gmi_request request = { .which = which, .dtype = (gm_dtype)dtype, .redop = redop, .root = -1 };
    gm_status          status = gmi_request_choose_codec(&request);
    if (status == GM_OK) {
        assert_true(request.codec.elem_bytes > 0);
        bool does_combine = request.codec.combine != NULL || request.codec.combine_all != NULL ||
                            request.codec.needs == GMI_VIEW_EXACT;
        assert_true(does_combine == gmi_request_is_reduction(&request));
    }
    return status;
}

static void wrong_numbers_are_refused_and_never_run(void **state)
{
    (void)state;
    static const gm_collective reductions[] = { GM_ALL_REDUCE, GM_REDUCE_SCATTER };
    for (size_t i = 0; i < TEST_COUNT(reductions); i++) {
        for (int redop = 0; redop < GM_REDOP_END; redop++) {
            if (redop == GM_SUM_EXACT) continue;
            bool is_bitwise = redop == GM_BAND || redop == GM_BOR || redop == GM_BXOR;
            assert_status(choose(reductions[i], GM_F32, redop), is_bitwise ? GM_ERR_UNSUPPORTED : GM_OK);
            assert_status(choose(reductions[i], GM_BF16, redop), is_bitwise ? GM_ERR_UNSUPPORTED : GM_OK);
            assert_status(choose(reductions[i], GM_DTYPE_END, redop), GM_ERR_ARG);
            assert_status(choose(reductions[i], -1, redop), GM_ERR_ARG);
            assert_ok(choose(reductions[i], GM_I32, redop));
        }
        assert_status(choose(reductions[i], GM_F32, GM_SUM_EXACT), i == 0 ? GM_OK : GM_ERR_UNSUPPORTED);
        assert_status(choose(reductions[i], GM_F64, GM_SUM_EXACT), GM_ERR_UNSUPPORTED);
        assert_status(choose(reductions[i], GM_F32, -1), GM_ERR_ARG);
        assert_status(choose(reductions[i], GM_F32, GM_REDOP_END), GM_ERR_ARG);
        assert_status(choose(reductions[i], GM_F32, GM_REDOP_USER), GM_ERR_ARG); /* without its function */
        assert_status(choose(reductions[i], GM_F32, INT32_MIN), GM_ERR_ARG);
    }
    assert_ok(choose(GM_ALL_GATHER, GM_I64, -1));
    assert_status(choose(GM_ALL_GATHER, 77, -1), GM_ERR_ARG);
    assert_status(choose(GM_BROADCAST, -5, -1), GM_ERR_ARG);
    assert_ok(choose(GM_BARRIER, 0, -1));
}

/* ---- neighbours ---------------------------------------------------------------------------------- */

static void neighbours_are_counted_around_the_ring(void **state)
{
    (void)state;
    struct gmi_port  ports[5];
    struct gmi_group group = { .n_ranks = 5, .ports = ports };
    struct gmi_op    op = { .group = &group };
    for (group.rank = 0; group.rank < 5; group.rank++) {
        for (int distance = -4; distance <= 4; distance++) {
            int peer = ((group.rank + distance) % 5 + 5) % 5;
            assert_ptr_equal(gmi_op_neighbour(&op, distance), &ports[peer]);
        }
    }
}

/* ---- the table ----------------------------------------------------------------------------------- */

static void every_row_is_complete(void **state)
{
    (void)state;
    const struct gmi_algo *row, *other;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        assert_true(row->id != 0 && row->name != NULL && row->summary != NULL);
        assert_true(row->begin != NULL && row->progress != NULL && row->interest != NULL);
        assert_non_null(row->payload_sent_bytes);
        assert_true((row->effort != NULL) != (row->us != NULL));
        assert_true(gmi_algo_is_name(row->name));
        assert_string_equal(gmi_algo_name(row->id), row->name);
        for (size_t j = 0; j < i && (other = gmi_algo_row(j)) != NULL; j++) {
            assert_true((row->id == other->id) == (strcmp(row->name, other->name) == 0));
            bool is_same_use = row->collective == other->collective && gmi_algo_serves(row, other->shows);
            assert_false(row->id == other->id && is_same_use);
        }
    }
    assert_false(gmi_algo_is_name("hypercube"));
    assert_string_equal(gmi_algo_name(250), "?");
}

static void check_row(const struct gmi_algo *row, int which, int n, enum gmi_view needs)
{
    assert_non_null(row);
    assert_int_equal(row->collective, which);
    assert_true(row->max_ranks == 0 || n <= row->max_ranks);
    assert_true(gmi_algo_serves(row, needs));
}

static void every_collective_has_an_algorithm_whatever_is_forced(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 4096, 8192, 8193, 1 << 20, SIZE_MAX / 2 };
    for (int which = 0; which < GM_SEND; which++) {
        for (int n = 2; n < 40; n++) {
            struct gmi_costs costs = gmi_costs_of_host(n, 2, (enum gmi_link_kind)(n % GMI_KINDS));
            for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
                for (int needs = GMI_VIEW_PAIRS; needs <= GMI_VIEW_ALL; needs++) {
                    bool is_reduction = which == GM_ALL_REDUCE || which == GM_REDUCE_SCATTER || which == GM_REDUCE;
                    if (needs > GMI_VIEW_PAIRS && !is_reduction) continue;
                    enum gmi_view view = (enum gmi_view)needs;
                    check_row(gmi_algo_choose("auto", (gm_collective)which, &costs, sizes[i], view), which, n, view);
                    for (size_t k = 0; gmi_algo_row(k) != NULL; k++) {
                        const char *name = gmi_algo_row(k)->name;
                        check_row(gmi_algo_choose(name, (gm_collective)which, &costs, sizes[i], view), which, n, view);
                    }
                }
            }
        }
    }
}

static void a_forced_algorithm_runs_what_it_can_and_leaves_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char   *forced;
        enum gmi_view needs;
        const char   *taken;
    } cases[] = {
        { "ring", GMI_VIEW_PAIRS, "ring" },     { "ring", GMI_VIEW_ONCE, "ring" },
        { "naive", GMI_VIEW_ALL, "naive" },     { "direct", GMI_VIEW_ALL, "direct" },  { "doubling", GMI_VIEW_PAIRS, "doubling" },
        { "doubling", GMI_VIEW_ONCE, NULL },    { "doubling", GMI_VIEW_ALL, NULL },    { "ring", GMI_VIEW_ALL, NULL },
    }; /* NULL: another one that can */
    struct gmi_costs costs = gmi_costs_of_host(5, 2, GMI_KIND_LOOPBACK);
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        const struct gmi_algo *row = gmi_algo_choose(cases[i].forced, GM_ALL_REDUCE, &costs, 1 << 20, cases[i].needs);
        if (cases[i].taken == NULL) {
            assert_true(gmi_algo_serves(row, cases[i].needs) && strcmp(row->name, cases[i].forced) != 0);
        } else {
            assert_string_equal(row->name, cases[i].taken);
        }
    }
}

static const char *taken_for(size_t total_bytes, enum gmi_view needs, int n_ranks, int n_hosts)
{
    struct gmi_costs costs = gmi_costs_of_host(n_ranks, 2, n_hosts > 1 ? GMI_KIND_NETWORK : GMI_KIND_MEMORY);
    costs.n_hosts = n_hosts;
    costs.most_on_a_host = n_ranks / n_hosts;
    costs.n_cores = costs.most_on_a_host;
    costs.crowd = 1;
    costs.kind_within = GMI_KIND_MEMORY;
    return gmi_algo_choose("auto", GM_ALL_REDUCE, &costs, total_bytes, needs)->name;
}

static void large_all_reduces_go_inside_hosts_first_where_ranks_share_some_of_several(void **state)
{
    (void)state;
    for (int n_ranks = 4; n_ranks <= 16; n_ranks *= 2) {
        assert_string_equal(taken_for(25 << 20, GMI_VIEW_PAIRS, n_ranks, 2), "hierarchical");
        assert_string_equal(taken_for(1 << 20, GMI_VIEW_ONCE, n_ranks, 2), "hierarchical");
        assert_string_not_equal(taken_for(25 << 20, GMI_VIEW_ALL, n_ranks, 2), "hierarchical");
        assert_string_not_equal(taken_for(25 << 20, GMI_VIEW_PAIRS, n_ranks, 1), "hierarchical");
        assert_string_not_equal(taken_for(25 << 20, GMI_VIEW_PAIRS, n_ranks, n_ranks), "hierarchical");
        assert_string_not_equal(taken_for(256, GMI_VIEW_PAIRS, n_ranks, 2), "hierarchical");
    }
}

struct needs {
    int rank, n_ranks, count[64];
};

static void note_need(void *user, int peer)
{
    struct needs *needs = user;
    assert_in_range(peer, 0, needs->n_ranks - 1);
    assert_true(peer != needs->rank);
    needs->count[peer]++;
}

/* A link must be wanted by both its ends, or one would wait for it. */
static void needs_of_links_are_mutual(void **state)
{
    (void)state;
    static struct needs    all[64];
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->peers == NULL) continue;
        for (int n = 2; n <= 20; n++) {
            for (int root = 0; root < n && (row->max_ranks == 0 || n <= row->max_ranks); root++) {
                struct gmi_layout layout = { 0 };
                uint64_t          host_ids[64];
                for (int rank = 0; rank < n; rank++)
                    host_ids[rank] = 1 + gmi_rng_below((uint64_t)n, (uint64_t)rank, 1 + (uint64_t)root);
                assert_ok(gmi_layout_init(&layout, host_ids, n));
                memset(all, 0, sizeof all);
                for (int rank = 0; rank < n; rank++) {
                    all[rank].rank = rank;
                    all[rank].n_ranks = n;
                    struct gmi_shape shape = { .rank = rank, .n_ranks = n, .root = root, .layout = &layout };
                    row->peers(&shape, note_need, &all[rank]);
                }
                for (int a = 0; a < n; a++) {
                    for (int b = 0; b < n; b++) assert_true((all[a].count[b] > 0) == (all[b].count[a] > 0));
                }
                gmi_layout_fini(&layout);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_everything_in_order_and_differ_by_one),
        cmocka_unit_test(wrong_numbers_are_refused_and_never_run),
        cmocka_unit_test(neighbours_are_counted_around_the_ring),
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(every_collective_has_an_algorithm_whatever_is_forced),
        cmocka_unit_test(a_forced_algorithm_runs_what_it_can_and_leaves_the_rest),
        cmocka_unit_test(large_all_reduces_go_inside_hosts_first_where_ranks_share_some_of_several),
        cmocka_unit_test(needs_of_links_are_mutual),
    };
    return cmocka_run_group_tests_name("op", tests, NULL, NULL);
}
