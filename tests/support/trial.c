#include "tests/support/trial.h"

#include <math.h>

#include "reduce/accumulator.h"
#include "tests/support/oracle.h"
#include "tests/support/test.h"

/* ---- the layout of buffers ----------------------------------------------------------------------- */

/* A part of a rank's values, or of the result; in elements. */
struct part {
    size_t first, n;
};

static gm_collective which(const struct trial *t) { return t->shape.algo->collective; }
static bool is_all_to_all(const struct trial *t) { return which(t) == GM_ALL_TO_ALL; }

static struct part chunk_in(const size_t *counts, int chunk)
{
    struct part p = { 0, counts[chunk] };
    for (int k = 0; k < chunk; k++) p.first += counts[k];
    return p;
}

static const size_t *row_of(const struct trial *t, int rank) { return t->counts[is_all_to_all(t) ? rank : 0]; }

static struct part own_chunk(const struct trial *t, int rank) { return chunk_in(row_of(t, rank), rank); }

/* All that a rank has. */
static struct part whole(const struct trial *t, int rank)
{
    return (struct part){ 0, is_all_to_all(t) ? chunk_in(row_of(t, rank), t->n_ranks).first : t->shape.count_elems };
}

/* Which of its values a rank hands in. */
static struct part given(const struct trial *t, int rank)
{
    bool is_root = rank == t->shape.root;
    if (which(t) == GM_ALL_GATHER || which(t) == GM_GATHER) return own_chunk(t, rank);
    if (which(t) == GM_SCATTER && !is_root) return (struct part){ 0 };
    return whole(t, rank);
}

/* Which part of the result a rank gets; in an all-to-all the result is its own. */
static struct part gotten(const struct trial *t, int rank)
{
    bool is_root = rank == t->shape.root;
    if (which(t) == GM_REDUCE_SCATTER || which(t) == GM_SCATTER) return own_chunk(t, rank);
    if ((which(t) == GM_REDUCE || which(t) == GM_GATHER) && !is_root) return (struct part){ 0 };
    if (is_all_to_all(t)) return (struct part){ 0, chunk_in(t->recv_counts[rank], t->n_ranks).first };
    return whole(t, rank);
}

/* One buffer for both on this rank? Of rooted collectives only the root has two. */
static bool is_in_place(const struct trial *t, int rank)
{
    bool is_rooted = which(t) == GM_REDUCE || which(t) == GM_GATHER || which(t) == GM_SCATTER;
    return t->shape.is_in_place && (!is_rooted || rank == t->shape.root);
}

/* Whose chunk an element of the whole buffer is in. */
static int chunk_of(const struct trial *t, const size_t *counts, size_t elem)
{
    for (int k = 0; k < t->n_ranks; k++) {
        struct part p = chunk_in(counts, k);
        if (elem >= p.first && elem < p.first + p.n) return k;
    }
    fail_msg("element %zu is in no chunk", elem);
    return -1;
}

/* ---- what must come out -------------------------------------------------------------------------- */

/* Element `elem` of what `rank` gets, as it stands in the whole result. */
static void expected(const struct trial *t, int rank, size_t elem, void *value)
{
    const struct trial_shape *s = &t->shape;
    size_t b = t->elem_bytes;
    int    n = t->n_ranks;
    if (is_all_to_all(t)) {
        int    from = chunk_of(t, t->recv_counts[rank], elem);
        size_t into = elem - chunk_in(t->recv_counts[rank], from).first;
        memcpy(value, t->values[from] + (chunk_in(t->counts[from], rank).first + into) * b, b);
        return;
    }
    if (which(t) == GM_BROADCAST || which(t) == GM_SCATTER) {
        memcpy(value, t->values[s->root] + elem * b, b);
        return;
    }
    if (trial_is_lean(s->algo)) {
        memcpy(value, &t->lean_result[elem], b);
        return;
    }
    int owner = chunk_of(t, t->counts[0], elem);
    if (which(t) == GM_ALL_GATHER || which(t) == GM_GATHER) {
        memcpy(value, t->values[owner] + elem * b, b);
        return;
    }
    uint64_t values[SIM_MAX_RANKS];
    bool     is_by_rank = s->order == TRIAL_BY_RANK || oracle_is_rounded_once(s->dtype, s->redop);
    int      last = s->order == TRIAL_BY_RING ? owner : s->root, first = is_by_rank ? 0 : (last + 1) % n;
    for (int k = 0; k < n; k++) values[k] = oracle_load(t->values[(first + k) % n] + elem * b, s->dtype);
    oracle_store(value, s->dtype, oracle_reduce(values, n, s->dtype, s->redop));
}

/* Chunk by chunk as the formats are defined: what comes out of each rank's numbers, the sum of that, and what comes
 * out of the sum. */
