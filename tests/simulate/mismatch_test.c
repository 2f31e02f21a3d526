/* mismatch_test.c - one rank calls something else than the others, in each way there is.
 *
 * Whoever reads the descriptor of a rank that differs says GM_ERR_MISMATCH and keeps both descriptors; nobody
 * uses what came with it. In the ring algorithms that is the right neighbour of the odd rank, and the odd rank
 * itself. */
#include "tests/support/trial.h"
#include "tests/support/test.h"

enum difference { COUNT, COUNTS, DTYPE, REDOP, ROOT, COLLECTIVE, SEQ, ALGORITHM, EPOCH, GROUP, PIECE, WIRE, SHARDS, QUANTUM, DIFFERENCES };
static const char *const difference_names[DIFFERENCES] = { "count", "counts", "dtype", "redop", "root", "collective",
                                                           "seq", "algorithm", "epoch", "group", "piece", "wire format",
                                                           "number of shards", "quantum" };

static bool is_ring_like(const struct gmi_algo *row) { return row->id == GMI_ALGO_RING || row->id == GMI_ALGO_NAIVE; }

/* Makes the shape of the odd rank differ. False: this row cannot differ so. `other`: any other row. */
static bool differ(struct trial_shape *shape, enum difference d, int n_ranks, const struct gmi_algo *other)
{
    bool has_same_collective = other->collective == shape->algo->collective;
    bool is_barrier = shape->algo->collective == GM_BARRIER;
    switch (d) {
    case COUNT: shape->count_elems++; return !is_barrier;
    case COUNTS: shape->counts_seed = 1 + shape->seed; return trial_has_counts(shape->algo);
    case DTYPE: shape->dtype = GM_F32; return !is_barrier && !trial_is_lean(shape->algo) && !trial_is_exact(shape->algo);
    case REDOP: shape->redop = trial_is_lean(shape->algo) ? GM_AVG : GM_MAX; return trial_is_reduction(shape->algo) && !trial_is_exact(shape->algo);
    case WIRE: shape->wire = gmi_wire_row((shape->seed + 1) % 3); return trial_is_lean(shape->algo);
    case SHARDS: shape->more_shards = 1; return trial_is_exact(shape->algo);
    case QUANTUM: shape->quantum = -46; return trial_is_exact(shape->algo);
    case ROOT: shape->root = (shape->root + 1) % n_ranks; return trial_has_root(shape->algo);
    case COLLECTIVE: shape->algo = other; return !has_same_collective;
    case ALGORITHM: shape->algo = other; return has_same_collective;
    default: return true;
    }
}

static void begin_odd(struct trial *t, struct sim *sim, int odd, enum difference d)
{
    struct sim_rank *r = &sim->ranks[odd];
    uint32_t         piece_bytes = sim->plan.piece_bytes;
    if (d == SEQ) r->seq += 1;
    if (d == EPOCH) r->group.epoch += 1;
    if (d == GROUP) r->group.id += 1;
    if (d == PIECE) sim->plan.piece_bytes = 4096;
    trial_begin(t, sim, odd);
    sim->plan.piece_bytes = piece_bytes;
}

static void check_report(const struct sim *sim, int rank, int odd)
{
    const struct gmi_op      *op = &sim->ranks[rank].op;
    const struct gmi_trouble *trouble = &op->trouble;
    int                       peer = trouble->peer;
    sim_assert(sim, peer == odd || rank == odd);
    sim_assert(sim, trouble->has_theirs && trouble->theirs.rank == peer);
    struct gmi_descriptor sent = gmi_op_call_to(&sim->ranks[peer].op, rank);
    sim_assert(sim, gmi_descriptor_same(&trouble->theirs, &sent));
    sim_assert(sim, !gmi_descriptor_same(&trouble->theirs, &trouble->ours));
    char ours[160], theirs[160];
    gmi_descriptor_format(&trouble->ours, ours, sizeof ours);
    gmi_descriptor_format(&trouble->theirs, theirs, sizeof theirs);
    sim_assert(sim, strlen(ours) > 10 && strlen(theirs) > 10);
}

/* Did `rank` read the whole descriptor of a rank that calls something else? */
static bool has_read_another_call(const struct sim *sim, int rank)
{
    for (int peer = 0; peer < sim->plan.n_ranks; peer++) {
        if (peer == rank || sim->ends[rank][peer].recv_bytes < GMI_DESCRIPTOR_BYTES) continue;
        struct gmi_descriptor sent = gmi_op_call_to(&sim->ranks[peer].op, rank);
        struct gmi_descriptor expected = gmi_op_call_from(&sim->ranks[rank].op, peer);
        if (!gmi_descriptor_same(&sent, &expected)) return true;
    }
    return false;
}

