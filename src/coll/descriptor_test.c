#include "coll/descriptor.h"

#include "base/rng.h"
#include "coll/algo.h"
#include "tests/support/test.h"

static struct gmi_descriptor random_call(uint64_t seed)
{
    struct gmi_rng r = { .key = seed };
    return (struct gmi_descriptor){ .collective = (uint8_t)gmi_rng_next(&r), .algorithm = (uint8_t)gmi_rng_next(&r),
                                    .dtype = (uint8_t)gmi_rng_next(&r), .redop = (uint8_t)gmi_rng_next(&r),
                                    .codec = (uint8_t)gmi_rng_next(&r), .root = (int32_t)gmi_rng_next(&r),
                                    .epoch = (uint32_t)gmi_rng_next(&r), .group = (uint32_t)gmi_rng_next(&r),
                                    .seq = gmi_rng_next(&r), .count_elems = gmi_rng_next(&r),
                                    .piece_bytes = (uint32_t)gmi_rng_next(&r),
                                    .counts_hash = (uint32_t)gmi_rng_next(&r), .rank = (uint16_t)gmi_rng_next(&r), .core = (uint16_t)gmi_rng_next(&r),
                                    .arrival_ns = (int64_t)gmi_rng_next(&r) };
}

static void what_is_encoded_is_decoded(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct gmi_descriptor call = random_call(seed), back;
        uint8_t               wire[GMI_DESCRIPTOR_BYTES];
        gmi_descriptor_encode(&call, wire);
        assert_true(gmi_descriptor_decode(&back, wire));
        assert_true(gmi_descriptor_same(&call, &back));
        assert_int_equal(call.rank, back.rank);
        assert_int_equal(call.core, back.core);
        assert_int_equal(call.arrival_ns, back.arrival_ns);
    }
}

static void random_bytes_are_no_descriptor(void **state)
{
    (void)state;
    struct gmi_rng r = { .key = 5 };
    for (int i = 0; i < 1000; i++) {
        struct gmi_descriptor call;
        uint8_t               wire[GMI_DESCRIPTOR_BYTES];
        for (size_t k = 0; k < sizeof wire; k++) wire[k] = (uint8_t)gmi_rng_next(&r);
        assert_false(gmi_descriptor_decode(&call, wire));
    }
}

#define CHECK_COMPARED(field)                                                                     \
    do {                                                                                          \
        struct gmi_descriptor a = random_call(1), b = a;                                          \
        b.field++;                                                                                \
        assert_false(gmi_descriptor_same(&a, &b));                                                \
    } while (0)

static void every_field_of_the_call_is_compared_but_not_who_and_when(void **state)
{
    (void)state;
    CHECK_COMPARED(collective);
    CHECK_COMPARED(algorithm);
    CHECK_COMPARED(dtype);
    CHECK_COMPARED(redop);
    CHECK_COMPARED(codec);
    CHECK_COMPARED(root);
    CHECK_COMPARED(counts_hash);
    CHECK_COMPARED(epoch);
    CHECK_COMPARED(group);
    CHECK_COMPARED(seq);
    CHECK_COMPARED(count_elems);
    CHECK_COMPARED(piece_bytes);
    struct gmi_descriptor a = random_call(1), b = a;
    b.rank++;
    b.arrival_ns--;
    assert_true(gmi_descriptor_same(&a, &b));
}

static void a_sentence_shows_what_differs(void **state)
{
    (void)state;
    char text[160];
    struct gmi_descriptor call = { .collective = GM_ALL_REDUCE, .algorithm = GMI_ALGO_RING, .dtype = GM_F32, .redop = GM_SUM,
                                   .root = -1, .seq = 417, .count_elems = 1048576 };
    assert_string_equal(gmi_descriptor_format(&call, text, sizeof text), "all_reduce #417 (ring, f32, sum, 1048576 elems)");
    call.algorithm = GMI_ALGO_LEAN;
    call.codec = 1;
    assert_string_equal(gmi_descriptor_format(&call, text, sizeof text),
                        "all_reduce #417 (lean, f32, sum, 1048576 elems, as bf16)");
    call = (struct gmi_descriptor){ .collective = GM_BROADCAST, .algorithm = GMI_ALGO_RING, .dtype = GM_I64, .redop = 0xff,
                                    .root = 2, .seq = 1, .count_elems = 3 };
    assert_string_equal(gmi_descriptor_format(&call, text, sizeof text), "broadcast #1 (ring, i64, 3 elems, root 2)");
    call = (struct gmi_descriptor){ .collective = GM_BARRIER, .algorithm = GMI_ALGO_RING, .dtype = 0xff, .redop = 0xff,
                                    .root = -1, .seq = 9 };
    assert_string_equal(gmi_descriptor_format(&call, text, sizeof text), "barrier #9 (ring)");
}

static void a_sentence_about_nonsense_fits_its_buffer(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct gmi_descriptor call = random_call(seed);
        char                  text[40];
        gmi_descriptor_format(&call, text, sizeof text);
        assert_true(strlen(text) < sizeof text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_is_decoded),
        cmocka_unit_test(random_bytes_are_no_descriptor),
        cmocka_unit_test(every_field_of_the_call_is_compared_but_not_who_and_when),
        cmocka_unit_test(a_sentence_shows_what_differs),
        cmocka_unit_test(a_sentence_about_nonsense_fits_its_buffer),
    };
    return cmocka_run_group_tests_name("descriptor", tests, NULL, NULL);
}
