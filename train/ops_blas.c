/* The operations of ops.h for training: matrix products by OpenBLAS, everything around them in
 * plain loops that the compiler vectorises.
 *
 * What surrounds the products is kept to one pass over data that the product has just left in the
 * cache: bias and ReLU together; the ReLU's mask right after dx; maximum, exponential, sum and
 * gradient of a block of rows together. */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/simd.h"
#include "train/ops.h"
#include "train/softmax.h"

void gmt_set_blas_threads(int n_threads)
{
    GMI_CHECK(n_threads >= 1);
    openblas_set_num_threads(n_threads);
}

/* c (n_rows, n_cols) = a b, or c + a b; a and b are stored transposed if so said, with rows of
 * a_stride and b_stride elements. n_inner is what is summed. */
static void multiply(enum CBLAS_TRANSPOSE a_order, enum CBLAS_TRANSPOSE b_order, size_t n_rows,
                     size_t n_cols, size_t n_inner, const float *a, size_t a_stride, const float *b,
                     size_t b_stride, float beta, float *c)
{
    cblas_sgemm(CblasRowMajor, a_order, b_order, (int)n_rows, (int)n_cols, (int)n_inner, 1.0f, a,
                (int)a_stride, b, (int)b_stride, beta, c, (int)n_cols);
}

/* ---- linear layer ---------------------------------------------------------------------------- */

GMI_SIMD static void add_bias(float *restrict y, const float *restrict b, size_t n_rows,
                              size_t n_out)
{
    for (size_t r = 0; r < n_rows; r++, y += n_out)
        for (size_t o = 0; o < n_out; o++) y[o] += b[o];
}

/* Not max(sum, 0): a comparison with NaN is false, and the NaN must survive. */
GMI_SIMD static void add_bias_relu(float *restrict y, const float *restrict b, size_t n_rows,
                                   size_t n_out)
{
    for (size_t r = 0; r < n_rows; r++, y += n_out)
        for (size_t o = 0; o < n_out; o++) {
            float sum = y[o] + b[o];
            y[o] = sum < 0 ? 0 : sum;
        }
}

void gmt_linear_forward(const float *x, const float *w, const float *b, float *y, size_t n_rows,
                        size_t n_in, size_t n_out, bool has_relu)
{
    if (n_rows == 0) return;
    multiply(CblasNoTrans, CblasTrans, n_rows, n_out, n_in, x, n_in, w, n_in, 0, y);
    if (has_relu)
        add_bias_relu(y, b, n_rows, n_out);
    else
        add_bias(y, b, n_rows, n_out);
}

/* db += column sums of dy, four rows at a time so that db is loaded and stored less often. */
GMI_SIMD static void add_column_sums(float *restrict db, const float *restrict dy, size_t n_rows,
                                     size_t n_out)
{
    size_t r = 0;
    for (; r + 4 <= n_rows; r += 4) {
        const float *row = dy + r * n_out;
        for (size_t o = 0; o < n_out; o++)
            db[o] += (row[o] + row[n_out + o]) + (row[2 * n_out + o] + row[3 * n_out + o]);
    }
    for (; r < n_rows; r++)
        for (size_t o = 0; o < n_out; o++) db[o] += dy[r * n_out + o];
}

GMI_SIMD static void mask_by_relu(float *restrict dx, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) dx[i] = x[i] <= 0 ? 0 : dx[i];
}

void gmt_linear_backward_bias(const float *dy, float *db, size_t n_rows, size_t n_out,
                              bool is_accumulating)
{
    if (!is_accumulating) memset(db, 0, n_out * sizeof *db);
    add_column_sums(db, dy, n_rows, n_out);
}

void gmt_linear_backward_weight(const float *x, const float *dy, float *dw, size_t n_rows,
                                size_t n_in, size_t n_out, size_t first_out, size_t n_part,
                                bool is_accumulating)
{
    float *part = dw + first_out * n_in;
    if (n_rows == 0) {
        if (!is_accumulating) memset(part, 0, n_part * n_in * sizeof *part);
        return;
    }
    multiply(CblasTrans, CblasNoTrans, n_part, n_in, n_rows, dy + first_out, n_out, x, n_in,
             is_accumulating ? 1 : 0, part);
}