static void check_all(const struct trial *t, const struct sim *sim, int odd)
{
    int n_reports = 0;
    bool may_end = trial_has_root(t->shape.algo); /* by those whom the odd one's data does not reach */
    for (int rank = 0; rank < t->n_ranks; rank++) {
        gm_status status = sim->ranks[rank].status;
        if (status == GM_ERR_MISMATCH) check_report(sim, rank, odd);
        n_reports += status == GM_ERR_MISMATCH;
        sim_assert(sim, has_read_another_call(sim, rank) == (status == GM_ERR_MISMATCH));
        sim_assert(sim, status == GM_ERR_MISMATCH || status == GM_ERR_PEER_LOST || status == GM_AGAIN ||
                                (status == GM_OK && may_end));
        if (status == GM_OK && rank != odd) trial_check_result(t, sim, rank);
    }
    sim_assert(sim, n_reports > 0);
}

/* In a ring both must have noticed, unless the one was faster and is gone, or stopped before its own descriptor had
 * left. */
static void check_neighbours(const struct sim *sim, int odd)
{
    int      n = sim->plan.n_ranks, right = (odd + 1) % n, left = (odd + n - 1) % n;
    gm_status odd_status = sim->ranks[odd].status, right_status = sim->ranks[right].status;
    sim_assert(sim, odd_status == GM_ERR_MISMATCH || right_status == GM_ERR_MISMATCH);
    if (odd_status == GM_ERR_MISMATCH) sim_assert(sim, sim->ranks[odd].op.trouble.peer == left);
    if (right_status == GM_ERR_MISMATCH) sim_assert(sim, sim->ranks[right].op.trouble.peer == odd);
    bool have_both_heard = sim->ends[left][odd].sent_bytes >= GMI_DESCRIPTOR_BYTES &&
                           sim->ends[odd][right].sent_bytes >= GMI_DESCRIPTOR_BYTES;
    if (!sim->plan.is_failure_fatal && have_both_heard) sim_assert(sim, odd_status == right_status);
}

static void try_difference(const struct gmi_algo *row, enum difference d, const struct gmi_algo *other, int n_ranks,
                           int odd, uint64_t seed)
{
    static struct sim   sim;
    static struct trial trial, odd_trial;
    struct sim_plan     plan = sim_random_plan(n_ranks, seed);
    struct trial_shape  shape = { .algo = row, .count_elems = 2 * (size_t)n_ranks + 1, .dtype = GM_I32, .redop = GM_SUM,
                                  .root = (int)(seed % (uint64_t)n_ranks), .seed = seed };
    struct trial_shape  odd_shape = shape;
    if (!differ(&odd_shape, d, n_ranks, other)) return;
    plan.is_failure_fatal = seed % 2 == 1;
    sim_init(&sim, &plan);
    trial_prepare(&trial, n_ranks, &shape);
    trial_prepare(&odd_trial, n_ranks, &odd_shape);
    for (int rank = 0; rank < n_ranks; rank++) {
        if (rank == odd) {
            begin_odd(&odd_trial, &sim, odd, d);
        } else {
            trial_begin(&trial, &sim, rank);
        }
    }
    bool have_all_ended = sim_run(&sim);
    check_all(&trial, &sim, odd);
    if (is_ring_like(row) && is_ring_like(odd_shape.algo)) check_neighbours(&sim, odd);
    if (plan.is_failure_fatal) sim_assert(&sim, have_all_ended); /* as on all ranks once one has told the others */
    for (int rank = 0; rank < n_ranks; rank++) {
        guard_check(&trial.recv[rank]);
        guard_check(&odd_trial.recv[rank]);
    }
    sim_fini(&sim);
}

static void try_everywhere(const struct gmi_algo *row, enum difference d, const struct gmi_algo *other)
{
    uint64_t n_seeds = test_is_long() ? 50 : 2;
    for (int n = 2; n <= 7 && n <= TEST_MAX_RANKS; n++) {
        if (!trial_fits(row, n) || !trial_fits(other, n)) continue;
        for (int odd = 0; odd < n; odd++) {
            for (uint64_t seed = 0; seed < n_seeds; seed++) {
                try_difference(row, d, other, n, odd, seed + 10 * (uint64_t)odd);
            }
        }
    }
}

static void a_difference_is_reported_with_both_calls(void **state)
{
    enum difference        d = (enum difference)(uintptr_t)*state;
    const struct gmi_algo *row, *other;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (d != ALGORITHM && d != COLLECTIVE) try_everywhere(row, d, row);
        for (size_t j = 0; (d == ALGORITHM || d == COLLECTIVE) && (other = gmi_algo_row(j)) != NULL; j++) {
            if (other != row) try_everywhere(row, d, other);
        }
    }
}

int main(void)
{
    static struct CMUnitTest tests[DIFFERENCES];
    static char              names[DIFFERENCES][96];
    for (int d = 0; d < DIFFERENCES; d++) {
        snprintf(names[d], sizeof names[d], "another %s is reported with both calls", difference_names[d]);
        tests[d] = (struct CMUnitTest){ names[d], a_difference_is_reported_with_both_calls, NULL, NULL,
                                        (void *)(uintptr_t)d };
    }
    return _cmocka_run_group_tests("mismatch", tests, DIFFERENCES, NULL, NULL);
}
