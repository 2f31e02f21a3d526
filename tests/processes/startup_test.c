/* How ranks meet: who is turned away, who is waited for, and what everybody is told. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/socket.h"
#include "tests/support/ranks.h"

enum { COME = 0, MET = 1, OVER = 2, QUICK_MS = 1000 };

static void nap_ms(int ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

static void check_sum(struct rank_self *self)
{
    double one = 1;
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == self->options.world_size);
}

static void fail_to_create(struct rank_self *self, gm_status expected, const char *text)
{
    gm_error  error;
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    self->record->error = error;
    self->record->at_ns = gmi_now_ns() - begin_ns;
    if (status == expected && strstr(error.text, text) != NULL && self->comm == NULL) return;
    rank_fail(self, __FILE__, __LINE__, "gm_comm_create: %s, not %s with '%s': %s", gm_status_name(status),
              gm_status_name(expected), text, status == GM_OK ? "" : error.text);
}

static void fail_quickly(struct rank_self *self, gm_status expected, const char *text)
{
    fail_to_create(self, expected, text);
    rank_check(self, self->record->at_ns < QUICK_MS * GMI_NS_PER_MS * ranks_slowness());
}

/* ---- an intruder: process 3 of a job of three ranks ----------------------------------------------- */

enum { N = 3, INTRUDER = 3 };

struct intrusion {
    int         rank, world_size;
    const char *job_id;
    bool        comes_late; /* when the job runs already */
    const char *is_told, *store_says;
};

static void intrude(struct rank_self *self)
{
    const struct intrusion *i = self->user;
    rank_await(self, i->comes_late ? MET : COME, i->comes_late ? N : 1);
    self->options.rank = i->rank;
    self->options.world_size = i->world_size;
    if (i->job_id != NULL) self->options.job_id = i->job_id;
    fail_quickly(self, GM_ERR_REFUSED, i->is_told);
    rank_mark(self, OVER);
}

static void be_intruded_on(struct rank_self *self)
{
    const struct intrusion *i = self->user;
    if (self->rank == INTRUDER) {
        intrude(self);
        return;
    }
    self->options.world_size = N;
    if (self->rank == 2 && !i->comes_late) rank_await(self, OVER, 1); /* so the job is incomplete meanwhile */
    rank_create(self);
    rank_mark(self, MET);
    check_sum(self);
    rank_await(self, OVER, 1);
    check_sum(self);
    rank_destroy(self);
}

static void intrude_with(void **state, const struct intrusion *intrusion)
{
    struct ranks_job job = { .n_ranks = N + 1, .body = be_intruded_on, .user = intrusion };
    struct ranks *r = ranks_start(state, &job);
    for (int i = 0; i < 5000 && ranks_seen(r) < 2; i++) ranks_serve(r, 1);
    atomic_store(&ranks_shared(r)->marks[COME], 1);
    ranks_finish(r);
    if (strstr(ranks_store_said(r), intrusion->store_says) == NULL) fail_msg("the store said: %s", ranks_store_said(r));
}

static void a_second_process_of_a_rank_is_refused_and_the_job_goes_on(void **state)
{
    struct intrusion i = { .rank = 1, .world_size = N, .is_told = "rank 1 is already taken by the process at 127.0.0.1",
                           .store_says = "a second process that calls itself rank 1 was refused" };
    intrude_with(state, &i);
    i.comes_late = true;
    intrude_with(state, &i);
}

static void another_world_size_is_refused_and_the_job_goes_on(void **state)
{
    struct intrusion i = { .rank = 2, .world_size = 4, .is_told = "world size differs: rank 2 says 4, rank ",
                           .store_says = "world size differs: rank 2 says 4, rank " };
    intrude_with(state, &i);
    i.comes_late = true;
    intrude_with(state, &i);
}

static void a_straggler_of_another_job_is_refused_and_the_job_goes_on(void **state)
{
    struct intrusion i = { .rank = 2, .world_size = N, .job_id = "yesterday",
                           .is_told = "this is job 'yesterday', the store serves job 'test'",
                           .store_says = "this is job 'yesterday', the store serves job 'test'" };
    intrude_with(state, &i);
    i.comes_late = true;
    intrude_with(state, &i);
}

/* ---- settings that differ ------------------------------------------------------------------------- */

struct settings {
    int  odd_rank, late_rank;
    bool is_hand_started;
};

static void differ(struct rank_self *self)
{
    const struct settings *s = self->user;
    bool is_odd = self->rank == s->odd_rank;
    self->options.fingerprint = is_odd ? "layers=784,256,10\nlearning_rate=0.5\n" : "learning_rate=0.1\nlayers=784,256,10\n";
    if (self->rank == s->late_rank) nap_ms(150);
    fail_to_create(self, GM_ERR_MISMATCH, "setting 'learning_rate' differs");
    const char *text = self->record->error.text;
    rank_check(self, strstr(text, "'0.5'") != NULL && strstr(text, "'0.1'") != NULL);
    rank_check(self, strstr(text, "layers") == NULL);
}

static void settings_that_differ_fail_all_with_key_and_both_values(void **state)
{
    for (int odd = 0; odd < 4; odd++) {
        struct settings  s = { .odd_rank = odd, .late_rank = 3 - odd, .is_hand_started = odd % 2 };
        struct ranks_job job = { .n_ranks = 4, .body = differ, .user = &s, .is_hand_started = s.is_hand_started };
        ranks_run(state, &job);
    }
}

