#include "plan/simulate.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/charge.h"
#include "plan/schedule.h"
#include "plan/simulate_state.h"

/* A burst of work after which a rank looks what has arrived, and lets others have the core. */
static const int64_t SLICE_PS = INT64_C(100) * 1000 * 1000;

/* A rank that goes on and on has to let others onto its core after so long, as Linux's scheduler has it. */
static const int64_t TURN_PS = INT64_C(3) * 1000 * 1000 * 1000;

static const double FORWARD_SHARE = 1.0 / 3; /* of the compute time; the rest is the backward pass */

/* ---- one rank ------------------------------------------------------------------------------------ */

static bool is_over(const struct sim_rank *r) { return r->call == r->sim->n_calls; }

static bool schedule_run(struct sim_rank *r, int64_t at_ps)
{
    if (r->is_run_scheduled) return true;
    r->is_run_scheduled = true;
    return plan_event_add(&r->sim->events, at_ps, PLAN_RANK_RUNS, (uint32_t)r->group.rank);
}

/* When the bucket of a call is ready: the buckets of the backward pass come one after the other. */
static int64_t ready_ps(const struct sim_rank *r, int call)
{
    const struct sim *sim = r->sim;
    int               bucket = call / sim->schedule.n_stages;
    double            share = 1;
    if (sim->overlaps) share = FORWARD_SHARE + (1 - FORWARD_SHARE) * (bucket + 1) / sim->n_buckets;
    return r->begin_ps + (int64_t)((double)r->compute_ps * share) + r->stolen_ps;
}

static void begin_call(struct sim_rank *r)
{
    struct sim            *sim = r->sim;
    const struct gmi_algo *row = sim->schedule.stages[r->call % sim->schedule.n_stages];
    size_t                 elems = plan_bucket_elems(sim->simulation, sim->rounds_ps != NULL ? 0 : r->call / sim->schedule.n_stages);
    struct gmi_request     request = plan_request(row, &sim->codec, r->group.rank, elems, sim->memory);
    gm_traffic             before = r->traffic;
    r->op.group = &r->group;
    r->op.scratch = sim->scratch;
    r->op.work = sim->work + (size_t)r->group.rank * sim->work_bytes;
    gmi_op_set_up(&r->op, row, &request, (uint64_t)r->call + 1);
    r->op.part_bytes = sim->part_bytes;
    gmi_op_begin(&r->op);
    r->traffic = before;
    r->is_in_call = true;
}

/* A round's first call is its barrier, its last one ends the exchange. */
static void note_round(struct sim_rank *r)
{
    struct sim *sim = r->sim;
    int         round = r->call / sim->schedule.n_stages, stage = r->call % sim->schedule.n_stages;
    int64_t     now_ps = sim->network.core_ps;
    if (stage == 0) r->round_ps = now_ps;
    if (stage == sim->schedule.n_stages - 1 && now_ps - r->round_ps > sim->rounds_ps[round]) sim->rounds_ps[round] = now_ps - r->round_ps;
}

static void end_call(struct sim_rank *r)
{
    if (r->sim->rounds_ps != NULL) note_round(r);
    r->traffic.payload_sent_bytes += r->op.traffic.payload_sent_bytes;
    r->traffic.protocol_sent_bytes += r->op.traffic.protocol_sent_bytes;
    r->is_in_call = false;
    r->call++;
}

static void wake(struct sim_rank *r, int64_t now_ps)
{
    struct plan_end *end = r->sleeps_for >= 0 ? sim_end_to(r, r->sleeps_for) : NULL;
    r->idle_ps += now_ps - r->asleep_ps;
    if (end != NULL) end->waited_ps += now_ps - r->asleep_ps;
    r->is_asleep = false;
}

static void sleep_now(struct sim_rank *r, int64_t now_ps)
{
    gmi_op_interest(&r->op, NULL);
    r->sleeps_for = gmi_op_waits_for(&r->op);
    r->asleep_ps = now_ps;
    r->is_asleep = true;
}

/* Goes on until it must wait: for bytes, for a bucket, or because the slice is over. The op's status. */
static gm_status go_on(struct sim_rank *r)
{
    struct sim          *sim = r->sim;
    struct plan_network *n = &sim->network;
    while (!is_over(r)) {
        if (!r->is_in_call) {
            int64_t at_ps = ready_ps(r, r->call);
            if (at_ps > n->core_ps) return schedule_run(r, at_ps) ? GM_OK : GM_ERR_NOMEM;
            begin_call(r);
            n->core_ps += (int64_t)((double)sim->turns.call_ps * r->slowness);
        }
        gm_status status = gmi_op_progress(&r->op);
        if (status == GM_AGAIN) {
            if (n->is_slice_over && r->core != NULL) return GM_OK; /* it is ready, and its core goes on with it */
            if (n->is_slice_over) return schedule_run(r, n->core_ps) ? GM_OK : GM_ERR_NOMEM;
            sleep_now(r, n->core_ps);
            return GM_OK;
        }
        if (status != GM_OK) return status;
        end_call(r);
    }
    r->finish_ps = n->core_ps;
    return GM_OK;
}

