#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/advice.h"
#include "plan/model.h"
#include "train/bucket.h"

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%.17g, expected %.17g", value, expected);
}

/* What the user says: F operations a second, nothing measured. */
static struct plan_machine given(double flops)
{
    struct plan_machine machine;
    plan_machine_init(&machine);
    machine.flops = flops;
    return machine;
}

static struct plan_job over_network(double bandwidth_Bps, double latency_us)
{
    struct plan_job job = { .layers = { .sizes = { 784, 1024, 10 }, .n_sizes = 3 }, .batch = 512, .accumulate = 1, .threads = 1,
                            .transport = "tcp", .wire = "f32", .bucket_bytes = GMT_BUCKET_BYTES_AUTO, .is_network = true,
                            .link = { latency_us, bandwidth_Bps } };
    return job;
}

/* A machine of 2 cores whose crews take 1 ms and 0.1 ms a row, shared fairly. */
static struct plan_machine measured(void)
{
    struct plan_machine machine;
    plan_machine_init(&machine);
    machine.n_cores = 2;
    machine.layers = (struct gmt_layers){ .sizes = { 784, 1024, 10 }, .n_sizes = 3 };
    for (int n = 1; n <= 2; n++) {
        struct plan_crew *crew = plan_machine_add_crew(&machine, n, 1);
        crew->n_speeds = 2;
        crew->speeds[0] = (struct plan_speed){ 100, 11, 11 };
        crew->speeds[1] = (struct plan_speed){ 500, 51, 51 };
        crew->update_ms = 0.5;
        if (n == 1) continue;
        crew->n_exchanges = 1;
        crew->exchanges[0] = (struct plan_exchange){ .transport = "tcp", .wire = "f32", .n_sizes = 2, .bytes = { 1e6, 4e6 },
                                                     .ms = { 1, 2.5 }, .cpu_ms = { 0.5, 1 } };
    }
    return machine;
}

/* ---- by hand -------------------------------------------------------------------------------------- */

static void parameters_and_operations_are_counted_as_by_hand(void **state)
{
    (void)state;
    struct gmt_layers layers = { .sizes = { 3, 5, 2 }, .n_sizes = 3 };
    assert_true(plan_n_params(&layers) == 3 * 5 + 5 + 5 * 2 + 2);
    assert_true(plan_sample_flops(&layers) == 4 * 15 + 6 * 10);
}

/* Messages that wait for one another; what they carry together is 2 (N-1)/N of the gradient for all of these. */
static double turns_of(const char *algorithm, int n)
{
    if (strcmp(algorithm, "ring") == 0) return 2 * (n - 1);
    if (strcmp(algorithm, "direct") == 0) return 2;
    if (strcmp(algorithm, "halving") == 0) return 2 * log2(n);
    fail_msg("%s is not what large gradients are exchanged by", algorithm);
    return 0;
}

static double share_of(const char *algorithm, int n) { return strcmp(algorithm, "direct") == 0 && n > 2 ? PLAN_UNEVEN_STREAMS : 1; }

static void an_exchange_over_a_network_takes_what_the_formula_says(void **state)
{
    (void)state;
    const double        flops = 50e9, alpha_us = 40, beta = 1e8;
    struct plan_machine machine = given(flops);
    struct plan_job     job = over_network(beta, alpha_us);
    for (int n = 2; n <= 8; n++) {
        struct plan_prediction p = plan_predict(&machine, &job, n);
        double bytes = 4 * plan_n_params(&job.layers);
        double compute_ms = ceil(512.0 / n) * plan_sample_flops(&job.layers) / flops * 1e3;
        double exchange_ms = turns_of(p.algorithm, n) * alpha_us / 1e3 + 2.0 * (n - 1) / n * bytes / (share_of(p.algorithm, n) * beta) * 1e3;
        assert_near(p.compute_ms, compute_ms, 1e-9);
        assert_near(p.exposed_ms, exchange_ms, 1e-6);
        assert_near(p.step_ms, compute_ms + exchange_ms + p.update_ms, 1e-6);
        assert_near(p.sent_bytes, 2 * bytes * (n - 1) / n, 1);
    }
}

