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
#include "tests/support/oracle.h"
#include "tests/support/ranks.h"

enum { SMALL = 1003, MIDDLE = 20011, LARGE = 100003, GUARD_BYTES = 64, GUARD = 0x5a };

/* ---- what each rank contributes, and what must come out ----------------------------------------- */

/* Whole numbers whose sums are exact in an f32; for products, factors whose products are. */
static uint64_t contribution(int rank, size_t i, gm_dtype dtype, gm_redop redop)
{
    static const int factors[] = { 1, -1, 2, 3 };
    uint64_t         key = gmi_rng_key(7, (uint64_t)rank);
    int              whole = redop == GM_PROD ? factors[gmi_rng_below(key, i, 4)] : (int)gmi_rng_below(key, i, 1001) - 500;
    uint8_t          elem[8];
    oracle_store(elem, dtype, oracle_is_float(dtype) ? oracle_bits(whole, dtype) : (uint64_t)(int64_t)whole);
    return oracle_load(elem, dtype);
}

/* One type of each kind takes many pieces. */
static size_t most_elems(gm_dtype dtype)
{
    switch (dtype) {
    case GM_F32: case GM_I64: return MIDDLE;
    default: return SMALL;
    }
}

/* What all reductions of all types give, as bits. Made by the test for its ranks, which share it by fork. */
struct expectations {
    int       n_ranks;
    uint64_t *bits[GM_DTYPE_END][GM_REDOP_END];
};

static void expect_one(struct expectations *e, gm_dtype dtype, gm_redop redop)
{
    size_t count = most_elems(dtype);
    e->bits[dtype][redop] = malloc(count * sizeof(uint64_t));
    for (size_t i = 0; i < count; i++) {
        uint64_t values[RANKS_MAX];
        for (int k = 0; k < e->n_ranks; k++) values[k] = contribution(k, i, dtype, redop);
        e->bits[dtype][redop][i] = oracle_reduce(values, e->n_ranks, dtype, redop);
    }
}

static struct expectations expect(int n_ranks)
{
    struct expectations e = { .n_ranks = n_ranks };
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int r = 0; r < GM_REDOP_END; r++) {
            if (oracle_is_offered((gm_dtype)d, (gm_redop)r)) expect_one(&e, (gm_dtype)d, (gm_redop)r);
        }
    }
    return e;
}

static void forget(struct expectations *e)
{
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int r = 0; r < GM_REDOP_END; r++) free(e->bits[d][r]);
    }
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

static uint64_t get(const struct buffer *b, size_t i) { return oracle_load(b->data + i * gm_dtype_bytes(b->dtype), b->dtype); }

static struct buffer filled(const struct rank_self *self, gm_dtype dtype, gm_redop redop, size_t first, size_t elems)
{
    struct buffer b = make_buffer(dtype, elems);
    for (size_t i = 0; i < elems; i++) {
        oracle_store(b.data + i * gm_dtype_bytes(dtype), dtype, contribution(self->rank, first + i, dtype, redop));
    }
    return b;
}

/* ---- one call each ------------------------------------------------------------------------------ */

struct call {
    const uint64_t *expected;
    gm_dtype dtype;
    gm_redop redop;
    size_t   count;
    bool     is_in_place;
};

static void check_elem(struct rank_self *self, const struct call *c, const char *what, const struct buffer *b,
                       size_t at, uint64_t expected, size_t index)
{
    if (get(b, at) == expected) return;
    rank_fail(self, __FILE__, __LINE__, "%s %s %s of %zu%s: element %zu is %#llx, not %#llx", what, gm_dtype_name(c->dtype),
              gm_redop_name(c->redop), c->count, c->is_in_place ? " in place" : "", index, (unsigned long long)get(b, at),
              (unsigned long long)expected);
}

static void check_guards(struct rank_self *self, const struct buffer *b)
{
    rank_check(self, is_guarded(b));
}

