#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/bits.h"
#include "train/mlp.h"
#include "train/ops.h"

/* ---- the model in double, from the naive operations: the oracle ------------------------------ */

struct model64 {
    struct gmt_params table; /* a copy, for the shapes only */
    double *weights, *gradients;
    double *activations[GMT_MAX_LAYERS + 1], *deltas[GMT_MAX_LAYERS + 1];
};

static struct model64 model64_of(const struct gmt_mlp *mlp)
{
    struct model64 m = { .table = mlp->params };
    m.weights = gmi_alloc(mlp->params.n_elems, sizeof(double));
    m.gradients = gmi_alloc(mlp->params.n_elems, sizeof(double));
    for (int l = 0; l < mlp->params.layers.n_sizes; l++) {
        m.activations[l] = gmi_alloc(mlp->max_rows * mlp->params.layers.sizes[l], sizeof(double));
        m.deltas[l] = gmi_alloc(mlp->max_rows * mlp->params.layers.sizes[l], sizeof(double));
    }
    for (size_t i = 0; i < mlp->params.n_elems; i++) m.weights[i] = mlp->params.weights[i];
    return m;
}

static void model64_free(struct model64 *m)
{
    gmi_free(m->weights);
    gmi_free(m->gradients);
    for (int l = 0; l <= GMT_MAX_LAYERS; l++) {
        gmi_free(m->activations[l]);
        gmi_free(m->deltas[l]);
    }
}

/* The sum of the losses; with has_gradient also the gradient of scale times it. */
static double model64_loss(struct model64 *m, const float *inputs, const uint8_t *labels,
                           size_t n_rows, double scale, bool has_gradient)
{
    const size_t *sizes = m->table.layers.sizes;
    int n_layers = m->table.layers.n_sizes - 1;
    double loss_sum = 0;
    size_t n_correct = 0;
    for (size_t i = 0; i < n_rows * sizes[0]; i++) m->activations[0][i] = inputs[i];
    for (int l = 0; l < n_layers; l++)
        gmt_naive_f64_linear_forward(
            m->activations[l], m->weights + m->table.tensors[2 * l].first_elem,
            m->weights + m->table.tensors[2 * l + 1].first_elem, m->activations[l + 1], n_rows,
            sizes[l], sizes[l + 1], l + 1 < n_layers);
    gmt_naive_f64_softmax_loss(m->activations[n_layers], labels, m->deltas[n_layers], n_rows,
                               sizes[n_layers], scale, &loss_sum, &n_correct);
    for (int l = n_layers - 1; has_gradient && l >= 0; l--)
        gmt_naive_f64_linear_backward(
            m->activations[l], m->weights + m->table.tensors[2 * l].first_elem, m->deltas[l + 1],
            m->gradients + m->table.tensors[2 * l].first_elem,
            m->gradients + m->table.tensors[2 * l + 1].first_elem, l > 0 ? m->deltas[l] : NULL,
            n_rows, sizes[l], sizes[l + 1], false, l > 0);
    return loss_sum;
}

/* ---- a model with a batch -------------------------------------------------------------------- */

struct fixture {
    struct gmt_mlp mlp;
    struct model64 oracle;
    size_t n_rows, n_elems;
    float *inputs;
    uint8_t *labels;
};

static struct fixture fixture_of(const char *sizes, size_t n_rows, size_t max_rows)
{
    struct fixture f = { .n_rows = n_rows };
    struct gmt_layers layers;
    assert_int_equal(gmt_layers_parse(&layers, sizes, NULL), GM_OK);
    assert_int_equal(gmt_mlp_init(&f.mlp, &layers, max_rows, 5, NULL), GM_OK);
    f.n_elems = f.mlp.params.n_elems;
    for (size_t i = 0; i < f.n_elems; i++) /* biases too, so that they matter */
        f.mlp.params.weights[i] += 0.1f * (float)(gmi_rng_unit(6, i) - 0.5);
    f.oracle = model64_of(&f.mlp);
    size_t n_in = gmt_mlp_n_in(&f.mlp);
    f.inputs = gmi_alloc(n_rows * n_in, sizeof(float));
    f.labels = gmi_alloc(n_rows, 1);
    for (size_t i = 0; i < n_rows * n_in; i++) f.inputs[i] = (float)(2 * gmi_rng_unit(7, i) - 1);
    for (size_t r = 0; r < n_rows; r++)
        f.labels[r] = (uint8_t)gmi_rng_below(8, r, gmt_mlp_n_classes(&f.mlp));
    return f;
}

