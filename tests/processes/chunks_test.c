/* The collectives with a root, with counts, and all-to-all, between real processes over loopback:
 * every algorithm, in place and not, against what every rank knows that the others contribute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/support/ranks.h"

enum { MAX_N = 8 };

/* ---- values and buffers ---------------------------------------------------------------------- */

static int64_t value(int rank, size_t i)
{
    return (int64_t)(gmi_rng_u64(gmi_rng_key(11, (uint64_t)rank), i) >> 16);
}

static int64_t *filled(int rank, size_t first, size_t n)
{
    int64_t *b = malloc((n + 1) * sizeof *b);
    for (size_t i = 0; i < n; i++) b[i] = value(rank, first + i);
    b[n] = -7; /* a guard */
    return b;
}

static int64_t *empty(size_t n)
{
    int64_t *b = malloc((n + 1) * sizeof *b);
    for (size_t i = 0; i <= n; i++) b[i] = -7;
    return b;
}

static int64_t sum(int n_ranks, size_t i)
{
    uint64_t s = 0;
    for (int k = 0; k < n_ranks; k++) s += (uint64_t)value(k, i);
    return (int64_t)s;
}

/* One way to call: with counts or without, in place or not. */
struct way {
    size_t count;                   /* of the whole buffer */
    size_t counts[MAX_N], firsts[MAX_N + 1];
    bool   has_counts, is_in_place;
    int    root;
};

static void lay_out(struct way *w, int n, size_t count, bool has_counts, uint64_t seed)
{
    w->has_counts = has_counts;
    w->count = count;
    w->firsts[0] = 0;
    for (int k = 0; k < n; k++) {
        size_t first;
        gm_chunk(count, n, k, &first, &w->counts[k]);
        if (has_counts)
            w->counts[k] = gmi_rng_below(seed, (uint64_t)k, 3) == 0
                               ? 0
                               : gmi_rng_below(seed, 50 + (uint64_t)k, count + 2);
        w->firsts[k + 1] = w->firsts[k] + w->counts[k];
    }
    if (has_counts) w->count = w->firsts[n];
}

/* Elements first .. first + n - 1 of the result, at b[0], or the guard behind them. */
static void check(struct rank_self *self, const char *what, const struct way *w, const int64_t *b,
                  size_t first, size_t n,
                  int64_t (*expected)(const struct rank_self *self, const struct way *w, size_t i))
{
    for (size_t i = 0; i < n; i++) {
        if (b[i] == expected(self, w, first + i)) continue;
        rank_fail(self, __FILE__, __LINE__, "%s of %zu%s%s, root %d: element %zu is wrong", what,
                  w->count, w->has_counts ? ", counts" : "", w->is_in_place ? ", in place" : "",
                  w->root, first + i);
    }
}

static int64_t is_sum(const struct rank_self *self, const struct way *w, size_t i)
{
    (void)w;
    return sum(self->world_size, i);
}

static int64_t is_owners(const struct rank_self *self, const struct way *w, size_t i)
{
    int owner = 0;
    while (owner < self->world_size - 1 && i >= w->firsts[owner + 1]) owner++;
    return value(owner, i);
}

static int64_t is_roots(const struct rank_self *self, const struct way *w, size_t i)
{
    (void)self;
    return value(w->root, i);
}

/* ---- one call each --------------------------------------------------------------------------- */

static void try_reduce(struct rank_self *self, const struct way *w)
{
    bool     is_root = self->rank == w->root;
    int64_t *send = filled(self->rank, 0, w->count), *recv = empty(w->count);
    int64_t *to = is_root && w->is_in_place ? send : recv;
    rank_ok(self,
            gm_reduce(self->comm, send, is_root ? to : NULL, w->count, GM_I64, GM_SUM, w->root));
    if (is_root) check(self, "reduce", w, to, 0, w->count, is_sum);
    rank_check(self, to[w->count] == -7);
    free(send);
    free(recv);
}