static void check_untouched(struct rank_self *self, const struct buffer *send, gm_redop redop)
{
    for (size_t i = 0; i < send->elems; i++) rank_check(self, get(send, i) == contribution(self->rank, i, send->dtype, redop));
}

static void try_all_reduce(struct rank_self *self, const struct call *c)
{
    struct buffer send = filled(self, c->dtype, c->redop, 0, c->count), recv = make_buffer(c->dtype, c->count);
    struct buffer *to = c->is_in_place ? &send : &recv;
    rank_ok(self, gm_all_reduce(self->comm, send.data, to->data, c->count, c->dtype, c->redop));
    for (size_t i = 0; i < c->count; i++) {
        check_elem(self, c, "all_reduce", to, i, c->expected[i], i);
    }
    if (!c->is_in_place) check_untouched(self, &send, c->redop);
    check_guards(self, &send);
    check_guards(self, &recv);
    free(send.memory);
    free(recv.memory);
}

static void try_reduce_scatter(struct rank_self *self, const struct call *c)
{
    size_t first, elems;
    gm_chunk(c->count, self->world_size, self->rank, &first, &elems);
    struct buffer send = filled(self, c->dtype, c->redop, 0, c->count), recv = make_buffer(c->dtype, elems);
    struct buffer *to = c->is_in_place ? &send : &recv;
    rank_ok(self, gm_reduce_scatter(self->comm, send.data, to->data, c->count, c->dtype, c->redop));
    for (size_t i = 0; i < elems; i++) {
        check_elem(self, c, "reduce_scatter", to, c->is_in_place ? first + i : i,
                   c->expected[first + i], first + i);
    }
    if (!c->is_in_place) check_untouched(self, &send, c->redop);
    check_guards(self, &send);
    check_guards(self, &recv);
    free(send.memory);
    free(recv.memory);
}

static void try_all_gather(struct rank_self *self, const struct call *c)
{
    size_t first, elems;
    gm_chunk(c->count, self->world_size, self->rank, &first, &elems);
    struct buffer own = filled(self, c->dtype, c->redop, first, elems), recv = make_buffer(c->dtype, c->count);
    if (c->is_in_place) memcpy(recv.data + first * gm_dtype_bytes(c->dtype), own.data, own.bytes);
    rank_ok(self, gm_all_gather(self->comm, c->is_in_place ? recv.data : own.data, recv.data, c->count, c->dtype));
    for (int k = 0; k < self->world_size; k++) {
        gm_chunk(c->count, self->world_size, k, &first, &elems);
        for (size_t i = first; i < first + elems; i++) {
            check_elem(self, c, "all_gather", &recv, i, contribution(k, i, c->dtype, c->redop), i);
        }
    }
    check_guards(self, &own);
    check_guards(self, &recv);
    free(own.memory);
    free(recv.memory);
}

static void try_broadcast(struct rank_self *self, const struct call *c, int root)
{
    struct buffer b = filled(self, c->dtype, c->redop, 0, c->count);
    rank_ok(self, gm_broadcast(self->comm, b.data, c->count, c->dtype, root));
    for (size_t i = 0; i < c->count; i++) check_elem(self, c, "broadcast", &b, i, contribution(root, i, c->dtype, c->redop), i);
    check_guards(self, &b);
    free(b.memory);
}

/* ---- all of them -------------------------------------------------------------------------------- */

static void try_reductions(struct rank_self *self, struct call c, const size_t *counts, size_t n_counts)
{
    const struct expectations *e = self->user;
    for (int op = 0; op < GM_REDOP_END; op++) {
        c.redop = (gm_redop)op;
        c.expected = e->bits[c.dtype][op];
        for (size_t i = 0; i < 2 * n_counts && c.expected != NULL; i++) {
            c.count = counts[i / 2], c.is_in_place = i % 2;
            try_all_reduce(self, &c);
            try_reduce_scatter(self, &c);
        }
    }
}

