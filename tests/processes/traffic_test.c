/* The byte counters, to the byte: against each algorithm's formula, over all ranks, and against what the
 * kernel counted on the data links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { ROUNDS = 2, LARGE = 100003, MIB_ELEMS = 1 << 18 };

static const size_t counts[] = { 0, 1, 2, 3, 4, 5, 6, 1000, LARGE };
enum { N_COUNTS = sizeof counts / sizeof counts[0] };

/* One call of each kind; in place, which needs no second buffer. */
static gm_status call(struct rank_self *self, gm_collective which, float *buffer, size_t count, int root)
{
    switch (which) {
    case GM_ALL_REDUCE: return gm_all_reduce(self->comm, buffer, buffer, count, GM_F32, GM_SUM);
    case GM_REDUCE_SCATTER: return gm_reduce_scatter(self->comm, buffer, buffer, count, GM_F32, GM_MAX);
    case GM_ALL_GATHER: return gm_all_gather(self->comm, buffer, buffer, count, GM_F32);
    case GM_BROADCAST: return gm_broadcast(self->comm, buffer, count, GM_F32, root);
    case GM_REDUCE: return gm_reduce(self->comm, buffer, buffer, count, GM_F32, GM_SUM, root);
    case GM_GATHER: return gm_gather(self->comm, buffer, buffer, count, GM_F32, root);
    case GM_SCATTER: return gm_scatter(self->comm, buffer, buffer, count, GM_F32, root);
    case GM_ALL_TO_ALL: return gm_all_to_all(self->comm, buffer, buffer, count, GM_F32);
    default: return gm_barrier(self->comm);
    }
}

static gm_traffic traffic_of(struct rank_self *self, gm_collective which)
{
    gm_traffic t;
    rank_ok(self, gm_comm_traffic(self->comm, which, &t));
    return t;
}

static void compare_with_kernel(struct rank_self *self)
{
    uint64_t   sent, recv;
    gm_traffic t = traffic_of(self, GM_COLLECTIVE_END);
    gm_status  status = gm_comm_kernel_traffic(self->comm, &sent, &recv);
    if (status == GM_ERR_UNSUPPORTED) return; /* not Linux, or an old kernel */
    rank_check(self, status == GM_OK);
    if (sent == t.payload_sent_bytes + t.protocol_sent_bytes - t.memory_sent_bytes &&
        recv == t.payload_recv_bytes + t.protocol_recv_bytes - t.memory_recv_bytes) {
        return;
    }
    rank_fail(self, __FILE__, __LINE__, "counted %llu + %llu - %llu sent, the kernel %llu; %llu + %llu - %llu received, the kernel %llu",
              (unsigned long long)t.payload_sent_bytes, (unsigned long long)t.protocol_sent_bytes,
              (unsigned long long)t.memory_sent_bytes, (unsigned long long)sent, (unsigned long long)t.payload_recv_bytes,
              (unsigned long long)t.protocol_recv_bytes, (unsigned long long)t.memory_recv_bytes, (unsigned long long)recv);
}

/* While no rank is inside a collective: else a neighbour's next call may have arrived already. */
static void check_kernel(struct rank_self *self, int *n_meetings)
{
    rank_meet(self, 0, ++*n_meetings * self->world_size);
    compare_with_kernel(self);
    rank_meet(self, 0, ++*n_meetings * self->world_size);
}

/* ---- each call against its formula, and everything against the kernel ----------------------------- */

static uint64_t counted_call(struct rank_self *self, gm_collective which, float *buffer, size_t count, int root)
{
    uint64_t   formula;
    gm_traffic before = traffic_of(self, which), all_before = traffic_of(self, GM_COLLECTIVE_END);
    rank_ok(self, gm_comm_payload_formula(self->comm, which, count, GM_F32, root, &formula));
    rank_ok(self, call(self, which, buffer, count, root));
    gm_traffic after = traffic_of(self, which), all_after = traffic_of(self, GM_COLLECTIVE_END);
    rank_check(self, after.calls == before.calls + 1);
    rank_check(self, all_after.calls == all_before.calls + 1);
    rank_check(self, after.payload_sent_bytes - before.payload_sent_bytes == formula);
    rank_check(self, all_after.payload_sent_bytes - all_before.payload_sent_bytes == formula);
    rank_check(self, after.elapsed_ns > before.elapsed_ns || self->world_size == 1);
    rank_check(self, after.waiting_ns <= after.elapsed_ns);
    return formula;
}

