/* simulated_test.c - many seeded faults with all ranks in one thread (tests/support/sim.h), counted as those on real processes
 * are (chaos_test.c): the kinds that need an addressed byte, and far more of them.
 *
 *     make chaos                      thousands (CHAOS_SIMULATED, from CHAOS_SEED on)
 *     make test                       some of each row
 *     CHAOS_SEED=4711 CHAOS_SIMULATED=1 build/tests/tests/chaos/simulated_test      one again
 *
 * Links are slow, partial and late by seed in every run. There is no control connection here: a rank that fails closes its
 * links, as a process that ends does, and the first that fails tells the cause, which it is in the library that travels. */
#include <malloc.h>

#include "net/socket.h"
#include "tests/support/test.h"
#include "tests/support/trial.h"

enum kind { LATE, CUT, CUT_AT_ONCE, DEATH, REFUSED, FLIPPED, N_KINDS };
static const char *const kind_names[] = { "partial and late", "cut", "cut before", "death", "refused send", "flipped bit" };

enum { MAX_RUNS = 100000, SHORT_RUNS = 240, MAX_STEPS = 5000000 };

struct tally {
    int n_runs, n_happened, n_detected, max_steps;
};

struct chaos {
    enum kind          kind;
    struct sim_plan    plan;
    struct trial_shape shape;
};

static long number_from_env(const char *name, long fallback)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtol(text, NULL, 10) : fallback;
}

/* ---- drawing --------------------------------------------------------------------------------------- */

static const struct gmi_algo *draw_algo(struct gmi_rng *rng, int n_ranks)
{
    size_t n_rows = 0;
    while (gmi_algo_row(n_rows) != NULL) n_rows++;
    for (;;) {
        const struct gmi_algo *row = gmi_algo_row(gmi_rng_next_below(rng, n_rows));
        if (trial_fits(row, n_ranks)) return row;
    }
}

static struct chaos draw(uint64_t seed)
{
    struct gmi_rng rng = { .key = gmi_rng_key(seed, 0x51C4A05) };
    int            n = 2 + (int)gmi_rng_next_below(&rng, TEST_MAX_RANKS - 2);
    struct chaos   c = { .kind = (enum kind)(seed % N_KINDS) };
    const struct gmi_algo *row = draw_algo(&rng, n);
    c.shape = (struct trial_shape){ .algo = row, .count_elems = gmi_rng_next_below(&rng, 400), .dtype = seed % 3 ? GM_F32 : GM_I64,
                                    .redop = GM_SUM, .is_in_place = gmi_rng_next_below(&rng, 2), .seed = seed,
                                    .root = (int)gmi_rng_next_below(&rng, (uint64_t)n) };
    struct sim_plan *p = &c.plan;
    *p = sim_random_plan(n, seed);
    p->is_failure_fatal = true;
    p->is_checked = c.kind == FLIPPED || gmi_rng_next_below(&rng, 4) == 0;
    p->cut_rank = p->death_rank = (int)gmi_rng_next_below(&rng, (uint64_t)n);
    p->cut_peer = (p->cut_rank + 1 + (int)gmi_rng_next_below(&rng, (uint64_t)n - 1)) % n;
    uint64_t at = 1 + gmi_rng_next_below(&rng, gmi_rng_next_below(&rng, 2) ? 200 : 3000);
    bool     is_sent = gmi_rng_next_below(&rng, 2);
    p->has_cut = c.kind != LATE && c.kind != DEATH;
    p->is_cut_at_once = c.kind == CUT_AT_ONCE;
    p->has_death = c.kind == DEATH;
    p->death_after_bytes = at - 1;
    if (c.kind == CUT && is_sent) p->cut_after_sent_bytes = at;
    if (c.kind == CUT && !is_sent) p->cut_after_recv_bytes = at;
    if (c.kind == REFUSED) p->refused_after_sent_bytes = at;
    if (c.kind == FLIPPED) p->flipped_recv_bit = 1 + gmi_rng_next_below(&rng, at * 8);
    return c;
}

/* ---- judging --------------------------------------------------------------------------------------- */

/* Who is to blame by what this rank knows, as comm/engine.c has it. */
static int culprit_of(const struct sim *sim, int rank)
{
    const struct gmi_trouble *t = &sim->ranks[rank].op.trouble;
    return t->status == GM_ERR_PEER_LOST && gmi_socket_is_our_trouble(t->sys_errno) ? rank : t->peer;
}

static bool is_guilty(const struct chaos *c, int culprit)
{
    if (c->kind == DEATH) return culprit == c->plan.death_rank;
    if (c->kind == REFUSED) return culprit == c->plan.cut_rank;
    if (c->kind == FLIPPED) return culprit == c->plan.cut_peer; /* who sent it */
    return culprit == c->plan.cut_rank || culprit == c->plan.cut_peer;
}

