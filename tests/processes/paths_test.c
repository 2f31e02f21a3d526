/* Paths between hosts that are bad without being cut: one that swallows large packets, one that is narrow and loses some,
 * one that is only long, one of several that is blocked. Skipped where namespaces, bridges or traffic shaping may not be had. */
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/hosts.h"

enum { N = 3, PORT = 4300, BIG_ELEMS = 1 << 20, BOUND_MS = 3000, DELAY_MS = 30, READY = 0, SHAPED = 1, OVER = 2 };

static bool  has_network;
static float values[BIG_ELEMS];

static struct ranks *start(void **state, void (*body)(struct rank_self *))
{
    struct ranks_job job = { .n_ranks = N, .body = body, .is_hand_started = true, .host = "10.77.0.1", .port = PORT,
                             .algorithm = "ring", .stall_limit_ms = 300000 };
    struct ranks    *r = ranks_start(state, &job);
    hosts_plug_in(r, N);
    return r;
}

/* "BUILD/tests/tests/processes/paths_test" is where we are; the program is BUILD/gradmesh. */
static bool find_program(char *path, size_t path_bytes)
{
    char    own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n < 0) return false;
    own[n] = '\0';
    for (int up = 0; up < 4; up++) {
        char *slash = strrchr(own, '/');
        if (slash == NULL) return false;
        *slash = '\0';
    }
    snprintf(path, path_bytes, "%.4000s/gradmesh", own);
    return access(path, X_OK) == 0;
}

/* ---- packets that are too large ----------------------------------------------------------------------- */

static void send_large_packets(struct rank_self *self)
{
    hosts_move_to_own(self);
    rank_check(self, hosts_run("ip link set eth0 gso_max_segs 1") == 0); /* so that a packet is a packet */
    rank_create(self);
    rank_mark(self, READY);
    rank_await(self, SHAPED, 1);
    rank_ok(self, gm_barrier(self->comm)); /* small ones pass */
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM);
    rank_say(self, "after %lld ms: %s", (long long)((gmi_now_ns() - begin_ns) / GMI_NS_PER_MS), gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "nothing has been acknowledged") != NULL);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "does the path carry them (MTU)?") != NULL);
    rank_check(self, gmi_now_ns() - begin_ns < (BOUND_MS + 500) * GMI_NS_PER_MS * ranks_slowness());
    rank_destroy(self);
}

static void a_path_that_swallows_large_packets_is_guessed(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start(state, send_large_packets);
    ranks_await(r, READY, N); /* what ranks tell each other at the start may be large */
    assert_int_equal(hosts_run("ip link set v1 mtu 1000"), 0); /* a bridge says nothing when it drops one */
    atomic_store(&ranks_shared(r)->marks[SHAPED], 1);
    ranks_finish(r);
}

static void meet_over_a_narrow_path(struct rank_self *self)
{
    gm_error error;
    hosts_move_to_own(self);
    rank_check(self, hosts_run("ip link set eth0 gso_max_segs 1") == 0);
    rank_mark(self, READY);
    rank_await(self, SHAPED, 1);
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    rank_say(self, "after %lld ms: %s", (long long)((gmi_now_ns() - begin_ns) / GMI_NS_PER_MS), error.text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    if (self->rank == 1) return; /* it hears of it when rank 0 has gone */
    rank_check(self, gmi_now_ns() - begin_ns < (BOUND_MS + 500) * GMI_NS_PER_MS * ranks_slowness());
    rank_check(self, error.culprit == 1);
    rank_check(self, strstr(error.text, "rank 1 (10.77.0.2:") != NULL);
    rank_check(self, strstr(error.text, "does the path carry them (MTU)?") != NULL);
}

static void a_path_that_swallows_large_packets_from_the_start_is_guessed(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start(state, meet_over_a_narrow_path);
    ranks_await(r, READY, N);
    assert_int_equal(hosts_run("ip link set v1 mtu 1000"), 0);
    atomic_store(&ranks_shared(r)->marks[SHAPED], 1);
    ranks_finish(r);
    print_message("%s\n", ranks_said(r, 0));
}

static void hear_of_a_cut(struct rank_self *self)
{
    hosts_move_to_own(self);
    rank_create(self);
    rank_mark(self, READY);
    rank_await(self, SHAPED, 1);
    gm_status status = gm_barrier(self->comm);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "MTU") == NULL);
    rank_destroy(self);
}

static void a_cut_among_small_packets_is_not_taken_for_it(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start(state, hear_of_a_cut);
    ranks_await(r, READY, N);
    assert_int_equal(hosts_run("ip link set v1 down"), 0);
    atomic_store(&ranks_shared(r)->marks[SHAPED], 1);
    ranks_finish(r);
    print_message("%s\n", ranks_said(r, 0));
}

