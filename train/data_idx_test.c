/* The IDX reader: what is right is read, and everything else ends in one sentence, whatever the
 * file is. */
#include "train/data.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/alloc.h"

#define ROWS        3
#define COLS        5
#define SAMPLES     4
#define IMAGE_BYTES (SAMPLES * ROWS * COLS)

static char dir[] = "/tmp/gradmesh_idx_XXXXXX";
static char images_path[64], labels_path[64];

struct bytes {
    uint8_t data[4096];
    size_t size;
};

static void put(struct bytes *b, const void *data, size_t size)
{
    assert_true(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_u32(struct bytes *b, uint32_t v)
{
    uint8_t big_endian[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                              (uint8_t)v };
    put(b, big_endian, 4);
}

static struct bytes images_header(uint32_t n, uint32_t rows, uint32_t cols)
{
    struct bytes b = { .size = 0 };
    put_u32(&b, 0x803);
    put_u32(&b, n);
    put_u32(&b, rows);
    put_u32(&b, cols);
    return b;
}

static uint8_t pixel(int i)
{
    return (uint8_t)(i * 37 + 11);
}

static struct bytes good_images(void)
{
    struct bytes b = images_header(SAMPLES, ROWS, COLS);
    for (int i = 0; i < IMAGE_BYTES; i++) put(&b, &(uint8_t){ pixel(i) }, 1);
    return b;
}

static struct bytes good_labels(void)
{
    struct bytes b = { .size = 0 };
    put_u32(&b, 0x801);
    put_u32(&b, SAMPLES);
    put(&b, "\x02\x00\x06\x01", SAMPLES);
    return b;
}

static struct bytes gzip(struct bytes in)
{
    struct bytes out = { .size = 0 };
    z_stream z;
    memset(&z, 0, sizeof z);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = in.data;
    z.avail_in = (uInt)in.size;
    z.next_out = out.data;
    z.avail_out = sizeof out.data;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.size = sizeof out.data - z.avail_out;
    deflateEnd(&z);
    return out;
}

static void write_file(const char *path, struct bytes b)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b.data, 1, b.size, file), b.size);
    assert_int_equal(fclose(file), 0);
}

static gm_status read_both(struct bytes images, struct bytes labels, struct gmt_dataset *dataset,
                           gm_error *error)
{
    write_file(images_path, images);
    write_file(labels_path, labels);
    return gmt_idx_read(dataset, images_path, labels_path, error);
}

static void assert_is_good_set(const struct gmt_dataset *dataset)
{
    assert_int_equal(dataset->n_samples, SAMPLES);
    assert_int_equal(dataset->n_rows, ROWS);
    assert_int_equal(dataset->n_cols, COLS);
    assert_int_equal(dataset->n_features, ROWS * COLS);
    assert_int_equal(dataset->n_classes, 7);
    assert_memory_equal(dataset->labels, "\x02\x00\x06\x01", SAMPLES);
    for (int i = 0; i < IMAGE_BYTES; i++) assert_int_equal(dataset->pixels[i], pixel(i));
}

static void assert_is_read(struct bytes images, struct bytes labels)
{
    struct gmt_dataset dataset;
    gm_error error;
    if (read_both(images, labels, &dataset, &error) != GM_OK) fail_msg("%s", error.text);
    assert_is_good_set(&dataset);
    gmt_dataset_free(&dataset);
}

/* The sentence must hold each of the texts, up to a NULL. */
static void assert_sentence(const gm_error *error, const char *const *texts)
{
    for (; *texts != NULL; texts++) {
        if (strstr(error->text, *texts) == NULL) {
            fail_msg("no \"%s\" in: %s", *texts, error->text);
        }
    }
    assert_null(strchr(error->text, '\n'));
    assert_true(strlen(error->text) + 1 < sizeof error->text); /* nothing was cut off */
}

static void assert_refused(struct bytes images, struct bytes labels, const char *const *texts)
{
    struct gmt_dataset dataset;
    gm_error error;
    assert_int_equal(read_both(images, labels, &dataset, &error), GM_ERR_ARG);
    assert_int_equal(error.status, GM_ERR_ARG);
    assert_null(dataset.pixels);
    assert_null(dataset.labels);
    assert_sentence(&error, texts);
}
/* images, labels, what the sentence must hold ... */
#define ASSERT_REFUSED(images, labels, ...)                                                        \
    assert_refused(images, labels, (const char *const[]){ __VA_ARGS__, NULL })

static struct bytes text(const char *t, size_t size)
{
    struct bytes b = { .size = 0 };
    put(&b, t, size);
    return b;
}
#define TEXT(t) text(t, sizeof(t) - 1)

