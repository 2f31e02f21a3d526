/* Who may not take part in reproducible training is found out and told why. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmocka.h>

#include "tests/support/test.h"
#include "train/bits.h"

static void every_variant_gives_the_known_number(void **state)
{
    (void)state;
    static const char *const variants[] = { "avx512", "avx2", "plain" };
    int n_tried = 0;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if (!gmt_bits_use(variants[v])) continue;
        n_tried++;
        assert_string_equal(gmt_bits_variant(), variants[v]);
        assert_int_equal(gmt_bits_selftest(), GMT_BITS_SELFTEST);
        assert_int_equal(gmt_bits_check(NULL), GM_OK);
    }
    assert_true(n_tried >= 1);
    assert_false(gmt_bits_use("avx1024"));
}

#if defined(__x86_64__)
/* Returns what a start of a worker and the opening of kernels say with that mode register. */
static gm_status statuses_with_mode(unsigned mode, gm_error *error)
{
    unsigned before = _mm_getcsr();
    struct gmt_bits *bits;
    _mm_setcsr(before | mode);
    gm_status opened = gmt_bits_open(&bits, 2, NULL);
    gm_status checked = gmt_bits_check(error);
    _mm_setcsr(before);
    assert_int_equal(opened, checked);
    if (opened == GM_OK) gmt_bits_close(bits);
    return checked;
}
#endif

static void a_thread_that_flushes_denormals_is_refused(void **state)
{
    (void)state;
#if defined(__x86_64__)
    if (!test_follows_float_modes()) skip();
    for (int bit = 6; bit <= 15; bit += 9) { /* denormals-are-zero and flush-to-zero */
        gm_error error = { 0 };
        assert_int_equal(statuses_with_mode(1u << bit, &error), GM_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "flushes denormal numbers"));
    }
    gm_error error = { 0 };
    assert_int_equal(statuses_with_mode(0, &error), GM_OK);
#else
    skip();
#endif
}

static void a_thread_that_rounds_otherwise_is_refused(void **state)
{
    (void)state;
    if (!test_follows_float_modes()) skip();
    static const int modes[] = { FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        gm_error error = { 0 };
        assert_int_equal(fesetround(modes[m]), 0);
        gm_status status = gmt_bits_check(&error);
        fesetround(FE_TONEAREST);
        assert_int_equal(status, GM_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "round to nearest"));
    }
    assert_int_equal(gmt_bits_check_thread(NULL), GM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_gives_the_known_number),
        cmocka_unit_test(a_thread_that_flushes_denormals_is_refused),
        cmocka_unit_test(a_thread_that_rounds_otherwise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