static void make_lean_result(struct trial *t)
{
    const struct trial_shape *s = &t->shape;
    size_t                    bytes = s->count_elems * sizeof(float) + 1;
    float                    *seen = malloc(bytes), *sum = realloc(t->lean_result, bytes);
    assert_true(seen != NULL && sum != NULL);
    t->lean_result = sum;
    for (int r = 0; r < t->n_ranks; r++) {
        for (int k = 0; k < t->n_ranks; k++) {
            struct part  c = chunk_in(t->counts[0], k);
            const float *from = (const float *)(const void *)t->values[r];
            oracle_lean(s->wire->name, seen + c.first, from + c.first, c.n);
        }
        for (size_t i = 0; i < s->count_elems; i++) sum[i] = r == 0 ? seen[i] : sum[i] + seen[i];
    }
    for (size_t i = 0; i < s->count_elems; i++) {
        if (s->redop == GM_AVG) sum[i] /= (float)t->n_ranks;
        if (isnan(sum[i])) oracle_store(&sum[i], GM_F32, UINT64_C(0x7fc00000));
    }
    for (int k = 0; k < t->n_ranks && which(t) == GM_ALL_REDUCE; k++) {
        struct part c = chunk_in(t->counts[0], k);
        oracle_lean(s->wire->name, sum + c.first, sum + c.first, c.n);
    }
    free(seen);
}

/* ---- values -------------------------------------------------------------------------------------- */

/* Factors of which fifteen multiplied still fit into a float exactly. */
static double small_factor(uint64_t bits)
{
    static const double factors[] = { 1, -1, 2, -2, 0.5, -0.5, 3, -0.75 };
    return factors[bits % 8];
}

static double float_value(const struct trial_shape *s, uint64_t key, size_t elem)
{
    uint64_t bits = gmi_rng_u64(key, elem);
    if (s->values == TRIAL_ROUGH) return (gmi_rng_unit(key, elem) - 0.5) * exp2((double)(bits % 40) - 20);
    return s->redop == GM_PROD ? small_factor(bits) : (double)(int64_t)(bits % 2001) - 1000;
}

static void put_value(const struct trial_shape *s, int rank, size_t elem, uint8_t *to)
{
    uint64_t key = gmi_rng_key(gmi_rng_key(s->seed, UINT64_C(0x7a1e)), (uint64_t)rank);
    uint64_t bits = gmi_rng_u64(key, elem);
    if (s->values == TRIAL_SPECIAL) {
        bits = rank == s->special_rank ? s->special_bits : s->plain_bits;
    } else if (oracle_is_float(s->dtype)) {
        bits = oracle_bits(float_value(s, key, elem), s->dtype);
    }
    oracle_store(to, s->dtype, bits);
}

/* ---- preparing ----------------------------------------------------------------------------------- */

bool trial_is_offered(const struct trial_shape *s)
{
    if (s->counts_seed != 0 && !trial_has_counts(s->algo)) return false;
    if (!trial_is_reduction(s->algo)) return true;
    if (trial_is_exact(s->algo)) return s->dtype == GM_F32 && s->redop == GM_SUM_EXACT;
    if (trial_is_lean(s->algo)) return s->dtype == GM_F32 && (s->redop == GM_SUM || s->redop == GM_AVG);
    if (oracle_is_rounded_once(s->dtype, s->redop) && s->algo->shows != GMI_VIEW_ALL) return false;
    return oracle_is_offered(s->dtype, s->redop);
}

static void draw_counts(struct trial *t)
{
    const struct trial_shape *s = &t->shape;
    struct gmi_rng rng = { .key = gmi_rng_key(s->counts_seed, UINT64_C(0xc0)) };
    int            n = t->n_ranks, n_rows = is_all_to_all(t) ? n : 1;
    size_t         most = is_all_to_all(t) ? 2 * s->count_elems : 2 * s->count_elems / (size_t)n;
    memset(t->counts, 0, sizeof t->counts);
    for (int r = 0; r < n_rows; r++) {
        for (int k = 0; k < n; k++) {
            size_t first;
            t->counts[r][k] = s->count_elems;
            if (!is_all_to_all(t)) gm_chunk(s->count_elems, n, k, &first, &t->counts[r][k]);
            if (s->counts_seed == 0) continue;
            bool is_empty = gmi_rng_next_below(&rng, 4) == 0;
            t->counts[r][k] = is_empty ? 0 : (size_t)gmi_rng_next_below(&rng, most + 2);
        }
    }
    for (int r = 0; r < n_rows; r++) {
        for (int k = 0; k < n; k++) t->recv_counts[r][k] = t->counts[is_all_to_all(t) ? k : 0][r];
    }
    if (!is_all_to_all(t)) t->shape.count_elems = chunk_in(t->counts[0], n).first;
}

