/* Asynchronous work: it moves by itself, in the order of starts, mixed with blocking calls, and ends with the
 * communicator's failure. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/ranks.h"

enum { N_WORKS = 40, MAX_ELEMS = 200000, ROUNDS = 4, VICTIM = 1, READY = 0 };

/* Exact in a float, and another one for each rank, work and place. */
static float value(int rank, int work, size_t i) { return (float)(i % 97) + (float)(rank + work) * (float)(i % 13); }

static float sum_of_values(int world_size, int work, size_t i)
{
    int ranks = world_size * (world_size - 1) / 2 + world_size * work;
    return (float)world_size * (float)(i % 97) + (float)ranks * (float)(i % 13);
}

struct batch {
    float   *values[N_WORKS];
    size_t   counts[N_WORKS];
    gm_work *works[N_WORKS];
};

static void start_all(struct rank_self *self, struct batch *b, uint64_t seed)
{
    for (int k = 0; k < N_WORKS; k++) {
        b->counts[k] = (size_t)gmi_rng_below(seed, (uint64_t)k, k % 8 == 0 ? MAX_ELEMS : 3000);
        b->values[k] = malloc((b->counts[k] + 1) * sizeof(float));
        for (size_t i = 0; i < b->counts[k]; i++) b->values[k][i] = value(self->rank, k, i);
        rank_ok(self, gm_all_reduce_start(self->comm, b->values[k], b->values[k], b->counts[k], GM_F32, GM_SUM,
                                          &b->works[k]));
    }
}

static void check_sums(struct rank_self *self, const struct batch *b, int k)
{
    for (size_t i = 0; i < b->counts[k]; i++) rank_check(self, b->values[k][i] == sum_of_values(self->world_size, k, i));
}

static void many_in_flight(struct rank_self *self)
{
    struct batch b;
    rank_create(self);
    for (int round = 0; round < ROUNDS; round++) {
        start_all(self, &b, (uint64_t)round);
        if (round % 2 == 1) { /* a blocking call runs behind all that were started before */
            int32_t one = 1;
            rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_I32, GM_SUM));
            rank_check(self, one == self->world_size && gm_work_test(b.works[N_WORKS - 1]) == GM_OK);
        }
        for (int j = 0; j < N_WORKS; j++) { /* waited for in another order than started */
            int k = j * 7 % N_WORKS;
            rank_ok(self, gm_work_wait(b.works[k], -1));
            rank_check(self, gm_work_error(b.works[k])->status == GM_OK);
            check_sums(self, &b, k);
            gm_work_release(b.works[k]);
            free(b.values[k]);
        }
    }
    rank_destroy(self);
}

