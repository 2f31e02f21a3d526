#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "train/bucket.h"

static void buckets_cover_everything_once_from_the_end(void **state)
{
    (void)state;
    const size_t sizes[] = { 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 203530 };
    const size_t bytes[] = { 0, 1, 3, 4, 5, 7, 8, 12, 28, 32, 36, 255, 256, 257, 4096, 1 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof bytes / sizeof *bytes; j++) {
            size_t end = sizes[i], n_buckets = gmt_bucket_count(sizes[i], bytes[j]);
            assert_true(n_buckets >= 1);
            for (size_t b = 0; b < n_buckets; b++) {
                struct gmt_bucket bucket = gmt_bucket_at(sizes[i], bytes[j], b);
                assert_true(bucket.n_elems >= 1);
                assert_int_equal(bucket.first_elem + bucket.n_elems, end);
                if (bytes[j] >= 4) assert_true(bucket.n_elems * 4 <= bytes[j]);
                if (bytes[j] >= 1 && bytes[j] < 4) assert_int_equal(bucket.n_elems, 1);
                end = bucket.first_elem;
            }
            assert_int_equal(end, 0);
        }
}

static void all_but_the_last_are_full(void **state)
{
    (void)state;
    assert_int_equal(gmt_bucket_count(10, 16), 3);
    assert_int_equal(gmt_bucket_at(10, 16, 0).n_elems, 4);
    assert_int_equal(gmt_bucket_at(10, 16, 1).n_elems, 4);
    assert_int_equal(gmt_bucket_at(10, 16, 2).n_elems, 2);
}

static void nothing_has_no_buckets_and_zero_bytes_mean_one(void **state)
{
    (void)state;
    assert_int_equal(gmt_bucket_count(0, 0), 0);
    assert_int_equal(gmt_bucket_count(0, 100), 0);
    assert_int_equal(gmt_bucket_count(12345, 0), 1);
    assert_int_equal(gmt_bucket_at(12345, 0, 0).n_elems, 12345);
    assert_int_equal(gmt_bucket_count(SIZE_MAX / 8, SIZE_MAX), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_everything_once_from_the_end),
        cmocka_unit_test(all_but_the_last_are_full),
        cmocka_unit_test(nothing_has_no_buckets_and_zero_bytes_mean_one),
    };
    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
