/* cmocka.h - as much of that test library as the tests of one thread use, for systems that have none of it: other
 * processors, other C libraries (tests/long/other_builds_test.sh). A check that fails ends the program. */
#ifndef PORTABLE_CMOCKA_H
#define PORTABLE_CMOCKA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);

struct CMUnitTest {
    const char        *name;
    CMUnitTestFunction run;
    int              (*tear_down)(void **state);
};

#define cmocka_unit_test(f) { #f, f, NULL }
#define cmocka_unit_test_teardown(f, after) { #f, f, after }
#define print_error(...) fprintf(stderr, __VA_ARGS__)
#define print_message(...) printf(__VA_ARGS__)
#define skip() return

static inline void _fail(const char *file, int line)
{
    fprintf(stderr, "%s:%d: failed\n", file, line);
    exit(1);
}

static inline int portable_run_all(const char *name, const struct CMUnitTest *tests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *state = NULL;
        tests[i].run(&state);
        if (tests[i].tear_down != NULL) tests[i].tear_down(&state);
    }
    printf("%s: %zu passed\n", name, n);
    return 0;
}
#define cmocka_run_group_tests_name(name, tests, before, after) portable_run_all(name, tests, sizeof(tests) / sizeof(tests)[0])
#define cmocka_run_group_tests(tests, before, after) portable_run_all(__FILE__, tests, sizeof(tests) / sizeof(tests)[0])

#define fail_msg(...) (fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n"), _fail(__FILE__, __LINE__))
#define assert_true(c) ((c) ? (void)0 : fail_msg("not so: %s", #c))
#define assert_false(c) assert_true(!(c))
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b) assert_true((uintmax_t)(a) == (uintmax_t)(b))
#define assert_int_not_equal(a, b) assert_true((uintmax_t)(a) != (uintmax_t)(b))
static inline int portable_is_in_range(uintmax_t a, uintmax_t low, uintmax_t high) { return a >= low && a <= high; }
#define assert_in_range(a, low, high) assert_true(portable_is_in_range((uintmax_t)(a), (uintmax_t)(low), (uintmax_t)(high)))
#define assert_string_equal(a, b) assert_true(strcmp((a), (b)) == 0)
#define assert_string_not_equal(a, b) assert_true(strcmp((a), (b)) != 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp((a), (b), (n)) == 0)

#endif
