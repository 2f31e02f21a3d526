/* Profiles: what they may say, what is refused, and what the choice makes of it. */
#include "coll/profile.h"

#include <string.h>

#include "coll/algo.h"
#include "tests/support/test.h"

static struct gmi_profile builtin(void)
{
    struct gmi_profile p;
    gmi_profile_builtin(&p);
    return p;
}

static void read_lines(struct gmi_profile *p, const char *lines)
{
    char        text[1024];
    const char *why;
    snprintf(text, sizeof text, "%s", lines);
    int bad_line = gmi_profile_read(p, text, &why);
    if (bad_line != 0) fail_msg("line %d of '%s': %s", bad_line, lines, why);
}

static const char *chosen(const struct gmi_costs *costs, gm_collective which, size_t bytes, enum gmi_view needs)
{
    return gmi_algo_choose("auto", which, costs, bytes, needs)->name;
}

static void a_profile_changes_the_constants_that_it_names(void **state)
{
    (void)state;
    struct gmi_profile p = builtin(), before = p;
    read_lines(&p, "# a slow network\n\nnetwork.byte_ps=8000\nnetwork.turn_ns=100000 \r\nplan.flops=1e9\n");
    assert_int_equal(p.kinds[GMI_KIND_NETWORK].byte_ps, 8000);
    assert_int_equal(p.kinds[GMI_KIND_NETWORK].turn_ns, 100000);
    assert_int_equal(p.kinds[GMI_KIND_NETWORK].message_ns, before.kinds[GMI_KIND_NETWORK].message_ns);
    assert_memory_equal(&p.kinds[GMI_KIND_MEMORY], &before.kinds[GMI_KIND_MEMORY], sizeof p.kinds[0]);
}

static void a_wrong_line_of_a_profile_is_named(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        { "network.byte_ps", "KIND.CONSTANT=NUMBER" }, { "network.byte_ps=", "KIND.CONSTANT=NUMBER" },
        { "network.byte_ps=-1", "KIND.CONSTANT=NUMBER" }, { "network.byte_ps=1.5", "KIND.CONSTANT=NUMBER" },
        { "network.byte_ps=4294967296", "KIND.CONSTANT=NUMBER" }, { "network.bytes=1", "KIND.CONSTANT=NUMBER" },
        { "loopback.=3", "KIND.CONSTANT=NUMBER" }, { "hello", "KIND.CONSTANT=NUMBER" },
        { "loopback.4.all_reduce=ring", "a choice is" }, { "loopback.4on.all_reduce=ring", "a choice is" },
        { "loopback.0on2.all_reduce=ring", "a choice is" }, { "loopback.70000on2.all_reduce=ring", "a choice is" },
        { "loopback.4on2=ring", "a choice is" }, { "loopback.4on2.all_produce=ring", "no such collective" },
        { "loopback.4on2.send=ring", "no such collective" }, { "loopback.4on2.all_reduce=", "no such algorithm" },
        { "loopback.4on2.all_reduce=bruck", "no such algorithm" }, { "loopback.4on2.all_reduce=ring,", "sizes must rise" },
        { "loopback.4on2.all_reduce=ring:100", "sizes must rise" }, { "loopback.4on2.all_reduce=ring,naive", "sizes must rise" },
        { "loopback.4on2.all_reduce=ring:9,naive:9,ring", "sizes must rise" },
        { "loopback.4on2.all_reduce=ring:x,naive", "sizes must rise" },
    };
    for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
        char               text[100];
        const char        *why;
        struct gmi_profile p = builtin();
        snprintf(text, sizeof text, "memory.turn_ns=1\n%s\n", wrong[i][0]);
        if (gmi_profile_read(&p, text, &why) != 2) fail_msg("'%s' was taken", wrong[i][0]);
        if (strstr(why, wrong[i][1]) == NULL) fail_msg("'%s': %s", wrong[i][0], why);
    }
}

static void what_was_measured_is_chosen_there_and_nowhere_else(void **state)
{
    (void)state;
    struct gmi_costs costs = gmi_costs_of_host(4, 2, GMI_KIND_LOOPBACK);
    costs.profile.n_choices = 0;
    const char *model = chosen(&costs, GM_ALL_REDUCE, 5000, GMI_VIEW_PAIRS);
    read_lines(&costs.profile, "loopback.4on2.all_reduce=naive:4096,direct:8192,exchange\nloopback.4on2.broadcast=tree\n");
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 0, GMI_VIEW_PAIRS), "naive");
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 4096, GMI_VIEW_PAIRS), "naive");
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 4097, GMI_VIEW_PAIRS), "direct");
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, (size_t)1 << 40, GMI_VIEW_PAIRS), "exchange");
    costs.n_cores = 4; /* more cores, more ranks, another kind, another collective */
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 5000, GMI_VIEW_PAIRS), model);
    costs.n_cores = 2;
    costs.kind = GMI_KIND_MEMORY;
    assert_string_not_equal(chosen(&costs, GM_ALL_REDUCE, 0, GMI_VIEW_PAIRS), "naive");
    costs.kind = GMI_KIND_LOOPBACK;
    costs.n_hosts = 2;
    assert_string_not_equal(chosen(&costs, GM_ALL_REDUCE, 0, GMI_VIEW_PAIRS), "naive");
}

/* Two ranks cannot use more than two cores. */
static void cores_that_no_rank_could_use_do_not_count(void **state)
{
    (void)state;
    for (int n_cores = 2; n_cores <= 64; n_cores *= 2) {
        struct gmi_costs costs = gmi_costs_of_host(2, n_cores, GMI_KIND_MEMORY);
        read_lines(&costs.profile, "memory.2on2.all_reduce=naive\n");
        assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 1 << 20, GMI_VIEW_PAIRS), "naive");
    }
}

