/* The collectives between real processes over loopback, N = 1, 2, 3, 4, 5, 8.
 *
 * Every rank knows what every rank contributes, so each checks all of its own result against a plain loop.
 * The values depend on rank and index (a chunk in the wrong place is seen) and are whole numbers (sums are
 * exact in any order); the order of float sums has a test of its own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "net/socket.h"
#include "tests/support/ranks.h"

enum { LARGE = 100003, GUARD_BYTES = 64, GUARD = 0x5a };

/* ---- what each rank contributes, and what must come out ----------------------------------------- */

static double contribution(int rank, size_t i)
{
    return (double)gmi_rng_below(gmi_rng_key(7, (uint64_t)rank), i, 1001) - 500.0;
}

struct oracle {
    int     n_ranks;
    double *sum, *least, *most;
};

static struct oracle make_oracle(int n_ranks)
{
    struct oracle o = { n_ranks, malloc(LARGE * sizeof(double)), malloc(LARGE * sizeof(double)),
                        malloc(LARGE * sizeof(double)) };
    for (size_t i = 0; i < LARGE; i++) {
        o.sum[i] = o.least[i] = o.most[i] = contribution(0, i);
        for (int k = 1; k < n_ranks; k++) {
            double x = contribution(k, i);
            o.sum[i] += x;
            o.least[i] = fmin(o.least[i], x);
            o.most[i] = fmax(o.most[i], x);
        }
    }
    return o;
}

static void free_oracle(struct oracle *o)
{
    free(o->sum);
    free(o->least);
    free(o->most);
}

static double combined(const struct oracle *o, gm_redop redop, gm_dtype dtype, size_t i)
{
    switch (redop) {
    case GM_SUM: return o->sum[i];
    case GM_MIN: return o->least[i];
    case GM_MAX: return o->most[i];
    default: break;
    }
    return dtype == GM_F32 ? (double)((float)o->sum[i] / (float)o->n_ranks) : o->sum[i] / o->n_ranks;
}

/* ---- buffers between guards --------------------------------------------------------------------- */

struct buffer {
    gm_dtype dtype;
    size_t   elems, bytes;
    uint8_t *memory, *data;
};

static struct buffer make_buffer(gm_dtype dtype, size_t elems)
{
    struct buffer b = { .dtype = dtype, .elems = elems, .bytes = elems * gm_dtype_bytes(dtype) };
    b.memory = malloc(b.bytes + 2 * GUARD_BYTES);
    memset(b.memory, GUARD, b.bytes + 2 * GUARD_BYTES);
    b.data = b.memory + GUARD_BYTES;
    return b;
}

static bool is_guarded(const struct buffer *b)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (b->memory[i] != GUARD || b->memory[GUARD_BYTES + b->bytes + i] != GUARD) return false;
    }
    return true;
}

static void put(struct buffer *b, size_t i, double x)
{
    switch (b->dtype) {
    case GM_F32: ((float *)b->data)[i] = (float)x; break;
    case GM_F64: ((double *)b->data)[i] = x; break;
    case GM_I32: ((int32_t *)b->data)[i] = (int32_t)x; break;
    default: ((int64_t *)b->data)[i] = (int64_t)x; break;
    }
}

static double get(const struct buffer *b, size_t i)
{
    switch (b->dtype) {
    case GM_F32: return (double)((float *)b->data)[i];
    case GM_F64: return ((double *)b->data)[i];
    case GM_I32: return ((int32_t *)b->data)[i];
    default: return (double)((int64_t *)b->data)[i];
    }
}

static struct buffer filled(const struct rank_self *self, gm_dtype dtype, size_t first, size_t elems)
{
    struct buffer b = make_buffer(dtype, elems);
    for (size_t i = 0; i < elems; i++) put(&b, i, contribution(self->rank, first + i));
    return b;
}

/* ---- one call each ------------------------------------------------------------------------------ */

struct call {
    const struct oracle *oracle;
    gm_dtype dtype;
    gm_redop redop;
    size_t   count;
    bool     is_in_place;
};

static void check_elem(struct rank_self *self, const struct call *c, const char *what, const struct buffer *b,
                       size_t at, double expected, size_t index)
{
    if (get(b, at) == expected) return;
    rank_fail(self, __FILE__, __LINE__, "%s %s %s of %zu%s: element %zu is %g, not %g", what, gm_dtype_name(c->dtype),
              gm_redop_name(c->redop), c->count, c->is_in_place ? " in place" : "", index, get(b, at), expected);
}