/* ---- what is right -------------------------------------------------------------------------- */

static void plain_pair_is_read(void **state)
{
    (void)state;
    assert_is_read(good_images(), good_labels());
}

static void gzip_is_known_by_content(void **state)
{
    (void)state;
    assert_is_read(gzip(good_images()), good_labels());
    assert_is_read(good_images(), gzip(good_labels()));
    assert_is_read(gzip(good_images()), gzip(good_labels()));
}

static void joined_gzip_members_are_one_file(void **state)
{
    (void)state;
    struct bytes whole = good_images();
    for (size_t cut = 0; cut <= whole.size; cut++) {
        struct bytes joined = gzip(text((char *)whole.data, cut));
        struct bytes rest = gzip(text((char *)whole.data + cut, whole.size - cut));
        put(&joined, rest.data, rest.size);
        assert_is_read(joined, good_labels());
    }
}

static void one_class_still_makes_two(void **state)
{
    (void)state;
    struct bytes labels = good_labels();
    struct gmt_dataset dataset;
    memset(labels.data + 8, 0, SAMPLES);
    assert_int_equal(read_both(good_images(), labels, &dataset, NULL), GM_OK);
    assert_int_equal(dataset.n_classes, 2);
    gmt_dataset_free(&dataset);
    memset(labels.data + 8, 255, SAMPLES);
    assert_int_equal(read_both(good_images(), labels, &dataset, NULL), GM_OK);
    assert_int_equal(dataset.n_classes, 256);
    gmt_dataset_free(&dataset);
}

/* 3 MB of one byte: more than the first growth, and as dense as gzip gets. */
static void large_dense_gzip_grows_to_its_size(void **state)
{
    (void)state;
    const uint32_t n = 3000, side = 32;
    struct bytes header = images_header(n, side, side), labels = { .size = 0 };
    uint8_t zeros[1024] = { 0 };
    struct gmt_dataset dataset;
    gm_error error;
    gzFile file = gzopen(images_path, "wb9");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, header.data, (unsigned)header.size), header.size);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(gzwrite(file, zeros, 1024), 1024);
    assert_int_equal(gzclose(file), Z_OK);
    put_u32(&labels, 0x801);
    put_u32(&labels, n);
    for (uint32_t i = 0; i < n; i++) put(&labels, "\1", 1);
    write_file(labels_path, labels);
    if (gmt_idx_read(&dataset, images_path, labels_path, &error) != GM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(dataset.n_samples, n);
    for (size_t i = 0; i < (size_t)n * side * side; i++) assert_int_equal(dataset.pixels[i], 0);
    gmt_dataset_free(&dataset);
}

/* ---- wrong file ----------------------------------------------------------------------------- */

static void swapped_files_are_named_as_such(void **state)
{
    (void)state;
    ASSERT_REFUSED(good_labels(), good_images(), images_path, "2049", "2051", "swapped");
    ASSERT_REFUSED(good_images(), good_images(), labels_path, "2049", "2051", "swapped");
    ASSERT_REFUSED(gzip(good_labels()), good_labels(), images_path, "2049", "2051", "swapped");
}

static void web_page_gets_a_hint(void **state)
{
    (void)state;
    ASSERT_REFUSED(TEXT("<!DOCTYPE html><html>404"), good_labels(), images_path, "web page",
                   "2051");
    ASSERT_REFUSED(TEXT("\n <html></html>"), good_labels(), images_path, "web page", "2051");
    ASSERT_REFUSED(TEXT("\xef\xbb\xbf<html></html>"), good_labels(), images_path, "web page");
    ASSERT_REFUSED(good_images(), TEXT("<html></html>"), labels_path, "web page", "2049");
    ASSERT_REFUSED(gzip(TEXT("<html></html>")), good_labels(), images_path, "web page");
}

static void other_formats_are_named(void **state)
{
    (void)state;
    struct bytes bzip2 = TEXT("BZh91AY&SY"), zip = TEXT("PK\x03\x04...."),
                 npy = TEXT("\x93NUMPY\1\0");
    struct bytes lfs = TEXT("version https://git-lfs"), little = good_images();
    ASSERT_REFUSED(gzip(gzip(good_images())), good_labels(), images_path, "twice", "0x1f8b",
                   "gunzip");
    ASSERT_REFUSED(bzip2, good_labels(), images_path, "bzip2", "0x425a68", "0x00000803");
    ASSERT_REFUSED(zip, good_labels(), images_path, "zip archive");
    ASSERT_REFUSED(npy, good_labels(), images_path, "NumPy");
    ASSERT_REFUSED(lfs, good_labels(), images_path, "Git LFS");
    memcpy(little.data, "\x03\x08\0\0", 4);
    ASSERT_REFUSED(little, good_labels(), images_path, "little-endian", "0x03080000", "0x00000803");
    ASSERT_REFUSED(TEXT("5.1,3.5,1.4"), good_labels(), images_path, "0x352e312c", "no IDX file");
}

