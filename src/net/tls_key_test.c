/* The records of RFC 8448, section 3: of a connection whose secrets are known. */
#include "net/tls_key.h"

#include <openssl/crypto.h>

#include "tests/support/test.h"

static const char secret_text[] = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
/* The client's first record of data: the bytes 0 to 49. */
static const char record_text[] =
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3dea"
    "e63aeebb21694915e4";
enum { CONTENT_BYTES = 50, RECORD_BYTES = CONTENT_BYTES + GMI_TLS_ADDED_BYTES };

struct both {
    struct gmi_tls_key sealing, opening;
    uint8_t            content[CONTENT_BYTES], record[RECORD_BYTES];
};

static int set_up(void **state)
{
    static struct both b;
    uint8_t            secret[GMI_TLS_SECRET_BYTES];
    size_t             n;
    assert_int_equal(OPENSSL_hexstr2buf_ex(secret, sizeof secret, &n, secret_text, '\0'), 1);
    assert_int_equal(OPENSSL_hexstr2buf_ex(b.record, sizeof b.record, &n, record_text, '\0'), 1);
    assert_int_equal(n, sizeof b.record);
    assert_true(gmi_tls_key_init(&b.sealing, secret, true) && gmi_tls_key_init(&b.opening, secret, false));
    for (int i = 0; i < CONTENT_BYTES; i++) b.content[i] = (uint8_t)i;
    *state = &b;
    return 0;
}

static int tear_down(void **state)
{
    struct both *b = *state;
    gmi_tls_key_fini(&b->sealing);
    gmi_tls_key_fini(&b->opening);
    return 0;
}

static void a_record_is_the_one_of_the_standard_however_its_content_lies(void **state)
{
    struct both *b = *state;
    uint8_t      record[RECORD_BYTES], got[CONTENT_BYTES], type;
    struct iovec from[] = { { b->content, 8 }, { b->content + 8, 0 }, { b->content + 8, 42 } };
    struct iovec to[] = { { got, 1 }, { got + 1, 33 }, { got + 34, 16 } };
    assert_int_equal(gmi_tls_seal(&b->sealing, GMI_TLS_DATA, from, 3, record), RECORD_BYTES);
    assert_memory_equal(record, b->record, RECORD_BYTES);
    assert_int_equal(gmi_tls_record_bytes(record), RECORD_BYTES);
    assert_true(gmi_tls_open(&b->opening, record, to, 3, &type));
    assert_int_equal(type, GMI_TLS_DATA);
    assert_memory_equal(got, b->content, CONTENT_BYTES);
}

static void a_bit_that_differs_is_found_wherever_it_is(void **state)
{
    struct both *b = *state;
    for (size_t bit = 0; bit < 8 * RECORD_BYTES; bit++) {
        uint8_t      record[RECORD_BYTES], got[CONTENT_BYTES], type;
        struct iovec to = { got, sizeof got };
        memcpy(record, b->record, sizeof record);
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        b->opening.n_records = 0;
        assert_false(gmi_tls_open(&b->opening, record, &to, 1, &type));
    }
}

/* The same content twice: another record, good in its place only. */
static void no_record_can_be_left_out_or_come_twice(void **state)
{
    struct both *b = *state;
    uint8_t      records[2][RECORD_BYTES], got[CONTENT_BYTES], type;
    struct iovec from = { b->content, CONTENT_BYTES }, to = { got, CONTENT_BYTES };
    for (int i = 0; i < 2; i++) assert_true(gmi_tls_seal(&b->sealing, GMI_TLS_DATA, &from, 1, records[i]) > 0);
    assert_memory_not_equal(records[0], records[1], RECORD_BYTES);
    assert_false(gmi_tls_open(&b->opening, records[1], &to, 1, &type));
    b->opening.n_records = 0;
    assert_true(gmi_tls_open(&b->opening, records[0], &to, 1, &type));
    assert_false(gmi_tls_open(&b->opening, records[0], &to, 1, &type));
}

static void the_next_key_opens_what_the_next_key_sealed(void **state)
{
    struct both *b = *state;
    uint8_t      record[RECORD_BYTES], got[CONTENT_BYTES], type;
    struct iovec from = { b->content, CONTENT_BYTES }, to = { got, CONTENT_BYTES };
    assert_true(gmi_tls_key_next(&b->sealing));
    assert_true(gmi_tls_seal(&b->sealing, GMI_TLS_DATA, &from, 1, record) > 0);
    assert_false(gmi_tls_open(&b->opening, record, &to, 1, &type));
    assert_true(gmi_tls_key_next(&b->opening));
    assert_true(gmi_tls_open(&b->opening, record, &to, 1, &type));
    assert_memory_equal(got, b->content, CONTENT_BYTES);
}

static void what_cannot_begin_a_record_is_refused(void **state)
{
    (void)state;
    static const uint8_t bad[][GMI_TLS_HEADER_BYTES] = {
        { 22, 3, 3, 0, 17 }, { 23, 3, 1, 0, 17 }, { 23, 2, 3, 0, 17 }, { 23, 3, 3, 0, 16 }, { 23, 3, 3, 0x40, 18 }, { 23, 3, 3, 255, 255 },
    };
    static const uint8_t least[] = { 23, 3, 3, 0, 17 }, most[] = { 23, 3, 3, 0x40, 17 };
    for (size_t i = 0; i < TEST_COUNT(bad); i++) assert_int_equal(gmi_tls_record_bytes(bad[i]), 0);
    assert_int_equal(gmi_tls_record_bytes(least), GMI_TLS_ADDED_BYTES);
    assert_int_equal(gmi_tls_record_bytes(most), GMI_TLS_CONTENT_BYTES + GMI_TLS_ADDED_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_is_the_one_of_the_standard_however_its_content_lies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bit_that_differs_is_found_wherever_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_record_can_be_left_out_or_come_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_key_opens_what_the_next_key_sealed, set_up, tear_down),
        cmocka_unit_test(what_cannot_begin_a_record_is_refused),
    };
    return cmocka_run_group_tests_name("tls key", tests, NULL, NULL);
}