static void check_guards(struct rank_self *self, const struct buffer *b)
{
    rank_check(self, is_guarded(b));
}

static void check_untouched(struct rank_self *self, const struct buffer *send, size_t first)
{
    for (size_t i = 0; i < send->elems; i++) rank_check(self, get(send, i) == contribution(self->rank, first + i));
}

static void try_all_reduce(struct rank_self *self, const struct call *c)
{
    struct buffer send = filled(self, c->dtype, 0, c->count), recv = make_buffer(c->dtype, c->count);
    struct buffer *to = c->is_in_place ? &send : &recv;
    rank_ok(self, gm_all_reduce(self->comm, send.data, to->data, c->count, c->dtype, c->redop));
    for (size_t i = 0; i < c->count; i++) {
        check_elem(self, c, "all_reduce", to, i, combined(c->oracle, c->redop, c->dtype, i), i);
    }
    if (!c->is_in_place) check_untouched(self, &send, 0);
    check_guards(self, &send);
    check_guards(self, &recv);
    free(send.memory);
    free(recv.memory);
}

static void try_reduce_scatter(struct rank_self *self, const struct call *c)
{
    size_t first, elems;
    gm_chunk(c->count, self->world_size, self->rank, &first, &elems);
    struct buffer send = filled(self, c->dtype, 0, c->count), recv = make_buffer(c->dtype, elems);
    struct buffer *to = c->is_in_place ? &send : &recv;
    rank_ok(self, gm_reduce_scatter(self->comm, send.data, to->data, c->count, c->dtype, c->redop));
    for (size_t i = 0; i < elems; i++) {
        check_elem(self, c, "reduce_scatter", to, c->is_in_place ? first + i : i,
                   combined(c->oracle, c->redop, c->dtype, first + i), first + i);
    }
    if (!c->is_in_place) check_untouched(self, &send, 0);
    check_guards(self, &send);
    check_guards(self, &recv);
    free(send.memory);
    free(recv.memory);
}

static void try_all_gather(struct rank_self *self, const struct call *c)
{
    size_t first, elems;
    gm_chunk(c->count, self->world_size, self->rank, &first, &elems);
    struct buffer own = filled(self, c->dtype, first, elems), recv = make_buffer(c->dtype, c->count);
    if (c->is_in_place) memcpy(recv.data + first * gm_dtype_bytes(c->dtype), own.data, own.bytes);
    rank_ok(self, gm_all_gather(self->comm, c->is_in_place ? recv.data : own.data, recv.data, c->count, c->dtype));
    for (int k = 0; k < self->world_size; k++) {
        gm_chunk(c->count, self->world_size, k, &first, &elems);
        for (size_t i = first; i < first + elems; i++) {
            check_elem(self, c, "all_gather", &recv, i, contribution(k, i), i);
        }
    }
    check_guards(self, &own);
    check_guards(self, &recv);
    free(own.memory);
    free(recv.memory);
}

static void try_broadcast(struct rank_self *self, const struct call *c, int root)
{
    struct buffer b = filled(self, c->dtype, 0, c->count);
    rank_ok(self, gm_broadcast(self->comm, b.data, c->count, c->dtype, root));
    for (size_t i = 0; i < c->count; i++) check_elem(self, c, "broadcast", &b, i, contribution(root, i), i);
    check_guards(self, &b);
    free(b.memory);
}

/* ---- all of them -------------------------------------------------------------------------------- */

static void try_reductions(struct rank_self *self, struct call c)
{
    for (int op = 0; op < GM_REDOP_END; op++) {
        bool is_integer = c.dtype == GM_I32 || c.dtype == GM_I64;
        if (op == GM_AVG && is_integer) continue;
        c.redop = (gm_redop)op;
        try_all_reduce(self, &c);
        try_reduce_scatter(self, &c);
    }
}

