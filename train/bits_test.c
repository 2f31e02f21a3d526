/* The reproducible kernels against their definition: one fmaf after another. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "train/bits.h"

static const char *const variants[] = { "avx512", "avx2", "plain" };
#define N_VARIANTS (sizeof variants / sizeof *variants)

static float *take(size_t n)
{
    float *values = gmi_alloc(n, sizeof *values);
    assert_non_null(values);
    return values;
}

enum values { ORDINARY, WIDE };

/* WIDE: any sign and exponent, denormals and zeros among them, the largest ones rare enough for
 * some sums to stay finite. */
static float random_value(enum values kind, uint64_t key, uint64_t i)
{
    if (kind == ORDINARY) return (float)(2 * gmi_rng_unit(key, i) - 1);
    uint32_t bits = (uint32_t)gmi_rng_u64(key, i), exponent = bits >> 23 & 0xff;
    if (exponent == 0xff || bits % 8 == 0) bits = bits & 0x80000000; /* zero */
    else if (bits % 16 != 1) bits -= (exponent - exponent / 2) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float *random_floats(size_t n, enum values kind, uint64_t key)
{
    float *values = take(n);
    for (size_t i = 0; i < n; i++) values[i] = random_value(kind, key, i);
    return values;
}

/* Bit for bit; any NaN is like any other. */
static void assert_same(const char *what, const float *values, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&values[i], &expected[i], sizeof *values) != 0 &&
            !(isnan(values[i]) && isnan(expected[i])))
            fail_msg("%s with %s: element %zu of %zu is %a, expected %a", what, gmt_bits_variant(),
                     i, n, (double)values[i], (double)expected[i]);
}

/* ---- the definition -------------------------------------------------------------------------- */

struct shape {
    size_t n_rows, n_in, n_out;
};

static void oracle_forward(const float *x, const float *w, const float *b, float *y, struct shape s,
                           bool has_relu)
{
    for (size_t r = 0; r < s.n_rows; r++)
        for (size_t o = 0; o < s.n_out; o++) {
            float sum = b[o];
            for (size_t i = 0; i < s.n_in; i++)
                sum = fmaf(x[r * s.n_in + i], w[o * s.n_in + i], sum);
            y[r * s.n_out + o] = has_relu && sum < 0 ? 0 : sum;
        }
}

static void oracle_backward(const float *x, const float *w, const float *dy, float *dw, float *db,
                            float *dx, struct shape s, bool is_continuing, bool has_relu_below)
{
    for (size_t o = 0; o < s.n_out; o++) {
        float sum = is_continuing ? db[o] : 0;
        for (size_t r = 0; r < s.n_rows; r++) sum += dy[r * s.n_out + o];
        db[o] = sum;
        for (size_t i = 0; i < s.n_in; i++) {
            sum = is_continuing ? dw[o * s.n_in + i] : 0;
            for (size_t r = 0; r < s.n_rows; r++)
                sum = fmaf(dy[r * s.n_out + o], x[r * s.n_in + i], sum);
            dw[o * s.n_in + i] = sum;
        }
    }
    for (size_t r = 0; r < s.n_rows; r++)
        for (size_t i = 0; i < s.n_in; i++) {
            float sum = 0;
            for (size_t o = 0; o < s.n_out; o++)
                sum = fmaf(dy[r * s.n_out + o], w[o * s.n_in + i], sum);
            dx[r * s.n_in + i] = has_relu_below && x[r * s.n_in + i] <= 0 ? 0 : sum;
        }
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Puts what comes into the array at `user`, which holds a NaN where nothing has come. */
static void collect(void *user, size_t first_elem, const float *values, size_t n_elems)
{
    float *dw = user;
    for (size_t i = 0; i < n_elems; i++) assert_true(isnan(dw[first_elem + i]));
    memcpy(dw + first_elem, values, n_elems * sizeof *values);
}

/* What a layer computes, and what it has to be. */
struct layer {
    struct shape shape;
    enum values kind;
    float *x, *w, *b, *dy;
    float *y[2], *dw[2], *db[2], *dx[2]; /* [0] by the kernels, [1] by the definition */
};

static void make_layer(struct layer *l, struct shape s, enum values kind, uint64_t key)
{
    *l = (struct layer){ .shape = s, .kind = kind };
    l->x = random_floats(s.n_rows * s.n_in, kind, key);
    l->w = random_floats(s.n_out * s.n_in, kind, key + 1);
    l->b = random_floats(s.n_out, kind, key + 2);
    l->dy = random_floats(s.n_rows * s.n_out, kind, key + 3);
    for (int i = 0; i < 2; i++) {
        l->y[i] = take(s.n_rows * s.n_out);
        l->dw[i] = take(s.n_out * s.n_in);
        l->db[i] = take(s.n_out);
        l->dx[i] = take(s.n_rows * s.n_in);
    }
}

static void free_layer(struct layer *l)
{
    gmi_free(l->x);
    gmi_free(l->w);
    gmi_free(l->b);
    gmi_free(l->dy);
    for (int i = 0; i < 2; i++) {
        gmi_free(l->y[i]);
        gmi_free(l->dw[i]);
        gmi_free(l->db[i]);
        gmi_free(l->dx[i]);
    }
}

static void compute(struct gmt_bits *bits, struct layer *l, size_t part, bool is_continuing,
                    bool has_relu)
{
    struct shape s = l->shape;
    gmt_bits_linear_forward(bits, l->x, l->w, l->b, l->y[0], s.n_rows, s.n_in, s.n_out, has_relu);
    gmt_bits_linear_backward_bias(l->dy, l->db[0], s.n_rows, s.n_out, is_continuing);
    for (size_t end = s.n_out; end > 0;) {
        size_t n_part = end < part ? end : part;
        end -= n_part;
        gmt_bits_linear_backward_weight(bits, l->x, l->dy, l->dw[0], s.n_rows, s.n_in, s.n_out, end,
                                        n_part, is_continuing);
    }
    gmt_bits_linear_backward_input(bits, l->x, l->w, l->dy, l->dx[0], s.n_rows, s.n_in, s.n_out,
                                   has_relu);
}

static void check_layer(struct layer *l)
{
    struct shape s = l->shape;
    assert_same("y", l->y[0], l->y[1], s.n_rows * s.n_out);
    assert_same("db", l->db[0], l->db[1], s.n_out);
    assert_same("dw", l->dw[0], l->dw[1], s.n_out * s.n_in);
    assert_same("dx", l->dx[0], l->dx[1], s.n_rows * s.n_in);
}

/* The same layer by every variant and several numbers of threads, dw in parts of `part` rows and to
 * a sink. */
static void check_shape(struct gmt_bits *const crews[], size_t n_crews, struct shape s,
                        enum values kind, size_t part, bool has_relu, uint64_t key)
{
    struct layer l;
    make_layer(&l, s, kind, key);
    oracle_forward(l.x, l.w, l.b, l.y[1], s, has_relu);
    oracle_backward(l.x, l.w, l.dy, l.dw[1], l.db[1], l.dx[1], s, false, has_relu);
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        for (size_t c = 0; c < n_crews; c++) {
            compute(crews[c], &l, part, false, has_relu);
            check_layer(&l);
            for (size_t e = 0; e < s.n_out * s.n_in; e++) l.dw[0][e] = NAN;
            for (size_t first = 0; first < s.n_out; first += part)
                gmt_bits_linear_backward_weight_to(
                    crews[c], l.x, l.dy, s.n_rows, s.n_in, s.n_out, first,
                    s.n_out - first < part ? s.n_out - first : part, collect, l.dw[0]);
            assert_same("dw to a sink", l.dw[0], l.dw[1], s.n_out * s.n_in);
        }
    }
    free_layer(&l);
}

