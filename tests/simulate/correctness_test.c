/* correctness_test.c - every row of the algorithm table gives what a serial loop gives, over links that move
 * a few bytes at a time. A new row joins by itself. */
#include "base/alloc.h"
#include "coll/rounds.h"
#include "tests/support/trial.h"
#include "tests/support/test.h"

enum { TRIALS_PER_SIM = 8 };

/* ---- the battery --------------------------------------------------------------------------------- */

/* A simulation that is exchanged for one with other links every few trials. */
struct bench {
    struct sim   sim;
    bool         is_open;
    int          n_trials;
    uint64_t     next_seed;
    struct trial trial;
};

static void try_shape(struct bench *b, int n_ranks, const struct trial_shape *shape)
{
    if (!trial_is_offered(shape) || !trial_fits(shape->algo, n_ranks)) return;
    if (b->is_open && (b->n_trials == TRIALS_PER_SIM || b->sim.plan.n_ranks != n_ranks)) {
        sim_fini(&b->sim);
        b->is_open = false;
    }
    if (!b->is_open) {
        struct sim_plan plan = sim_random_plan(n_ranks, b->next_seed++);
        if (!trial_has_root(shape->algo)) plan.links_for = shape->algo; /* whose roots need other links */
        sim_init(&b->sim, &plan);
        b->is_open = true;
        b->n_trials = 0;
    }
    b->n_trials++;
    trial_prepare(&b->trial, n_ranks, shape);
    trial_run(&b->trial, &b->sim);
}

static void try_roots(struct bench *b, int n_ranks, struct trial_shape shape)
{
    int n_roots = trial_has_root(shape.algo) ? n_ranks : 1;
    for (shape.root = 0; shape.root < n_roots; shape.root++) {
        if (n_ranks > 4 && shape.root > 1 && shape.root < n_ranks - 1 && !test_is_long()) continue;
        shape.seed++;
        shape.counts_seed = 0;
        try_shape(b, n_ranks, &shape);
        shape.counts_seed = shape.seed;
        try_shape(b, n_ranks, &shape);
        bool has_formats = trial_is_lean(shape.algo) && shape.wire == NULL;
        for (size_t i = 0; has_formats && (shape.wire = gmi_wire_row(i)) != NULL; i++) try_roots(b, n_ranks, shape);
    }
}

/* All types with all reductions, or an eighth of them, another one for each `turn`. */
static void try_types(struct bench *b, int n_ranks, struct trial_shape shape, bool is_complete, int turn)
{
    int n_redops = trial_is_reduction(shape.algo) ? GM_REDOP_END : 1;
    for (int dtype = 0; dtype < GM_DTYPE_END; dtype++) {
        for (int redop = 0; redop < n_redops; redop++) {
            if (!is_complete && (dtype + redop + turn) % 8 != 0) continue;
            shape.dtype = (gm_dtype)dtype;
            shape.redop = (gm_redop)redop;
            shape.is_in_place = gmi_rng_u64(shape.seed, (uint64_t)(dtype * GM_REDOP_END + redop)) & 1;
            shape.seed += 100;
            if (n_ranks > 4 && !test_is_long() && gmi_rng_u64(shape.seed, 3) % 4 != 0) continue; /* a sample of the rest */
            try_roots(b, n_ranks, shape);
            if (redop != GM_SUM) continue;
            shape.is_in_place = !shape.is_in_place;
            try_roots(b, n_ranks, shape);
        }
    }
}

static void battery(struct bench *b, const struct gmi_algo *row, uint64_t seed)
{
    for (int n = 2; n <= TEST_MAX_RANKS; n++) {
        size_t ranks = (size_t)n;
        size_t counts[] = { 0, 1, 2, ranks - 1, ranks, ranks + 1, 31, 100 + ranks };
        for (size_t i = 0; i < TEST_COUNT(counts); i++) {
            if (n > 6 && counts[i] != 1 && counts[i] != ranks + 1 && counts[i] != 31) continue;
            struct trial_shape shape = { .algo = row, .count_elems = counts[i], .seed = seed + 100000 * i };
            bool is_complete = test_is_long() || (counts[i] == ranks + 1 && n <= 5);
            try_types(b, n, shape, is_complete, n + (int)i);
        }
    }
}

