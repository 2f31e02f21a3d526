/* exact_test.c - exact sums of real processes: the bits of one process at every world size, over TCP and shared memory. */
#include <math.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/support/oracle.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

enum { COUNT = 20011, SHARDS = 12, STEPS = 3 };

static const int some_sizes[] = { 1, 2, 3, 5, 8 };

/* Most fit into their lanes; now and then one does not, or is not even finite. */
static void fill(float *x, int step, int shard)
{
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t r = gmi_rng_u64(gmi_rng_key((uint64_t)step, (uint64_t)shard), i);
        x[i] = ldexpf((float)(int32_t)(uint32_t)r * 0x1p-31f, -(int)(r >> 32 & 15) - (r >> 40 & 255 ? 0 : 100));
        if (i % 5000 == 77 && shard == 3) x[i] = r & 1 ? INFINITY : NAN;
    }
}

static gm_accumulator *accumulator(struct rank_self *self, size_t count, int n_shards, int quantum)
{
    gm_accumulator        *acc;
    gm_accumulator_options options;
    gm_error               error;
    gm_accumulator_options_default(&options);
    options.count = count;
    options.n_shards = n_shards;
    options.quantum_exponent = quantum;
    options.is_wire_raw = self != NULL && self->rank % 3 == 1;
    gm_status status = gm_accumulator_create(&acc, &options, &error);
    if (self != NULL) rank_check(self, status == GM_OK);
    else assert_ok(status);
    return acc;
}

static uint64_t hash_of(const float *sum, size_t count)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &sum[i], sizeof bits);
        h = (h ^ bits) * UINT64_C(1099511628211);
    }
    return h;
}

/* ---- one hash -------------------------------------------------------------------------------------- */

static void check_accounts(struct rank_self *self)
{
    uint64_t   sent, recv;
    gm_traffic t;
    rank_meet(self, 0, self->world_size);
    gm_status status = gm_comm_kernel_traffic(self->comm, &sent, &recv);
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    rank_check(self, status == GM_OK || status == GM_ERR_UNSUPPORTED);
    if (status == GM_OK) rank_check(self, sent == t.payload_sent_bytes + t.protocol_sent_bytes - t.memory_sent_bytes);
    if (status == GM_OK) rank_check(self, recv == t.payload_recv_bytes + t.protocol_recv_bytes - t.memory_recv_bytes);
    rank_meet(self, 1, self->world_size);
}

/* Shards go to other ranks in each step, in another order. */
static void sum_shards(struct rank_self *self)
{
    static float    x[COUNT], sum[COUNT];
    gm_accumulator *acc = accumulator(self, COUNT, SHARDS, -47);
    rank_create(self);
    for (int step = 0; step < STEPS; step++) {
        gm_work *work;
        for (int k = 0; k < SHARDS; k++) {
            int shard = (k * 5 + step) % SHARDS;
            if ((int)(gmi_rng_u64((uint64_t)step, (uint64_t)shard) % (uint64_t)self->world_size) != self->rank) continue;
            fill(x, step, shard);
            rank_check(self, gm_accumulator_add(acc, shard, x) == GM_OK);
        }
        if (step % 2 == 0) {
            rank_ok(self, gm_all_reduce_exact(self->comm, acc, sum));
        } else {
            rank_ok(self, gm_all_reduce_exact_start(self->comm, acc, sum, &work));
            rank_ok(self, gm_work_wait(work, -1));
            gm_work_release(work);
        }
        self->record->numbers[step] = hash_of(sum, COUNT);
        rank_check(self, gm_accumulator_reset(acc) == GM_OK);
    }
    check_accounts(self);
    rank_destroy(self);
    gm_accumulator_destroy(acc);
}

static void sum_here(uint64_t hashes[STEPS])
{
    static float    x[COUNT], sum[COUNT];
    gm_accumulator *acc = accumulator(NULL, COUNT, SHARDS, -40);
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < SHARDS; k++) {
            fill(x, step, k);
            assert_ok(gm_accumulator_add(acc, k, x));
        }
        assert_ok(gm_accumulator_finish(acc, sum));
        hashes[step] = hash_of(sum, COUNT);
        assert_ok(gm_accumulator_reset(acc));
    }
    gm_accumulator_destroy(acc);
}

static void one_hash_at_every_world_size_algorithm_and_transport(void **state)
{
    static const char *const algorithms[] = { "auto", "ring", "direct", "halving", "tree" };
    static const char *const transports[] = { "tcp", "shm" };
    uint64_t                 want[STEPS];
    sum_here(want);
    for (size_t t = 0; t < TEST_COUNT(transports); t++) {
        for (size_t a = 0; a < TEST_COUNT(algorithms); a++) {
            for (size_t s = 0; s < TEST_COUNT(some_sizes); s++) {
                int n = some_sizes[s];
                if (n == 1 && (a > 0 || t > 0)) continue;
                if (n == 8 && a == 0) continue;
                struct ranks_job job = { .n_ranks = n, .body = sum_shards, .algorithm = algorithms[a],
                                         .transport = n == 1 ? "tcp" : transports[t] };
                struct ranks *r = ranks_run(state, &job);
                for (int k = 0; k < n; k++) {
                    for (int step = 0; step < STEPS; step++) {
                        if (ranks_shared(r)->records[k].numbers[step] == want[step]) continue;
                        fail_msg("%d ranks, %s over %s: rank %d has other bits in step %d", n, algorithms[a], transports[t], k, step);
                    }
                }
                ranks_teardown(state);
            }
        }
    }
}

