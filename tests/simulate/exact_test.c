/* exact_test.c - exact sums of shards that are anywhere: one result whatever the ranks and the algorithm; shards that are
 * missing or there twice; and bytes that no honest peer sends. */
#include <math.h>
#include <sys/uio.h>

#include "base/rng.h"
#include "reduce/accumulator.h"
#include "tests/support/oracle.h"
#include "tests/support/sim.h"
#include "tests/support/test.h"

enum { BLOCK = 64, SLAB = 128 * BLOCK };

/* Numbers of which about one in `rare` does not fit into its lane. */
static void fill(float *x, uint64_t seed, int shard, size_t count, unsigned rare)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t r = gmi_rng_u64(gmi_rng_key(seed, (uint64_t)shard), i);
        float    unit = (float)(int32_t)(uint32_t)r * 0x1p-31f;
        x[i] = (r >> 32) % rare == 0 ? ldexpf(unit, (int)(r >> 50) % 200 - 120) : unit * 0x1p-4f;
    }
}

static gm_accumulator *accumulator(size_t count, int n_shards, int is_raw)
{
    gm_accumulator        *acc;
    gm_accumulator_options options;
    gm_accumulator_options_default(&options);
    options.count = count;
    options.n_shards = n_shards;
    options.is_wire_raw = is_raw;
    assert_ok(gm_accumulator_create(&acc, &options, NULL));
    return acc;
}

static void begin(struct sim *sim, int rank, const struct gmi_algo *algo, gm_accumulator *acc, float *sum)
{
    struct gmi_request request = { .which = GM_ALL_REDUCE, .send = sum, .recv = sum, .count_elems = acc->options.count,
                                   .dtype = GM_F32, .redop = GM_SUM_EXACT, .root = -1, .exact = acc };
    sim_begin(sim, rank, algo, request);
}

static const struct gmi_algo *exact_row(size_t index)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->shows == GMI_VIEW_EXACT && index-- == 0) return row;
    }
    return NULL;
}

/* ---- one result ---------------------------------------------------------------------------------- */

struct job {
    size_t   count;
    int      n_shards;
    unsigned rare;
    float   *shards, *want; /* n_shards times count; the result */
};

static void make_job(struct job *j, size_t count, int n_shards, unsigned rare)
{
    *j = (struct job){ count, n_shards, rare, calloc(count * (size_t)n_shards, sizeof(float)), calloc(count, sizeof(float)) };
    assert_true(j->shards != NULL && j->want != NULL);
    uint32_t bits[64];
    for (int k = 0; k < n_shards; k++) fill(j->shards + (size_t)k * count, 7, k, count, rare);
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < n_shards; k++) memcpy(&bits[k], &j->shards[(size_t)k * count + i], sizeof *bits);
        uint32_t sum = oracle_exact_sum(bits, (size_t)n_shards);
        memcpy(&j->want[i], &sum, sizeof sum);
    }
}

static void free_job(struct job *j)
{
    free(j->shards);
    free(j->want);
}

/* Shards are dealt out by the seed: some ranks may have none. Own accumulators must stay as they were. */
static void run_job(const struct job *j, const struct gmi_algo *row, int n_ranks, uint64_t seed, size_t capacity_bytes)
{
    static struct sim sim;
    gm_accumulator   *accs[SIM_MAX_RANKS];
    float            *sums = calloc(j->count * (size_t)n_ranks, sizeof *sums), *again = calloc(j->count, sizeof *again);
    struct sim_plan   plan = { .n_ranks = n_ranks, .seed = seed, .capacity_bytes = capacity_bytes, .delay_probability = 0.1,
                               .links_for = row };
    assert_true(sums != NULL && again != NULL);
    sim_init(&sim, &plan);
    for (int r = 0; r < n_ranks; r++) accs[r] = accumulator(j->count, j->n_shards, gmi_rng_u64(seed, 100 + (uint64_t)r) % 3 == 0);
    for (int k = 0; k < j->n_shards; k++) {
        int rank = (int)(gmi_rng_u64(seed, (uint64_t)k) % (uint64_t)n_ranks);
        assert_ok(gm_accumulator_add(accs[rank], k, j->shards + (size_t)k * j->count));
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int r = 0; r < n_ranks; r++) begin(&sim, r, row, accs[r], sums + (size_t)r * j->count);
        sim_assert(&sim, sim_run(&sim));
        for (int r = 0; r < n_ranks; r++) {
            sim_assert(&sim, sim.ranks[r].status == GM_OK);
            sim_assert(&sim, memcmp(sums + (size_t)r * j->count, j->want, j->count * sizeof(float)) == 0);
        }
        memset(sums, 0xff, j->count * (size_t)n_ranks * sizeof *sums);
    }
    sim_assert(&sim, sim_links_are_empty(&sim));
    for (int r = 0; r < n_ranks; r++) gm_accumulator_destroy(accs[r]);
    sim_fini(&sim);
    free(sums);
    free(again);
}

