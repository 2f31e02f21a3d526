#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "plan/machine.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/gradmesh-profile-test-%d", (int)getpid());
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void fill(struct plan_machine *machine)
{
    plan_machine_init(machine);
    machine->n_cores = 2;
    machine->layers = (struct gmt_layers){ .sizes = { 784, 64, 10 }, .n_sizes = 3 };
    machine->has_link = true;
    machine->link = (struct plan_link){ 25.5, 1.17e8 };
    machine->has_turns = true;
    machine->turns = (struct bench_turns){ .miss_us = 0.3, .ack_us = 2.1, .call_us = 0.9, .try_us = 0.2, .yield_us = 0.4, .switch_us = 0.8, .wake_us = 1.0 / 3 };
    for (int i = 0; i < BENCH_TURN_CALLS; i++) {
        machine->turns.calls[0][i] = (struct bench_turn_call){ 80 << i, 1.1 + i, 0.7 + i };
        machine->turns.calls[1][i] = (struct bench_turn_call){ 90 << i, 2.1 + i, 1.7 + i };
    }
    for (int i = 0; i < BENCH_TURN_REACHES; i++)
        machine->turns.reaches[i] = (struct bench_turn_reach){ 1000 << i, 1.01 + i, 1.02 + i, 1.03 + i, 1.04 + i, 1e10 + i, 1e9 + i };
    for (int n = 1; n <= 4; n *= 2) {
        struct plan_crew *crew = plan_machine_add_crew(machine, n, 1);
        crew->n_speeds = 2;
        crew->speeds[0] = (struct plan_speed){ 32, 0.1 + 0.3 * n, 0.1 + 0.2 * n };
        crew->speeds[1] = (struct plan_speed){ 512, 1.0 / 3 * n, 1.0 / 3 * n };
        crew->update_ms = 0.01;
        crew->n_exchanges = n > 1;
        crew->exchanges[0] = (struct plan_exchange){ .transport = "tcp", .wire = "f32", .n_sizes = 2, .bytes = { 1e5, 1e6 },
                                                     .ms = { 0.1, 0.7 }, .cpu_ms = { 0.05, 0.3 } };
    }
}

static void write_text(const char *text, size_t n_bytes)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n_bytes, file), n_bytes);
    fclose(file);
}

static size_t read_text(char *text, size_t max)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, max - 1, file);
    fclose(file);
    text[n] = '\0';
    return n;
}

/* JSON may round the last bit. */
static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-14 * fabs(expected))) fail_msg("%.17g, expected %.17g", value, expected);
}

static void a_profile_comes_back_as_it_was_saved(void **state)
{
    (void)state;
    static struct plan_machine saved, loaded;
    gm_error                   error;
    gmi_error_clear(&error);
    fill(&saved);
    assert_int_equal(plan_profile_save(&saved, path, &error), GM_OK);
    assert_int_equal(plan_profile_load(&loaded, path, &error), GM_OK);
    assert_int_equal(loaded.n_crews, 3);
    assert_true(loaded.n_cores == 2 && loaded.layers.n_sizes == 3 && loaded.layers.sizes[1] == 64);
    assert_true(loaded.has_link && loaded.link.latency_us == 25.5 && loaded.link.bandwidth_Bps == 1.17e8);
    assert_true(fabs(loaded.reduce_Bps / saved.reduce_Bps - 1) < 1e-14);
    assert_true(loaded.has_turns);
    const double *saved_turns = (const double *)(const void *)&saved.turns, *loaded_turns = (const double *)(const void *)&loaded.turns;
    for (size_t i = 0; i < sizeof saved.turns / sizeof(double); i++) assert_near(loaded_turns[i], saved_turns[i]);
    for (int i = 0; i < 3; i++) {
        const struct plan_crew *a = &saved.crews[i], *b = &loaded.crews[i];
        assert_true(a->workers == b->workers && a->threads == b->threads && a->n_speeds == b->n_speeds);
        for (int k = 0; k < a->n_speeds; k++) {
            assert_near(b->speeds[k].rows, a->speeds[k].rows);
            assert_near(b->speeds[k].step_ms, a->speeds[k].step_ms);
            assert_near(b->speeds[k].mean_ms, a->speeds[k].mean_ms);
        }
        assert_true(a->update_ms == b->update_ms && a->n_exchanges == b->n_exchanges);
        for (int k = 0; k < a->n_exchanges; k++) {
            for (int z = 0; z < a->exchanges[k].n_sizes; z++) {
                assert_near(b->exchanges[k].bytes[z], a->exchanges[k].bytes[z]);
                assert_near(b->exchanges[k].ms[z], a->exchanges[k].ms[z]);
                assert_near(b->exchanges[k].cpu_ms[z], a->exchanges[k].cpu_ms[z]);
            }
            assert_string_equal(b->exchanges[k].transport, "tcp");
        }
    }
}

