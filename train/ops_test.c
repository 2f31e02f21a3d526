#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "train/ops.h"

static float *random_floats(size_t n, uint64_t key)
{
    float *values = gmi_alloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) values[i] = (float)(2 * gmi_rng_unit(key, i) - 1);
    return values;
}

/* Float sums of n_terms products below 1 in another order: partial sums grow like the root of
 * n_terms, and the sum of their rounding errors again. The bound is several times above, and far
 * below one missing term. */
static void assert_close(const char *what, const float *values, const float *expected, size_t n,
                         size_t n_terms)
{
    double tolerance = 1e-6 + 1e-7 * (double)n_terms;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)values[i] - expected[i]) <= tolerance))
            fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, values[i], expected[i]);
}

static const struct shape {
    size_t n_rows, n_in, n_out;
} shapes[] = {
    { 1, 1, 1 },   { 1, 5, 3 },    { 3, 1, 7 },    { 2, 7, 1 },     { 17, 31, 13 }, { 64, 784, 10 },
    { 5, 784, 256 }, { 67, 256, 10 }, { 128, 65, 33 }, { 31, 10, 300 }, { 0, 4, 3 },
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static void forward_agrees_with_the_naive_one(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++)
        for (int has_relu = 0; has_relu < 2; has_relu++) {
            size_t n_rows = shapes[s].n_rows, n_in = shapes[s].n_in, n_out = shapes[s].n_out;
            float *x = random_floats(n_rows * n_in, 1), *w = random_floats(n_out * n_in, 2);
            float *b = random_floats(n_out, 3);
            float *y = random_floats(n_rows * n_out, 4),
                  *expected = random_floats(n_rows * n_out, 5);
            gmt_linear_forward(x, w, b, y, n_rows, n_in, n_out, has_relu);
            gmt_naive_linear_forward(x, w, b, expected, n_rows, n_in, n_out, has_relu);
            assert_close("y", y, expected, n_rows * n_out, n_in);
            gmi_free(x);
            gmi_free(w);
            gmi_free(b);
            gmi_free(y);
            gmi_free(expected);
        }
}

/* The three parts of a layer's backward pass, dw in blocks of at most block_out rows, the last
 * block first. dx may be NULL. */
static void backward(const float *x, const float *w, const float *dy, float *dw, float *db,
                     float *dx, struct shape s, size_t block_out, bool is_accumulating,
                     bool has_relu_below)
{
    gmt_linear_backward_bias(dy, db, s.n_rows, s.n_out, is_accumulating);
    for (size_t end = s.n_out; end > 0;) {
        size_t n_part = end < block_out ? end : block_out;
        end -= n_part;
        gmt_linear_backward_weight(x, dy, dw, s.n_rows, s.n_in, s.n_out, end, n_part,
                                   is_accumulating);
    }
    if (dx != NULL)
        gmt_linear_backward_input(x, w, dy, dx, s.n_rows, s.n_in, s.n_out, has_relu_below);
}

static void backward_case(struct shape shape, size_t block_out, bool is_accumulating,
                          bool has_relu_below, bool has_dx)
{
    size_t n_rows = shape.n_rows, n_in = shape.n_in, n_out = shape.n_out;
    float *x = random_floats(n_rows * n_in, 1), *w = random_floats(n_out * n_in, 2);
    float *dy = random_floats(n_rows * n_out, 3);
    float *dw[2], *db[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        dw[i] = random_floats(n_out * n_in, 4);
        db[i] = random_floats(n_out, 5);
        dx[i] = random_floats(n_rows * n_in, 6);
    }
    backward(x, w, dy, dw[0], db[0], has_dx ? dx[0] : NULL, shape, block_out, is_accumulating,
             has_relu_below);
    gmt_naive_linear_backward(x, w, dy, dw[1], db[1], has_dx ? dx[1] : NULL, n_rows, n_in, n_out,
                              is_accumulating, has_relu_below);
    assert_close("dw", dw[0], dw[1], n_out * n_in, n_rows);
    assert_close("db", db[0], db[1], n_out, n_rows);
    assert_close("dx", dx[0], dx[1], n_rows * n_in, n_out);
    for (int i = 0; i < 2; i++) {
        gmi_free(dw[i]);
        gmi_free(db[i]);
        gmi_free(dx[i]);
    }
    gmi_free(x);
    gmi_free(w);
    gmi_free(dy);
}