static void the_parts_add_up_to_the_step(void **state)
{
    (void)state;
    struct plan_machine machines[] = { given(2e10), measured() };
    for (int m = 0; m < 2; m++)
        for (int n = 1; n <= 9; n++)
            for (int kind = 0; kind < 4; kind++) {
                struct plan_job job = over_network(1e8, 30);
                job.is_network = kind < 3;
                job.is_emulated = kind == 2;
                job.overlaps = kind == 1;
                struct plan_prediction p = plan_predict(&machines[m], &job, n);
                assert_near(p.compute_ms + p.wait_ms + p.exposed_ms + p.update_ms, p.step_ms, 1e-9);
                assert_true(p.hidden_ms >= 0 && p.exposed_ms >= 0 && p.wait_ms >= 0);
                assert_true(n > 1 || (p.speedup == 1 && !p.pays && p.exposed_ms == 0));
            }
}

static void what_was_measured_is_predicted_as_measured(void **state)
{
    (void)state;
    struct plan_machine machine = measured();
    struct plan_job     job = over_network(1e8, 30);
    job.is_network = false;
    job.batch = 500;
    assert_near(plan_predict(&machine, &job, 1).step_ms, 51, 1e-9);
    job.batch = 200; /* 100 rows each: 11 ms, one look more, and an exchange between the two measured sizes */
    double bytes = 4 * plan_n_params(&job.layers), exchange_ms = 1 + (bytes - 1e6) / 3e6 * 1.5;
    assert_near(plan_predict(&machine, &job, 2).step_ms, 11 + exchange_ms, 1e-9);
    job.batch = 600; /* 300 rows: between */
    assert_near(plan_predict(&machine, &job, 2).step_ms, 31 + exchange_ms, 1e-9);
}

static void another_network_is_scaled_by_its_operations_and_parameters(void **state)
{
    (void)state;
    struct plan_machine machine = measured();
    struct plan_job     job = { .layers = { .sizes = { 784, 2048, 10 }, .n_sizes = 3 }, .batch = 500, .accumulate = 1, .threads = 1,
                                .transport = "tcp", .wire = "f32" };
    double ratio = plan_sample_flops(&job.layers) / plan_sample_flops(&machine.layers);
    double params = plan_n_params(&job.layers) / plan_n_params(&machine.layers);
    /* 1 ms does not grow with rows, half of it the update; 0.1 ms a row do */
    assert_near(plan_predict(&machine, &job, 1).step_ms, 1 * params + 50 * ratio, 1e-9);
}

static void four_on_two_cores_take_twice_what_two_take(void **state)
{
    (void)state;
    struct plan_machine machine = measured();
    struct plan_job     job = over_network(1e8, 30);
    job.is_network = false;
    job.batch = 400;
    double two_ms = plan_predict(&machine, &job, 2).zero_comm_ms; /* of 200 rows: 21 ms and a look */
    job.batch = 800;
    assert_near(plan_predict(&machine, &job, 4).zero_comm_ms, 2 * two_ms, 1e-9);
}

static void parts_of_a_share_cost_what_each_of_them_costs(void **state)
{
    (void)state;
    struct plan_machine machine = measured();
    struct plan_job     job = { .layers = machine.layers, .batch = 400, .accumulate = 4, .threads = 1, .transport = "tcp", .wire = "f32" };
    assert_near(plan_predict(&machine, &job, 1).step_ms, 4 * (11 - 0.5) + 0.5, 1e-9);
}

/* ---- what must hold for all ----------------------------------------------------------------------- */