/* In its last tries a rank that found nothing made so many calls; then it gave the core up. */
static int64_t look_ps(const struct sim_rank *r)
{
    return (int64_t)(r->slowness * (double)(r->sim->turns.yield_ps + r->sim->turns.look_ps + r->n_looks * r->sim->turns.miss_ps));
}

/* Does it try again and again, at that time, rather than sleep? Who is through waits for the others in the same way. */
static bool is_trying(const struct sim_rank *r, int64_t at_ps)
{
    return r->moved_ps > 0 && (r->is_in_call || is_over(r)) && at_ps - r->moved_ps < r->sim->turns.try_ps;
}

/* A burst on a core, from now_ps on, or `late_ps` later. A rank that is woken by what it has no use for sleeps on. */
static gm_status run(struct sim_rank *r, int64_t late_ps)
{
    struct sim          *sim = r->sim;
    struct plan_network *n = &sim->network;
    bool                 was_asleep = r->is_asleep, had_slept = was_asleep && !is_trying(r, n->now_ps);
    uint64_t             before_bytes = r->op.moved_bytes;
    int                  before_call = r->call;
    n->slowness = r->slowness;
    sim->charge.add_ps = sim->add_ps * r->slowness;
    sim->charge.add_kept_ps = sim->add_kept_ps * r->slowness;
    n->core_ps = n->now_ps + late_ps + (had_slept ? (int64_t)((double)sim->turns.wake_ps * r->slowness) : 0);
    n->slice_end_ps = n->core_ps + SLICE_PS;
    n->is_slice_over = false;
    n->n_misses = 0;
    r->is_ready = false;
    if (was_asleep) wake(r, n->now_ps);
    gm_status status = go_on(r);
    bool      has_moved = r->call != before_call || r->op.moved_bytes != before_bytes;
    if (n->is_slice_over) r->is_ready = true;
    if (r->is_asleep) n->core_ps += (int64_t)((double)(sim->turns.look_ps + sim->turns.yield_ps) * r->slowness);
    if (was_asleep && r->is_asleep && !has_moved && had_slept) {
        n->core_ps = n->now_ps;
        r->asleep_ps = n->now_ps;
    }
    r->n_looks = n->n_misses;
    if (has_moved) r->moved_ps = n->core_ps;
    r->busy_until_ps = n->core_ps;
    r->core_ps += n->core_ps - n->now_ps;
    if (sim->overlaps && n->now_ps < r->begin_ps + r->compute_ps + r->stolen_ps) r->stolen_ps += n->core_ps - n->now_ps;
    return status;
}

/* ---- cores --------------------------------------------------------------------------------------- *
 *
 * The ranks of a core have it in turn. Who finds nothing more to do gives it up; then the next one has it that has something to
 * do, and those between the two, who only try, take a moment each. While nobody has anything to do they go on trying in turn. */

/* Who has the core next, and how much later: NULL, nobody has anything to do. */
static struct sim_rank *next_ready(const struct sim *sim, const struct sim_core *core, int64_t *late_ps)
{
    int64_t          now_ps = sim->network.now_ps;
    struct sim_rank *r = core->at;
    *late_ps = 0;
    if (r->is_ready && now_ps - core->since_ps < TURN_PS) return r;
    for (int i = 0; i < core->n_ranks; i++) {
        r = r->next_on_core;
        if (r != core->at && (r->is_ready || is_trying(r, now_ps))) *late_ps += sim->turns.switch_ps;
        if (r->is_ready) return r;
        if (r != core->at && is_trying(r, now_ps)) *late_ps += look_ps(r);
    }
    return NULL;
}

static gm_status give_core(struct sim *sim, struct sim_core *core)
{
    struct sim_rank *r;
    int64_t          late_ps;
    while (!core->is_busy && (r = next_ready(sim, core, &late_ps)) != NULL) {
        if (r != core->at) core->since_ps = sim->network.now_ps;
        core->at = r;
        gm_status status = run(r, late_ps);
        if (status != GM_OK) return status;
        core->idle_ps = sim->network.core_ps;
        if (sim->network.core_ps == sim->network.now_ps) continue;
        core->is_busy = true;
        if (!plan_event_add(&sim->events, sim->network.core_ps, PLAN_CORE_IS_FREE, (uint32_t)(core - sim->cores))) return GM_ERR_NOMEM;
    }
    return GM_OK;
}

