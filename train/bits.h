/* bits.h - the operations of ops.h for reproducible training: what they give depends on their
 * inputs and on nothing else. The same bits on AVX-512, AVX2 and plain C, at every optimisation
 * level, with any number of threads, however a matrix is cut into parts.
 *
 * How: each output element is one chain of fused multiply-adds in the order of the index that is
 * summed over, k = 0 .. K-1, written as explicit fma; vectors, tiles and threads divide the outputs
 * only. A chain may be stored between two ranges of k and taken up again: that rounds nothing.
 * Every other operation is an IEEE 754 one in a fixed order, e^x and log are polynomials of our
 * own, and the build keeps the compiler from contracting or regrouping (-ffp-contract=off, no
 * -ffast-math). gmt_bits_check finds out at start whether all this holds where it runs.
 *
 * Not fixed are sign and payload of a NaN: where one machine computes a NaN every machine does.
 *
 * Matrices as in ops.h: x (n_rows, n_in), w (n_out, n_in), b (n_out), y (n_rows, n_out). */
#ifndef GMT_BITS_H
#define GMT_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

/* Working memory of a fixed size, and threads. One caller at a time. */
struct gmt_bits;

/* n_threads >= 1, the caller's own among them; each is checked by gmt_bits_check_thread.
 * GM_ERR_NOMEM, GM_ERR_SYSTEM, GM_ERR_UNSUPPORTED. */
GM_MUST_USE gm_status gmt_bits_open(struct gmt_bits **bits, int n_threads, gm_error *error);
/* NULL is fine. */
void gmt_bits_close(struct gmt_bits *bits);

/* y[r][o] = the chain from b[o] over x[r][i] w[o][i]; with has_relu negative outputs become 0 and a
 * NaN stays one. */
void gmt_bits_linear_forward(struct gmt_bits *bits, const float *x, const float *w, const float *b,
                             float *y, size_t n_rows, size_t n_in, size_t n_out, bool has_relu);

/* db[o] = dy[0][o] + dy[1][o] + ..., or db[o] + dy[0][o] + ... with is_continuing: a batch that
 * comes in parts gives the bits that it gives undivided. */
void gmt_bits_linear_backward_bias(const float *dy, float *db, size_t n_rows, size_t n_out,
                                   bool is_continuing);

/* Takes finished values of a gradient: elements first_elem .. first_elem + n_elems - 1 of dw as a
 * flat array. The values are the caller's memory, good during the call. Calls come one at a time,
 * whatever the number of threads, in any order, and cover each element once. */
typedef void (*gmt_bits_sink_fn)(void *user, size_t first_elem, const float *values,
                                 size_t n_elems);

/* Rows first_out .. first_out + n_part - 1 of dw, dw[o][i] = the chain from 0, or with
 * is_continuing from what is there, over dy[r][o] x[r][i]. */
void gmt_bits_linear_backward_weight(struct gmt_bits *bits, const float *x, const float *dy,
                                     float *dw, size_t n_rows, size_t n_in, size_t n_out,
                                     size_t first_out, size_t n_part, bool is_continuing);
/* The same values from 0, handed over while they are in the cache and written nowhere. first_elem
 * counts from dw[0][0], also with first_out > 0. */
void gmt_bits_linear_backward_weight_to(struct gmt_bits *bits, const float *x, const float *dy,
                                        size_t n_rows, size_t n_in, size_t n_out, size_t first_out,
                                        size_t n_part, gmt_bits_sink_fn sink, void *user);

/* dx[r][i] = the chain from 0 over dy[r][o] w[o][i]; with has_relu_below 0 where x is not above 0.
 */
void gmt_bits_linear_backward_input(struct gmt_bits *bits, const float *x, const float *w,
                                    const float *dy, float *dx, size_t n_rows, size_t n_in,
                                    size_t n_out, bool has_relu_below);

/* Softmax cross-entropy over n_classes >= 1: losses[r] = -log softmax(logits[r])[labels[r]],
 * is_correct[r] (NULL: nobody asks) 1 or 0 by whether the first largest logit is the label's,
 * dlogits = (softmax - onehot) * scale. dlogits may be logits. No sum over rows is made here:
 * whoever needs one makes it exactly. */
void gmt_bits_softmax_loss(const float *logits, const uint8_t *labels, float *dlogits,
                           size_t n_rows, size_t n_classes, float scale, float *losses,
                           uint8_t *is_correct);

/* values = e^values for values <= 0, to 1 unit in the last place, 0 below -87; NaN for NaN. */
void gmt_bits_exp_nonpositive(float *values, size_t n);
/* The natural logarithm of a finite value > 0 to 1e-15 relative; NaN for anything else. */
double gmt_bits_log(double value);

/* ---- is it so, here? ---- */

/* Whether the calling thread rounds to nearest and keeps denormals: each thread that computes must.
 * GM_ERR_UNSUPPORTED with a sentence if not. */
GM_MUST_USE gm_status gmt_bits_check_thread(gm_error *error);

/* A number (0: it could not be made) from what every operation here, and an optimizer's step, give
 * on fixed inputs: denormals, cancellation, products that overflow, lengths that no vector divides.
 * Two builds that give the same number compute the same bits; workers compare it in their
 * handshake. */
uint64_t gmt_bits_selftest(void);
/* What it is everywhere. */
#define GMT_BITS_SELFTEST UINT64_C(0x542a1dc177c5e520)

/* For the start of a worker: gmt_bits_check_thread, and gmt_bits_selftest() == GMT_BITS_SELFTEST.
 */
GM_MUST_USE gm_status gmt_bits_check(gm_error *error);

/* ---- variants ---- */

/* "avx512", "avx2" or "plain": the one in use, by default the first that the processor can run. */
const char *gmt_bits_variant(void);
/* For tests: use that one from now on. False, and nothing changes, where it does not exist or the
 * processor cannot run it. */
bool gmt_bits_use(const char *name);

#endif