static void the_same_sum_with_every_algorithm_and_number_of_ranks(void **state)
{
    (void)state;
    struct job             j;
    const struct gmi_algo *row;
    make_job(&j, 5 * BLOCK + 9, 24, 40);
    for (size_t i = 0; (row = exact_row(i)) != NULL; i++) {
        for (int n = 2; n <= 8 && n <= TEST_MAX_RANKS; n++) {
            for (uint64_t seed = 0; seed < (test_is_long() ? 50 : 3); seed++) run_job(&j, row, n, seed + (uint64_t)n, 3000);
        }
        if (TEST_MAX_RANKS > 3) run_job(&j, row, 20, 3, 3000);
    }
    free_job(&j);
}

/* Chunks of several slabs, and so many spilled numbers that they take portions of their own. */
static void long_sums_of_which_most_is_spilled(void **state)
{
    (void)state;
    struct job             j;
    const struct gmi_algo *row;
    for (unsigned rare = 1; rare <= 1000; rare *= 1000) {
        make_job(&j, 3 * SLAB + 17, 3, rare);
        for (size_t i = 0; (row = exact_row(i)) != NULL; i++) {
            for (int n = 2; n <= 3; n++) run_job(&j, row, n, (uint64_t)n, 100000);
        }
        free_job(&j);
    }
}

/* ---- shards that are wrong ------------------------------------------------------------------------- */

/* Nobody gets a result, and who finds it names the shard. */
static void run_wrong(const struct gmi_algo *row, int n_ranks, bool is_twice)
{
    static struct sim sim;
    enum { N = 300 };
    float           x[N] = { 1 }, sums[8][N];
    gm_accumulator *accs[8];
    int             n_named = 0;
    char            sentence[64];
    struct sim_plan plan = { .n_ranks = n_ranks, .seed = 4, .capacity_bytes = 1000, .links_for = row };
    snprintf(sentence, sizeof sentence, "shard 1 of %d has been added on %s", n_ranks, is_twice ? "two ranks" : "no rank");
    sim_init(&sim, &plan);
    for (int r = 0; r < n_ranks; r++) {
        accs[r] = accumulator(N, n_ranks, 0);
        if (r != 1 || is_twice) assert_ok(gm_accumulator_add(accs[r], r, x));
        if (r == n_ranks - 1 && is_twice) assert_ok(gm_accumulator_add(accs[r], r == 1 ? 0 : 1, x));
    }
    if (n_ranks == 2) snprintf(sentence, sizeof sentence, "shard %d of 2 has been added on %s", is_twice ? 0 : 1, is_twice ? "two ranks" : "no rank");
    for (int r = 0; r < n_ranks; r++) begin(&sim, r, row, accs[r], sums[r]);
    (void)sim_run(&sim);
    for (int r = 0; r < n_ranks; r++) {
        sim_assert(&sim, sim.ranks[r].status == GM_AGAIN || sim.ranks[r].status == GM_ERR_MISMATCH);
        if (sim.ranks[r].status != GM_ERR_MISMATCH) continue;
        n_named++;
        assert_string_equal(sim.ranks[r].op.trouble.sentence, sentence);
    }
    sim_assert(&sim, n_named > 0);
    for (int r = 0; r < n_ranks; r++) gm_accumulator_destroy(accs[r]);
    sim_fini(&sim);
}

static void a_shard_on_two_ranks_or_on_none_is_named_and_nobody_gets_a_sum(void **state)
{
    (void)state;
    const struct gmi_algo *row;
    for (size_t i = 0; (row = exact_row(i)) != NULL; i++) {
        for (int n = 2; n <= 7 && n <= TEST_MAX_RANKS; n++) {
            run_wrong(row, n, true);
            run_wrong(row, n, false);
        }
    }
}

