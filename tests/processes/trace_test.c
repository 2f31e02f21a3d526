/* trace_test.c - the trace of real ranks, as their programs read it. */
#include "base/alloc.h"
#include "base/clock.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

enum { PLACES = 4096, COUNT = 50000 };

struct reading {
    gm_trace_event events[PLACES];
    size_t         n;
    uint64_t       n_dropped;
};

static struct reading *read_all(struct rank_self *self)
{
    static struct reading r;
    rank_ok(self, gm_trace_read(self->comm, r.events, PLACES, &r.n, &r.n_dropped));
    return &r;
}

static void create_traced(struct rank_self *self, int n_places)
{
    self->options.trace_events = n_places;
    rank_create(self);
}

/* ---- calls and what they are made of -------------------------------------------------------------- */

static uint64_t payload_sent(struct rank_self *self)
{
    gm_traffic t;
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    return t.payload_sent_bytes;
}

static const gm_trace_event *only_call(struct rank_self *self, const struct reading *r)
{
    const gm_trace_event *call = NULL;
    for (size_t i = 0; i < r->n; i++) {
        if (r->events[i].kind != GM_TRACE_CALL) continue;
        rank_check(self, call == NULL);
        call = &r->events[i];
    }
    rank_check(self, call != NULL);
    return call;
}

static void check_call(struct rank_self *self, gm_collective which, uint64_t sent_bytes)
{
    const struct reading *r = read_all(self);
    const gm_trace_event *call = only_call(self, r);
    uint64_t              sum = 0;
    rank_check(self, call->collective == which && call->status == GM_OK && call->sent_bytes == sent_bytes);
    rank_check(self, call->last_ns >= call->begin_ns && call->last_rank >= 0 && call->last_rank < self->world_size);
    for (size_t i = 0; i < r->n; i++) {
        const gm_trace_event *e = &r->events[i];
        rank_check(self, e->begin_ns >= call->begin_ns && e->end_ns <= call->end_ns && e->begin_ns <= e->end_ns);
        rank_check(self, e->seq == call->seq);
        if (e->kind == GM_TRACE_SEND) sum += e->bytes;
    }
    rank_check(self, sum == sent_bytes);
    rank_ok(self, gm_trace_clear(self->comm));
}

static gm_status call_one(struct rank_self *self, gm_collective which, float *buffer)
{
    switch (which) {
    case GM_ALL_REDUCE: return gm_all_reduce(self->comm, buffer, buffer, COUNT, GM_F32, GM_SUM);
    case GM_REDUCE_SCATTER: return gm_reduce_scatter(self->comm, buffer, buffer, COUNT, GM_F32, GM_SUM);
    case GM_ALL_GATHER: return gm_all_gather(self->comm, buffer, buffer, COUNT, GM_F32);
    case GM_BROADCAST: return gm_broadcast(self->comm, buffer, COUNT, GM_F32, 1);
    case GM_REDUCE: return gm_reduce(self->comm, buffer, buffer, COUNT, GM_F32, GM_SUM, 1);
    case GM_GATHER: return gm_gather(self->comm, buffer, buffer, COUNT, GM_F32, 1);
    case GM_SCATTER: return gm_scatter(self->comm, buffer, buffer, COUNT, GM_F32, 1);
    case GM_ALL_TO_ALL: return gm_all_to_all(self->comm, buffer, buffer, COUNT / 8, GM_F32);
    default: return gm_barrier(self->comm);
    }
}

static void trace_each_collective(struct rank_self *self)
{
    float *buffer = gmi_alloc(COUNT, sizeof *buffer);
    create_traced(self, PLACES);
    for (int which = 0; which < GM_SEND; which++) {
        uint64_t before = payload_sent(self);
        rank_ok(self, call_one(self, (gm_collective)which, buffer));
        check_call(self, (gm_collective)which, payload_sent(self) - before);
    }
    rank_destroy(self);
    gmi_free(buffer);
}