/* ---- a narrow and lossy link --------------------------------------------------------------------------- */

/* While the call goes on without us, what `gradmesh status` says on this host. */
static void ask_for_status(struct rank_self *self)
{
    char program[PATH_MAX], command[PATH_MAX + 32], said[4096];
    if (!find_program(program, sizeof program)) return;
    snprintf(command, sizeof command, "%s status 2>&1", program);
    FILE *pipe = popen(command, "re");
    rank_check(self, pipe != NULL);
    size_t n = fread(said, 1, sizeof said - 1, pipe);
    said[n] = '\0';
    pclose(pipe);
    rank_say(self, "%s", said);
    rank_check(self, strstr(said, "busiest link: rank 0 to rank 1: ") != NULL);
}

static void send_through_a_narrow_link(struct rank_self *self)
{
    gm_work *work;
    bool     is_told = false;
    hosts_move_to_own(self);
    self->options.log_level = GM_LOG_INFO;
    rank_create(self);
    rank_mark(self, READY);
    rank_await(self, SHAPED, 1);
    for (int i = 0; !is_told; i++) {
        rank_ok(self, gm_all_reduce_start(self->comm, values, values, BIG_ELEMS / 4, GM_F32, GM_SUM, &work));
        if (i == 1 && self->rank == 0) ask_for_status(self);
        rank_ok(self, gm_work_wait(work, -1));
        gm_work_release(work);
        float over = atomic_load(&self->shared->marks[OVER]) > 0;
        rank_ok(self, gm_all_reduce(self->comm, &over, &over, 1, GM_F32, GM_MAX)); /* all end alike */
        is_told = over > 0;
    }
    rank_destroy(self);
}

static void a_narrow_and_lossy_link_is_named(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start(state, send_through_a_narrow_link);
    ranks_await(r, READY, N);
    /* To rank 1: ten packets wait, the next ones are lost. */
    if (hosts_run("tc qdisc add dev v1 root tbf rate 20mbit burst 4kb limit 15kb") != 0) {
        atomic_store(&ranks_shared(r)->marks[OVER], 1);
        atomic_store(&ranks_shared(r)->marks[SHAPED], 1);
        skip();
    }
    atomic_store(&ranks_shared(r)->marks[SHAPED], 1);
    const char *line = "rank 0: the link to rank 1 (10.77.0.2:";
    for (int i = 0; i < 200 * ranks_slowness() && strstr(ranks_said(r, 0), line) == NULL; i++) ranks_serve(r, 100);
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
    assert_non_null(strstr(ranks_said(r, 0), line));
    assert_non_null(strstr(ranks_said(r, 0), "is lossy or too narrow"));
    assert_null(strstr(ranks_said(r, 0), "the link to rank 2"));
    const char *last = strstr(ranks_said(r, 0), "rank 0: its busiest link went to rank 1 (10.77.0.2:");
    assert_non_null(last);
    assert_non_null(strstr(last, "packets were sent again"));
    print_message("%s\n", strstr(ranks_said(r, 0), line));
}

/* ---- gradmesh check --------------------------------------------------------------------------------------- */

static void check_as_one(struct rank_self *self)
{
    char program[PATH_MAX], number[8];
    if (!find_program(program, sizeof program)) return;
    snprintf(number, sizeof number, "%d", self->rank);
    setenv("RANK", number, 1);
    setenv("WORLD_SIZE", "3", 1);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    setenv("MASTER_PORT", "4301", 1);
    setenv("GRADMESH_INSECURE", "1", 1);
    unsetenv("GRADMESH_ENCRYPT"); /* which needs a secret */
    dup2(self->report_fd, 1);
    dup2(self->report_fd, 2);
    execl(program, program, "check", "--timeout", ranks_slowness() > 1 ? "8" : "2", (char *)NULL);
    rank_check(self, false);
}

/* ---- a long link ------------------------------------------------------------------------------------------ */

/* Calls until ranks 0 and 2 have said which link is long. */
static void call_over_a_long_link(struct rank_self *self)
{
    hosts_move_to_own(self);
    self->options.log_level = GM_LOG_INFO;
    rank_create(self);
    rank_mark(self, READY);
    for (float over = 0; over == 0;) {
        rank_ok(self, gm_all_reduce(self->comm, values, values, BIG_ELEMS / 16, GM_F32, GM_SUM));
        over = atomic_load(&self->shared->marks[OVER]) > 0;
        rank_ok(self, gm_all_reduce(self->comm, &over, &over, 1, GM_F32, GM_MAX)); /* all end alike */
    }
    rank_destroy(self);
}

