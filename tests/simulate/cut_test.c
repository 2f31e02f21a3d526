/* cut_test.c - the link of one rank is cut at every byte position there is.
 *
 * A rank that fails closes its links here, as a process that ends does. Whatever the position: every rank ends,
 * with its right result or with GM_ERR_PEER_LOST; whoever fails blames a peer whose link is really broken; the
 * first to fail blames the other end of the cut; nothing is written outside of a buffer (the guards). */
#include "tests/support/trial.h"
#include "tests/support/test.h"

/* How many bytes a rank moves over a link when nothing is cut. */
struct volume {
    uint64_t sent_bytes, recv_bytes;
};

static struct sim_plan plan_for(const struct trial_shape *shape, int n_ranks, uint64_t seed)
{
    static const size_t capacities[] = { 1, 7, 100, 4096 }, moves[] = { 0, 3, 1 };
    return (struct sim_plan){ .n_ranks = n_ranks, .seed = seed, .is_failure_fatal = true,
                              .links_for = shape->algo, .links_root = shape->root,
                              .capacity_bytes = capacities[seed % TEST_COUNT(capacities)],
                              .max_move_bytes = moves[seed % TEST_COUNT(moves)] };
}

static struct trial_shape shape_for(const struct gmi_algo *row, int n_ranks, uint64_t seed)
{
    return (struct trial_shape){ .algo = row, .count_elems = (size_t)n_ranks + 1, .dtype = seed % 2 ? GM_F64 : GM_I32,
                                 .redop = GM_SUM, .is_in_place = seed % 3 == 0, .seed = seed,
                                 .root = (int)(seed % (uint64_t)n_ranks) };
}

static void measure(struct trial *t, const struct trial_shape *shape, int n_ranks,
                    struct volume volumes[][SIM_MAX_RANKS])
{
    static struct sim sim;
    struct sim_plan   plan = plan_for(shape, n_ranks, 3);
    sim_init(&sim, &plan);
    trial_prepare(t, n_ranks, shape);
    trial_run(t, &sim);
    for (int a = 0; a < n_ranks; a++) {
        for (int b = 0; b < n_ranks; b++) {
            volumes[a][b] = (struct volume){ sim.ends[a][b].sent_bytes, sim.ends[a][b].recv_bytes };
        }
    }
    sim_fini(&sim);
}

static bool is_cut_pair(const struct sim_plan *p, int a, int b)
{
    return (a == p->cut_rank && b == p->cut_peer) || (a == p->cut_peer && b == p->cut_rank);
}

static void check_rank(const struct trial *t, const struct sim *sim, int rank)
{
    const struct sim_rank    *r = &sim->ranks[rank];
    const struct gmi_trouble *trouble = &r->op.trouble;
    if (r->status == GM_OK) {
        trial_check_result(t, sim, rank);
        return;
    }
    sim_assert(sim, r->status == GM_ERR_PEER_LOST);
    sim_assert(sim, trouble->peer >= 0 && trouble->peer < t->n_ranks && trouble->peer != rank);
    bool has_peer_failed = sim->ranks[trouble->peer].status == GM_ERR_PEER_LOST;
    sim_assert(sim, is_cut_pair(&sim->plan, rank, trouble->peer) || has_peer_failed);
    sim_assert(sim, strcmp(trouble->what, "closed the connection") == 0);
    guard_check(&t->recv[rank]);
    guard_check(&t->send[rank]);
}

/* `was_reached`: the position was before the end of the traffic, so somebody must notice. */
static void cut_once(struct trial *t, const struct trial_shape *shape, struct sim_plan plan, bool was_reached)
{
    static struct sim sim;
    int n_failed = 0;
    bool has_an_end_failed = false;
    sim_init(&sim, &plan);
    trial_prepare(t, plan.n_ranks, shape);
    for (int rank = 0; rank < plan.n_ranks; rank++) trial_begin(t, &sim, rank);
    sim_assert(&sim, sim_run(&sim)); /* nobody waits for ever */
    for (int rank = 0; rank < plan.n_ranks; rank++) {
        check_rank(t, &sim, rank);
        if (sim.ranks[rank].status == GM_OK) continue;
        n_failed++;
        has_an_end_failed |= is_cut_pair(&plan, rank, sim.ranks[rank].op.trouble.peer);
    }
    sim_assert(&sim, (n_failed > 0) == was_reached);
    sim_assert(&sim, has_an_end_failed == was_reached);
    sim_fini(&sim);
}