static void try_reduce_scatter(struct rank_self *self, const struct way *w)
{
    size_t   own = w->counts[self->rank], first = w->firsts[self->rank];
    int64_t *send = filled(self->rank, 0, w->count), *recv = empty(own);
    int64_t *to = w->is_in_place ? send : recv;
    rank_ok(self, w->has_counts
                      ? gm_reduce_scatterv(self->comm, send, to, w->counts, GM_I64, GM_SUM)
                      : gm_reduce_scatter(self->comm, send, to, w->count, GM_I64, GM_SUM));
    check(self, "reduce_scatter", w, w->is_in_place ? send + first : recv, first, own, is_sum);
    rank_check(self, recv[own] == -7 && send[w->count] == -7);
    free(send);
    free(recv);
}

static void try_all_gather(struct rank_self *self, const struct way *w)
{
    size_t   own = w->counts[self->rank], first = w->firsts[self->rank];
    int64_t *send = filled(self->rank, first, own), *recv = empty(w->count);
    memcpy(recv + first, send, own * sizeof *send);
    const int64_t *from = w->is_in_place ? recv : send;
    rank_ok(self, w->has_counts ? gm_all_gatherv(self->comm, from, recv, w->counts, GM_I64)
                                : gm_all_gather(self->comm, from, recv, w->count, GM_I64));
    check(self, "all_gather", w, recv, 0, w->count, is_owners);
    rank_check(self, recv[w->count] == -7);
    free(send);
    free(recv);
}

static void try_gather(struct rank_self *self, const struct way *w)
{
    bool     is_root = self->rank == w->root;
    size_t   own = w->counts[self->rank], first = w->firsts[self->rank];
    int64_t *send = filled(self->rank, first, own), *recv = empty(w->count);
    if (w->is_in_place) memcpy(recv + first, send, own * sizeof *send);
    const int64_t *from = is_root && w->is_in_place ? recv : send;
    int64_t       *to = is_root ? recv : NULL;
    rank_ok(self, w->has_counts ? gm_gatherv(self->comm, from, to, w->counts, GM_I64, w->root)
                                : gm_gather(self->comm, from, to, w->count, GM_I64, w->root));
    if (is_root) check(self, "gather", w, recv, 0, w->count, is_owners);
    rank_check(self, recv[w->count] == -7 && send[own] == -7);
    free(send);
    free(recv);
}

static void try_scatter(struct rank_self *self, const struct way *w)
{
    bool     is_root = self->rank == w->root;
    size_t   own = w->counts[self->rank], first = w->firsts[self->rank];
    int64_t *send = filled(self->rank, 0, w->count), *recv = empty(own);
    bool     is_in_place = is_root && w->is_in_place;
    int64_t *to = is_in_place ? send : recv;
    rank_ok(self,
            w->has_counts
                ? gm_scatterv(self->comm, is_root ? send : NULL, to, w->counts, GM_I64, w->root)
                : gm_scatter(self->comm, is_root ? send : NULL, to, w->count, GM_I64, w->root));
    check(self, "scatter", w, is_in_place ? send + first : recv, first, own, is_roots);
    rank_check(self, recv[own] == -7 && send[w->count] == -7);
    free(send);
    free(recv);
}

/* How much rank a sends to rank b. */
static size_t pair_count(const struct way *w, int a, int b)
{
    return w->has_counts
               ? (size_t)gmi_rng_below(w->count + 1, (uint64_t)(a * MAX_N + b), w->count + 1)
               : w->count;
}

