#include "base/alloc.h"

#include "tests/support/test.h"

static void memory_is_zeroed_and_aligned_to_a_cache_line(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 63, 64, 65, 1000, 100000 };
    for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
        uint8_t *memory = gmi_alloc(sizes[i], 1);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % GMI_CACHE_LINE, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(memory[k], 0);
        memset(memory, 0xff, sizes[i]);
        gmi_free(memory);
    }
    gmi_free(NULL);
}

static void a_product_that_overflows_gives_no_memory(void **state)
{
    (void)state;
    assert_null(gmi_alloc(SIZE_MAX, 2));
    assert_null(gmi_alloc(SIZE_MAX / 8 + 1, 8));
    assert_null(gmi_alloc((size_t)1 << 32, (size_t)1 << 32));
    assert_null(gmi_alloc(SIZE_MAX, 1)); /* does not overflow by itself, but when it is rounded up */
    assert_null(gmi_alloc(SIZE_MAX - 10, 1));
}

static void a_text_is_copied_with_its_end(void **state)
{
    (void)state;
    char *copy = gmi_strdup("gradient");
    assert_string_equal(copy, "gradient");
    gmi_free(copy);
    copy = gmi_strdup("");
    assert_string_equal(copy, "");
    gmi_free(copy);
}

static void the_nth_allocation_fails_on_demand(void **state)
{
    (void)state;
    uint64_t before = gmi_alloc_calls();
    gmi_alloc_fail_at(2);
    void *first = gmi_alloc(1, 1), *second = gmi_alloc(1, 1), *third = gmi_alloc(1, 1);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_int_equal(gmi_alloc_calls(), before + 3);
    gmi_alloc_fail_at(1);
    gmi_alloc_fail_at(0);
    void *fourth = gmi_strdup("x");
    assert_non_null(fourth);
    gmi_free(first);
    gmi_free(third);
    gmi_free(fourth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned_to_a_cache_line),
        cmocka_unit_test(a_product_that_overflows_gives_no_memory),
        cmocka_unit_test(a_text_is_copied_with_its_end),
        cmocka_unit_test(the_nth_allocation_fails_on_demand),
    };
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
