#include "reduce/accumulator.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "base/simd.h"

/* ---- life ---------------------------------------------------------------------------------------- */

void gm_accumulator_options_default(gm_accumulator_options *options)
{
    *options = (gm_accumulator_options){ .struct_bytes = sizeof *options,
                                         .quantum_exponent = GMI_DEFAULT_QUANTUM,
                                         .window_bits = GMI_DEFAULT_WINDOW };
}

static gm_status check_options(const gm_accumulator_options *o, gm_error *e)
{
    if (o->struct_bytes != sizeof *o) {
        return gmi_error_set(e, GM_ERR_ARG, "the options have %zu bytes, not %zu: fill them with gm_accumulator_options_default, "
                             "and use header and library of one version", o->struct_bytes, sizeof *o);
    }
    if (o->count == 0) return gmi_error_set(e, GM_ERR_ARG, "`count` is 0: an accumulator needs an element at least");
    if (o->count > UINT32_MAX) {
        return gmi_error_set(e, GM_ERR_UNSUPPORTED, "%zu elements are more than an accumulator holds, 2^32 - 1: use several", o->count);
    }
    if (o->n_shards < 1) return gmi_error_set(e, GM_ERR_ARG, "`n_shards` is %d: how many contributions make the sum?", o->n_shards);
    if (o->n_shards > GM_MAX_SHARDS) {
        return gmi_error_set(e, GM_ERR_UNSUPPORTED, "%d shards could overflow a lane; %d can not: add some up in accumulators of "
                             "their own", o->n_shards, GM_MAX_SHARDS);
    }
    if (o->quantum_exponent < -126 || o->quantum_exponent > 64) {
        return gmi_error_set(e, GM_ERR_ARG, "`quantum_exponent` is %d; it must be -126 .. 64", o->quantum_exponent);
    }
    if (o->window_bits < 26 || o->window_bits > 51) {
        return gmi_error_set(e, GM_ERR_ARG, "`window_bits` is %d; it must be 26 .. 51", o->window_bits);
    }
    return GM_OK;
}

gm_status gm_accumulator_create(gm_accumulator **acc, const gm_accumulator_options *options, gm_error *error)
{
    gmi_error_clear(error);
    if (acc == NULL || options == NULL) return gmi_error_set(error, GM_ERR_ARG, "`acc` or `options` is NULL");
    *acc = NULL;
    gm_status status = check_options(options, error);
    if (status != GM_OK) return status;
    gm_accumulator *a = gmi_alloc(1, sizeof *a);
    size_t          n_blocks = options->count / GMI_EXACT_BLOCK + (options->count % GMI_EXACT_BLOCK != 0);
    if (a != NULL) {
        *a = (gm_accumulator){ .options = *options,
                               .window = gmi_window_of(options->quantum_exponent, options->window_bits),
                               .kernels = gmi_exact_kernels(),
                               .n_blocks = n_blocks,
                               .lanes = gmi_alloc(n_blocks * GMI_EXACT_BLOCK, sizeof *a->lanes),
                               .added = gmi_alloc((size_t)options->n_shards, sizeof *a->added) };
        pthread_mutex_init(&a->lock, NULL);
        gmi_error_clear(&a->error);
    }
    if (a == NULL || a->lanes == NULL || a->added == NULL) {
        gm_accumulator_destroy(a);
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for an accumulator of %zu elements", options->count);
    }
    *acc = a;
    return GM_OK;
}

void gm_accumulator_destroy(gm_accumulator *acc)
{
    if (acc == NULL) return;
    gmi_free(acc->lanes);
    gmi_free(acc->added);
    gmi_spills_fini(&acc->spills);
    for (int i = 0; i < 2; i++) gmi_spills_fini(&acc->arriving[i]);
    pthread_mutex_destroy(&acc->lock);
    gmi_free(acc);
}

gm_status gmi_accumulator_fail(gm_accumulator *acc, gm_status status, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&acc->lock);
    gmi_error_clear(&acc->error);
    va_start(args, format);
    gmi_error_setv(&acc->error, status, format, args);
    va_end(args);
    pthread_mutex_unlock(&acc->lock);
    return status;
}

const gm_error *gm_accumulator_error(const gm_accumulator *acc) { return &acc->error; }

static uint64_t added_now(const gm_accumulator *acc)
{
    uint64_t sum = 0;
    for (int k = 0; k < acc->options.n_shards; k++) sum += atomic_load(&acc->added[k]);
    return sum;
}

static gm_status in_call(gm_accumulator *acc)
{
    return gmi_accumulator_fail(acc, GM_ERR_STATE, "the accumulator is in an all-reduce that is not done");
}

gm_status gm_accumulator_reset(gm_accumulator *acc)
{
    if (acc == NULL) return GM_ERR_ARG;
    if (atomic_load(&acc->is_in_call)) return in_call(acc);
    acc->added_before += added_now(acc);
    memset(acc->lanes, 0, acc->n_blocks * GMI_EXACT_BLOCK * sizeof *acc->lanes);
    for (int k = 0; k < acc->options.n_shards; k++) atomic_store(&acc->added[k], 0);
    acc->spills.n = 0;
    acc->is_spoiled = false;
    gmi_error_clear(&acc->error);
    return GM_OK;
}

