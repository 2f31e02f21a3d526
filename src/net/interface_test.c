/* interface_test.c - the choice among interfaces that are made up here, and once among those of this host. */
#include "net/interface.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include "base/error.h"
#include "tests/support/test.h"

enum { MAX_INTERFACES = 12 };

struct made_up {
    const char *name, *address;
    unsigned    flags;
};

struct host {
    struct ifaddrs          list[MAX_INTERFACES];
    struct sockaddr_storage addresses[MAX_INTERFACES];
};

static void make_host(struct host *h, const struct made_up *interfaces, size_t n)
{
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < n; i++) {
        struct sockaddr_in  *four = (struct sockaddr_in *)&h->addresses[i];
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&h->addresses[i];
        h->list[i] = (struct ifaddrs){ .ifa_name = (char *)interfaces[i].name, .ifa_flags = interfaces[i].flags };
        if (i + 1 < n) h->list[i].ifa_next = &h->list[i + 1];
        if (interfaces[i].address == NULL) continue; /* as of a tunnel without one */
        h->list[i].ifa_addr = (struct sockaddr *)&h->addresses[i];
        if (inet_pton(AF_INET, interfaces[i].address, &four->sin_addr) == 1) {
            four->sin_family = AF_INET;
        } else {
            assert_int_equal(inet_pton(AF_INET6, interfaces[i].address, &six->sin6_addr), 1);
            six->sin6_family = AF_INET6;
        }
    }
}

static const struct made_up cluster_node[] = {
    { "lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK },
    { "tun0", NULL, IFF_UP },
    { "docker0", "172.17.0.1", IFF_UP },
    { "eth1", "192.168.7.9", 0 }, /* down */
    { "eth0", "fe80::42", IFF_UP },
    { "eth0", "10.1.2.3", IFF_UP },
    { "eth0", "2001:db8::3", IFF_UP },
    { "eth10", "10.99.0.1", IFF_UP },
    { "ib0", "10.64.0.5", IFF_UP },
    { "lo", "::1", IFF_UP | IFF_LOOPBACK },
};

/* What the list chooses, as text; "" if nothing fits. */
static const char *choice(const char *list, int family)
{
    static char        text[GMI_ADDRESS_TEXT_BYTES];
    struct host        h;
    struct gmi_interface_choice c;
    make_host(&h, cluster_node, TEST_COUNT(cluster_node));
    if (gmi_interface_pick(&c, h.list, list, family, NULL) != GM_OK) return "";
    gmi_address_set_port(&c.address, 1);
    return gmi_address_format(&c.address, text);
}

static void names_by_prefix_exactly_or_excluded(void **state)
{
    (void)state;
    assert_string_equal(choice("eth", AF_INET), "10.1.2.3:1");
    assert_string_equal(choice("ib,eth", AF_INET), "10.1.2.3:1"); /* the host's order, not the list's */
    assert_string_equal(choice("ib", AF_INET), "10.64.0.5:1");
    assert_string_equal(choice("=eth10", AF_INET), "10.99.0.1:1");
    assert_string_equal(choice("=eth", AF_INET), "");
    assert_string_equal(choice("eth1", AF_INET), "10.99.0.1:1"); /* eth1 itself is down */
    assert_string_equal(choice("=eth1", AF_INET), "");
    assert_string_equal(choice("^docker", AF_INET), "10.1.2.3:1");
    assert_string_equal(choice("^docker,eth", AF_INET), "10.64.0.5:1");
    assert_string_equal(choice("^=docker0,eth0", AF_INET), "10.99.0.1:1");
    assert_string_equal(choice("^docker,eth,ib,tun", AF_INET), ""); /* loopback is not what is left */
    assert_string_equal(choice("lo", AF_INET), "127.0.0.1:1");      /* but may be asked for */
    assert_string_equal(choice("tun0", AF_INET), "");
    assert_string_equal(choice("", AF_INET), "");
    assert_string_equal(choice(",,ib", AF_INET), "10.64.0.5:1");
}

static void networks(void **state)
{
    (void)state;
    assert_string_equal(choice("10.64.0.0/16", AF_INET), "10.64.0.5:1");
    assert_string_equal(choice("10.0.0.0/8", AF_INET), "10.1.2.3:1");
    assert_string_equal(choice("172.16.0.0/12", AF_INET), "172.17.0.1:1");
    assert_string_equal(choice("10.64.0.5/32", AF_INET), "10.64.0.5:1");
    assert_string_equal(choice("10.64.0.4/32", AF_INET), "");
    assert_string_equal(choice("2001:db8::/32", AF_INET), "[2001:db8::3]:1");
    assert_string_equal(choice("2001:db9::/31,10.99.0.0/24", AF_INET), "10.99.0.1:1");
    assert_string_equal(choice("0.0.0.0/0", AF_INET), "127.0.0.1:1");
}

static void what_is_no_network_fits_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = { "10.0.0.0/", "10.0.0.0/x", "10.0.0.0/8x", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8",
                                       "/8", "eth/8", "10.0.0/8", "10.0.0.0/99999999999", "::/129",
                                       "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb/8" };
    for (size_t i = 0; i < TEST_COUNT(bad); i++) {
        if (choice(bad[i], AF_INET)[0] != '\0') fail_msg("'%s' chose %s", bad[i], choice(bad[i], AF_INET));
    }
}

