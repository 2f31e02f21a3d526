/* The drawn digits: the same bits everywhere, every class equally often, and neither too easy nor
 * too hard. How well a network learns them is in tests/long/synthetic_learning_test.c; here only
 * the bound that a linear model must not pass, on fewer samples. */
#include "train/data.h"

#include <cblas.h>
#include <math.h>
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"

static struct gmt_dataset make(uint64_t seed, enum gmt_synthetic_split split, size_t n_samples)
{
    struct gmt_dataset set;
    gm_error error;
    if (gmt_synthetic_make(&set, seed, split, n_samples, &error) != GM_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(set.n_samples, n_samples);
    assert_int_equal(set.n_rows, 28);
    assert_int_equal(set.n_cols, 28);
    assert_int_equal(set.n_features, 784);
    assert_int_equal(set.n_classes, 10);
    return set;
}

/* SHA-256 of pixels and labels, in hexadecimal. */
static void hash(const struct gmt_dataset *set, char *hex)
{
    uint8_t digest[32];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    assert_non_null(context);
    assert_int_equal(EVP_DigestInit_ex(context, EVP_sha256(), NULL), 1);
    EVP_DigestUpdate(context, set->pixels, set->n_samples * 784);
    EVP_DigestUpdate(context, set->labels, set->n_samples);
    assert_int_equal(EVP_DigestFinal_ex(context, digest, NULL), 1);
    EVP_MD_CTX_free(context);
    for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02x", digest[i]);
}

/* A change of these is a change of the data set: figures that were measured before it no longer
 * hold. */
static void the_digits_are_the_same_everywhere(void **state)
{
    static const char *const expected[] = {
        "37eb39097fe608b300c2d43fec26471c2a77ca4d2ca7a8fe14aa42b1068306ea",
        "2d1e359d30c9c167a8598bac402c6b806b500cc6fe9553fa6885da973c4dbf80",
    };
    (void)state;
    for (int split = 0; split < 2; split++) {
        char hex[65];
        struct gmt_dataset set = make(GMT_DATA_SEED, (enum gmt_synthetic_split)split, 500);
        hash(&set, hex);
        assert_string_equal(hex, expected[split]);
        gmt_dataset_free(&set);
    }
}

static void a_sample_does_not_depend_on_how_many_there_are(void **state)
{
    (void)state;
    struct gmt_dataset few = make(1, GMT_SYNTHETIC_TRAIN, 7);
    struct gmt_dataset many = make(1, GMT_SYNTHETIC_TRAIN, 95);
    assert_memory_equal(few.pixels, many.pixels, 7 * 784);
    assert_memory_equal(few.labels, many.labels, 7);
    gmt_dataset_free(&few);
    gmt_dataset_free(&many);
}

static void seeds_and_splits_differ(void **state)
{
    (void)state;
    struct gmt_dataset a = make(1, GMT_SYNTHETIC_TRAIN, 50);
    struct gmt_dataset b = make(2, GMT_SYNTHETIC_TRAIN, 50);
    struct gmt_dataset c = make(1, GMT_SYNTHETIC_TEST, 50);
    assert_memory_not_equal(a.labels, b.labels, 50);
    assert_memory_not_equal(a.labels, c.labels, 50);
    for (int i = 0; i < 50; i++) { /* no test picture is a training picture */
        for (int k = 0; k < 50; k++) {
            assert_memory_not_equal(a.pixels + i * 784, b.pixels + k * 784, 784);
            assert_memory_not_equal(a.pixels + i * 784, c.pixels + k * 784, 784);
        }
    }
    gmt_dataset_free(&a);
    gmt_dataset_free(&b);
    gmt_dataset_free(&c);
}

static void ten_in_a_row_hold_each_class_once(void **state)
{
    (void)state;
    struct gmt_dataset set = make(3, GMT_SYNTHETIC_TRAIN, 1000);
    int in_place[10] = { 0 };
    for (size_t i = 0; i < 1000; i += 10) {
        unsigned seen = 0;
        for (size_t k = 0; k < 10; k++) seen |= 1u << set.labels[i + k];
        assert_int_equal(seen, 0x3ff);
        in_place[set.labels[i]]++;
    }
    /* In no fixed order: each class is sometimes the first. */
    for (int digit = 0; digit < 10; digit++) assert_in_range(in_place[digit], 1, 30);
    gmt_dataset_free(&set);
}

/* Ink on paper: a digit is there, in the middle more than at the rim, and most of the paper is
 * empty. */
static void every_picture_shows_something(void **state)
{
    (void)state;
    struct gmt_dataset set = make(4, GMT_SYNTHETIC_TEST, 2000);
    size_t rim = 0, total = 0;
    for (size_t i = 0; i < set.n_samples; i++) {
        const uint8_t *picture = set.pixels + i * 784;
        size_t dark = 0;
        for (int p = 0; p < 784; p++) {
            bool is_rim = p < 28 || p >= 756 || p % 28 == 0 || p % 28 == 27;
            if (picture[p] < 128) continue;
            dark++;
            rim += is_rim;
        }
        assert_in_range(dark, 8, 300);
        total += dark;
    }
    assert_in_range(total / set.n_samples, 50, 140);
    assert_true(rim * 200 < total);
    gmt_dataset_free(&set);
}

static void wrong_counts_and_no_memory_are_refused(void **state)
{
    (void)state;
    struct gmt_dataset set;
    gm_error error;
    size_t too_many = GMT_SYNTHETIC_MAX_SAMPLES + 1;
    assert_int_equal(gmt_synthetic_make(&set, 1, GMT_SYNTHETIC_TRAIN, 0, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "0 samples"));
    assert_int_equal(gmt_synthetic_make(&set, 1, GMT_SYNTHETIC_TRAIN, too_many, NULL), GM_ERR_ARG);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        gmi_alloc_fail_at(nth);
        assert_int_equal(gmt_synthetic_make(&set, 1, GMT_SYNTHETIC_TRAIN, 5, &error), GM_ERR_NOMEM);
        gmi_alloc_fail_at(0);
        assert_null(set.pixels);
    }
}

