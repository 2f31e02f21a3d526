/* message_test.c - messages between ranks over links in memory: any order that fits, every way not
 * to fit. */
#include "coll/message.h"
#include "tests/support/sim.h"
#include "tests/support/test.h"

enum { MAX_RANKS = 5, MAX_CALLS = 40, MAX_ELEMS = 50 };

/* One call of one rank, with its buffers. */
struct call {
    struct gmi_message_call message;
    gm_dtype                dtype;
    struct guard            send, recv;
};

struct script {
    int         n_calls;
    struct call calls[MAX_CALLS];
};

static gm_collective kind_of(const struct gmi_message_call *m)
{
    if (m->to >= 0 && m->from >= 0) return GM_SENDRECV;
    return m->to >= 0 ? GM_SEND : GM_RECV;
}

static uint8_t value(int from, int tag, size_t i)
{
    return (uint8_t)gmi_rng_u64(gmi_rng_key((uint64_t)from, (uint64_t)tag), i);
}

static void begin(struct sim *sim, int rank, struct call *c)
{
    struct gmi_message_call *m = &c->message;
    size_t                   b = gm_dtype_bytes(c->dtype);
    guard_make(&c->send, m->to >= 0 ? m->send_elems * b : 0);
    guard_make(&c->recv, m->from >= 0 ? m->recv_elems * b : 0);
    for (size_t i = 0; i < c->send.n_bytes; i++) c->send.bytes[i] = value(rank, m->send_tag, i);
    struct gmi_request request = { .which = kind_of(m),
                                   .send = c->send.bytes,
                                   .recv = c->recv.bytes,
                                   .dtype = c->dtype,
                                   .redop = -1,
                                   .root = -1,
                                   .message = *m };
    sim->ranks[rank].seq = UINT64_MAX; /* messages have the number 0 */
    sim_begin(sim, rank, &gmi_message_algo, request);
}

static void check(struct sim *sim, int rank, struct call *c)
{
    const gm_traffic *t = &sim->ranks[rank].op.traffic;
    for (size_t i = 0; i < c->recv.n_bytes; i++) {
        sim_assert(sim, c->recv.bytes[i] == value(c->message.from, c->message.recv_tag, i));
    }
    for (size_t i = 0; i < c->send.n_bytes; i++)
        sim_assert(sim, c->send.bytes[i] == value(rank, c->message.send_tag, i));
    guard_check(&c->send);
    guard_check(&c->recv);
    sim_assert(sim, t->payload_sent_bytes == c->send.n_bytes &&
                        t->payload_recv_bytes == c->recv.n_bytes);
    guard_fini(&c->send);
    guard_fini(&c->recv);
}

/* Runs every rank's calls one after another. False: not all could end. */
static bool run(struct sim *sim, struct script scripts[MAX_RANKS])
{
    int  next[MAX_RANKS] = { 0 };
    bool is_new = true;
    while (is_new) {
        is_new = false;
        for (int rank = 0; rank < sim->plan.n_ranks; rank++) {
            if (sim->ranks[rank].status == GM_AGAIN) continue;
            if (next[rank] > 0 && sim->ranks[rank].status == GM_OK &&
                next[rank] <= scripts[rank].n_calls) {
                check(sim, rank, &scripts[rank].calls[next[rank] - 1]);
            }
            if (sim->ranks[rank].status != GM_OK || next[rank] > scripts[rank].n_calls) continue;
            if (next[rank] < scripts[rank].n_calls) {
                begin(sim, rank, &scripts[rank].calls[next[rank]]);
                is_new = true;
            }
            next[rank]++;
        }
        (void)sim_run(sim);
    }
    for (int rank = 0; rank < sim->plan.n_ranks; rank++) {
        if (sim->ranks[rank].status != GM_OK) return false;
    }
    return true;
}

static struct call *add(struct script *s, gm_dtype dtype)
{
    struct call *c = &s->calls[s->n_calls++];
    *c = (struct call){ .message = { .to = -1, .from = -1 }, .dtype = dtype };
    return c;
}

