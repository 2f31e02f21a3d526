#include "plan/simulate_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"

static const double PS_PER_US = 1e6, PS_PER_MS = 1e9, PS_PER_S = 1e12, MAX_STEP_MS = 1e9;

enum { PAGE_BYTES = 4096, MAX_RANKS = 100000, MAX_BUCKETS = 4096 };

/* A grain as bursts of TCP have it; larger where a simulation would have more transfers than this. */
static const uint64_t GRAIN_BYTES = 64 * 1024, MAX_TRANSFERS = 8 * 1000 * 1000, BUFFER_BYTES = 4 * 1024 * 1024;

/* ---- what is asked for --------------------------------------------------------------------------- */

#define REFUSE(...) gmi_error_set(error, GM_ERR_ARG, __VA_ARGS__)

static bool is_from_0(double value, double to) { return value >= 0 && value <= to; }

static gm_status check_links(const struct plan_links *l, gm_error *error)
{
    const struct {
        const char *what;
        double      value, most;
    } all[] = {
        { "latency in us", l->latency_us, 1e9 },           { "bandwidth in bytes per second", l->bandwidth_Bps, 1e15 },
        { "local latency in us", l->local_latency_us, 1e9 }, { "local bandwidth in bytes per second", l->local_bandwidth_Bps, 1e15 },
        { "time of a call in us", l->call_us, 1e9 },       { "time to wake up in us", l->wake_us, 1e9 },
        { "burst in bytes", l->burst_bytes, 1e12 },
        { "speed of copies in bytes per second", l->copy_Bps, 1e15 }, { "speed of sums in bytes per second", l->add_Bps, 1e15 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!is_from_0(all[i].value, all[i].most)) {
            return REFUSE("the %s is %g; it must be between 0 and %g", all[i].what, all[i].value, all[i].most);
        }
    }
    return GM_OK;
}

static gm_status check_stragglers(const struct plan_simulation *s, gm_error *error)
{
    if (s->n_stragglers < 0 || s->n_stragglers > PLAN_MAX_STRAGGLERS) {
        return REFUSE("%d stragglers; at most %d can be given", s->n_stragglers, PLAN_MAX_STRAGGLERS);
    }
    for (int i = 0; i < s->n_stragglers; i++) {
        const struct plan_straggler *x = &s->stragglers[i];
        if (x->rank < 0 || x->rank >= s->n_ranks) {
            return REFUSE("straggler %d is no rank: there are ranks 0 to %d", x->rank, s->n_ranks - 1);
        }
        if (!(x->factor >= 0.001) || x->factor > 1e6) {
            return REFUSE("straggler %d is slower by %g times; that must be between 0.001 and 1000000", x->rank, x->factor);
        }
        if (!is_from_0(x->delay_ms, MAX_STEP_MS)) return REFUSE("straggler %d is late by %g ms; that must be 0 or more", x->rank, x->delay_ms);
    }
    return GM_OK;
}

gm_status sim_check(const struct plan_simulation *s, gm_error *error)
{
    const char            *why;
    const struct gmi_wire *wire;
    if (s->n_ranks < 1 || s->n_ranks > MAX_RANKS) return REFUSE("%d workers; 1 to %d can be simulated", s->n_ranks, MAX_RANKS);
    if (s->ranks_per_host < 0) return REFUSE("%d workers per host; that must be 1 or more", s->ranks_per_host);
    if (s->cores_per_host < 0) return REFUSE("%d cores per host; that must be 1 or more", s->cores_per_host);
    if (s->bytes % sizeof(float) != 0 || s->bytes > UINT64_C(1) << 40) {
        return REFUSE("a gradient of %llu bytes; it must be a multiple of 4, and at most 1 TiB", (unsigned long long)s->bytes);
    }
    if (!is_from_0(s->compute_ms, MAX_STEP_MS)) return REFUSE("a compute time of %g ms; it must be between 0 and %g", s->compute_ms, MAX_STEP_MS);
    if (!is_from_0(s->jitter, 100)) return REFUSE("a jitter of %g; it must be between 0 and 100", s->jitter);
    if (s->n_buckets < 0 || s->n_buckets > MAX_BUCKETS) return REFUSE("%d buckets; 1 to %d can be simulated", s->n_buckets, MAX_BUCKETS);
    if (s->n_rounds < 0 || s->n_rounds > SIM_MAX_ROUNDS) return REFUSE("%d rounds; 0 to %d can be simulated", s->n_rounds, SIM_MAX_ROUNDS);
    if (s->n_rounds > 0 && (s->n_buckets > 1 || s->overlaps)) return REFUSE("rounds are of one bucket, and overlap with nothing");
    if (s->grain_bytes % 8 != 0) return REFUSE("a grain of %llu bytes; it must be a multiple of 8", (unsigned long long)s->grain_bytes);
    if (s->wire != NULL && !gmi_wire_find(s->wire, &wire)) {
        return REFUSE("there is no wire format '%s'; there are %s", s->wire, gmi_wire_names());
    }
    if (s->algorithm == NULL || plan_schedule_find(s->algorithm).n_stages == 0) {
        return REFUSE("there is no algorithm '%s' to simulate", s->algorithm == NULL ? "" : s->algorithm);
    }
    gm_status status = check_links(&s->links, error);
    if (status == GM_OK) status = check_stragglers(s, error);
    if (status == GM_OK && !plan_can_simulate(s, &why)) {
        status = gmi_error_set(error, GM_ERR_UNSUPPORTED, "%s with %d workers cannot be simulated: %s", s->algorithm, s->n_ranks, why);
    }
    return status;
}