/* An f16 sum must see all contributions; the ring shows partial ones. */
static void what_a_reduction_needs_counts_more_than_what_was_measured(void **state)
{
    (void)state;
    struct gmi_costs costs = gmi_costs_of_host(4, 2, GMI_KIND_LOOPBACK);
    read_lines(&costs.profile, "loopback.4on2.all_reduce=exchange:4096,ring\n");
    for (enum gmi_view needs = GMI_VIEW_PAIRS; needs <= GMI_VIEW_EXACT; needs++) {
        for (size_t bytes = 4; bytes <= (size_t)1 << 26; bytes *= 4) {
            assert_true(gmi_algo_serves(gmi_algo_choose("auto", GM_ALL_REDUCE, &costs, bytes, needs), needs));
        }
    }
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 1 << 20, GMI_VIEW_ONCE), "ring");
    assert_string_equal(chosen(&costs, GM_ALL_REDUCE, 4, GMI_VIEW_ALL), "exchange");
}

static void a_forced_algorithm_counts_more_than_what_was_measured(void **state)
{
    (void)state;
    struct gmi_costs costs = gmi_costs_of_host(4, 2, GMI_KIND_LOOPBACK);
    read_lines(&costs.profile, "loopback.4on2.all_reduce=naive\n");
    assert_string_equal(gmi_algo_choose("ring", GM_ALL_REDUCE, &costs, 4, GMI_VIEW_PAIRS)->name, "ring");
}

/* Choices belong to the constants that they were measured beside. */
static void a_profile_takes_the_choices_away_of_the_kinds_that_it_speaks_of(void **state)
{
    (void)state;
    struct gmi_profile p = builtin();
    struct gmi_site   memory = { GMI_KIND_MEMORY, 4, 2, 1 }, loopback = { GMI_KIND_LOOPBACK, 4, 2, 1 };
    read_lines(&p, "memory.4on2.all_reduce=naive\nloopback.4on2.all_reduce=naive\nmemory.4on2.all_gather=ring\n");
    read_lines(&p, "memory.turn_ns=7\n");
    assert_int_equal(gmi_profile_choice(&p, memory, GM_ALL_REDUCE, 4), 0);
    assert_int_equal(gmi_profile_choice(&p, memory, GM_ALL_GATHER, 4), 0);
    assert_int_equal(gmi_profile_choice(&p, loopback, GM_ALL_REDUCE, 4), GMI_ALGO_NAIVE);
}

static void places_and_choices_are_written_as_they_are_read(void **state)
{
    (void)state;
    static const char *const sites[] = { "memory.2on2", "loopback.64on2", "network.6on2at3" };
    for (size_t i = 0; i < TEST_COUNT(sites); i++) {
        struct gmi_site site;
        const char      *end;
        char             text[GMI_SITE_TEXT_BYTES];
        assert_true(gmi_site_read(&site, sites[i], &end));
        assert_string_equal(gmi_site_text(site, text), sites[i]);
        assert_int_equal(*end, '\0');
    }
    struct gmi_profile p = builtin();
    char               text[GMI_CHOICES_TEXT_BYTES];
    p.n_choices = 0;
    read_lines(&p, "network.6on2at3.all_reduce=exchange:8192,doubling:32768,ring");
    assert_int_equal(p.n_choices, 3);
    assert_string_equal(gmi_choices_text(p.choices, 3, text), "exchange:8192,doubling:32768,ring");
}

static void a_profile_with_too_many_choices_is_refused(void **state)
{
    (void)state;
    struct gmi_profile p = builtin();
    int                n_lines = 0;
    const char        *why = "";
    for (char text[64]; n_lines <= GMI_MAX_CHOICES; n_lines++) {
        struct gmi_profile more = p;
        struct gmi_choice  one = { .site = { GMI_KIND_LOOPBACK, (uint16_t)(n_lines + 1), 1, 1 }, .collective = GM_BROADCAST,
                                   .algorithm = GMI_ALGO_TREE, .most_bytes = UINT64_MAX };
        if (gmi_profile_set_choices(&p, &one, 1)) continue;
        more.n_choices = GMI_MAX_CHOICES;
        for (uint32_t i = 0; i < more.n_choices; i++) more.choices[i].site.kind = GMI_KIND_MEMORY;
        snprintf(text, sizeof text, "loopback.9on1.broadcast=tree\n");
        assert_int_equal(gmi_profile_read(&more, text, &why), 1);
        break;
    }
    assert_int_equal(p.n_choices, GMI_MAX_CHOICES);
    assert_non_null(strstr(why, "too many"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_changes_the_constants_that_it_names),
        cmocka_unit_test(a_wrong_line_of_a_profile_is_named),
        cmocka_unit_test(what_was_measured_is_chosen_there_and_nowhere_else),
        cmocka_unit_test(cores_that_no_rank_could_use_do_not_count),
        cmocka_unit_test(what_a_reduction_needs_counts_more_than_what_was_measured),
        cmocka_unit_test(a_forced_algorithm_counts_more_than_what_was_measured),
        cmocka_unit_test(a_profile_takes_the_choices_away_of_the_kinds_that_it_speaks_of),
        cmocka_unit_test(places_and_choices_are_written_as_they_are_read),
        cmocka_unit_test(a_profile_with_too_many_choices_is_refused),
    };
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