static bool is_right_status(const struct chaos *c, gm_status status)
{
    return status == GM_ERR_PEER_LOST || (c->kind == FLIPPED && status == GM_ERR_CORRUPT);
}

/* The survivors that failed, in the order in which they did. */
static int list_failed(const struct sim *sim, int *ranks)
{
    int n = 0;
    for (int k = 0; k < sim->plan.n_ranks; k++) {
        if (sim->ranks[k].status == GM_OK || sim->ranks[k].is_dead) continue;
        int at = n++;
        for (; at > 0 && sim->ranks[ranks[at - 1]].ended_at > sim->ranks[k].ended_at; at--) ranks[at] = ranks[at - 1];
        ranks[at] = k;
    }
    return n;
}

static void judge(const struct chaos *c, struct trial *t, struct sim *sim, struct tally *tally)
{
    int failed[SIM_MAX_RANKS], n = list_failed(sim, failed);
    for (int k = 0; k < c->plan.n_ranks; k++) {
        if (sim->ranks[k].status == GM_OK) trial_check_result(t, sim, k);
        guard_check(&t->recv[k]);
        guard_check(&t->send[k]);
    }
    sim_assert(sim, c->kind != LATE || n == 0); /* no false alarms */
    tally->n_happened += c->kind == LATE || n > 0;
    tally->n_detected += n;
    for (int i = 0; i < n; i++) {
        int                    culprit = culprit_of(sim, failed[i]);
        const struct sim_rank *accused = &sim->ranks[culprit];
        bool has_ended_before = accused->status != GM_OK && accused->ended_at <= sim->ranks[failed[i]].ended_at;
        sim_assert(sim, is_right_status(c, sim->ranks[failed[i]].status));
        sim_assert(sim, is_guilty(c, culprit) || (i > 0 && has_ended_before));
    }
    if (n > 0) {
        int steps = sim->ranks[failed[n - 1]].ended_at - sim->ranks[failed[0]].ended_at;
        if (steps > tally->max_steps) tally->max_steps = steps;
    }
}

static void run_once(uint64_t seed, struct trial *t, struct tally *tally)
{
    static struct sim sim;
    struct chaos      c = draw(seed);
    sim_init(&sim, &c.plan);
    trial_prepare(t, c.plan.n_ranks, &c.shape);
    for (int k = 0; k < c.plan.n_ranks; k++) trial_begin(t, &sim, k);
    tally += c.kind;
    tally->n_runs++;
    sim_assert(&sim, sim_run(&sim)); /* nobody waits for ever */
    sim_assert(&sim, sim.n_steps < MAX_STEPS);
    judge(&c, t, &sim, tally);
    sim_fini(&sim);
}

/* ---- many ------------------------------------------------------------------------------------------ */

static void print_table(const struct tally *tallies)
{
    struct tally all = { 0 };
    printf("# %-17s %6s %6s %9s %10s %8s %6s %6s\n", "simulated fault", "runs", "done", "detected", "max steps", "culprits", "hangs", "sums");
    for (int k = 0; k < N_KINDS; k++) {
        const struct tally *t = &tallies[k];
        printf("# %-17s %6d %6d %9d %10d %8d %6d %6d\n", kind_names[k], t->n_runs, t->n_happened, t->n_detected, t->max_steps, 0, 0, 0);
        all.n_runs += t->n_runs;
        all.n_happened += t->n_happened;
        all.n_detected += t->n_detected;
        if (t->max_steps > all.max_steps) all.max_steps = t->max_steps;
    }
    printf("# %-17s %6d %6d %9d %10d %8d %6d %6d\n", "all", all.n_runs, all.n_happened, all.n_detected, all.max_steps, 0, 0, 0);
    fflush(stdout);
}

/* A run that is not right ends the test, with the plan and the seed. */
static void every_simulated_fault_ends_in_the_right_error_or_in_none(void **state)
{
    static struct tally tallies[N_KINDS];
    struct trial        trial = { 0 };
    uint64_t            seed = (uint64_t)number_from_env("CHAOS_SEED", 1);
    long                n_runs = number_from_env("CHAOS_SIMULATED", SHORT_RUNS);
    size_t              used_bytes = 0;
    (void)state;
    for (long i = 0; i < n_runs && i < MAX_RUNS; i++) {
        if (i == n_runs / 2) used_bytes = mallinfo2().uordblks; /* what the trial keeps is there by now, nearly */
        run_once(seed + (uint64_t)i, &trial, tallies);
    }
    print_table(tallies);
    assert_true(n_runs < 100 || mallinfo2().uordblks < used_bytes + (1 << 20)); /* no leak */
    trial_fini(&trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_simulated_fault_ends_in_the_right_error_or_in_none) };
    return cmocka_run_group_tests_name("simulated chaos", tests, NULL, NULL);
}
