/* The operations of ops.h as their definitions say, one loop per index: the oracle for the fast
 * versions and, in double precision, for gradients. Not for training. The float versions add up in
 * double and round once. */
#include <math.h>

#include "train/ops.h"

/* ---- float ----------------------------------------------------------------------------------- */

void gmt_naive_linear_forward(const float *x, const float *w, const float *b, float *y,
                              size_t n_rows, size_t n_in, size_t n_out, bool has_relu)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_out; o++) {
            double sum = b[o];
            for (size_t i = 0; i < n_in; i++) sum += (double)x[r * n_in + i] * w[o * n_in + i];
            y[r * n_out + o] = has_relu && sum < 0 ? 0 : (float)sum;
        }
}

void gmt_naive_linear_backward(const float *x, const float *w, const float *dy, float *dw,
                               float *db, float *dx, size_t n_rows, size_t n_in, size_t n_out,
                               bool is_accumulating, bool has_relu_below)
{
    for (size_t o = 0; o < n_out; o++) {
        double sum = is_accumulating ? db[o] : 0;
        for (size_t r = 0; r < n_rows; r++) sum += dy[r * n_out + o];
        db[o] = (float)sum;
        for (size_t i = 0; i < n_in; i++) {
            sum = is_accumulating ? dw[o * n_in + i] : 0;
            for (size_t r = 0; r < n_rows; r++)
                sum += (double)dy[r * n_out + o] * x[r * n_in + i];
            dw[o * n_in + i] = (float)sum;
        }
    }
    for (size_t r = 0; dx != NULL && r < n_rows; r++)
        for (size_t i = 0; i < n_in; i++) {
            double sum = 0;
            for (size_t o = 0; o < n_out; o++) sum += (double)dy[r * n_out + o] * w[o * n_in + i];
            dx[r * n_in + i] = has_relu_below && x[r * n_in + i] <= 0 ? 0 : (float)sum;
        }
}

/* ---- double ---------------------------------------------------------------------------------- */

void gmt_naive_f64_linear_forward(const double *x, const double *w, const double *b, double *y,
                                  size_t n_rows, size_t n_in, size_t n_out, bool has_relu)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_out; o++) {
            double sum = b[o];
            for (size_t i = 0; i < n_in; i++) sum += x[r * n_in + i] * w[o * n_in + i];
            y[r * n_out + o] = has_relu && sum < 0 ? 0 : sum;
        }
}

void gmt_naive_f64_linear_backward(const double *x, const double *w, const double *dy, double *dw,
                                   double *db, double *dx, size_t n_rows, size_t n_in, size_t n_out,
                                   bool is_accumulating, bool has_relu_below)
{
    for (size_t o = 0; o < n_out; o++) {
        double sum = is_accumulating ? db[o] : 0;
        for (size_t r = 0; r < n_rows; r++) sum += dy[r * n_out + o];
        db[o] = sum;
        for (size_t i = 0; i < n_in; i++) {
            sum = is_accumulating ? dw[o * n_in + i] : 0;
            for (size_t r = 0; r < n_rows; r++) sum += dy[r * n_out + o] * x[r * n_in + i];
            dw[o * n_in + i] = sum;
        }
    }
    for (size_t r = 0; dx != NULL && r < n_rows; r++)
        for (size_t i = 0; i < n_in; i++) {
            double sum = 0;
            for (size_t o = 0; o < n_out; o++) sum += dy[r * n_out + o] * w[o * n_in + i];
            dx[r * n_in + i] = has_relu_below && x[r * n_in + i] <= 0 ? 0 : sum;
        }
}

static size_t index_of_largest(const double *values, size_t n)
{
    size_t largest = 0;
    for (size_t i = 1; i < n; i++)
        if (values[i] > values[largest]) largest = i;
    return largest;
}

void gmt_naive_f64_softmax_loss(const double *logits, const uint8_t *labels, double *dlogits,
                                size_t n_rows, size_t n_classes, double scale, double *loss_sum,
                                size_t *n_correct)
{
    for (size_t r = 0; r < n_rows; r++) {
        const double *row = logits + r * n_classes;
        double *drow = dlogits == NULL ? NULL : dlogits + r * n_classes;
        size_t largest = index_of_largest(row, n_classes);
        double max = row[largest], label_logit = row[labels[r]], sum = 0;
        for (size_t c = 0; c < n_classes; c++) sum += exp(row[c] - max);
        *loss_sum += log(sum) - (label_logit - max);
        *n_correct += largest == labels[r];
        for (size_t c = 0; drow != NULL && c < n_classes; c++)
            drow[c] = scale * (exp(row[c] - max) / sum - (c == labels[r]));
    }
}