gm_status gm_accumulator_get_stats(const gm_accumulator *acc, gm_accumulator_stats *stats)
{
    if (acc == NULL || stats == NULL) return GM_ERR_ARG;
    struct gmi_shards complete;
    gmi_accumulator_shards(acc, &complete);
    *stats = (gm_accumulator_stats){
        .n_shards_added = gmi_shards_count(&complete),
        .spilled = acc->spills.n,
        .spilled_ever = acc->spilled_ever,
        .added_ever = acc->added_before + added_now(acc),
        .lane_bytes = acc->n_blocks * GMI_EXACT_BLOCK * sizeof *acc->lanes,
        .spill_bytes = (acc->spills.room + acc->arriving[0].room + acc->arriving[1].room) * sizeof *acc->spills.at,
        .sent_lane_bytes = acc->sent_lane_bytes,
        .sent_spill_bytes = acc->sent_spill_bytes,
    };
    return GM_OK;
}

/* ---- sets of shards ------------------------------------------------------------------------------ */

int gmi_shards_words(int n_shards) { return (n_shards + 63) / 64; }

int gmi_shards_count(const struct gmi_shards *s)
{
    int n = 0;
    for (int i = 0; i < GMI_SHARD_WORDS; i++) n += __builtin_popcountll(s->words[i]);
    return n;
}

int gmi_shards_first_common(const struct gmi_shards *a, const struct gmi_shards *b)
{
    for (int i = 0; i < GMI_SHARD_WORDS; i++) {
        uint64_t common = a->words[i] & b->words[i];
        if (common != 0) return 64 * i + __builtin_ctzll(common);
    }
    return -1;
}

int gmi_shards_first_missing(const struct gmi_shards *s, int n_shards)
{
    for (int k = 0; k < n_shards; k++) {
        if ((s->words[k / 64] >> (k % 64) & 1) == 0) return k;
    }
    return -1;
}

void gmi_shards_join(struct gmi_shards *to, const struct gmi_shards *more)
{
    for (int i = 0; i < GMI_SHARD_WORDS; i++) to->words[i] |= more->words[i];
}

int gmi_accumulator_shards(const gm_accumulator *acc, struct gmi_shards *complete)
{
    int incomplete = -1;
    *complete = (struct gmi_shards){ { 0 } };
    for (int k = 0; k < acc->options.n_shards; k++) {
        size_t added = atomic_load(&acc->added[k]);
        if (added == acc->options.count) complete->words[k / 64] |= UINT64_C(1) << (k % 64);
        else if (added > 0 && incomplete < 0) incomplete = k;
    }
    return incomplete;
}

/* ---- adding -------------------------------------------------------------------------------------- */

enum { STRIP_ELEMS = 512 };

static bool keep_spilled(gm_accumulator *acc, const uint64_t *spilled, size_t n)
{
    pthread_mutex_lock(&acc->lock);
    bool is_kept = gmi_spills_append(&acc->spills, spilled, n);
    acc->spilled_ever += n;
    if (!is_kept) acc->is_spoiled = true;
    pthread_mutex_unlock(&acc->lock);
    return is_kept;
}

static bool add_run(gm_accumulator *acc, const float *x, size_t first, size_t n)
{
    uint64_t spilled[STRIP_ELEMS];
    for (size_t at = 0; at < n; at += STRIP_ELEMS) {
        size_t here = gmi_min_size(STRIP_ELEMS, n - at);
        size_t n_spilled = acc->kernels->add(acc->lanes + first + at, x + at, here, &acc->window, (uint32_t)(first + at), spilled);
        if (n_spilled > 0 && !keep_spilled(acc, spilled, n_spilled)) return false;
    }
    return true;
}

/* A shard gets so many elements more, unless it then had too many. */
static gm_status count_in(gm_accumulator *acc, int shard, size_t n)
{
    size_t before = atomic_fetch_add(&acc->added[shard], n), count = acc->options.count;
    if (before <= count && n <= count - before) return GM_OK;
    atomic_fetch_sub(&acc->added[shard], n);
    return gmi_accumulator_fail(acc, GM_ERR_STATE, "shard %d of %d has been added already: %zu of %zu elements, and %zu more would "
                                "be counted twice", shard, acc->options.n_shards, before, count, n);
}

static gm_status check_add(gm_accumulator *acc, int shard)
{
    if (shard < 0 || shard >= acc->options.n_shards) {
        return gmi_accumulator_fail(acc, GM_ERR_ARG, "there is no shard %d of %d", shard, acc->options.n_shards);
    }
    return atomic_load(&acc->is_in_call) ? in_call(acc) : GM_OK;
}