static struct ranks *start_with_a_long_link(void **state, void (*body)(struct rank_self *))
{
    struct ranks_job     job = { .n_ranks = N, .body = body, .is_hand_started = true, .host = "10.77.0.1", .port = PORT,
                                 .algorithm = "ring", .stall_limit_ms = 300000 };
    struct relay_options way = { .delay_ns = DELAY_MS * GMI_NS_PER_MS, .limit_ns = 600 * INT64_C(1000000000) };
    struct ranks        *r = ranks_start(state, &job);
    if (!hosts_plug_in_far(r, N, 1, &way)) skip();
    return r;
}

static void a_link_that_only_delays_is_named(void **state)
{
    if (!has_network) skip();
    struct ranks *r = start_with_a_long_link(state, call_over_a_long_link);
    ranks_await(r, READY, N);
    static const char *const lines[N] = { [0] = "rank 0: rank 1 (10.77.0.2:", [2] = "rank 2: rank 1 (10.77.0.2:" };
    for (int i = 0; i < 200 * ranks_slowness(); i++) {
        if (strstr(ranks_said(r, 0), lines[0]) != NULL && strstr(ranks_said(r, 2), lines[2]) != NULL) break;
        ranks_serve(r, 100);
    }
    atomic_store(&ranks_shared(r)->marks[OVER], 1);
    ranks_finish(r);
    for (int k = 0; k < N; k += 2) {
        const char *line = strstr(ranks_said(r, k), lines[k]);
        double      takes_ms = 0, shortest_ms = 0;
        assert_non_null(line);
        print_message("%.*s\n", (int)strcspn(line, "\n"), line);
        line = strstr(line, ") is far: ");
        assert_non_null(line);
        assert_int_equal(sscanf(line, ") is far: an answer takes at least %lf ms, over the shortest link %lf ms", &takes_ms, &shortest_ms), 2);
        assert_true(takes_ms >= 2 * DELAY_MS - 1 && shortest_ms < takes_ms / 5);
        assert_null(strstr(line + sizeof ") is far: ", "is far")); /* once */
        assert_null(strstr(ranks_said(r, k), "is lossy"));
    }
    assert_null(strstr(ranks_said(r, 1), "is far")); /* all its links are */
}

static void check_over_a_long_link(struct rank_self *self)
{
    hosts_move_to_own(self);
    check_as_one(self);
}

static void a_link_that_only_delays_is_found_by_gradmesh_check(void **state)
{
    char program[PATH_MAX];
    if (!has_network || !find_program(program, sizeof program)) skip();
    struct ranks *r = start_with_a_long_link(state, check_over_a_long_link);
    ranks_finish(r);
    const char *table = ranks_said(r, 0);
    const char *line = strstr(table, "far apart: 2 pairs, with rank 1; latency up to ");
    double      most_ms = 0;
    print_message("%s", table);
    assert_non_null(line);
    assert_int_equal(sscanf(line, "far apart: 2 pairs, with rank 1; latency up to %lf ms", &most_ms), 1);
    assert_true(most_ms >= DELAY_MS - 1);
    assert_non_null(strstr(table, "all 3 pairs of 3 ranks can talk"));
}

/* ---- a blocked pair --------------------------------------------------------------------------------------- */

static void check_as_one_with_a_blocked_pair(struct rank_self *self)
{
    hosts_move_to_own(self);
    if (self->rank == 1) rank_check(self, hosts_run("ip route add unreachable 10.77.0.3/32") == 0);
    check_as_one(self);
}

static void a_blocked_pair_is_found_by_gradmesh_check(void **state)
{
    char program[PATH_MAX];
    if (!has_network || !find_program(program, sizeof program)) skip();
    struct ranks *r = start(state, check_as_one_with_a_blocked_pair);
    for (int k = 0; k < N; k++) ranks_accept_any_end(r, k);
    ranks_finish(r);
    const char *table = ranks_said(r, 0);
    print_message("%s", table);
    assert_int_equal(ranks_wait_status(r, 0), 1 << 8);
    assert_non_null(strstr(table, "1 -> 0    yes"));
    assert_non_null(strstr(table, "2 -> 0    yes"));
    assert_non_null(strstr(table, "2 -> 1    NO"));
    assert_non_null(strstr(table, "could not reach rank 1 at 10.77.0.2:"));
    assert_non_null(strstr(table, "1 of 3 pairs cannot talk"));
}

int main(void)
{
    has_network = hosts_make_network();
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_path_that_swallows_large_packets_is_guessed),
        TEST(a_path_that_swallows_large_packets_from_the_start_is_guessed),
        TEST(a_cut_among_small_packets_is_not_taken_for_it),
        TEST(a_narrow_and_lossy_link_is_named),
        TEST(a_link_that_only_delays_is_named),
        TEST(a_link_that_only_delays_is_found_by_gradmesh_check),
        TEST(a_blocked_pair_is_found_by_gradmesh_check),
    };
    return cmocka_run_group_tests_name("paths", tests, NULL, NULL);
}
