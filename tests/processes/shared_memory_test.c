/* Shared memory between real processes: who gets it, what happens where it cannot be had, and that
 * the death of a rank is noticed and leaves nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { COUNT = 100003, BIG_ELEMS = 1 << 20, VICTIM = 1, DEATH_MS = 1000 };
enum { HANDS_OFF, OVER, KILLED }; /* marks and times */

/* ---- every rank reduces and exchanges with all others ---------------------------------------- */

static void reduce_and_check(struct rank_self *self, size_t count)
{
    float *values = calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)((int)(i % 1000) * (self->rank + 1));
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F32, GM_SUM));
    int n = self->world_size, ranks_sum = n * (n + 1) / 2;
    for (size_t i = 0; i < count; i++)
        rank_check(self, values[i] == (float)((int)(i % 1000) * ranks_sum));
    free(values);
}

/* "direct" and "doubling" make links that the ring has not. */
static void exchange_with_all(struct rank_self *self)
{
    for (int round = 0; round < 3; round++) {
        reduce_and_check(self, COUNT);
        reduce_and_check(self, 1);
        rank_ok(self, gm_barrier(self->comm));
    }
}

static gm_traffic traffic_of(struct rank_self *self)
{
    gm_traffic t;
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    return t;
}

/* ---- who shares memory ----------------------------------------------------------------------- */

struct plan {
    const char *transports[RANKS_MAX]; /* by rank; NULL: the job's */
    const char *hosts[RANKS_MAX];
};

static void live_by_plan(struct rank_self *self)
{
    const struct plan *plan = self->user;
    if (plan->transports[self->rank] != NULL)
        self->options.transport = plan->transports[self->rank];
    self->options.host_id = plan->hosts[self->rank];
    self->options.log_level = GM_LOG_DEBUG;
    rank_create(self);
    exchange_with_all(self);
    self->record->numbers[0] = traffic_of(self).memory_sent_bytes;
    self->record->numbers[1] = traffic_of(self).payload_sent_bytes;
    rank_destroy(self);
}

static bool has_link_by(struct ranks *r, int from, int to, const char *transport)
{
    char line[80];
    snprintf(line, sizeof line, "rank %d exchanges data with rank %d by %s", from, to, transport);
    return strstr(ranks_said(r, from), line) != NULL;
}

/* The links there are go by shared memory exactly where `may_share` says so. */
static void check_links(struct ranks *r, int n, bool (*may_share)(int a, int b))
{
    int n_links = 0;
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            bool by_shm = has_link_by(r, a, b, "shm"), by_tcp = has_link_by(r, a, b, "tcp");
            if (a == b || (!by_shm && !by_tcp)) continue;
            n_links++;
            if (by_shm != may_share(a, b))
                fail_msg("rank %d exchanges with rank %d by %s", a, b, by_shm ? "shm" : "tcp");
        }
    }
    assert_true(n_links >= n);
}

static bool always(int a, int b) { return a >= 0 && b >= 0; }
static bool never(int a, int b) { return a < 0 && b < 0; }
static bool same_half(int a, int b) { return a / 2 == b / 2; }
static bool not_with_1(int a, int b) { return a != 1 && b != 1; }

static void ranks_of_one_host_share_memory(void **state)
{
    const struct plan plan = { .hosts = { NULL } };
    for (int n = 2; n <= 5; n++) {
        struct ranks_job job = { .n_ranks = n,
                                 .body = live_by_plan,
                                 .user = &plan,
                                 .transport = n % 2 ? "shm" : "auto",
                                 .algorithm = n == 3 ? "direct" : NULL };
        struct ranks *r = ranks_run(state, &job);
        check_links(r, n, always);
        for (int k = 0; k < n; k++) {
            const struct rank_record *record = &ranks_shared(r)->records[k];
            assert_true(record->numbers[0] > record->numbers[1] && record->numbers[1] > 0);
        }
    }
}

static void with_tcp_they_do_not(void **state)
{
    const struct plan plan = { .hosts = { NULL } };
    struct ranks_job  job = {
         .n_ranks = 3, .body = live_by_plan, .user = &plan, .transport = "tcp"
    };
    struct ranks     *r = ranks_run(state, &job);
    check_links(r, 3, never);
    for (int k = 0; k < 3; k++) assert_int_equal(ranks_shared(r)->records[k].numbers[0], 0);
}

static void of_two_hosts_only_ranks_of_the_same_one_share(void **state)
{
    const struct plan      plan = { .hosts = { "left", "left", "right", "right", "third" } };
    static const char *const algorithms[] = { NULL, "direct", "naive" };
    for (int i = 0; i < 3; i++) {
        struct ranks_job job = { .n_ranks = 4 + i % 2,
                                 .body = live_by_plan,
                                 .user = &plan,
                                 .transport = "auto",
                                 .algorithm = algorithms[i] };
        check_links(ranks_run(state, &job), job.n_ranks, same_half);
    }
}

