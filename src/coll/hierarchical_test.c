/* hierarchical_test.c - how many bytes cross between hosts, and that all layouts of hosts give the serial sum. */
#include "coll/hierarchical.h"
#include "tests/support/test.h"
#include "tests/support/trial.h"

enum { COUNT = 60001 };

struct layout_case {
    int      n_ranks, n_hosts;
    uint64_t host_ids[12];
};

static const struct layout_case cases[] = {
    { 4, 2, { 1, 1, 2, 2 } },
    { 4, 2, { 1, 2, 1, 2 } },
    { 5, 2, { 1, 1, 1, 2, 2 } },
    { 5, 2, { 2, 1, 1, 1, 1 } },
    { 6, 3, { 1, 1, 2, 2, 3, 3 } },
    { 7, 3, { 3, 1, 2, 1, 3, 1, 2 } },
    { 8, 2, { 1, 1, 1, 1, 2, 2, 2, 2 } },
    { 12, 4, { 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4 } },
    { 4, 1, { 1, 1, 1, 1 } },
    { 4, 4, { 1, 2, 3, 4 } },
};

static void run_case(struct sim *sim, struct trial *trial, const struct layout_case *c, const struct gmi_algo *algo,
                     bool is_in_place)
{
    struct trial_shape shape = { .algo = algo, .count_elems = COUNT, .dtype = GM_F32, .redop = GM_AVG,
                                 .is_in_place = is_in_place, .seed = 3 };
    struct sim_plan    plan = { .n_ranks = c->n_ranks, .seed = 8, .capacity_bytes = 50000, .host_ids = c->host_ids,
                                .links_for = algo };
    sim_init(sim, &plan);
    trial_prepare(trial, c->n_ranks, &shape);
    trial_run(trial, sim); /* also compares with the row's formula */
}

/* What the ranks of one host send to others, descriptors and piece headers too. */
static uint64_t bytes_out_of(const struct sim *sim, const struct layout_case *c, uint64_t host_id)
{
    uint64_t bytes = 0;
    for (int a = 0; a < c->n_ranks; a++) {
        for (int b = 0; b < c->n_ranks; b++) {
            if (c->host_ids[a] == host_id && c->host_ids[b] != host_id) bytes += sim->ends[a][b].sent_bytes;
        }
    }
    return bytes;
}

static void a_host_sends_no_more_to_others_than_if_it_were_one_rank(void **state)
{
    (void)state;
    static struct sim sim;
    struct trial      trial = { 0 };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        const struct layout_case *c = &cases[i];
        uint64_t n_hosts = (uint64_t)c->n_hosts, payload = 2 * COUNT * sizeof(float) * (n_hosts - 1) / n_hosts;
        run_case(&sim, &trial, c, &gmi_hierarchical_all_reduce, i % 2 == 0);
        for (uint64_t host = 1; host <= n_hosts; host++) {
            uint64_t sent = bytes_out_of(&sim, c, host), blocks = 4 * sizeof(float) * (uint64_t)c->n_ranks;
            assert_in_range(sent, payload - gmi_min_size(payload, blocks), payload + blocks + (uint64_t)c->n_ranks * 500);
        }
        sim_fini(&sim);
    }
    trial_fini(&trial);
}

static void the_ring_sends_half_as_much_again_or_three_times_as_much_on_two_hosts_of_two(void **state)
{
    (void)state;
    static struct sim sim;
    struct trial      trial = { 0 };
    const double      times[] = { 1.5, 3 };
    for (size_t i = 0; i < 2; i++) {
        run_case(&sim, &trial, &cases[i], gmi_algo_row(0), true);
        double sent = (double)bytes_out_of(&sim, &cases[i], 1) / (COUNT * sizeof(float));
        assert_true(sent > times[i] && sent < times[i] * 1.02);
        sim_fini(&sim);
    }
    trial_fini(&trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_sends_no_more_to_others_than_if_it_were_one_rank),
        cmocka_unit_test(the_ring_sends_half_as_much_again_or_three_times_as_much_on_two_hosts_of_two),
    };
    return cmocka_run_group_tests_name("hierarchical", tests, NULL, NULL);
}