static void cut_link(struct trial *t, const struct trial_shape *shape, int n_ranks, int rank, int peer,
                     const struct volume *volume)
{
    struct sim_plan plan = plan_for(shape, n_ranks, (uint64_t)(rank + 3 * peer));
    plan.has_cut = true;
    plan.cut_rank = rank;
    plan.cut_peer = peer;
    plan.is_cut_at_once = true;
    cut_once(t, shape, plan, true);
    plan.is_cut_at_once = false;
    for (uint64_t at = 1; at <= volume->sent_bytes; at++) {
        plan.seed++;
        plan.cut_after_sent_bytes = at;
        if (!test_takes(plan.seed)) continue;
        cut_once(t, shape, plan, at < volume->sent_bytes);
    }
    plan.cut_after_sent_bytes = 0;
    for (uint64_t at = 1; at <= volume->recv_bytes; at++) {
        plan.seed++;
        plan.cut_after_recv_bytes = at;
        if (!test_takes(plan.seed)) continue;
        cut_once(t, shape, plan, at < volume->recv_bytes);
    }
}

static void every_byte_position_of_every_link(void **state)
{
    const struct gmi_algo *row = *state;
    static struct volume   volumes[SIM_MAX_RANKS][SIM_MAX_RANKS];
    struct trial           trial = { 0 };
    for (int n = 2; n <= 6 && n <= TEST_MAX_RANKS; n++) {
        if (!trial_fits(row, n)) continue;
        struct trial_shape shape = shape_for(row, n, (uint64_t)n);
        measure(&trial, &shape, n, volumes);
        for (int rank = 0; rank < n; rank++) {
            if (n > 4 && !test_is_long() && rank != 0 && rank != n - 1) continue;
            for (int peer = 0; peer < n; peer++) {
                bool is_used = volumes[rank][peer].sent_bytes + volumes[rank][peer].recv_bytes > 0;
                if (is_used) cut_link(&trial, &shape, n, rank, peer, &volumes[rank][peer]);
            }
        }
    }
    trial_fini(&trial);
}

/* ---- a dead rank --------------------------------------------------------------------------------- */

/* One rank never enters and its process is gone: all its links are at an end. */
static void a_rank_that_is_gone_before_the_call(void **state)
{
    const struct gmi_algo *row = *state;
    static struct sim      sim;
    struct trial           trial = { 0 };
    for (int n = 2; n <= 6; n++) {
        for (int gone = 0; gone < n; gone++) {
            struct trial_shape shape = shape_for(row, n, 4);
            struct sim_plan    plan = plan_for(&shape, n, (uint64_t)gone);
            sim_init(&sim, &plan);
            trial_prepare(&trial, n, &shape);
            for (int peer = 0; peer < n; peer++) gmi_link_close(sim.ends[gone][peer].link);
            for (int rank = 0; rank < n; rank++) {
                if (rank != gone) trial_begin(&trial, &sim, rank);
            }
            sim_assert(&sim, sim_run(&sim));
            for (int rank = 0; rank < n; rank++) {
                if (rank == gone) continue;
                const struct gmi_trouble *trouble = &sim.ranks[rank].op.trouble;
                bool has_ended = trial_has_root(row) && sim.ranks[rank].status == GM_OK;
                sim_assert(&sim, has_ended || sim.ranks[rank].status == GM_ERR_PEER_LOST);
                if (has_ended) continue;
                sim_assert(&sim, trouble->peer == gone || sim.ranks[trouble->peer].status == GM_ERR_PEER_LOST);
            }
            sim_fini(&sim);
        }
    }
    trial_fini(&trial);
}

int main(void)
{
    static struct CMUnitTest tests[160];
    static char              names[160][128];
    size_t                   n = 0;
    const struct gmi_algo   *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL && n + 2 <= TEST_COUNT(tests); i++) {
        snprintf(names[n], sizeof names[n], "%s %s: every byte position of every link", row->name,
                 gm_collective_name(row->collective));
        tests[n] = (struct CMUnitTest){ names[n], every_byte_position_of_every_link, NULL, NULL, (void *)row };
        n++;
        snprintf(names[n], sizeof names[n], "%s %s: a rank that is gone before the call", row->name,
                 gm_collective_name(row->collective));
        tests[n] = (struct CMUnitTest){ names[n], a_rank_that_is_gone_before_the_call, NULL, NULL, (void *)row };
        n++;
    }
    return _cmocka_run_group_tests("cut", tests, n, NULL, NULL);
}
