#include "tests/support/sim.h"

#include "net/poller.h"
#include "tests/support/test.h"

/* ---- a link that notes what passes and what is waited for ---------------------------------------- */

struct watched_link {
    struct gmi_link  base;
    struct gmi_link *inner;
    struct sim_end  *end;
    size_t           lent_bytes; /* by the last peek, and no move since */
};

static gm_status note(struct watched_link *w, gm_status status, size_t moved_bytes, uint64_t *total_bytes)
{
    *total_bytes += moved_bytes;
    w->base.sys_errno = w->inner->sys_errno;
    if (status == GM_OK) assert_true(moved_bytes > 0);
    if (status != GM_OK) assert_true(moved_bytes == 0);
    if (status != GM_OK && status != GM_AGAIN) w->end->is_over = true;
    return status;
}

/* The contract of link.h on the caller's side. */
static void check_parts(const struct iovec *parts, int n_parts)
{
    assert_true(n_parts >= 1);
    for (int i = 0; i < n_parts; i++) assert_true(parts[i].iov_len > 0 && parts[i].iov_base != NULL);
}

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct watched_link *w = (struct watched_link *)link;
    check_parts(parts, n_parts);
    gm_status status = gmi_link_send_some(w->inner, parts, n_parts, moved_bytes);
    return note(w, status, *moved_bytes, &w->end->sent_bytes);
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct watched_link *w = (struct watched_link *)link;
    check_parts(parts, n_parts);
    gm_status status = gmi_link_recv_some(w->inner, parts, n_parts, moved_bytes);
    return note(w, status, *moved_bytes, &w->end->recv_bytes);
}

static gm_status peek(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes)
{
    struct watched_link *w = (struct watched_link *)link;
    uint64_t             none = 0;
    gm_status            status = gmi_link_peek(w->inner, bytes, n_bytes);
    w->lent_bytes = *n_bytes;
    return note(w, status, *n_bytes, &none);
}

static void consume(struct gmi_link *link, size_t n_bytes)
{
    struct watched_link *w = (struct watched_link *)link;
    assert_in_range(n_bytes, 1, w->lent_bytes);
    w->lent_bytes = 0;
    gmi_link_consume(w->inner, n_bytes);
    w->end->recv_bytes += n_bytes;
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    (void)poller;
    ((struct watched_link *)link)->end->interest |= interest;
}

static void finish(struct gmi_link *link) { gmi_link_finish(((struct watched_link *)link)->inner); }

static void close_link(struct gmi_link *link)
{
    struct watched_link *w = (struct watched_link *)link;
    w->end->is_over = true;
    w->end->link = NULL;
    gmi_link_close(w->inner);
    free(w);
}

#define WATCHED_OPS                                                                                \
    .name = "watched", .send_some = send_some, .recv_some = recv_some, .watch = watch, .finish = finish, .close = close_link

static const struct gmi_link_ops watched_ops = { WATCHED_OPS };
static const struct gmi_link_ops lending_watched_ops = { WATCHED_OPS, .peek = peek, .consume = consume };

/* ---- setting up ---------------------------------------------------------------------------------- */

static struct gmi_fault_plan fault_plan(const struct sim_plan *plan, int rank, int peer)
{
    struct gmi_fault_plan faults = { .seed = gmi_rng_key(plan->seed, (uint64_t)(rank * SIM_MAX_RANKS + peer)),
                                     .max_move_bytes = plan->max_move_bytes,
                                     .delay_probability = plan->delay_probability,
                                     .never_lends = plan->never_lends };
    if (plan->has_cut && plan->cut_rank == rank && plan->cut_peer == peer) {
        faults.cut_after_sent_bytes = plan->cut_after_sent_bytes;
        faults.cut_after_recv_bytes = plan->cut_after_recv_bytes;
        faults.refused_after_sent_bytes = plan->refused_after_sent_bytes;
        faults.flipped_recv_bit = plan->flipped_recv_bit;
    }
    return faults;
}