static void agree(struct rank_self *self)
{
    self->options.fingerprint = self->rank % 2 ? "b=2\na=1\n" : "a=1\nb=2"; /* the order of lines does not matter */
    rank_create(self);
    check_sum(self);
    rank_destroy(self);
}

static void settings_that_agree_are_fine(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = agree };
    ranks_run(state, &job);
}

/* ---- late and missing ranks ----------------------------------------------------------------------- */

static void come_late(struct rank_self *self)
{
    if (self->rank == *(const int *)self->user) nap_ms(200);
    rank_create(self);
    check_sum(self);
    rank_destroy(self);
}

static void a_late_rank_is_waited_for(void **state)
{
    for (int late = 0; late < 3; late++) {
        struct ranks_job job = { .n_ranks = 3, .body = come_late, .user = &late, .is_hand_started = late % 2 == 0 };
        ranks_run(state, &job);
    }
}

struct absence {
    unsigned    missing; /* a bit for each rank */
    const char *list;
};

static void stay_away(struct rank_self *self)
{
    const struct absence *a = self->user;
    char expected[64];
    if (a->missing & 1u << self->rank) return;
    snprintf(expected, sizeof expected, "rank(s) %s of 5 did not come", a->list);
    fail_to_create(self, GM_ERR_TIMEOUT, expected);
    int64_t late_ns = self->record->at_ns - self->options.connect_timeout_ms * GMI_NS_PER_MS;
    rank_check(self, late_ns > -100 * GMI_NS_PER_MS && late_ns < QUICK_MS * GMI_NS_PER_MS);
}

static void the_missing_ranks_are_listed_by_all_who_waited(void **state)
{
    const struct absence absences[] = { { 1u << 1 | 1u << 3, "1, 3" }, { 1u << 0 | 1u << 4, "0, 4" } };
    for (int i = 0; i < 2; i++) {
        struct ranks_job job = { .n_ranks = 5, .body = stay_away, .user = &absences[i],
                                 .connect_timeout_ms = 400 * ranks_slowness() };
        ranks_run(state, &job);
    }
}

/* ---- the meeting point ----------------------------------------------------------------------------- */

static void find_the_port_taken(struct rank_self *self)
{
    self->options.connect_timeout_ms = 500;
    if (self->rank == 0) {
        char address[64];
        snprintf(address, sizeof address, "127.0.0.1:%d", self->options.master_port);
        fail_quickly(self, GM_ERR_SYSTEM, address);
        rank_check(self, self->record->error.sys_errno == EADDRINUSE);
    } else {
        fail_to_create(self, GM_ERR_TIMEOUT, "could not reach the store at 127.0.0.1:");
    }
}

static void a_port_that_is_in_use_is_named(void **state)
{
    struct gmi_address_list list;
    struct gmi_address      bound;
    int                     fd;
    assert_int_equal(gmi_address_resolve(&list, "127.0.0.1", 0, NULL), GM_OK);
    assert_int_equal(gmi_socket_listen(&fd, &list.addresses[0], NULL), GM_OK);
    gmi_socket_own_address(fd, &bound);
    struct ranks_job job = { .n_ranks = 2, .body = find_the_port_taken, .is_hand_started = true,
                             .port = gmi_address_port(&bound) };
    ranks_run(state, &job);
    gmi_socket_close(&fd);
}

static void find_no_store(struct rank_self *self)
{
    char expected[64];
    self->options.store = "127.0.0.1:1";
    self->options.connect_timeout_ms = 300;
    snprintf(expected, sizeof expected, "could not reach the store at 127.0.0.1:1 in time");
    fail_to_create(self, GM_ERR_TIMEOUT, expected);
    rank_check(self, strstr(self->record->error.text, strerror(ECONNREFUSED)) != NULL);
}

static void a_store_that_does_not_answer_is_named_with_the_reason(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = find_no_store };
    ranks_run(state, &job);
}

static void meet_in_brackets(struct rank_self *self)
{
    self->options.master_addr = "[::1]";
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void the_meeting_point_may_be_in_brackets(void **state)
{
    int                     fd;
    struct gmi_address_list list;
    if (gmi_address_resolve(&list, "::1", 0, NULL) != GM_OK || gmi_socket_listen(&fd, &list.addresses[0], NULL) != GM_OK) {
        skip(); /* a machine without IPv6 */
    }
    gmi_socket_close(&fd);
    struct ranks_job job = { .n_ranks = 2, .body = meet_in_brackets, .host = "::1", .is_hand_started = true };
    ranks_run(state, &job);
}

static void join_a_huge_world(struct rank_self *self)
{
    self->options.world_size = 2000000000;
    self->options.connect_timeout_ms = 300;
    fail_to_create(self, GM_ERR_ARG, "a world of 2000000000 is too large");
}

static void a_world_size_that_must_be_a_slip_takes_no_memory(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = join_a_huge_world };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_second_process_of_a_rank_is_refused_and_the_job_goes_on),
        TEST(another_world_size_is_refused_and_the_job_goes_on),
        TEST(a_straggler_of_another_job_is_refused_and_the_job_goes_on),
        TEST(settings_that_differ_fail_all_with_key_and_both_values),
        TEST(settings_that_agree_are_fine),
        TEST(a_late_rank_is_waited_for),
        TEST(the_missing_ranks_are_listed_by_all_who_waited),
        TEST(a_port_that_is_in_use_is_named),
        TEST(a_store_that_does_not_answer_is_named_with_the_reason),
        TEST(the_meeting_point_may_be_in_brackets),
        TEST(a_world_size_that_must_be_a_slip_takes_no_memory),
    };
    return cmocka_run_group_tests_name("start-up", tests, NULL, NULL);
}
