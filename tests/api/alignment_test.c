/* Where in memory a caller's arrays may begin: at any multiple of their elements, wherever that is in a vector or a cache
 * line, and both arrays differently. There every collective gives what it must; anywhere else it is refused, in words.
 * Under the undefined-behaviour sanitizer no access is wider than what it has been promised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/support/oracle.h"
#include "tests/support/ranks.h"

enum { N = 3, COUNT = 37, OFFSETS = 16, ROOM_BYTES = (N * COUNT + OFFSETS) * 8, GUARD = 0x5a };

/* Two arrays, each at an offset from the start of a cache line. */
struct place {
    _Alignas(64) uint8_t send_room[ROOM_BYTES];
    _Alignas(64) uint8_t recv_room[ROOM_BYTES];
    uint8_t *send, *recv;
    size_t   elem_bytes;
    gm_dtype dtype;
};

/* Whole numbers of which N multiply and add up to what every type can hold. */
static uint64_t contribution(int rank, size_t i, gm_dtype dtype)
{
    uint8_t elem[8];
    int     whole = (int)gmi_rng_below(gmi_rng_key(11, (uint64_t)rank), i, 5);
    oracle_store(elem, dtype, oracle_is_float(dtype) ? oracle_bits(whole, dtype) : (uint64_t)whole);
    return oracle_load(elem, dtype);
}

static void take_place(struct place *p, gm_dtype dtype, size_t send_offset, size_t recv_offset)
{
    p->dtype = dtype;
    p->elem_bytes = gm_dtype_bytes(dtype);
    p->send = p->send_room + send_offset;
    p->recv = p->recv_room + recv_offset;
    memset(p->recv_room, GUARD, sizeof p->recv_room);
}

static bool is_aligned(const struct place *p)
{
    return (uintptr_t)p->send % p->elem_bytes == 0 && (uintptr_t)p->recv % p->elem_bytes == 0;
}

static uint8_t *elem(const struct place *p, uint8_t *array, size_t i) { return array + i * p->elem_bytes; }

static void fill(const struct place *p, uint8_t *array, int rank, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) oracle_store(elem(p, array, i), p->dtype, contribution(rank, i, p->dtype));
}

/* Did these elements of this rank come? */
static bool holds(const struct place *p, size_t at_elem, int rank, size_t first_elem, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        if (oracle_load(elem(p, p->recv, at_elem + i), p->dtype) != contribution(rank, first_elem + i, p->dtype)) return false;
    }
    return true;
}

/* Was nothing written before and behind so many elements? */
static bool is_guarded(const struct place *p, size_t n_elems)
{
    const uint8_t *end = p->recv + n_elems * p->elem_bytes;
    for (const uint8_t *at = p->recv_room; at < p->recv; at++) {
        if (*at != GUARD) return false;
    }
    for (const uint8_t *at = end; at < p->recv_room + ROOM_BYTES; at++) {
        if (*at != GUARD) return false;
    }
    return true;
}

/* ---- reductions --------------------------------------------------------------------------------------- */

static bool holds_results(const struct place *p, size_t first_elem, size_t n_elems, gm_redop redop)
{
    for (size_t i = 0; i < n_elems; i++) {
        uint64_t values[N];
        for (int k = 0; k < N; k++) values[k] = contribution(k, first_elem + i, p->dtype);
        if (oracle_load(elem(p, p->recv, i), p->dtype) != oracle_reduce(values, N, p->dtype, redop)) return false;
    }
    return true;
}

static void reduce_everything(struct rank_self *self, struct place *p)
{
    size_t first, n;
    gm_chunk(COUNT, N, self->rank, &first, &n);
    for (int r = 0; r < GM_REDOP_END; r++) {
        gm_redop redop = (gm_redop)r;
        if (!oracle_is_offered(p->dtype, redop)) continue;
        fill(p, p->send, self->rank, COUNT);
        rank_ok(self, gm_all_reduce(self->comm, p->send, p->recv, COUNT, p->dtype, redop));
        rank_check(self, holds_results(p, 0, COUNT, redop) && is_guarded(p, COUNT));
        memset(p->recv_room, GUARD, sizeof p->recv_room);
        rank_ok(self, gm_reduce_scatter(self->comm, p->send, p->recv, COUNT, p->dtype, redop));
        rank_check(self, holds_results(p, first, n, redop) && is_guarded(p, n));
        memset(p->recv_room, GUARD, sizeof p->recv_room);
        rank_ok(self, gm_reduce(self->comm, p->send, p->recv, COUNT, p->dtype, redop, 0));
        rank_check(self, self->rank != 0 || (holds_results(p, 0, COUNT, redop) && is_guarded(p, COUNT)));
    }
    if (p->dtype != GM_F32) return;
    rank_ok(self, gm_all_reduce(self->comm, p->send, p->recv, COUNT, p->dtype, GM_SUM_EXACT));
    rank_check(self, holds_results(p, 0, COUNT, GM_SUM)); /* of whole numbers */
}