static void every_count_type_reduction_and_root(void **state)
{
    const struct gmi_algo *row = *state;
    static struct bench    b;
    int                    n_rounds = test_is_long() ? 20 : 1;
    b.next_seed = 1;
    for (int round = 0; round < n_rounds; round++) battery(&b, row, (uint64_t)round);
    sim_fini(&b.sim);
    b.is_open = false;
    trial_fini(&b.trial);
}

/* ---- larger than a piece, a block, and the scratch memory ----------------------------------------- */

/* Another number for each case of each row, for test_takes. */
static uint64_t case_key(const struct gmi_algo *row, int n_ranks, size_t i)
{
    uint64_t at = 0;
    while (gmi_algo_row(at) != row) at++;
    return (at * SIM_MAX_RANKS + (uint64_t)n_ranks) * 16 + i;
}

static void run_once(const struct sim_plan *plan, const struct trial_shape *shape)
{
    static struct sim sim;
    struct trial      trial = { 0 };
    sim_init(&sim, plan);
    trial_prepare(&trial, plan->n_ranks, shape);
    trial_run(&trial, &sim);
    trial_fini(&trial);
    sim_fini(&sim);
}

static void many_pieces_and_blocks(void **state)
{
    const struct gmi_algo *row = *state;
    for (int n = 2; n <= 3 && n < TEST_MAX_RANKS; n++) {
        if (!test_takes(case_key(row, n, 15))) continue;
        /* Chunks of a piece and a bit, so that the last piece is a short one. */
        size_t count_elems = (size_t)n * (GMI_PIECE_BYTES / 4 + 4321) + 1;
        if (row->collective == GM_ALL_TO_ALL) count_elems /= (size_t)n;
        struct trial_shape shape = { .algo = row, .count_elems = count_elems, .dtype = GM_F32, .redop = GM_SUM,
                                     .is_in_place = n == 3, .root = n - 1, .seed = 5 };
        struct sim_plan plan = { .n_ranks = n, .seed = 11, .capacity_bytes = 300007, .max_move_bytes = 400000 };
        run_once(&plan, &shape);
        if (!test_is_long()) continue;
        shape.is_in_place = !shape.is_in_place;
        shape.count_elems = 5000011;
        run_once(&plan, &shape);
    }
}

static void blocks_at_any_speed_of_links(void **state)
{
    const struct gmi_algo *row = *state;
    static const size_t    capacities[] = { 1000, 65536, 70001, 1000000 };
    for (int n = 2; n <= 5 && n < TEST_MAX_RANKS; n++) {
        for (size_t i = 0; i < TEST_COUNT(capacities); i++) {
            if (!test_takes(case_key(row, n, i))) continue;
            size_t count_elems = (4 * 16384 + 5) / (row->collective == GM_ALL_TO_ALL ? (size_t)n : 1);
            struct trial_shape shape = { .algo = row, .count_elems = count_elems, .dtype = GM_I32, .redop = GM_SUM,
                                         .is_in_place = i % 2 == 0, .seed = i };
            struct sim_plan plan = { .n_ranks = n, .seed = i, .capacity_bytes = capacities[i],
                                     .max_move_bytes = i == 3 ? 90000 : 0, .delay_probability = i == 1 ? 0.3 : 0 };
            run_once(&plan, &shape);
        }
    }
}

/* ---- more peers than a round holds ---------------------------------------------------------------- */

static void more_peers_than_a_round_holds(void **state)
{
    const struct gmi_algo *row = *state;
    static const int       sizes[] = { GMI_MAX_TRANSFERS + 1, GMI_MAX_TRANSFERS + 2, SIM_MAX_RANKS };
    for (size_t i = 0; i < TEST_COUNT(sizes) && TEST_MAX_RANKS > 3; i++) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct trial_shape shape = { .algo = row, .count_elems = (size_t)(seed % 2 ? 3 : 40), .dtype = GM_I64,
                                         .redop = GM_SUM, .is_in_place = seed >= 2, .root = (int)seed, .seed = seed };
            struct sim_plan plan = { .n_ranks = sizes[i], .seed = seed, .capacity_bytes = 200 };
            if (!trial_fits(row, sizes[i])) continue;
            run_once(&plan, &shape);
            shape.counts_seed = seed + 1;
            if (trial_has_counts(row)) run_once(&plan, &shape);
        }
    }
}

