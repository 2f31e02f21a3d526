/* Each rank on a host of its own, as far as the kernel is concerned: a network namespace with one interface, whose
 * other end is a port of a bridge. A cable is pulled in every phase of a communicator's life; within three seconds
 * everybody names somebody at an end of it. Skipped where namespaces or bridges may not be made. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/hosts.h"

enum { N = 4, DEFAULT_LIMIT_MS = 300000, BOUND_MS = 3000, PORT = 4100, BIG_ELEMS = 1 << 21 };
enum mark { READY, CUT, TOLD };

static bool has_network, is_encrypted;

static struct ranks *start(void **state, void (*body)(struct rank_self *), const void *user, int connect_ms)
{
    struct ranks_job job = { .n_ranks = N, .body = body, .user = user, .is_hand_started = true, .host = "10.77.0.1", .port = PORT,
                             .stall_limit_ms = DEFAULT_LIMIT_MS, .connect_timeout_ms = connect_ms,
                             .secret = is_encrypted ? "a secret of the tests" : NULL, .is_encrypted = is_encrypted };
    struct ranks *r = ranks_start(state, &job);
    hosts_plug_in(r, N);
    return r;
}

/* ---- what everybody is doing ------------------------------------------------------------------------ */

enum phase { IN_BIG_CALLS, IN_A_BARRIER, IN_AN_ASYNC_WAIT, IN_USER_CODE, IN_DESTROY };
enum how { CABLE_PULLED, PACKETS_SWALLOWED };

struct plan {
    int        cut; /* whose cable */
    enum phase phase;
    enum how   how;
};

static void nap_ms(int ms) { nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL); }

static gm_status live_through(struct rank_self *self, enum phase phase)
{
    static float values[BIG_ELEMS];
    gm_status    status = GM_OK;
    gm_work     *work;
    switch (phase) {
    case IN_A_BARRIER:
        if (self->rank == N - 1) nap_ms(BOUND_MS * ranks_slowness()); /* the others wait for it */
        return gm_barrier(self->comm);
    case IN_AN_ASYNC_WAIT:
        rank_await(self, CUT, 1);
        rank_ok(self, gm_all_reduce_start(self->comm, values, values, 1000, GM_F32, GM_SUM, &work));
        status = gm_work_wait(work, -1);
        gm_work_release(work);
        return status;
    case IN_USER_CODE:
        rank_await(self, CUT, 1);
        nap_ms(BOUND_MS * ranks_slowness() - 50);
        return gm_barrier(self->comm);
    default:
        while (status == GM_OK) status = gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM);
        return status;
    }
}

static void live(struct rank_self *self)
{
    const struct plan *plan = self->user;
    hosts_move_to_own(self);
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_mark(self, READY);
    if (plan->phase != IN_DESTROY) {
        rank_expect(self, GM_ERR_PEER_LOST, live_through(self, plan->phase));
        rank_record(self, GM_ERR_PEER_LOST);
        rank_say(self, "%lld ms after the cut: %s",
                 (long long)((self->record->at_ns - atomic_load(&self->shared->times_ns[CUT])) / GMI_NS_PER_MS),
                 gm_comm_error(self->comm)->text);
        rank_mark(self, TOLD);
    } else {
        rank_await(self, CUT, 1);
    }
    int64_t begin_ns = gmi_now_ns();
    rank_destroy(self);
    rank_check(self, gmi_now_ns() - begin_ns < BOUND_MS * GMI_NS_PER_MS * ranks_slowness());
    rank_mark(self, TOLD);
}

static void cut_one_off(void **state, struct plan plan)
{
    if (!has_network) skip();
    struct ranks *r = start(state, live, &plan, 0);
    ranks_await(r, READY, N);
    ranks_serve(r, 50);
    atomic_store(&ranks_shared(r)->times_ns[CUT], gmi_now_ns());
    hosts_run(plan.how == CABLE_PULLED ? "ip link set v%d down" : "ip link set v%d nomaster", plan.cut);
    atomic_store(&ranks_shared(r)->marks[CUT], 1);
    ranks_finish(r);
    int64_t slowest_ms = 0;
    for (int k = 0; k < N && plan.phase != IN_DESTROY; k++) {
        const struct rank_record *record = &ranks_shared(r)->records[k];
        int64_t took_ms = (record->at_ns - atomic_load(&ranks_shared(r)->times_ns[CUT])) / GMI_NS_PER_MS;
        if (took_ms > slowest_ms) slowest_ms = took_ms;
        /* The one behind the cable names whom it misses first. */
        if (k != plan.cut) assert_int_equal(record->error.culprit, plan.cut);
        else assert_int_not_equal(record->error.culprit, plan.cut);
    }
    print_message("rank %d cut off, phase %d: all know after %lld ms\n", plan.cut, plan.phase, (long long)slowest_ms);
    /* Some look only when the bound has passed; on a crowded machine a nap takes longer. */
    assert_true(slowest_ms <= (BOUND_MS + 1000) * ranks_slowness());
}

