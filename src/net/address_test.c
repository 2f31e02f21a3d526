#include "net/address.h"

#include <netinet/in.h>

#include "base/error.h"
#include "tests/support/test.h"

/* ---- host and port ------------------------------------------------------------------------------- */

static void good_addresses_are_split(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int         port;
    } good[] = {
        { "10.0.0.7:4100", "10.0.0.7", 4100 },       { "node-3.cluster:1", "node-3.cluster", 1 },
        { "[::1]:65535", "::1", 65535 },             { "[fe80::1%eth0]:4100", "fe80::1%eth0", 4100 },
        { "[2001:db8::7]:00080", "2001:db8::7", 80 }, { "h:7", "h", 7 },
    };
    for (size_t i = 0; i < TEST_COUNT(good); i++) {
        char host[64];
        int  port;
        assert_ok(gmi_host_port_split(good[i].text, host, sizeof host, &port, NULL));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
}

static void bad_addresses_are_refused_and_shown(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         ":",        "host",       "host:",      ":80",         "host:0",     "host:65536",  "host:-1",
        "host:+80", "host: 80", "host:80 ",   "host:80x",   "host:0x50",   "::1",        "::1:80",      "fe80::1:80",
        "[::1]",    "[::1]80",  "[::1]:",     "[::1:80",    "[]:80",       "[::1]:80:9", "host:80:90",  "[::1]x:80",
        "host:99999999999999999999",
    };
    for (size_t i = 0; i < TEST_COUNT(bad); i++) {
        char     host[64];
        int      port;
        gm_error e;
        gmi_error_clear(&e);
        if (gmi_host_port_split(bad[i], host, sizeof host, &port, &e) != GM_ERR_ARG) fail_msg("'%s' was taken", bad[i]);
        assert_contains(e.text, bad[i]);
        assert_contains(e.text, "host:port");
    }
}

static void a_host_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char host[4] = "", text[200];
    int  port;
    assert_ok(gmi_host_port_split("abc:1", host, sizeof host, &port, NULL));
    assert_status(gmi_host_port_split("abcd:1", host, sizeof host, &port, NULL), GM_ERR_ARG);
    memset(text, 'a', sizeof text);
    memcpy(text + 190, ":80", 4);
    assert_status(gmi_host_port_split(text, host, sizeof host, &port, NULL), GM_ERR_ARG);
}

/* ---- numeric addresses --------------------------------------------------------------------------- */

static void numeric_addresses_go_in_and_out(void **state)
{
    (void)state;
    static const char *const texts[] = { "127.0.0.1:4100", "10.1.2.3:1", "[::1]:80", "[2001:db8::1]:65535", "[fe80::1%lo]:9" };
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        struct gmi_address a, b;
        char               text[GMI_ADDRESS_TEXT_BYTES];
        assert_ok(gmi_address_parse_numeric(&a, texts[i], NULL));
        assert_string_equal(gmi_address_format(&a, text), texts[i]);
        assert_ok(gmi_address_parse_numeric(&b, text, NULL));
        assert_true(gmi_address_equal(&a, &b));
        gmi_address_set_port(&b, 7);
        assert_int_equal(gmi_address_port(&b), 7);
        assert_false(gmi_address_equal(&a, &b));
    }
}

static void what_is_not_numeric_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "localhost:80", "1.2.3.4.5:80", "[::g]:80", "[fe80::1%no-such-interface]:9", "300.0.0.1:5" };
    for (size_t i = 0; i < TEST_COUNT(bad); i++) {
        struct gmi_address a;
        gm_error           e;
        gmi_error_clear(&e);
        assert_status(gmi_address_parse_numeric(&a, bad[i], &e), GM_ERR_ARG);
        assert_true(e.text[0] != '\0');
    }
}

static void the_zone_counts_when_addresses_are_compared(void **state)
{
    (void)state;
    struct gmi_address a, b;
    assert_ok(gmi_address_parse_numeric(&a, "[fe80::1%lo]:9", NULL));
    b = a;
    ((struct sockaddr_in6 *)&b.storage)->sin6_scope_id += 1;
    assert_false(gmi_address_equal(&a, &b));
    assert_ok(gmi_address_parse_numeric(&b, "127.0.0.1:9", NULL));
    assert_false(gmi_address_equal(&a, &b));
}

