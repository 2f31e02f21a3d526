#include "tests/support/trial.h"

#include <math.h>

#include "tests/support/oracle.h"
#include "tests/support/test.h"

/* ---- what must come out --------------------------------------------------------------------------- */

static int owner_of(const struct trial *t, size_t elem)
{
    for (int k = 0; k < t->n_ranks; k++) {
        size_t first, n;
        gm_chunk(t->shape.count_elems, t->n_ranks, k, &first, &n);
        if (elem >= first && elem < first + n) return k;
    }
    fail_msg("element %zu has no owner", elem);
    return -1;
}

static void expected(const struct trial *t, size_t elem, void *value)
{
    const struct trial_shape *s = &t->shape;
    size_t at = elem * t->elem_bytes;
    int    owner = owner_of(t, elem), n = t->n_ranks;
    if (s->algo->collective == GM_BROADCAST || s->algo->collective == GM_ALL_GATHER) {
        int from = s->algo->collective == GM_BROADCAST ? s->root : owner;
        memcpy(value, t->values[from] + at, t->elem_bytes);
        return;
    }
    uint64_t values[SIM_MAX_RANKS];
    bool     is_by_ring = s->order == TRIAL_BY_RING && !oracle_is_rounded_once(s->dtype, s->redop);
    int      first = is_by_ring ? (owner + 1) % n : 0;
    for (int k = 0; k < n; k++) values[k] = oracle_load(t->values[(first + k) % n] + at, s->dtype);
    oracle_store(value, s->dtype, oracle_reduce(values, n, s->dtype, s->redop));
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
    bool is_reduction = s->algo->collective == GM_ALL_REDUCE || s->algo->collective == GM_REDUCE_SCATTER;
    if (!is_reduction) return true;
    if (oracle_is_rounded_once(s->dtype, s->redop) && s->algo->shows != GMI_VIEW_ALL) return false;
    return oracle_is_offered(s->dtype, s->redop);
}

static void own_chunk(const struct trial *t, int rank, size_t *first_elem, size_t *n_elems)
{
    gm_chunk(t->shape.count_elems, t->n_ranks, rank, first_elem, n_elems);
}

static void prepare_rank(struct trial *t, int rank)
{
    const struct trial_shape *s = &t->shape;
    size_t bytes = s->count_elems * t->elem_bytes, first, n, b = t->elem_bytes;
    own_chunk(t, rank, &first, &n);
    bool is_gather = s->algo->collective == GM_ALL_GATHER, is_scatter = s->algo->collective == GM_REDUCE_SCATTER;
    t->values[rank] = realloc(t->values[rank], bytes + 1);
    assert_non_null(t->values[rank]);
    for (size_t i = 0; i < s->count_elems; i++) put_value(s, rank, i, t->values[rank] + i * b);
    if (s->is_in_place) {
        guard_make(&t->recv[rank], bytes);
        if (is_gather) {
            memcpy(t->recv[rank].bytes + first * b, t->values[rank] + first * b, n * b);
        } else {
            memcpy(t->recv[rank].bytes, t->values[rank], bytes);
        }
        return;
    }
    guard_make(&t->recv[rank], is_scatter ? n * b : bytes);
    guard_make(&t->send[rank], is_gather ? n * b : bytes);
    memcpy(t->send[rank].bytes, t->values[rank] + (is_gather ? first * b : 0), is_gather ? n * b : bytes);
}

void trial_prepare(struct trial *t, int n_ranks, const struct trial_shape *shape)
{
    t->shape = *shape;
    t->n_ranks = n_ranks;
    t->elem_bytes = gm_dtype_bytes(shape->dtype);
    if (shape->algo->collective == GM_BROADCAST) t->shape.is_in_place = true;
    if (shape->algo->collective == GM_BARRIER) t->shape.count_elems = 0;
    for (int rank = 0; rank < n_ranks; rank++) prepare_rank(t, rank);
}

void trial_fini(struct trial *t)
{
    for (int rank = 0; rank < SIM_MAX_RANKS; rank++) {
        guard_fini(&t->send[rank]);
        guard_fini(&t->recv[rank]);
        free(t->values[rank]);
    }
    *t = (struct trial){ 0 };
}

