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

#include "gradmesh.h"

#define TEST_COUNT(array) (sizeof(array) / sizeof(array)[0])

/* `make test-long` asks for more seeds and more sizes. */
static inline bool test_is_long(void) { return getenv("GRADMESH_TEST_LONG") != NULL; }

/* Under the thread sanitizer the tests of one thread, which have nothing to show there, look at fewer ranks. */
#ifdef __SANITIZE_THREAD__
enum { TEST_MAX_RANKS = 3 };
#else
enum { TEST_MAX_RANKS = 9 };
#endif

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
