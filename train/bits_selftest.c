/* Is arithmetic here what bits.h relies on? Inputs are made from integers, so that they are the
 * same where nothing else is. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/bits.h"
#include "train/optimizer.h"

/* ---- the thread's mode ----------------------------------------------------------------------- */

/* `volatile`: computed here and now, whatever the compiler was told about arithmetic. */
gm_status gmt_bits_check_thread(gm_error *error)
{
    volatile float smallest_normal = 0x1p-126f, denormal = 0x1p-149f, half = 0.5f, large = 0x1p100f;
    volatile float one = 1.0f, minus_one = -1.0f, quarter_ulp = 0x1p-25f, most_ulp = 0x1.8p-24f;
    if (smallest_normal * half == 0.0f || denormal * large == 0.0f)
        return gmi_error_set(
            error, GM_ERR_UNSUPPORTED,
            "this thread flushes denormal numbers to zero (FTZ or DAZ is set, by a "
            "library or by linking with -ffast-math): reproducible training would "
            "give other bits; clear it, or build without -ffast-math");
    if (one + quarter_ulp != one || minus_one - quarter_ulp != minus_one ||
        one + most_ulp != 0x1.000002p0f)
        return gmi_error_set(error, GM_ERR_UNSUPPORTED,
                             "this thread does not round to nearest: reproducible training would "
                             "give other bits; something has called fesetround");
    return GM_OK;
}

/* ---- the hash -------------------------------------------------------------------------------- */

enum values { ORDINARY, WIDE };