/* ---- bytes that no honest peer sends --------------------------------------------------------------- */

enum { STREAM_BYTES = 1 << 16 };

struct stream {
    uint8_t bytes[STREAM_BYTES];
    size_t  n;
};

/* Rank 1 of two, which sends its part of chunk 0 before it needs anything. */
static void record(struct stream *s, const struct gmi_algo *row, gm_accumulator *acc, size_t count)
{
    static struct sim sim;
    struct sim_plan   plan = { .n_ranks = 2, .seed = 1, .capacity_bytes = STREAM_BYTES };
    float            *sum = calloc(count, sizeof *sum);
    sim_init(&sim, &plan);
    begin(&sim, 1, row, acc, sum);
    assert_status(gmi_op_progress(&sim.ranks[1].op), GM_AGAIN);
    struct iovec all = { s->bytes, sizeof s->bytes };
    assert_ok(gmi_link_recv_some(sim.ends[0][1].link, &all, 1, &s->n));
    sim_fini(&sim);
    free(sum);
}

/* What rank 0 makes of these bytes; GM_AGAIN: it waits for more. */
static gm_status hear(const struct stream *s, size_t n_bytes, const struct gmi_algo *row, gm_accumulator *acc, float *sum)
{
    static struct sim sim;
    struct sim_plan   plan = { .n_ranks = 2, .seed = 1, .capacity_bytes = STREAM_BYTES };
    size_t            sent;
    sim_init(&sim, &plan);
    struct iovec all = { (void *)s->bytes, n_bytes };
    if (n_bytes > 0) assert_ok(gmi_link_send_some(sim.ends[1][0].link, &all, 1, &sent));
    begin(&sim, 0, row, acc, sum);
    gm_status status = GM_AGAIN;
    for (int turn = 0; turn < 3 && status == GM_AGAIN; turn++) status = gmi_op_progress(&sim.ranks[0].op);
    assert_true(acc->arriving[0].room + acc->arriving[1].room < 100000); /* no memory for what has not come */
    sim_fini(&sim);
    return status;
}

static void bytes_of_a_hostile_peer_are_an_error_and_no_more(void **state)
{
    (void)state;
    enum { N = 4 * BLOCK };
    static struct stream honest, other;
    static float         x[N], sum[N];
    const struct gmi_algo *row;
    int                  n_refused = 0;
    for (size_t i = 0; (row = exact_row(i)) != NULL; i++) {
        gm_accumulator *accs[2] = { accumulator(N, 70, 0), accumulator(N, 70, 0) };
        for (int k = 0; k < 70; k++) {
            fill(x, 3, k, N, 20);
            assert_ok(gm_accumulator_add(accs[k % 2], k, x));
        }
        record(&honest, row, accs[1], N);
        assert_true(honest.n > 500 && honest.n < STREAM_BYTES);
        for (size_t end = 0; end < honest.n; end += end < 300 ? 1 : 37) {
            assert_status(hear(&honest, end, row, accs[0], sum), GM_AGAIN);
        }
        for (size_t at = 0; at < honest.n; at += at < 400 ? 1 : 37) {
            static const uint8_t flips[] = { 1, 0x80, 0xff };
            for (size_t f = 0; f < TEST_COUNT(flips); f++) {
                other = honest;
                other.bytes[at] ^= flips[f];
                gm_status status = hear(&other, other.n, row, accs[0], sum);
                bool is_refused = status == GM_ERR_PROTOCOL || status == GM_ERR_MISMATCH;
                n_refused += is_refused;
                /* What is neither a length, a name nor a place cannot be told from an honest number. */
                assert_true(is_refused || (at >= GMI_DESCRIPTOR_BYTES && (status == GM_AGAIN || status == GM_OK)));
            }
        }
        for (int r = 0; r < 2; r++) gm_accumulator_destroy(accs[r]);
    }
    assert_true(n_refused > 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_sum_with_every_algorithm_and_number_of_ranks),
        cmocka_unit_test(long_sums_of_which_most_is_spilled),
        cmocka_unit_test(a_shard_on_two_ranks_or_on_none_is_named_and_nobody_gets_a_sum),
        cmocka_unit_test(bytes_of_a_hostile_peer_are_an_error_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
