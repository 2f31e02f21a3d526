/* The layers and the loss of bits.h: what goes into the products, and the loops around them. Those
 * have no fused operation and no sum that a vector could divide, so that the compiler may make
 * vectors of them as it likes. */
#include <string.h>

#include "base/bytes.h"
#include "base/simd.h"
#include "train/bits.h"
#include "train/bits_product.h"
#include "train/bits_variant.h"
#include "train/softmax.h"

/* ---- linear layer ---------------------------------------------------------------------------- */

/* Outputs times rows and not the other way round: w is read where it is, and the rows, fewer as a
 * rule, are packed. */
void gmt_bits_linear_forward(struct gmt_bits *bits, const float *x, const float *w, const float *b,
                             float *y, size_t n_rows, size_t n_in, size_t n_out, bool has_relu)
{
    struct gmt_bits_product product = { .n_i = n_out,
                                        .n_j = n_rows,
                                        .n_k = n_in,
                                        .a = { w, n_in, false },
                                        .b = { x, n_in, false },
                                        .start = b,
                                        .c = y,
                                        .c_stride = n_out,
                                        .has_relu = has_relu };
    gmt_bits_multiply(bits, &product);
}

GMI_SIMD void gmt_bits_linear_backward_bias(const float *dy, float *db, size_t n_rows, size_t n_out,
                                            bool is_continuing)
{
    if (!is_continuing) memset(db, 0, n_out * sizeof *db);
    for (size_t r = 0; r < n_rows; r++, dy += n_out) GMI_INDEPENDENT
    for (size_t o = 0; o < n_out; o++) db[o] += dy[o];
}

static struct gmt_bits_product weight_product(const float *x, const float *dy, size_t n_rows,
                                              size_t n_in, size_t n_out, size_t first_out,
                                              size_t n_part)
{
    return (struct gmt_bits_product){ .n_i = n_part,
                                      .n_j = n_in,
                                      .n_k = n_rows,
                                      .a = { dy + first_out, n_out, true },
                                      .b = { x, n_in, true },
                                      .is_by_j = true };
}

void gmt_bits_linear_backward_weight(struct gmt_bits *bits, const float *x, const float *dy,
                                     float *dw, size_t n_rows, size_t n_in, size_t n_out,
                                     size_t first_out, size_t n_part, bool is_continuing)
{
    struct gmt_bits_product product = weight_product(x, dy, n_rows, n_in, n_out, first_out, n_part);
    product.c = dw + first_out * n_in;
    product.c_stride = n_in;
    product.is_continuing = is_continuing;
    gmt_bits_multiply(bits, &product);
}

void gmt_bits_linear_backward_weight_to(struct gmt_bits *bits, const float *x, const float *dy,
                                        size_t n_rows, size_t n_in, size_t n_out, size_t first_out,
                                        size_t n_part, gmt_bits_sink_fn sink, void *user)
{
    struct gmt_bits_product product = weight_product(x, dy, n_rows, n_in, n_out, first_out, n_part);
    product.sink = sink;
    product.sink_user = user;
    product.sink_first = first_out * n_in;
    gmt_bits_multiply(bits, &product);
}

GMI_SIMD static void mask_by_relu(float *restrict dx, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) dx[i] = x[i] <= 0 ? 0 : dx[i];
}

void gmt_bits_linear_backward_input(struct gmt_bits *bits, const float *x, const float *w,
                                    const float *dy, float *dx, size_t n_rows, size_t n_in,
                                    size_t n_out, bool has_relu_below)
{
    struct gmt_bits_product product = { .n_i = n_rows,
                                        .n_j = n_in,
                                        .n_k = n_out,
                                        .a = { dy, n_out, false },
                                        .b = { w, n_in, true },
                                        .c = dx,
                                        .c_stride = n_in,
                                        .is_by_j = true };
    gmt_bits_multiply(bits, &product);
    if (has_relu_below) mask_by_relu(dx, x, n_rows * n_in);
}

/* ---- softmax --------------------------------------------------------------------------------- */

void gmt_bits_exp_nonpositive(float *values, size_t n)
{
    gmt_bits_chosen()->exp_nonpositive(values, n);
}

double gmt_bits_log(double value)
{
    return gmt_bits_chosen()->log(value);
}

/* The loss of a row but for the logarithm of the sum: max - label logit. In float, since only one
 * float is asked for in the end, and it cannot overflow to less than it is. */
static void shift_row(const float *row, float *shifted, size_t n_classes, uint8_t label,
                      double *loss, uint8_t *is_correct)
{
    size_t largest = gmt_index_of_largest(row, n_classes);
    float max = row[largest];
    if (is_correct != NULL) *is_correct = largest == label;
    *loss = (double)max - row[label];
    for (size_t c = 0; c < n_classes; c++) shifted[c] = row[c] - max;
}

static float finish_row(float *row, size_t n_classes, uint8_t label, float scale, double loss)
{
    const struct gmt_bits_variant *variant = gmt_bits_chosen();
    float sum = 0;
    for (size_t c = 0; c < n_classes; c++) sum += row[c];
    float factor = scale / sum;
    for (size_t c = 0; c < n_classes; c++) row[c] *= factor;
    row[label] -= scale;
    return (float)(loss + variant->log(sum));
}

void gmt_bits_softmax_loss(const float *logits, const uint8_t *labels, float *dlogits,
                           size_t n_rows, size_t n_classes, float scale, float *losses,
                           uint8_t *is_correct)
{
    double parts[GMT_SOFTMAX_BLOCK_ELEMS];
    while (n_rows > 0) {
        size_t n = gmi_min_size(n_rows, gmi_max_size(GMT_SOFTMAX_BLOCK_ELEMS / n_classes, 1));
        for (size_t r = 0; r < n; r++)
            shift_row(logits + r * n_classes, dlogits + r * n_classes, n_classes, labels[r],
                      &parts[r], is_correct == NULL ? NULL : is_correct + r);
        gmt_bits_exp_nonpositive(dlogits, n * n_classes);
        for (size_t r = 0; r < n; r++)
            losses[r] = finish_row(dlogits + r * n_classes, n_classes, labels[r], scale, parts[r]);
        logits += n * n_classes;
        dlogits += n * n_classes;
        labels += n;
        losses += n;
        if (is_correct != NULL) is_correct += n;
        n_rows -= n;
    }
}
