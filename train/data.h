/* data.h - labelled pictures to learn from: MNIST in IDX files, or digits that we draw ourselves.
 *
 * Every process holds the whole set (MNIST is 55 MB); which samples a worker computes is the
 * sampler's business (sampler.h). So the number of classes and the shapes are the same on all
 * workers without asking anybody, also when the files are sorted by label. Nothing here uses the
 * network. */
#ifndef GMT_DATA_H
#define GMT_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

#define GMT_SOURCE_CHARS 512

/* Pictures of one size and the class of each. Filled by the functions below, freed with
 * gmt_dataset_free. */
struct gmt_dataset {
    size_t n_samples;
    int n_rows, n_cols;
    int n_features;                /* n_rows * n_cols */
    int n_classes;                 /* every label is below it */
    uint8_t *pixels;               /* (n_samples, n_features), 0 is paper and 255 ink */
    uint8_t *labels;               /* (n_samples) */
    char source[GMT_SOURCE_CHARS]; /* for people: the file of the pictures, "synthetic digits" */
};

/* A training and a test set that belong together: same n_rows, n_cols and n_classes. A part that
 * was not asked for has n_samples 0 and no memory. */
struct gmt_data {
    struct gmt_dataset train, test;
    char source[GMT_SOURCE_CHARS]; /* for people: "MNIST in data/mnist", "synthetic digits" */
};

enum gmt_data_parts { GMT_DATA_TRAIN = 1, GMT_DATA_TEST = 2, GMT_DATA_BOTH = 3 };

/* The seed to pass for the synthetic digits, so that they are one data set, as MNIST is: training
 * and evaluation see the same, whatever seed the weights and the order of samples have. */
#define GMT_DATA_SEED UINT64_C(20110)

/* The size of the synthetic set unless told otherwise. */
#define GMT_SYNTHETIC_TRAIN_SAMPLES 30000
#define GMT_SYNTHETIC_TEST_SAMPLES  5000
#define GMT_SYNTHETIC_MAX_SAMPLES   10000000

/* Loads what --data names:
 *
 * "mnist"      The four files of MNIST. Looked for in data/mnist under the working directory, then
 *              beside the program: ../data/mnist and ../../data/mnist from the folder of the
 *              program's file (a source tree), and ../share/gradmesh/mnist (an installation).
 * "synthetic"  Digits drawn from `seed`: a pure function of the seed, the same on every machine.
 *              "synthetic:TRAIN" and "synthetic:TRAIN,TEST" set the number of samples; without
 *              TEST it is a sixth of TRAIN.
 * DIR          Any other text is a directory with the four IDX files {train,t10k}-images-idx3-ubyte
 *              and {train,t10k}-labels-idx1-ubyte; a dot in place of the second dash, and .gz at
 *              the end, are found too. A directory called mnist or synthetic is written ./mnist.
 *
 * `parts` are GMT_DATA_TRAIN, GMT_DATA_TEST or both; `seed` matters for "synthetic" only. Pictures
 * of any size up to 4096 x 4096, labels 0..255. The number of classes is 1 + the highest label of
 * the training set, at least 2, and a test label beyond it is an error: the network has no output
 * for it. With GMT_DATA_TEST alone it is taken from the test set, and the caller compares it with
 * what was trained.
 *
 * On success the caller frees *data with gmt_data_free; on failure there is nothing to free and
 * *error (may be NULL) is one sentence with the file, what was found, what was expected and what to
 * do. Reads files and does not wait: neither a pipe nor a device under a file's name holds it up.
 * GM_OK; GM_ERR_ARG: no such data, or files that are not what they should be; GM_ERR_SYSTEM: a file
 * cannot be read; GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_data_load(struct gmt_data *data, const char *where, uint64_t seed,
                                    unsigned parts, gm_error *error);
/* Whether "mnist" would be found: all four files are there, though not yet read. */
bool gmt_data_mnist_is_here(void);

void gmt_data_free(struct gmt_data *data); /* NULL, twice and all-zero are fine */
void gmt_dataset_free(struct gmt_dataset *dataset);

/* Copies samples into a batch: x[i] = pixels of sample indices[i], each divided by 255, and
 * labels[i] its class. `x`: (count, n_features); `labels`: (count), may be NULL. Every index must
 * be below n_samples. */
void gmt_dataset_gather(const struct gmt_dataset *dataset, const uint32_t *indices, size_t count,
                        float *x, uint8_t *labels);
/* The same for the samples first .. first + count - 1. */
void gmt_dataset_gather_range(const struct gmt_dataset *dataset, size_t first, size_t count,
                              float *x, uint8_t *labels);

/* ---- the readers ---------------------------------------------------------------------------- */

/* Reads one pair of IDX files, plain or gzip (told apart by content, not by name). n_classes
 * becomes 1 + the highest label, at least 2. Errors as for gmt_data_load. */
GM_MUST_USE gm_status gmt_idx_read(struct gmt_dataset *dataset, const char *images_path,
                                   const char *labels_path, gm_error *error);

enum gmt_synthetic_split { GMT_SYNTHETIC_TRAIN, GMT_SYNTHETIC_TEST };

/* Draws the first n_samples digits of one split: 28 x 28, 10 classes, every run of ten samples
 * holds each class once. Sample i depends on (seed, split, i) alone. GM_OK, GM_ERR_ARG (no sample,
 * or more than GMT_SYNTHETIC_MAX_SAMPLES), GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_synthetic_make(struct gmt_dataset *dataset, uint64_t seed,
                                         enum gmt_synthetic_split split, size_t n_samples,
                                         gm_error *error);

#endif