static void count_everything(struct rank_self *self)
{
    float *buffer = calloc(RANKS_MAX * LARGE, sizeof *buffer);
    uint64_t *sent_of_count = self->record->numbers; /* by all-reduces, for each count */
    int n_meetings = 0;
    rank_create(self);
    check_kernel(self, &n_meetings);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N_COUNTS; i++) {
            for (int which = 0; which < GM_SEND; which++) {
                uint64_t sent = counted_call(self, (gm_collective)which, buffer, counts[i], i % self->world_size);
                if (which == GM_ALL_REDUCE) sent_of_count[i] += sent;
            }
            if (i % 4 == 0) check_kernel(self, &n_meetings); /* it waits for late acknowledgements */
        }
    }
    uint64_t parts = 0;
    for (int which = 0; which < GM_COLLECTIVE_END; which++) parts += traffic_of(self, (gm_collective)which).payload_sent_bytes;
    rank_check(self, parts == traffic_of(self, GM_COLLECTIVE_END).payload_sent_bytes);
    rank_destroy(self);
    free(buffer);
}

static void count_with(void **state, int n_ranks, const char *algorithm)
{
    struct ranks_job     job = { .n_ranks = n_ranks, .body = count_everything, .algorithm = algorithm };
    struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
    uint64_t             n = (uint64_t)n_ranks;
    bool                 is_naive = strcmp(algorithm, "naive") == 0;
    for (int i = 0; i < N_COUNTS && strcmp(algorithm, "auto") != 0; i++) {
        uint64_t sent = 0, d = counts[i] * sizeof(float);
        for (int k = 0; k < n_ranks; k++) sent += shared->records[k].numbers[i];
        assert_int_equal(sent, ROUNDS * (is_naive ? n * (n - 1) * d : 2 * (n - 1) * d));
    }
}

#define COUNTERS_WITH(n) \
    static void counters_equal_formula_and_kernel_on_##n##_ranks(void **state) { count_with(state, n, "ring"); }
COUNTERS_WITH(1)
COUNTERS_WITH(2)
COUNTERS_WITH(3)
COUNTERS_WITH(4)
COUNTERS_WITH(5)

enum { LATE_MS = 5, LATE_ROUNDS = 30 };

/* Rank 1 comes late to a barrier in which rank 0 is, and is waited for without sleeping. */
static void come_late(struct rank_self *self)
{
    int n_long = 0, n_busy = 0;
    self->options.spin_us = 1000000;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm)); /* all links are there */
    for (int i = 0; i < LATE_ROUNDS; i++) {
        rank_meet(self, 0, (i + 1) * self->world_size);
        int64_t until_ns = gmi_deadline_after_ms(LATE_MS);
        while (self->rank == 1 && !gmi_deadline_passed(until_ns)) {}
        gm_traffic before = traffic_of(self, GM_BARRIER);
        rank_ok(self, gm_barrier(self->comm));
        gm_traffic after = traffic_of(self, GM_BARRIER);
        int64_t waiting_ns = after.waiting_ns - before.waiting_ns, elapsed_ns = after.elapsed_ns - before.elapsed_ns;
        rank_check(self, waiting_ns >= 0 && waiting_ns <= elapsed_ns);
        n_long += elapsed_ns >= LATE_MS * GMI_NS_PER_MS / 2;
        n_busy += elapsed_ns >= LATE_MS * GMI_NS_PER_MS / 2 && waiting_ns < elapsed_ns / 2;
    }
    /* Others may have had the core while it was at work, but not often. */
    if (self->rank == 0 && n_busy > n_long / 4) rank_fail(self, __FILE__, __LINE__, "busy in %d of %d long barriers", n_busy, n_long);
    rank_destroy(self);
}

static void trying_until_it_succeeds_is_waiting(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = come_late };
    ranks_run(state, &job);
}

static void the_naive_baseline_counts_its_n_fold_traffic(void **state)
{
    count_with(state, 2, "naive");
    count_with(state, 4, "naive");
}

static void whatever_is_chosen_for_small_messages_has_its_formula_too(void **state)
{
    const int sizes[] = { 3, 8 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) count_with(state, sizes[i], "auto");
}

/* ---- the ring's formula, written out -------------------------------------------------------------- */

static void write_formula_out(struct rank_self *self)
{
    rank_create(self);
    for (size_t count = 0; count < 40; count++) {
        int      right = (self->rank + 1) % self->world_size;
        size_t   first, own, rights;
        uint64_t sent, scatter, gather, d = count * sizeof(double);
        gm_chunk(count, self->world_size, self->rank, &first, &own);
        gm_chunk(count, self->world_size, right, &first, &rights);
        rank_ok(self, gm_comm_payload_formula(self->comm, GM_ALL_REDUCE, count, GM_F64, 0, &sent));
        rank_ok(self, gm_comm_payload_formula(self->comm, GM_REDUCE_SCATTER, count, GM_F64, 0, &scatter));
        rank_ok(self, gm_comm_payload_formula(self->comm, GM_ALL_GATHER, count, GM_F64, 0, &gather));
        rank_check(self, sent == 2 * d - (own + rights) * sizeof(double));
        rank_check(self, scatter == d - own * sizeof(double) && gather == d - rights * sizeof(double));
        for (int root = 0; root < self->world_size; root++) {
            bool is_last = (self->rank + 1) % self->world_size == root;
            rank_ok(self, gm_comm_payload_formula(self->comm, GM_BROADCAST, count, GM_F64, root, &sent));
            rank_check(self, sent == (is_last ? 0 : d));
        }
    }
    uint64_t sent;
    rank_expect(self, GM_ERR_ARG, gm_comm_payload_formula(self->comm, GM_BROADCAST, 1, GM_F32, self->world_size, &sent));
    rank_expect(self, GM_ERR_ARG, gm_comm_payload_formula(self->comm, GM_COLLECTIVE_END, 1, GM_F32, 0, &sent));
    rank_expect(self, GM_ERR_ARG, gm_comm_payload_formula(self->comm, GM_ALL_REDUCE, 1, GM_DTYPE_END, 0, &sent));
    rank_expect(self, GM_ERR_ARG, gm_comm_payload_formula(NULL, GM_ALL_REDUCE, 1, GM_F32, 0, &sent));
    rank_destroy(self);
}