static void add_send(struct script *s, int to, int tag, size_t elems, gm_dtype dtype)
{
    struct call *c = add(s, dtype);
    c->message.to = to, c->message.send_tag = tag, c->message.send_elems = elems;
}

static void add_recv(struct script *s, int from, int tag, size_t elems, gm_dtype dtype)
{
    struct call *c = add(s, dtype);
    c->message.from = from, c->message.recv_tag = tag, c->message.recv_elems = elems;
}

/* ---- what fits ------------------------------------------------------------------------------- */

/* A send and a receive that stand next to each other may be one call. */
static void join_some(struct script *s, struct gmi_rng *rng)
{
    int n = 0;
    for (int i = 0; i < s->n_calls; i++) {
        struct call *a = n > 0 ? &s->calls[n - 1] : NULL, *b = &s->calls[i];
        bool can_join = a != NULL && kind_of(&a->message) != GM_SENDRECV && a->dtype == b->dtype &&
                        kind_of(&a->message) != kind_of(&b->message);
        if (can_join && gmi_rng_next_below(rng, 2) == 0) {
            struct gmi_message_call *m = &a->message, *more = &b->message;
            if (more->to >= 0)
                m->to = more->to, m->send_tag = more->send_tag, m->send_elems = more->send_elems;
            if (more->from >= 0)
                m->from = more->from, m->recv_tag = more->recv_tag,
                m->recv_elems = more->recv_elems;
        } else {
            s->calls[n++] = *b;
        }
    }
    s->n_calls = n;
}

/* Messages in an order that all ranks keep to cannot freeze, however they are joined. */
static void any_order_that_fits_goes_through(void **state)
{
    (void)state;
    static struct sim    sim;
    static struct script scripts[MAX_RANKS];
    uint64_t             n_seeds = test_is_long() ? 20000 : 600;
    for (uint64_t seed = 0; seed < n_seeds; seed++) {
        struct gmi_rng rng = { .key = gmi_rng_key(seed, 77) };
        int n_ranks = 2 + (int)gmi_rng_next_below(&rng, MAX_RANKS - 1),
            n_messages = 1 + (int)gmi_rng_next_below(&rng, 15);
        for (int r = 0; r < n_ranks; r++) scripts[r].n_calls = 0;
        for (int k = 0; k < n_messages; k++) {
            int from = (int)gmi_rng_next_below(&rng, (uint64_t)n_ranks),
                by = 1 + (int)gmi_rng_next_below(&rng, (uint64_t)n_ranks - 1);
            int    to = (from + by) % n_ranks, tag = (int)gmi_rng_next_below(&rng, 1000);
            size_t elems =
                gmi_rng_next_below(&rng, 4) == 0 ? 0 : (size_t)gmi_rng_next_below(&rng, MAX_ELEMS);
            gm_dtype dtype = gmi_rng_next_below(&rng, 3) == 0 ? GM_F64 : GM_I32;
            add_send(&scripts[from], to, tag, elems, dtype);
            add_recv(&scripts[to], from, tag, elems, dtype);
        }
        for (int r = 0; r < n_ranks; r++) join_some(&scripts[r], &rng);
        struct sim_plan plan = sim_random_plan(n_ranks, seed);
        sim_init(&sim, &plan);
        sim_assert(&sim, run(&sim, scripts));
        sim_assert(&sim, sim_links_are_empty(&sim));
        sim_fini(&sim);
    }
}

static void ranks_in_a_circle_exchange_at_any_size(void **state)
{
    (void)state;
    static struct sim    sim;
    static struct script scripts[MAX_RANKS];
    for (int n = 2; n <= MAX_RANKS; n++) {
        for (size_t elems = 0; elems < 70000; elems = elems * 7 + 1) {
            for (int r = 0; r < n; r++) {
                scripts[r].n_calls = 0;
                add_send(&scripts[r], (r + 1) % n, 5, elems, GM_F32);
                struct gmi_message_call *m = &scripts[r].calls[0].message;
                m->from = (r + n - 1) % n, m->recv_tag = 5, m->recv_elems = elems;
            }
            struct sim_plan plan = { .n_ranks = n,
                                     .seed = elems,
                                     .capacity_bytes = 100 + elems / 8 };
            sim_init(&sim, &plan);
            sim_assert(&sim, run(&sim, scripts));
            sim_fini(&sim);
        }
    }
}

