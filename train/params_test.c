#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/params.h"

static struct gmt_layers parsed(const char *text)
{
    struct gmt_layers layers;
    assert_int_equal(gmt_layers_parse(&layers, text, NULL), GM_OK);
    return layers;
}

static void layers_are_read_and_written(void **state)
{
    (void)state;
    char text[256];
    const char *texts[] = { "784,256,10", "1,1", "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct gmt_layers layers = parsed(texts[i]);
        assert_string_equal(gmt_layers_format(&layers, text, sizeof text), texts[i]);
    }
    struct gmt_layers layers = parsed("784,256,10");
    assert_int_equal(layers.n_sizes, 3);
    assert_string_equal(gmt_layers_format(&layers, text, 6), "784,2"); /* cut, still a string */
}

static void anything_else_is_refused_with_a_sentence(void **state)
{
    (void)state;
    const char *texts[] = { "",     "784",       ",",         "784,",        ",10",    "784,,10",
                            "a,b",  "784;10",    "784, 10",   "-784,10",     "0,10",   "784,0",
                            "1e3,2", "784,10x",  "16777217,2", "9999999999,2",
                            "99999999999999999999,2",
                            "16777216,16777216", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct gmt_layers layers;
        gm_error error;
        gmi_error_clear(&error);
        if (gmt_layers_parse(&layers, texts[i], &error) != GM_ERR_ARG)
            fail_msg("\"%s\" was taken", texts[i]);
        assert_non_null(strstr(error.text, "layers"));
    }
}

static void table_covers_the_arrays_without_gaps(void **state)
{
    (void)state;
    struct gmt_layers layers = parsed("784,256,10");
    struct gmt_params params;
    assert_int_equal(gmt_params_init(&params, &layers, 1, NULL), GM_OK);
    assert_int_equal(params.n_tensors, 4);
    assert_int_equal(params.n_elems, 203530);
    size_t next = 0;
    for (int t = 0; t < params.n_tensors; t++) {
        assert_int_equal(params.tensors[t].first_elem, next);
        assert_int_equal(params.tensors[t].n_elems,
                         params.tensors[t].n_rows * params.tensors[t].n_cols);
        next += params.tensors[t].n_elems;
    }
    assert_int_equal(next, params.n_elems);

    const struct gmt_tensor *weight = gmt_params_find(&params, "layers.1.weight");
    assert_non_null(weight);
    assert_int_equal(weight->n_dims, 2);
    assert_int_equal(weight->n_rows, 10);
    assert_int_equal(weight->n_cols, 256);
    assert_int_equal(gmt_params_find(&params, "layers.0.bias")->n_dims, 1);
    assert_null(gmt_params_find(&params, "layers.2.bias"));
    gmt_params_fini(&params);
}

static void initial_weights_depend_on_the_seed_alone(void **state)
{
    (void)state;
    struct gmt_layers layers = parsed("20,30,4");
    struct gmt_params a, b, c;
    assert_int_equal(gmt_params_init(&a, &layers, 7, NULL), GM_OK);
    assert_int_equal(gmt_params_init(&b, &layers, 8, NULL), GM_OK);
    assert_int_equal(gmt_params_init(&c, &layers, 7, NULL), GM_OK);
    size_t bytes = a.n_elems * sizeof(float);
    assert_memory_equal(a.weights, c.weights, bytes);
    assert_memory_not_equal(a.weights, b.weights, bytes);

    b.gradients[3] = 1;
    gmt_params_reset(&b, 7);
    assert_memory_equal(a.weights, b.weights, bytes);
    assert_true(b.gradients[3] == 0);
    gmt_params_fini(&a);
    gmt_params_fini(&b);
    gmt_params_fini(&c);
}

/* Uniform in [-limit, limit]: the variance is limit^2 / 3; for He's limit, 2 / n_in. */
static void initial_weights_have_the_stated_spread(void **state)
{
    (void)state;
    struct gmt_layers layers = parsed("600,200,10");
    struct gmt_params params;
    assert_int_equal(gmt_params_init(&params, &layers, 3, NULL), GM_OK);
    const double variances[] = { 2.0 / 600, 0, 2.0 / 200, 0 };
    for (int t = 0; t < params.n_tensors; t++) {
        const struct gmt_tensor *tensor = &params.tensors[t];
        double sum = 0, squares = 0, n = (double)tensor->n_elems;
        for (size_t i = 0; i < tensor->n_elems; i++) {
            double w = params.weights[tensor->first_elem + i];
            sum += w;
            squares += w * w;
        }
        assert_float_equal(squares / n, variances[t], 0.05 * variances[t]);
        assert_true(sum / n * (sum / n) <= 25 * variances[t] / n); /* five standard errors */
    }
    gmt_params_fini(&params);
}

static void large_weights_have_blocks_by_their_shape_alone(void **state)
{
    (void)state;
    static const struct {
        size_t n_rows, n_cols, block_rows;
    } cases[] = { { 10, 256, 10 },    { 1, 100000, 1 },  { 127, 784, 127 },   { 256, 784, 64 },
                  { 260, 784, 80 },   { 256, 10, 256 },  { 1024, 1024, 128 }, { 4096, 4096, 512 },
                  { 1000, 784, 128 }, { 100, 200, 100 }, { 16777216, 1, 2097152 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gmt_tensor weight = { .n_rows = cases[i].n_rows, .n_cols = cases[i].n_cols };
        assert_int_equal(gmt_block_rows(&weight), cases[i].block_rows);
    }
}

static void lack_of_memory_is_an_error_that_holds_nothing(void **state)
{
    (void)state;
    struct gmt_layers layers = parsed("20,30,4");
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct gmt_params params;
        gmi_alloc_fail_at(nth);
        assert_int_equal(gmt_params_init(&params, &layers, 7, NULL), GM_ERR_NOMEM);
        gmi_alloc_fail_at(0);
        assert_null(params.weights);
        assert_null(params.gradients);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_read_and_written),
        cmocka_unit_test(anything_else_is_refused_with_a_sentence),
        cmocka_unit_test(table_covers_the_arrays_without_gaps),
        cmocka_unit_test(initial_weights_depend_on_the_seed_alone),
        cmocka_unit_test(initial_weights_have_the_stated_spread),
        cmocka_unit_test(large_weights_have_blocks_by_their_shape_alone),
        cmocka_unit_test(lack_of_memory_is_an_error_that_holds_nothing),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