static void try_all_to_all(struct rank_self *self, const struct way *w)
{
    size_t give[MAX_N], get[MAX_N], n_give = 0, n_get = 0;
    for (int k = 0; k < self->world_size; k++) {
        n_give += give[k] = pair_count(w, self->rank, k);
        n_get += get[k] = pair_count(w, k, self->rank);
    }
    size_t   most = n_give > n_get ? n_give : n_get;
    int64_t *send = filled(self->rank, 0, n_give), *recv = empty(most);
    if (w->is_in_place) memcpy(recv, send, n_give * sizeof *send);
    const int64_t *from = w->is_in_place ? recv : send;
    rank_ok(self, w->has_counts ? gm_all_to_allv(self->comm, from, give, recv, get, GM_I64)
                                : gm_all_to_all(self->comm, from, recv, w->count, GM_I64));
    const int64_t *at = recv;
    for (int k = 0; k < self->world_size; k++) {
        size_t first = 0;
        for (int j = 0; j < self->rank; j++) first += pair_count(w, k, j);
        for (size_t i = 0; i < get[k]; i++) rank_check(self, *at++ == value(k, first + i));
    }
    rank_check(self, recv[most] == -7);
    free(send);
    free(recv);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void try_ways(struct rank_self *self, struct way *w)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        w->is_in_place = in_place == 1;
        try_reduce_scatter(self, w);
        try_all_gather(self, w);
        for (w->root = 0; w->root < self->world_size; w->root++) {
            try_reduce(self, w);
            try_gather(self, w);
            try_scatter(self, w);
        }
    }
}

static void try_everything(struct rank_self *self)
{
    static const size_t counts[] = { 0, 1, 2, 7, 100, 30011 };
    struct way          w = { 0 };
    rank_create(self);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int has_counts = 0; has_counts < 2; has_counts++) {
            lay_out(&w, self->world_size, counts[i], has_counts == 1, 3 + i);
            try_ways(self, &w);
            for (int in_place = 0; in_place < 2; in_place++) {
                w.count = counts[i] / 4;
                w.is_in_place = in_place == 1;
                try_all_to_all(self, &w);
            }
        }
    }
    rank_destroy(self);
}

static void try_with(void **state, const char *algorithm)
{
    static const int sizes[] = { 1, 2, 3, 5, 8 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ranks_job job = { .n_ranks = sizes[i],
                                 .body = try_everything,
                                 .algorithm = algorithm };
        ranks_run(state, &job);
    }
}

static void everything_is_right_by_itself(void **state) { try_with(state, NULL); }
static void everything_is_right_with_ring_and_pairs(void **state) { try_with(state, "ring"); }
static void everything_is_right_with_direct(void **state) { try_with(state, "direct"); }
static void everything_is_right_with_trees(void **state) { try_with(state, "tree"); }
static void everything_is_right_with_bruck(void **state) { try_with(state, "bruck"); }

static void halve_and_double(struct rank_self *self)
{
    static const size_t counts[] = { 0, 1, 2, 7, 100, 30011 };
    rank_create(self);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct way w = { .count = counts[i] };
        int64_t   *send = filled(self->rank, 0, w.count), *recv = empty(w.count);
        rank_ok(self, gm_all_reduce(self->comm, send, recv, w.count, GM_I64, GM_SUM));
        check(self, "all_reduce", &w, recv, 0, w.count, is_sum);
        rank_ok(self, gm_all_reduce(self->comm, send, send, w.count, GM_I64, GM_SUM));
        check(self, "all_reduce in place", &w, send, 0, w.count, is_sum);
        rank_check(self, recv[w.count] == -7 && send[w.count] == -7);
        free(send);
        free(recv);
    }
    rank_destroy(self);
}

static void recursive_halving_is_right(void **state)
{
    for (int n = 1; n <= 8; n++) {
        struct ranks_job job = { .n_ranks = n, .body = halve_and_double, .algorithm = "halving" };
        ranks_run(state, &job);
    }
}

/* ---- several at once ------------------------------------------------------------------------- */

