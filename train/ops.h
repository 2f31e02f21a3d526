/* ops.h - what a network is made of, forward and backward beside each other.
 *
 * Matrices are row-major. x (n_rows, n_in) inputs of a layer, w (n_out, n_in), b (n_out), y
 * (n_rows, n_out) its outputs; dx, dw, db, dy the gradients of the loss by them. Sizes of 0 are
 * fine.
 *
 * The layer operations exist three times: gmt_ (ops_blas.c: OpenBLAS, vectorised loops), gmt_naive_
 * and gmt_naive_f64_ (ops_naive.c: nested loops on float and on double), which are the oracle for
 * tests and never used in training. */
#ifndef GMT_OPS_H
#define GMT_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many threads OpenBLAS may use in this process; at least 1. */
void gmt_set_blas_threads(int n_threads);

/* y = x w^T + b, and with has_relu negative outputs become 0. A NaN stays one: it must be seen
 * later. */
void gmt_linear_forward(const float *x, const float *w, const float *b, float *y, size_t n_rows,
                        size_t n_in, size_t n_out, bool has_relu);
/* The backward pass of a layer in three parts, so that what one of them has completed can be sent
 * while the next is computed. With is_accumulating db and dw are added to. */

/* db = column sums of dy. */
void gmt_linear_backward_bias(const float *dy, float *db, size_t n_rows, size_t n_out,
                              bool is_accumulating);
/* Rows first_out .. first_out + n_part - 1 of dw = dy^T x. The last bits may depend on how dw is
 * cut into parts: OpenBLAS has other code for other shapes. */
void gmt_linear_backward_weight(const float *x, const float *dy, float *dw, size_t n_rows,
                                size_t n_in, size_t n_out, size_t first_out, size_t n_part,
                                bool is_accumulating);
/* dx = dy w, with 0 where x is 0 because a ReLU made it so (has_relu_below: x is a ReLU's
 * output). */
void gmt_linear_backward_input(const float *x, const float *w, const float *dy, float *dx,
                               size_t n_rows, size_t n_in, size_t n_out, bool has_relu_below);

/* Softmax cross-entropy over n_classes >= 1: *loss_sum += sum over rows of -log
 * softmax(logits)[label], *n_correct += rows whose first largest logit is the label's, and dlogits
 * = (softmax - onehot) * scale. dlogits may be logits (in place). The row's maximum is subtracted
 * before anything is exponentiated, so finite logits give a finite loss and gradient however large
 * they are. A NaN or +infinity in a row makes its loss and gradient NaN. */
void gmt_softmax_loss(const float *logits, const uint8_t *labels, float *dlogits, size_t n_rows,
                      size_t n_classes, float scale, double *loss_sum, size_t *n_correct);
/* probabilities = softmax(logits), also in place. */
void gmt_softmax(const float *logits, float *probabilities, size_t n_rows, size_t n_classes);

/* Whether all n values are finite. */
bool gmt_all_finite(const float *values, size_t n);

/* values = e^values for values <= 0, to 2 units in the last place, 0 below -87; NaN for NaN. Our
 * own and not the C library's: it vectorises, and gives the same bits on every machine. */
void gmt_exp_nonpositive(float *values, size_t n);

/* The oracle: the whole backward pass of a layer at once. dlogits and dx may be NULL here. */
void gmt_naive_linear_forward(const float *x, const float *w, const float *b, float *y,
                              size_t n_rows, size_t n_in, size_t n_out, bool has_relu);
void gmt_naive_linear_backward(const float *x, const float *w, const float *dy, float *dw,
                               float *db, float *dx, size_t n_rows, size_t n_in, size_t n_out,
                               bool is_accumulating, bool has_relu_below);
void gmt_naive_f64_linear_forward(const double *x, const double *w, const double *b, double *y,
                                  size_t n_rows, size_t n_in, size_t n_out, bool has_relu);
void gmt_naive_f64_linear_backward(const double *x, const double *w, const double *dy, double *dw,
                                   double *db, double *dx, size_t n_rows, size_t n_in, size_t n_out,
                                   bool is_accumulating, bool has_relu_below);
void gmt_naive_f64_softmax_loss(const double *logits, const uint8_t *labels, double *dlogits,
                                size_t n_rows, size_t n_classes, double scale, double *loss_sum,
                                size_t *n_correct);

#endif