static void wrap(struct sim *sim, int rank, int peer, struct gmi_link *memory)
{
    const struct sim_plan *plan = &sim->plan;
    struct gmi_fault_plan  faults = fault_plan(plan, rank, peer);
    struct watched_link   *w = malloc(sizeof *w);
    struct sim_end        *end = &sim->ends[rank][peer];
    assert_non_null(w);
    *w = (struct watched_link){ .base.ops = &watched_ops, .inner = gmi_link_fault_wrap(memory, &faults), .end = end };
    assert_non_null(w->inner);
    if (gmi_link_lends(w->inner)) w->base.ops = &lending_watched_ops;
    end->link = plan->is_checked ? gmi_link_checked_wrap(&w->base) : &w->base;
    assert_non_null(end->link);
    sim->ranks[rank].ports[peer] = (struct gmi_port){ .link = end->link, .peer = peer };
    if (plan->has_cut && plan->is_cut_at_once && plan->cut_rank == rank && plan->cut_peer == peer) {
        gmi_link_fault_cut(w->inner);
        end->is_over = true;
    }
}

struct wanted {
    bool peers[SIM_MAX_RANKS];
};

static void want(void *user, int peer) { ((struct wanted *)user)->peers[peer] = true; }

static bool is_link_wanted(const struct sim *sim, int rank, int peer)
{
    struct wanted          w = { 0 };
    const struct gmi_algo *row = sim->plan.links_for;
    struct gmi_shape shape = { .rank = rank, .n_ranks = sim->plan.n_ranks, .root = sim->plan.links_root,
                               .layout = &sim->layout };
    if (row == NULL) return true;
    (row->peers != NULL ? row->peers : gmi_ring_peers)(&shape, want, &w);
    return w.peers[peer];
}

static void lay_out(struct sim *sim)
{
    uint64_t       host_ids[SIM_MAX_RANKS], n = (uint64_t)sim->plan.n_ranks;
    struct gmi_rng rng = { .key = gmi_rng_key(sim->plan.layout_seed, n) };
    uint64_t       most_hosts = 1 + gmi_rng_next_below(&rng, n);
    for (uint64_t rank = 0; rank < n; rank++) {
        uint64_t drawn = 1 + gmi_rng_next_below(&rng, most_hosts);
        host_ids[rank] = sim->plan.host_ids != NULL ? sim->plan.host_ids[rank] : drawn;
    }
    gmi_layout_fini(&sim->layout);
    assert_ok(gmi_layout_init(&sim->layout, host_ids, sim->plan.n_ranks));
}

void sim_init(struct sim *sim, const struct sim_plan *plan)
{
    sim->plan = *plan;
    lay_out(sim);
    memset(sim->ends, 0, sizeof sim->ends);
    sim->n_steps = 0;
    sim->rng = (struct gmi_rng){ .key = gmi_rng_key(plan->seed, UINT64_C(0x5157)) };
    assert_in_range(plan->n_ranks, 1, SIM_MAX_RANKS);
    for (int a = 0; a < plan->n_ranks; a++) {
        struct sim_rank *r = &sim->ranks[a];
        *r = (struct sim_rank){ .scratch = r->scratch, .work = r->work };
        r->group = (struct gmi_group){ .rank = a, .n_ranks = plan->n_ranks, .id = 7, .epoch = 3, .ports = r->ports,
                                       .layout = sim->layout };
        guard_make_raw(&r->scratch, GMI_SCRATCH_BYTES);
    }
    for (int a = 0; a < plan->n_ranks; a++) {
        for (int b = a + 1; b < plan->n_ranks; b++) {
            struct gmi_link *pair[2];
            if (!is_link_wanted(sim, a, b)) continue;
            assert_ok(gmi_link_mem_pair(pair, plan->capacity_bytes));
            wrap(sim, a, b, pair[0]);
            wrap(sim, b, a, pair[1]);
        }
    }
}

static void close_links(struct sim *sim, int rank)
{
    for (int peer = 0; peer < sim->plan.n_ranks; peer++) gmi_link_close(sim->ends[rank][peer].link);
}

void sim_fini(struct sim *sim)
{
    for (int rank = 0; rank < sim->plan.n_ranks; rank++) {
        close_links(sim, rank);
        guard_check(&sim->ranks[rank].scratch);
        guard_check(&sim->ranks[rank].work);
    }
}

