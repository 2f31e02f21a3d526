/* Long random scripts, by seed: blocking and asynchronous collectives of all kinds and sizes, ranks that dawdle, and at
 * a random moment an end: everybody leaves, somebody is killed, or somebody aborts.
 *
 * All ranks draw the same script from the seed; what differs (how long a rank dawdles) is drawn from seed and rank.
 * GRADMESH_SEED=n runs one seed, and prints it; GRADMESH_SEEDS=n so many. */
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

#include "base/clock.h"
#include "base/rng.h"
#include "tests/support/ranks.h"

enum { MAX_CALLS = 120, MAX_ELEMS = 60000, MAX_IN_FLIGHT = 6, DEFAULT_SEEDS = 60, CREATED = 0 };

enum ending { ALL_LEAVE, ONE_IS_KILLED, ONE_ABORTS, N_ENDINGS };

struct script {
    uint64_t    seed;
    int         n_ranks, n_calls, culprit;
    enum ending ending;
};

static struct script make_script(uint64_t seed)
{
    struct gmi_rng r = { .key = gmi_rng_key(seed, 1) };
    struct script  s = { .seed = seed };
    s.n_ranks = 2 + (int)gmi_rng_next_below(&r, 5);
    s.ending = (enum ending)gmi_rng_next_below(&r, N_ENDINGS);
    s.culprit = (int)gmi_rng_next_below(&r, (uint64_t)s.n_ranks);
    s.n_calls = 1 + (int)gmi_rng_next_below(&r, MAX_CALLS);
    return s;
}

/* ---- one call ---------------------------------------------------------------------------------------- */

struct call {
    gm_collective which; /* GM_ALL_REDUCE, GM_REDUCE_SCATTER, GM_ALL_GATHER, GM_BROADCAST, GM_BARRIER */
    size_t        count;
    bool          is_in_place, is_async;
    int           root;
    double       *send, *recv;
    gm_work      *work;
    gm_status     status; /* of the call, or of its start */
};

static double value(int rank, uint64_t call, size_t i) { return (double)((i * 7 + call * 13) % 1009) * (rank + 1); }

static struct call draw_call(const struct script *s, uint64_t number)
{
    static const size_t limits[] = { 4, 40, 1200, MAX_ELEMS };
    struct gmi_rng r = { .key = gmi_rng_key(gmi_rng_key(s->seed, 2), number) };
    struct call    c = { .which = (gm_collective)gmi_rng_next_below(&r, GM_BARRIER + 1) };
    c.count = gmi_rng_next_below(&r, limits[gmi_rng_next_below(&r, 4)]);
    c.is_in_place = gmi_rng_next_below(&r, 2);
    c.is_async = gmi_rng_next_below(&r, 3) > 0;
    c.root = (int)gmi_rng_next_below(&r, (uint64_t)s->n_ranks);
    return c;
}

static void fill(struct call *c, int rank, uint64_t number, int n)
{
    size_t first, elems;
    gm_chunk(c->count, n, rank, &first, &elems);
    c->recv = calloc(c->count + 1, sizeof *c->recv);
    c->send = c->is_in_place || c->which == GM_BROADCAST ? c->recv : calloc(c->count + 1, sizeof *c->send);
    bool is_chunk_alone = c->which == GM_ALL_GATHER && !c->is_in_place;
    for (size_t i = 0; i < c->count; i++) {
        if (is_chunk_alone && i >= elems) break;
        c->send[i] = value(rank, number, is_chunk_alone ? first + i : i);
    }
}

static gm_status issue(struct rank_self *self, struct call *c)
{
    gm_comm *comm = self->comm;
    gm_work **w = &c->work;
    switch (c->which) {
    case GM_ALL_REDUCE:
        return c->is_async ? gm_all_reduce_start(comm, c->send, c->recv, c->count, GM_F64, GM_SUM, w)
                           : gm_all_reduce(comm, c->send, c->recv, c->count, GM_F64, GM_SUM);
    case GM_REDUCE_SCATTER:
        return c->is_async ? gm_reduce_scatter_start(comm, c->send, c->recv, c->count, GM_F64, GM_SUM, w)
                           : gm_reduce_scatter(comm, c->send, c->recv, c->count, GM_F64, GM_SUM);
    case GM_ALL_GATHER:
        return c->is_async ? gm_all_gather_start(comm, c->send, c->recv, c->count, GM_F64, w)
                           : gm_all_gather(comm, c->send, c->recv, c->count, GM_F64);
    case GM_BROADCAST:
        return c->is_async ? gm_broadcast_start(comm, c->recv, c->count, GM_F64, c->root, w)
                           : gm_broadcast(comm, c->recv, c->count, GM_F64, c->root);
    default: return c->is_async ? gm_barrier_start(comm, w) : gm_barrier(comm);
    }
}

