/* trace_test.c - what traces say of every row of the algorithm table: all payload, to the byte, each send with its receive,
 * and where it belongs. A new row joins by itself. */
#include "coll/ring.h"
#include "tests/support/test.h"
#include "tests/support/trial.h"
#include "trace/trace.h"

enum { PLACES = 8000 };

/* The traces of one collective on all ranks. */
struct traced {
    struct sim      sim;
    struct trial    trial;
    gm_trace_event *events[SIM_MAX_RANKS];
    size_t          n_events[SIM_MAX_RANKS];
};

static struct traced *run_traced(const struct sim_plan *plan, const struct trial_shape *shape)
{
    static struct traced t;
    static struct gmi_trace *traces[SIM_MAX_RANKS]; /* used again and again */
    uint64_t             n_dropped;
    sim_init(&t.sim, plan);
    for (int r = 0; r < plan->n_ranks; r++) {
        if (traces[r] == NULL) traces[r] = gmi_trace_create(PLACES);
        gmi_trace_clear(traces[r]);
        t.sim.ranks[r].group.trace = traces[r];
    }
    trial_prepare(&t.trial, plan->n_ranks, shape);
    trial_run(&t.trial, &t.sim);
    for (int r = 0; r < plan->n_ranks; r++) {
        t.events[r] = malloc((gmi_trace_n_events(traces[r]) + 1) * sizeof *t.events[r]);
        t.n_events[r] = gmi_trace_read(traces[r], t.events[r], PLACES, &n_dropped);
        assert_int_equal(n_dropped, 0);
    }
    return &t;
}

static void end_traced(struct traced *t)
{
    for (int r = 0; r < t->sim.plan.n_ranks; r++) free(t->events[r]);
    trial_fini(&t->trial);
    sim_fini(&t->sim);
}

/* ---- checks -------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct traced *t, int rank, gm_trace_kind kind)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < t->n_events[rank]; i++) {
        if (t->events[rank][i].kind == kind) sum += t->events[rank][i].bytes;
    }
    return sum;
}

static void all_payload_is_in_the_trace(const struct traced *t)
{
    for (int r = 0; r < t->sim.plan.n_ranks; r++) {
        const gm_traffic *traffic = &t->sim.ranks[r].op.traffic;
        sim_assert(&t->sim, bytes_of(t, r, GM_TRACE_SEND) == traffic->payload_sent_bytes);
        sim_assert(&t->sim, bytes_of(t, r, GM_TRACE_RECEIVE) == traffic->payload_recv_bytes);
    }
}

static const gm_trace_event *other_end(const struct traced *t, int rank, const gm_trace_event *send)
{
    for (size_t i = 0; i < t->n_events[send->peer]; i++) {
        const gm_trace_event *e = &t->events[send->peer][i];
        if (e->kind == GM_TRACE_RECEIVE && e->peer == rank && e->number == send->number) return e;
    }
    return NULL;
}

static void each_send_has_its_receive(const struct traced *t)
{
    for (int r = 0; r < t->sim.plan.n_ranks; r++) {
        for (size_t i = 0; i < t->n_events[r]; i++) {
            const gm_trace_event *send = &t->events[r][i], *receive;
            if (send->kind != GM_TRACE_SEND) continue;
            receive = other_end(t, r, send);
            sim_assert(&t->sim, receive != NULL && receive->bytes == send->bytes && receive->seq == send->seq);
        }
    }
}

/* What is known of places cannot be wrong: in the buffer, in the chunk that it says, and as long as its bytes. */
static void places_are_right(const struct traced *t, const struct trial_shape *shape)
{
    size_t elem_bytes = t->trial.elem_bytes;
    for (int r = 0; r < t->sim.plan.n_ranks; r++) {
        const struct gmi_op *op = &t->sim.ranks[r].op;
        for (size_t i = 0; i < t->n_events[r]; i++) {
            const gm_trace_event *e = &t->events[r][i];
            sim_assert(&t->sim, e->begin_ns <= e->end_ns && e->bytes > 0 && e->step >= 0);
            sim_assert(&t->sim, e->collective == shape->algo->collective && strcmp(e->category, shape->algo->name) == 0);
            if (e->first_elem < 0) continue;
            bool is_by_pair = shape->algo->collective == GM_ALL_TO_ALL && shape->counts_seed != 0; /* as long as it is */
            sim_assert(&t->sim, e->n_elems > 0 && (is_by_pair || (size_t)(e->first_elem + e->n_elems) <= op->count_elems));
            bool is_plain = !trial_is_lean(shape->algo) && !trial_is_exact(shape->algo);
            sim_assert(&t->sim, !is_plain || (size_t)e->n_elems * elem_bytes == e->bytes);
            bool is_contribution = strcmp(e->name, "circulate") == 0; /* whose chunk is not where it lies */
            if (e->chunk < 0 || is_contribution) continue;
            size_t at = (size_t)e->first_elem * op->codec.elem_bytes, end = at + (size_t)e->n_elems * op->codec.elem_bytes;
            sim_assert(&t->sim, at >= gmi_op_chunk_at(op, e->chunk));
            sim_assert(&t->sim, end <= gmi_op_chunk_at(op, e->chunk) + gmi_op_chunk_bytes(op, e->chunk));
        }
    }
}