static void transfers_account_for_the_payload_of_each_call(void **state)
{
    static const char *const algorithms[] = { NULL, "ring", "naive", "direct" }, *const transports[] = { "tcp", "shm" };
    for (size_t i = 0; i < TEST_COUNT(algorithms); i++) {
        struct ranks_job job = { .n_ranks = 3, .body = trace_each_collective, .algorithm = algorithms[i],
                                 .transport = transports[i % 2] };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

static void trace_a_world_of_one(struct rank_self *self)
{
    float values[8] = { 1 };
    create_traced(self, PLACES);
    rank_ok(self, gm_all_reduce(self->comm, values, values, 8, GM_F32, GM_SUM));
    const struct reading *r = read_all(self);
    rank_check(self, r->n == 1 && r->events[0].kind == GM_TRACE_CALL && r->events[0].bytes == 32);
    rank_destroy(self);
}

static void a_world_of_one_has_calls_and_no_transfers(void **state)
{
    struct ranks_job job = { .n_ranks = 1, .body = trace_a_world_of_one };
    ranks_run(state, &job);
}

/* ---- work that the service thread moves, splits, messages ----------------------------------------- */

static void trace_async_and_splits(struct rank_self *self)
{
    static float values[2][COUNT];
    gm_work     *works[2];
    gm_comm     *split;
    create_traced(self, PLACES);
    for (int i = 0; i < 2; i++) rank_ok(self, gm_all_reduce_start(self->comm, values[i], values[i], COUNT, GM_F32, GM_SUM, &works[i]));
    for (int i = 0; i < 2; i++) {
        rank_ok(self, gm_work_wait(works[i], -1));
        gm_work_release(works[i]);
    }
    const struct reading *r = read_all(self);
    int n_calls = 0;
    for (size_t i = 0; i < r->n; i++) n_calls += r->events[i].kind == GM_TRACE_CALL;
    rank_check(self, n_calls == 2);
    rank_ok(self, gm_comm_split(self->comm, 0, -self->rank, &split));
    rank_ok(self, gm_trace_clear(self->comm));
    rank_ok(self, gm_barrier(split));
    size_t n;
    rank_ok(self, gm_trace_read(self->comm, NULL, 0, &n, NULL));
    rank_check(self, n == 0);
    rank_ok(self, gm_trace_read(split, NULL, 0, &n, NULL));
    rank_check(self, n > 1);
    gm_comm_destroy(split);
    int64_t number = 5;
    if (self->rank == 0) rank_ok(self, gm_send(self->comm, &number, 1, GM_I64, 1, 3));
    if (self->rank == 1) rank_ok(self, gm_recv(self->comm, &number, 1, GM_I64, 0, 3));
    r = read_all(self);
    if (self->rank < 2) {
        rank_check(self, r->n == 2);
        rank_check(self, r->events[0].kind == (self->rank == 0 ? GM_TRACE_SEND : GM_TRACE_RECEIVE) && r->events[0].bytes == 8);
        rank_check(self, r->events[0].peer == 1 - self->rank && r->events[0].seq == 0);
        rank_check(self, r->events[1].kind == GM_TRACE_CALL && r->events[1].end_ns >= r->events[0].end_ns);
    }
    rank_destroy(self);
}

static void asynchronous_work_splits_and_messages_are_traced(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = trace_async_and_splits };
    ranks_run(state, &job);
}

/* ---- off, on, full ------------------------------------------------------------------------------- */

static void without_a_trace(struct rank_self *self)
{
    size_t n;
    rank_create(self);
    rank_check(self, gm_trace_begin(self->comm) == 0);
    gm_trace_end(self->comm, 5, "a", "b", 1);
    rank_expect(self, GM_ERR_STATE, gm_trace_read(self->comm, NULL, 0, &n, NULL));
    rank_expect(self, GM_ERR_STATE, gm_trace_record(self->comm, 1));
    rank_expect(self, GM_ERR_STATE, gm_trace_clear(self->comm));
    rank_check(self, gm_trace_begin(NULL) == 0);
    gm_trace_end(NULL, 5, "a", "b", 1);
    rank_destroy(self);
}

static void off_means_that_there_is_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = without_a_trace };
    ranks_run(state, &job);
}