static void check(struct rank_self *self, const struct call *c, uint64_t number)
{
    int    n = self->world_size;
    double times = n * (n + 1) / 2.0;
    size_t own_first, own_elems;
    gm_chunk(c->count, n, self->rank, &own_first, &own_elems);
    for (int k = 0; k < n && c->which != GM_BARRIER; k++) {
        size_t first, elems;
        gm_chunk(c->count, n, k, &first, &elems);
        if (c->which == GM_REDUCE_SCATTER && k != self->rank) continue;
        for (size_t i = first; i < first + elems; i++) {
            double expected = value(0, number, i) * times;
            if (c->which == GM_ALL_GATHER) expected = value(k, number, i);
            if (c->which == GM_BROADCAST) expected = value(c->root, number, i);
            size_t at = c->which == GM_REDUCE_SCATTER && !c->is_in_place ? i - own_first : i;
            if (c->recv[at] != expected) {
                rank_fail(self, __FILE__, __LINE__, "call %llu, %s of %zu: element %zu is %g, not %g",
                          (unsigned long long)number, gm_collective_name(c->which), c->count, i, c->recv[at], expected);
            }
        }
    }
}

static void forget(struct call *c)
{
    if (c->send != c->recv) free(c->send);
    free(c->recv);
    *c = (struct call){ 0 };
}

/* ---- a rank's life ------------------------------------------------------------------------------------ */

static void dawdle(const struct script *s, int rank, uint64_t number)
{
    uint64_t draw = gmi_rng_below(gmi_rng_key(s->seed, 100 + (uint64_t)rank), number, 20);
    if (draw > 2) return;
    struct timespec t = { .tv_nsec = (long)(draw * 700000) };
    nanosleep(&t, NULL);
}

/* Waits for it, if it was started, and checks the result. */
static gm_status finish(struct rank_self *self, struct call *c, uint64_t number)
{
    gm_status status = c->status;
    if (c->work != NULL) {
        do {
            status = gm_work_wait(c->work, number % 3 == 0 ? 1 : -1);
        } while (status == GM_AGAIN);
        gm_work_release(c->work);
    }
    if (status == GM_OK) check(self, c, number);
    forget(c);
    return status;
}

static gm_status play(struct rank_self *self, const struct script *s)
{
    struct call calls[MAX_CALLS];
    int         n_made = 0, n_finished = 0;
    gm_status   status = GM_OK;
    while (n_made < s->n_calls && status == GM_OK) {
        struct call *c = &calls[n_made];
        *c = draw_call(s, (uint64_t)n_made);
        fill(c, self->rank, (uint64_t)n_made, s->n_ranks);
        dawdle(s, self->rank, (uint64_t)n_made);
        status = c->status = issue(self, c);
        n_made++;
        bool must_finish = !c->is_async || n_made - n_finished > MAX_IN_FLIGHT;
        for (; must_finish && n_finished < n_made && status == GM_OK; n_finished++) {
            status = finish(self, &calls[n_finished], (uint64_t)n_finished);
        }
    }
    for (; n_finished < n_made; n_finished++) { /* after a failure all of them fail, or were done before it */
        gm_status last = finish(self, &calls[n_finished], (uint64_t)n_finished);
        if (status == GM_OK) status = last;
    }
    return status;
}