static void prepare_rank(struct trial *t, int rank)
{
    const struct trial_shape *s = &t->shape;
    size_t      b = t->elem_bytes, all = whole(t, rank).n;
    struct part in = given(t, rank), out = gotten(t, rank);
    t->values[rank] = realloc(t->values[rank], all * b + 1);
    assert_non_null(t->values[rank]);
    for (size_t i = 0; i < all; i++) put_value(s, rank, i, t->values[rank] + i * b);
    if (is_in_place(t, rank)) {
        size_t most = is_all_to_all(t) && out.n > all ? out.n : all;
        guard_make(&t->recv[rank], most * b);
        guard_make(&t->send[rank], 0);
        memcpy(t->recv[rank].bytes + in.first * b, t->values[rank] + in.first * b, in.n * b);
        return;
    }
    guard_make(&t->recv[rank], out.n * b);
    guard_make(&t->send[rank], in.n * b);
    memcpy(t->send[rank].bytes, t->values[rank] + in.first * b, in.n * b);
}

/* One contribution from each rank; the last one also has all shards beyond these, which are zero. An array of no
 * elements has an accumulator of one. */
static void make_accumulator(struct trial *t, int rank)
{
    const struct trial_shape *s = &t->shape;
    gm_accumulator_options    options;
    gm_accumulator_options_default(&options);
    options.count = s->count_elems > 0 ? s->count_elems : 1;
    options.n_shards = t->n_ranks + s->more_shards;
    if (s->quantum != 0) options.quantum_exponent = s->quantum;
    options.is_wire_raw = (int)((s->seed + (uint64_t)rank) % 3 == 0);
    gm_accumulator_destroy(t->exact[rank]);
    assert_ok(gm_accumulator_create(&t->exact[rank], &options, NULL));
    float *zeros = calloc(options.count, sizeof *zeros);
    assert_non_null(zeros);
    assert_ok(gm_accumulator_add(t->exact[rank], rank, s->count_elems > 0 ? (const float *)(const void *)t->values[rank] : zeros));
    for (int k = t->n_ranks; k < options.n_shards && rank == t->n_ranks - 1; k++) assert_ok(gm_accumulator_add(t->exact[rank], k, zeros));
    free(zeros);
}

void trial_prepare(struct trial *t, int n_ranks, const struct trial_shape *shape)
{
    t->shape = *shape;
    t->n_ranks = n_ranks;
    if (trial_is_lean(shape->algo)) {
        t->shape.dtype = GM_F32;
        t->shape.redop = shape->redop == GM_AVG ? GM_AVG : GM_SUM;
        if (shape->wire == NULL) t->shape.wire = gmi_wire_row(shape->seed % 3);
    }
    if (trial_is_exact(shape->algo)) {
        t->shape.dtype = GM_F32;
        t->shape.redop = GM_SUM_EXACT;
    }
    t->elem_bytes = gm_dtype_bytes(t->shape.dtype);
    if (which(t) == GM_BROADCAST) t->shape.is_in_place = true;
    if (which(t) == GM_BARRIER) t->shape.count_elems = 0;
    draw_counts(t);
    for (int rank = 0; rank < n_ranks; rank++) prepare_rank(t, rank);
    if (trial_is_lean(shape->algo)) make_lean_result(t);
    for (int rank = 0; rank < n_ranks && trial_is_exact(shape->algo); rank++) make_accumulator(t, rank);
}

void trial_fini(struct trial *t)
{
    for (int rank = 0; rank < SIM_MAX_RANKS; rank++) {
        guard_fini(&t->send[rank]);
        guard_fini(&t->recv[rank]);
        free(t->values[rank]);
        gm_accumulator_destroy(t->exact[rank]);
    }
    free(t->lean_result);
    *t = (struct trial){ 0 };
}

/* As the public calls make it. */
static struct gmi_request request_of(const struct trial *t, int rank)
{
    const struct trial_shape *s = &t->shape;
    struct gmi_request        request = { .which = which(t), .redop = -1, .root = -1 };
    bool                      is_root = rank == s->root;
    if (which(t) == GM_BARRIER) return request;
    request.recv = t->recv[rank].bytes;
    request.send = is_in_place(t, rank) ? t->recv[rank].bytes : t->send[rank].bytes;
    if ((which(t) == GM_REDUCE || which(t) == GM_GATHER) && !is_root) request.recv = NULL;
    if (which(t) == GM_SCATTER && !is_root) request.send = NULL;
    request.count_elems = is_all_to_all(t) ? whole(t, rank).n : s->count_elems;
    request.dtype = s->dtype;
    request.wire = s->wire;
    request.exact = trial_is_exact(s->algo) ? t->exact[rank] : NULL;
    if (trial_is_reduction(s->algo)) request.redop = (int)s->redop;
    if (trial_has_root(s->algo)) request.root = s->root;
    if (s->counts_seed != 0) request.counts = row_of(t, rank);
    if (s->counts_seed != 0 && is_all_to_all(t)) request.recv_counts = t->recv_counts[rank];
    return request;
}