static void backward_agrees_with_the_naive_one(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++)
        for (int flags = 0; flags < 8; flags++)
            for (size_t block_out = 1; block_out <= 1024; block_out *= 32)
                backward_case(shapes[s], block_out, flags & 1, flags & 2, flags & 4);
}

static void relu_keeps_a_nan_visible(void **state)
{
    (void)state;
    float x[2] = { NAN, 1 }, w[1] = { 1 }, b[1] = { 0 }, y[2];
    gmt_linear_forward(x, w, b, y, 2, 1, 1, true);
    assert_true(isnan(y[0]));
    assert_true(y[1] == 1);
    float dy[2] = { 1, 1 }, dw[1], db[1], dx[2];
    backward(x, w, dy, dw, db, dx, (struct shape){ 2, 1, 1 }, 1, false, true);
    assert_true(isnan(dw[0]));
}

static void old_nans_do_not_survive_in_overwritten_results(void **state)
{
    (void)state;
    float x[6] = { 1, 2, 3, 4, 5, 6 }, w[6] = { 1, 1, 1, 1, 1, 1 }, b[2] = { 0, 0 };
    float y[4] = { NAN, NAN, NAN, NAN }, dw[6] = { NAN, NAN, NAN, NAN, NAN, NAN };
    float db[2] = { NAN, NAN }, dx[6] = { NAN, NAN, NAN, NAN, NAN, NAN };
    gmt_linear_forward(x, w, b, y, 2, 3, 2, false);
    assert_true(gmt_all_finite(y, 4));
    backward(x, w, y, dw, db, dx, (struct shape){ 2, 3, 2 }, 2, false, true);
    assert_true(gmt_all_finite(dw, 6) && gmt_all_finite(db, 2) && gmt_all_finite(dx, 6));
    dw[0] = db[0] = NAN;
    backward(x, w, y, dw, db, NULL, (struct shape){ 0, 3, 2 }, 2, false, true); /* no rows */
    for (int i = 0; i < 6; i++) assert_true(dw[i] == 0);
    assert_true(db[0] == 0 && db[1] == 0);
}

/* ---- softmax --------------------------------------------------------------------------------- */

static void softmax_loss_agrees_with_the_double_one(void **state)
{
    (void)state;
    const struct shape cases[] = { { 1, 0, 1 }, { 1, 0, 2 }, { 7, 0, 10 }, { 513, 0, 10 },
                                   { 3, 0, 255 }, { 2, 0, 5000 } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        size_t n_rows = cases[k].n_rows, n_classes = cases[k].n_out, n = n_rows * n_classes;
        float *logits = random_floats(n, 11), *dlogits = random_floats(n, 12);
        double *logits64 = gmi_alloc(n, sizeof(double)), *dlogits64 = gmi_alloc(n, sizeof(double));
        uint8_t *labels = gmi_alloc(n_rows, 1);
        for (size_t i = 0; i < n; i++) logits64[i] = logits[i] *= 6;
        for (size_t r = 0; r < n_rows; r++)
            labels[r] = (uint8_t)gmi_rng_below(13, r, n_classes < 256 ? n_classes : 256);
        double loss = 2, loss64 = 2;
        size_t n_correct = 3, n_correct64 = 3;
        gmt_naive_f64_softmax_loss(logits64, labels, dlogits64, n_rows, n_classes, 0.25, &loss64,
                                   &n_correct64);
        gmt_softmax_loss(logits, labels, dlogits, n_rows, n_classes, 0.25f, &loss, &n_correct);
        assert_int_equal(n_correct, n_correct64);
        if (!(fabs(loss - loss64) <= 1e-6 * loss64)) fail_msg("loss %g, expected %g", loss, loss64);
        for (size_t i = 0; i < n; i++)
            if (!(fabs(dlogits[i] - dlogits64[i]) <= 2e-7))
                fail_msg("dlogits[%zu] %g, expected %g", i, dlogits[i], dlogits64[i]);

        gmt_softmax_loss(logits, labels, logits, n_rows, n_classes, 0.25f, &loss, &n_correct);
        assert_memory_equal(logits, dlogits, n * sizeof(float)); /* in place: the same */
        gmi_free(logits);
        gmi_free(dlogits);
        gmi_free(logits64);
        gmi_free(dlogits64);
        gmi_free(labels);
    }
}

