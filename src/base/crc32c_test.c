#include "base/crc32c.h"

#include "base/rng.h"
#include "tests/support/test.h"

/* Bit by bit, as the definition has it. */
static uint32_t naive(uint32_t crc, const uint8_t *bytes, size_t n_bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}

/* RFC 3720, B.4. */
static void known_answers(void **state)
{
    uint8_t zeros[32] = { 0 }, ones[32], rising[32];
    (void)state;
    for (int i = 0; i < 32; i++) {
        ones[i] = 0xff;
        rising[i] = (uint8_t)i;
    }
    assert_int_equal(gmi_crc32c(0, zeros, 32), 0x8a9136aau);
    assert_int_equal(gmi_crc32c(0, ones, 32), 0x62a8ab43u);
    assert_int_equal(gmi_crc32c(0, rising, 32), 0x46dd794eu);
    assert_int_equal(gmi_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(gmi_crc32c(0, "", 0), 0);
}

static void any_length_and_place_by_either_way(void **state)
{
    static uint8_t bytes[20000];
    struct gmi_rng rng = { .key = gmi_rng_key(1, 2) };
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)gmi_rng_next(&rng);
    for (int round = 0; round < 300; round++) {
        size_t at = gmi_rng_next_below(&rng, 64), n = gmi_rng_next_below(&rng, round < 200 ? 300 : 19000);
        assert_int_equal(gmi_crc32c(0, bytes + at, n), naive(0, bytes + at, n));
        assert_int_equal(gmi_crc32c_by_table(0, bytes + at, n), naive(0, bytes + at, n));
    }
}

static void parts_give_the_checksum_of_the_whole(void **state)
{
    static uint8_t bytes[10000];
    struct gmi_rng rng = { .key = gmi_rng_key(3, 4) };
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)gmi_rng_next(&rng);
    for (int round = 0; round < 100; round++) {
        size_t first = gmi_rng_next_below(&rng, sizeof bytes);
        assert_int_equal(gmi_crc32c(gmi_crc32c(0, bytes, first), bytes + first, sizeof bytes - first), naive(0, bytes, sizeof bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(any_length_and_place_by_either_way),
        cmocka_unit_test(parts_give_the_checksum_of_the_whole),
    };
    return cmocka_run_group_tests_name("crc32c", tests, NULL, NULL);
}