void trial_begin(struct trial *t, struct sim *sim, int rank) { sim_begin(sim, rank, t->shape.algo, request_of(t, rank)); }

/* ---- checking ------------------------------------------------------------------------------------ */

const uint8_t *trial_result(const struct trial *t, int rank, size_t *first_elem, size_t *n_elems)
{
    struct part out = gotten(t, rank);
    bool        is_in_whole = is_in_place(t, rank);
    *first_elem = out.first;
    *n_elems = out.n;
    return t->recv[rank].bytes + (is_in_whole ? out.first * t->elem_bytes : 0);
}

void trial_check_result(const struct trial *t, const struct sim *sim, int rank)
{
    size_t         first, n;
    const uint8_t *have = trial_result(t, rank, &first, &n);
    for (size_t i = 0; i < n; i++) {
        uint64_t want = 0, is = 0;
        expected(t, rank, first + i, &want);
        memcpy(&is, have + i * t->elem_bytes, t->elem_bytes);
        if (is == want) continue;
        print_error("rank %d, element %zu of %zu (%s %s%s): %#llx, wanted %#llx\n", rank, first + i, t->shape.count_elems,
                    gm_dtype_name(t->shape.dtype), gm_redop_name(t->shape.redop), t->shape.is_in_place ? ", in place" : "",
                    (unsigned long long)is, (unsigned long long)want);
        sim_assert(sim, is == want);
    }
    guard_check(&t->recv[rank]);
    guard_check(&t->send[rank]);
    if (t->send[rank].n_bytes == 0) return;
    const uint8_t *sent = t->values[rank] + given(t, rank).first * t->elem_bytes;
    sim_assert(sim, memcmp(sent, t->send[rank].bytes, t->send[rank].n_bytes) == 0); /* `send` is only read */
}

/* What exact sums send depends on the values; the formula is what it may be without spilled numbers. */
static void check_payload(const struct trial *t, const struct sim *sim, int rank, uint64_t sent_bytes, uint64_t formula_bytes)
{
    gm_accumulator_stats stats;
    if (!trial_is_exact(t->shape.algo)) {
        sim_assert(sim, sent_bytes == formula_bytes);
        return;
    }
    assert_ok(gm_accumulator_get_stats(t->exact[rank], &stats));
    sim_assert(sim, sent_bytes <= formula_bytes + stats.sent_spill_bytes);
    sim_assert(sim, sent_bytes >= stats.sent_lane_bytes + stats.sent_spill_bytes);
}

void trial_check_counts(const struct trial *t, const struct sim *sim)
{
    const struct trial_shape *s = &t->shape;
    uint64_t protocol_sent = 0, protocol_recv = 0, payload_sent = 0, payload_recv = 0;
    for (int rank = 0; rank < t->n_ranks; rank++) {
        const struct gmi_op *op = &sim->ranks[rank].op;
        const gm_traffic    *traffic = &op->traffic;
        struct gmi_request   request = request_of(t, rank);
        assert_ok(gmi_request_choose_codec(&request));
        struct gmi_shape shape = gmi_request_shape(&request, &sim->ranks[rank].group);
        shape.root = s->root;
        sim_assert(sim, traffic->calls == 1);
        check_payload(t, sim, rank, traffic->payload_sent_bytes, s->algo->payload_sent_bytes(&shape));
        sim_assert(sim, traffic->payload_recv_bytes == op->total_recv_bytes);
        sim_assert(sim, traffic->payload_sent_bytes + traffic->payload_recv_bytes + traffic->protocol_sent_bytes +
                                traffic->protocol_recv_bytes == op->moved_bytes);
        protocol_sent += traffic->protocol_sent_bytes;
        protocol_recv += traffic->protocol_recv_bytes;
        payload_sent += traffic->payload_sent_bytes;
        payload_recv += traffic->payload_recv_bytes;
    }
    sim_assert(sim, protocol_sent == protocol_recv && payload_sent == payload_recv);
    sim_assert(sim, sim_links_are_empty(sim));
}

void trial_run(struct trial *t, struct sim *sim)
{
    for (int rank = 0; rank < t->n_ranks; rank++) trial_begin(t, sim, rank);
    sim_assert(sim, sim_run(sim));
    for (int rank = 0; rank < t->n_ranks; rank++) sim_assert(sim, sim->ranks[rank].status == GM_OK);
    for (int rank = 0; rank < t->n_ranks; rank++) trial_check_result(t, sim, rank);
    trial_check_counts(t, sim);
}
