/* Messages between real processes: every pair, any size, beside collectives; and what cannot be
 * fits nobody, but is said by all. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/ranks.h"

enum { STALL_MS = 400, BIG = 3000001, OVER = 1 };

static uint8_t value(int from, int tag, size_t i)
{
    return (uint8_t)gmi_rng_u64(gmi_rng_key((uint64_t)from, (uint64_t)tag), i);
}

static uint8_t *filled(int from, int tag, size_t n)
{
    uint8_t *b = malloc(n + 1);
    for (size_t i = 0; i < n; i++) b[i] = value(from, tag, i);
    return b;
}

static void check(struct rank_self *self, const uint8_t *b, int from, int tag, size_t n)
{
    for (size_t i = 0; i < n; i++) rank_check(self, b[i] == value(from, tag, i));
}

static void send_one(struct rank_self *self, int to, int tag, size_t n)
{
    uint8_t *b = filled(self->rank, tag, n);
    rank_ok(self, gm_send(self->comm, b, n, GM_U8, to, tag));
    check(self, b, self->rank, tag, n);
    free(b);
}

static void recv_one(struct rank_self *self, int from, int tag, size_t n)
{
    uint8_t *b = malloc(n + 1);
    rank_ok(self, gm_recv(self->comm, b, n, GM_U8, from, tag));
    check(self, b, from, tag, n);
    free(b);
}

static void exchange_one(struct rank_self *self, int to, int from, int tag, size_t n)
{
    uint8_t *send = filled(self->rank, tag, n), *recv = malloc(n + 1);
    rank_ok(self, gm_sendrecv(self->comm, send, n, to, tag, recv, n, from, tag, GM_U8));
    check(self, recv, from, tag, n);
    free(send);
    free(recv);
}

static uint64_t payload(struct rank_self *self, gm_collective which)
{
    gm_traffic t;
    rank_ok(self, gm_comm_traffic(self->comm, which, &t));
    return t.payload_sent_bytes + t.payload_recv_bytes;
}

/* ---- what works ------------------------------------------------------------------------------ */

static const size_t sizes[] = { 0, 1, 4096, 70000, BIG };
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static void send_to_everybody(struct rank_self *self)
{
    rank_create(self);
    int tag = 0;
    for (int i = 0; i < N_SIZES; i++) {
        for (int from = 0; from < self->world_size; from++) {
            for (int to = 0; to < self->world_size; to++, tag++) {
                if (self->rank == from && to != from) send_one(self, to, tag, sizes[i]);
                if (self->rank == to && to != from) recv_one(self, from, tag, sizes[i]);
            }
        }
    }
    uint64_t all = payload(self, GM_COLLECTIVE_END),
             parts = payload(self, GM_SEND) + payload(self, GM_RECV);
    rank_check(self, all == parts && parts > 0);
    rank_destroy(self);
}

static void exchange_with_everybody(struct rank_self *self)
{
    int n = self->world_size;
    rank_create(self);
    for (int i = 0; i < N_SIZES; i++) {
        for (int d = 0; d < n; d++) {
            exchange_one(self, (self->rank + d) % n, (self->rank - d + n) % n, 10 * i + d,
                         sizes[i]);
        }
    }
    rank_destroy(self);
}

/* Collectives keep their order, whatever messages pass between them and beside them. */
static void mix_with_collectives(struct rank_self *self)
{
    int      n = self->world_size;
    int64_t  x, big[5000];
    gm_work *work;
    rank_create(self);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 5000; i++) big[i] = self->rank + round;
        rank_ok(self, gm_all_reduce_start(self->comm, big, big, 5000, GM_I64, GM_SUM, &work));
        exchange_one(self, (self->rank + 1) % n, (self->rank + n - 1) % n, round, 1000);
        if (self->rank == 0) send_one(self, n - 1, round, 200000);
        if (self->rank == n - 1) recv_one(self, 0, round, 200000);
        rank_ok(self, gm_work_wait(work, -1));
        gm_work_release(work);
        for (size_t i = 0; i < 5000; i++) rank_check(self, big[i] == n * (n - 1) / 2 + n * round);
        x = self->rank;
        rank_ok(self, gm_all_reduce(self->comm, &x, &x, 1, GM_I64, GM_MAX));
        rank_check(self, x == n - 1);
    }
    rank_destroy(self);
}

