/* Lean formats against their definition (oracle.c), with every kind of number; their sizes; what they lose. */
#include "reduce/wire.h"

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "reduce/half.h"
#include "tests/support/guard.h"
#include "tests/support/oracle.h"
#include "tests/support/test.h"

static const size_t counts[] = { 0, 1, 2, 7, 31, 127, 128, 129, 255, 256, 300, 511, 512, 513, 1024, 1100, 5000 };

static void names_and_sizes(void **state)
{
    (void)state;
    const struct gmi_wire *wire;
    assert_true(gmi_wire_find("f32", &wire) && wire == NULL);
    assert_false(gmi_wire_find("", &wire));
    assert_false(gmi_wire_find("int", &wire));
    assert_string_equal(gmi_wire_name(NULL), "f32");
    assert_string_equal(gmi_wire_name_of(0), "f32");
    assert_string_equal(gmi_wire_name_of(77), "?");
    for (size_t i = 0; gmi_wire_row(i) != NULL; i++) {
        const struct gmi_wire *row = gmi_wire_row(i);
        assert_true(gmi_wire_find(row->name, &wire) && wire == row);
        assert_string_equal(gmi_wire_name_of(row->id), row->name);
        assert_contains(gmi_wire_names(), row->name);
        for (size_t k = 0; k < TEST_COUNT(counts); k++) {
            assert_int_equal(gmi_wire_bytes(row, counts[k]), oracle_lean_bytes(row->name, counts[k]));
        }
    }
    assert_true(gmi_wire_find("int8", &wire));
    assert_int_equal(gmi_wire_bytes(wire, 1000), 1000 + 8 * 4);
    assert_true(gmi_wire_find("bf16", &wire));
    assert_int_equal(gmi_wire_bytes(wire, 1000), 2000);
}

/* ---- values -------------------------------------------------------------------------------------- */

enum fill { ORDINARY, ODD, ANY_BITS, TINY, HUGE_ONES, N_FILLS };

static float value(enum fill fill, uint64_t key, size_t i)
{
    static const uint32_t odd[] = { 0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 1, 0x80000001,
                                    0x7f7fffff, 0xff7fffff, 0x00800000, 0x477fe000, 0x477fefff, 0x477ff000, 0x33000000,
                                    0x33000001, 0x387fc000, 0x3f808000, 0x3f818000, 0x3f808001, 0x7f7f7fff, 0x7f7f8000 };
    uint64_t bits = gmi_rng_u64(key, i);
    double   unit = gmi_rng_unit(key, i) - 0.5;
    switch (fill) {
    case ORDINARY: return (float)(unit * exp2((double)(bits % 8)));
    case ODD: return bits % 97 == 0 ? gmi_f32_of_bits(odd[bits / 97 % TEST_COUNT(odd)]) : (float)unit;
    case ANY_BITS: return gmi_f32_of_bits((uint32_t)bits);
    case TINY: return (float)(unit * exp2(-117 - (double)(key % 34)));
    default: return (float)(unit * 2 * (double)FLT_MAX);
    }
}

static uint32_t bits_of(float x) { return isnan(x) ? UINT32_C(0x7fc00000) : gmi_bits_of_f32(x); }

static void check_same(const char *name, const float *have, const float *want, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bits_of(have[i]) == bits_of(want[i])) continue;
        fail_msg("%s, element %zu of %zu: %a becomes %a, not %a", name, i, count, (double)from[i], (double)have[i],
                 (double)want[i]);
    }
}

/* In memory that ends where the arrays do, and at addresses that are not round. */
static void check_array(const struct gmi_wire *wire, const float *from, size_t count)
{
    struct guard wide = { 0 }, lean = { 0 }, back = { 0 }, sum = { 0 };
    size_t       bytes = count * sizeof(float);
    guard_make(&wide, bytes), guard_make(&back, bytes), guard_make(&sum, bytes);
    guard_make(&lean, gmi_wire_bytes(wire, count));
    float *want = malloc(bytes + 4), *total = malloc(bytes + 4);
    assert_true(want != NULL && total != NULL);
    if (count > 0) memcpy(wide.bytes, from, bytes);
    oracle_lean(wire->name, want, from, count);
    for (size_t i = 0; i < count; i++) {
        float before = (float)i * 0.37f - 5;
        memcpy(sum.bytes + i * sizeof before, &before, sizeof before);
        total[i] = before + want[i];
    }
    wire->encode(lean.bytes, (const float *)(const void *)wide.bytes, count);
    wire->decode((float *)(void *)back.bytes, lean.bytes, count);
    wire->add((float *)(void *)sum.bytes, lean.bytes, count);
    check_same(wire->name, (float *)(void *)back.bytes, want, from, count);
    check_same(wire->name, (float *)(void *)sum.bytes, total, from, count);
    for (size_t i = 0; i < count; i++) { /* where nothing is added, a NaN is the canonical one */
        float x = ((float *)(void *)back.bytes)[i];
        assert_true(!isnan(x) || gmi_bits_of_f32(x) == UINT32_C(0x7fc00000));
    }
    gmi_wire_round_trip(wire, (float *)(void *)wide.bytes, (const float *)(const void *)wide.bytes, count);
    check_same(wire->name, (float *)(void *)wide.bytes, want, from, count);
    guard_check(&wide), guard_check(&lean), guard_check(&back), guard_check(&sum);
    guard_fini(&wide), guard_fini(&lean), guard_fini(&back), guard_fini(&sum);
    free(want), free(total);
}