static void other_types_and_dimensions_are_named(void **state)
{
    (void)state;
    struct bytes floats = good_images(), flat = good_images();
    floats.data[2] = 0x0d;
    flat.data[3] = 2;
    ASSERT_REFUSED(floats, good_labels(), images_path, "type 0x0d", "0x08");
    ASSERT_REFUSED(flat, good_labels(), images_path, "with 2 dimensions", "with 3 dimensions");
}

/* ---- wrong sizes ---------------------------------------------------------------------------- */

static void header_of_15_bytes_is_refused(void **state)
{
    (void)state;
    struct bytes images = good_images();
    images.size = 15;
    ASSERT_REFUSED(images, good_labels(), images_path, "15 bytes", "16");
    ASSERT_REFUSED(gzip(images), good_labels(), images_path, "15 bytes", "16");
    ASSERT_REFUSED(good_images(), TEXT("\0\0\x08\x01\0\0\0"), labels_path, "7 bytes", "8");
    ASSERT_REFUSED(TEXT("\0\0\x08"), good_labels(), images_path, "3 bytes", "16");
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct bytes plain = good_images(), packed = gzip(plain), labels = good_labels();
    for (size_t size = 0; size < plain.size; size++) {
        struct bytes cut = plain;
        cut.size = size;
        ASSERT_REFUSED(cut, good_labels(), images_path, size == 0 ? "0 bytes" : "cut off");
        ASSERT_REFUSED(gzip(cut), good_labels(), images_path, "cut off");
    }
    for (size_t size = 2; size < packed.size; size++) {
        struct bytes cut = packed;
        cut.size = size;
        ASSERT_REFUSED(cut, good_labels(), images_path, "cut off");
    }
    for (size_t size = 0; size < labels.size; size++) {
        struct bytes cut = labels;
        cut.size = size;
        ASSERT_REFUSED(good_images(), cut, labels_path);
    }
}

static void bytes_left_over_are_refused(void **state)
{
    (void)state;
    struct bytes images = good_images(), packed = gzip(images);
    put(&images, "x", 1);
    put(&packed, "x", 1);
    ASSERT_REFUSED(images, good_labels(), images_path, "left over", "77", "76");
    ASSERT_REFUSED(gzip(images), good_labels(), images_path, "left over", "60");
    ASSERT_REFUSED(packed, good_labels(), images_path, "left over after its gzip data");
}

static void counts_must_agree(void **state)
{
    (void)state;
    struct bytes labels = good_labels();
    labels.data[7] = 3;
    labels.size--;
    ASSERT_REFUSED(good_images(), labels, images_path, "4 pictures", labels_path, "3 labels");
}

/* A header that lies is found before any memory is taken. */
static void lying_header_takes_no_memory(void **state)
{
    (void)state;
    const uint32_t all = 0xffffffff;
    struct bytes labels = { .size = 0 };
    uint64_t calls = gmi_alloc_calls();
    put_u32(&labels, 0x801);
    put_u32(&labels, all);
    ASSERT_REFUSED(images_header(all, all, all), labels, images_path, "4294967295", "4096");
    ASSERT_REFUSED(images_header(all, 4096, 4096), labels, labels_path, "cut off", "4294967303");
    ASSERT_REFUSED(images_header(all, 65536, 65536), labels, images_path, "65536", "4096");
    ASSERT_REFUSED(images_header(0, ROWS, COLS), labels, images_path, "0 pictures");
    ASSERT_REFUSED(images_header(SAMPLES, 0, COLS), good_labels(), images_path, "0 rows");
    ASSERT_REFUSED(images_header(SAMPLES, ROWS, 0), good_labels(), images_path, "0 columns");
    ASSERT_REFUSED(gzip(images_header(all, 4096, 4096)), gzip(labels), labels_path, "cannot hold");
    assert_int_equal(gmi_alloc_calls(), calls);
}

/* ---- damage --------------------------------------------------------------------------------- */