/* Is the last element of the tile within? Without overflow on the way. */
static bool is_within(const gm_accumulator *acc, size_t first, size_t stride, size_t n_rows, size_t n_columns)
{
    size_t last_row, end;
    return gmi_mul_sizes(n_rows - 1, stride, &last_row) && gmi_add_sizes(first, last_row, &end) &&
           gmi_add_sizes(end, n_columns, &end) && end <= acc->options.count;
}

gm_status gm_accumulator_add_tile(gm_accumulator *acc, int shard, const float *tile, size_t tile_stride, size_t first,
                                  size_t stride, size_t n_rows, size_t n_columns)
{
    if (acc == NULL) return GM_ERR_ARG;
    gm_status status = check_add(acc, shard);
    if (status != GM_OK || n_rows == 0 || n_columns == 0) return status;
    if (tile == NULL) return gmi_accumulator_fail(acc, GM_ERR_ARG, "the values are NULL");
    if (!is_within(acc, first, stride, n_rows, n_columns)) {
        return gmi_accumulator_fail(acc, GM_ERR_ARG, "%zu rows of %zu from element %zu on reach beyond the last of %zu elements",
                                    n_rows, n_columns, first, acc->options.count);
    }
    if (n_rows > 1 && stride < n_columns) {
        return gmi_accumulator_fail(acc, GM_ERR_ARG, "rows of %zu that are %zu apart overlap", n_columns, stride);
    }
    status = count_in(acc, shard, n_rows * n_columns);
    if (status != GM_OK) return status;
    uint64_t mode = gmi_float_mode_default();
    bool     is_added = true;
    if (tile_stride == n_columns && stride == n_columns) {
        is_added = add_run(acc, tile, first, n_rows * n_columns);
    } else {
        for (size_t i = 0; i < n_rows && is_added; i++) is_added = add_run(acc, tile + i * tile_stride, first + i * stride, n_columns);
    }
    gmi_float_mode_restore(mode);
    if (is_added) return GM_OK;
    return gmi_accumulator_fail(acc, GM_ERR_NOMEM, "no memory for the numbers that do not fit into lanes");
}

gm_status gm_accumulator_add(gm_accumulator *acc, int shard, const float *values)
{
    if (acc == NULL) return GM_ERR_ARG;
    return gm_accumulator_add_tile(acc, shard, values, acc->options.count, 0, acc->options.count, 1, acc->options.count);
}

/* ---- the end ------------------------------------------------------------------------------------- */

/* Elements that have spilled numbers are done once more, exactly. */
static void settle_spilled(float *out, const uint64_t *lanes, size_t count, int quantum_exponent,
                           const struct gmi_spills *spills, size_t first)
{
    size_t at = gmi_spills_find(spills, first), end = gmi_spills_find(spills, first + count), n;
    for (; at < end; at += n) {
        uint32_t index = gmi_spill_index(spills->at[at]);
        for (n = 1; at + n < end && gmi_spill_index(spills->at[at + n]) == index; n++) {}
        uint32_t bits = gmi_exact_sum_bits(lanes[index - first], quantum_exponent, spills->at + at, n);
        memcpy(&out[index - first], &bits, sizeof bits);
    }
}

void gmi_exact_settle(float *out, const uint64_t *lanes, size_t count, int quantum_exponent,
                      const struct gmi_spills *spills, size_t first)
{
    uint64_t mode = gmi_float_mode_default();
    gmi_exact_round(out, lanes, count, quantum_exponent);
    gmi_float_mode_restore(mode);
    settle_spilled(out, lanes, count, quantum_exponent, spills, first);
}

void gmi_exact_settle_one(float *out, const float *only, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits, magnitude;
        memcpy(&bits, &only[i], sizeof bits);
        magnitude = bits & UINT32_C(0x7fffffff);
        if (magnitude == 0) bits = 0;
        if (magnitude > UINT32_C(0x7f800000)) bits = UINT32_C(0x7fc00000);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

gm_status gm_accumulator_finish(gm_accumulator *acc, float *sum)
{
    if (acc == NULL) return GM_ERR_ARG;
    if (sum == NULL) return gmi_accumulator_fail(acc, GM_ERR_ARG, "`sum` is NULL");
    if (atomic_load(&acc->is_in_call)) return in_call(acc);
    struct gmi_shards complete;
    gmi_accumulator_shards(acc, &complete);
    int missing = gmi_shards_first_missing(&complete, acc->options.n_shards);
    if (acc->is_spoiled) return gmi_accumulator_fail(acc, GM_ERR_NOMEM, "a number that did not fit into its lane is lost");
    if (missing >= 0) {
        return gmi_accumulator_fail(acc, GM_ERR_STATE, "shard %d of %d has not been added: %zu of %zu elements", missing,
                                    acc->options.n_shards, atomic_load(&acc->added[missing]), acc->options.count);
    }
    gmi_spills_sort(&acc->spills);
    gmi_exact_settle(sum, acc->lanes, acc->options.count, acc->options.quantum_exponent, &acc->spills, 0);
    return GM_OK;
}