/* ---- without an accumulator -------------------------------------------------------------------------- */

static void sum_directly(struct rank_self *self)
{
    static float x[COUNT], sum[COUNT];
    static float others[RANKS_MAX][COUNT];
    static const size_t counts[] = { COUNT, 1, 0, 65, COUNT };
    rank_create(self);
    for (int r = 0; r < self->world_size; r++) fill(others[r], 9, r);
    fill(x, 9, self->rank);
    for (size_t c = 0; c < TEST_COUNT(counts); c++) {
        rank_ok(self, gm_all_reduce(self->comm, x, sum, counts[c], GM_F32, GM_SUM_EXACT));
        for (size_t i = 0; i < counts[c]; i += 97) {
            uint32_t bits[RANKS_MAX], have;
            for (int r = 0; r < self->world_size; r++) memcpy(&bits[r], &others[r][i], sizeof *bits);
            memcpy(&have, &sum[i], sizeof have);
            rank_check(self, have == oracle_exact_sum(bits, (size_t)self->world_size));
        }
    }
    float minus_zero = -0.0f;
    rank_ok(self, gm_all_reduce(self->comm, &minus_zero, &minus_zero, 1, GM_F32, GM_SUM_EXACT));
    rank_check(self, minus_zero == 0 && !signbit(minus_zero));
    double d = 1;
    rank_expect(self, GM_ERR_UNSUPPORTED, gm_all_reduce(self->comm, &d, &d, 1, GM_F64, GM_SUM_EXACT));
    rank_expect(self, GM_ERR_UNSUPPORTED, gm_reduce_scatter(self->comm, x, sum, 8, GM_F32, GM_SUM_EXACT));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "sum_exact of f32") != NULL);
    check_accounts(self);
    rank_destroy(self);
}