static void live(struct rank_self *self)
{
    const struct script *s = self->user;
    rank_create(self);
    rank_meet(self, CREATED, self->world_size); /* an early death would end the start-up of others */
    gm_status status = play(self, s);
    /* The culprit may be through with the script while others are still on its last broadcast. */
    if (status != GM_OK && (s->ending == ALL_LEAVE || self->rank == s->culprit)) {
        rank_fail(self, __FILE__, __LINE__, "%s", gm_comm_error(self->comm)->text);
    }
    if (s->ending != ALL_LEAVE && self->rank == s->culprit) {
        if (s->ending == ONE_IS_KILLED) raise(SIGKILL);
        rank_ok(self, gm_comm_abort(self->comm, "by the script"));
    }
    if (s->ending != ALL_LEAVE) {
        gm_status expected = s->ending == ONE_IS_KILLED ? GM_ERR_PEER_LOST : GM_ERR_ABORTED;
        int64_t   begin_ns = gmi_now_ns();
        while (status == GM_OK) status = play(self, s);
        const gm_error *e = gm_comm_error(self->comm);
        if (status != expected || e->culprit != s->culprit) {
            rank_fail(self, __FILE__, __LINE__, "%s, culprit %d: %s", gm_status_name(status), e->culprit, e->text);
        }
        rank_check(self, gmi_now_ns() - begin_ns < 3 * GMI_NS_PER_S * ranks_slowness());
    }
    rank_destroy(self);
}

static void random_scripts_play_to_their_end(void **state)
{
    const char *one = getenv("GRADMESH_SEED"), *many = getenv("GRADMESH_SEEDS");
    uint64_t    first = one != NULL ? strtoull(one, NULL, 10) : 1;
    uint64_t    n = one != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : DEFAULT_SEEDS;
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct script    s = make_script(seed);
        struct ranks_job job = { .n_ranks = s.n_ranks, .body = live, .user = &s, .is_hand_started = seed % 3 == 0 };
        if (one != NULL) print_message("# %d ranks, %d calls, ending %d by rank %d\n", s.n_ranks, s.n_calls, (int)s.ending, s.culprit);
        struct ranks *r = ranks_start(state, &job);
        if (s.ending == ONE_IS_KILLED) ranks_expect_signal(r, s.culprit, SIGKILL);
        print_message("# seed %llu\n", (unsigned long long)seed);
        ranks_finish(r);
    }
}

/* ---- death at any moment -------------------------------------------------------------------------------- */

/* While it meets the others, works, or says goodbye: nobody waits longer than for the start-up, and a loss
 * names who is lost. */
static void live_briefly(struct rank_self *self)
{
    static double values[MAX_ELEMS];
    int       victim = *(const int *)self->user;
    gm_error  error;
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    for (int i = 0; i < 30 && status == GM_OK; i++) {
        status = gm_all_reduce(self->comm, values, values, i % 3 ? 50 : MAX_ELEMS, GM_F64, GM_SUM);
        if (status == GM_OK && i % 5 == 0) status = gm_barrier(self->comm);
        error = *gm_comm_error(self->comm);
    }
    if (status != GM_OK && (status != GM_ERR_TIMEOUT || self->comm != NULL) &&
        (status != GM_ERR_PEER_LOST || error.culprit != victim)) {
        rank_fail(self, __FILE__, __LINE__, "%s, culprit %d: %s", gm_status_name(status), error.culprit, error.text);
    }
    rank_destroy(self);
}

static void a_death_at_any_moment_leaves_nobody_waiting(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct gmi_rng   r = { .key = gmi_rng_key(seed, 3) };
        int              n = 2 + (int)gmi_rng_next_below(&r, 4), victim = (int)gmi_rng_next_below(&r, (uint64_t)n);
        struct ranks_job job = { .n_ranks = n, .body = live_briefly, .user = &victim, .is_hand_started = seed % 2,
                                 .connect_timeout_ms = 400 * ranks_slowness(), .limit_ms = 8000 };
        struct ranks *job_ranks = ranks_start(state, &job);
        int64_t       until_ns = gmi_now_ns() + (int64_t)gmi_rng_next_below(&r, 20000) * 1000 * ranks_slowness();
        ranks_accept_any_end(job_ranks, victim);
        while (gmi_now_ns() < until_ns) ranks_serve(job_ranks, 1);
        ranks_signal(job_ranks, victim, SIGKILL);
        ranks_finish(job_ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_scripts_play_to_their_end, ranks_teardown),
        cmocka_unit_test_teardown(a_death_at_any_moment_leaves_nobody_waiting, ranks_teardown),
    };
    return cmocka_run_group_tests_name("soak", tests, NULL, NULL);
}
