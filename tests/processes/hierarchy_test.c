/* hierarchy_test.c - ranks that share hosts, of which there are several: real processes with host names of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/ranks.h"

enum { COUNT = 100003 };

struct plan {
    int         n_ranks;
    const char *hosts[RANKS_MAX];
};

static const struct plan plans[] = {
    { 4, { "a", "a", "b", "b" } },
    { 4, { "a", "b", "a", "b" } },
    { 5, { "a", "b", "b", "a", "b" } },
    { 6, { "a", "b", "c", "a", "b", "a" } },
    { 3, { "a", "a", "b" } },
};

/* Rounds, so that the order of the sum would show. */
static void reduce_and_compare(struct rank_self *self, gm_comm *comm, size_t count)
{
    float   *values = calloc(2 * count + 1, sizeof *values), *of_rank_0 = values + count;
    uint64_t formula;
    gm_traffic before, after;
    int      n = gm_comm_size(comm), rank = gm_comm_rank(comm);
    for (size_t i = 0; i < count; i++) values[i] = 1.0f / (float)(i % 977 + 3 * (size_t)rank + 1);
    rank_ok(self, gm_comm_traffic(comm, GM_ALL_REDUCE, &before));
    rank_ok(self, gm_all_reduce(comm, values, values, count, GM_F32, GM_SUM));
    rank_ok(self, gm_comm_traffic(comm, GM_ALL_REDUCE, &after));
    rank_ok(self, gm_comm_payload_formula(comm, GM_ALL_REDUCE, count, GM_F32, -1, &formula));
    rank_check(self, after.payload_sent_bytes - before.payload_sent_bytes == formula);
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += 1.0f / (float)(i % 977 + 3 * (size_t)k + 1);
        rank_check(self, values[i] > sum * 0.999999 && values[i] < sum * 1.000001);
    }
    memcpy(of_rank_0, values, count * sizeof *values);
    rank_ok(self, gm_broadcast(comm, of_rank_0, count, GM_F32, 0));
    rank_check(self, memcmp(of_rank_0, values, count * sizeof *values) == 0);
    free(values);
}

static void reduce_over_hosts(struct rank_self *self)
{
    const struct plan *plan = self->user;
    gm_comm           *part;
    self->options.host_id = plan->hosts[self->rank];
    rank_create(self);
    for (size_t count = 0; count < COUNT; count = count * 5 + 1) reduce_and_compare(self, self->comm, count);
    reduce_and_compare(self, self->comm, COUNT);
    /* Others share a host in a split, and in another order. */
    rank_ok(self, gm_comm_split(self->comm, self->rank == 0 ? -1 : 0, -self->rank, &part));
    if (part != NULL) reduce_and_compare(self, part, COUNT);
    gm_comm_destroy(part);
    rank_destroy(self);
}

static void run_all(void **state, const char *algorithm, const char *transport)
{
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const struct ranks_job job = { .n_ranks = plans[i].n_ranks, .body = reduce_over_hosts, .user = &plans[i],
                                       .algorithm = algorithm, .transport = transport };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

static void sums_inside_and_between_hosts_are_right_and_alike_on_all_ranks(void **state)
{
    run_all(state, "hierarchical", "auto");
}

static void they_are_over_tcp_inside_the_hosts(void **state) { run_all(state, "hierarchical", "tcp"); }

static void they_are_by_the_algorithms_that_are_chosen_by_themselves(void **state) { run_all(state, NULL, "auto"); }

/* 2 hosts of 2: of a buffer of D bytes a rank sends half to the other rank of its host, and half of that half, twice, to
 * the other host. */
static void count_bytes_between_hosts(struct rank_self *self)
{
    const struct plan *plan = self->user;
    enum { BYTES = 4 << 20 };
    float     *values = calloc(BYTES / 4, sizeof *values);
    gm_traffic t;
    self->options.host_id = plan->hosts[self->rank];
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, values, values, BYTES / 4, GM_F32, GM_SUM));
    rank_ok(self, gm_comm_traffic(self->comm, GM_ALL_REDUCE, &t));
    uint64_t over_tcp = t.payload_sent_bytes + t.protocol_sent_bytes - t.memory_sent_bytes;
    rank_check(self, over_tcp >= BYTES / 2 && over_tcp < BYTES / 2 + BYTES / 1000);
    rank_check(self, t.payload_sent_bytes == BYTES / 2 + BYTES / 2 + BYTES / 2);
    rank_destroy(self);
    free(values);
}

static void large_sums_cross_the_network_once_for_each_host_by_themselves(void **state)
{
    const struct ranks_job job = { .n_ranks = 4, .body = count_bytes_between_hosts, .user = &plans[0],
                                   .transport = "auto" };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(sums_inside_and_between_hosts_are_right_and_alike_on_all_ranks),
        TEST(they_are_over_tcp_inside_the_hosts),
        TEST(they_are_by_the_algorithms_that_are_chosen_by_themselves),
        TEST(large_sums_cross_the_network_once_for_each_host_by_themselves),
    };
    return cmocka_run_group_tests_name("hierarchy", tests, NULL, NULL);
}