static void a_rank_that_uses_tcp_shares_with_nobody(void **state)
{
    const struct plan plan = { .transports = { NULL, "tcp" } };
    struct ranks_job  job = { .n_ranks = 4,
                              .body = live_by_plan,
                              .user = &plan,
                              .transport = "auto",
                              .algorithm = "direct" };
    check_links(ranks_run(state, &job), 4, not_with_1);
}

/* ---- shm, where it cannot be ----------------------------------------------------------------- */

static void fail_to_create(struct rank_self *self)
{
    const struct plan *plan = self->user;
    gm_error           error;
    if (plan->transports[self->rank] != NULL)
        self->options.transport = plan->transports[self->rank];
    self->options.host_id = plan->hosts[self->rank];
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    rank_say(self, "%s", error.text);
    rank_check(self, status == GM_ERR_UNSUPPORTED && error.culprit == 2 && self->comm == NULL);
}

static void shm_across_hosts_is_refused_on_every_rank(void **state)
{
    const struct {
        struct plan plan;
        const char *why;
    } cases[] = {
        { { .transports = { NULL, NULL, "shm" }, .hosts = { "a", "a", "a", "b" } },
          "but rank 3 is on another host" },
        { { .transports = { NULL, "tcp", "shm" }, .hosts = { "a", "a", "a", "a" } },
          "but rank 1 uses the transport tcp" },
    };
    for (size_t i = 0; i < 2; i++) {
        struct ranks_job job = {
            .n_ranks = 4, .body = fail_to_create, .user = &cases[i].plan, .transport = "auto"
        };
        struct ranks    *r = ranks_run(state, &job);
        for (int k = 0; k < 4; k++) {
            assert_non_null(strstr(ranks_said(r, k), "rank 2 must share memory with all ranks"));
            assert_non_null(strstr(ranks_said(r, k), cases[i].why));
        }
    }
}

/* ---- a machine that does not let us ---------------------------------------------------------- */

enum refusal { REFUSE_MEMFD = 1, REFUSE_UNIX_SOCKETS };