static void a_long_message_goes_in_pieces(void **state)
{
    (void)state;
    static struct sim    sim;
    static struct script scripts[MAX_RANKS];
    for (int r = 0; r < 2; r++) scripts[r].n_calls = 0;
    add_send(&scripts[0], 1, 9, 3 * GMI_PIECE_BYTES + 1, GM_I8);
    add_recv(&scripts[1], 0, 9, 3 * GMI_PIECE_BYTES + 1, GM_I8);
    struct sim_plan plan = { .n_ranks = 2, .seed = 1, .capacity_bytes = 250001 };
    sim_init(&sim, &plan);
    sim_assert(&sim, run(&sim, scripts));
    sim_assert(&sim, sim.ends[0][1].sent_bytes == 64 + 4 * 8 + 3 * (uint64_t)GMI_PIECE_BYTES + 1);
    sim_fini(&sim);
}

/* ---- what waits ------------------------------------------------------------------------------ */

static void a_send_waits_for_its_receiver_and_sends_no_payload_before(void **state)
{
    (void)state;
    static struct sim    sim;
    static struct script scripts[MAX_RANKS];
    for (int r = 0; r < 2; r++) scripts[r].n_calls = 0;
    add_send(&scripts[0], 1, 9, 10, GM_F32);
    struct sim_plan plan = { .n_ranks = 2, .seed = 1, .capacity_bytes = 100000 };
    sim_init(&sim, &plan);
    sim_assert(&sim, !run(&sim, scripts));
    sim_assert(&sim, sim.ranks[0].status == GM_AGAIN &&
                         sim.ends[0][1].sent_bytes == GMI_DESCRIPTOR_BYTES);
    sim_assert(&sim, gmi_op_waits_for(&sim.ranks[0].op) == 1);
    sim_fini(&sim);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

/* Both find out, by themselves, and know what the other calls. */
static void expect_mismatch(struct script scripts[MAX_RANKS], const char *of_rank_0,
                            const char *of_rank_1)
{
    static struct sim sim;
    for (uint64_t seed = 0; seed < 20; seed++) {
        char             ours[160], theirs[160];
        struct sim_plan  plan = sim_random_plan(2, seed);
        static struct script copy[MAX_RANKS];
        memcpy(copy, scripts, 2 * sizeof scripts[0]);
        sim_init(&sim, &plan);
        sim_assert(&sim, !run(&sim, copy));
        int n_found = 0;
        for (int rank = 0; rank < 2; rank++) {
            const struct gmi_trouble *trouble = &sim.ranks[rank].op.trouble;
            sim_assert(&sim, sim.ranks[rank].status == GM_ERR_MISMATCH ||
                                 sim.ranks[rank].status == GM_AGAIN);
            if (sim.ranks[rank].status == GM_AGAIN) continue; /* the other one stopped first */
            n_found++;
            gmi_descriptor_format(&trouble->ours, ours, sizeof ours);
            gmi_descriptor_format(&trouble->theirs, theirs, sizeof theirs);
            assert_contains(ours, rank == 0 ? of_rank_0 : of_rank_1);
            assert_contains(theirs, rank == 0 ? of_rank_1 : of_rank_0);
            sim_assert(&sim, trouble->peer == 1 - rank);
        }
        sim_assert(&sim, n_found > 0);
        sim_fini(&sim);
    }
}

#define SCRIPTS(name) static struct script name[MAX_RANKS]; memset(name, 0, sizeof name)

static void both_sending_is_a_mismatch(void **state)
{
    (void)state;
    SCRIPTS(s);
    add_send(&s[0], 1, 1, 10, GM_F32);
    add_send(&s[1], 0, 1, 10, GM_F32);
    expect_mismatch(s, "send to rank 1 (tag 1, f32, 10 elems)",
                    "send to rank 0 (tag 1, f32, 10 elems)");
}

static void both_receiving_is_a_mismatch(void **state)
{
    (void)state;
    SCRIPTS(s);
    add_recv(&s[0], 1, 1, 10, GM_F32);
    add_recv(&s[1], 0, 1, 10, GM_F32);
    expect_mismatch(s, "recv from rank 1 (tag 1", "recv from rank 0 (tag 1");
}

static void another_tag_count_or_type_is_a_mismatch(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        SCRIPTS(s);
        add_send(&s[0], 1, 1, 10, GM_F32);
        add_recv(&s[1], 0, kind == 0 ? 2 : 1, kind == 1 ? 11 : 10, kind == 2 ? GM_I32 : GM_F32);
        expect_mismatch(s, "(tag 1, f32, 10 elems)",
                        kind == 0   ? "tag 2"
                        : kind == 1 ? "11 elems"
                                    : "i32");
    }
}

