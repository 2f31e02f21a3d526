#include "rendezvous/hello.h"

#include "base/rng.h"
#include "tests/support/guard.h"
#include "tests/support/test.h"

static struct gmi_hello some_hello(void)
{
    struct gmi_hello h = { .version = GMI_PROTOCOL_VERSION, .channel = GMI_CHANNEL_DATA, .rank = 3, .target = -1,
                           .world_size = 8, .epoch = 5, .group = 77, .job_id = "run-2026",
                           .session = UINT64_C(0x1122334455667788) };
    for (int i = 0; i < GMI_NONCE_BYTES; i++) h.nonce[i] = (uint8_t)(200 + i);
    return h;
}

static void what_is_encoded_is_decoded(void **state)
{
    (void)state;
    struct gmi_hello h = some_hello(), back = { 0 };
    uint8_t          wire[GMI_HELLO_BYTES];
    gmi_hello_encode(&h, wire);
    assert_int_equal(gmi_hello_decode(&back, wire, sizeof wire), GMI_HELLO_GOOD);
    assert_int_equal(back.version, h.version);
    assert_int_equal(back.channel, h.channel);
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.target, -1);
    assert_int_equal(back.world_size, 8);
    assert_int_equal(back.epoch, 5);
    assert_int_equal(back.group, 77);
    assert_string_equal(back.job_id, "run-2026");
    assert_memory_equal(back.nonce, h.nonce, sizeof h.nonce);
    assert_true(back.session == h.session);
}

static void every_truncation_of_a_good_one_may_still_become_good(void **state)
{
    (void)state;
    struct gmi_hello h = some_hello(), back;
    uint8_t          wire[GMI_HELLO_BYTES];
    struct guard     exact = { 0 };
    gmi_hello_encode(&h, wire);
    for (size_t n = 0; n <= GMI_HELLO_BYTES; n++) {
        guard_make(&exact, n);
        memcpy(exact.bytes, wire, n);
        assert_int_equal(gmi_hello_decode(&back, exact.bytes, n), GMI_HELLO_GOOD);
    }
    guard_fini(&exact);
}

static void a_stranger_is_known_by_the_first_byte_that_cannot_be(void **state)
{
    (void)state;
    struct gmi_hello h = some_hello(), back;
    uint8_t          wire[GMI_HELLO_BYTES];
    for (size_t wrong = 0; wrong < 8; wrong++) {
        gmi_hello_encode(&h, wire);
        wire[wrong] ^= 0x20; /* 'g' is not 'G' */
        for (size_t n = 0; n <= GMI_HELLO_BYTES; n++) {
            assert_int_equal(gmi_hello_decode(&back, wire, n), n > wrong ? GMI_HELLO_STRANGER : GMI_HELLO_GOOD);
        }
    }
    assert_int_equal(gmi_hello_decode(&back, (const uint8_t *)"GET / HTTP/1.1\r\n", 16), GMI_HELLO_STRANGER);
    assert_int_equal(gmi_hello_decode(&back, (const uint8_t *)"SSH-2.0-x", 9), GMI_HELLO_STRANGER);
}

static void another_version_is_known_by_its_number(void **state)
{
    (void)state;
    struct gmi_hello h = some_hello(), back = { 0 };
    uint8_t          wire[GMI_HELLO_BYTES];
    h.version = GMI_PROTOCOL_VERSION + 513;
    gmi_hello_encode(&h, wire);
    for (size_t n = 0; n <= GMI_HELLO_BYTES; n++) {
        assert_int_equal(gmi_hello_decode(&back, wire, n), n < 10 ? GMI_HELLO_GOOD : GMI_HELLO_OTHER_VERSION);
    }
    assert_int_equal(back.version, GMI_PROTOCOL_VERSION + 513);
}

static void random_bytes_behind_the_magic_do_no_harm(void **state)
{
    (void)state;
    struct gmi_rng   rng = { .key = 1 };
    struct gmi_hello h = some_hello(), back;
    uint8_t          wire[GMI_HELLO_BYTES];
    for (int i = 0; i < 10000; i++) {
        gmi_hello_encode(&h, wire);
        for (size_t k = 10; k < sizeof wire; k++) wire[k] = (uint8_t)gmi_rng_next(&rng);
        assert_int_equal(gmi_hello_decode(&back, wire, sizeof wire), GMI_HELLO_GOOD);
        assert_true(strlen(back.job_id) < GMI_JOB_ID_BYTES);
        for (const char *c = back.job_id; *c != '\0'; c++) assert_in_range(*c, ' ', '~'); /* it goes into messages */
    }
}

static void groups_and_nonces(void **state)
{
    (void)state;
    uint8_t a[GMI_NONCE_BYTES], b[GMI_NONCE_BYTES];
    assert_int_equal(gmi_group_id("world"), gmi_group_id("world"));
    assert_int_not_equal(gmi_group_id("world"), gmi_group_id("worle"));
    assert_int_not_equal(gmi_group_id(""), gmi_group_id("a"));
    gmi_random_bytes(a, sizeof a);
    gmi_random_bytes(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_is_decoded),
        cmocka_unit_test(every_truncation_of_a_good_one_may_still_become_good),
        cmocka_unit_test(a_stranger_is_known_by_the_first_byte_that_cannot_be),
        cmocka_unit_test(another_version_is_known_by_its_number),
        cmocka_unit_test(random_bytes_behind_the_magic_do_no_harm),
        cmocka_unit_test(groups_and_nonces),
    };
    return cmocka_run_group_tests_name("hello", tests, NULL, NULL);
}