static void a_pulled_cable_in_the_middle_of_big_calls(void **state)
{
    cut_one_off(state, (struct plan){ 2, IN_BIG_CALLS, CABLE_PULLED });
}
static void rank_0_behind_a_network_that_swallows_all(void **state)
{
    cut_one_off(state, (struct plan){ 0, IN_BIG_CALLS, PACKETS_SWALLOWED });
}
static void while_all_wait_in_a_barrier(void **state)
{
    cut_one_off(state, (struct plan){ 1, IN_A_BARRIER, PACKETS_SWALLOWED });
}
static void in_an_asynchronous_wait_that_begins_after_the_cut(void **state)
{
    cut_one_off(state, (struct plan){ 3, IN_AN_ASYNC_WAIT, CABLE_PULLED });
}
static void while_nobody_calls_anything(void **state)
{
    cut_one_off(state, (struct plan){ 2, IN_USER_CODE, PACKETS_SWALLOWED });
}
static void a_goodbye_over_a_cut_cable_ends_too(void **state)
{
    cut_one_off(state, (struct plan){ 1, IN_DESTROY, CABLE_PULLED });
}

/* ---- one link of many ------------------------------------------------------------------------------ */

/* Both ends still reach rank 0: no heartbeat is missed, only what they have for each other gets lost. */
static void lose_a_neighbour(struct rank_self *self)
{
    static float values[BIG_ELEMS];
    gm_status    status = GM_OK;
    hosts_move_to_own(self);
    self->options.algorithm = "ring";
    rank_create(self);
    rank_mark(self, READY);
    rank_await(self, READY, N);
    if (self->rank == 1) {
        atomic_store(&self->shared->times_ns[CUT], gmi_now_ns());
        rank_check(self, hosts_run("ip route add blackhole 10.77.0.3/32") == 0);
    }
    while (status == GM_OK) status = gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM);
    rank_record(self, status);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(self->comm)->culprit == 1 || gm_comm_error(self->comm)->culprit == 2);
    rank_destroy(self);
}

static void a_cut_between_two_neighbours_is_blamed_on_one_of_them(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start(state, lose_a_neighbour, NULL, 0);
    ranks_finish(r);
    int64_t slowest_ms = 0;
    for (int k = 0; k < N; k++) {
        int64_t took_ms = (ranks_shared(r)->records[k].at_ns - atomic_load(&ranks_shared(r)->times_ns[CUT])) / GMI_NS_PER_MS;
        if (took_ms > slowest_ms) slowest_ms = took_ms;
        assert_int_equal(ranks_shared(r)->records[k].error.culprit, ranks_shared(r)->records[0].error.culprit);
    }
    print_message("a link cut: all know after %lld ms\n", (long long)slowest_ms);
    assert_true(slowest_ms <= (BOUND_MS + 500) * ranks_slowness());
}

static void so_is_a_cut_between_two_that_encrypt(void **state)
{
    is_encrypted = true;
    a_cut_between_two_neighbours_is_blamed_on_one_of_them(state);
    is_encrypted = false;
}

/* ---- several interfaces ----------------------------------------------------------------------------- */

/* On every host there is a bridge, made first, with an address that is the same everywhere. Who took
 * it for the way to the others would reach itself. */
static void have_a_misleading_bridge(struct rank_self *self)
{
    double one = 1;
    rank_check(self, unshare(CLONE_NEWNET) == 0);
    rank_check(self, hosts_run("ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up") == 0);
    rank_mark(self, HOSTS_NAKED);
    rank_await(self, HOSTS_PLUGGED, 1);
    rank_check(self, hosts_run("ip link set lo up && ip addr add 10.77.0.%d/24 dev eth0 && ip link set eth0 up", self->rank + 1) == 0);
    if (self->rank == 3) self->options.interface_names = "^docker";
    if (self->rank == 1) self->options.interface_names = "10.77.0.0/24";
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == N);
    rank_destroy(self);
}

