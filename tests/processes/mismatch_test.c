/* Ranks that call different things: an error on every rank that shows both calls, at once, and never a hang
 * or somebody else's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { COUNT = 200000, BOUND_MS = 2000, MAX_RANKS = 5 };

/* One call, with what can differ. */
struct call {
    gm_collective which;
    size_t        count;
    gm_dtype      dtype;
    gm_redop      redop;
    int           root;
};

/* The odd rank makes the calls of `odd`, the others those of `usual`. */
struct dispute {
    const char *name;
    struct call usual[2], odd[2];
    int         odd_rank;
    const char *usual_text, *odd_text; /* of the call in which they differ */
    bool        may_be_late;           /* one of them may finish it and be a call ahead */
    bool        leaves_at_once;
};

static gm_status make(struct rank_self *self, const struct call *c)
{
    static double send[COUNT + 1], recv[COUNT + 1];
    switch (c->which) {
    case GM_ALL_REDUCE: return gm_all_reduce(self->comm, send, recv, c->count, c->dtype, c->redop);
    case GM_REDUCE_SCATTER: return gm_reduce_scatter(self->comm, send, recv, c->count, c->dtype, c->redop);
    case GM_ALL_GATHER: return gm_all_gather(self->comm, send, recv, c->count, c->dtype);
    case GM_BROADCAST: return gm_broadcast(self->comm, recv, c->count, c->dtype, c->root);
    case GM_REDUCE: return gm_reduce(self->comm, send, recv, c->count, c->dtype, c->redop, c->root);
    case GM_GATHER: return gm_gather(self->comm, send, recv, c->count, c->dtype, c->root);
    case GM_SCATTER: return gm_scatter(self->comm, send, recv, c->count, c->dtype, c->root);
    case GM_ALL_TO_ALL: return gm_all_to_all(self->comm, send, recv, c->count, c->dtype);
    default: return gm_barrier(self->comm);
    }
}

static void check_sentence(struct rank_self *self, const struct dispute *d)
{
    const gm_error *e = gm_comm_error(self->comm);
    rank_say(self, "%s", e->text);
    rank_check(self, e->status == GM_ERR_MISMATCH && e->rank == self->rank);
    rank_check(self, e->culprit >= 0 && e->culprit < self->world_size);
    bool has_usual = strstr(e->text, d->usual_text) != NULL, has_odd = strstr(e->text, d->odd_text) != NULL;
    rank_check(self, (has_usual && has_odd) || (d->may_be_late && (has_usual || has_odd) && strstr(e->text, "#3")));
}

static void disagree(struct rank_self *self)
{
    const struct dispute *d = self->user;
    const struct call    *calls = self->rank == d->odd_rank ? d->odd : d->usual;
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    rank_meet(self, 0, self->world_size); /* nobody is still in the barrier when the first one fails */
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = make(self, &calls[0]);
    /* A rank may be through with its part (a broadcast's root) before the others notice. */
    if (status == GM_OK) status = make(self, &calls[1]);
    int64_t took_ms = (gmi_now_ns() - begin_ns) / GMI_NS_PER_MS;
    rank_record(self, status);
    if (d->leaves_at_once) _exit(status == GM_ERR_MISMATCH ? 0 : 1);
    rank_expect(self, GM_ERR_MISMATCH, status);
    rank_check(self, took_ms < BOUND_MS * ranks_slowness());
    check_sentence(self, d);
    rank_expect(self, GM_ERR_MISMATCH, gm_barrier(self->comm)); /* and so does everything from now on */
    check_sentence(self, d);
    rank_destroy(self);
}

#define ALL_REDUCE(n, dtype, redop) { GM_ALL_REDUCE, n, dtype, redop, 0 }
#define USUAL ALL_REDUCE(COUNT, GM_F32, GM_SUM)
#define SMALL_BROADCAST(root) { GM_BROADCAST, 10, GM_F32, 0, root }
#define BARRIER { .which = GM_BARRIER }