/* From now on the kernel refuses a call to this process, as a container's policy may. */
static bool refuse(enum refusal what)
{
    const uint32_t number = what == REFUSE_MEMFD ? SYS_memfd_create : SYS_socket;
    const uint32_t argument = AF_UNIX;
    struct sock_filter any[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter by_argument[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = sizeof any / sizeof any[0], .filter = any };
    if (what == REFUSE_UNIX_SOCKETS)
        program = (struct sock_fprog){ sizeof by_argument / sizeof by_argument[0], by_argument };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct refused {
    enum refusal what;
    int          rank; /* only to this one; -1: to all */
};

static bool be_refused(struct rank_self *self)
{
    const struct refused *refused = self->user;
    if (refused->rank >= 0 && refused->rank != self->rank) return true;
    return refuse(refused->what);
}

static void get_on_by_tcp(struct rank_self *self)
{
    if (!be_refused(self)) return; /* no such filter here */
    rank_create(self);
    exchange_with_all(self);
    rank_check(self, traffic_of(self).memory_sent_bytes == 0);
    rank_say(self, "got on");
    rank_destroy(self);
}

static int times_in(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) n++;
    return n;
}

static void where_the_machine_refuses_it_tcp_is_used_and_said_once(void **state)
{
    static const char *const why[] = { [REFUSE_MEMFD] =
                                           "could not make the memory: Permission denied",
                                       [REFUSE_UNIX_SOCKETS] = "Permission denied" };
    for (int n = 2; n <= 4; n++) {
        for (enum refusal what = REFUSE_MEMFD; what <= REFUSE_UNIX_SOCKETS; what++) {
            struct refused   refused = { what, -1 };
            struct ranks_job job = {
                .n_ranks = n, .body = get_on_by_tcp, .user = &refused, .transport = "auto"
            };
            struct ranks    *r = ranks_run(state, &job);
            for (int k = 0; k < n; k++) {
                if (strstr(ranks_said(r, k), "got on") == NULL) skip();
                assert_int_equal(times_in(ranks_said(r, k), "and uses TCP"), 1);
                assert_non_null(strstr(ranks_said(r, k), why[what]));
            }
        }
    }
}

static void one_rank_by_tcp(struct rank_self *self)
{
    if (!be_refused(self)) return;
    rank_create(self);
    exchange_with_all(self);
    rank_say(self, "got on, %d", traffic_of(self).memory_sent_bytes > 0);
    rank_destroy(self);
}

/* Rank 0 takes, and gives to nobody; it has TCP with all, the others share among themselves. */
static void a_refusal_to_one_rank_concerns_its_links_only(void **state)
{
    struct refused   refused = { REFUSE_UNIX_SOCKETS, 0 };
    struct ranks_job job = {
        .n_ranks = 3, .body = one_rank_by_tcp, .user = &refused, .transport = "auto"
    };
    struct ranks    *r = ranks_run(state, &job);
    if (strstr(ranks_said(r, 0), "got on") == NULL) skip();
    assert_non_null(strstr(ranks_said(r, 0), "got on, 0"));
    assert_non_null(strstr(ranks_said(r, 1), "got on, 1"));
    assert_non_null(strstr(ranks_said(r, 2), "got on, 1"));
    assert_non_null(strstr(ranks_said(r, 1), "rank 0 found nobody at the local socket"));
}

static void must_fail(struct rank_self *self)
{
    gm_error error;
    if (!be_refused(self)) return;
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    if (status == GM_OK) { /* its own links were there before the word of the others' came */
        status = gm_barrier(self->comm);
        error = *gm_comm_error(self->comm);
    }
    rank_say(self, "%s: %s", gm_status_name(status), error.text);
    rank_check(self, status == GM_ERR_UNSUPPORTED);
    rank_destroy(self);
}

static void where_the_machine_refuses_it_shm_fails_on_every_rank(void **state)
{
    struct refused   refused = { REFUSE_MEMFD, 1 };
    struct ranks_job job = {
        .n_ranks = 3, .body = must_fail, .user = &refused, .transport = "shm", .limit_ms = 8000
    };
    struct ranks    *r = ranks_run(state, &job);
    if (strlen(ranks_said(r, 1)) == 0) skip();
    for (int k = 0; k < 3; k++) {
        assert_non_null(strstr(ranks_said(r, k), "must share memory with rank"));
        assert_non_null(strstr(ranks_said(r, k), "could not make the memory: Permission denied"));
    }
}

/* ---- death ----------------------------------------------------------------------------------- */

enum doing { AWAY, REDUCING_MUCH, REDUCING_LITTLE, IN_BARRIERS, N_DOINGS };

static gm_status call_once(struct rank_self *self, enum doing doing, float *values)
{
    if (doing == IN_BARRIERS) return gm_barrier(self->comm);
    return gm_all_reduce(self->comm, values, values, doing == REDUCING_LITTLE ? 1 : BIG_ELEMS,
                         GM_F32, GM_SUM);
}

static void be_killed_or_notice(struct rank_self *self)
{
    enum doing doing = *(const enum doing *)self->user;
    float     *values = calloc(BIG_ELEMS, sizeof *values);
    gm_status  status;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_mark(self, HANDS_OFF);
    if (doing == AWAY && self->rank == VICTIM) pause();
    do status = call_once(self, doing, values); while (status == GM_OK);
    int64_t took_ns = gmi_now_ns() - atomic_load(&self->shared->times_ns[KILLED]);
    rank_say(self, "%lld ms after the kill: %s", (long long)(took_ns / GMI_NS_PER_MS),
             gm_comm_error(self->comm)->text);
    rank_check(self, status == GM_ERR_PEER_LOST && gm_comm_error(self->comm)->culprit == VICTIM);
    rank_check(self, took_ns < DEATH_MS * GMI_NS_PER_MS);
    rank_check(self, traffic_of(self).memory_sent_bytes > 0);
    rank_destroy(self);
    free(values);
}

static void a_killed_rank_is_named_by_all_whatever_it_was_doing(void **state)
{
    for (int n = 2; n <= 5; n++) {
        for (enum doing doing = AWAY; doing < N_DOINGS; doing++) {
            struct ranks_job job = {
                .n_ranks = n, .body = be_killed_or_notice, .user = &doing, .transport = "shm"
            };
            struct ranks    *r = ranks_start(state, &job);
            ranks_await(r, HANDS_OFF, n);
            ranks_serve(r, 5 + 7 * n);
            ranks_expect_signal(r, VICTIM, SIGKILL);
            atomic_store(&ranks_shared(r)->times_ns[KILLED], gmi_now_ns());
            ranks_signal(r, VICTIM, SIGKILL);
            ranks_finish(r);
        }
    }
}

static void reduce_for_ever(struct rank_self *self)
{
    float *values = calloc(BIG_ELEMS, sizeof *values);
    rank_create(self);
    rank_mark(self, HANDS_OFF);
    while (gm_all_reduce(self->comm, values, values, BIG_ELEMS, GM_F32, GM_SUM) == GM_OK) {}
    _exit(3);
}

/* Files of ours in the places where shared memory can have names. */
static int n_named_segments(void)
{
    static const char *const places[] = { "/dev/shm", "/tmp", "/run/shm" };
    int n = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        DIR *dir = opendir(places[i]);
        for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
            n += strncmp(e->d_name, "gradmesh", 8) == 0;
        if (dir != NULL) closedir(dir);
    }
    return n;
}

