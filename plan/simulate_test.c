#include "plan/simulate.h"

#include <math.h>

#include "tests/support/test.h"

/* 50 us, 1 GB/s; nothing else costs time. */
static const struct plan_links plain = { .latency_us = 50, .bandwidth_Bps = 1e9, .local_latency_us = 2, .local_bandwidth_Bps = 8e9 };

/* What cores do costs time, too. */
static const struct plan_links busy = { .latency_us = 20, .bandwidth_Bps = 1e9, .local_latency_us = 2, .local_bandwidth_Bps = 8e9,
                                        .call_us = 3, .wake_us = 5, .copy_Bps = 4e9, .add_Bps = 1e10 };

static struct plan_simulation of(const char *algorithm, int n_ranks, uint64_t bytes)
{
    return (struct plan_simulation){ .n_ranks = n_ranks, .algorithm = algorithm, .bytes = bytes, .links = plain };
}

static struct plan_simulation_result simulate(const struct plan_simulation *s)
{
    struct plan_simulation_result result;
    gm_error                      error = { .status = GM_OK };
    gm_status                     status = plan_simulate(s, &result, &error);
    if (status != GM_OK) fail_msg("%s with %d ranks: %s", s->algorithm, s->n_ranks, error.text);
    return result;
}

static double step_ms(const struct plan_simulation *s)
{
    struct plan_simulation_result result = simulate(s);
    plan_simulation_free(&result);
    return result.step_ms;
}

static void assert_close(const struct plan_simulation *s, double expected_ms, double tolerance)
{
    double ms = step_ms(s);
    if (fabs(ms - expected_ms) > tolerance * expected_ms) {
        fail_msg("%s of %llu bytes with %d ranks takes %.6f ms, and not %.6f", s->algorithm, (unsigned long long)s->bytes,
                 s->n_ranks, ms, expected_ms);
    }
}

/* ---- closed forms: descriptors and headers are what is between them and the simulation ------------- */

static const double ALPHA_MS = 0.05, BYTE_MS = 1e-6;

static void a_ring_takes_the_time_of_its_closed_form(void **state)
{
    (void)state;
    const int ranks[] = { 2, 3, 4, 7, 16, 33, 128 };
    for (size_t i = 0; i < TEST_COUNT(ranks); i++) {
        double n = ranks[i];
        for (int chunk = 4; chunk <= 65536; chunk *= 8) { /* up to what arrives at once */
            struct plan_simulation s = of("ring", ranks[i], (uint64_t)(chunk * n));
            assert_close(&s, 2 * (n - 1) * (ALPHA_MS + chunk * BYTE_MS), 0.01);
        }
        struct plan_simulation large = of("ring", ranks[i], (uint64_t)(1 << 18) * (uint64_t)ranks[i]);
        large.grain_bytes = 1 << 18; /* and beyond, if chunks move as a whole */
        assert_close(&large, 2 * (n - 1) * (ALPHA_MS + (1 << 18) * BYTE_MS), 0.01);
    }
}

static void a_ring_of_large_chunks_hides_its_latencies(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n *= 2) {
        struct plan_simulation s = of("ring", n, (uint64_t)n << 20);
        assert_close(&s, 2.0 * (n - 1) * (1 << 20) * BYTE_MS, n == 2 ? 0.08 : 0.03); /* cards never rest but at the ends */
    }
}

static void doubling_takes_the_time_of_its_closed_form(void **state)
{
    (void)state;
    for (int rounds = 1; rounds <= 9; rounds++) {
        for (uint64_t bytes = 4096; bytes <= 1 << 22; bytes *= 32) {
            struct plan_simulation s = of("doubling", 1 << rounds, bytes);
            assert_close(&s, rounds * (ALPHA_MS + (double)bytes * BYTE_MS), 0.02);
        }
    }
}

static void halving_takes_the_time_of_its_closed_form(void **state)
{
    (void)state;
    for (int rounds = 1; rounds <= 9; rounds++) {
        double n = 1 << rounds;
        for (uint64_t bytes = 1 << 16; bytes <= 1 << 22; bytes *= 4) {
            struct plan_simulation s = of("halving", 1 << rounds, bytes);
            assert_close(&s, 2 * rounds * ALPHA_MS + 2 * (double)bytes * BYTE_MS * (n - 1) / n, 0.02);
        }
    }
}