/* ---- a linear model, as small as it can be written ------------------------------------------ */

#define BATCH 50

struct linear {
    float weights[784 * 10], bias[10];
    float velocity[784 * 10], bias_velocity[10];
};

static void scores(const struct linear *m, const float *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) memcpy(out + i * 10, m->bias, sizeof m->bias);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, 10, 784, 1, x, 784, m->weights,
                10, 1, out, 10);
}

/* Softmax minus the label, divided by the batch. */
static void to_gradient(float *out, const uint8_t *labels)
{
    for (int i = 0; i < BATCH; i++) {
        float *row = out + i * 10, highest = row[0], sum = 0;
        for (int k = 1; k < 10; k++) highest = fmaxf(highest, row[k]);
        for (int k = 0; k < 10; k++) sum += row[k] = expf(row[k] - highest);
        for (int k = 0; k < 10; k++) row[k] = (row[k] / sum - (k == labels[i])) / BATCH;
    }
}

static void train_step(struct linear *m, const float *x, const uint8_t *labels, float rate)
{
    float out[BATCH * 10];
    scores(m, x, BATCH, out);
    to_gradient(out, labels);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, 784, 10, BATCH, 1, x, 784, out, 10, 0.9f,
                m->velocity, 10);
    for (int k = 0; k < 10; k++) m->bias_velocity[k] *= 0.9f;
    for (int i = 0; i < BATCH * 10; i++) m->bias_velocity[i % 10] += out[i];
    for (int i = 0; i < 7840; i++) m->weights[i] -= rate * m->velocity[i];
    for (int k = 0; k < 10; k++) m->bias[k] -= rate * m->bias_velocity[k];
}

static double percent_correct(const struct linear *m, const struct gmt_dataset *set)
{
    float x[BATCH * 784], out[BATCH * 10];
    size_t n_correct = 0;
    for (size_t i = 0; i + BATCH <= set->n_samples; i += BATCH) {
        gmt_dataset_gather_range(set, i, BATCH, x, NULL);
        scores(m, x, BATCH, out);
        for (size_t k = 0; k < BATCH; k++) {
            int best = 0;
            for (int c = 1; c < 10; c++) {
                if (out[k * 10 + (size_t)c] > out[k * 10 + (size_t)best]) best = c;
            }
            n_correct += best == set->labels[i + k];
        }
    }
    return 100.0 * (double)n_correct / (double)set->n_samples;
}

static void a_linear_model_is_not_enough(void **state)
{
    (void)state;
    enum { EPOCHS = 6 };
    static struct linear model;
    struct gmt_dataset train = make(GMT_DATA_SEED, GMT_SYNTHETIC_TRAIN, 10000);
    struct gmt_dataset test = make(GMT_DATA_SEED, GMT_SYNTHETIC_TEST, 2000);
    float x[BATCH * 784];
    uint8_t labels[BATCH];
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (size_t i = 0; i < train.n_samples; i += BATCH) {
            gmt_dataset_gather_range(&train, i, BATCH, x, labels);
            train_step(&model, x, labels, 0.02f * (float)(EPOCHS - epoch) / EPOCHS);
        }
    }
    double percent = percent_correct(&model, &test);
    print_message("linear model: %.2f %% of the test digits\n", percent);
    assert_true(percent <= 92.0);
    assert_true(percent >= 75.0); /* it did learn, so the bound above says something */
    gmt_dataset_free(&train);
    gmt_dataset_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digits_are_the_same_everywhere),
        cmocka_unit_test(a_sample_does_not_depend_on_how_many_there_are),
        cmocka_unit_test(seeds_and_splits_differ),
        cmocka_unit_test(ten_in_a_row_hold_each_class_once),
        cmocka_unit_test(every_picture_shows_something),
        cmocka_unit_test(wrong_counts_and_no_memory_are_refused),
        cmocka_unit_test(a_linear_model_is_not_enough),
    };
    return cmocka_run_group_tests_name("data_synthetic", tests, NULL, NULL);
}
