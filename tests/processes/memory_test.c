/* memory_test.c - a rank that has no memory for its part of a collective says so to all, who do not wait for it;
 * and a repeated collective takes no memory at all. */
#include "base/alloc.h"
#include "base/clock.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

enum { COUNT = 300000, BOUND_MS = 3000 };

static void starve_rank_1(struct rank_self *self)
{
    static float send[COUNT], recv[COUNT];
    gm_traffic   before, after;
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, send, recv, COUNT, GM_F32, GM_SUM));
    rank_meet(self, 0, self->world_size);
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &before));
    int64_t begin_ns = gmi_now_ns();
    if (self->rank == 1) gmi_alloc_fail_at(1);
    rank_expect(self, GM_ERR_NOMEM, gm_reduce_scatter(self->comm, send, recv, COUNT, GM_F32, GM_SUM));
    gmi_alloc_fail_at(0);
    rank_check(self, gmi_now_ns() - begin_ns < BOUND_MS * GMI_NS_PER_MS * ranks_slowness());
    const gm_error *e = gm_comm_error(self->comm);
    rank_say(self, "%s", e->text);
    rank_check(self, e->culprit == 1 && strstr(e->text, "rank 1 has no memory for 1200000 bytes") != NULL);
    rank_check(self, strstr(e->text, "reduce_scatter #2") != NULL);
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &after));
    rank_check(self, after.calls == before.calls + 1);
    if (self->rank == 1) rank_check(self, after.payload_sent_bytes == before.payload_sent_bytes);
    rank_expect(self, GM_ERR_NOMEM, gm_barrier(self->comm));
    rank_destroy(self);
}

static void a_rank_without_memory_fails_the_call_on_all_ranks(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = starve_rank_1, .algorithm = "ring" };
    ranks_run(state, &job);
}

static void repeat(struct rank_self *self)
{
    static float data[COUNT], part[COUNT];
    int          n_rounds_without = 0;
    rank_create(self);
    for (int round = 0; round < 8; round++) {
        uint64_t before = gmi_alloc_calls();
        rank_ok(self, gm_all_reduce(self->comm, data, data, COUNT, GM_F32, GM_AVG));
        rank_ok(self, gm_all_reduce(self->comm, data, part, 10, GM_F32, GM_SUM));
        rank_ok(self, gm_reduce_scatter(self->comm, data, part, COUNT, GM_F32, GM_SUM));
        rank_ok(self, gm_all_gather(self->comm, part, data, COUNT, GM_F32));
        rank_ok(self, gm_broadcast(self->comm, data, COUNT, GM_F32, 2));
        rank_ok(self, gm_broadcast(self->comm, data, 10, GM_F32, 1));
        rank_ok(self, gm_barrier(self->comm));
        uint64_t taken = gmi_alloc_calls() - before;
        rank_say(self, "round %d: %llu allocations", round, (unsigned long long)taken);
        n_rounds_without += taken == 0;
        rank_meet(self, round, self->world_size);
    }
    /* On a machine that is busy elsewhere a rank that waits for long tells so, which is a message. */
    rank_check(self, n_rounds_without >= 1);
    rank_destroy(self);
}

static void repeated_collectives_take_no_memory(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = repeat };
    ranks_run(state, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_rank_without_memory_fails_the_call_on_all_ranks, ranks_teardown),
        cmocka_unit_test_teardown(repeated_collectives_take_no_memory, ranks_teardown),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