static void a_tree_takes_the_time_of_its_closed_form(void **state)
{
    (void)state;
    for (int rounds = 1; rounds <= 9; rounds++) {
        for (uint64_t bytes = 4096; bytes <= 1 << 20; bytes *= 16) {
            struct plan_simulation s = of("tree", 1 << rounds, bytes);
            s.grain_bytes = bytes; /* else a root serves two children at once, and their children wait for both */
            assert_close(&s, 2 * rounds * (ALPHA_MS + (double)bytes * BYTE_MS), 0.05);
        }
    }
}

static void cores_add_their_time_to_the_closed_form(void **state)
{
    (void)state;
    struct plan_simulation s = of("ring", 8, 8 * 32000);
    s.links = busy;
    double chunk_ms = 32000 * BYTE_MS, core_ms = 2 * (0.003 + 32000 / 4e9 * 1e3) + 0.005;
    double expected_ms = 14 * (0.02 + chunk_ms + core_ms) + 7 * 32000 / 1e10 * 1e3;
    assert_close(&s, expected_ms, 0.02);
}

/* Messages cost as much whatever their size; bytes, nothing. */
static struct bench_turns turns_of_few_bytes(void)
{
    struct bench_turns t = { .miss_us = 0.5, .yield_us = 0.5, .switch_us = 1, .wake_us = 20 };
    for (int i = 0; i < BENCH_TURN_CALLS; i++)
        t.calls[0][i] = t.calls[1][i] = (struct bench_turn_call){ .bytes = 100 << i, .send_us = 4, .recv_us = 1 };
    for (int i = 0; i < BENCH_TURN_REACHES; i++)
        t.reaches[i] = (struct bench_turn_reach){ 1000 << i, 1, 1, 1, 1, 1e15, 1e15 };
    return t;
}

static struct plan_simulation on_one_host(int n_ranks, int n_cores, const struct bench_turns *turns)
{
    struct plan_simulation s = of("doubling", n_ranks, 4);
    s.ranks_per_host = n_ranks;
    s.cores_per_host = n_cores;
    s.turns = turns;
    s.links.local_latency_us = s.links.local_bandwidth_Bps = 0;
    return s;
}

static void calls_take_what_was_measured(void **state)
{
    (void)state;
    struct bench_turns     t = turns_of_few_bytes();
    struct plan_simulation s = on_one_host(2, 2, &t);
    assert_close(&s, (4 + 0.5 + 0.5 + 0.5 + 1) / 1e3, 0.001); /* sent; twice nothing is there; the core given up; received */
}

static void ranks_of_one_core_have_it_in_turn(void **state)
{
    (void)state;
    struct bench_turns     t = turns_of_few_bytes();
    struct plan_simulation s = on_one_host(2, 1, &t);
    double                 each_us = 4 + 0.5 + 0.5 + 0.5 + 1;
    assert_true(step_ms(&s) * 1e3 >= 2 * (4 + 1) + t.switch_us);
    assert_true(step_ms(&s) * 1e3 <= 2 * each_us + 3 * t.switch_us);
}

static void who_has_slept_is_woken(void **state)
{
    (void)state;
    struct bench_turns     t = turns_of_few_bytes();
    struct plan_simulation s = on_one_host(2, 2, &t);
    s.n_stragglers = 1;
    s.stragglers[0] = (struct plan_straggler){ .rank = 1, .factor = 1, .delay_ms = 1 };
    assert_close(&s, 1 + (4 + 20 + 1) / 1e3, 0.001);
    s.stragglers[0].delay_ms = 0.03; /* that long it tries */
    assert_close(&s, 0.03 + (4 + 1) / 1e3, 0.03);
}

/* ---- bytes ----------------------------------------------------------------------------------------- */