static void kinds_of_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool        is_loopback, is_link_local;
    } kinds[] = {
        { "127.0.0.1:1", true, false },        { "127.9.8.7:1", true, false },
        { "126.0.0.1:1", false, false },       { "10.0.0.1:1", false, false },
        { "[::1]:1", true, false },            { "[::ffff:127.0.0.1]:1", true, false },
        { "[::ffff:10.0.0.1]:1", false, false }, { "[fe80::1%lo]:1", false, true },
        { "[2001:db8::1]:1", false, false },   { "[fd00::1]:1", false, false },
    };
    for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
        struct gmi_address a;
        assert_ok(gmi_address_parse_numeric(&a, kinds[i].text, NULL));
        assert_int_equal(gmi_address_is_loopback(&a), kinds[i].is_loopback);
        assert_int_equal(gmi_address_is_link_local(&a), kinds[i].is_link_local);
    }
}

/* ---- names --------------------------------------------------------------------------------------- */

static void names_are_resolved(void **state)
{
    (void)state;
    struct gmi_address_list list;
    assert_ok(gmi_address_resolve(&list, "127.0.0.1", 81, NULL));
    assert_int_equal(list.n_addresses, 1);
    assert_int_equal(gmi_address_port(&list.addresses[0]), 81);
    assert_ok(gmi_address_resolve(&list, "localhost", 82, NULL));
    assert_true(list.n_addresses >= 1);
    for (int i = 0; i < list.n_addresses; i++) {
        assert_true(gmi_address_is_loopback(&list.addresses[i]));
        assert_int_equal(gmi_address_port(&list.addresses[i]), 82);
    }
}

static void a_name_that_does_not_resolve_may_do_so_later(void **state)
{
    (void)state;
    struct gmi_address_list list;
    gm_error                e;
    /* A label that is too long for any name server, so that none is asked. */
    const char *name = "an-impossible-label-of-more-than-sixty-three-characters-which-no-host-can-have";
    gmi_error_clear(&e);
    assert_status(gmi_address_resolve(&list, name, 1, &e), GM_AGAIN);
    assert_contains(e.text, name);
}

static void names_mean_something_to_others_but_numbers_and_localhost_do_not(void **state)
{
    (void)state;
    static const char *const own[] = { "localhost", "LocalHost", "ip6-localhost", "127.0.1.1", "10.0.0.7", "::1", "fe80::1%lo" };
    for (size_t i = 0; i < TEST_COUNT(own); i++) assert_false(gmi_host_is_known_to_others(own[i]));
    assert_true(gmi_host_is_known_to_others("node0"));
    assert_true(gmi_host_is_known_to_others("localhost7.example"));
}

static void published_addresses_are_called_from_here(void **state)
{
    (void)state;
    static const struct {
        const char *published, *meeting, *called;
    } cases[] = {
        { "10.0.0.7:4100", "10.0.0.1:1", "10.0.0.7:4100" },
        { "0.0.0.0:4100", "10.0.0.1:1", "10.0.0.1:4100" },
        { "0.0.0.0:4100", "[2001:db8::1]:1", "[2001:db8::1]:4100" },
        { "[::]:4100", "127.0.1.1:1", "127.0.1.1:4100" },
        { "[fe80::7%noneth9]:4100", "[fe80::1%lo]:1", "[fe80::7%lo]:4100" },
        { "[fe80::7%noneth9]:4100", "10.0.0.1:1", "[fe80::7%noneth9]:4100" },
        { "[2001:db8::7]:4100", "[fe80::1%lo]:1", "[2001:db8::7]:4100" },
        { "not an address", "10.0.0.1:1", "not an address" },
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        struct gmi_address meeting;
        char               text[GMI_ADDRESS_TEXT_BYTES];
        assert_ok(gmi_address_parse_numeric(&meeting, cases[i].meeting, NULL));
        snprintf(text, sizeof text, "%s", cases[i].published);
        gmi_address_localize(text, &meeting);
        assert_string_equal(text, cases[i].called);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses_are_split),
        cmocka_unit_test(bad_addresses_are_refused_and_shown),
        cmocka_unit_test(a_host_that_does_not_fit_is_refused),
        cmocka_unit_test(numeric_addresses_go_in_and_out),
        cmocka_unit_test(what_is_not_numeric_is_refused),
        cmocka_unit_test(the_zone_counts_when_addresses_are_compared),
        cmocka_unit_test(kinds_of_addresses),
        cmocka_unit_test(names_are_resolved),
        cmocka_unit_test(names_mean_something_to_others_but_numbers_and_localhost_do_not),
        cmocka_unit_test(published_addresses_are_called_from_here),
        cmocka_unit_test(a_name_that_does_not_resolve_may_do_so_later),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
