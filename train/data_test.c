/* From --data to sets and batches: every spelling is found, and what does not fit together is
 * refused. */
#include "train/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char home[4096];
static char dir[] = "/tmp/gradmesh_data_XXXXXX";

static void put_u32(FILE *file, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8) putc((int)(v >> shift & 0xff), file);
}

static FILE *create(const char *name)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    return file;
}

/* Pictures of `side` x `side`; picture i is i everywhere. */
static void write_images(const char *name, uint32_t n, uint32_t side)
{
    FILE *file = create(name);
    put_u32(file, 0x803);
    put_u32(file, n);
    put_u32(file, side);
    put_u32(file, side);
    for (uint32_t i = 0; i < n * side * side; i++) putc((int)(i / (side * side)), file);
    fclose(file);
}

static void write_labels(const char *name, uint32_t n, const char *labels)
{
    FILE *file = create(name);
    put_u32(file, 0x801);
    put_u32(file, n);
    fwrite(labels, 1, n, file);
    fclose(file);
}

static void write_good_set(void)
{
    write_images("train-images-idx3-ubyte", 4, 2);
    write_labels("train-labels-idx1-ubyte", 4, "\0\1\2\3");
    write_images("t10k-images-idx3-ubyte", 3, 2);
    write_labels("t10k-labels-idx1-ubyte", 3, "\1\1\0");
}

static void assert_loads(const char *where, unsigned parts, size_t n_train, size_t n_test)
{
    struct gmt_data data;
    gm_error error;
    if (gmt_data_load(&data, where, GMT_DATA_SEED, parts, &error) != GM_OK) {
        fail_msg("%s: %s", where, error.text);
    }
    assert_int_equal(data.train.n_samples, n_train);
    assert_int_equal(data.test.n_samples, n_test);
    if (n_train > 0 && n_test > 0) {
        assert_int_equal(data.train.n_classes, data.test.n_classes);
        assert_int_equal(data.train.n_features, data.test.n_features);
    }
    gmt_data_free(&data);
    gmt_data_free(&data);
}

static void assert_refused(const char *where, gm_status expected, const char *first,
                           const char *second)
{
    struct gmt_data data;
    gm_error error;
    assert_int_equal(gmt_data_load(&data, where, GMT_DATA_SEED, GMT_DATA_BOTH, &error), expected);
    assert_int_equal(error.status, expected);
    if (strstr(error.text, first) == NULL || strstr(error.text, second) == NULL) {
        fail_msg("no \"%s\" or \"%s\" in: %s", first, second, error.text);
    }
    assert_null(data.train.pixels);
    assert_null(data.test.pixels);
}

static void directory_with_four_files_is_loaded(void **state)
{
    (void)state;
    write_good_set();
    assert_loads(".", GMT_DATA_BOTH, 4, 3);
    assert_loads(dir, GMT_DATA_BOTH, 4, 3);
    assert_loads(".", GMT_DATA_TRAIN, 4, 0);
    assert_loads(".", GMT_DATA_TEST, 0, 3);
}

static void other_spellings_are_found(void **state)
{
    (void)state;
    write_good_set();
    assert_int_equal(rename("train-images-idx3-ubyte", "train-images.idx3-ubyte"), 0);
    assert_int_equal(rename("train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz"), 0);
    assert_int_equal(rename("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte.gz"), 0);
    assert_loads(".", GMT_DATA_BOTH, 4, 3);
}

static void part_that_is_not_asked_for_need_not_be_there(void **state)
{
    (void)state;
    write_images("t10k-images-idx3-ubyte", 3, 2);
    write_labels("t10k-labels-idx1-ubyte", 3, "\1\1\0");
    assert_loads(".", GMT_DATA_TEST, 0, 3);
    assert_refused(".", GM_ERR_ARG, "train-images-idx3-ubyte", "all four");
}

static void missing_directory_is_named(void **state)
{
    (void)state;
    write_images("file", 1, 1);
    assert_refused("nowhere", GM_ERR_SYSTEM, "nowhere", "No such file");
    assert_refused("", GM_ERR_SYSTEM, "--data", "No such file");
    assert_refused("file", GM_ERR_ARG, "file", "not a directory");
}

static void test_set_must_fit_the_training_set(void **state)
{
    (void)state;
    write_good_set();
    write_images("t10k-images-idx3-ubyte", 3, 3);
    assert_refused(".", GM_ERR_ARG, "3 x 3", "2 x 2");
    write_images("t10k-images-idx3-ubyte", 3, 2);
    write_labels("t10k-labels-idx1-ubyte", 3, "\1\4\0");
    assert_refused(".", GM_ERR_ARG, "number 1 is 4", "0 to 3");
}

/* The highest label alone decides, wherever it is, so that sorted files make the same network. */
static void classes_are_counted_over_the_whole_set(void **state)
{
    (void)state;
    struct gmt_data data;
    write_good_set();
    write_labels("train-labels-idx1-ubyte", 4, "\0\0\1\x09");
    write_labels("t10k-labels-idx1-ubyte", 3, "\0\0\0");
    assert_int_equal(gmt_data_load(&data, ".", 0, GMT_DATA_BOTH, NULL), GM_OK);
    assert_int_equal(data.train.n_classes, 10);
    assert_int_equal(data.test.n_classes, 10);
    gmt_data_free(&data);
}

static void missing_mnist_says_what_to_do(void **state)
{
    (void)state;
    assert_false(gmt_data_mnist_is_here());
    assert_refused("mnist", GM_ERR_ARG, "make mnist", "--data synthetic");
}