static void fixture_free(struct fixture *f)
{
    model64_free(&f->oracle);
    gmt_mlp_fini(&f->mlp);
    gmi_free(f->inputs);
    gmi_free(f->labels);
}

static struct gmt_loss gradient(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                                size_t n_rows, float scale, bool is_accumulating,
                                gmt_ready_fn ready, void *user)
{
    struct gmt_loss loss = gmt_mlp_loss(mlp, inputs, labels, n_rows, scale);
    gmt_mlp_backward(mlp, inputs, n_rows, is_accumulating, ready, user);
    return loss;
}

static void assert_gradients_close(const float *values, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)values[i] - expected[i]) <= 1e-6))
            fail_msg("gradient %zu is %.9g, expected %.9g", i, values[i], expected[i]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct {
    const char *sizes;
    size_t n_rows;
} cases[] = {
    { "1,1", 1 },       { "4,3", 1 },   { "7,10", 9 },          { "5,8,3", 1 },
    { "13,17,10", 6 },  { "3,1,2", 5 }, { "6,9,7,5,4", 8 },     { "2,3,3,3,3,3,3,2", 11 },
    { "20,11,1,10", 4 },
};
#define N_CASES (sizeof cases / sizeof *cases)

static void double_gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_CASES; c++) {
        struct fixture f = fixture_of(cases[c].sizes, cases[c].n_rows, cases[c].n_rows);
        double scale = 1.0 / (double)f.n_rows, delta = 1e-6;
        model64_loss(&f.oracle, f.inputs, f.labels, f.n_rows, scale, true);
        for (size_t i = 0; i < f.n_elems; i++) {
            double kept = f.oracle.weights[i];
            f.oracle.weights[i] = kept + delta;
            double above = model64_loss(&f.oracle, f.inputs, f.labels, f.n_rows, scale, false);
            f.oracle.weights[i] = kept - delta;
            double below = model64_loss(&f.oracle, f.inputs, f.labels, f.n_rows, scale, false);
            f.oracle.weights[i] = kept;
            double slope = scale * (above - below) / (2 * delta), got = f.oracle.gradients[i];
            if (!(fabs(slope - got) <= 1e-7 * (1 + fabs(slope))))
                fail_msg("%s, %zu rows: gradient %zu is %.12g, finite difference %.12g",
                         cases[c].sizes, f.n_rows, i, got, slope);
        }
        fixture_free(&f);
    }
}

static void assert_agrees_with_double(const char *sizes, size_t n_rows)
{
    struct fixture f = fixture_of(sizes, n_rows, n_rows + 3);
    double scale = 1.0 / (double)n_rows;
    double expected = model64_loss(&f.oracle, f.inputs, f.labels, n_rows, scale, true);
    struct gmt_loss loss = gradient(&f.mlp, f.inputs, f.labels, n_rows, (float)scale, false,
                                    NULL, NULL);
    assert_int_equal(loss.n_rows, n_rows);
    if (!(fabs(loss.loss_sum - expected) <= 1e-6 * (1 + expected)))
        fail_msg("%s: loss %.9g, expected %.9g", sizes, loss.loss_sum, expected);
    for (size_t i = 0; i < f.n_elems; i++)
        if (!(fabs(f.mlp.params.gradients[i] - f.oracle.gradients[i]) <=
              2e-6 * (1 + fabs(f.oracle.gradients[i]))))
            fail_msg("%s, %zu rows: gradient %zu is %.9g, in double %.9g", sizes, n_rows, i,
                     f.mlp.params.gradients[i], f.oracle.gradients[i]);
    fixture_free(&f);
}

static void float_gradients_agree_with_double_ones(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_CASES; c++) assert_agrees_with_double(cases[c].sizes, cases[c].n_rows);
    assert_agrees_with_double("100,64,10", 37);
    assert_agrees_with_double("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2", 3);
}

/* As the ranks of a distributed step do it: parts of whatever size, each scaled by 1 / whole
 * batch. */