static void start_many(struct rank_self *self)
{
    enum { COUNT = 1000 };
    struct way w = { 0 };
    rank_create(self);
    lay_out(&w, self->world_size, COUNT, false, 1);
    int64_t *send = filled(self->rank, 0, COUNT), *reduced = empty(COUNT), *gathered = empty(COUNT);
    int64_t *scattered = empty(COUNT), *swapped = empty(COUNT * MAX_N),
            *all = filled(self->rank, 0, COUNT * MAX_N);
    gm_work *works[4];
    int      last = self->world_size - 1;
    rank_ok(self, gm_reduce_start(self->comm, send, reduced, COUNT, GM_I64, GM_SUM, 0, &works[0]));
    rank_ok(self, gm_gatherv_start(self->comm, send + w.firsts[self->rank], gathered, w.counts,
                                   GM_I64, last, &works[1]));
    rank_ok(self, gm_scatter_start(self->comm, send, scattered, COUNT, GM_I64, 0, &works[2]));
    rank_ok(self, gm_all_to_all_start(self->comm, all, swapped, COUNT, GM_I64, &works[3]));
    for (int i = 3; i >= 0; i--) {
        rank_ok(self, gm_work_wait(works[i], -1));
        gm_work_release(works[i]);
    }
    if (self->rank == 0) check(self, "reduce", &w, reduced, 0, COUNT, is_sum);
    if (self->rank == last) check(self, "gather", &w, gathered, 0, COUNT, is_owners);
    check(self, "scatter", &w, scattered, w.firsts[self->rank], w.counts[self->rank], is_roots);
    for (int k = 0; k < self->world_size; k++) {
        for (size_t i = 0; i < COUNT; i++) {
            rank_check(self,
                       swapped[(size_t)k * COUNT + i] == value(k, (size_t)self->rank * COUNT + i));
        }
    }
    rank_destroy(self);
    free(send), free(reduced), free(gathered), free(scattered), free(swapped), free(all);
}

static void started_ones_run_side_by_side(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = start_many };
    ranks_run(state, &job);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void make_mistakes(struct rank_self *self)
{
    int64_t b[64] = { 0 }, to[64];
    size_t  counts[2] = { 3, 4 }, much[2] = { SIZE_MAX, 2 }, back[2] = { 3, 5 };
    rank_create(self);
    gm_comm *c = self->comm;
    rank_expect(self, GM_ERR_ARG, gm_reduce(c, b, to, 4, GM_I64, GM_SUM, 2));
    rank_expect(self, GM_ERR_ARG, gm_gather(c, b, to, 4, GM_I64, -1));
    rank_expect(self, GM_ERR_ARG, gm_scatter(c, b, to, 4, (gm_dtype)99, 0));
    rank_expect(self, GM_ERR_ARG, gm_gatherv(c, b, to, NULL, GM_I64, 0));
    rank_check(self, strstr(gm_comm_error(c)->text, "counts") != NULL);
    rank_expect(self, GM_ERR_ARG, gm_all_gatherv(c, b, to, much, GM_I64));
    rank_check(self, strstr(gm_comm_error(c)->text, "add up") != NULL);
    rank_expect(self, GM_ERR_ARG, gm_all_to_all(c, b, to, SIZE_MAX / 2 + 1, GM_I64));
    rank_expect(self, GM_ERR_ARG, gm_all_to_all(c, b, b + 1, 4, GM_I64)); /* they overlap */
    rank_expect(self, GM_ERR_ARG, gm_all_to_allv(c, b, counts, to, NULL, GM_I64));
    if (self->rank == 1)
        rank_expect(self, GM_ERR_ARG,
                    gm_all_to_allv(c, b, counts, to, back, GM_I64)); /* 4 and 5 of itself */
    if (self->rank == 0) rank_expect(self, GM_ERR_ARG, gm_reduce(c, b, NULL, 4, GM_I64, GM_SUM, 0));
    if (self->rank == 1) rank_expect(self, GM_ERR_ARG, gm_scatter(c, b, NULL, 4, GM_I64, 0));
    rank_expect(self, GM_ERR_ARG, gm_reduce(NULL, b, to, 4, GM_I64, GM_SUM, 0));
    rank_ok(self, gm_barrier(c)); /* nothing was started */
    rank_destroy(self);
}

static void mistakes_change_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = make_mistakes };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(everything_is_right_by_itself),
        TEST(everything_is_right_with_ring_and_pairs),
        TEST(everything_is_right_with_direct),
        TEST(everything_is_right_with_trees),
        TEST(everything_is_right_with_bruck),
        TEST(recursive_halving_is_right),
        TEST(started_ones_run_side_by_side),
        TEST(mistakes_change_nothing),
    };
    return cmocka_run_group_tests_name("chunks, counts and roots", tests, NULL, NULL);
}