static void try_moves(struct rank_self *self, struct call c, const size_t *counts, size_t n_counts)
{
    for (size_t i = 0; i < 2 * n_counts; i++) {
        c.count = counts[i / 2], c.is_in_place = i % 2;
        try_all_gather(self, &c);
        for (int root = 0; root < self->world_size && c.is_in_place; root++) try_broadcast(self, &c, root);
    }
}

static void try_everything(struct rank_self *self)
{
    enum { N_COUNTS = 6 };
    size_t n = (size_t)self->world_size, counts[N_COUNTS] = { 0, 1, n - 1, n, n + 1 };
    rank_create(self);
    for (int dtype = 0; dtype < GM_DTYPE_END; dtype++) {
        struct call c = { .dtype = (gm_dtype)dtype };
        counts[N_COUNTS - 1] = most_elems((gm_dtype)dtype);
        try_reductions(self, c, counts, N_COUNTS);
        try_moves(self, c, counts, N_COUNTS);
    }
    rank_ok(self, gm_barrier(self->comm));
    rank_destroy(self);
}

static void run_with(void **state, int n_ranks, const char *algorithm, const char *host, void (*body)(struct rank_self *))
{
    struct ranks_job job = { .n_ranks = n_ranks, .body = body, .algorithm = algorithm, .host = host };
    ranks_run(state, &job);
}

static void run_everything(void **state, struct ranks_job job)
{
    struct expectations e = expect(job.n_ranks);
    job.body = try_everything;
    job.user = &e;
    ranks_run(state, &job);
    forget(&e);
}

#define EVERYTHING_WITH(n)                                                                              \
    static void every_collective_is_right_on_##n##_ranks(void **state)                                  \
    {                                                                                                   \
        run_everything(state, (struct ranks_job){ .n_ranks = n });                                      \
    }
EVERYTHING_WITH(1)
EVERYTHING_WITH(2)
EVERYTHING_WITH(3)
EVERYTHING_WITH(4)
EVERYTHING_WITH(5)
EVERYTHING_WITH(8)

static void the_naive_algorithm_gives_the_same(void **state)
{
    const int sizes[] = { 2, 5 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_everything(state, (struct ranks_job){ .n_ranks = sizes[i], .algorithm = "naive" });
    }
}

static void ipv6_works(void **state)
{
    struct gmi_address_list list;
    int      fd;
    if (gmi_address_resolve(&list, "::1", 0, NULL) != GM_OK || gmi_socket_listen(&fd, &list.addresses[0], NULL) != GM_OK) {
        skip(); /* a host without IPv6 */
    }
    gmi_socket_close(&fd);
    run_everything(state, (struct ranks_job){ .n_ranks = 3, .host = "::1" });
}