static void one_contribution_a_rank_needs_no_accumulator(void **state)
{
    for (int n = 1; n <= 4; n++) {
        struct ranks_job job = { .n_ranks = n, .body = sum_directly };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

/* ---- however it is called -------------------------------------------------------------------------------- */

/* The same values again and again: in so many calls, some of them at once, shifted in memory, each rank late in its own way. */
static void sum_in_calls(struct rank_self *self, const float *x, float *sum, int n_calls, uint64_t round)
{
    gm_work *works[4] = { NULL };
    for (int c = 0; c < n_calls; c++) {
        size_t first, n;
        gm_chunk(COUNT, n_calls, c, &first, &n);
        uint64_t draw = gmi_rng_u64(gmi_rng_key(round, (uint64_t)self->rank), (uint64_t)c);
        if (draw % 8 == 0) usleep((useconds_t)(draw >> 32) % 2000);
        int slot = c % (int)TEST_COUNT(works);
        if (works[slot] != NULL) {
            rank_ok(self, gm_work_wait(works[slot], -1));
            gm_work_release(works[slot]);
            works[slot] = NULL;
        }
        if (round % 2 == 0) rank_ok(self, gm_all_reduce(self->comm, x + first, sum + first, n, GM_F32, GM_SUM_EXACT));
        else rank_ok(self, gm_all_reduce_start(self->comm, x + first, sum + first, n, GM_F32, GM_SUM_EXACT, &works[slot]));
    }
    for (size_t i = 0; i < TEST_COUNT(works); i++) {
        if (works[i] == NULL) continue;
        rank_ok(self, gm_work_wait(works[i], -1));
        gm_work_release(works[i]);
    }
}

static void call_in_many_ways(struct rank_self *self)
{
    static float     x[COUNT + 1], sum[COUNT + 1];
    static const int n_calls[] = { 1, 7, 100, 2, 61 };
    uint64_t         first_hash = 0;
    rank_create(self);
    for (uint64_t round = 0; round < 2 * TEST_COUNT(n_calls); round++) {
        size_t shift = round / 2 % 2;
        fill(x + shift, 5, self->rank);
        memset(sum, 0, sizeof sum);
        sum_in_calls(self, x + shift, sum + shift, n_calls[round / 2], round);
        uint64_t hash = hash_of(sum + shift, COUNT);
        if (round == 0) first_hash = hash;
        rank_check(self, hash == first_hash);
    }
    self->record->numbers[0] = first_hash;
    rank_destroy(self);
}

static void sums_do_not_depend_on_calls_sizes_or_time(void **state)
{
    static const char *const algorithms[] = { "auto", "ring", "direct", "tree" }, *const transports[] = { "tcp", "shm" };
    uint64_t first_hash = 0;
    for (size_t a = 0; a < TEST_COUNT(algorithms); a++) {
        for (size_t t = 0; t < TEST_COUNT(transports); t++) {
            struct ranks_job job = { .n_ranks = 3, .body = call_in_many_ways, .algorithm = algorithms[a], .transport = transports[t] };
            struct ranks    *r = ranks_run(state, &job);
            if (first_hash == 0) first_hash = ranks_shared(r)->records[0].numbers[0];
            for (int k = 0; k < job.n_ranks; k++) assert_int_equal(ranks_shared(r)->records[k].numbers[0], first_hash);
            ranks_teardown(state);
        }
    }
    assert_int_not_equal(first_hash, 0);
}

/* ---- mistakes ---------------------------------------------------------------------------------------- */

enum mistake { TWICE, MISSING, OTHER_SHARDS, OTHER_QUANTUM, OTHER_COUNT };

/* On every rank the same error, and the accumulator still holds what was added. */
static void differ(struct rank_self *self)
{
    enum mistake          m = *(const enum mistake *)self->user;
    bool                  is_odd = self->rank == 1;
    int                   n = self->world_size, n_shards = n + (is_odd && m == OTHER_SHARDS);
    static float          x[COUNT + 1], sum[COUNT + 1];
    size_t                count = COUNT + (is_odd && m == OTHER_COUNT);
    gm_accumulator       *acc = accumulator(self, count, n_shards, is_odd && m == OTHER_QUANTUM ? -40 : -47);
    gm_accumulator_stats  stats;
    static const char *const sentences[][2] = { { "shard 1 of", "on two ranks" }, { "shard 1 of", "on no rank" },
                                                { "4 shards", "3 shards" }, { "2^-40", "2^-47" }, { "20011 elems", "20012 elems" } };
    for (int k = 0; k < n_shards; k++) {
        bool is_ours = k == self->rank || (is_odd && k >= n) || (m == TWICE && k == 1 && self->rank == n - 1);
        if (m == MISSING && k == 1) is_ours = false;
        if (is_ours) rank_check(self, gm_accumulator_add(acc, k, x) == GM_OK);
    }
    rank_create(self);
    rank_meet(self, 2, n); /* none is told of it while it still joins */
    gm_status status = gm_all_reduce_exact(self->comm, acc, sum);
    rank_record(self, status);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_check(self, status == GM_ERR_MISMATCH);
    for (int i = 0; i < 2; i++) rank_check(self, strstr(gm_comm_error(self->comm)->text, sentences[m][i]) != NULL);
    rank_check(self, gm_accumulator_get_stats(acc, &stats) == GM_OK);
    rank_check(self, stats.n_shards_added == (m == MISSING && is_odd ? 0 : 1) + (m == TWICE && self->rank == n - 1) +
                                                 (is_odd && m == OTHER_SHARDS));
    for (int k = 0; k < n_shards; k++) { /* it is free again: the others can be added, and the sum is right */
        if (gm_accumulator_add(acc, k, x) != GM_OK) rank_check(self, gm_accumulator_error(acc)->status == GM_ERR_STATE);
    }
    rank_check(self, gm_accumulator_finish(acc, sum) == GM_OK);
    rank_destroy(self);
    gm_accumulator_destroy(acc);
}

static void shards_twice_or_missing_and_other_accumulators_are_told_on_every_rank(void **state)
{
    for (enum mistake m = TWICE; m <= OTHER_COUNT; m++) {
        struct ranks_job job = { .n_ranks = 3, .body = differ, .user = &m };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

static void ask_too_early(struct rank_self *self)
{
    float           x[4] = { 1, 2, 3, 4 }, sum[4];
    gm_accumulator *acc = accumulator(self, 4, 2, -47);
    rank_create(self);
    rank_check(self, gm_accumulator_add_tile(acc, self->rank, x, 3, 0, 3, 1, 3) == GM_OK);
    rank_expect(self, GM_ERR_STATE, gm_all_reduce_exact(self->comm, acc, sum));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "is not complete: 3 of 4") != NULL);
    rank_check(self, gm_accumulator_add_tile(acc, self->rank, x + 3, 1, 3, 1, 1, 1) == GM_OK);
    rank_ok(self, gm_all_reduce_exact(self->comm, acc, sum));
    for (int i = 0; i < 4; i++) rank_check(self, sum[i] == 2 * x[i]);
    rank_destroy(self);
    gm_accumulator_destroy(acc);
}

static void a_shard_that_is_not_complete_starts_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = ask_too_early };
    ranks_run(state, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_hash_at_every_world_size_algorithm_and_transport, ranks_teardown),
        cmocka_unit_test_teardown(one_contribution_a_rank_needs_no_accumulator, ranks_teardown),
        cmocka_unit_test_teardown(sums_do_not_depend_on_calls_sizes_or_time, ranks_teardown),
        cmocka_unit_test_teardown(shards_twice_or_missing_and_other_accumulators_are_told_on_every_rank, ranks_teardown),
        cmocka_unit_test_teardown(a_shard_that_is_not_complete_starts_nothing, ranks_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