static void numbers_come_out_as_the_definition_says(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    float *from = malloc(MOST * sizeof *from);
    assert_non_null(from);
    for (size_t w = 0; gmi_wire_row(w) != NULL; w++) {
        for (int fill = 0; fill < N_FILLS; fill++) {
            for (size_t k = 0; k < TEST_COUNT(counts); k++) {
                for (size_t i = 0; i < counts[k]; i++) from[i] = value((enum fill)fill, 40 * k + (uint64_t)fill, i);
                check_array(gmi_wire_row(w), from, counts[k]);
            }
        }
    }
    free(from);
}

/* The border between nothing and something, one number at a time; and ties. */
static void single_numbers_come_out_as_the_definition_says(void **state)
{
    (void)state;
    for (size_t w = 0; gmi_wire_row(w) != NULL; w++) {
        for (uint32_t high = 0; high < 65536; high += 3) {
            float from[2] = { gmi_f32_of_bits(high << 16), gmi_f32_of_bits(high << 16 | 0x8000) }, have[2], want[2];
            gmi_wire_round_trip(gmi_wire_row(w), have, from, 2);
            oracle_lean(gmi_wire_row(w)->name, want, from, 2);
            check_same(gmi_wire_row(w)->name, have, want, from, 2);
        }
    }
}

/* ---- what is lost -------------------------------------------------------------------------------- */

static void the_error_is_half_a_step_at_most(void **state)
{
    (void)state;
    enum { N = 1024 };
    static float from[N], to[N];
    for (uint64_t key = 0; key < 50; key++) {
        for (size_t i = 0; i < N; i++) from[i] = value(ORDINARY, key, i);
        for (size_t w = 0; gmi_wire_row(w) != NULL; w++) {
            const struct gmi_wire *wire = gmi_wire_row(w);
            gmi_wire_round_trip(wire, to, from, N);
            for (size_t i = 0; i < N; i++) {
                double error = fabs((double)to[i] - (double)from[i]), largest = 0, bound;
                for (size_t k = i / 128 * 128; k < i / 128 * 128 + 128; k++) {
                    if (fabs((double)from[k]) > largest) largest = fabs((double)from[k]);
                }
                bound = strcmp(wire->name, "bf16") == 0 ? fabs((double)from[i]) * 0x1p-8
                        : strcmp(wire->name, "f16") == 0 ? fabs((double)from[i]) * 0x1p-11 + 0x1p-25
                                                          : largest / 254 * (1 + 0x1p-14);
                assert_true(error <= bound);
            }
        }
    }
}

static void what_is_not_finite_does_not_get_lost(void **state)
{
    (void)state;
    static const uint32_t bad[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001 };
    float from[300], to[300];
    for (size_t w = 0; gmi_wire_row(w) != NULL; w++) {
        for (size_t b = 0; b < TEST_COUNT(bad); b++) {
            for (size_t at = 0; at < 300; at += 13) {
                for (size_t i = 0; i < 300; i++) from[i] = i == at ? gmi_f32_of_bits(bad[b]) : 1;
                gmi_wire_round_trip(gmi_wire_row(w), to, from, 300);
                assert_false(isfinite(to[at]));
                for (size_t i = 0; i < 300; i++) assert_true(isfinite(to[i]) || i / 128 == at / 128);
            }
        }
    }
}

static void pieces_of_whole_blocks_encode_as_the_whole_does(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float   from[N];
    static uint8_t whole[2 * N], pieces[2 * N];
    for (size_t i = 0; i < N; i++) from[i] = value(ODD, 3, i);
    for (size_t w = 0; gmi_wire_row(w) != NULL; w++) {
        const struct gmi_wire *wire = gmi_wire_row(w);
        wire->encode(whole, from, N);
        for (size_t at = 0; at < N; at += 256) {
            wire->encode(pieces + gmi_wire_bytes(wire, at), from + at, N - at < 256 ? N - at : 256);
        }
        assert_memory_equal(pieces, whole, gmi_wire_bytes(wire, N));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(numbers_come_out_as_the_definition_says),
        cmocka_unit_test(single_numbers_come_out_as_the_definition_says),
        cmocka_unit_test(the_error_is_half_a_step_at_most),
        cmocka_unit_test(what_is_not_finite_does_not_get_lost),
        cmocka_unit_test(pieces_of_whole_blocks_encode_as_the_whole_does),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