static void check_all(const struct trial_shape *shape, int n_ranks)
{
    struct sim_plan plan = sim_random_plan(n_ranks, shape->seed);
    if (!trial_is_offered(shape) || !trial_fits(shape->algo, n_ranks)) return;
    struct traced *t = run_traced(&plan, shape);
    all_payload_is_in_the_trace(t);
    each_send_has_its_receive(t);
    places_are_right(t, shape);
    end_traced(t);
}

static void every_byte_of_every_algorithm_is_in_the_trace(void **state)
{
    const struct gmi_algo *row = *state;
    for (int n = 2; n <= TEST_MAX_RANKS; n += n < 5 ? 1 : 2) {
        size_t counts[] = { 1, (size_t)n + 1, n < 6 ? 200 : 0 };
        for (size_t i = 0; i < TEST_COUNT(counts); i++) {
            struct trial_shape shape = { .algo = row, .count_elems = counts[i], .dtype = GM_F32, .redop = GM_SUM,
                                         .is_in_place = i % 2 == 0, .root = n - 1, .seed = (uint64_t)n * 10 + i };
            check_all(&shape, n);
            shape.is_in_place = !shape.is_in_place;
            shape.counts_seed = shape.seed;
            check_all(&shape, n);
        }
    }
}

/* ---- the ring, move by move ---------------------------------------------------------------------- */

static const struct gmi_algo *ring_row(void)
{
    for (size_t i = 0; gmi_algo_row(i) != NULL; i++) {
        const struct gmi_algo *row = gmi_algo_row(i);
        if (row->collective == GM_ALL_REDUCE && row->id == GMI_ALGO_RING && row->shows == GMI_VIEW_ONCE) return row;
    }
    return NULL;
}

static void the_ring_is_seen_chunk_by_chunk(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 4 * 300 };
    struct trial_shape shape = { .algo = ring_row(), .count_elems = COUNT, .dtype = GM_F32, .redop = GM_SUM, .is_in_place = true };
    struct sim_plan    plan = { .n_ranks = N, .seed = 3, .capacity_bytes = 500, .part_bytes = 400 };
    struct traced     *t = run_traced(&plan, &shape);
    for (int r = 0; r < N; r++) {
        int64_t n_elems[2 * N - 2] = { 0 }, n_received[2 * N - 2] = { 0 };
        for (size_t i = 0; i < t->n_events[r]; i++) {
            const gm_trace_event *e = &t->events[r][i];
            bool                  is_send = e->kind == GM_TRACE_SEND;
            assert_in_range(e->step, 0, 2 * N - 3);
            assert_int_equal(e->peer, is_send ? (r + 1) % N : (r + N - 1) % N);
            assert_int_equal(e->chunk, gmi_ring_chunk(r, N, is_send ? e->step : e->step + 1));
            assert_int_equal(e->is_added, e->step < N - 1);
            assert_string_equal(e->name, e->step < N - 1 ? "reduce-scatter" : "all-gather");
            if (is_send) n_elems[e->step] += e->n_elems;
            else n_received[e->step] += e->n_elems;
        }
        for (int step = 0; step < 2 * N - 2; step++) {
            assert_int_equal(n_elems[step], COUNT / N);
            assert_int_equal(n_received[step], COUNT / N);
        }
    }
    end_traced(t);
}

int main(void)
{
    struct CMUnitTest tests[100] = { cmocka_unit_test(the_ring_is_seen_chunk_by_chunk) };
    char              names[100][96];
    size_t            n = 1;
    for (size_t i = 0; gmi_algo_row(i) != NULL && n < TEST_COUNT(tests); i++, n++) {
        const struct gmi_algo *row = gmi_algo_row(i);
        snprintf(names[n], sizeof names[n], "every_byte_of_%s_by_%s_is_in_the_trace (row %zu)", gm_collective_name(row->collective),
                 row->name, i);
        tests[n] = (struct CMUnitTest){ names[n], every_byte_of_every_algorithm_is_in_the_trace, NULL, NULL, (void *)(uintptr_t)row };
    }
    return _cmocka_run_group_tests("trace", tests, n, NULL, NULL);
}