/* A message does not wait for a collective that its receiver has started before. */
static void send_past_a_collective(struct rank_self *self)
{
    gm_work *work;
    rank_create(self);
    if (self->rank == 0) {
        rank_ok(self, gm_barrier_start(self->comm, &work));
        send_one(self, 1, 1, 100);
    } else {
        recv_one(self, 0, 1, 100);
        rank_ok(self, gm_barrier_start(self->comm, &work));
    }
    rank_ok(self, gm_work_wait(work, -1));
    gm_work_release(work);
    rank_destroy(self);
}

static void exchange_with_oneself(struct rank_self *self)
{
    int32_t a[3] = { 1, 2, 3 }, b[3] = { 0 };
    rank_create(self);
    rank_ok(self, gm_sendrecv(self->comm, a, 3, self->rank, 7, b, 3, self->rank, 7, GM_I32));
    rank_check(self, b[0] == 1 && b[2] == 3);
    rank_expect(self, GM_ERR_ARG,
                gm_sendrecv(self->comm, a, 3, self->rank, 7, b, 2, self->rank, 7, GM_I32));
    rank_expect(self, GM_ERR_ARG, gm_send(self->comm, a, 3, GM_I32, self->rank, 7));
    rank_expect(self, GM_ERR_ARG, gm_send(self->comm, a, 3, GM_I32, self->world_size, 7));
    rank_expect(self, GM_ERR_ARG, gm_send(self->comm, a, 3, GM_I32, -1, 7));
    rank_expect(self, GM_ERR_ARG,
                gm_recv(self->comm, a, 3, GM_I32, (self->rank + 1) % self->world_size, -7));
    rank_expect(self, GM_ERR_ARG,
                gm_recv(self->comm, NULL, 3, GM_I32, self->world_size - 1 - self->rank, 7));
    rank_expect(self, GM_ERR_ARG,
                gm_sendrecv(self->comm, a, 3, self->rank, 7, a, 3, self->rank, 7, GM_I32));
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void run_with(void **state, int n_ranks, void (*body)(struct rank_self *))
{
    struct ranks_job job = { .n_ranks = n_ranks, .body = body };
    ranks_run(state, &job);
}

static void every_pair_of_ranks_can_send(void **state)
{
    run_with(state, 2, send_to_everybody);
    run_with(state, 5, send_to_everybody);
}

static void every_pair_of_ranks_can_exchange(void **state)
{
    for (int n = 1; n <= 5; n++) run_with(state, n, exchange_with_everybody);
}

static void collectives_keep_their_order_beside_messages(void **state)
{
    run_with(state, 2, mix_with_collectives);
    run_with(state, 5, mix_with_collectives);
}

static void a_message_does_not_wait_for_a_collective(void **state)
{
    run_with(state, 2, send_past_a_collective);
}
static void a_rank_may_exchange_with_itself_and_mistakes_change_nothing(void **state)
{
    run_with(state, 2, exchange_with_oneself);
    run_with(state, 3, exchange_with_oneself);
}

/* ---- what each byte costs -------------------------------------------------------------------- */

static void count_bytes(struct rank_self *self)
{
    gm_traffic    after;
    uint64_t      sent, recv;
    gm_collective which = self->rank == 0 ? GM_SEND : GM_RECV; /* its own bytes, without what encryption adds */
    rank_create(self);
    exchange_one(self, 1 - self->rank, 1 - self->rank, 0, 5); /* the link is there */
    if (self->rank == 0) {
        send_one(self, 1, 1, 1000);
    } else {
        recv_one(self, 0, 1, 1000);
    }
    rank_ok(self, gm_comm_traffic(self->comm, which, &after));
    rank_check(self, after.calls == 1);
    rank_check(self, after.payload_sent_bytes == (self->rank == 0 ? 1000 : 0));
    rank_check(self, after.protocol_sent_bytes == (self->rank == 0 ? 64 + 8 : 64));
    rank_ok(self, gm_barrier(self->comm));
    rank_meet(self, 0, 2);
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &after));
    gm_status status = gm_comm_kernel_traffic(self->comm, &sent, &recv);
    rank_check(self, status == GM_OK || status == GM_ERR_UNSUPPORTED);
    if (status == GM_OK) {
        uint64_t by_memory = after.memory_sent_bytes;
        rank_check(self, sent == after.payload_sent_bytes + after.protocol_sent_bytes - by_memory);
    }
    rank_meet(self, 1, 2);
    rank_destroy(self);
}