static void rank_0_can_serve_the_store_itself(void **state)
{
    run_everything(state, (struct ranks_job){ .n_ranks = 4, .is_hand_started = true });
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
static void spread_nans_of(struct rank_self *self, gm_dtype dtype, gm_redop redop)
{
    enum { COUNT = 64 };
    static const uint64_t nans[GM_DTYPE_END] = { [GM_F32] = 0xff800001, [GM_F64] = UINT64_C(0xfff0000000000001),
                                                 [GM_F16] = 0xfc01,     [GM_BF16] = 0xff81 };
    uint64_t values[COUNT] = { 0 }; /* room for the widest */
    size_t   bytes = gm_dtype_bytes(dtype);
    for (size_t i = 0; i < COUNT; i++) {
        bool is_ours = i % (size_t)self->world_size == (size_t)self->rank;
        uint64_t bits = is_ours ? nans[dtype] + (uint64_t)self->rank : oracle_bits(1, dtype);
        oracle_store((uint8_t *)values + i * bytes, dtype, bits);
    }
    rank_ok(self, gm_all_reduce(self->comm, values, values, COUNT, dtype, redop));
    for (size_t i = 0; i < COUNT; i++) {
        rank_check(self, oracle_load((uint8_t *)values + i * bytes, dtype) == oracle_bits((double)NAN, dtype));
    }
}

static void spread_nans(struct rank_self *self)
{
    rank_create(self);
    for (int d = 0; d < GM_DTYPE_END; d++) {
        for (int op = 0; op < GM_REDOP_END; op++) {
            bool is_offered = oracle_is_offered((gm_dtype)d, (gm_redop)op);
            if (oracle_is_float((gm_dtype)d) && is_offered) spread_nans_of(self, (gm_dtype)d, (gm_redop)op);
        }
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

/* ---- what is not offered, and what the caller adds ------------------------------------------------ */

/* The same on every rank, and the communicator goes on. */
static void ask_for_bits_of_floats(struct rank_self *self)
{
    float values[4] = { 1, 2, 3, 4 };
    rank_create(self);
    rank_expect(self, GM_ERR_UNSUPPORTED, gm_all_reduce(self->comm, values, values, 4, GM_F32, GM_BXOR));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "bxor of f32") != NULL);
    rank_expect(self, GM_ERR_UNSUPPORTED, gm_reduce_scatter(self->comm, values, values, 4, GM_BF16, GM_BAND));
    rank_expect(self, GM_ERR_ARG, gm_all_reduce(self->comm, values, values, 4, GM_F32, GM_REDOP_USER));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "user 0") != NULL);
    rank_expect(self, GM_ERR_ARG, gm_all_reduce(self->comm, values, values, 4, GM_F32, GM_REDOP_END));
    rank_expect(self, GM_ERR_ARG, gm_all_reduce(self->comm, values, values, 4, GM_DTYPE_END, GM_SUM));
    rank_ok(self, gm_all_reduce(self->comm, values, values, 4, GM_F32, GM_SUM));
    for (int i = 0; i < 4; i++) rank_check(self, values[i] == (float)((i + 1) * self->world_size));
    rank_destroy(self);
}

static void what_is_not_offered_is_refused_and_the_communicator_goes_on(void **state)
{
    run_with(state, 1, NULL, NULL, ask_for_bits_of_floats);
    run_with(state, 3, NULL, NULL, ask_for_bits_of_floats);
}

/* Addition modulo a prime: neither of the built-in ones, and any order gives the same. */
static void add_modulo(const void *in, void *inout, size_t count, gm_dtype dtype, void *user)
{
    const uint32_t *a = in, prime = *(const uint32_t *)user;
    uint32_t       *b = inout;
    for (size_t i = 0; i < count && dtype == GM_U32; i++) b[i] = (a[i] + b[i]) % prime;
}

/* Rounds, so that order and grouping show in the result. */
static void add_rounding(const void *in, void *inout, size_t count, gm_dtype dtype, void *user)
{
    const float *a = in;
    float       *b = inout;
    (void)user;
    for (size_t i = 0; i < count && dtype == GM_F32; i++) b[i] = (a[i] + b[i]) * 1.0000001f;
}

static void try_modulo(struct rank_self *self, gm_redop redop, uint32_t prime, size_t count)
{
    uint32_t *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (uint32_t)(i * 31 + (size_t)self->rank * 17) % prime;
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_U32, redop));
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int k = 0; k < self->world_size; k++) sum = (sum + (uint32_t)(i * 31 + (size_t)k * 17) % prime) % prime;
        rank_check(self, values[i] == sum);
    }
    free(values);
}

/* All ranks have rank 0's bits, though this function rounds and so depends on the order. */
static void try_rounding(struct rank_self *self, gm_redop redop, size_t count)
{
    float *values = calloc(2 * count, sizeof *values), *of_rank_0 = values + count;
    for (size_t i = 0; i < count; i++) values[i] = (float)gmi_rng_unit(gmi_rng_key(3, (uint64_t)self->rank), i);
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F32, redop));
    memcpy(of_rank_0, values, count * sizeof *values);
    rank_ok(self, gm_broadcast(self->comm, of_rank_0, count, GM_F32, 0));
    rank_check(self, memcmp(of_rank_0, values, count * sizeof *values) == 0);
    free(values);
}

