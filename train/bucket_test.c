#include "train/bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

static struct gmt_params params_of(const char *sizes)
{
    struct gmt_params params;
    struct gmt_layers layers;
    assert_int_equal(gmt_layers_parse(&layers, sizes, NULL), GM_OK);
    assert_int_equal(gmt_params_init(&params, &layers, 1, NULL), GM_OK);
    return params;
}

/* Fills sizes[], in elements, in the order of the exchange; how many there are. */
static size_t cut(const struct gmt_params *params, size_t bucket_bytes, size_t *sizes,
                  size_t max_buckets)
{
    size_t n = 0;
    for (size_t end = params->n_elems; end > 0;) {
        struct gmt_bucket bucket = gmt_bucket_before(params, bucket_bytes, end);
        assert_int_equal(bucket.first_elem + bucket.n_elems, end);
        assert_true(bucket.n_elems >= 1);
        if (n < max_buckets) sizes[n] = bucket.n_elems;
        n++;
        end = bucket.first_elem;
    }
    return n;
}

static void buckets_cover_everything_once_and_keep_their_size(void **state)
{
    (void)state;
    static const char *const networks[] = { "1,1", "3,5", "12,9,5", "784,256,10", "64,700,300,10",
                                            "2,3,4,5,6,7,8,9" };
    static const size_t bytes[] = { 1, 3, 4, 5, 7, 8, 12, 28, 255, 256, 257, 4096, 100000, 1 << 20 };
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        struct gmt_params params = params_of(networks[i]);
        for (size_t j = 0; j < sizeof bytes / sizeof *bytes; j++) {
            for (size_t end = params.n_elems; end > 0;) {
                struct gmt_bucket bucket = gmt_bucket_before(&params, bytes[j], end);
                assert_true(bucket.n_elems >= 1 && bucket.n_elems <= end);
                assert_int_equal(bucket.first_elem + bucket.n_elems, end);
                if (bytes[j] >= 4) assert_true(bucket.n_elems * 4 <= bytes[j]);
                else assert_int_equal(bucket.n_elems, 1);
                end = bucket.first_elem;
            }
        }
        gmt_params_fini(&params);
    }
}

static void zero_bytes_mean_one_bucket(void **state)
{
    (void)state;
    size_t            sizes[1];
    struct gmt_params params = params_of("784,256,10");
    assert_int_equal(cut(&params, 0, sizes, 1), 1);
    assert_int_equal(sizes[0], 203530);
    assert_int_equal(cut(&params, (size_t)1 << 40, sizes, 1), 1);
    gmt_params_fini(&params);
}

static void buckets_are_whole_blocks_where_these_fit(void **state)
{
    (void)state;
    size_t            sizes[8];
    struct gmt_params params = params_of("784,256,10"); /* blocks of 2,570 and 4 x 64 rows of 784 */
    assert_int_equal(cut(&params, 256 << 10, sizes, 8), 4);
    assert_int_equal(sizes[0], 2570 + 256 + 50176); /* too little for a bucket of its own */
    for (int i = 1; i < 4; i++) assert_int_equal(sizes[i], 50176);
    assert_int_equal(cut(&params, 512 << 10, sizes, 8), 2);
    assert_int_equal(sizes[0], 2570 + 256 + 2 * 50176);
    assert_int_equal(cut(&params, 32 << 10, sizes, 8), 29);
    assert_int_equal(sizes[0], 2570); /* a quarter full */
    assert_int_equal(sizes[1], 7205); /* a seventh of 256 + 50176 */
    gmt_params_fini(&params);
}

static void a_layer_does_not_wait_for_the_layer_below(void **state)
{
    (void)state;
    static const char *const networks[] = { "784,1024,1024,10", "784,512,300,200,10" };
    static const size_t bytes[] = { 64 << 10, 256 << 10, 1 << 20, 2 << 20 };
    for (size_t i = 0; i < 2; i++) {
        struct gmt_params params = params_of(networks[i]);
        for (size_t j = 0; j < sizeof bytes / sizeof *bytes; j++)
            for (size_t end = params.n_elems; end > 0;) {
                struct gmt_bucket bucket = gmt_bucket_before(&params, bytes[j], end);
                for (int t = 2; t < params.n_tensors; t += 2) {
                    size_t border = params.tensors[t].first_elem;
                    bool is_mixed = bucket.first_elem < border && border < end;
                    if (is_mixed) assert_true((end - border) * 4 < bytes[j] / 4);
                }
                end = bucket.first_elem;
            }
        gmt_params_fini(&params);
    }
}

static void the_default_grows_with_the_network_within_limits(void **state)
{
    (void)state;
    struct gmt_params params = { .n_elems = 203530 };
    assert_int_equal(gmt_bucket_bytes_default(&params), 256 << 10);
    params.n_elems = 4000000;
    assert_int_equal(gmt_bucket_bytes_default(&params), 2000000);
    params.n_elems = (size_t)1 << 30;
    assert_int_equal(gmt_bucket_bytes_default(&params), 4 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_everything_once_and_keep_their_size),
        cmocka_unit_test(zero_bytes_mean_one_bucket),
        cmocka_unit_test(buckets_are_whole_blocks_where_these_fit),
        cmocka_unit_test(a_layer_does_not_wait_for_the_layer_below),
        cmocka_unit_test(the_default_grows_with_the_network_within_limits),
    };
    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