static const struct dispute disputes[] = {
    { .name = "count", .usual = { USUAL, BARRIER }, .odd = { ALL_REDUCE(COUNT + 1, GM_F32, GM_SUM), BARRIER },
      .usual_text = ", 200000 elems", .odd_text = ", 200001 elems" },
    { .name = "small count", .usual = { ALL_REDUCE(3, GM_F32, GM_SUM), BARRIER },
      .odd = { ALL_REDUCE(4, GM_F32, GM_SUM), BARRIER }, .usual_text = ", 3 elems", .odd_text = ", 4 elems" },
    { .name = "nothing and something", .usual = { ALL_REDUCE(0, GM_F32, GM_SUM), BARRIER },
      .odd = { ALL_REDUCE(1, GM_F32, GM_SUM), BARRIER }, .usual_text = ", 0 elems", .odd_text = ", 1 elems" },
    { .name = "small and large", .usual = { ALL_REDUCE(1, GM_F32, GM_SUM), BARRIER }, .odd = { USUAL, BARRIER },
      .usual_text = ", 1 elems", .odd_text = ", 200000 elems" },
    { .name = "dtype", .usual = { USUAL, BARRIER }, .odd = { ALL_REDUCE(COUNT, GM_I32, GM_SUM), BARRIER },
      .usual_text = "f32", .odd_text = "i32" },
    { .name = "reduction", .usual = { USUAL, BARRIER }, .odd = { ALL_REDUCE(COUNT, GM_F32, GM_MAX), BARRIER },
      .usual_text = "sum", .odd_text = "max" },
    { .name = "root", .usual = { { GM_BROADCAST, COUNT, GM_F32, 0, 0 }, BARRIER },
      .odd = { { GM_BROADCAST, COUNT, GM_F32, 0, 1 }, BARRIER }, .usual_text = "root 0", .odd_text = "root 1" },
    { .name = "small root", .may_be_late = true, .usual = { SMALL_BROADCAST(0), BARRIER }, .odd = { SMALL_BROADCAST(1), BARRIER },
      .usual_text = "root 0", .odd_text = "root 1" },
    { .name = "small broadcast", .may_be_late = true, .usual = { USUAL, BARRIER }, .odd = { SMALL_BROADCAST(0), BARRIER },
      .usual_text = "all_reduce #2", .odd_text = "broadcast #2" },
    { .name = "small broadcast of another", .may_be_late = true, .usual = { BARRIER, BARRIER }, .odd = { SMALL_BROADCAST(1), BARRIER },
      .usual_text = "barrier #2", .odd_text = "broadcast #2" },
    { .name = "no broadcast", .may_be_late = true, .usual = { SMALL_BROADCAST(0), BARRIER }, .odd = { ALL_REDUCE(1, GM_F32, GM_SUM), BARRIER },
      .usual_text = "broadcast #2", .odd_text = "all_reduce #2" },
    { .name = "collective", .usual = { USUAL, BARRIER }, .odd = { { GM_REDUCE_SCATTER, COUNT, GM_F32, GM_SUM, 0 }, BARRIER },
      .usual_text = "all_reduce #2", .odd_text = "reduce_scatter #2" },
    { .name = "gather", .usual = { USUAL, BARRIER }, .odd = { { GM_ALL_GATHER, COUNT, GM_F32, 0, 0 }, BARRIER },
      .usual_text = "all_reduce #2", .odd_text = "all_gather #2" },
    { .name = "an extra barrier", .usual = { USUAL, USUAL }, .odd = { BARRIER, USUAL }, .usual_text = "all_reduce #2",
      .odd_text = "barrier #2" },
    { .name = "another root of a reduce", .may_be_late = true, .usual = { { GM_REDUCE, 10, GM_F32, GM_SUM, 0 }, BARRIER },
      .odd = { { GM_REDUCE, 10, GM_F32, GM_SUM, 1 }, BARRIER }, .usual_text = "root 0", .odd_text = "root 1" },
    { .name = "another root of a large reduce", .may_be_late = true, .usual = { { GM_REDUCE, COUNT, GM_F32, GM_SUM, 0 }, BARRIER },
      .odd = { { GM_REDUCE, COUNT, GM_F32, GM_SUM, 1 }, BARRIER }, .usual_text = "root 0", .odd_text = "root 1" },
    { .name = "another root of a gather", .may_be_late = true, .usual = { { GM_GATHER, COUNT, GM_F32, 0, 1 }, BARRIER },
      .odd = { { GM_GATHER, COUNT, GM_F32, 0, 0 }, BARRIER }, .usual_text = "root 1", .odd_text = "root 0" },
    { .name = "gather and scatter", .may_be_late = true, .usual = { { GM_GATHER, 10, GM_F32, 0, 0 }, BARRIER },
      .odd = { { GM_SCATTER, 10, GM_F32, 0, 0 }, BARRIER }, .usual_text = "gather #2", .odd_text = "scatter #2" },
    { .name = "blocks", .usual = { { GM_ALL_TO_ALL, 10, GM_F32, 0, 0 }, BARRIER },
      .odd = { { GM_ALL_TO_ALL, 11, GM_F32, 0, 0 }, BARRIER }, .usual_text = ", 10 elems", .odd_text = ", 11 elems" },
    { .name = "swapped", .usual = { { GM_ALL_GATHER, 100, GM_F64, 0, 0 }, USUAL },
      .odd = { USUAL, { GM_ALL_GATHER, 100, GM_F64, 0, 0 } }, .usual_text = "all_gather #2", .odd_text = "all_reduce #2" },
};
enum { N_DISPUTES = sizeof disputes / sizeof disputes[0] };