static void mnist_is_found_under_the_working_directory(void **state)
{
    (void)state;
    assert_int_equal(mkdir("data", 0700), 0);
    assert_int_equal(mkdir("data/mnist", 0700), 0);
    assert_false(gmt_data_mnist_is_here());
    assert_refused("mnist", GM_ERR_ARG, "train-images-idx3-ubyte", "make mnist");
    assert_int_equal(chdir("data/mnist"), 0);
    write_good_set();
    assert_int_equal(chdir(dir), 0);
    assert_true(gmt_data_mnist_is_here());
    assert_loads("mnist", GMT_DATA_BOTH, 4, 3);
}

static void synthetic_sizes_are_taken(void **state)
{
    (void)state;
    assert_loads("synthetic:40", GMT_DATA_BOTH, 40, 6);
    assert_loads("synthetic:1", GMT_DATA_BOTH, 1, 1);
    assert_loads("synthetic:30,20", GMT_DATA_BOTH, 30, 20);
    assert_loads("synthetic:30,20", GMT_DATA_TEST, 0, 20);
    static const char *const wrong[] = { "synthetic:",
                                         "synthetic:0",
                                         "synthetic:3,",
                                         "synthetic:3,0",
                                         "synthetic:-3",
                                         "synthetic:3x",
                                         "synthetic:1e3",
                                         "synthetic: 3",
                                         "synthetic:3,4,5",
                                         "synthetic:10000001",
                                         "synthetic:99999999999999999999999999999999" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_refused(wrong[i], GM_ERR_ARG, wrong[i], "synthetic:TRAIN,TEST");
    }
    assert_refused("synthetics", GM_ERR_SYSTEM, "synthetics", "No such file");
}

static void parts_must_be_asked_for(void **state)
{
    (void)state;
    struct gmt_data data;
    assert_int_equal(gmt_data_load(&data, "synthetic:10", 0, 0, NULL), GM_ERR_ARG);
    assert_int_equal(gmt_data_load(&data, "synthetic:10", 0, 4, NULL), GM_ERR_ARG);
}

static void gather_copies_the_samples_asked_for(void **state)
{
    (void)state;
    uint8_t pixels[3 * 2] = { 0, 255, 51, 102, 1, 254 }, labels[3] = { 7, 8, 9 };
    struct gmt_dataset set = { .n_samples = 3,
                               .n_rows = 1,
                               .n_cols = 2,
                               .n_features = 2,
                               .n_classes = 10,
                               .pixels = pixels,
                               .labels = labels };
    float x[4 * 2];
    uint8_t y[4];
    gmt_dataset_gather(&set, (const uint32_t[]){ 2, 0, 2, 1 }, 4, x, y);
    assert_memory_equal(y, ((uint8_t[]){ 9, 7, 9, 8 }), 4);
    const float expected[] = { 1 / 255.0f, 254 / 255.0f, 0,           1,
                               1 / 255.0f, 254 / 255.0f, 51 / 255.0f, 102 / 255.0f };
    assert_memory_equal(x, expected, sizeof expected);

    memset(x, 0, sizeof x);
    gmt_dataset_gather_range(&set, 1, 2, x, y);
    assert_memory_equal(y, ((uint8_t[]){ 8, 9 }), 2);
    assert_memory_equal(x, expected + 6, 2 * sizeof(float));
    assert_memory_equal(x + 2, expected, 2 * sizeof(float));
    gmt_dataset_gather_range(&set, 3, 0, x, NULL);
    gmt_dataset_gather(&set, NULL, 0, x, NULL);
}

/* Where the real files are, they are read whole. */
static void real_mnist_is_read(void **state)
{
    (void)state;
    struct gmt_data data;
    gm_error error;
    size_t per_class[10] = { 0 };
    assert_int_equal(chdir(home), 0);
    if (!gmt_data_mnist_is_here()) skip();
    if (gmt_data_load(&data, "mnist", 0, GMT_DATA_BOTH, &error) != GM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(data.train.n_samples, 60000);
    assert_int_equal(data.test.n_samples, 10000);
    assert_int_equal(data.train.n_features, 784);
    assert_int_equal(data.train.n_classes, 10);
    for (size_t i = 0; i < data.train.n_samples; i++) per_class[data.train.labels[i]]++;
    assert_int_equal(per_class[0], 5923); /* LeCun's counts */
    assert_int_equal(per_class[1], 6742);
    assert_int_equal(per_class[9], 5949);
    assert_int_equal(data.train.labels[0], 5);
    assert_int_equal(data.test.labels[0], 7);
    gmt_data_free(&data);
}

static int empty_directory(void **state)
{
    (void)state;
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : chdir(dir);
}

static int remove_directory(void **state)
{
    static const char *const names[] = { "train-images-idx3-ubyte",   "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte",    "t10k-labels-idx1-ubyte",
                                         "train-images.idx3-ubyte",   "train-labels-idx1-ubyte.gz",
                                         "t10k-images.idx3-ubyte.gz", "file" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        unlink(names[i]);
        snprintf(path, sizeof path, "data/mnist/%s", names[i]);
        unlink(path);
    }
    rmdir("data/mnist");
    rmdir("data");
    return chdir(home) != 0 ? -1 : rmdir(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(directory_with_four_files_is_loaded),
        TEST(other_spellings_are_found),
        TEST(part_that_is_not_asked_for_need_not_be_there),
        TEST(missing_directory_is_named),
        TEST(test_set_must_fit_the_training_set),
        TEST(classes_are_counted_over_the_whole_set),
        TEST(missing_mnist_says_what_to_do),
        TEST(mnist_is_found_under_the_working_directory),
        TEST(synthetic_sizes_are_taken),
        TEST(parts_must_be_asked_for),
        cmocka_unit_test(gather_copies_the_samples_asked_for),
        cmocka_unit_test(real_mnist_is_read),
    };
    if (getcwd(home, sizeof home) == NULL) return 1;
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