#define N_CREWS 3
static void open_crews(struct gmt_bits *crews[N_CREWS])
{
    gm_error error = { 0 };
    for (int c = 0; c < N_CREWS; c++)
        assert_int_equal(gmt_bits_open(&crews[c], c + 1, &error), GM_OK);
}
static void close_crews(struct gmt_bits *crews[N_CREWS])
{
    for (int c = 0; c < N_CREWS; c++) gmt_bits_close(crews[c]);
}

static void any_shape_gives_the_bits_of_the_definition(void **state)
{
    (void)state;
    struct gmt_bits *crews[N_CREWS];
    open_crews(crews);
    for (uint64_t round = 0; round < 40; round++) {
        struct shape s = { 1 + gmi_rng_below(round, 0, 70), 1 + gmi_rng_below(round, 1, 70),
                           1 + gmi_rng_below(round, 2, 40) };
        check_shape(crews, N_CREWS, s, round % 2 == 0 ? ORDINARY : WIDE,
                    1 + gmi_rng_below(round, 3, s.n_out), round % 3 == 0, 100 * round);
    }
    close_crews(crews);
}

/* More than a block, a chunk or a thread's memory takes at once, and nothing at all. */
static void sizes_beyond_every_block_give_the_bits_of_the_definition(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        { 16, 784, 10 }, { 5, 330, 33 }, { 700, 9, 31 },   { 9000, 3, 5 },    { 3, 2, 1100 },
        { 2, 4500, 3 },  { 3, 5, 2100 }, { 33, 1100, 17 }, { 1000, 17, 129 }, { 0, 4, 3 },
    };
    struct gmt_bits *crews[N_CREWS];
    open_crews(crews);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        check_shape(crews, N_CREWS, shapes[s], ORDINARY, shapes[s].n_out, true, s);
    close_crews(crews);
}

static void a_batch_in_parts_gives_the_bits_of_the_whole(void **state)
{
    (void)state;
    struct gmt_bits *crews[N_CREWS];
    open_crews(crews);
    struct shape whole = { 90, 37, 29 };
    struct layer l;
    make_layer(&l, whole, ORDINARY, 7);
    oracle_backward(l.x, l.w, l.dy, l.dw[1], l.db[1], l.dx[1], whole, false, false);
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        for (size_t first = 0; first < whole.n_rows; first += 40) {
            size_t n = whole.n_rows - first < 40 ? whole.n_rows - first : 40;
            const float *x = l.x + first * whole.n_in, *dy = l.dy + first * whole.n_out;
            gmt_bits_linear_backward_bias(dy, l.db[0], n, whole.n_out, first > 0);
            gmt_bits_linear_backward_weight(crews[v], x, dy, l.dw[0], n, whole.n_in, whole.n_out, 0,
                                            whole.n_out, first > 0);
        }
        assert_same("db", l.db[0], l.db[1], whole.n_out);
        assert_same("dw", l.dw[0], l.dw[1], whole.n_out * whole.n_in);
    }
    free_layer(&l);
    close_crews(crews);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_shape_gives_the_bits_of_the_definition),
        cmocka_unit_test(sizes_beyond_every_block_give_the_bits_of_the_definition),
        cmocka_unit_test(a_batch_in_parts_gives_the_bits_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
