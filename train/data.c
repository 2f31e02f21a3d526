/* data.c - from what --data names to a training and a test set; and from samples to batches. */
#include "train/data.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/error.h"

/* ---- finding files -------------------------------------------------------------------------- */

enum { FILE_IMAGES, FILE_LABELS };

static const char *const part_names[] = { "train", "t10k" };
static const char *const kind_names[] = { "images", "labels" };
static const int kind_dims[] = { 3, 1 };

/* Writes the path of one of the four files: the first of its spellings that is there. False when
 * none is; `path` then holds the plainest one. */
static bool find_file(char *path, size_t path_chars, const char *dir, int part, int kind)
{
    static const struct {
        char separator;
        const char *ending;
    } spellings[] = { { '-', "" }, { '-', ".gz" }, { '.', "" }, { '.', ".gz" } };

    for (int i = 0; i <= 4; i++) { /* after all four the plainest one once more */
        int length = snprintf(path, path_chars, "%s/%s-%s%cidx%d-ubyte%s", dir, part_names[part],
                              kind_names[kind], spellings[i % 4].separator, kind_dims[kind],
                              spellings[i % 4].ending);
        struct stat info;
        if (length < 0 || (size_t)length >= path_chars) return false;
        /* What is there but cannot be examined is found too: opening it says why. */
        if (i < 4 && (stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR))) return true;
    }
    return false;
}

static bool has_all_files(const char *dir)
{
    char path[PATH_MAX];
    for (int part = 0; part < 2; part++) {
        for (int kind = FILE_IMAGES; kind <= FILE_LABELS; kind++) {
            if (!find_file(path, sizeof path, dir, part, kind)) return false;
        }
    }
    return true;
}

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The folder of the program's file; "" when it cannot be known. */
static void find_program_dir(char *dir, size_t dir_chars)
{
    ssize_t length = readlink("/proc/self/exe", dir, dir_chars - 1);
    dir[length > 0 ? length : 0] = 0;
    char *slash = strrchr(dir, '/');
    if (slash != NULL) *slash = 0;
}

/* Writes the directory of MNIST: the first place that is there. */
static bool find_mnist(char *dir, size_t dir_chars)
{
    static const char *const places[] = { "../data/mnist", "../../data/mnist",
                                          "../share/gradmesh/mnist" };
    char program_dir[PATH_MAX];

    snprintf(dir, dir_chars, "data/mnist");
    if (is_directory(dir)) return true;
    find_program_dir(program_dir, sizeof program_dir);
    for (int i = 0; i < 3 && program_dir[0] != 0; i++) {
        int length = snprintf(dir, dir_chars, "%s/%s", program_dir, places[i]);
        if (length <= 0 || (size_t)length >= dir_chars || !is_directory(dir)) continue;
        if (realpath(dir, program_dir) != NULL) snprintf(dir, dir_chars, "%s", program_dir); /* people read it */
        return true;
    }
    return false;
}

bool gmt_data_mnist_is_here(void)
{
    char dir[PATH_MAX];
    return find_mnist(dir, sizeof dir) && has_all_files(dir);
}

/* ---- loading -------------------------------------------------------------------------------- */

#define MNIST_ADVICE "bring it with `make mnist`, or use --data synthetic"

/* The end of a long path, so that the rest of a sentence has its place. */
static const char *shown(const char *path)
{
    size_t length = strlen(path);
    return length <= 200 ? path : path + length - 200;
}

static gm_status load_part(struct gmt_dataset *dataset, const char *dir, int part,
                           const char *advice, gm_error *error)
{
    char paths[2][PATH_MAX];

    for (int kind = FILE_IMAGES; kind <= FILE_LABELS; kind++) {
        if (find_file(paths[kind], sizeof paths[kind], dir, part, kind)) continue;
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s has no file %s-%s-idx%d-ubyte (nor with a dot before idx, nor with "
            ".gz): %s",
            shown(dir), part_names[part], kind_names[kind], kind_dims[kind], advice);
    }
    return gmt_idx_read(dataset, paths[FILE_IMAGES], paths[FILE_LABELS], error);
}

