/* layout_test.c - ranks are found by host and place, whatever the order of their hosts. */
#include "coll/layout.h"

#include "base/rng.h"
#include "tests/support/test.h"

static void hosts_are_numbered_by_their_first_ranks(void **state)
{
    (void)state;
    struct gmi_layout l;
    const uint64_t    ids[] = { 900, 900, 7, 7, 900 };
    assert_ok(gmi_layout_init(&l, ids, 5));
    const int host[] = { 0, 0, 1, 1, 0 }, place[] = { 0, 1, 0, 1, 2 };
    assert_int_equal(l.n_hosts, 2);
    assert_int_equal(l.least_on_a_host, 2);
    assert_memory_equal(l.host, host, sizeof host);
    assert_memory_equal(l.place, place, sizeof place);
    assert_int_equal(gmi_layout_host_ranks(&l, 0), 3);
    assert_int_equal(gmi_layout_rank(&l, 0, 2), 4);
    assert_int_equal(gmi_layout_rank(&l, 1, 1), 3);
    gmi_layout_fini(&l);
}

static void an_unknown_host_is_one_of_its_own(void **state)
{
    (void)state;
    struct gmi_layout l;
    const uint64_t    ids[] = { 0, 5, 0, 5 };
    assert_ok(gmi_layout_init(&l, ids, 4));
    assert_int_equal(l.n_hosts, 3);
    assert_int_equal(l.least_on_a_host, 1);
    assert_true(l.host[0] != l.host[2] && l.host[1] == l.host[3]);
    gmi_layout_fini(&l);
    gmi_layout_fini(&l);
}

static void every_rank_has_a_place_of_its_own(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct gmi_layout l;
        uint64_t          ids[50];
        int               n = 1 + (int)gmi_rng_below(1, seed, 50);
        for (int r = 0; r < n; r++) ids[r] = gmi_rng_below(seed, (uint64_t)r, 1 + seed % 13);
        assert_ok(gmi_layout_init(&l, ids, n));
        for (int r = 0; r < n; r++) {
            assert_int_equal(gmi_layout_rank(&l, l.host[r], l.place[r]), r);
            assert_true(gmi_layout_host_ranks(&l, l.host[r]) >= l.least_on_a_host);
            for (int q = 0; q < r; q++) {
                assert_int_equal(l.host[q] == l.host[r], ids[q] == ids[r] && ids[q] != 0);
                assert_true(l.host[q] != l.host[r] || l.place[q] < l.place[r]);
            }
        }
        gmi_layout_fini(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_numbered_by_their_first_ranks),
        cmocka_unit_test(an_unknown_host_is_one_of_its_own),
        cmocka_unit_test(every_rank_has_a_place_of_its_own),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