static void the_wanted_family_but_rather_no_link_local_address(void **state)
{
    (void)state;
    assert_string_equal(choice("eth0", AF_INET), "10.1.2.3:1");
    assert_string_equal(choice("eth0", AF_INET6), "[2001:db8::3]:1"); /* though fe80:: comes first */
    assert_string_equal(choice("fe80::/10", AF_INET), "[fe80::42]:1");
    assert_string_equal(choice("ib0", AF_INET6), "10.64.0.5:1");
}

static void nothing_that_fits_is_an_error_that_lists_what_there_is(void **state)
{
    (void)state;
    struct host                 h;
    struct gmi_interface_choice c;
    gm_error                    e;
    gmi_error_clear(&e);
    make_host(&h, cluster_node, TEST_COUNT(cluster_node));
    assert_status(gmi_interface_pick(&c, h.list, "wlan", AF_INET, &e), GM_ERR_ARG);
    assert_contains(e.text, "'wlan'");
    assert_contains(e.text, "docker0");
    assert_contains(e.text, "ib0");
    gmi_error_clear(&e);
    assert_status(gmi_interface_pick(&c, NULL, "eth", AF_INET, &e), GM_ERR_ARG);
}

static void this_host_has_a_loopback(void **state)
{
    (void)state;
    struct gmi_interface_choice c;
    assert_ok(gmi_interface_choose(&c, "127.0.0.0/8", AF_INET, NULL));
    assert_true(gmi_address_is_loopback(&c.address));
    assert_int_equal(gmi_address_port(&c.address), 0);
}

static void a_name_within_another_is_listed_too(void **state)
{
    (void)state;
    static const struct made_up  namespaced[] = { { "lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK },
                                                  { "veth0", "10.1.0.1", IFF_UP },
                                                  { "eth0", "10.2.0.1", IFF_UP },
                                                  { "eth0.7", "10.3.0.1", IFF_UP },
                                                  { "eth0", "fe80::1", IFF_UP } };
    struct host                 h;
    struct gmi_interface_choice c;
    gm_error                    e;
    gmi_error_clear(&e);
    make_host(&h, namespaced, TEST_COUNT(namespaced));
    assert_status(gmi_interface_pick(&c, h.list, "wlan", AF_INET, &e), GM_ERR_ARG);
    assert_contains(e.text, "there are: lo, veth0, eth0, eth0.7");
}

/* One interface a rank: what else fits is told. */
static void others_says(const char *list, const char *name, const char *others)
{
    struct host                 h;
    struct gmi_interface_choice c;
    make_host(&h, cluster_node, TEST_COUNT(cluster_node));
    assert_ok(gmi_interface_pick(&c, h.list, list, AF_INET, NULL));
    assert_string_equal(c.name, name);
    assert_string_equal(c.others, others);
}

static void several_that_fit_are_told(void **state)
{
    (void)state;
    others_says("=eth0,ib0", "eth0", "ib0");
    others_says("eth", "eth0", "eth10");
    others_says("eth,ib", "eth0", "eth10, ib0");
    others_says("=eth0", "eth0", "");
    others_says("=wlan0,ib0", "ib0", ""); /* a list for hosts that differ */
    others_says("^docker", "eth0", "");   /* not what was named, but what was not wanted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_by_prefix_exactly_or_excluded),
        cmocka_unit_test(networks),
        cmocka_unit_test(what_is_no_network_fits_nothing),
        cmocka_unit_test(the_wanted_family_but_rather_no_link_local_address),
        cmocka_unit_test(nothing_that_fits_is_an_error_that_lists_what_there_is),
        cmocka_unit_test(this_host_has_a_loopback),
        cmocka_unit_test(a_name_within_another_is_listed_too),
        cmocka_unit_test(several_that_fit_are_told),
    };
    return cmocka_run_group_tests_name("interface", tests, NULL, NULL);
}
