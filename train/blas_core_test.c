/* Is it said when OpenBLAS computes as if on an older processor, and only then? */
#include "train/blas_core.h"

#include <stddef.h>

#include "tests/support/test.h"

static void an_old_core_on_a_new_processor_has_a_better_one(void **state)
{
    (void)state;
    assert_string_equal(gmt_blas_better_core("Prescott", true, true), "SkylakeX");
    assert_string_equal(gmt_blas_better_core("Prescott", true, false), "Haswell");
    assert_string_equal(gmt_blas_better_core("Sandybridge", true, false), "Haswell");
}

static void a_core_that_fits_is_left_alone(void **state)
{
    (void)state;
    assert_null(gmt_blas_better_core("Prescott", false, false));
    assert_null(gmt_blas_better_core("Haswell", true, false));
    assert_null(gmt_blas_better_core("Zen", true, true));
    assert_null(gmt_blas_better_core("SkylakeX", true, true));
    assert_null(gmt_blas_better_core("armv8", false, false));
}

static void this_process_knows_its_core(void **state)
{
    const char *core = NULL;
    (void)state;
    (void)gmt_blas_better_core_here(&core);
    assert_non_null(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_core_on_a_new_processor_has_a_better_one),
        cmocka_unit_test(a_core_that_fits_is_left_alone),
        cmocka_unit_test(this_process_knows_its_core),
    };
    return cmocka_run_group_tests_name("blas_core", tests, NULL, NULL);
}