/* The network's input and output are made for the training set, so the test set must fit it. */
static gm_status match_parts(struct gmt_data *data, gm_error *error)
{
    struct gmt_dataset *train = &data->train, *test = &data->test;

    if (train->n_samples == 0 || test->n_samples == 0) return GM_OK; /* only one was asked for */
    if (train->n_rows != test->n_rows || train->n_cols != test->n_cols) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s has pictures of %d x %d pixels, but those of the training set have %d x %d: "
            "the files do not belong together",
            shown(test->source), test->n_rows, test->n_cols, train->n_rows, train->n_cols);
    }
    for (size_t i = 0; i < test->n_samples; i++) {
        if (test->labels[i] < train->n_classes) continue;
        return gmi_error_set(
            error, GM_ERR_ARG,
            "the labels of %s: number %zu is %d, but the training set has classes 0 to "
            "%d only",
            shown(test->source), i, test->labels[i], train->n_classes - 1);
    }
    test->n_classes = train->n_classes;
    return GM_OK;
}

static gm_status load_directory(struct gmt_data *data, const char *dir, unsigned parts,
                                const char *advice, gm_error *error)
{
    struct stat info;
    gm_status status = GM_OK;

    if (stat(dir, &info) != 0) {
        return gmi_error_set_errno(
            error, errno,
            "--data %s: expected mnist, synthetic or a directory with the four IDX "
            "files of MNIST's names",
            shown(dir));
    }
    if (!S_ISDIR(info.st_mode)) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "--data %s is not a directory: name the one that has the four IDX files in it",
            shown(dir));
    }
    if (parts & GMT_DATA_TRAIN) status = load_part(&data->train, dir, 0, advice, error);
    if (status == GM_OK && (parts & GMT_DATA_TEST)) {
        status = load_part(&data->test, dir, 1, advice, error);
    }
    if (status == GM_OK) status = match_parts(data, error);
    return status;
}

static gm_status load_mnist(struct gmt_data *data, unsigned parts, gm_error *error)
{
    char dir[PATH_MAX], program_dir[PATH_MAX];

    if (!find_mnist(dir, sizeof dir)) {
        find_program_dir(program_dir, sizeof program_dir);
        return gmi_error_set(
            error, GM_ERR_ARG,
            "MNIST is not here: there is no data/mnist in the working directory and "
            "none beside the program in %s: " MNIST_ADVICE,
            shown(program_dir));
    }
    gm_status status = load_directory(data, dir, parts, MNIST_ADVICE, error);
    snprintf(data->source, sizeof data->source, "MNIST in %.200s", shown(dir));
    return status;
}

/* Reads one count in decimal digits, 1 .. GMT_SYNTHETIC_MAX_SAMPLES; returns what follows it, or
 * NULL. */
static const char *read_count(const char *text, size_t *count)
{
    *count = 0;
    if (*text < '0' || *text > '9') return NULL;
    for (; *text >= '0' && *text <= '9'; text++) {
        *count = *count * 10 + (size_t)(*text - '0');
        if (*count > GMT_SYNTHETIC_MAX_SAMPLES) return NULL;
    }
    return *count > 0 ? text : NULL;
}

/* `sizes` is what follows the word: "", ":TRAIN" or ":TRAIN,TEST". */
static bool read_sizes(const char *sizes, size_t *n_train, size_t *n_test)
{
    *n_train = GMT_SYNTHETIC_TRAIN_SAMPLES;
    *n_test = GMT_SYNTHETIC_TEST_SAMPLES;
    if (*sizes == 0) return true;
    sizes = read_count(sizes + 1, n_train);
    if (sizes == NULL) return false;
    *n_test = *n_train > 6 ? *n_train / 6 : 1;
    if (*sizes == ',') sizes = read_count(sizes + 1, n_test);
    return sizes != NULL && *sizes == 0;
}