static void dispute_with(void **state, int n_ranks, int odd_rank)
{
    for (int i = 0; i < N_DISPUTES; i++) {
        struct dispute   d = disputes[i];
        struct ranks_job job = { .n_ranks = n_ranks, .body = disagree, .user = &d };
        d.odd_rank = odd_rank;
        print_message("# %s, %d ranks, rank %d is odd\n", d.name, n_ranks, odd_rank);
        ranks_run(state, &job);
    }
}

static void two_ranks_that_differ_both_say_so(void **state)
{
    dispute_with(state, 2, 0);
    dispute_with(state, 2, 1);
}

static void three_ranks_say_so_whoever_is_odd(void **state)
{
    for (int odd = 0; odd < 3; odd++) dispute_with(state, 3, odd);
}

static void ranks_that_are_no_neighbours_of_the_odd_one_say_so_too(void **state)
{
    for (int odd = 0; odd < MAX_RANKS; odd++) dispute_with(state, MAX_RANKS, odd);
}

/* Who notices first may be gone in the next moment; the others must still hear why. */
static void the_cause_is_known_even_if_who_found_it_leaves_without_a_word(void **state)
{
    for (int i = 0; i < 20; i++) {
        struct dispute d = disputes[i % N_DISPUTES];
        d.leaves_at_once = true;
        d.odd_rank = i % 4;
        struct ranks_job job = { .n_ranks = 4, .body = disagree, .user = &d };
        ranks_run(state, &job);
    }
}

/* No later call would tell: both must notice in this one, whoever comes first. */
static void be_two_roots(struct rank_self *self)
{
    const int *round = self->user;
    float      values[8] = { 0 };
    self->options.algorithm = *round % 2 ? "tree" : "auto";
    rank_create(self);
    if (*round % 3 == self->rank) nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
    rank_expect(self, GM_ERR_MISMATCH, gm_broadcast(self->comm, values, 8, GM_F32, self->rank));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "root 0") && strstr(gm_comm_error(self->comm)->text, "root 1"));
    rank_destroy(self);
}

