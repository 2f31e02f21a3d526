/* By which address do ranks of several hosts find each other? Names that lead to loopback on the host that has them,
 * interfaces that others cannot reach, link-local addresses, and lookups that nobody answers. Skipped where namespaces or
 * bridges may not be made. */
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/hosts.h"

enum { N = 3, PORT = 4200, QUICK_MS = 3000 };

static bool has_network;

static struct ranks *start(void **state, void (*body)(struct rank_self *), const char *host)
{
    struct ranks_job job = { .n_ranks = N, .body = body, .is_hand_started = true, .host = host, .port = PORT };
    struct ranks    *r = ranks_start(state, &job);
    hosts_plug_in(r, N);
    return r;
}

static void check_sum(struct rank_self *self)
{
    double one = 1;
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == N);
    rank_destroy(self);
}

/* ---- loopback -------------------------------------------------------------------------------------- */

/* As many systems are set up: a host's own name is 127.0.1.1, there. */
static void know_hosts_as_usual(struct rank_self *self)
{
    char text[300] = "127.0.0.1 localhost\n", line[64];
    for (int k = 0; k < N; k++) {
        if (k == self->rank) snprintf(line, sizeof line, "127.0.1.1 node%d\n", k);
        else snprintf(line, sizeof line, "10.77.0.%d node%d\n", k + 1, k);
        strcat(text, line);
    }
    hosts_have_file(self, "/etc/hosts", text);
}

static void meet_by_name(struct rank_self *self)
{
    hosts_move_to_own(self);
    know_hosts_as_usual(self);
    check_sum(self);
}

static void a_name_that_is_loopback_on_its_own_host_is_found_by_all(void **state)
{
    if (!has_network) skip();
    ranks_finish(start(state, meet_by_name, "node0"));
}

static void insist_on_loopback(struct rank_self *self)
{
    gm_error error;
    hosts_move_to_own(self);
    if (self->rank == 1) self->options.interface_names = "lo";
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    rank_say(self, "%s", error.text);
    rank_check(self, status == GM_ERR_UNSUPPORTED && error.culprit == 1);
    rank_check(self, strstr(error.text, "rank 1 listens at 127.0.0.1:") != NULL && strstr(error.text, "GRADMESH_SOCKET_IFNAME") != NULL);
    rank_check(self, gmi_now_ns() - begin_ns < QUICK_MS * GMI_NS_PER_MS * ranks_slowness());
}

static void who_listens_at_loopback_for_other_hosts_is_named_at_once(void **state)
{
    if (!has_network) skip();
    ranks_finish(start(state, insist_on_loopback, "10.77.0.1"));
}

/* ---- link-local addresses --------------------------------------------------------------------------- */

/* Each host calls its interface otherwise, so the zone in an address means something on that host only. */
static void meet_at_a_link_local_address(struct rank_self *self)
{
    char master[64], zoneless[] = "fe80::77:1";
    gm_error error;
    hosts_move_to_own(self);
    rank_check(self, hosts_run("ip link set eth0 down && ip link set eth0 name net%d && ip link set net%d up && "
                               "ip addr add fe80::77:%d/64 dev net%d nodad", self->rank, self->rank, self->rank + 1, self->rank) == 0);
    self->options.master_addr = zoneless;
    rank_check(self, gm_comm_create(&self->comm, &self->options, &error) == GM_ERR_ARG);
    rank_check(self, strstr(error.text, "'fe80::77:1' is link-local and needs the interface: fe80::77:1%eth0") != NULL);
    snprintf(master, sizeof master, "fe80::77:1%%net%d", self->rank);
    if (self->rank == 2) snprintf(master, sizeof master, "[fe80::77:1%%%u]", if_nametoindex("net2")); /* by number, too */
    self->options.master_addr = master;
    check_sum(self);
}

static void link_local_addresses_keep_or_get_their_zone(void **state)
{
    if (!has_network) skip();
    ranks_finish(start(state, meet_at_a_link_local_address, "fe80::77:1"));
}

/* ---- names ------------------------------------------------------------------------------------------- */

static int listen_for_questions(struct rank_self *self)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(53), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int                fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    rank_check(self, fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static bool has_been_asked(int fd)
{
    char packet[600];
    return recv(fd, packet, sizeof packet, MSG_DONTWAIT) > 0;
}

/* The name server of these hosts hears every question and answers none. */
static void meet_without_a_name_server(struct rank_self *self)
{
    struct addrinfo *found;
    hosts_move_to_own(self);
    hosts_have_file(self, "/etc/nsswitch.conf", "hosts: files dns\n");
    hosts_have_file(self, "/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
    hosts_have_file(self, "/etc/hosts", "127.0.0.1 localhost\n");
    int fd = listen_for_questions(self);
    check_sum(self);
    rank_check(self, !has_been_asked(fd));
    if (self->rank == 0) { /* but a question would have been heard */
        rank_check(self, getaddrinfo("node7.example", NULL, NULL, &found) != 0);
        rank_check(self, has_been_asked(fd));
    }
    close(fd);
}

static void no_name_is_looked_up_for_an_address(void **state)
{
    if (!has_network) skip();
    ranks_finish(start(state, meet_without_a_name_server, "10.77.0.1"));
}

/* ---- nobody there ------------------------------------------------------------------------------------ */

enum { TOLD_AFTER_MS = 5000 };

static void call_in_vain(struct rank_self *self)
{
    gm_error error;
    hosts_move_to_own(self);
    if (self->rank == 0) return; /* its host is there, and nobody serves */
    rank_check(self, gm_comm_create(&self->comm, &self->options, &error) == GM_ERR_TIMEOUT);
    rank_check(self, strstr(error.text, "could not reach the store at 10.77.0.1:4200 in time") != NULL);
}

static void who_is_tried_and_why_in_vain_is_told_meanwhile(void **state)
{
    if (!has_network) skip();
    struct ranks_job job = { .n_ranks = N, .body = call_in_vain, .is_hand_started = true, .host = "10.77.0.1", .port = PORT,
                             .connect_timeout_ms = TOLD_AFTER_MS + 800 };
    struct ranks    *r = ranks_start(state, &job);
    hosts_plug_in(r, N);
    hosts_run("ip link set v2 nomaster"); /* its packets get lost */
    ranks_finish(r);
    assert_non_null(strstr(ranks_said(r, 1), "still waiting for the store at 10.77.0.1:4200: 10.77.0.1:4200: "));
    assert_non_null(strstr(ranks_said(r, 2), "still waiting for the store at 10.77.0.1:4200: 10.77.0.1:4200: "));
}

int main(void)
{
    has_network = hosts_make_network();
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_name_that_is_loopback_on_its_own_host_is_found_by_all),
        TEST(who_listens_at_loopback_for_other_hosts_is_named_at_once),
        TEST(link_local_addresses_keep_or_get_their_zone),
        TEST(no_name_is_looked_up_for_an_address),
        TEST(who_is_tried_and_why_in_vain_is_told_meanwhile),
    };
    return cmocka_run_group_tests_name("addresses", tests, NULL, NULL);
}