static void uneven_parts_add_up_to_the_whole_batch(void **state)
{
    (void)state;
    struct fixture f = fixture_of("30,20,10", 23, 23);
    float *whole = gmi_alloc(f.n_elems, sizeof *whole), *sum = gmi_alloc(f.n_elems, sizeof *sum);
    float scale = 1.0f / 23;
    struct gmt_loss all =
        gradient(&f.mlp, f.inputs, f.labels, 23, scale, false, NULL, NULL);
    memcpy(whole, f.mlp.params.gradients, f.n_elems * sizeof *whole);

    const size_t parts[] = { 11, 1, 0, 8, 3 };
    struct gmt_loss total = { 0 };
    for (size_t p = 0, first = 0; p < 5; first += parts[p++]) {
        struct gmt_loss part = gradient(&f.mlp, f.inputs + first * 30, f.labels + first,
                                                parts[p], scale, false, NULL, NULL);
        for (size_t i = 0; i < f.n_elems; i++) sum[i] += f.mlp.params.gradients[i];
        total.loss_sum += part.loss_sum;
        total.n_correct += part.n_correct;
    }
    assert_gradients_close(sum, whole, f.n_elems);
    assert_true(fabs(total.loss_sum - all.loss_sum) < 1e-5);
    assert_int_equal(total.n_correct, all.n_correct);
    gmi_free(whole);
    gmi_free(sum);
    fixture_free(&f);
}

static void accumulating_is_adding(void **state)
{
    (void)state;
    struct fixture f = fixture_of("30,20,10", 23, 23);
    float *whole = gmi_alloc(f.n_elems, sizeof *whole);
    gradient(&f.mlp, f.inputs, f.labels, 23, 1.0f / 23, false, NULL, NULL);
    memcpy(whole, f.mlp.params.gradients, f.n_elems * sizeof *whole);
    const size_t parts[] = { 9, 13, 0, 1 };
    for (size_t p = 0, first = 0; p < 4; first += parts[p++])
        gradient(&f.mlp, f.inputs + first * 30, f.labels + first, parts[p], 1.0f / 23,
                         p > 0, NULL, NULL);
    assert_gradients_close(f.mlp.params.gradients, whole, f.n_elems);
    gmi_free(whole);
    fixture_free(&f);
}

static void no_rows_have_no_gradient(void **state)
{
    (void)state;
    struct fixture f = fixture_of("6,5,4", 3, 3);
    gradient(&f.mlp, f.inputs, f.labels, 3, 1, false, NULL, NULL);
    struct gmt_loss loss = gradient(&f.mlp, NULL, NULL, 0, 1, false, NULL, NULL);
    assert_true(loss.loss_sum == 0 && loss.n_correct == 0 && loss.n_rows == 0);
    for (size_t i = 0; i < f.n_elems; i++) assert_true(f.mlp.params.gradients[i] == 0);
    fixture_free(&f);
}

struct ready_log {
    const struct fixture *f;
    size_t next_end, n_calls;
    const float *expected;
};

static void note_ready(void *user, size_t first_elem, size_t n_elems)
{
    struct ready_log *log = user;
    assert_int_equal(first_elem + n_elems, log->next_end);
    assert_memory_equal(log->f->mlp.params.gradients + first_elem, log->expected + first_elem,
                        n_elems * sizeof(float));
    log->next_end = first_elem;
    log->n_calls++;
}

static void ready_ranges_come_in_backward_order_and_are_complete(void **state)
{
    (void)state;
    static const struct {
        const char *sizes;
        size_t      n_ranges; /* one for a layer, more where it is large */
    } networks[] = { { "9,8,7,6", 3 }, { "784,256,10", 5 }, { "1024,200,100,10", 5 } };
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        struct fixture f = fixture_of(networks[i].sizes, 5, 5);
        float *expected = gmi_alloc(f.n_elems, sizeof *expected);
        gradient(&f.mlp, f.inputs, f.labels, 5, 1, false, NULL, NULL);
        memcpy(expected, f.mlp.params.gradients, f.n_elems * sizeof *expected);
        for (size_t e = 0; e < f.n_elems; e++) f.mlp.params.gradients[e] = -1;
        struct ready_log log = { .f = &f, .next_end = f.n_elems, .expected = expected };
        gradient(&f.mlp, f.inputs, f.labels, 5, 1, false, note_ready, &log);
        assert_int_equal(log.n_calls, networks[i].n_ranges);
        assert_int_equal(log.next_end, 0);
        gmi_free(expected);
        fixture_free(&f);
    }
}