static void reduce_by_functions(struct rank_self *self)
{
    static uint32_t small = 97, large = 1000003;
    gm_redop        by_small, by_large, by_rounding, again;
    rank_create(self);
    rank_ok(self, gm_redop_create(self->comm, add_modulo, &small, &by_small));
    rank_ok(self, gm_redop_create(self->comm, add_modulo, &large, &by_large));
    rank_ok(self, gm_redop_create(self->comm, add_rounding, NULL, &by_rounding));
    rank_check(self, by_small == GM_REDOP_USER && by_large != by_small);
    const size_t counts[] = { 0, 1, 7, 1500, 40001 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        try_modulo(self, by_small, small, counts[i]);
        try_modulo(self, by_large, large, counts[i]);
        if (counts[i] > 0) try_rounding(self, by_rounding, counts[i]);
    }
    rank_ok(self, gm_redop_destroy(self->comm, by_small));
    rank_expect(self, GM_ERR_ARG, gm_redop_destroy(self->comm, by_small));
    rank_expect(self, GM_ERR_ARG, gm_redop_destroy(self->comm, GM_SUM));
    rank_ok(self, gm_redop_create(self->comm, add_modulo, &large, &again));
    rank_check(self, again == by_small); /* the lowest free number */
    for (int i = 3; i < GM_REDOP_USER_END - GM_REDOP_USER; i++) {
        gm_redop more;
        rank_ok(self, gm_redop_create(self->comm, add_modulo, &small, &more));
        rank_check(self, (int)more == GM_REDOP_USER + i);
    }
    rank_expect(self, GM_ERR_UNSUPPORTED, gm_redop_create(self->comm, add_modulo, &small, &again));
    rank_expect(self, GM_ERR_ARG, gm_redop_create(self->comm, NULL, NULL, &again));
    try_modulo(self, by_large, large, 100);
    rank_destroy(self);
}

static void functions_of_the_caller_give_all_ranks_the_same_bits(void **state)
{
    static const char *const algorithms[] = { NULL, "ring", "doubling", "direct", "naive" };
    run_with(state, 1, NULL, NULL, reduce_by_functions);
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        run_with(state, 2, algorithms[i], NULL, reduce_by_functions);
        run_with(state, 5, algorithms[i], NULL, reduce_by_functions);
    }
}

/* Functions cannot be compared, numbers can. */
static void call_different_functions(struct rank_self *self)
{
    static uint32_t prime = 7;
    gm_redop        first, second;
    uint32_t        values[2] = { 1, 2 };
    rank_create(self);
    rank_ok(self, gm_redop_create(self->comm, add_modulo, &prime, &first));
    rank_ok(self, gm_redop_create(self->comm, add_modulo, &prime, &second));
    rank_meet(self, 0, self->world_size); /* a failure now would otherwise be one of the start-up of the last */
    rank_expect(self, GM_ERR_MISMATCH,
                gm_all_reduce(self->comm, values, values, 2, GM_U32, self->rank == 1 ? second : first));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "user 0") != NULL);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "user 1") != NULL);
    rank_destroy(self);
}

static void another_number_of_a_function_is_a_mismatch(void **state)
{
    run_with(state, 3, NULL, NULL, call_different_functions);
}

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
        TEST(what_is_not_offered_is_refused_and_the_communicator_goes_on),
        TEST(functions_of_the_caller_give_all_ranks_the_same_bits),
        TEST(another_number_of_a_function_is_a_mismatch),
        TEST(nobody_leaves_a_barrier_before_all_have_entered_it),
    };
    return cmocka_run_group_tests_name("collectives between processes", tests, NULL, NULL);
}