static void more_bandwidth_less_latency_and_more_speed_never_make_a_step_longer(void **state)
{
    (void)state;
    static const char *const wires[] = { "f32", "bf16", "int8" };
    for (int variant = 0; variant < 24; variant++) {
        int n = 2 + variant % 7;
        struct plan_job job = over_network(1e6, 2000);
        job.overlaps = variant % 2 == 1;
        job.bucket_bytes = variant % 3 == 0 ? GMT_BUCKET_BYTES_AUTO : variant % 3 == 1 ? 0 : 100000;
        snprintf(job.wire, sizeof job.wire, "%s", wires[variant / 2 % 3]);
        double last_ms = INFINITY;
        for (double beta = 1e6; beta < 1e11; beta *= 1.7) {
            struct plan_machine machine = given(3e10);
            job.link.bandwidth_Bps = beta;
            double ms = plan_predict(&machine, &job, n).step_ms;
            assert_true(ms <= last_ms * (1 + 1e-12));
            last_ms = ms;
        }
        for (double alpha = 2000; alpha > 1; alpha /= 1.9) {
            struct plan_machine machine = given(3e10);
            job.link.latency_us = alpha;
            double ms = plan_predict(&machine, &job, n).step_ms;
            assert_true(ms <= last_ms * (1 + 1e-12));
            last_ms = ms;
        }
        for (double flops = 3e10; flops < 1e14; flops *= 2.3) {
            struct plan_machine machine = given(flops);
            double              ms = plan_predict(&machine, &job, n).step_ms;
            assert_true(ms <= last_ms * (1 + 1e-12));
            last_ms = ms;
        }
    }
}

static void what_is_hidden_and_what_is_exposed_is_at_least_the_exchange(void **state)
{
    (void)state;
    struct plan_machine machine = given(5e9);
    for (int n = 2; n < 7; n++) {
        struct plan_job job = over_network(1e9, 1);
        struct plan_prediction after = plan_predict(&machine, &job, n);
        job.overlaps = true;
        struct plan_prediction beside = plan_predict(&machine, &job, n);
        assert_true(beside.step_ms < after.step_ms); /* long computing, short exchange: nearly all is hidden */
        assert_true(beside.hidden_ms > 0.5 * beside.exchange_ms);
        assert_near(beside.hidden_ms + beside.exposed_ms, beside.exchange_ms, 1e-9);
    }
}

static void the_break_even_batch_is_where_it_begins_to_pay(void **state)
{
    (void)state;
    struct plan_machine machine = given(50e9);
    for (int n = 2; n <= 16; n *= 2) {
        struct plan_job job = over_network(1.17e8, 25);
        size_t          batch = plan_break_even_batch(&machine, &job, n);
        assert_true(batch > (size_t)n);
        job.batch = batch;
        assert_true(plan_predict(&machine, &job, n).pays);
        job.batch = batch - 1;
        assert_false(plan_predict(&machine, &job, n).pays);
    }
}

/* C > 2 N alpha + 2 S / beta, and C = B f / F. */
static void the_break_even_batch_is_that_of_the_closed_form(void **state)
{
    (void)state;
    const int           n = 7;
    const double        flops = 50e9, alpha_us = 25, beta = 1.17e8;
    struct plan_machine machine = given(flops);
    struct plan_job     job = over_network(beta, alpha_us);
    double              bytes = 4 * plan_n_params(&job.layers);
    const char *algorithm = plan_predict(&machine, &job, n).algorithm;
    double      turns = turns_of(algorithm, n); /* of a ring 2 (N-1) */
    double closed = (turns * n / (n - 1) * alpha_us * 1e-6 + 2 * bytes / (share_of(algorithm, n) * beta)) * flops / plan_sample_flops(&job.layers);
    assert_near((double)plan_break_even_batch(&machine, &job, n), closed, n); /* shares are whole samples */
}

static void a_network_that_carries_nothing_pays_with_no_batch(void **state)
{
    (void)state;
    struct plan_machine machine = given(1e15);
    struct plan_job     job = over_network(1, 1e6);
    assert_int_equal(plan_break_even_batch(&machine, &job, 4), 0);
    assert_int_equal(plan_best_world(&machine, &job, 16), 1);
}