static void bytes_are_counted_to_the_byte(void **state) { run_with(state, 2, count_bytes); }

/* ---- what cannot be -------------------------------------------------------------------------- */

struct failing {
    gm_status   status;
    const char *parts[3];
    int         within_ms, after_ms;
    gm_status (*call)(struct rank_self *self, uint8_t *b);
};

static void fail_together(struct rank_self *self)
{
    const struct failing *f = self->user;
    static uint8_t        b[1000];
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_meet(self, 0, self->world_size);
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = f->call(self, b);
    int64_t   took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
    rank_say(self, "%lld ms: %s", (long long)took_ms, gm_comm_error(self->comm)->text);
    rank_expect(self, f->status, status);
    rank_check(self, took_ms <= f->within_ms * ranks_slowness() && took_ms >= f->after_ms - 50);
    for (int i = 0; i < 3 && f->parts[i] != NULL; i++) {
        rank_check(self, strstr(gm_comm_error(self->comm)->text, f->parts[i]) != NULL);
    }
    rank_expect(self, f->status, gm_barrier(self->comm));
    rank_mark(self, OVER);
    rank_destroy(self);
}

static void expect(void **state, int n_ranks, const struct failing *f)
{
    struct ranks_job job = {
        .n_ranks = n_ranks, .body = fail_together, .user = f, .stall_limit_ms = STALL_MS
    };
    ranks_run(state, &job);
}

static gm_status both_send(struct rank_self *self, uint8_t *b)
{
    return self->rank < 2 ? gm_send(self->comm, b, 10, GM_U8, 1 - self->rank, 3)
                          : gm_barrier(self->comm);
}
static gm_status tags_differ(struct rank_self *self, uint8_t *b)
{
    return self->rank == 0 ? gm_send(self->comm, b, 10, GM_U8, 1, 3)
                           : gm_recv(self->comm, b, 10, GM_U8, 0, 4);
}
static gm_status counts_differ(struct rank_self *self, uint8_t *b)
{
    return self->rank == 0 ? gm_send(self->comm, b, 10, GM_U8, 1, 3)
                           : gm_recv(self->comm, b, 11, GM_U8, 0, 3);
}
static gm_status send_in_a_circle(struct rank_self *self, uint8_t *b)
{
    return gm_send(self->comm, b, 10, GM_U8, (self->rank + 1) % self->world_size, 3);
}
static gm_status send_to_who_is_in_a_collective(struct rank_self *self, uint8_t *b)
{
    return self->rank == 0 ? gm_send(self->comm, b, 10, GM_U8, 1, 3) : gm_barrier(self->comm);
}
static gm_status receive_from_who_does_not_come(struct rank_self *self, uint8_t *b)
{
    if (self->rank == 0) return gm_recv(self->comm, b, 10, GM_U8, 1, 3);
    rank_await(self, OVER, 1);
    return gm_barrier(self->comm);
}

static void what_can_never_fit_is_said_at_once(void **state)
{
    const struct failing sending = { GM_ERR_MISMATCH,
                                     { "send to rank 0 (tag 3, u8, 10 elems)",
                                       "send to rank 1 (tag 3, u8, 10 elems)" },
                                     STALL_MS / 2,
                                     0,
                                     both_send };
    const struct failing tags = {
        GM_ERR_MISMATCH, { "tag 3", "tag 4" }, STALL_MS / 2, 0, tags_differ
    };
    const struct failing counts = {
        GM_ERR_MISMATCH, { "10 elems", "11 elems" }, STALL_MS / 2, 0, counts_differ
    };
    expect(state, 2, &sending);
    expect(state, 4, &sending);
    expect(state, 2, &tags);
    expect(state, 2, &counts);
}