static void check_bytes(const struct plan_simulation *s)
{
    const char *why;
    uint64_t    sum = 0;
    if (!plan_can_simulate(s, &why)) return;
    struct plan_simulation_result result = simulate(s);
    for (int rank = 0; rank < s->n_ranks; rank++) {
        uint64_t formula = plan_formula_payload_bytes(s, rank);
        if (result.ranks[rank].payload_sent_bytes != formula) {
            fail_msg("%s, %d ranks, %llu bytes: rank %d sends %llu, by its formula %llu", s->algorithm, s->n_ranks,
                     (unsigned long long)s->bytes, rank, (unsigned long long)result.ranks[rank].payload_sent_bytes,
                     (unsigned long long)formula);
        }
        sum += formula;
    }
    assert_int_equal(result.payload_bytes, sum);
    plan_simulation_free(&result);
}

static void every_algorithm_sends_the_bytes_of_its_formula(void **state)
{
    (void)state;
    const uint64_t sizes[] = { 0, 4, 400, 40004, 1000000 };
    const char    *algorithm;
    for (int a = 0; (algorithm = plan_simulated_algorithm(a)) != NULL; a++) {
        for (int n = 1; n <= 33; n++) {
            for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
                struct plan_simulation s = of(algorithm, n, sizes[i]);
                if (strcmp(algorithm, "lean") == 0) s.wire = i % 2 == 0 ? "bf16" : "int8";
                s.ranks_per_host = strcmp(algorithm, "hierarchical") == 0 ? 2 + n % 3 : 1 + n % 2;
                s.n_buckets = 1 + (int)i % 3;
                if (n % 3 == 0) s.links = busy;
                if (n % 5 == 0) s.cores_per_host = 1;
                check_bytes(&s);
            }
        }
    }
}

/* ---- hosts, cores, stragglers ---------------------------------------------------------------------- */

static void ranks_of_a_host_share_its_card(void **state)
{
    (void)state;
    struct plan_simulation apart = of("direct", 8, 8 << 20), together = apart;
    together.ranks_per_host = 4;
    double factor = step_ms(&together) / step_ms(&apart); /* 4 of 7 chunks of 4 ranks go through a card, not 7 of one */
    assert_true(factor > 16.0 / 7 * 0.95 && factor < 16.0 / 7 * 1.1);
}

static void a_hierarchical_ring_sends_less_between_hosts_than_a_flat_direct_exchange(void **state)
{
    (void)state;
    struct plan_simulation hierarchical = of("hierarchical", 32, 8 << 20), direct = of("direct", 32, 8 << 20);
    hierarchical.ranks_per_host = direct.ranks_per_host = 8;
    assert_true(2 * step_ms(&hierarchical) < step_ms(&direct));
}

static void ranks_that_share_a_core_take_longer(void **state)
{
    (void)state;
    struct plan_simulation s = of("ring", 4, 1 << 20);
    s.links = (struct plan_links){ .copy_Bps = 2e9 };
    s.ranks_per_host = 4;
    double own_ms = step_ms(&s);
    s.cores_per_host = 2;
    double two_ms = step_ms(&s);
    s.cores_per_host = 1;
    double one_ms = step_ms(&s);
    double work_ms = 4 * 2 * 2 * 0.75 * (1 << 20) / 2e9 * 1e3; /* all bytes, sent and received */
    assert_true(fabs(one_ms - work_ms) < 0.02 * work_ms);
    assert_true(fabs(two_ms - work_ms / 2) < 0.2 * work_ms);
    assert_true(own_ms < two_ms);
}

static void a_slow_rank_is_named_with_what_it_costs(void **state)
{
    (void)state;
    struct plan_simulation s = of("ring", 9, 1 << 16);
    s.compute_ms = 10;
    s.stragglers[s.n_stragglers++] = (struct plan_straggler){ .rank = 5, .factor = 1.5 };
    struct plan_simulation_result result = simulate(&s);
    assert_int_equal(result.straggler, 5);
    assert_float_equal(result.straggler_costs_ms, 5, 1e-9);
    assert_float_equal(result.compute_ms, 10, 1e-9);
    assert_float_equal(result.wait_ms, 5, 1e-9);
    assert_float_equal(result.compute_ms + result.wait_ms + result.exchange_ms, result.step_ms, 1e-9);
    assert_true(result.ranks[6].waits_for == 5 && result.ranks[6].waits_for_ms > 4);
    assert_true(result.ranks[5].idle_ms < result.ranks[6].idle_ms - 4);
    plan_simulation_free(&result);
}