static void finite_logits_give_a_finite_loss_however_large(void **state)
{
    (void)state;
    const float values[] = { 0, 1e4f, -1e4f, 1e30f, -1e30f, FLT_MAX, -FLT_MAX, 88, -104 };
    const size_t n_values = sizeof values / sizeof *values;
    for (size_t i = 0; i < n_values; i++)
        for (size_t j = 0; j < n_values; j++)
            for (uint8_t label = 0; label < 3; label++) {
                float logits[3] = { values[i], values[j], 0 }, dlogits[3], p[3];
                double loss = 0;
                size_t n_correct = 0;
                gmt_softmax_loss(logits, &label, dlogits, 1, 3, 1, &loss, &n_correct);
                gmt_softmax(logits, p, 1, 3);
                assert_true(isfinite(loss) && loss >= 0);
                assert_true(gmt_all_finite(dlogits, 3) && gmt_all_finite(p, 3));
                assert_true(fabs(p[0] + p[1] + p[2] - 1) < 1e-6);
                double max = fmax(fmax(values[i], values[j]), 0);
                double expected = max - logits[label]; /* to within log 3 */
                assert_true(loss >= expected && loss <= expected + 1.1);
            }
}

static void each_row_has_its_own_maximum(void **state)
{
    (void)state;
    float logits[4] = { 1e4f, 1e4f + 1, -1e4f, -1e4f - 1 }, dlogits[4];
    const uint8_t labels[2] = { 1, 0 };
    double loss = 0;
    size_t n_correct = 0;
    gmt_softmax_loss(logits, labels, dlogits, 2, 2, 1, &loss, &n_correct);
    assert_true(fabs(loss - 2 * log1p(exp(-1))) < 1e-6);
    assert_int_equal(n_correct, 2);
}

static void nan_and_infinity_make_the_row_nan(void **state)
{
    (void)state;
    const float bad[] = { NAN, INFINITY };
    for (int b = 0; b < 2; b++)
        for (int position = 0; position < 10; position++) {
            float logits[30] = { 0 }, dlogits[30];
            const uint8_t labels[3] = { 1, 2, 3 };
            double loss = 0;
            size_t n_correct = 0;
            logits[10 + position] = bad[b];
            gmt_softmax_loss(logits, labels, dlogits, 3, 10, 1, &loss, &n_correct);
            assert_true(isnan(loss));
            for (int c = 0; c < 10; c++) assert_true(isnan(dlogits[10 + c]));
            assert_true(gmt_all_finite(dlogits, 10) && gmt_all_finite(dlogits + 20, 10));
        }
}

static void minus_infinity_on_the_label_is_an_infinite_loss(void **state)
{
    (void)state;
    float logits[2] = { -INFINITY, 0 }, dlogits[2];
    const uint8_t label = 0;
    double loss = 0;
    size_t n_correct = 0;
    gmt_softmax_loss(logits, &label, dlogits, 1, 2, 1, &loss, &n_correct);
    assert_false(isfinite(loss));
}