/* ---- the order of a sum -------------------------------------------------------------------------- */

static bool has_stated_order(const struct gmi_algo *row)
{
    return row->id == GMI_ALGO_RING || row->id == GMI_ALGO_NAIVE || row->id == GMI_ALGO_DIRECT ||
           row->id == GMI_ALGO_EXCHANGE || row->id == GMI_ALGO_LEAN;
}

static enum trial_order stated_order(const struct gmi_algo *row)
{
    if (row->id != GMI_ALGO_RING) return TRIAL_BY_RANK;
    return row->collective == GM_REDUCE ? TRIAL_TO_ROOT : TRIAL_BY_RING;
}

/* The results of all ranks, of which there is one for each element, or N that must agree. */
static void check_agreement(const struct trial *t, const struct sim *sim)
{
    if (t->shape.algo->collective != GM_ALL_REDUCE) return;
    for (int rank = 1; rank < t->n_ranks; rank++) {
        sim_assert(sim, memcmp(t->recv[0].bytes, t->recv[rank].bytes, t->shape.count_elems * t->elem_bytes) == 0);
    }
}

static void rough_floats_give_the_same_bits_on_all_ranks_in_the_stated_order(void **state)
{
    const struct gmi_algo *row = *state;
    static struct sim      sim;
    struct trial           trial = { 0 };
    if (!trial_is_reduction(row)) return;
    for (int n = 2; n <= 6 && n <= TEST_MAX_RANKS; n++) {
        for (uint64_t seed = 0; seed < 16; seed++) {
            struct trial_shape shape = { .algo = row, .count_elems = 29 + seed, .values = TRIAL_ROUGH, .seed = seed,
                                         .dtype = seed % 2 ? GM_F64 : GM_F32, .redop = seed % 4 == 3 ? GM_AVG : GM_SUM,
                                         .is_in_place = seed % 3 == 0,
                                         .root = (int)(seed % (uint64_t)n), .order = stated_order(row) };
            struct sim_plan plan = sim_random_plan(n, seed);
            sim_init(&sim, &plan);
            trial_prepare(&trial, n, &shape);
            for (int rank = 0; rank < n; rank++) trial_begin(&trial, &sim, rank);
            sim_assert(&sim, sim_run(&sim));
            check_agreement(&trial, &sim);
            for (int rank = 0; rank < n && has_stated_order(row); rank++) trial_check_result(&trial, &sim, rank);
            sim_fini(&sim);
        }
    }
    trial_fini(&trial);
}

/* ---- who waits for whom -------------------------------------------------------------------------- */

/* Nobody may be ready before the one has entered: all promise that but those with a root, where it is so for the root
 * of a reduce or gather. */
static void nobody_is_ready_before_the_last_has_entered(void **state)
{
    const struct gmi_algo *row = *state;
    static struct sim      sim;
    struct trial           trial = { 0 };
    if (row->collective == GM_BROADCAST || row->collective == GM_SCATTER) return;
    for (int n = 2; n <= 6 && n <= TEST_MAX_RANKS; n++) {
        for (int late = 0; late < n; late++) {
            for (size_t count_elems = 0; count_elems < 20; count_elems += 19) {
                struct trial_shape shape = { .algo = row, .count_elems = count_elems, .dtype = GM_I64 };
                struct sim_plan    plan = { .n_ranks = n, .seed = 3, .capacity_bytes = 100000 };
                sim_init(&sim, &plan);
                trial_prepare(&trial, n, &shape);
                for (int rank = 0; rank < n; rank++) {
                    if (rank != late) trial_begin(&trial, &sim, rank);
                }
                /* Without data only neighbours prove that they are there, except in a barrier. */
                bool may_some_end = count_elems == 0 && row->collective != GM_BARRIER;
                bool have_ended = sim_run(&sim);
                sim_assert(&sim, may_some_end || !have_ended || (trial_has_root(row) && late == shape.root));
                for (int rank = 0; rank < n && !may_some_end; rank++) {
                    bool must_wait = !trial_has_root(row) || rank == shape.root;
                    if (rank != late && must_wait) sim_assert(&sim, sim.ranks[rank].status == GM_AGAIN);
                }
                trial_begin(&trial, &sim, late);
                sim_assert(&sim, sim_run(&sim));
                for (int rank = 0; rank < n; rank++) trial_check_result(&trial, &sim, rank);
                trial_check_counts(&trial, &sim);
                sim_fini(&sim);
            }
        }
    }
    trial_fini(&trial);
}