static void two_ranks_that_both_believe_to_be_the_root_are_both_told(void **state)
{
    for (int round = 0; round < 24; round++) {
        struct ranks_job job = { .n_ranks = 2, .body = be_two_roots, .user = &round };
        ranks_run(state, &job);
    }
}

/* ---- counts --------------------------------------------------------------------------------------- */

/* The sum of the counts is the same; that of rank 1 and 2 are swapped on one rank. */
static void count_differently(struct rank_self *self)
{
    static double recv[100];
    size_t usual[3] = { 10, 20, 30 }, odd[3] = { 10, 30, 20 };
    rank_create(self);
    rank_meet(self, 0, 3);
    gm_status status = gm_all_gatherv(self->comm, recv, recv, self->rank == 2 ? odd : usual, GM_F64);
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_MISMATCH, status);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, ", counts ") != NULL);
    rank_destroy(self);
}

/* Rank 0 sends 5 elements to rank 1, which wants 4. */
static void swap_differently(struct rank_self *self)
{
    static double send[100], recv[100];
    size_t give[3] = { 1, 5, 1 }, get[3] = { 1, 1, 1 };
    if (self->rank != 0) give[1] = 1;
    if (self->rank == 1) get[0] = 4;
    rank_create(self);
    rank_meet(self, 0, 3);
    gm_status status = gm_all_to_allv(self->comm, send, give, recv, get, GM_F64);
    if (status == GM_OK) status = gm_barrier(self->comm); /* rank 2 may be through */
    rank_say(self, "%s", gm_comm_error(self->comm)->text);
    rank_expect(self, GM_ERR_MISMATCH, status);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, ", 5 elems") != NULL);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, ", 4 elems") != NULL);
    rank_destroy(self);
}

static void other_counts_of_the_same_sum_are_a_mismatch(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = count_differently };
    ranks_run(state, &job);
}

static void a_pair_that_disagrees_on_its_count_is_a_mismatch(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = swap_differently };
    ranks_run(state, &job);
}

/* ---- what is no mismatch -------------------------------------------------------------------------- */

static void agree_in_different_places(struct rank_self *self)
{
    static double a[1000], b[1000];
    rank_create(self);
    bool in_place = self->rank % 2 == 0;
    for (int i = 0; i < 10; i++) {
        rank_ok(self, gm_all_reduce(self->comm, a, in_place ? a : b, 1000, GM_F64, GM_SUM));
        rank_ok(self, gm_reduce_scatter(self->comm, a, in_place ? a : b, 1000, GM_F64, GM_SUM));
        in_place = !in_place;
    }
    rank_destroy(self);
}

static void in_place_here_and_out_of_place_there_is_fine(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = agree_in_different_places };
    ranks_run(state, &job);
}

static void choose_different_algorithms(struct rank_self *self)
{
    double x = 1;
    self->options.algorithm = self->rank == 1 ? "naive" : "ring";
    rank_create(self);
    rank_meet(self, 0, 3);
    rank_expect(self, GM_ERR_MISMATCH, gm_all_reduce(self->comm, &x, &x, 1, GM_F64, GM_SUM));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "naive") != NULL);
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "ring") != NULL);
    rank_destroy(self);
}

static void different_algorithms_are_a_mismatch(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = choose_different_algorithms };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(two_ranks_that_differ_both_say_so),
        TEST(three_ranks_say_so_whoever_is_odd),
        TEST(ranks_that_are_no_neighbours_of_the_odd_one_say_so_too),
        TEST(two_ranks_that_both_believe_to_be_the_root_are_both_told),
        TEST(the_cause_is_known_even_if_who_found_it_leaves_without_a_word),
        TEST(other_counts_of_the_same_sum_are_a_mismatch),
        TEST(a_pair_that_disagrees_on_its_count_is_a_mismatch),
        TEST(in_place_here_and_out_of_place_there_is_fine),
        TEST(different_algorithms_are_a_mismatch),
    };
    return cmocka_run_group_tests_name("mismatch", tests, NULL, NULL);
}