static void a_bridge_with_the_same_address_on_every_host_is_not_taken(void **state)
{
    if (!has_network) skip();
    ranks_finish(start(state, have_a_misleading_bridge, NULL, 0));
}

/* ---- congestion control ------------------------------------------------------------------------------ */

#define CONGESTION "/proc/sys/net/ipv4/tcp_congestion_control"

static bool may_use_bbr(void)
{
    char text[16] = "";
    hosts_run("echo bbr > " CONGESTION);
    int fd = open(CONGESTION, O_RDONLY);
    if (fd >= 0) (void)!read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    return strncmp(text, "bbr", 3) == 0;
}

/* Of this process's connections to other hosts. */
static int count_going_by(const char *wanted)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in peer;
        socklen_t          peer_bytes = sizeof peer;
        char               name[16] = "";
        socklen_t          name_bytes = sizeof name - 1;
        if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 || peer.sin_family != AF_INET) continue;
        n += getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes) == 0 && strcmp(name, wanted) == 0;
    }
    return n;
}

static void be_near_under_bbr(struct rank_self *self)
{
    double one = 1;
    hosts_move_to_own(self);
    rank_check(self, may_use_bbr());
    self->options.algorithm = "ring";
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, count_going_by("reno") >= 2);
    rank_destroy(self);
}

static void links_to_near_hosts_go_by_reno_instead_of_bbr(void **state)
{
    if (!has_network || !may_use_bbr()) skip();
    ranks_finish(start(state, be_near_under_bbr, NULL, 0));
}

/* ---- start-up -------------------------------------------------------------------------------------- */

enum { LATE = 3, LOST = 1, CONNECT_MS = 9000, JOIN_MS = 2000 };

static void be_cut_off_while_gathering(struct rank_self *self)
{
    hosts_move_to_own(self);
    if (self->rank == LATE) { /* so that the others wait, and notice first */
        rank_await(self, CUT, 1);
        nap_ms(BOUND_MS * ranks_slowness());
    }
    if (self->rank != LATE) rank_mark(self, READY);
    gm_error  error;
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    rank_record(self, status);
    rank_say(self, "%s", error.text);
    if (self->rank == LOST) {
        rank_check(self, status == GM_ERR_PEER_LOST && error.culprit == 0);
    } else {
        rank_check(self, status == GM_ERR_TIMEOUT && strstr(error.text, "rank(s) 1 of 4 did not come") != NULL);
    }
}

static void a_rank_cut_off_at_the_start_is_missed_by_name(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start(state, be_cut_off_while_gathering, NULL, CONNECT_MS * ranks_slowness());
    ranks_await(r, READY, N - 1);
    ranks_serve(r, JOIN_MS * ranks_slowness());
    atomic_store(&ranks_shared(r)->times_ns[CUT], gmi_now_ns());
    hosts_run("ip link set v%d nomaster", LOST);
    atomic_store(&ranks_shared(r)->marks[CUT], 1);
    ranks_finish(r);
    int64_t took_ms = (ranks_shared(r)->records[LOST].at_ns - atomic_load(&ranks_shared(r)->times_ns[CUT])) / GMI_NS_PER_MS;
    print_message("start-up: the rank that was cut off knows after %lld ms\n", (long long)took_ms);
    assert_true(took_ms <= BOUND_MS * ranks_slowness());
    assert_non_null(strstr(ranks_said(r, 0), "rank 1 went away while the others were still gathering"));
}

int main(void)
{
    has_network = hosts_make_network();
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_pulled_cable_in_the_middle_of_big_calls),
        TEST(rank_0_behind_a_network_that_swallows_all),
        TEST(while_all_wait_in_a_barrier),
        TEST(in_an_asynchronous_wait_that_begins_after_the_cut),
        TEST(while_nobody_calls_anything),
        TEST(a_goodbye_over_a_cut_cable_ends_too),
        TEST(a_cut_between_two_neighbours_is_blamed_on_one_of_them),
        TEST(so_is_a_cut_between_two_that_encrypt),
        TEST(a_bridge_with_the_same_address_on_every_host_is_not_taken),
        TEST(links_to_near_hosts_go_by_reno_instead_of_bbr),
        TEST(a_rank_cut_off_at_the_start_is_missed_by_name),
    };
    return cmocka_run_group_tests_name("network", tests, NULL, NULL);
}