static void the_best_world_is_faster_than_all_others_and_beyond_the_last_it_does_not_pay(void **state)
{
    (void)state;
    struct plan_machine machine = given(5e9);
    struct plan_job     job = over_network(1e9, 3000);
    int                 best = plan_best_world(&machine, &job, 64);
    double              best_ms = plan_predict(&machine, &job, best).step_ms;
    assert_true(best > 1 && best < 64);
    for (int n = 1; n <= 64; n++) assert_true(plan_predict(&machine, &job, n).step_ms >= best_ms);
    job.link.latency_us = 30000; /* of three messages after another it is already too much */
    int up_to = plan_pays_up_to(&machine, &job, 64);
    for (int n = 2; n <= up_to; n++) assert_true(plan_predict(&machine, &job, n).pays);
    assert_true(up_to < 64 && !plan_predict(&machine, &job, up_to + 1).pays);
}

static void a_shaped_link_lets_a_burst_through_and_no_more(void **state)
{
    (void)state;
    struct plan_machine machine = given(1e12);
    struct plan_job     job = over_network(1e7, 0);
    double              without_ms = plan_predict(&machine, &job, 2).exposed_ms;
    job.burst_bytes = 1e5;
    assert_near(plan_predict(&machine, &job, 2).exposed_ms, without_ms - 10, 1e-6);
}

/* ---- advice --------------------------------------------------------------------------------------- */

static void advice_is_what_the_model_says_best_first(void **state)
{
    (void)state;
    struct plan_machine machine = given(50e9);
    struct plan_job     job = over_network(1.17e8, 25);
    struct plan_advice  advice[PLAN_MAX_ADVICE];
    int                 n = plan_advise(&machine, &job, 4, advice);
    bool                has_batch = false;
    double              now = 512 / plan_predict(&machine, &job, 4).step_ms;
    assert_true(n >= 4 && n <= PLAN_MAX_ADVICE);
    for (int i = 0; i < n; i++) {
        assert_true(advice[i].gain >= 0.01 && (i == 0 || advice[i].gain <= advice[i - 1].gain));
        if (strcmp(advice[i].name, "batch") != 0) continue;
        has_batch = true;
        job.batch = 2048;
        assert_near(advice[i].gain, 2048 / plan_predict(&machine, &job, 4).step_ms / now - 1, 1e-9);
    }
    assert_true(has_batch);
    assert_int_equal(plan_advise(&machine, &job, 1, advice), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_and_operations_are_counted_as_by_hand),
        cmocka_unit_test(an_exchange_over_a_network_takes_what_the_formula_says),
        cmocka_unit_test(the_parts_add_up_to_the_step),
        cmocka_unit_test(what_was_measured_is_predicted_as_measured),
        cmocka_unit_test(another_network_is_scaled_by_its_operations_and_parameters),
        cmocka_unit_test(four_on_two_cores_take_twice_what_two_take),
        cmocka_unit_test(parts_of_a_share_cost_what_each_of_them_costs),
        cmocka_unit_test(more_bandwidth_less_latency_and_more_speed_never_make_a_step_longer),
        cmocka_unit_test(what_is_hidden_and_what_is_exposed_is_at_least_the_exchange),
        cmocka_unit_test(the_break_even_batch_is_where_it_begins_to_pay),
        cmocka_unit_test(the_break_even_batch_is_that_of_the_closed_form),
        cmocka_unit_test(a_network_that_carries_nothing_pays_with_no_batch),
        cmocka_unit_test(the_best_world_is_faster_than_all_others_and_beyond_the_last_it_does_not_pay),
        cmocka_unit_test(a_shaped_link_lets_a_burst_through_and_no_more),
        cmocka_unit_test(advice_is_what_the_model_says_best_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