static void evaluation_in_parts_counts_every_row(void **state)
{
    (void)state;
    struct fixture f = fixture_of("12,9,10", 50, 7);
    double expected = 0;
    size_t n_correct = 0;
    for (size_t r = 0; r < 50; r++) {
        struct gmt_loss one = gmt_mlp_evaluate(&f.mlp, f.inputs + r * 12, f.labels + r, 1);
        expected += one.loss_sum;
        n_correct += one.n_correct;
    }
    struct gmt_loss loss = gmt_mlp_evaluate(&f.mlp, f.inputs, f.labels, 50);
    assert_int_equal(loss.n_rows, 50);
    assert_int_equal(loss.n_correct, n_correct);
    assert_true(fabs(loss.loss_sum - expected) < 1e-4);

    float probabilities[500];
    gmt_mlp_predict(&f.mlp, f.inputs, 50, probabilities);
    double sum = 0;
    for (size_t r = 0; r < 50; r++) sum -= log(probabilities[r * 10 + f.labels[r]]);
    assert_true(fabs(sum - expected) < 1e-4);
    fixture_free(&f);
}

static void a_step_takes_no_memory(void **state)
{
    (void)state;
    struct fixture f = fixture_of("12,9,10", 50, 50);
    uint64_t before = gmi_alloc_calls();
    gradient(&f.mlp, f.inputs, f.labels, 50, 1, false, NULL, NULL);
    gmt_mlp_evaluate(&f.mlp, f.inputs, f.labels, 50);
    assert_int_equal(gmi_alloc_calls(), before);
    fixture_free(&f);
}

/* Descends on one batch until it knows it by heart. */
static void plain_descent_learns_a_batch(void **state)
{
    (void)state;
    struct fixture f = fixture_of("20,32,10", 40, 40);
    struct gmt_loss loss = { 0 };
    for (int step = 0; step < 400; step++) {
        loss = gradient(&f.mlp, f.inputs, f.labels, 40, 1.0f / 40, false, NULL, NULL);
        for (size_t i = 0; i < f.n_elems; i++)
            f.mlp.params.weights[i] -= 0.5f * f.mlp.params.gradients[i];
    }
    assert_int_equal(loss.n_correct, 40);
    assert_true(loss.loss_sum / 40 < 0.05);
    fixture_free(&f);
}

static void impossible_sizes_are_refused_and_lack_of_memory_holds_nothing(void **state)
{
    (void)state;
    struct gmt_layers layers = { .sizes = { 4, 3, 2 }, .n_sizes = 3 };
    struct gmt_mlp mlp;
    gm_error error;
    gmi_error_clear(&error);
    assert_int_equal(gmt_mlp_init(&mlp, &layers, 0, 1, &error), GM_ERR_ARG);
    assert_int_equal(gmt_mlp_init(&mlp, &layers, (size_t)1 << 31, 1, NULL), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "batch"));
    for (uint64_t nth = 1; nth <= 6; nth++) {
        gmi_alloc_fail_at(nth);
        assert_int_equal(gmt_mlp_init(&mlp, &layers, 8, 1, NULL), GM_ERR_NOMEM);
        gmi_alloc_fail_at(0);
        assert_null(mlp.activations[1]);
    }
    assert_int_equal(gmt_mlp_init(&mlp, &layers, 8, 1, NULL), GM_OK); /* there was no seventh */
    gmt_mlp_fini(&mlp);
    gmt_mlp_fini(&mlp);
}

/* ---- parts --------------------------------------------------------------------------------------- */

/* The gradients of parts, each element counted as it comes. */
struct collected {
    float   *values;
    uint8_t *times;
    size_t   n_elems;
};

static void collect(void *user, size_t part, size_t first_elem, const float *values, size_t n_elems)
{
    struct collected *c = user;
    assert_true(first_elem + n_elems <= c->n_elems);
    memcpy(c->values + part * c->n_elems + first_elem, values, n_elems * sizeof *values);
    for (size_t i = 0; i < n_elems; i++) c->times[part * c->n_elems + first_elem + i]++;
}