static void interrupt(struct rank_self *self)
{
    create_traced(self, PLACES);
    rank_ok(self, gm_trace_record(self->comm, 0));
    rank_check(self, gm_trace_begin(self->comm) == 0);
    rank_ok(self, gm_barrier(self->comm));
    rank_check(self, read_all(self)->n == 0);
    rank_ok(self, gm_trace_record(self->comm, 1));
    rank_ok(self, gm_barrier(self->comm));
    rank_check(self, read_all(self)->n > 0);
    rank_destroy(self);
}

static void recording_stops_and_goes_on(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = interrupt };
    ranks_run(state, &job);
}

static void fill_up(struct rank_self *self)
{
    enum { CALLS = 50, FEW = 16 };
    static float values[COUNT];
    create_traced(self, FEW);
    rank_ok(self, gm_all_reduce(self->comm, values, values, COUNT, GM_F32, GM_SUM));
    for (int i = 0; i < CALLS; i++) {
        int64_t begin_ns = gm_trace_begin(self->comm);
        rank_ok(self, gm_all_reduce(self->comm, values, values, COUNT, GM_F32, GM_SUM));
        gm_trace_end(self->comm, begin_ns, "step", "step", i);
    }
    const struct reading *r = read_all(self);
    rank_check(self, r->n == FEW && r->n_dropped > 0);
    rank_check(self, r->events[FEW - 1].kind == GM_TRACE_SPAN && r->events[FEW - 1].number == CALLS - 1);
    rank_check(self, strcmp(r->events[FEW - 1].category, "step") == 0 && strcmp(r->events[FEW - 1].name, "step") == 0);
    for (size_t i = 1; i < FEW; i++) rank_check(self, r->events[i].end_ns >= r->events[i - 1].end_ns);
    rank_destroy(self);
}

static void a_full_trace_keeps_the_newest(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = fill_up };
    ranks_run(state, &job);
}

/* ---- clocks, and failures ------------------------------------------------------------------------ */

static void compare_clocks(struct rank_self *self)
{
    int64_t offset_ns = 1, error_ns = -1;
    create_traced(self, PLACES);
    rank_ok(self, gm_comm_clock(self->comm, &offset_ns, &error_ns));
    rank_check(self, self->rank != 0 || (offset_ns == 0 && error_ns == 0));
    rank_check(self, error_ns >= 0 && offset_ns <= error_ns && -offset_ns <= error_ns); /* it is one clock */
    rank_check(self, read_all(self)->n == 0);
    rank_ok(self, gm_barrier(self->comm));
    rank_check(self, read_all(self)->n > 0); /* recording goes on */
    rank_destroy(self);
}

static void the_error_of_the_clocks_holds_where_the_truth_is_known(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = compare_clocks };
    ranks_run(state, &job);
}

static void fail_and_read(struct rank_self *self)
{
    create_traced(self, PLACES);
    rank_ok(self, gm_barrier(self->comm));
    rank_meet(self, 0, self->world_size);
    if (self->rank == 0) rank_ok(self, gm_comm_abort(self->comm, "enough"));
    rank_expect(self, GM_ERR_ABORTED, gm_barrier(self->comm));
    const struct reading *r = read_all(self);
    const gm_trace_event *last = &r->events[r->n - 1];
    rank_check(self, last->kind == GM_TRACE_CALL && last->status == GM_ERR_ABORTED);
    rank_destroy(self);
}

static void a_failed_communicator_still_has_its_trace(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = fail_and_read };
    ranks_run(state, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(transfers_account_for_the_payload_of_each_call, ranks_teardown),
        cmocka_unit_test_teardown(a_world_of_one_has_calls_and_no_transfers, ranks_teardown),
        cmocka_unit_test_teardown(asynchronous_work_splits_and_messages_are_traced, ranks_teardown),
        cmocka_unit_test_teardown(off_means_that_there_is_nothing, ranks_teardown),
        cmocka_unit_test_teardown(recording_stops_and_goes_on, ranks_teardown),
        cmocka_unit_test_teardown(a_full_trace_keeps_the_newest, ranks_teardown),
        cmocka_unit_test_teardown(the_error_of_the_clocks_holds_where_the_truth_is_known, ranks_teardown),
        cmocka_unit_test_teardown(a_failed_communicator_still_has_its_trace, ranks_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