void trial_begin(struct trial *t, struct sim *sim, int rank)
{
    const struct trial_shape *s = &t->shape;
    struct gmi_request request = { .which = s->algo->collective, .redop = -1, .root = -1 };
    if (s->algo->collective != GM_BARRIER) {
        request.recv = t->recv[rank].bytes;
        request.send = s->is_in_place ? t->recv[rank].bytes : t->send[rank].bytes;
        request.count_elems = s->count_elems;
        request.dtype = s->dtype;
    }
    if (gmi_request_is_reduction(&request)) request.redop = (int)s->redop;
    if (s->algo->collective == GM_BROADCAST) request.root = s->root;
    sim_begin(sim, rank, s->algo, request);
}

/* ---- checking ------------------------------------------------------------------------------------ */

const uint8_t *trial_result(const struct trial *t, int rank, size_t *first_elem, size_t *n_elems)
{
    *first_elem = 0;
    *n_elems = t->shape.count_elems;
    if (t->shape.algo->collective != GM_REDUCE_SCATTER) return t->recv[rank].bytes;
    own_chunk(t, rank, first_elem, n_elems);
    return t->recv[rank].bytes + (t->shape.is_in_place ? *first_elem * t->elem_bytes : 0);
}

void trial_check_result(const struct trial *t, const struct sim *sim, int rank)
{
    size_t         first, n;
    const uint8_t *have = trial_result(t, rank, &first, &n);
    for (size_t i = 0; i < n; i++) {
        uint64_t want = 0, is = 0;
        expected(t, first + i, &want);
        memcpy(&is, have + i * t->elem_bytes, t->elem_bytes);
        if (is == want) continue;
        print_error("rank %d, element %zu of %zu (%s %s%s): %#llx, wanted %#llx\n", rank, first + i,
                    t->shape.count_elems, gm_dtype_name(t->shape.dtype), gm_redop_name(t->shape.redop),
                    t->shape.is_in_place ? ", in place" : "", (unsigned long long)is, (unsigned long long)want);
        sim_assert(sim, is == want);
    }
    guard_check(&t->recv[rank]);
    guard_check(&t->send[rank]);
    if (t->shape.is_in_place || t->send[rank].n_bytes == 0) return;
    bool   is_gather = t->shape.algo->collective == GM_ALL_GATHER;
    size_t chunk_first, chunk_n;
    own_chunk(t, rank, &chunk_first, &chunk_n);
    const uint8_t *sent = t->values[rank] + (is_gather ? chunk_first * t->elem_bytes : 0);
    sim_assert(sim, memcmp(sent, t->send[rank].bytes, t->send[rank].n_bytes) == 0); /* `send` is only read */
}

void trial_check_counts(const struct trial *t, const struct sim *sim)
{
    const struct trial_shape *s = &t->shape;
    uint64_t protocol_sent = 0, protocol_recv = 0;
    size_t   elem_bytes = s->algo->collective == GM_BARRIER ? 1 : t->elem_bytes;
    for (int rank = 0; rank < t->n_ranks; rank++) {
        const struct gmi_op *op = &sim->ranks[rank].op;
        const gm_traffic    *traffic = &op->traffic;
        uint64_t formula = s->algo->payload_sent_bytes(t->n_ranks, rank, s->count_elems, elem_bytes, s->root);
        sim_assert(sim, traffic->calls == 1);
        sim_assert(sim, traffic->payload_sent_bytes == formula);
        sim_assert(sim, traffic->payload_recv_bytes == op->total_recv_bytes);
        sim_assert(sim, traffic->payload_sent_bytes + traffic->payload_recv_bytes + traffic->protocol_sent_bytes +
                                traffic->protocol_recv_bytes == op->moved_bytes);
        protocol_sent += traffic->protocol_sent_bytes;
        protocol_recv += traffic->protocol_recv_bytes;
    }
    sim_assert(sim, protocol_sent == protocol_recv);
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