static void when_all_are_killed_at_once_nothing_is_left(void **state)
{
    int              before = n_named_segments();
    struct ranks_job job = { .n_ranks = 4, .body = reduce_for_ever, .transport = "shm" };
    struct ranks    *r = ranks_start(state, &job);
    ranks_await(r, HANDS_OFF, 4);
    ranks_serve(r, 10);
    assert_int_equal(n_named_segments(), before); /* nor is there anything before */
    for (int k = 0; k < 4; k++) {
        ranks_expect_signal(r, k, SIGKILL);
        ranks_signal(r, k, SIGSTOP); /* so that nobody sees another one die and ends in order */
    }
    for (int k = 0; k < 4; k++) ranks_signal(r, k, SIGKILL);
    ranks_finish(r);
    assert_int_equal(n_named_segments(), before);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static void come_and_go(struct rank_self *self)
{
    rank_meet(self, HANDS_OFF, self->world_size);
    int before = ranks_open_descriptors(), threads = ranks_threads();
    for (int round = 0; round < 5; round++) {
        rank_create(self);
        exchange_with_all(self);
        rank_check(self, ranks_open_descriptors() > before);
        rank_destroy(self);
        rank_check(self, ranks_open_descriptors() == before && ranks_threads() == threads);
    }
}

static void a_communicator_gives_everything_back(void **state)
{
    struct ranks_job job = {
        .n_ranks = 3, .body = come_and_go, .transport = "shm", .algorithm = "direct"
    };
    ranks_run(state, &job);
}

/* With so few descriptors that some links get no memory: right results all the same, or a failure
 * that says so. */
static void live_with_few_descriptors(struct rank_self *self)
{
    gm_error error;
    ranks_leave_room_for(*(const int *)self->user);
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    rank_meet(self, OVER, self->world_size);
    if (status == GM_OK) {
        gm_status reduced = GM_OK;
        float     one = 1;
        for (int i = 0; i < 5 && reduced == GM_OK; i++)
            reduced = gm_all_reduce(self->comm, &one, &one, 1, GM_F32, GM_MAX);
        rank_say(self, "created, %s", gm_status_name(reduced));
        rank_check(self, reduced != GM_OK || one == 1);
    } else {
        rank_say(self, "%s: %s", gm_status_name(status), error.text);
        rank_check(self, status == GM_ERR_SYSTEM || status == GM_ERR_TIMEOUT ||
                             status == GM_ERR_PEER_LOST);
    }
    rank_destroy(self);
}

static void few_descriptors_never_end_in_silence(void **state)
{
    int n_created = 0, n_by_tcp = 0;
    if (getenv("TEST_VALGRIND") != NULL) skip(); /* it has descriptors among ours: how many are left is not known */
    for (int room = 4; room < 18; room += room < 12 ? 1 : 2) {
        struct ranks_job job = { .n_ranks = 2,
                                 .body = live_with_few_descriptors,
                                 .user = &room,
                                 .transport = "auto",
                                 .connect_timeout_ms = 1200 * ranks_slowness(),
                                 .stall_limit_ms = 2000 };
        struct ranks *r = ranks_run(state, &job);
        for (int k = 0; k < 2; k++) {
            n_created += strstr(ranks_said(r, k), "created, GM_OK") != NULL;
            n_by_tcp += strstr(ranks_said(r, k), "and uses TCP") != NULL;
        }
    }
    if (n_by_tcp == 0 || n_created <= n_by_tcp) fail_msg("%d created, %d of them by TCP", n_created, n_by_tcp);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(ranks_of_one_host_share_memory),
        TEST(with_tcp_they_do_not),
        TEST(of_two_hosts_only_ranks_of_the_same_one_share),
        TEST(a_rank_that_uses_tcp_shares_with_nobody),
        TEST(shm_across_hosts_is_refused_on_every_rank),
        TEST(where_the_machine_refuses_it_tcp_is_used_and_said_once),
        TEST(a_refusal_to_one_rank_concerns_its_links_only),
        TEST(where_the_machine_refuses_it_shm_fails_on_every_rank),
        TEST(a_killed_rank_is_named_by_all_whatever_it_was_doing),
        TEST(when_all_are_killed_at_once_nothing_is_left),
        TEST(a_communicator_gives_everything_back),
        TEST(few_descriptors_never_end_in_silence),
    };
    return cmocka_run_group_tests_name("shared memory between processes", tests, NULL, NULL);
}