/* The core is idle: how long until the rank looks again, as those who try have it in turn. */
static int64_t until_look_ps(const struct sim *sim, const struct sim_core *core, const struct sim_rank *wanted)
{
    int64_t now_ps = sim->network.now_ps, round_ps = 0, at_ps = 0;
    int     n_trying = 0;
    if (!is_trying(wanted, now_ps)) return 0;
    const struct sim_rank *r = core->at;
    for (int i = 0; i < core->n_ranks; i++, r = r->next_on_core) n_trying += is_trying(r, now_ps);
    for (int i = 0; i < core->n_ranks; i++) {
        r = r->next_on_core;
        if (!is_trying(r, now_ps)) continue;
        if (n_trying > 1) round_ps += sim->turns.switch_ps;
        if (r == wanted) at_ps = round_ps;
        round_ps += look_ps(r);
    }
    if (round_ps == 0) return 0;
    int64_t into_ps = (now_ps - core->idle_ps) % round_ps;
    return at_ps >= into_ps ? at_ps - into_ps : at_ps + round_ps - into_ps;
}

static gm_status want_core(struct sim *sim, struct sim_rank *r)
{
    struct sim_core *core = r->core;
    if (r->is_ready) return GM_OK;
    r->is_ready = true;
    if (core->is_busy) return GM_OK;
    int64_t late_ps = until_look_ps(sim, core, r);
    if (late_ps == 0) return give_core(sim, core);
    core->at = r; /* its turn comes then */
    core->since_ps = sim->network.now_ps + late_ps;
    core->is_busy = true;
    bool is_added = plan_event_add(&sim->events, sim->network.now_ps + late_ps, PLAN_CORE_IS_FREE, (uint32_t)(core - sim->cores));
    return is_added ? GM_OK : GM_ERR_NOMEM;
}

/* It may have something to do. */
static gm_status stir(struct sim *sim, struct sim_rank *r)
{
    if (is_over(r) || r->is_run_scheduled) return GM_OK;
    if (r->core != NULL) return want_core(sim, r);
    if (r->busy_until_ps > sim->network.now_ps) return schedule_run(r, r->busy_until_ps) ? GM_OK : GM_ERR_NOMEM;
    return run(r, 0);
}

/* ---- the machine --------------------------------------------------------------------------------- */

static gm_status happens(struct sim *sim, const struct plan_event *event)
{
    if (event->kind == PLAN_RANK_RUNS) {
        struct sim_rank *r = &sim->ranks[event->target];
        r->is_run_scheduled = false;
        return stir(sim, r);
    }
    if (event->kind == PLAN_CORE_IS_FREE) {
        sim->cores[event->target].is_busy = false;
        return give_core(sim, &sim->cores[event->target]);
    }
    int rank = plan_network_happens(&sim->network, event);
    return rank < 0 || !sim->ranks[rank].is_in_call ? GM_OK : stir(sim, &sim->ranks[rank]);
}

static gm_status run_all(struct sim *sim, gm_error *error)
{
    struct plan_event event;
    plan_charge_to(&sim->charge);
    gm_status status = GM_OK;
    while (status == GM_OK && plan_event_take(&sim->events, &event)) {
        sim->network.now_ps = event.at_ps;
        status = happens(sim, &event);
        if (sim->network.is_out_of_memory) status = GM_ERR_NOMEM;
    }
    plan_charge_to(NULL);
    if (status == GM_ERR_NOMEM) return gmi_error_set(error, status, "no memory to simulate %d ranks", sim->n_ranks);
    GMI_CHECK(status == GM_OK); /* links that lose nothing and ranks that call the same */
    for (int rank = 0; rank < sim->n_ranks; rank++) GMI_CHECK(is_over(&sim->ranks[rank]));
    return GM_OK;
}

gm_status plan_simulate(const struct plan_simulation *simulation, struct plan_simulation_result *result, gm_error *error)
{
    struct sim *sim = gmi_alloc(1, sizeof *sim);
    int64_t     begin_ns = gmi_now_ns();
    *result = (struct plan_simulation_result){ 0 };
    if (sim == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a simulation");
    gm_status status = sim_check(simulation, error);
    if (status == GM_OK) status = sim_init(sim, simulation, error);
    for (int rank = 0; status == GM_OK && rank < sim->n_ranks; rank++) {
        struct sim_rank *r = &sim->ranks[rank];
        if (!schedule_run(r, ready_ps(r, 0))) status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for %d ranks", sim->n_ranks);
    }
    if (status == GM_OK) status = run_all(sim, error);
    if (status == GM_OK) status = sim_result(sim, result, error);
    if (status == GM_OK) result->wall_s = (double)(gmi_now_ns() - begin_ns) / 1e9;
    sim_fini(sim);
    gmi_free(sim);
    return status;
}
