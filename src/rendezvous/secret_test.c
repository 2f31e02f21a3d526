/* The secret's file: who may read it, and what is in it. */
#include "rendezvous/secret.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/test.h"

static const char good[] = "0123456789abcdef";

/* A file with these bytes and this mode; its secret, or why there is none. */
static gm_status load(struct gmi_secret *secret, const void *bytes, size_t n_bytes, mode_t mode, gm_error *error)
{
    char path[] = "/tmp/gradmesh_secret_XXXXXX";
    int  fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, bytes, n_bytes) == (ssize_t)n_bytes && fchmod(fd, mode) == 0);
    close(fd);
    *secret = (struct gmi_secret){ 0 };
    gmi_error_clear(error);
    gm_status status = gmi_secret_load(secret, path, error);
    if (status != GM_OK) assert_contains(error->text, path);
    unlink(path);
    return status;
}

static void a_file_that_others_may_use_is_refused(void **state)
{
    (void)state;
    static const mode_t modes[] = { 0644, 0640, 0604, 0620, 0601, 0666, 0777 };
    struct gmi_secret   secret;
    gm_error            error;
    for (size_t i = 0; i < TEST_COUNT(modes); i++) {
        assert_status(load(&secret, good, strlen(good), modes[i], &error), GM_ERR_ARG);
        assert_contains(error.text, "may be used by others");
        assert_contains(error.text, "chmod 600");
        assert_false(secret.is_set);
    }
    assert_ok(load(&secret, good, strlen(good), 0600, &error));
    assert_ok(load(&secret, good, strlen(good), 0400, &error));
    assert_true(secret.is_set);
}

static void a_newline_at_the_end_is_no_part_of_it(void **state)
{
    (void)state;
    struct gmi_secret a, b, c;
    gm_error          error;
    assert_ok(load(&a, "0123456789abcdef", 16, 0600, &error));
    assert_ok(load(&b, "0123456789abcdef\r\n", 18, 0600, &error));
    assert_ok(load(&c, "0123456789abcdeF", 16, 0600, &error));
    assert_memory_equal(a.key, b.key, sizeof a.key);
    assert_memory_not_equal(a.key, c.key, sizeof a.key);
}

static void one_that_is_too_short_or_too_long_is_refused_with_the_numbers(void **state)
{
    (void)state;
    static char       bytes[5000];
    struct gmi_secret secret;
    gm_error          error;
    memset(bytes, 'x', sizeof bytes);
    assert_status(load(&secret, bytes, 0, 0600, &error), GM_ERR_ARG);
    assert_contains(error.text, "holds 0 bytes; it must be 16 to 4096");
    assert_status(load(&secret, bytes, 15, 0600, &error), GM_ERR_ARG);
    assert_status(load(&secret, bytes, 4097, 0600, &error), GM_ERR_ARG);
    assert_contains(error.text, "more than 4096");
    assert_ok(load(&secret, bytes, 4096, 0600, &error));
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    struct gmi_secret secret = { 0 };
    gm_error          error;
    char              path[] = "/tmp/gradmesh_secret_XXXXXX", pipe_path[64];
    gmi_error_clear(&error);
    assert_status(gmi_secret_load(&secret, "/no/such/file", &error), GM_ERR_SYSTEM);
    assert_contains(error.text, "/no/such/file");
    gmi_error_clear(&error);
    assert_non_null(mkdtemp(path));
    assert_true(gmi_secret_load(&secret, path, &error) != GM_OK);
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    gmi_error_clear(&error);
    assert_status(gmi_secret_load(&secret, pipe_path, &error), GM_ERR_ARG); /* and nobody waits for a writer */
    unlink(pipe_path);
    rmdir(path);
}

static void beyond_loopback_needs_a_secret_or_the_users_word(void **state)
{
    (void)state;
    struct gmi_secret  none = { 0 }, set = { .is_set = true }, insecure = { .lets_anybody_in = true };
    struct gmi_address inside, outside, v6;
    gm_error           error;
    assert_ok(gmi_address_parse_numeric(&inside, "127.0.1.1:5", NULL));
    assert_ok(gmi_address_parse_numeric(&v6, "[::1]:5", NULL));
    assert_ok(gmi_address_parse_numeric(&outside, "10.0.0.7:5", NULL));
    assert_ok(gmi_secret_allows(NULL, &inside, NULL));
    assert_ok(gmi_secret_allows(&none, &v6, NULL));
    assert_ok(gmi_secret_allows(&set, &outside, NULL));
    assert_ok(gmi_secret_allows(&insecure, &outside, NULL));
    gmi_error_clear(&error);
    assert_status(gmi_secret_allows(&none, &outside, &error), GM_ERR_ARG);
    assert_contains(error.text, "10.0.0.7:5");
    assert_contains(error.text, "GRADMESH_SECRET_FILE");
    assert_contains(error.text, "GRADMESH_INSECURE=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_others_may_use_is_refused),
        cmocka_unit_test(a_newline_at_the_end_is_no_part_of_it),
        cmocka_unit_test(one_that_is_too_short_or_too_long_is_refused_with_the_numbers),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(beyond_loopback_needs_a_secret_or_the_users_word),
    };
    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