struct sim_plan sim_random_plan(int n_ranks, uint64_t seed)
{
    static const size_t capacities[] = { 1, 2, 3, 7, 16, 64, 65, 200, 1000, 4096 };
    static const size_t moves[] = { 1, 2, 5, 11, 64, 300, 0 };
    static const double delays[] = { 0, 0, 0.1, 0.5 };
    static const uint32_t pieces[] = { 1, 3, 8, 20, 64, 0, 0 };
    struct gmi_rng rng = { .key = gmi_rng_key(seed, UINT64_C(0x71a7)) };
    return (struct sim_plan){ .n_ranks = n_ranks,
                              .seed = seed,
                              .layout_seed = seed,
                              .capacity_bytes = capacities[gmi_rng_next_below(&rng, TEST_COUNT(capacities))],
                              .max_move_bytes = moves[gmi_rng_next_below(&rng, TEST_COUNT(moves))],
                              .delay_probability = delays[gmi_rng_next_below(&rng, TEST_COUNT(delays))],
                              .piece_bytes = pieces[gmi_rng_next_below(&rng, TEST_COUNT(pieces))],
                              .never_lends = gmi_rng_next_below(&rng, 2) == 0,
                              .part_bytes = pieces[gmi_rng_next_below(&rng, TEST_COUNT(pieces))] };
}

/* ---- running ------------------------------------------------------------------------------------- */

void sim_begin(struct sim *sim, int rank, const struct gmi_algo *algo, struct gmi_request request)
{
    struct sim_rank *r = &sim->ranks[rank];
    assert_ok(gmi_request_choose_codec(&request));
    guard_check(&r->work);
    guard_make(&r->work, gmi_op_work_bytes(&request, algo, &r->group));
    r->op.group = &r->group;
    r->op.scratch = r->scratch.bytes;
    r->op.work = r->work.bytes;
    gmi_op_set_up(&r->op, algo, &request, ++r->seq);
    if (sim->plan.piece_bytes != 0) r->op.call.piece_bytes = sim->plan.piece_bytes;
    if (sim->plan.part_bytes != 0) r->op.part_bytes = sim->plan.part_bytes;
    gmi_op_begin(&r->op);
    r->status = GM_AGAIN;
    r->was_stepped = r->must_go_on = false;
}

/* Has something happened that the rank waits for at this link? */
static bool is_ready(const struct sim *sim, int rank, int peer)
{
    const struct sim_end *here = &sim->ends[rank][peer], *there = &sim->ends[peer][rank];
    bool is_over = here->is_over || there->is_over;
    if (here->interest & GMI_READABLE && (is_over || there->sent_bytes > here->recv_bytes)) return true;
    if (here->interest & GMI_WRITABLE) {
        return is_over || here->sent_bytes - there->recv_bytes < sim->plan.capacity_bytes;
    }
    return false;
}

static bool is_awake(const struct sim *sim, int rank)
{
    const struct sim_rank *r = &sim->ranks[rank];
    if (r->status != GM_AGAIN) return false;
    if (!r->was_stepped || r->must_go_on) return true;
    for (int peer = 0; peer < sim->plan.n_ranks; peer++) {
        if (peer != rank && is_ready(sim, rank, peer)) return true;
    }
    return false;
}

static void note_interest(struct sim *sim, int rank)
{
    struct gmi_poller nobody = { 0 }; /* the watched links keep the interest themselves */
    struct gmi_op    *op = &sim->ranks[rank].op;
    for (int peer = 0; peer < sim->plan.n_ranks; peer++) sim->ends[rank][peer].interest = 0;
    gmi_op_interest(op, &nobody);
    sim->ranks[rank].must_go_on = nobody.is_skipped;
    sim_assert(sim, gmi_op_waits_for(op) >= 0); /* or it would sleep for ever */
}