/* ---- ports --------------------------------------------------------------------------------------- */

static uint32_t slot_of(uint32_t n_slots, int peer) { return (uint32_t)gmi_mix64((uint64_t)peer) & (n_slots - 1); }

struct plan_end *sim_end_to(const struct sim_rank *r, int peer)
{
    if (r->n_slots == 0) return NULL;
    for (uint32_t slot = slot_of(r->n_slots, peer);; slot = (slot + 1) & (r->n_slots - 1)) {
        if (r->ends[slot] == NULL || r->ends[slot]->port.peer == peer) return r->ends[slot];
    }
}

static void put_end(struct sim_rank *r, struct plan_end *end)
{
    uint32_t slot = slot_of(r->n_slots, end->port.peer);
    while (r->ends[slot] != NULL) slot = (slot + 1) & (r->n_slots - 1);
    r->ends[slot] = end;
}

static bool make_room(struct sim_rank *r)
{
    if (2 * (r->n_peers + 1) <= r->n_slots) return true;
    struct plan_end **old = r->ends;
    uint32_t          n_old = r->n_slots, n_new = n_old == 0 ? 4 : 2 * n_old;
    struct plan_end **ends = gmi_alloc(n_new, sizeof(struct plan_end *));
    if (ends == NULL) return false;
    r->ends = ends;
    r->n_slots = n_new;
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i] != NULL) put_end(r, old[i]);
    }
    gmi_free(old);
    return true;
}

static struct gmi_port *find_port(const struct gmi_group *group, int peer)
{
    struct plan_end *end = sim_end_to((const struct sim_rank *)group, peer);
    GMI_CHECK(end != NULL); /* the algorithm has said that it needs this link */
    return &end->port;
}

struct wanted {
    struct sim *sim;
    int         rank;
    bool        is_out_of_memory;
};

static void connect_to(void *user, int peer)
{
    struct wanted   *w = user;
    struct sim_rank *a = &w->sim->ranks[w->rank], *b = &w->sim->ranks[peer];
    struct plan_end *ends[2];
    if (w->is_out_of_memory || peer == w->rank || sim_end_to(a, peer) != NULL) return;
    if (!make_room(a) || !make_room(b) || !plan_network_connect(&w->sim->network, w->rank, peer, ends)) {
        w->is_out_of_memory = true;
        return;
    }
    put_end(a, ends[0]);
    put_end(b, ends[1]);
    ends[0]->on_one_core = ends[1]->on_one_core = a->core != NULL && a->core == b->core;
    a->n_peers++;
    b->n_peers++;
}

static bool connect_ranks(struct sim *sim)
{
    for (int stage = 0; stage < sim->schedule.n_stages; stage++) {
        const struct gmi_algo *row = sim->schedule.stages[stage];
        for (int rank = 0; rank < sim->n_ranks; rank++) {
            struct wanted    w = { .sim = sim, .rank = rank };
            struct gmi_shape shape = { .rank = rank, .n_ranks = sim->n_ranks, .root = 0, .layout = &sim->layout };
            (row->peers != NULL ? row->peers : gmi_ring_peers)(&shape, connect_to, &w);
            if (w.is_out_of_memory) return false;
        }
    }
    return true;
}

/* ---- memory -------------------------------------------------------------------------------------- */

/* Addresses, of which only touched pages take memory; small pages, since few bytes in many places are touched. */
static uint8_t *reserve(size_t n_bytes)
{
    void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    (void)madvise(at, n_bytes, MADV_NOHUGEPAGE);
    return at;
}

static void release(uint8_t *at, size_t n_bytes)
{
    if (at != NULL) munmap(at, n_bytes);
}

static size_t round_up(size_t n) { return (n / PAGE_BYTES + 1) * PAGE_BYTES; }

