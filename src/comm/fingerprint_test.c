#include "comm/fingerprint.h"

#include "tests/support/guard.h"
#include "tests/support/test.h"

/* Compares, with `theirs` in memory that ends at once. "" when they agree. */
static const char *difference(const char *own, const char *theirs)
{
    static char  text[320];
    struct guard exact = { 0 };
    size_t       n_bytes = strlen(theirs);
    guard_make(&exact, n_bytes);
    memcpy(exact.bytes, theirs, n_bytes);
    bool differs = gmi_fingerprint_differs(own, 0, (const char *)exact.bytes, n_bytes, 3, text, sizeof text);
    guard_fini(&exact);
    return differs ? text : "";
}

static void equal_settings_agree_in_any_order(void **state)
{
    (void)state;
    assert_string_equal(difference("", ""), "");
    assert_string_equal(difference("lr=0.1\n", "lr=0.1\n"), "");
    assert_string_equal(difference("lr=0.1\nbatch=64\nseed=7\n", "seed=7\nlr=0.1\nbatch=64\n"), "");
    assert_string_equal(difference("lr=0.1\nbatch=64", "batch=64\nlr=0.1\n"), ""); /* the last line's end is optional */
    assert_string_equal(difference("\n\nlr=0.1\n\n", "lr=0.1"), "");                /* empty lines say nothing */
    assert_string_equal(difference("path=a=b\n", "path=a=b\n"), "");
}

static void another_value_is_shown_with_both(void **state)
{
    (void)state;
    assert_string_equal(difference("lr=0.1\nbatch=64\n", "batch=32\nlr=0.1\n"),
                        "setting 'batch' differs: rank 0 has '64', rank 3 has '32'");
    assert_string_equal(difference("path=a=b\n", "path=a=c\n"), "setting 'path' differs: rank 0 has 'a=b', rank 3 has 'a=c'");
    assert_string_equal(difference("x=\n", "x=1\n"), "setting 'x' differs: rank 0 has '', rank 3 has '1'");
    assert_string_equal(difference("x=1\n", "x=10\n"), "setting 'x' differs: rank 0 has '1', rank 3 has '10'");
}

static void a_missing_key_is_shown_with_who_lacks_it(void **state)
{
    (void)state;
    assert_string_equal(difference("lr=0.1\nseed=7\n", "lr=0.1\n"),
                        "setting 'seed' differs: rank 0 has '7', rank 3 does not have it");
    assert_string_equal(difference("lr=0.1\n", "lr=0.1\nseed=7\n"),
                        "setting 'seed' differs: rank 3 has '7', rank 0 does not have it");
    assert_string_equal(difference("", "seed=7"), "setting 'seed' differs: rank 3 has '7', rank 0 does not have it");
    assert_string_equal(difference("seed=7", ""), "setting 'seed' differs: rank 0 has '7', rank 3 does not have it");
}

static void a_key_that_begins_like_another_is_another(void **state)
{
    (void)state;
    assert_contains(difference("lr=1\n", "lrx=1\n"), "'lr'");
    assert_contains(difference("l=1\n", "lr=1\n"), "'l'");
    assert_contains(difference("lr=1\n", "LR=1\n"), "'lr'");
}

static void a_key_may_be_there_more_than_once(void **state)
{
    (void)state;
    assert_string_equal(difference("layer=784\nlayer=256\nlayer=10\n", "layer=784\nlayer=256\nlayer=10\n"), "");
    assert_contains(difference("layer=784\nlayer=256\n", "layer=784\nlayer=128\n"), "rank 0 has '256'");
    assert_contains(difference("layer=784\n", "layer=784\nlayer=128\n"), "rank 3 has '128'");
}

static void long_settings_are_cut_in_the_sentence_only(void **state)
{
    (void)state;
    static char own[70000], theirs[70000];
    memset(own, 'k', sizeof own - 1);
    memset(theirs, 'k', sizeof theirs - 1);
    own[40000] = theirs[40000] = '=';
    assert_string_equal(difference(own, theirs), "");
    theirs[69998] = 'x'; /* the very last character of the value */
    const char *text = difference(own, theirs);
    assert_contains(text, "differs: rank 0 has 'kkk");
    assert_true(strlen(text) < 320);
}

static void many_settings(void **state)
{
    (void)state;
    static char own[65536], theirs[65536];
    size_t      a = 0, b = 0;
    for (int i = 0; i < 2000; i++) a += (size_t)snprintf(own + a, sizeof own - a, "key%d=%d\n", i, i * i);
    for (int i = 1999; i >= 0; i--) b += (size_t)snprintf(theirs + b, sizeof theirs - b, "key%d=%d\n", i, i * i);
    assert_string_equal(difference(own, theirs), "");
    theirs[b - 2] = '9'; /* key0=0 */
    assert_string_equal(difference(own, theirs), "setting 'key0' differs: rank 0 has '0', rank 3 has '9'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_settings_agree_in_any_order),
        cmocka_unit_test(another_value_is_shown_with_both),
        cmocka_unit_test(a_missing_key_is_shown_with_who_lacks_it),
        cmocka_unit_test(a_key_that_begins_like_another_is_another),
        cmocka_unit_test(a_key_may_be_there_more_than_once),
        cmocka_unit_test(long_settings_are_cut_in_the_sentence_only),
        cmocka_unit_test(many_settings),
    };
    return cmocka_run_group_tests_name("fingerprint", tests, NULL, NULL);
}
