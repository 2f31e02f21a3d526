/* IDX files, plain and gzip: u16 length of the pictures' file, that file, the labels' file. */
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/error.h"
#include "tests/fuzz/targets.h"
#include "train/data.h"

enum { SIDE = 2, N = 3, IMAGES_BYTES = 16 + N * SIDE * SIDE, LABELS_BYTES = 8 + N };

void fuzz_digits(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input  in = { bytes, n_bytes };
    struct gmt_dataset set;
    size_t             n_images, n_labels;
    char               images[FUZZ_PATH_BYTES], labels[FUZZ_PATH_BYTES];
    size_t             want = fuzz_u16(&in);
    const uint8_t     *at = fuzz_take(&in, want, &n_images);
    fuzz_file(0, at, n_images, images);
    at = fuzz_take(&in, in.left_bytes, &n_labels);
    fuzz_file(1, at, n_labels, labels);
    gm_error error;
    gmi_error_clear(&error);
    memset(&set, 0, sizeof set);
    if (gmt_idx_read(&set, images, labels, &error) != GM_OK) {
        fuzz_check(error.status != GM_OK && error.text[0] != '\0');
        return;
    }
    unsigned sum = 0;
    for (size_t i = 0; i < set.n_samples * (size_t)set.n_features; i++) sum += set.pixels[i];
    for (size_t i = 0; i < set.n_samples; i++) fuzz_check(set.labels[i] < set.n_classes);
    fuzz_check(sum <= 255u * set.n_samples * (unsigned)set.n_features);
    gmt_dataset_free(&set);
}

static size_t zip(const uint8_t *from, size_t n_bytes, uint8_t *into, size_t room)
{
    z_stream z = { 0 };
    fuzz_check(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (Bytef *)(uintptr_t)from;
    z.avail_in = (uInt)n_bytes;
    z.next_out = into;
    z.avail_out = (uInt)room;
    fuzz_check(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static void keep_pair(fuzz_keep_fn keep, void *user, const uint8_t *images, size_t n_images, const uint8_t *labels, size_t n_labels)
{
    uint8_t all[2 + 256 + 256];
    gmi_put_u16(all, (uint16_t)n_images);
    memcpy(all + 2, images, n_images);
    memcpy(all + 2 + n_images, labels, n_labels);
    keep(user, all, 2 + n_images + n_labels);
}

void fuzz_digits_seed(fuzz_keep_fn keep, void *user)
{
    uint8_t images[IMAGES_BYTES] = { 0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, SIDE, 0, 0, 0, SIDE, 9, 8, 7 };
    uint8_t labels[LABELS_BYTES] = { 0, 0, 8, 1, 0, 0, 0, N, 1, 0, 9 };
    uint8_t zipped_images[256], zipped_labels[256];
    size_t  n_images = zip(images, sizeof images, zipped_images, sizeof zipped_images);
    size_t  n_labels = zip(labels, sizeof labels, zipped_labels, sizeof zipped_labels);
    keep_pair(keep, user, images, sizeof images, labels, sizeof labels);
    keep_pair(keep, user, zipped_images, n_images, zipped_labels, n_labels);
    keep_pair(keep, user, zipped_images, n_images, labels, sizeof labels);
    keep_pair(keep, user, labels, sizeof labels, images, sizeof images);
    keep_pair(keep, user, (const uint8_t *)"PK\3\4", 4, (const uint8_t *)"<html>", 6);
}