static size_t most_work_bytes(const struct sim *sim)
{
    size_t most = 0;
    for (int stage = 0; stage < sim->schedule.n_stages; stage++) {
        for (int rank = 0; rank < sim->n_ranks; rank++) {
            struct gmi_group   group = { .rank = rank, .n_ranks = sim->n_ranks, .layout = sim->layout };
            struct gmi_request request = plan_request(sim->schedule.stages[stage], &sim->codec, rank,
                                                      plan_bucket_elems(sim->simulation, 0), sim->memory);
            size_t n_bytes = gmi_op_work_bytes(&request, sim->schedule.stages[stage], &group);
            most = n_bytes > most ? n_bytes : most;
        }
    }
    return most;
}

static bool reserve_memory(struct sim *sim)
{
    sim->memory_bytes = round_up(sim->simulation->bytes);
    sim->memory = reserve(sim->memory_bytes);
    sim->scratch = reserve(GMI_SCRATCH_BYTES);
    if (sim->memory == NULL || sim->scratch == NULL) return false;
    sim->work_bytes = round_up(most_work_bytes(sim));
    if (sim->work_bytes > SIZE_MAX / 2 / (size_t)sim->n_ranks) return false;
    sim->work = reserve(sim->work_bytes * (size_t)sim->n_ranks);
    return sim->work != NULL;
}

/* ---- the beginning ------------------------------------------------------------------------------- */

static double ps_per_byte(double Bps) { return Bps > 0 ? PS_PER_S / Bps : 0; }

static int64_t ps(double value, double unit_ps) { return (int64_t)(value * unit_ps + 0.5); }

/* Bytes that a rank sends at least, over grains that are not exceeded by few. */
static uint64_t choose_grain(const struct sim *sim)
{
    const struct plan_simulation *s = sim->simulation;
    double bytes = 2.0 * (sim->n_ranks - 1) * (double)s->bytes;
    double grain = bytes / (double)MAX_TRANSFERS;
    if (s->grain_bytes > 0) return s->grain_bytes;
    if (grain <= (double)GRAIN_BYTES) return GRAIN_BYTES;
    return (uint64_t)ceil(grain / (double)GRAIN_BYTES) * GRAIN_BYTES;
}

/* What a host's ranks walk through together: gradients, and what algorithms keep. */
static void set_turns(struct sim *sim)
{
    double   here = sim->ranks_per_host < sim->n_ranks ? sim->ranks_per_host : sim->n_ranks;
    uint64_t bucket_bytes = sim->simulation->bytes / (uint64_t)sim->n_buckets;
    sim->turns = plan_turns_of(sim->simulation->turns, here * (double)(bucket_bytes + sim->work_bytes));
    sim->network.costs.turns = &sim->turns;
    sim->network.costs.scratch = sim->charge.scratch = sim->scratch;
    sim->add_ps = sim->turns.add_ps;
    sim->add_kept_ps = sim->turns.add_kept_ps;
}

static void set_costs(struct sim *sim)
{
    const struct plan_links *l = &sim->simulation->links;
    uint64_t                 grain_bytes = choose_grain(sim);
    struct plan_network_costs costs = {
        .latency_ps = ps(l->latency_us, PS_PER_US), .local_latency_ps = ps(l->local_latency_us, PS_PER_US),
        .byte_ps = ps_per_byte(l->bandwidth_Bps), .local_byte_ps = ps_per_byte(l->local_bandwidth_Bps),
        .call_ps = ps(l->call_us, PS_PER_US), .copy_ps = ps_per_byte(l->copy_Bps),
        .burst_bytes = (size_t)l->burst_bytes, .grain_bytes = grain_bytes, .buffer_bytes = grain_bytes * 4 > BUFFER_BYTES ? grain_bytes * 4 : BUFFER_BYTES,
    };
    sim->turns.wake_ps = ps(l->wake_us, PS_PER_US);
    sim->add_ps = sim->add_kept_ps = ps_per_byte(l->add_Bps);
    sim->charge.core_ps = &sim->network.core_ps;
    size_t part_bytes = gmi_part_bytes(&sim->ranks[0].group);
    sim->part_bytes = 2 * grain_bytes > part_bytes ? 2 * grain_bytes : part_bytes;
    plan_network_init(&sim->network, &costs, &sim->events, sim->layout.host, sim->cards);
}

/* A host's ranks in turn, as launch/ binds workers. */
static void put_on_core(struct sim *sim, struct sim_rank *r, int rank)
{
    if (sim->cores == NULL) return;
    int host = sim->layout.host[rank], place = sim->layout.place[rank];
    r->core = &sim->cores[(size_t)host * (size_t)sim->cores_per_host + (size_t)(place % sim->cores_per_host)];
    struct sim_rank *last = r->core->at;
    r->next_on_core = last == NULL ? r : last->next_on_core;
    if (last != NULL) last->next_on_core = r;
    r->core->at = r; /* the last one, so that the first comes next */
    r->core->n_ranks++;
}