static gm_status load_synthetic(struct gmt_data *data, const char *where, uint64_t seed,
                                unsigned parts, gm_error *error)
{
    size_t n_train, n_test;
    gm_status status = GM_OK;

    if (!read_sizes(where + strlen("synthetic"), &n_train, &n_test)) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "--data %.60s: expected synthetic, synthetic:TRAIN or synthetic:TRAIN,TEST with "
            "numbers of samples from 1 to %d",
            where, GMT_SYNTHETIC_MAX_SAMPLES);
    }
    if (parts & GMT_DATA_TRAIN) {
        status = gmt_synthetic_make(&data->train, seed, GMT_SYNTHETIC_TRAIN, n_train, error);
    }
    if (status == GM_OK && (parts & GMT_DATA_TEST)) {
        status = gmt_synthetic_make(&data->test, seed, GMT_SYNTHETIC_TEST, n_test, error);
    }
    snprintf(data->source, sizeof data->source, "synthetic digits");
    return status;
}

static bool names_synthetic(const char *where)
{
    size_t length = strlen("synthetic");
    return strncmp(where, "synthetic", length) == 0 && (where[length] == 0 || where[length] == ':');
}

gm_status gmt_data_load(struct gmt_data *data, const char *where, uint64_t seed, unsigned parts,
                        gm_error *error)
{
    gm_status status;

    gmi_error_clear(error);
    memset(data, 0, sizeof *data);
    if ((parts & GMT_DATA_BOTH) == 0 || (parts & ~(unsigned)GMT_DATA_BOTH) != 0) {
        return gmi_error_set(error, GM_ERR_ARG, "parts of the data: %u, and 1 to 3 was expected",
                             parts);
    }
    if (strcmp(where, "mnist") == 0) {
        status = load_mnist(data, parts, error);
    } else if (names_synthetic(where)) {
        status = load_synthetic(data, where, seed, parts, error);
    } else {
        status = load_directory(data, where, parts, "put all four of them there", error);
        snprintf(data->source, sizeof data->source, "IDX files in %.200s", shown(where));
    }
    if (status != GM_OK) gmt_data_free(data);
    return status;
}

void gmt_dataset_free(struct gmt_dataset *dataset)
{
    if (dataset == NULL) return;
    gmi_free(dataset->pixels);
    gmi_free(dataset->labels);
    memset(dataset, 0, sizeof *dataset);
}

void gmt_data_free(struct gmt_data *data)
{
    if (data == NULL) return;
    gmt_dataset_free(&data->train);
    gmt_dataset_free(&data->test);
    memset(data, 0, sizeof *data);
}

/* ---- batches -------------------------------------------------------------------------------- */

static void copy_sample(const struct gmt_dataset *dataset, size_t index, float *x)
{
    size_t n_features = (size_t)dataset->n_features;
    const uint8_t *pixels = dataset->pixels + index * n_features;
    for (size_t i = 0; i < n_features; i++) x[i] = (float)pixels[i] / 255.0f;
}

void gmt_dataset_gather(const struct gmt_dataset *dataset, const uint32_t *indices, size_t count,
                        float *x, uint8_t *labels)
{
    for (size_t i = 0; i < count; i++) {
        GMI_CHECK(indices[i] < dataset->n_samples);
        copy_sample(dataset, indices[i], x + i * (size_t)dataset->n_features);
        if (labels != NULL) labels[i] = dataset->labels[indices[i]];
    }
}

void gmt_dataset_gather_range(const struct gmt_dataset *dataset, size_t first, size_t count,
                              float *x, uint8_t *labels)
{
    GMI_CHECK(first <= dataset->n_samples);
    GMI_CHECK(count <= dataset->n_samples - first);
    for (size_t i = 0; i < count; i++) {
        copy_sample(dataset, first + i, x + i * (size_t)dataset->n_features);
    }
    if (labels != NULL && count > 0) memcpy(labels, dataset->labels + first, count);
}