/* The few bytes that gzip does not protect (time, system) may differ; then the data are right. */
static void no_flipped_byte_gives_wrong_data(void **state)
{
    (void)state;
    struct bytes packed = gzip(good_images()), plain = good_images();
    size_t n_refused = 0;
    for (size_t i = 0; i < packed.size; i++) {
        struct bytes flipped = packed;
        struct gmt_dataset dataset;
        flipped.data[i] ^= 0x41;
        if (read_both(flipped, good_labels(), &dataset, NULL) != GM_OK) {
            n_refused++;
            continue;
        }
        assert_is_good_set(&dataset);
        gmt_dataset_free(&dataset);
    }
    assert_true(n_refused >= packed.size - 6);
    for (size_t i = 0; i < 16; i++) {
        struct bytes flipped = plain;
        flipped.data[i] ^= 0x41;
        ASSERT_REFUSED(flipped, good_labels(), images_path);
    }
}

static void damaged_gzip_is_called_so(void **state)
{
    (void)state;
    struct bytes packed = gzip(good_images());
    packed.data[packed.size - 8] ^= 1; /* the checksum */
    ASSERT_REFUSED(packed, good_labels(), images_path, "damaged", "incorrect data check");
}

/* ---- not a file ----------------------------------------------------------------------------- */

static void directory_and_pipe_are_refused_at_once(void **state)
{
    (void)state;
    struct gmt_dataset dataset;
    gm_error error;
    char path[96];

    write_file(labels_path, good_labels());
    assert_int_equal(gmt_idx_read(&dataset, dir, labels_path, &error), GM_ERR_ARG);
    assert_sentence(&error, (const char *const[]){ dir, "is a directory", NULL });

    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gmt_idx_read(&dataset, path, labels_path, &error), GM_ERR_ARG);
    assert_sentence(&error, (const char *const[]){ path, "pipe", "regular file", NULL });
    write_file(images_path, good_images());
    assert_int_equal(gmt_idx_read(&dataset, images_path, path, &error), GM_ERR_ARG);
    assert_sentence(&error, (const char *const[]){ path, "pipe", NULL });
    unlink(path);

    assert_int_equal(gmt_idx_read(&dataset, "/dev/zero", labels_path, &error), GM_ERR_ARG);
    assert_sentence(&error, (const char *const[]){ "/dev/zero", "device", NULL });
    assert_int_equal(gmt_idx_read(&dataset, path, labels_path, &error), GM_ERR_SYSTEM);
    assert_sentence(&error, (const char *const[]){ path, "No such file", NULL });
}

static void long_path_leaves_room_for_the_sentence(void **state)
{
    (void)state;
    struct gmt_dataset dataset;
    gm_error error;
    char path[4000];
    memset(path, 'd', sizeof path);
    for (size_t i = 0; i < sizeof path; i += 100) path[i] = '/';
    memcpy(path + sizeof path - 12, "/the-images", 12);
    assert_int_equal(gmt_idx_read(&dataset, path, path, &error), GM_ERR_SYSTEM);
    assert_sentence(&error, (const char *const[]){ "...", "/the-images cannot be opened", NULL });
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct gmt_dataset dataset;
    gm_error error;
    gm_status status = GM_ERR_NOMEM;
    uint64_t nth;
    write_file(images_path, gzip(good_images()));
    write_file(labels_path, good_labels());
    for (nth = 1; status != GM_OK; nth++) {
        gmi_alloc_fail_at(nth);
        status = gmt_idx_read(&dataset, images_path, labels_path, &error);
        if (status == GM_OK) break;
        assert_int_equal(status, GM_ERR_NOMEM);
        assert_null(dataset.pixels);
    }
    gmi_alloc_fail_at(0);
    assert_int_equal(nth, 3); /* labels, pictures */
    gmt_dataset_free(&dataset);
}

static int set_up(void **state)
{
    (void)state;
    alarm(100); /* nothing here may wait */
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(images_path, sizeof images_path, "%s/images", dir);
    snprintf(labels_path, sizeof labels_path, "%s/labels", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(images_path);
    unlink(labels_path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_pair_is_read),
        cmocka_unit_test(gzip_is_known_by_content),
        cmocka_unit_test(joined_gzip_members_are_one_file),
        cmocka_unit_test(one_class_still_makes_two),
        cmocka_unit_test(large_dense_gzip_grows_to_its_size),
        cmocka_unit_test(swapped_files_are_named_as_such),
        cmocka_unit_test(web_page_gets_a_hint),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(other_types_and_dimensions_are_named),
        cmocka_unit_test(header_of_15_bytes_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(bytes_left_over_are_refused),
        cmocka_unit_test(counts_must_agree),
        cmocka_unit_test(lying_header_takes_no_memory),
        cmocka_unit_test(no_flipped_byte_gives_wrong_data),
        cmocka_unit_test(damaged_gzip_is_called_so),
        cmocka_unit_test(directory_and_pipe_are_refused_at_once),
        cmocka_unit_test(long_path_leaves_room_for_the_sentence),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("data_idx", tests, set_up, tear_down);
}