static void many_rows_do_not_overflow_the_sum_of_logarithms(void **state)
{
    (void)state;
    static float logits[5000 * 10];
    static uint8_t labels[5000];
    double loss = 0;
    size_t n_correct = 0;
    gmt_softmax_loss(logits, labels, logits, 5000, 10, 1, &loss, &n_correct);
    assert_true(fabs(loss - 5000 * log(10)) < 1e-8);
    assert_int_equal(n_correct, 5000); /* all equal: the first is the largest, and label 0 */
}

static void exponential_is_right_to_two_units(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 870000; i++) {
        float x = (float)(-i * 1e-4), y = x;
        gmt_exp_nonpositive(&y, 1);
        double expected = exp((double)x);
        double unit = ldexp(1, ilogb(expected) - 23);
        worst = fmax(worst, fabs(y - expected) / unit);
    }
    if (!(worst <= 2)) fail_msg("%g units off", worst);
    float ends[5] = { 0, -0.0f, -87.5f, -INFINITY, NAN };
    gmt_exp_nonpositive(ends, 5);
    assert_true(ends[0] == 1 && ends[1] == 1 && ends[2] == 0 && ends[3] == 0 && isnan(ends[4]));
}

static void exponential_has_the_same_bits_at_every_vector_position(void **state)
{
    (void)state;
    const size_t n = 1003;
    float *all = gmi_alloc(n, sizeof *all);
    for (size_t i = 0; i < n; i++) all[i] = (float)(-90 * gmi_rng_unit(41, i));
    float *single = gmi_alloc(n, sizeof *single);
    memcpy(single, all, n * sizeof *all);
    gmt_exp_nonpositive(all, n);
    for (size_t i = 0; i < n; i++) gmt_exp_nonpositive(&single[i], 1);
    assert_memory_equal(all, single, n * sizeof *all);
    gmi_free(all);
    gmi_free(single);
}

static void one_bad_value_is_found_wherever_it_is(void **state)
{
    (void)state;
    const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    const size_t n = 4099;
    float *values = random_floats(n, 21);
    values[7] = FLT_MAX;
    values[8] = -FLT_MAX;
    values[9] = 1e-42f;
    assert_true(gmt_all_finite(values, n));
    assert_true(gmt_all_finite(NULL, 0));
    for (size_t i = 0; i < n; i++) {
        float kept = values[i];
        values[i] = bad[i % 4];
        assert_false(gmt_all_finite(values, n));
        if (i + 1 < n) assert_true(gmt_all_finite(values + i + 1, n - i - 1));
        assert_true(gmt_all_finite(values, i));
        values[i] = kept;
    }
    gmi_free(values);
}

static int one_blas_thread(void **state)
{
    (void)state;
    gmt_set_blas_threads(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_the_naive_one),
        cmocka_unit_test(backward_agrees_with_the_naive_one),
        cmocka_unit_test(relu_keeps_a_nan_visible),
        cmocka_unit_test(old_nans_do_not_survive_in_overwritten_results),
        cmocka_unit_test(softmax_loss_agrees_with_the_double_one),
        cmocka_unit_test(finite_logits_give_a_finite_loss_however_large),
        cmocka_unit_test(each_row_has_its_own_maximum),
        cmocka_unit_test(nan_and_infinity_make_the_row_nan),
        cmocka_unit_test(minus_infinity_on_the_label_is_an_infinite_loss),
        cmocka_unit_test(many_rows_do_not_overflow_the_sum_of_logarithms),
        cmocka_unit_test(exponential_is_right_to_two_units),
        cmocka_unit_test(exponential_has_the_same_bits_at_every_vector_position),
        cmocka_unit_test(one_bad_value_is_found_wherever_it_is),
    };
    return cmocka_run_group_tests_name("ops", tests, one_blas_thread, NULL);
}