static struct collected gradients_of_parts(struct fixture *f, size_t first_row, const size_t *ends,
                                           size_t n_parts, struct gmt_loss *losses)
{
    size_t           n_in = gmt_mlp_n_in(&f->mlp), n_elems = f->mlp.params.n_elems;
    const float     *inputs = f->inputs + first_row * n_in;
    struct gmt_parts parts = { ends, n_parts };
    struct collected c = { gmi_alloc(n_parts * n_elems, sizeof(float)), gmi_alloc(n_parts, n_elems),
                           n_elems };
    gmt_mlp_loss_parts(&f->mlp, inputs, f->labels + first_row, &parts, losses);
    gmt_mlp_backward_parts(&f->mlp, inputs, &parts, collect, &c);
    for (size_t i = 0; i < n_parts * n_elems; i++) assert_int_equal(c.times[i], 1);
    gmi_free(c.times);
    return c;
}

static void a_part_has_the_same_bits_in_any_company_and_any_threads(void **state)
{
    (void)state;
    static const size_t ends[] = { 7, 7, 8, 24, 40 }; /* 7 rows, none, 1, 16, 16 */
    enum { N = sizeof ends / sizeof ends[0] };
    struct fixture   f = fixture_of("20,37,13,10", 40, 40);
    struct gmt_loss  together[N], alone, undivided;
    struct gmt_bits *bits = NULL;
    assert_int_equal(gmt_bits_open(&bits, 2, NULL), GM_OK);
    assert_int_equal(gmt_mlp_use_bits(&f.mlp, bits, NULL), GM_OK);
    struct collected all = gradients_of_parts(&f, 0, ends, N, together);
    gmt_bits_close(bits);
    assert_int_equal(gmt_bits_open(&bits, 1, NULL), GM_OK);
    f.mlp.bits = bits;
    double *sum = gmi_alloc(all.n_elems, sizeof *sum);
    for (size_t p = 0; p < N; p++) {
        size_t           first = p == 0 ? 0 : ends[p - 1], n = ends[p] - first;
        struct collected one = gradients_of_parts(&f, first, &n, 1, &alone);
        assert_memory_equal(one.values, all.values + p * all.n_elems, all.n_elems * sizeof(float));
        assert_memory_equal(&alone, &together[p], sizeof alone);
        for (size_t i = 0; i < all.n_elems; i++) sum[i] += (double)one.values[i];
        gmi_free(one.values);
    }
    undivided = gradient(&f.mlp, f.inputs, f.labels, 40, 1, false, NULL, NULL);
    double loss_sum = 0;
    for (size_t p = 0; p < N; p++) loss_sum += together[p].loss_sum;
    assert_true(fabs(undivided.loss_sum - loss_sum) < 1e-9 * loss_sum);
    for (size_t i = 0; i < all.n_elems; i++)
        assert_true(fabs(sum[i] - (double)f.mlp.params.gradients[i]) < 1e-4);
    gmi_free(sum);
    gmi_free(all.values);
    f.mlp.bits = NULL;
    gmt_bits_close(bits);
    fixture_free(&f);
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
        cmocka_unit_test(double_gradients_agree_with_finite_differences),
        cmocka_unit_test(float_gradients_agree_with_double_ones),
        cmocka_unit_test(uneven_parts_add_up_to_the_whole_batch),
        cmocka_unit_test(accumulating_is_adding),
        cmocka_unit_test(no_rows_have_no_gradient),
        cmocka_unit_test(ready_ranges_come_in_backward_order_and_are_complete),
        cmocka_unit_test(evaluation_in_parts_counts_every_row),
        cmocka_unit_test(a_step_takes_no_memory),
        cmocka_unit_test(plain_descent_learns_a_batch),
        cmocka_unit_test(a_part_has_the_same_bits_in_any_company_and_any_threads),
        cmocka_unit_test(impossible_sizes_are_refused_and_lack_of_memory_holds_nothing),
    };
    return cmocka_run_group_tests_name("mlp", tests, one_blas_thread, NULL);
}