static void ranks_that_send_in_a_circle_are_named(void **state)
{
    const struct failing f = { GM_ERR_TIMEOUT,
                               { "wait for each other", "send to rank 1", "send to rank 0" },
                               3 * STALL_MS,
                               STALL_MS - 1,
                               send_in_a_circle };
    expect(state, 3, &f);
}

static void a_receiver_that_is_in_a_collective_is_named(void **state)
{
    const struct failing f = { GM_ERR_TIMEOUT,
                               { "send to rank 1 (tag 3", "barrier #2" },
                               4 * STALL_MS,
                               STALL_MS - 1,
                               send_to_who_is_in_a_collective };
    expect(state, 2, &f);
    expect(state, 3, &f);
}

static void a_sender_that_does_not_come_is_named(void **state)
{
    const struct failing f = { GM_ERR_TIMEOUT,
                               { "waited for rank 1", "recv from rank 1 (tag 3" },
                               4 * STALL_MS,
                               0,
                               receive_from_who_does_not_come };
    expect(state, 2, &f);
}

static void leave_instead(struct rank_self *self)
{
    uint8_t b[10];
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == 0) {
        if (*(const bool *)self->user) exchange_one(self, 1, 1, 1, 10);
        int64_t   begin_ns = gmi_now_ns();
        gm_status status = gm_recv(self->comm, b, 10, GM_U8, 1, 3);
        rank_say(self, "%s", gm_comm_error(self->comm)->text);
        rank_expect(self, GM_ERR_PEER_LOST, status);
        rank_check(self, gmi_now_ns() - begin_ns < 2000 * GMI_NS_PER_MS * ranks_slowness());
        rank_check(self, gm_comm_error(self->comm)->culprit == 1 &&
                             strstr(gm_comm_error(self->comm)->text, "has left") != NULL);
    } else if (*(const bool *)self->user) {
        exchange_one(self, 0, 0, 1, 10);
    }
    rank_destroy(self);
}

static void a_peer_that_has_left_is_named(void **state)
{
    const bool kinds[] = { false, true }; /* without a link for messages, and with one */
    for (int i = 0; i < 2; i++) {
        struct ranks_job job = { .n_ranks = 2, .body = leave_instead, .user = &kinds[i] };
        ranks_run(state, &job);
    }
}

/* ---- a death --------------------------------------------------------------------------------- */

static void wait_for_the_dead(struct rank_self *self)
{
    uint8_t *b = malloc(BIG);
    rank_create(self);
    rank_mark(self, 2);
    if (self->rank == 1) {
        for (;;) send_one(self, 0, 1, BIG); /* until it is killed */
    }
    gm_status status = GM_OK;
    if (self->rank == 0) {
        while (status == GM_OK) status = gm_recv(self->comm, b, BIG, GM_U8, 1, 1);
    } else {
        status = gm_recv(self->comm, b, 10, GM_U8, 0, 1); /* from one who is alive */
    }
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_PEER_LOST, status);
    rank_check(self, gm_comm_error(self->comm)->culprit == 1);
    rank_destroy(self);
    free(b);
}

static void a_killed_peer_is_named_by_all(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = wait_for_the_dead };
    struct ranks    *r = ranks_start(state, &job);
    ranks_await(r, 2, 3);
    ranks_serve(r, 30);
    ranks_expect_signal(r, 1, SIGKILL);
    ranks_signal(r, 1, SIGKILL);
    ranks_finish(r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_pair_of_ranks_can_send),
        TEST(every_pair_of_ranks_can_exchange),
        TEST(collectives_keep_their_order_beside_messages),
        TEST(a_message_does_not_wait_for_a_collective),
        TEST(a_rank_may_exchange_with_itself_and_mistakes_change_nothing),
        TEST(bytes_are_counted_to_the_byte),
        TEST(what_can_never_fit_is_said_at_once),
        TEST(ranks_that_send_in_a_circle_are_named),
        TEST(a_receiver_that_is_in_a_collective_is_named),
        TEST(a_sender_that_does_not_come_is_named),
        TEST(a_peer_that_has_left_is_named),
        TEST(a_killed_peer_is_named_by_all),
    };
    return cmocka_run_group_tests_name("messages between processes", tests, NULL, NULL);
}