static float input(enum values kind, uint64_t key, uint64_t i)
{
    uint64_t random = gmi_rng_u64(gmi_rng_key(0x5e1f, key), i);
    uint32_t sign = (uint32_t)(random >> 63) << 31, fraction = (uint32_t)random & 0x7fffff;
    uint32_t exponent =
        kind == WIDE ? (uint32_t)(random >> 32) % 160 : 120 + (uint32_t)(random >> 32) % 8;
    uint32_t bits = sign | exponent << 23 | fraction;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void fill(float *values, size_t n, enum values kind, uint64_t key)
{
    for (size_t i = 0; i < n; i++) values[i] = input(kind, key, i);
}

static void add_bits(uint64_t *hash, uint64_t bits)
{
    *hash = gmi_mix64(*hash ^ bits);
}

/* A NaN counts as a NaN; told by its bits, as a compiler may have been promised that there are
 * none. */
static void add_floats(uint64_t *hash, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        add_bits(hash, (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits);
    }
}

enum { N_ROWS = 19, N_IN = 43, N_OUT = 13, N_WEIGHTS = N_IN * N_OUT };

struct scratch {
    float x[N_ROWS * N_IN], w[N_WEIGHTS], b[N_OUT], y[N_ROWS * N_OUT], dy[N_ROWS * N_OUT];
    float dx[N_ROWS * N_IN], dw[N_WEIGHTS], db[N_OUT], losses[N_ROWS];
    uint8_t labels[N_ROWS], is_correct[N_ROWS];
};

static void add_layer(uint64_t *hash, struct gmt_bits *bits, struct scratch *s, enum values kind)
{
    fill(s->x, N_ROWS * N_IN, kind, 1);
    fill(s->w, N_WEIGHTS, kind, 2);
    fill(s->b, N_OUT, kind, 3);
    for (int r = 0; r < N_ROWS; r++) s->labels[r] = (uint8_t)(r % N_OUT);
    gmt_bits_linear_forward(bits, s->x, s->w, s->b, s->y, N_ROWS, N_IN, N_OUT, false);
    add_floats(hash, s->y, N_ROWS * N_OUT);
    gmt_bits_softmax_loss(s->y, s->labels, s->dy, N_ROWS, N_OUT, 0x1p-6f, s->losses, s->is_correct);
    add_floats(hash, s->losses, N_ROWS);
    add_floats(hash, s->dy, N_ROWS * N_OUT);
    for (int r = 0; r < N_ROWS; r++) add_bits(hash, s->is_correct[r]);
    if (kind == WIDE) fill(s->dy, N_ROWS * N_OUT, kind, 4);
    gmt_bits_linear_backward_bias(s->dy, s->db, N_ROWS, N_OUT, false);
    gmt_bits_linear_backward_weight(bits, s->x, s->dy, s->dw, N_ROWS, N_IN, N_OUT, 0, N_OUT, false);
    gmt_bits_linear_backward_input(bits, s->x, s->w, s->dy, s->dx, N_ROWS, N_IN, N_OUT, true);
    add_floats(hash, s->db, N_OUT);
    add_floats(hash, s->dw, N_WEIGHTS);
    add_floats(hash, s->dx, N_ROWS * N_IN);
}

/* e^x at x = -87.5 .. 0 and next to 0; log at every exponent. */
static void add_functions(uint64_t *hash, struct scratch *s)
{
    enum { N = N_ROWS * N_IN };
    for (int i = 0; i < N; i++) s->x[i] = (float)(i - N + 1) * 0x1.b4p-4f;
    for (int i = 0; i < 64; i++) {
        float value = input(WIDE, 5, (uint64_t)i);
        s->x[i] = value < 0 ? value : -value;
    }
    gmt_bits_exp_nonpositive(s->x, N);
    add_floats(hash, s->x, N);
    for (int i = 0; i < 256; i++) {
        double value = gmt_bits_log((double)input(WIDE, 6, (uint64_t)i));
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        if ((bits & INT64_MAX) > UINT64_C(0x7ff) << 52) bits = UINT64_C(0x7ff8) << 48;
        add_bits(hash, bits);
    }
}

/* Two steps of each optimizer: what it leaves in the weights has gone through its state. */
static gm_status add_optimizers(uint64_t *hash, struct scratch *s)
{
    for (int kind = 0; kind < GMT_OPTIMIZER_END; kind++) {
        struct gmt_optimizer_options options;
        struct gmt_optimizer optimizer;
        gmt_optimizer_options_default(&options, (enum gmt_optimizer_kind)kind);
        options.weight_decay = 0.01;
        gm_status status = gmt_optimizer_init(&optimizer, &options, N_WEIGHTS, NULL);
        if (status != GM_OK) return status;
        fill(s->w, N_WEIGHTS, ORDINARY, 7);
        for (uint64_t step = 0; step < 2; step++) {
            fill(s->dw, N_WEIGHTS, step == 0 ? ORDINARY : WIDE, 8 + step);
            gmt_optimizer_step(&optimizer, 0.01, s->w, s->dw);
        }
        add_floats(hash, s->w, N_WEIGHTS);
        gmt_optimizer_fini(&optimizer);
    }
    return GM_OK;
}

/* What a compiler that may contract or regroup does to ordinary code. */
__attribute__((noinline)) static void add_ordinary(uint64_t *hash, struct scratch *s)
{
    fill(s->x, N_ROWS * N_IN, ORDINARY, 10);
    fill(s->w, N_WEIGHTS, ORDINARY, 11);
    float sum = 0;
    for (int i = 0; i < N_WEIGHTS; i++) sum += s->x[i];
    for (int i = 0; i < N_WEIGHTS; i++)
        s->dw[i] = (s->x[i] * s->w[i] + s->w[N_WEIGHTS - 1 - i]) / sum;
    add_floats(hash, &sum, 1);
    add_floats(hash, s->dw, N_WEIGHTS);
}

uint64_t gmt_bits_selftest(void)
{
    struct gmt_bits *bits;
    if (gmt_bits_open(&bits, 1, NULL) != GM_OK) return 0;
    struct scratch *scratch = gmi_alloc(1, sizeof *scratch);
    uint64_t hash = 0;
    if (scratch != NULL) {
        add_layer(&hash, bits, scratch, ORDINARY);
        add_layer(&hash, bits, scratch, WIDE);
        add_functions(&hash, scratch);
        add_ordinary(&hash, scratch);
        if (add_optimizers(&hash, scratch) != GM_OK) hash = 0;
    }
    gmi_free(scratch);
    gmt_bits_close(bits);
    return hash;
}

gm_status gmt_bits_check(gm_error *error)
{
    gm_status status = gmt_bits_check_thread(error);
    if (status != GM_OK) return status;
    uint64_t hash = gmt_bits_selftest();
    if (hash == GMT_BITS_SELFTEST) return GM_OK;
    if (hash == 0)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the kernels' self-test");
    return gmi_error_set(
        error, GM_ERR_UNSUPPORTED,
        "the kernels' self-test (%s) gives %016llx, expected %016llx: this build or "
        "this machine computes other bits than all others, so that training would not be "
        "reproducible; build without -ffast-math, -Ofast and -ffp-contract",
        gmt_bits_variant(), (unsigned long long)hash, (unsigned long long)GMT_BITS_SELFTEST);
}