void gmt_linear_backward_input(const float *x, const float *w, const float *dy, float *dx,
                               size_t n_rows, size_t n_in, size_t n_out, bool has_relu_below)
{
    if (n_rows == 0) return;
    multiply(CblasNoTrans, CblasNoTrans, n_rows, n_in, n_out, dy, n_out, w, n_in, 0, dx);
    if (has_relu_below) mask_by_relu(dx, x, n_rows * n_in);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* e^x = 2^k e^r with k = round(x / ln 2) and |r| <= ln 2 / 2: k goes into the exponent bits, e^r is
 * the Taylor polynomial to r^7. Adding and subtracting 1.5 2^23 rounds to an integer. ln 2 is
 * subtracted in two parts, the first of which has so few bits that k times it is exact. Source:
 * Cody, Waite, "Software manual for the elementary functions" (1980). */
static inline float exp_nonpositive(float x)
{
    const float rounder = 0x1.8p23f;
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted = clamped * 0x1.715476p+0f + rounder;
    float k = shifted - rounder;
    float r = (clamped - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t k_bits, power_bits;
    memcpy(&k_bits, &shifted, sizeof k_bits);
    power_bits = (k_bits + 127) << 23;
    float power;
    memcpy(&power, &power_bits, sizeof power);
    return x < -87.0f ? 0 : p * power;
}

GMI_SIMD void gmt_exp_nonpositive(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) values[i] = exp_nonpositive(values[i]);
}

static float sum_of(const float *values, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    return sum;
}

static size_t softmax_block_rows(size_t n_rows, size_t n_classes)
{
    size_t fitting = GMT_SOFTMAX_BLOCK_ELEMS / n_classes;
    return gmi_min_size(n_rows, fitting > 0 ? fitting : 1);
}

/* The sum over rows of log(sums) by few logarithms: of products that stay far from overflow, as
 * each sum is at least 1 (the maximum contributes e^0). */
struct log_product {
    double log_sum, product;
};

static void log_product_times(struct log_product *l, double factor)
{
    l->product *= factor;
    if (l->product < 1e200) return; /* a NaN goes on and stays */
    l->log_sum += log(l->product);
    l->product = 1;
}

void gmt_softmax_loss(const float *logits, const uint8_t *labels, float *dlogits, size_t n_rows,
                      size_t n_classes, float scale, double *loss_sum, size_t *n_correct)
{
    struct log_product sums = { 0, 1 };
    double label_sum = 0; /* of label logit - maximum: in double it cannot overflow */
    while (n_rows > 0) {
        size_t block_rows = softmax_block_rows(n_rows, n_classes);
        for (size_t r = 0; r < block_rows; r++) {
            const float *row = logits + r * n_classes;
            float *shifted = dlogits + r * n_classes;
            size_t largest = gmt_index_of_largest(row, n_classes);
            float max = row[largest];
            *n_correct += largest == labels[r];
            label_sum += (double)row[labels[r]] - max;
            for (size_t c = 0; c < n_classes; c++) shifted[c] = row[c] - max;
        }
        gmt_exp_nonpositive(dlogits, block_rows * n_classes);
        for (size_t r = 0; r < block_rows; r++) {
            float *row = dlogits + r * n_classes;
            float sum = sum_of(row, n_classes), factor = scale / sum;
            log_product_times(&sums, sum);
            for (size_t c = 0; c < n_classes; c++) row[c] *= factor;
            row[labels[r]] -= scale;
        }
        logits += block_rows * n_classes;
        dlogits += block_rows * n_classes;
        labels += block_rows;
        n_rows -= block_rows;
    }
    *loss_sum += sums.log_sum + log(sums.product) - label_sum;
}

void gmt_softmax(const float *logits, float *probabilities, size_t n_rows, size_t n_classes)
{
    for (size_t r = 0; r < n_rows; r++) {
        const float *from = logits + r * n_classes;
        float *row = probabilities + r * n_classes;
        float max = from[gmt_index_of_largest(from, n_classes)];
        for (size_t c = 0; c < n_classes; c++) row[c] = from[c] - max;
        gmt_exp_nonpositive(row, n_classes);
        float sum = sum_of(row, n_classes);
        for (size_t c = 0; c < n_classes; c++) row[c] /= sum;
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Looks at the exponent bits, without a branch per element, a block at a time so that it ends
 * early. */
GMI_SIMD bool gmt_all_finite(const float *values, size_t n)
{
    while (n > 0) {
        size_t block = gmi_min_size(n, 4096);
        uint32_t n_bad = 0;
        for (size_t i = 0; i < block; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            n_bad += (bits & 0x7f800000u) == 0x7f800000u;
        }
        if (n_bad > 0) return false;
        values += block;
        n -= block;
    }
    return true;
}