static void try_everything(struct rank_self *self)
{
    size_t n = (size_t)self->world_size;
    size_t counts[] = { 0, 1, n - 1, n, n + 1, LARGE };
    struct oracle oracle = make_oracle(self->world_size);
    struct call   c = { .oracle = &oracle };
    rank_create(self);
    for (int dtype = 0; dtype < GM_DTYPE_END; dtype++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                c.dtype = (gm_dtype)dtype, c.count = counts[i], c.is_in_place = in_place;
                try_reductions(self, c);
                try_all_gather(self, &c);
            }
            for (int root = 0; root < self->world_size; root++) try_broadcast(self, &c, root);
        }
    }
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
    free_oracle(&oracle);
}

static void run_with(void **state, int n_ranks, const char *algorithm, const char *host, void (*body)(struct rank_self *))
{
    struct ranks_job job = { .n_ranks = n_ranks, .body = body, .algorithm = algorithm, .host = host };
    ranks_run(state, &job);
}

#define EVERYTHING_WITH(n)                                                                              \
    static void every_collective_is_right_on_##n##_ranks(void **state) { run_with(state, n, NULL, NULL, try_everything); }
EVERYTHING_WITH(1)
EVERYTHING_WITH(2)
EVERYTHING_WITH(3)
EVERYTHING_WITH(4)
EVERYTHING_WITH(5)
EVERYTHING_WITH(8)

static void the_naive_algorithm_gives_the_same(void **state)
{
    const int sizes[] = { 1, 2, 3, 5 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) run_with(state, sizes[i], "naive", NULL, try_everything);
}

static void ipv6_works(void **state)
{
    struct gmi_address_list list;
    int      fd;
    if (gmi_address_resolve(&list, "::1", 0, NULL) != GM_OK || gmi_socket_listen(&fd, &list.addresses[0], NULL) != GM_OK) {
        skip(); /* a host without IPv6 */
    }
    gmi_socket_close(&fd);
    run_with(state, 3, NULL, "::1", try_everything);
}

static void rank_0_can_serve_the_store_itself(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = try_everything, .is_hand_started = true };
    ranks_run(state, &job);
}

/* ---- the order of float sums --------------------------------------------------------------------- */

static float noise(int rank, size_t i) { return (float)(gmi_rng_unit(gmi_rng_key(99, (uint64_t)rank), i) * 2.0 - 1.0) * 1e3f; }

/* Chunk k is summed in the order of ranks k+1, k+2, ..., k: what ring.c promises. */
static float sum_in_ring_order(int n_ranks, int chunk, size_t i)
{
    float sum = noise((chunk + 1) % n_ranks, i);
    for (int d = 2; d <= n_ranks; d++) sum += noise((chunk + d) % n_ranks, i);
    return sum;
}

static void sum_noise(struct rank_self *self)
{
    float *values = malloc(LARGE * sizeof *values);
    rank_create(self);
    for (size_t i = 0; i < LARGE; i++) values[i] = noise(self->rank, i);
    rank_ok(self, gm_all_reduce(self->comm, values, values, LARGE, GM_F32, GM_SUM));
    for (int k = 0; k < self->world_size; k++) {
        size_t first, elems;
        gm_chunk(LARGE, self->world_size, k, &first, &elems);
        for (size_t i = first; i < first + elems; i++) {
            float expected = sum_in_ring_order(self->world_size, k, i);
            rank_check(self, memcmp(&values[i], &expected, sizeof expected) == 0);
        }
    }
    rank_destroy(self);
    free(values);
}

static void float_sums_have_the_same_bits_everywhere_in_ring_order(void **state)
{
    const int sizes[] = { 2, 3, 5, 8 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) run_with(state, sizes[i], "ring", NULL, sum_noise);
}

static uint64_t hash_of(const void *bytes, size_t n_bytes)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n_bytes; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
    return h;
}

static void hash_sums(struct rank_self *self)
{
    float *values = malloc(LARGE * sizeof *values);
    rank_create(self);
    for (int k = 0; k < RANKS_NUMBERS; k++) {
        size_t count = k < 40 ? (size_t)k : (size_t)k * (size_t)k * 24;
        for (size_t i = 0; i < count; i++) values[i] = noise(self->rank, i + (size_t)k);
        rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F32, k % 2 ? GM_AVG : GM_SUM));
        self->record->numbers[k] = hash_of(values, count * sizeof *values);
    }
    rank_destroy(self);
    free(values);
}