static void works_in_flight_mix_with_blocking_calls(void **state)
{
    int worlds[] = { 1, 2, 3, 5 };
    for (int i = 0; i < 4; i++) {
        struct ranks_job job = { .n_ranks = worlds[i], .body = many_in_flight };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

static void only_test(struct rank_self *self)
{
    size_t   count = 2000000;
    float   *values = calloc(count, sizeof(float));
    gm_work *work;
    rank_create(self);
    rank_ok(self, gm_all_reduce_start(self->comm, values, values, count, GM_F32, GM_SUM, &work));
    int64_t deadline_ns = gmi_deadline_after_ms(10000 * ranks_slowness());
    while (gm_work_test(work) == GM_AGAIN && !gmi_deadline_passed(deadline_ns)) {
        struct timespec moment = { .tv_nsec = 1000000 };
        nanosleep(&moment, NULL); /* this thread does something else */
    }
    rank_ok(self, gm_work_test(work));
    gm_work_release(work);
    free(values);
    rank_destroy(self);
}

static void work_moves_without_calls_from_the_user(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = only_test };
    ranks_run(state, &job);
}

static void limits(struct rank_self *self)
{
    gm_work *works[200], *barrier;
    int32_t  values[200];
    int      started = 0;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    uint64_t allocations = gmi_alloc_calls();
    if (self->rank == 0) { /* nobody else comes yet */
        rank_ok(self, gm_barrier_start(self->comm, &barrier));
        int64_t begin_ns = gmi_now_ns();
        rank_expect(self, GM_AGAIN, gm_work_wait(barrier, 50));
        int64_t took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
        rank_check(self, took_ms >= 49 && took_ms < 5000);
        rank_expect(self, GM_AGAIN, gm_work_wait(barrier, 0));
        rank_mark(self, READY);
    } else {
        rank_await(self, READY, 1);
        rank_ok(self, gm_barrier_start(self->comm, &barrier));
    }
    for (gm_status status = GM_OK; started < 200; started++) {
        values[started] = started;
        status = gm_all_reduce_start(self->comm, &values[started], &values[started], 1, GM_I32, GM_SUM, &works[started]);
        if (status != GM_OK) {
            rank_expect(self, GM_ERR_STATE, status);
            rank_check(self, works[started] == NULL && strstr(gm_comm_error(self->comm)->text, "in flight") != NULL);
            break;
        }
    }
    rank_check(self, started == 127); /* and the barrier */
    for (int k = 0; k < started; k++) {
        rank_ok(self, gm_work_wait(works[k], -1));
        rank_check(self, values[k] == k * self->world_size);
        gm_work_release(works[k]);
    }
    rank_ok(self, gm_work_wait(barrier, -1));
    gm_work_release(barrier);
    gm_work_release(NULL);
    /* Scratch may grow once for each algorithm, and on a slow machine links are still made; but nothing for each of 128 works. */
    rank_check(self, gmi_alloc_calls() < allocations + 20);
    gm_work *bad = works[0];
    rank_expect(self, GM_ERR_UNSUPPORTED, gm_all_reduce_start(self->comm, values, values, 1, GM_F32, GM_BXOR, &bad));
    rank_check(self, bad == NULL);
    /* Released before it is done: it goes on, and the next blocking call is behind it. */
    rank_ok(self, gm_all_reduce_start(self->comm, values, values, 1, GM_I32, GM_SUM, &bad));
    gm_work_release(bad);
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void waits_end_at_their_limit_and_handles_are_bounded(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = limits };
    ranks_run(state, &job);
}

static void killed_meanwhile(struct rank_self *self)
{
    struct batch b;
    rank_create(self);
    if (self->rank == VICTIM) { /* when all others have their work in flight */
        rank_await(self, READY, self->world_size - 1);
        raise(SIGKILL);
    }
    start_all(self, &b, 9);
    rank_mark(self, READY);
    int64_t begin_ns = gmi_now_ns();
    for (int k = 0; k < N_WORKS; k++) {
        rank_expect(self, GM_ERR_PEER_LOST, gm_work_wait(b.works[k], -1));
        rank_check(self, gm_work_error(b.works[k])->culprit == VICTIM);
        gm_work_release(b.works[k]);
        free(b.values[k]);
    }
    int64_t took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
    rank_check(self, took_ms < 1000 * ranks_slowness());
    rank_expect(self, GM_ERR_PEER_LOST, gm_barrier(self->comm));
    rank_destroy(self);
}

static void a_loss_ends_all_work_and_names_the_rank(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = killed_meanwhile };
    struct ranks    *r = ranks_start(state, &job);
    ranks_expect_signal(r, VICTIM, SIGKILL);
    ranks_finish(r);
}

static void out_of_order(struct rank_self *self)
{
    static float values[200];
    size_t       counts[2] = { 100, 200 };
    gm_work     *works[2];
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, values, values, 100, GM_F32, GM_SUM)); /* all links are there */
    rank_meet(self, READY, self->world_size);
    for (int k = 0; k < 2; k++) {
        size_t    count = counts[self->rank == 1 ? 1 - k : k];
        gm_status status = gm_all_reduce_start(self->comm, values, values, count, GM_F32, GM_SUM, &works[k]);
        if (status != GM_OK) rank_expect(self, GM_ERR_MISMATCH, status); /* it is known already */
    }
    for (int k = 0; k < 2; k++) {
        if (works[k] == NULL) continue;
        rank_expect(self, GM_ERR_MISMATCH, gm_work_wait(works[k], -1));
        const char *text = gm_work_error(works[k])->text;
        rank_check(self, strstr(text, "100 elems") != NULL && strstr(text, "200 elems") != NULL);
    }
    rank_destroy(self); /* the handles end with it */
}

static void another_order_of_starts_is_a_mismatch_on_every_rank(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = out_of_order };
    ranks_run(state, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(works_in_flight_mix_with_blocking_calls, ranks_teardown),
        cmocka_unit_test_teardown(work_moves_without_calls_from_the_user, ranks_teardown),
        cmocka_unit_test_teardown(waits_end_at_their_limit_and_handles_are_bounded, ranks_teardown),
        cmocka_unit_test_teardown(a_loss_ends_all_work_and_names_the_rank, ranks_teardown),
        cmocka_unit_test_teardown(another_order_of_starts_is_a_mismatch_on_every_rank, ranks_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
