/* test.h - what every test file includes: cmocka with what it needs, and checks of our own kinds. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "gradmesh.h"

#define TEST_COUNT(array) (sizeof(array) / sizeof(array)[0])

/* `make test-long` asks for more seeds and more sizes. */
static inline bool test_is_long(void) { return getenv("GRADMESH_TEST_LONG") != NULL; }

/* Under valgrind a matrix of many thousand cases that differ little is a sample, one in 16 by its key. */
static inline bool test_takes(uint64_t key)
{
    static int is_sample = -1;
    if (is_sample < 0) is_sample = getenv("TEST_VALGRIND") != NULL;
    return !is_sample || gmi_rng_u64(17, key) % 16 == 0;
}

/* Under the thread sanitizer the tests of one thread, which have nothing to show there, look at fewer ranks. */
#ifdef __SANITIZE_THREAD__
enum { TEST_MAX_RANKS = 3 };
#else
enum { TEST_MAX_RANKS = 9 };
#endif

/* Does this processor's mode of floating point do what it says? Valgrind's never rounds otherwise, nor flushes subnormals. */
static inline bool test_follows_float_modes(void)
{
#if defined(__x86_64__)
    volatile float x = 1e-38f; /* a tenth of it is subnormal */
    unsigned       before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8000);
    x *= 0.1f;
    __builtin_ia32_ldmxcsr(before);
    return x == 0;
#else
    return true;
#endif
}

static inline void test_assert_status(gm_status have, gm_status want, const char *what, const char *file, int line)
{
    if (have == want) return;
    print_error("%s is %s, wanted %s\n", what, gm_status_name(have), gm_status_name(want));
    _fail(file, line);
}
#define assert_status(have, want) test_assert_status((have), (want), #have, __FILE__, __LINE__)
#define assert_ok(have) assert_status((have), GM_OK)

static inline void test_assert_contains(const char *text, const char *part, const char *file, int line)
{
    if (text != NULL && strstr(text, part) != NULL) return;
    print_error("'%s' does not contain '%s'\n", text ? text : "(NULL)", part);
    _fail(file, line);
}
#define assert_contains(text, part) test_assert_contains((text), (part), __FILE__, __LINE__)

#endif