static void an_all_reduce_sends_two_buffers_less_two_chunks(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = write_formula_out, .algorithm = "ring" };
    ranks_run(state, &job);
    job.n_ranks = 5;
    ranks_run(state, &job);
}

/* ---- overhead ------------------------------------------------------------------------------------- */

static void measure_overhead(struct rank_self *self)
{
    const size_t sizes[] = { MIB_ELEMS, MIB_ELEMS + 1, 3 * MIB_ELEMS, 8 * MIB_ELEMS - 1 };
    float *buffer = calloc(8 * MIB_ELEMS, sizeof *buffer);
    rank_create(self);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gm_traffic before = traffic_of(self, GM_ALL_REDUCE);
        rank_ok(self, gm_all_reduce(self->comm, buffer, buffer, sizes[i], GM_F32, GM_SUM));
        gm_traffic after = traffic_of(self, GM_ALL_REDUCE);
        uint64_t payload = after.payload_sent_bytes - before.payload_sent_bytes;
        uint64_t protocol = after.protocol_sent_bytes - before.protocol_sent_bytes;
        rank_check(self, protocol > 0 && protocol * 2000 < payload); /* 0.05 % */
    }
    rank_destroy(self);
    free(buffer);
}

static void protocol_bytes_stay_under_a_twentieth_of_a_percent_from_1_mib_on(void **state)
{
    struct ranks_job job = { .body = measure_overhead, .algorithm = "ring" };
    for (job.n_ranks = 2; job.n_ranks <= 4; job.n_ranks++) ranks_run(state, &job);
}

/* ---- a world of one, and questions at the wrong time ---------------------------------------------- */

static void ask_alone(struct rank_self *self)
{
    float buffer[10] = { 0 };
    self->options.store = NULL;
    int descriptors = ranks_open_descriptors(), threads = ranks_threads();
    rank_create(self);
    rank_check(self, ranks_open_descriptors() == descriptors && ranks_threads() == threads);
    for (int which = 0; which < GM_SEND; which++) rank_ok(self, call(self, (gm_collective)which, buffer, 10, 0));
    gm_traffic t = traffic_of(self, GM_COLLECTIVE_END);
    rank_check(self, t.calls == GM_SEND);
    rank_check(self, t.payload_sent_bytes == 0 && t.payload_recv_bytes == 0);
    rank_check(self, t.protocol_sent_bytes == 0 && t.protocol_recv_bytes == 0);
    uint64_t sent = 1, recv = 1;
    rank_ok(self, gm_comm_kernel_traffic(self->comm, &sent, &recv));
    rank_check(self, sent == 0 && recv == 0);
    rank_expect(self, GM_ERR_ARG, gm_comm_traffic(self->comm, (gm_collective)(GM_COLLECTIVE_END + 1), &t));
    rank_expect(self, GM_ERR_ARG, gm_comm_traffic(self->comm, GM_BARRIER, NULL));
    rank_expect(self, GM_ERR_ARG, gm_comm_kernel_traffic(NULL, &sent, &recv));
    rank_destroy(self);
}

static void a_world_of_one_sends_nothing_and_opens_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 1, .body = ask_alone };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(counters_equal_formula_and_kernel_on_1_ranks),
        TEST(counters_equal_formula_and_kernel_on_2_ranks),
        TEST(counters_equal_formula_and_kernel_on_3_ranks),
        TEST(counters_equal_formula_and_kernel_on_4_ranks),
        TEST(counters_equal_formula_and_kernel_on_5_ranks),
        TEST(trying_until_it_succeeds_is_waiting),
        TEST(the_naive_baseline_counts_its_n_fold_traffic),
        TEST(whatever_is_chosen_for_small_messages_has_its_formula_too),
        TEST(an_all_reduce_sends_two_buffers_less_two_chunks),
        TEST(protocol_bytes_stay_under_a_twentieth_of_a_percent_from_1_mib_on),
        TEST(a_world_of_one_sends_nothing_and_opens_nothing),
    };
    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