/* A rank may run ahead by as many calls as its neighbours' links hold. */
static void fast_ranks_may_begin_the_next_call_early(void **state)
{
    const struct gmi_algo *row = *state;
    static struct sim      sim;
    enum { N = 4, CALLS = 6 };
    struct trial    trials[CALLS] = { 0 };
    struct sim_plan plan = { .n_ranks = N, .seed = 9, .capacity_bytes = 1 << 16, .max_move_bytes = 7 };
    int             next_call[N] = { 0 };
    sim_init(&sim, &plan);
    for (int c = 0; c < CALLS; c++) {
        struct trial_shape shape = { .algo = row, .count_elems = (size_t)(3 * c), .dtype = GM_F64, .redop = GM_MAX,
                                     .seed = (uint64_t)c, .root = c % N };
        trial_prepare(&trials[c], N, &shape);
    }
    bool is_any_left = true;
    while (is_any_left) {
        is_any_left = false;
        for (int rank = 0; rank < N; rank++) { /* whoever is ready goes on at once */
            if (sim.ranks[rank].status == GM_AGAIN || next_call[rank] == CALLS) continue;
            trial_begin(&trials[next_call[rank]++], &sim, rank);
            is_any_left = true;
        }
        (void)sim_run(&sim);
    }
    for (int c = 0; c < CALLS; c++) {
        for (int rank = 0; rank < N; rank++) trial_check_result(&trials[c], &sim, rank);
        trial_fini(&trials[c]);
    }
    for (int rank = 0; rank < N; rank++) sim_assert(&sim, sim.ranks[rank].status == GM_OK);
    sim_assert(&sim, sim_links_are_empty(&sim));
    sim_fini(&sim);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void no_memory_is_taken_on_the_data_path(void **state)
{
    const struct gmi_algo *row = *state;
    static struct sim      sim;
    struct trial           trial = { 0 };
    struct trial_shape     shape = { .algo = row, .count_elems = 1001, .dtype = GM_F32, .redop = GM_AVG,
                                     .quantum = -20 }; /* of which all its numbers are multiples, so that none spills */
    struct sim_plan        plan = { .n_ranks = 4, .seed = 2, .capacity_bytes = 333 };
    sim_init(&sim, &plan);
    trial_prepare(&trial, 4, &shape);
    for (int call = 0; call < 2; call++) {
        uint64_t before = gmi_alloc_calls();
        for (int rank = 0; rank < 4; rank++) trial_begin(&trial, &sim, rank);
        sim_assert(&sim, sim_run(&sim));
        assert_int_equal(gmi_alloc_calls(), before);
    }
    trial_fini(&trial);
    sim_fini(&sim);
}

/* ---- a world of one ------------------------------------------------------------------------------ */

static void check_alone(gm_comm *comm, gm_collective which, size_t count_elems, bool is_in_place)
{
    struct guard send = { 0 }, recv = { 0 };
    gm_status    status = GM_ERR_STATE;
    guard_make(&send, 4 * count_elems);
    guard_make(&recv, 4 * count_elems);
    float *from = (float *)(is_in_place ? recv.bytes : send.bytes), *to = (float *)recv.bytes;
    for (size_t i = 0; i < count_elems; i++) from[i] = (float)i - 3;
    switch (which) {
    case GM_ALL_REDUCE: status = gm_all_reduce(comm, from, to, count_elems, GM_F32, GM_AVG); break;
    case GM_REDUCE_SCATTER: status = gm_reduce_scatter(comm, from, to, count_elems, GM_F32, GM_MIN); break;
    case GM_ALL_GATHER: status = gm_all_gather(comm, from, to, count_elems, GM_F32); break;
    case GM_BROADCAST: status = gm_broadcast(comm, from, count_elems, GM_F32, 0); break;
    case GM_REDUCE: status = gm_reduce(comm, from, to, count_elems, GM_F32, GM_MAX, 0); break;
    case GM_GATHER: status = gm_gather(comm, from, to, count_elems, GM_F32, 0); break;
    case GM_SCATTER: status = gm_scatterv(comm, from, to, &count_elems, GM_F32, 0); break;
    case GM_ALL_TO_ALL: status = gm_all_to_allv(comm, from, &count_elems, to, &count_elems, GM_F32); break;
    default: status = gm_barrier(comm); break;
    }
    assert_ok(status);
    bool is_copied = which != GM_BARRIER && which != GM_BROADCAST;
    for (size_t i = 0; i < count_elems && is_copied; i++) assert_true(to[i] == (float)i - 3);
    guard_check(&send);
    guard_check(&recv);
    guard_fini(&send);
    guard_fini(&recv);
}

static void a_world_of_one_needs_nobody_and_sends_nothing(void **state)
{
    (void)state;
    gm_comm_options options;
    gm_comm        *comm;
    gm_error        error;
    gm_traffic      traffic;
    uint64_t        n_calls = 0;
    gm_comm_options_default(&options);
    options.rank = 0;
    options.world_size = 1;
    assert_ok(gm_comm_create(&comm, &options, &error));
    for (int which = 0; which < GM_SEND; which++) {
        for (size_t count_elems = 0; count_elems < 20; count_elems++, n_calls += 2) {
            check_alone(comm, (gm_collective)which, count_elems, true);
            check_alone(comm, (gm_collective)which, count_elems, false);
        }
    }
    float nan = -__builtin_nanf("0x123");
    assert_ok(gm_all_reduce(comm, &nan, &nan, 1, GM_F32, GM_SUM));
    uint32_t bits;
    memcpy(&bits, &nan, sizeof bits);
    assert_int_equal(bits, 0x7fc00000);
    assert_ok(gm_comm_traffic(comm, GM_COLLECTIVE_END, &traffic));
    assert_int_equal(traffic.calls, n_calls + 1);
    assert_int_equal(traffic.payload_sent_bytes + traffic.payload_recv_bytes, 0);
    assert_int_equal(traffic.protocol_sent_bytes + traffic.protocol_recv_bytes, 0);
    assert_status(gm_all_reduce(comm, &nan, &nan, 1, GM_F32, (gm_redop)-1), GM_ERR_ARG);
    assert_status(gm_all_reduce(comm, &nan, &nan, 1, (gm_dtype)-1, GM_SUM), GM_ERR_ARG);
    gm_comm_destroy(comm);
}

int main(void)
{
    static const struct {
        const char      *name;
        CMUnitTestFunction run;
    } kinds[] = {
        { "every count, type, reduction and root", every_count_type_reduction_and_root },
        { "many pieces and blocks", many_pieces_and_blocks },
        { "blocks at any speed of links", blocks_at_any_speed_of_links },
        { "more peers than a round holds", more_peers_than_a_round_holds },
        { "rough floats give the same bits on all ranks, in the stated order",
          rough_floats_give_the_same_bits_on_all_ranks_in_the_stated_order },
        { "nobody is ready before the last has entered", nobody_is_ready_before_the_last_has_entered },
        { "fast ranks may begin the next call early", fast_ranks_may_begin_the_next_call_early },
        { "no memory is taken on the data path", no_memory_is_taken_on_the_data_path },
    };
    static struct CMUnitTest tests[256];
    static char              names[256][128];
    size_t                   n = 1;
    tests[0] = (struct CMUnitTest)cmocka_unit_test(a_world_of_one_needs_nobody_and_sends_nothing);
    for (size_t row = 0; gmi_algo_row(row) != NULL; row++) {
        for (size_t k = 0; k < TEST_COUNT(kinds) && n < TEST_COUNT(tests); k++) {
            const struct gmi_algo *algo = gmi_algo_row(row);
            snprintf(names[n], sizeof names[n], "%s %s: %s", algo->name, gm_collective_name(algo->collective),
                     kinds[k].name);
            tests[n] = (struct CMUnitTest){ names[n], kinds[k].run, NULL, NULL, (void *)algo };
            n++;
        }
    }
    return _cmocka_run_group_tests("correctness", tests, n, NULL, NULL);
}