static void float_sums_have_the_same_bits_on_all_ranks_whatever_the_algorithm(void **state)
{
    const char *const algorithms[] = { "auto", "ring", "naive" };
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        struct ranks_job     job = { .n_ranks = 5, .body = hash_sums, .algorithm = algorithms[i] };
        struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
        for (int k = 1; k < job.n_ranks; k++) {
            assert_memory_equal(shared->records[k].numbers, shared->records[0].numbers, sizeof shared->records[0].numbers);
        }
    }
}

/* ---- numbers that are not numbers, and numbers that are too large --------------------------------- */

/* Each rank puts a NaN with a payload of its own at its own place; no place may lose it, whoever owns it. */
static void spread_nans(struct rank_self *self)
{
    enum { COUNT = 64 };
    rank_create(self);
    for (int op = 0; op < GM_REDOP_END; op++) {
        uint32_t bits[COUNT];
        float    values[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            bool is_ours = i % (size_t)self->world_size == (size_t)self->rank;
            bits[i] = is_ours ? 0xff800001u + (uint32_t)self->rank : 0x3f800000u;
        }
        memcpy(values, bits, sizeof values);
        rank_ok(self, gm_all_reduce(self->comm, values, values, COUNT, GM_F32, (gm_redop)op));
        memcpy(bits, values, sizeof bits);
        for (size_t i = 0; i < COUNT; i++) rank_check(self, bits[i] == 0x7fc00000u);
    }
    rank_destroy(self);
}

static void a_nan_of_any_rank_reaches_all_as_the_canonical_one(void **state)
{
    for (int n = 1; n <= 4; n++) run_with(state, n, NULL, NULL, spread_nans);
    run_with(state, 3, "naive", NULL, spread_nans);
}

static void wrap_around(struct rank_self *self)
{
    int32_t small[3] = { INT32_MAX, INT32_MIN, self->rank };
    int64_t big[2] = { INT64_MAX - self->rank, INT64_C(1) << 60 };
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, small, small, 3, GM_I32, GM_SUM));
    rank_ok(self, gm_all_reduce(self->comm, big, big, 2, GM_I64, GM_SUM));
    rank_check(self, small[0] == (int32_t)(3u * (uint32_t)INT32_MAX));
    rank_check(self, small[1] == INT32_MIN && small[2] == 3);
    rank_check(self, big[0] == (int64_t)(3u * (uint64_t)INT64_MAX - 3u));
    rank_check(self, big[1] == INT64_C(3) << 60);
    rank_destroy(self);
}

static void integers_wrap(void **state) { run_with(state, 3, NULL, NULL, wrap_around); }

/* ---- the barrier ---------------------------------------------------------------------------------- */

static void cross_barriers(struct rank_self *self)
{
    enum { ROUNDS = 24, LATE_NS = 3000000 };
    rank_create(self);
    for (int round = 0; round < ROUNDS; round++) {
        if (round % self->world_size == self->rank) {
            struct timespec late = { .tv_nsec = LATE_NS };
            nanosleep(&late, NULL);
        }
        rank_mark(self, round);
        rank_ok(self, gm_barrier(self->comm));
        rank_check(self, atomic_load(&self->shared->marks[round]) == self->world_size);
    }
    rank_destroy(self);
}

static void nobody_leaves_a_barrier_before_all_have_entered_it(void **state)
{
    for (int n = 1; n <= 5; n++) run_with(state, n, NULL, NULL, cross_barriers);
    run_with(state, 8, NULL, NULL, cross_barriers);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_collective_is_right_on_1_ranks),
        TEST(every_collective_is_right_on_2_ranks),
        TEST(every_collective_is_right_on_3_ranks),
        TEST(every_collective_is_right_on_4_ranks),
        TEST(every_collective_is_right_on_5_ranks),
        TEST(every_collective_is_right_on_8_ranks),
        TEST(the_naive_algorithm_gives_the_same),
        TEST(ipv6_works),
        TEST(rank_0_can_serve_the_store_itself),
        TEST(float_sums_have_the_same_bits_everywhere_in_ring_order),
        TEST(float_sums_have_the_same_bits_on_all_ranks_whatever_the_algorithm),
        TEST(a_nan_of_any_rank_reaches_all_as_the_canonical_one),
        TEST(integers_wrap),
        TEST(nobody_leaves_a_barrier_before_all_have_entered_it),
    };
    return cmocka_run_group_tests_name("collectives between processes", tests, NULL, NULL);
}