static void a_late_rank_is_named_and_equal_ones_are_not(void **state)
{
    (void)state;
    struct plan_simulation s = of("halving", 8, 1 << 16);
    s.compute_ms = 10;
    struct plan_simulation_result result = simulate(&s);
    assert_int_equal(result.straggler, -1);
    plan_simulation_free(&result);
    s.stragglers[s.n_stragglers++] = (struct plan_straggler){ .rank = 0, .factor = 1, .delay_ms = 3 };
    result = simulate(&s);
    assert_int_equal(result.straggler, 0);
    assert_float_equal(result.straggler_costs_ms, 3, 1e-9);
    plan_simulation_free(&result);
}

static void overlap_hides_what_the_last_bucket_does_not_need(void **state)
{
    (void)state;
    struct plan_simulation s = of("ring", 4, 4 << 20);
    s.compute_ms = 30;
    s.n_buckets = 8;
    double apart_ms = step_ms(&s);
    s.overlaps = true;
    double together_ms = step_ms(&s), exchange_ms = apart_ms - 30;
    assert_true(together_ms > 30 && together_ms < 30 + exchange_ms / 4);
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static void the_same_seed_gives_the_same_step(void **state)
{
    (void)state;
    struct plan_simulation s = of("direct", 24, 3256360);
    s.links = busy;
    s.compute_ms = 4;
    s.jitter = 0.2;
    s.seed = 17;
    struct plan_simulation_result a = simulate(&s), b = simulate(&s);
    assert_true(a.step_ms == b.step_ms && a.n_events == b.n_events);
    for (int rank = 0; rank < 24; rank++) assert_true(a.ranks[rank].finish_ms == b.ranks[rank].finish_ms);
    s.seed = 18;
    struct plan_simulation_result c = simulate(&s);
    assert_true(a.step_ms != c.step_ms);
    plan_simulation_free(&a);
    plan_simulation_free(&b);
    plan_simulation_free(&c);
}

static void one_worker_only_computes(void **state)
{
    (void)state;
    struct plan_simulation s = of("ring", 1, 1 << 20);
    s.compute_ms = 7;
    struct plan_simulation_result result = simulate(&s);
    assert_float_equal(result.step_ms, 7, 1e-9);
    assert_int_equal(result.payload_bytes, 0);
    plan_simulation_free(&result);
}

static void refused(struct plan_simulation s, gm_status expected, const char *word)
{
    struct plan_simulation_result result;
    gm_error                      error = { .status = GM_OK };
    assert_int_equal(plan_simulate(&s, &result, &error), expected);
    if (strstr(error.text, word) == NULL) fail_msg("'%s' does not say '%s'", error.text, word);
    assert_null(result.ranks);
}

static void what_makes_no_sense_is_refused_in_a_sentence(void **state)
{
    (void)state;
    struct plan_simulation s = of("ring", 4, 4096), x;
    refused((x = s, x.n_ranks = 0, x), GM_ERR_ARG, "0 workers");
    refused((x = s, x.bytes = 6, x), GM_ERR_ARG, "multiple of 4");
    refused((x = s, x.algorithm = "rings", x), GM_ERR_ARG, "'rings'");
    refused((x = s, x.wire = "int4", x), GM_ERR_ARG, "'int4'");
    refused((x = s, x.links.latency_us = -1, x), GM_ERR_ARG, "latency");
    refused((x = s, x.links.bandwidth_Bps = (double)NAN, x), GM_ERR_ARG, "bandwidth");
    refused((x = s, x.compute_ms = -3, x), GM_ERR_ARG, "compute time");
    refused((x = s, x.n_stragglers = 1, x.stragglers[0] = (struct plan_straggler){ 4, 2, 0 }, x), GM_ERR_ARG, "ranks 0 to 3");
    refused((x = s, x.n_stragglers = 1, x.stragglers[0] = (struct plan_straggler){ 0, 0, 0 }, x), GM_ERR_ARG, "slower");
    refused((x = s, x.wire = "bf16", x), GM_ERR_UNSUPPORTED, "f32 only");
    refused((x = s, x.algorithm = "exchange", x.n_ranks = 17, x), GM_ERR_UNSUPPORTED, "16");
    refused((x = s, x.algorithm = "direct", x.n_ranks = 10000, x), GM_ERR_UNSUPPORTED, "memory");
    refused((x = s, x.algorithm = "hierarchical", x), GM_ERR_UNSUPPORTED, "several hosts");
}

/* ---- rounds, as gradmesh bench has them ---------------------------------------------------------- */

static void a_round_of_equal_ranks_takes_as_long_as_a_step(void **state)
{
    (void)state;
    struct plan_simulation s = of("doubling", 4, 4096);
    double                 once_ms = step_ms(&s);
    s.n_rounds = 5;
    assert_close(&s, once_ms, 1e-9);
}

/* Who leaves the barrier first waits for the others in the exchange. */
static void a_round_begins_when_its_rank_leaves_the_barrier(void **state)
{
    (void)state;
    struct plan_simulation s = of("doubling", 4, 4096);
    s.links = busy;
    double once_ms = step_ms(&s);
    s.n_rounds = 9;
    s.n_stragglers = 1;
    s.stragglers[0] = (struct plan_straggler){ .rank = 2, .factor = 1, .delay_ms = 100 };
    struct plan_simulation_result result = simulate(&s);
    assert_true(result.exchange_ms < 2 * once_ms && result.exchange_ms > 0.9 * once_ms); /* late once is no round's time */
    plan_simulation_free(&result);
}

static void rounds_do_not_go_with_buckets(void **state)
{
    (void)state;
    struct plan_simulation_result result;
    struct plan_simulation        s = of("ring", 4, 4096);
    s.n_rounds = 5;
    s.n_buckets = 2;
    assert_int_equal(plan_simulate(&s, &result, NULL), GM_ERR_ARG);
    s.n_buckets = 1;
    s.n_rounds = -1;
    assert_int_equal(plan_simulate(&s, &result, NULL), GM_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_of_equal_ranks_takes_as_long_as_a_step),
        cmocka_unit_test(a_round_begins_when_its_rank_leaves_the_barrier),
        cmocka_unit_test(rounds_do_not_go_with_buckets),
        cmocka_unit_test(a_ring_takes_the_time_of_its_closed_form),
        cmocka_unit_test(a_ring_of_large_chunks_hides_its_latencies),
        cmocka_unit_test(doubling_takes_the_time_of_its_closed_form),
        cmocka_unit_test(halving_takes_the_time_of_its_closed_form),
        cmocka_unit_test(a_tree_takes_the_time_of_its_closed_form),
        cmocka_unit_test(cores_add_their_time_to_the_closed_form),
        cmocka_unit_test(calls_take_what_was_measured),
        cmocka_unit_test(ranks_of_one_core_have_it_in_turn),
        cmocka_unit_test(who_has_slept_is_woken),
        cmocka_unit_test(every_algorithm_sends_the_bytes_of_its_formula),
        cmocka_unit_test(ranks_of_a_host_share_its_card),
        cmocka_unit_test(a_hierarchical_ring_sends_less_between_hosts_than_a_flat_direct_exchange),
        cmocka_unit_test(ranks_that_share_a_core_take_longer),
        cmocka_unit_test(a_slow_rank_is_named_with_what_it_costs),
        cmocka_unit_test(a_late_rank_is_named_and_equal_ones_are_not),
        cmocka_unit_test(overlap_hides_what_the_last_bucket_does_not_need),
        cmocka_unit_test(the_same_seed_gives_the_same_step),
        cmocka_unit_test(one_worker_only_computes),
        cmocka_unit_test(what_makes_no_sense_is_refused_in_a_sentence),
    };
    return cmocka_run_group_tests_name("simulation", tests, NULL, NULL);
}