static void begin_rank(struct sim *sim, int rank)
{
    const struct plan_simulation *s = sim->simulation;
    struct sim_rank              *r = &sim->ranks[rank];
    double                        compute_ms = s->compute_ms * (1 + s->jitter * gmi_rng_unit(s->seed, (uint64_t)rank));
    *r = (struct sim_rank){ .sim = sim, .slowness = 1, .sleeps_for = -1 };
    r->group = (struct gmi_group){ .rank = rank, .n_ranks = sim->n_ranks, .id = 1, .layout = sim->layout, .find_port = find_port,
                                   .kind = sim->layout.n_hosts > 1 ? GMI_KIND_NETWORK : GMI_KIND_LOOPBACK };
    put_on_core(sim, r, rank);
    for (int i = 0; i < s->n_stragglers; i++) {
        if (s->stragglers[i].rank != rank) continue;
        r->slowness *= s->stragglers[i].factor;
        r->begin_ps += ps(s->stragglers[i].delay_ms, PS_PER_MS);
    }
    r->compute_ps = ps(compute_ms * r->slowness, PS_PER_MS);
    if (s->n_ranks == 1) {
        r->call = sim->n_calls;
        r->finish_ps = r->begin_ps + r->compute_ps;
    }
}

gm_status sim_init(struct sim *sim, const struct plan_simulation *s, gm_error *error)
{
    const struct gmi_wire *wire = NULL;
    *sim = (struct sim){ .simulation = s, .n_ranks = s->n_ranks, .ranks_per_host = s->ranks_per_host > 0 ? s->ranks_per_host : 1,
                         .cores_per_host = s->cores_per_host == 0 && s->turns != NULL ? s->ranks_per_host : s->cores_per_host, .n_buckets = plan_n_buckets(s), .overlaps = s->overlaps,
                         .schedule = plan_schedule_find(s->algorithm) };
    int n_cores = sim->cores_per_host > 0 ? sim->cores_per_host : s->n_ranks;
    if (s->n_rounds > 0) sim->schedule = plan_schedule_behind_barrier(&sim->schedule, s->n_ranks, n_cores);
    sim->n_calls = (s->n_rounds > 0 ? s->n_rounds : sim->n_buckets) * sim->schedule.n_stages;
    if (s->wire != NULL) gmi_wire_find(s->wire, &wire);
    sim->codec = plan_charging_codec(wire, &sim->lean);
    if (plan_layout(&sim->layout, s->n_ranks, sim->ranks_per_host) != GM_OK) goto no_memory;
    sim->cards = gmi_alloc((size_t)sim->layout.n_hosts, sizeof *sim->cards);
    if (sim->cores_per_host > 0) sim->cores = gmi_alloc((size_t)sim->layout.n_hosts * (size_t)sim->cores_per_host, sizeof *sim->cores);
    sim->ranks = gmi_alloc((size_t)s->n_ranks, sizeof *sim->ranks);
    if (s->n_rounds > 0) sim->rounds_ps = gmi_alloc((size_t)s->n_rounds, sizeof *sim->rounds_ps);
    if ((sim->rounds_ps == NULL && s->n_rounds > 0) || sim->cards == NULL || (sim->cores == NULL && sim->cores_per_host > 0) || sim->ranks == NULL) goto no_memory;
    for (int rank = 0; rank < s->n_ranks; rank++) begin_rank(sim, rank);
    set_costs(sim);
    if (s->n_ranks > 1 && (!connect_ranks(sim) || !reserve_memory(sim))) goto no_memory;
    if (s->turns != NULL) set_turns(sim);
    return GM_OK;
no_memory:
    return gmi_error_set(error, GM_ERR_NOMEM, "no memory to simulate %s with %d workers", s->algorithm, s->n_ranks);
}

void sim_fini(struct sim *sim)
{
    for (int rank = 0; sim->ranks != NULL && rank < sim->n_ranks; rank++) gmi_free(sim->ranks[rank].ends);
    release(sim->memory, sim->memory_bytes);
    release(sim->scratch, GMI_SCRATCH_BYTES);
    release(sim->work, sim->work_bytes * (size_t)sim->n_ranks);
    plan_network_fini(&sim->network);
    plan_event_queue_fini(&sim->events);
    gmi_layout_fini(&sim->layout);
    gmi_free(sim->rounds_ps);
    gmi_free(sim->cards);
    gmi_free(sim->cores);
    gmi_free(sim->ranks);
}