static void an_exchange_does_not_fit_a_send(void **state)
{
    (void)state;
    SCRIPTS(s);
    add_send(&s[0], 1, 1, 10, GM_F32);
    s[0].calls[0].message.from = 1, s[0].calls[0].message.recv_tag = 1,
    s[0].calls[0].message.recv_elems = 10;
    add_send(&s[1], 0, 1, 10, GM_F32);
    add_send(&s[1], 0, 1, 10, GM_F32); /* it wanted to receive now */
    expect_mismatch(s, "send to rank 1", "send to rank 0");
}

/* Rank 1 has taken what rank 0 sends in its exchange, but gives nothing. */
static void an_exchange_of_which_only_one_half_is_taken_is_found(void **state)
{
    (void)state;
    SCRIPTS(s);
    add_send(&s[0], 1, 1, 10, GM_F32);
    s[0].calls[0].message.from = 1, s[0].calls[0].message.recv_tag = 2,
    s[0].calls[0].message.recv_elems = 5;
    add_recv(&s[1], 0, 1, 10, GM_F32);
    add_recv(&s[1], 0, 3, 10, GM_F32);
    expect_mismatch(s, "recv from rank 1 (tag 2", "recv from rank 0 (tag 3");
}

static void bytes_of_something_else_are_no_message(void **state)
{
    (void)state;
    static struct sim sim;
    SCRIPTS(s);
    struct sim_plan plan = { .n_ranks = 2, .seed = 1, .capacity_bytes = 1000 };
    sim_init(&sim, &plan);
    add_recv(&s[0], 1, 1, 10, GM_F32);
    begin(&sim, 0, &s[0].calls[0]);
    struct gmi_request barrier = { .which = GM_BARRIER, .redop = -1, .root = -1 };
    struct gmi_costs costs = gmi_costs_of_host(2, 2, GMI_KIND_MEMORY);
    sim_begin(&sim, 1, gmi_algo_choose("ring", GM_BARRIER, &costs, 0, GMI_VIEW_PAIRS), barrier);
    (void)sim_run(&sim);
    sim_assert(&sim, sim.ranks[0].status == GM_ERR_PROTOCOL);
    sim_fini(&sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_that_fits_goes_through),
        cmocka_unit_test(ranks_in_a_circle_exchange_at_any_size),
        cmocka_unit_test(a_long_message_goes_in_pieces),
        cmocka_unit_test(a_send_waits_for_its_receiver_and_sends_no_payload_before),
        cmocka_unit_test(both_sending_is_a_mismatch),
        cmocka_unit_test(both_receiving_is_a_mismatch),
        cmocka_unit_test(another_tag_count_or_type_is_a_mismatch),
        cmocka_unit_test(an_exchange_does_not_fit_a_send),
        cmocka_unit_test(an_exchange_of_which_only_one_half_is_taken_is_found),
        cmocka_unit_test(bytes_of_something_else_are_no_message),
    };
    return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
