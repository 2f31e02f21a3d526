/* The reproducible exponential, logarithm and loss: how accurate, and the same in every variant. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/bits.h"
#include "train/ops.h"

static const char *const variants[] = { "avx512", "avx2", "plain" };
#define N_VARIANTS (sizeof variants / sizeof *variants)

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Bit for bit, any NaN like any other. */
static bool is_same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* In units of the last place of the float next to the exact value. */
static double error_of_exp(float x, float value)
{
    double exact = exp((double)x);
    float rounded = (float)exact;
    return fabs(value - exact) / (nextafterf(rounded, INFINITY) - (double)rounded);
}

static void exp_is_right_to_a_unit_in_the_last_place(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N], values[N];
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        double worst = 0;
        /* every so many floats from -0 to beyond -87 */
        for (uint32_t bits = 0x80000000; bits < 0xc2ae0000;) {
            for (size_t i = 0; i < N; i++, bits += 1499) x[i] = from_bits(bits);
            memcpy(values, x, sizeof x);
            gmt_bits_exp_nonpositive(values, N);
            for (size_t i = 0; i < N; i++) {
                if (x[i] < -87) {
                    assert_true(values[i] == 0);
                    continue;
                }
                double error = error_of_exp(x[i], values[i]);
                if (error > worst) worst = error;
            }
        }
        if (!(worst <= 1)) fail_msg("%s: wrong by %g units", variants[v], worst);
    }
}

static void exp_and_log_know_their_limits(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        float values[] = { 0.0f, -0.0f, -INFINITY, NAN, -88, -1e38f, -0x1p-149f };
        gmt_bits_exp_nonpositive(values, sizeof values / sizeof *values);
        assert_true(values[0] == 1 && values[1] == 1 && values[2] == 0 && isnan(values[3]));
        assert_true(values[4] == 0 && values[5] == 0 && values[6] == 1);
        static const double outside[] = { 0, -1, INFINITY, NAN, 0x1p-1074 };
        for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
            assert_true(isnan(gmt_bits_log(outside[i])));
        assert_true(gmt_bits_log(1) == 0);
    }
}

static void log_is_right_to_1e_15(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        for (uint64_t i = 0; i < 20000; i++) {
            double x = ldexp(0.5 + gmi_rng_unit(3, i), i % 2 == 0 ? 0 : (int)(i % 2000) - 1000);
            long double exact = logl((long double)x);
            double value = gmt_bits_log(x);
            if (!(fabsl(value - exact) <= 1e-15L * fabsl(exact)))
                fail_msg("%s: log(%a) is %a, expected %La", variants[v], x, value, exact);
        }
    }
}

enum { N_ROWS = 300, N_CLASSES = 10 };

static void the_loss_agrees_with_the_naive_one_and_in_every_variant(void **state)
{
    (void)state;
    static float logits[N_ROWS * N_CLASSES], dlogits[N_ROWS * N_CLASSES];
    static float first_losses[N_ROWS], first_dlogits[N_ROWS * N_CLASSES];
    static double logits64[N_ROWS * N_CLASSES], dlogits64[N_ROWS * N_CLASSES];
    float losses[N_ROWS];
    uint8_t labels[N_ROWS], is_correct[N_ROWS];
    for (size_t i = 0; i < N_ROWS * N_CLASSES; i++)
        logits64[i] = logits[i] = (float)(40 * gmi_rng_unit(1, i) - 20);
    for (uint64_t r = 0; r < N_ROWS; r++) labels[r] = (uint8_t)gmi_rng_below(2, r, N_CLASSES);
    bool is_first = true;
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        gmt_bits_softmax_loss(logits, labels, dlogits, N_ROWS, N_CLASSES, 0.25f, losses,
                              is_correct);
        if (is_first) {
            memcpy(first_losses, losses, sizeof losses);
            memcpy(first_dlogits, dlogits, sizeof dlogits);
            is_first = false;
        }
        assert_memory_equal(losses, first_losses, sizeof losses);
        assert_memory_equal(dlogits, first_dlogits, sizeof dlogits);
        for (size_t r = 0; r < N_ROWS; r++) {
            double loss = 0;
            size_t n_correct = 0;
            gmt_naive_f64_softmax_loss(logits64 + r * N_CLASSES, labels + r,
                                       dlogits64 + r * N_CLASSES, 1, N_CLASSES, 0.25, &loss,
                                       &n_correct);
            assert_true(fabs(losses[r] - loss) <= 1e-6 * (1 + loss));
            assert_int_equal(is_correct[r], n_correct);
        }
        for (size_t i = 0; i < N_ROWS * N_CLASSES; i++)
            assert_true(fabs(dlogits[i] - dlogits64[i]) <= 1e-6);
    }
}

static void the_loss_of_a_row_is_its_own(void **state)
{
    (void)state;
    float logits[2 * 3] = { 1e30f, -1e30f, 0, NAN, 1, 2 }, dlogits[6], losses[2], alone;
    uint8_t labels[2] = { 1, 0 };
    for (size_t v = 0; v < N_VARIANTS; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        gmt_bits_softmax_loss(logits, labels, dlogits, 2, 3, 1, losses, NULL);
        assert_true(losses[0] == 2e30f && dlogits[0] == 1 && dlogits[1] == -1 && dlogits[2] == 0);
        assert_true(isnan(losses[1]) && isnan(dlogits[3]));
        for (size_t r = 0; r < 2; r++) { /* also in place */
            float row[3];
            memcpy(row, logits + 3 * r, sizeof row);
            gmt_bits_softmax_loss(row, labels + r, row, 1, 3, 1, &alone, NULL);
            assert_true(is_same(alone, losses[r]));
            for (size_t c = 0; c < 3; c++) assert_true(is_same(row[c], dlogits[3 * r + c]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_right_to_a_unit_in_the_last_place),
        cmocka_unit_test(exp_and_log_know_their_limits),
        cmocka_unit_test(log_is_right_to_1e_15),
        cmocka_unit_test(the_loss_agrees_with_the_naive_one_and_in_every_variant),
        cmocka_unit_test(the_loss_of_a_row_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