static void a_profile_that_was_cut_off_is_refused_wherever(void **state)
{
    (void)state;
    static struct plan_machine machine;
    static char                text[16384];
    gm_error                   error;
    gmi_error_clear(&error);
    fill(&machine);
    assert_int_equal(plan_profile_save(&machine, path, &error), GM_OK);
    size_t n = read_text(text, sizeof text);
    while (n > 0 && text[n - 1] != '}') n--;
    for (size_t cut = 0; cut < n; cut += 7) {
        write_text(text, cut);
        gmi_error_clear(&error);
        assert_int_equal(plan_profile_load(&machine, path, &error), GM_ERR_ARG);
        assert_non_null(strstr(error.text, path));
    }
}

/* Each is the good one with something changed. */
static void a_profile_that_makes_no_sense_is_refused_with_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *good, *bad, *said;
    } changes[] = {
        { "gradmesh machine profile 1", "gradmesh machine profile 9", "profile 1" },
        { "\"cores\":\t2", "\"cores\":\t0", "cores" },
        { "\"cores\":\t2", "\"cores\":\t2.5", "cores" },
        { "\"cores\":\t2", "\"cores\":\t\"two\"", "cores" },
        { "784,64,10", "784", "layers" },
        { "\"rows\":\t[32, 512]", "\"rows\":\t[512, 32]", "rows" },
        { "\"rows\":\t[32, 512]", "\"rows\":\t[]", "speed" },
        { "\"rows\":\t[32, 512]", "\"rows\":\t[32]", "step_ms" },
        { "\"bytes\":\t[100000, 1000000]", "\"bytes\":\t7", "bytes" },
        { "\"reduce_Bps\":\t", "\"reduce_Bps\":\t-", "reduce_Bps" },
        { "\"update_ms\":", "\"upgrade_ms\":", "update_ms" },
    };
    static struct plan_machine machine;
    static char                good[16384], bad[17000];
    gm_error                   error;
    gmi_error_clear(&error);
    fill(&machine);
    assert_int_equal(plan_profile_save(&machine, path, &error), GM_OK);
    read_text(good, sizeof good);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *at = strstr(good, changes[i].good);
        if (at == NULL) fail_msg("\"%s\" is not in the profile", changes[i].good);
        int n = snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, changes[i].bad, at + strlen(changes[i].good));
        write_text(bad, (size_t)n);
        gmi_error_clear(&error);
        assert_int_equal(plan_profile_load(&machine, path, &error), GM_ERR_ARG);
        if (strstr(error.text, changes[i].said) == NULL) fail_msg("\"%s\" does not name %s", error.text, changes[i].said);
    }
}

static void a_profile_that_is_not_there_is_one_sentence(void **state)
{
    (void)state;
    static struct plan_machine machine;
    gm_error                   error;
    gmi_error_clear(&error);
    assert_int_equal(plan_profile_load(&machine, "/nowhere/profile", &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "/nowhere/profile"));
    assert_int_not_equal(plan_profile_save(&machine, "/nowhere/profile", &error), GM_OK);
}

static void amounts_are_read_with_their_units(void **state)
{
    (void)state;
    double value;
    assert_true(plan_read_flops(&value, "50G") && value == 50e9);
    assert_true(plan_read_flops(&value, "1.5 TFLOP/s") && value == 1.5e12);
    assert_true(plan_read_seconds_us(&value, "25us") && value == 25);
    assert_true(plan_read_seconds_us(&value, "0.5ms") && value == 500);
    assert_true(plan_read_seconds_us(&value, "25") && value == 25);
    assert_true(plan_read_bandwidth(&value, "117MB") && value == 117e6);
    assert_true(plan_read_bandwidth(&value, "2G") && value == 2e9);
    assert_true(plan_read_bandwidth(&value, "1gbit") && value > 0.95 * 125e6 && value < 125e6); /* packets take the rest */
    static const char *const bad[] = { "", "G", "-5G", "5X", "0", "nan", "inf", "1e999", "5G G", "0x10", " 5" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(plan_read_flops(&value, bad[i]));
        assert_false(plan_read_seconds_us(&value, bad[i]));
        assert_false(plan_read_bandwidth(&value, bad[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_profile_comes_back_as_it_was_saved, make_path, remove_file),
        cmocka_unit_test_setup_teardown(a_profile_that_was_cut_off_is_refused_wherever, make_path, remove_file),
        cmocka_unit_test_setup_teardown(a_profile_that_makes_no_sense_is_refused_with_the_place, make_path, remove_file),
        cmocka_unit_test(a_profile_that_is_not_there_is_one_sentence),
        cmocka_unit_test(amounts_are_read_with_their_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