/* ---- the others ----------------------------------------------------------------------------------------- */

static void move_everything(struct rank_self *self, struct place *p)
{
    size_t first, n;
    gm_chunk(COUNT, N, self->rank, &first, &n);
    fill(p, p->send, self->rank, COUNT);
    memset(p->recv_room, GUARD, sizeof p->recv_room);
    rank_ok(self, gm_all_gather(self->comm, p->send, p->recv, COUNT, p->dtype));
    for (int k = 0; k < N; k++) {
        size_t at, k_elems;
        gm_chunk(COUNT, N, k, &at, &k_elems);
        rank_check(self, holds(p, at, k, 0, k_elems));
    }
    rank_check(self, is_guarded(p, COUNT));

    fill(p, p->recv, self->rank, COUNT);
    rank_ok(self, gm_broadcast(self->comm, p->recv, COUNT, p->dtype, 1));
    rank_check(self, holds(p, 0, 1, 0, COUNT) && is_guarded(p, COUNT));

    fill(p, p->send, self->rank, (size_t)N * COUNT);
    memset(p->recv_room, GUARD, sizeof p->recv_room);
    rank_ok(self, gm_all_to_all(self->comm, p->send, p->recv, COUNT, p->dtype));
    for (int k = 0; k < N; k++) rank_check(self, holds(p, (size_t)k * COUNT, k, (size_t)self->rank * COUNT, COUNT));
    rank_check(self, is_guarded(p, (size_t)N * COUNT));

    int next = (self->rank + 1) % N, before = (self->rank + N - 1) % N;
    memset(p->recv_room, GUARD, sizeof p->recv_room);
    rank_ok(self, gm_sendrecv(self->comm, p->send, COUNT, next, 0, p->recv, COUNT, before, 0, p->dtype));
    rank_check(self, holds(p, 0, before, 0, COUNT) && is_guarded(p, COUNT));
}

static void refuse(struct rank_self *self, struct place *p)
{
    rank_expect(self, GM_ERR_ARG, gm_all_reduce(self->comm, p->send, p->recv, COUNT, p->dtype, GM_SUM));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "is not aligned to its elements") != NULL);
    rank_expect(self, GM_ERR_ARG, gm_reduce_scatter(self->comm, p->send, p->recv, COUNT, p->dtype, GM_SUM));
    rank_expect(self, GM_ERR_ARG, gm_all_gather(self->comm, p->send, p->recv, COUNT, p->dtype));
    rank_expect(self, GM_ERR_ARG, gm_all_to_all(self->comm, p->send, p->recv, COUNT, p->dtype));
    int next = (self->rank + 1) % N, before = (self->rank + N - 1) % N;
    rank_expect(self, GM_ERR_ARG, gm_sendrecv(self->comm, p->send, COUNT, next, 0, p->recv, COUNT, before, 0, p->dtype));
    rank_check(self, is_guarded(p, 0));
}

static void use_every_place(struct rank_self *self)
{
    static struct place place;
    int n_computed = 0, n_refused = 0;
    rank_create(self);
    for (int i = 0; i < GM_DTYPE_END * OFFSETS * OFFSETS; i++) {
        size_t send_offset = (size_t)i % OFFSETS, recv_offset = (size_t)i / OFFSETS % OFFSETS;
        bool   is_of_interest = recv_offset == OFFSETS - 1 - send_offset || recv_offset == send_offset * 3 % OFFSETS;
        if (!is_of_interest) continue;
        take_place(&place, (gm_dtype)(i / OFFSETS / OFFSETS), send_offset, recv_offset);
        bool is_right = is_aligned(&place);
        n_computed += is_right;
        n_refused += !is_right;
        if (!is_right) {
            refuse(self, &place);
            continue;
        }
        reduce_everything(self, &place);
        move_everything(self, &place);
    }
    rank_say(self, "computed at %d places, refused at %d", n_computed, n_refused);
    rank_check(self, n_computed > 90 && n_refused > 200);
    rank_destroy(self);
}

static void every_place_is_right_or_refused(void **state)
{
    struct ranks_job job = { .n_ranks = N, .body = use_every_place };
    ranks_run(state, &job);
    job.transport = "shm";
    struct ranks *r = ranks_run(state, &job);
    print_message("%s\n", ranks_said(r, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(every_place_is_right_or_refused, ranks_teardown) };
    return cmocka_run_group_tests_name("alignment", tests, NULL, NULL);
}