static void step(struct sim *sim, int rank)
{
    struct sim_rank *r = &sim->ranks[rank];
    uint64_t         before_bytes = r->op.moved_bytes;
    bool             is_first = !r->was_stepped;
    r->was_stepped = true;
    sim->n_steps++;
    r->must_go_on = false;
    r->is_dead = sim->plan.has_death && rank == sim->plan.death_rank && r->op.moved_bytes >= sim->plan.death_after_bytes;
    if (r->is_dead) {
        r->status = GM_ERR_ABORTED;
        r->ended_at = sim->n_steps;
        close_links(sim, rank);
        return;
    }
    r->status = gmi_op_progress(&r->op);
    if (r->status != GM_AGAIN) r->ended_at = sim->n_steps;
    if (r->status == GM_AGAIN) {
        bool is_spinning = !is_first && r->op.moved_bytes == before_bytes && sim->plan.delay_probability == 0 &&
                           !sim->plan.is_checked; /* a part of a block wakes, and is no payload yet */
        sim_assert(sim, !is_spinning);
        sim_assert(sim, r->op.n_steps == 0 ? r->op.step == -1 : r->op.step >= 0 && r->op.step < r->op.n_steps);
        note_interest(sim, rank);
    } else if (r->status != GM_OK) {
        sim_assert(sim, r->op.trouble.status == r->status);
        if (sim->plan.is_failure_fatal) close_links(sim, rank);
    }
}

bool sim_run(struct sim *sim)
{
    int  awake[SIM_MAX_RANKS], n_awake;
    bool is_any_running;
    for (;;) {
        n_awake = 0;
        is_any_running = false;
        for (int rank = 0; rank < sim->plan.n_ranks; rank++) {
            is_any_running |= sim->ranks[rank].status == GM_AGAIN;
            if (is_awake(sim, rank)) awake[n_awake++] = rank;
        }
        if (n_awake == 0) return !is_any_running;
        step(sim, awake[gmi_rng_next_below(&sim->rng, (uint64_t)n_awake)]);
    }
}

bool sim_links_are_empty(const struct sim *sim)
{
    for (int a = 0; a < sim->plan.n_ranks; a++) {
        for (int b = 0; b < sim->plan.n_ranks; b++) {
            if (sim->ends[a][b].sent_bytes != sim->ends[b][a].recv_bytes) return false;
        }
    }
    return true;
}

/* ---- saying what went wrong ---------------------------------------------------------------------- */

const char *sim_describe(const struct sim *sim)
{
    static char text[512];
    const struct sim_plan *p = &sim->plan;
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "seed %llu, %d ranks, links of %zu bytes, moves of %zu, delays %g, pieces of %u, parts of %u",
                                   (unsigned long long)p->seed, p->n_ranks, p->capacity_bytes, p->max_move_bytes,
                                   p->delay_probability, p->piece_bytes, p->part_bytes);
    if (p->has_cut) {
        used += (size_t)snprintf(text + used, sizeof text - used, ", cut %d-%d after %llu sent, %llu received%s",
                                 p->cut_rank, p->cut_peer, (unsigned long long)p->cut_after_sent_bytes,
                                 (unsigned long long)p->cut_after_recv_bytes, p->is_cut_at_once ? ", at once" : "");
    }
    if (p->refused_after_sent_bytes != 0 || p->flipped_recv_bit != 0) {
        used += (size_t)snprintf(text + used, sizeof text - used, " (refused after %llu sent, bit %llu flipped)",
                                 (unsigned long long)p->refused_after_sent_bytes, (unsigned long long)p->flipped_recv_bit);
    }
    if (p->is_checked) used += (size_t)snprintf(text + used, sizeof text - used, ", checked");
    if (p->has_death) {
        used += (size_t)snprintf(text + used, sizeof text - used, ", rank %d ends after %llu bytes", p->death_rank,
                                 (unsigned long long)p->death_after_bytes);
    }
    char call[128];
    snprintf(text + used, sizeof text - used, "; %s",
             gmi_descriptor_format(&sim->ranks[0].op.call, call, sizeof call));
    return text;
}

void sim_assert_at(const struct sim *sim, bool condition, const char *text, const char *file, int line)
{
    if (condition) return;
    print_error("%s does not hold with %s\n", text, sim_describe(sim));
    for (int rank = 0; rank < sim->plan.n_ranks; rank++) {
        const struct sim_rank *r = &sim->ranks[rank];
        print_error("  rank %d: %s, %llu bytes moved, waits for %d, trouble %s at %d\n", rank,
                    gm_status_name(r->status), (unsigned long long)r->op.moved_bytes, gmi_op_waits_for(&r->op),
                    gm_status_name(r->op.trouble.status), r->op.trouble.peer);
    }
    _fail(file, line);
}
