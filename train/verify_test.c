/* Logs that gradmesh verify compares. The program itself: tests/cli/reproducible_test.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "train/verify.h"

static struct gmt_verdict verdict;
static gm_error           error;

static gm_status verify(const char *a, const char *b)
{
    char              paths[2][40] = { "/tmp/gradmesh_verify_XXXXXX", "/tmp/gradmesh_verify_XXXXXX" };
    const char *const texts[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        int fd = mkstemp(paths[i]);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, texts[i], strlen(texts[i])), (ssize_t)strlen(texts[i]));
        close(fd);
    }
    gmi_error_clear(&error);
    gm_status status = gmt_verify(paths[0], paths[1], &verdict, &error);
    for (int i = 0; i < 2; i++) unlink(paths[i]);
    return status;
}

static void the_first_step_that_differs_is_found_whatever_the_order(void **state)
{
    (void)state;
    assert_int_equal(verify("{\"event\":\"step\",\"step\":3,\"state_hash\":\"c\"}\n{\"event\":\"step\",\"step\":1,\"state_hash\":\"a\"}\n",
                            "{\"event\":\"step\",\"step\":1,\"state_hash\":\"a\"}\n{\"event\":\"end\",\"steps\":3,\"state_hash\":\"d\"}\n"),
                     GM_OK);
    assert_false(verdict.are_same);
    assert_int_equal(verdict.step, 3);
    assert_int_equal(verdict.n_compared, 2);
}

static void a_number_that_can_be_no_step_is_none(void **state)
{
    (void)state;
    static const char *const numbers[] = { "1e300", "-1", "1e17", "\"1\"" };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char log[100];
        snprintf(log, sizeof log, "{\"event\":\"step\",\"step\":%s,\"state_hash\":\"a\"}\n", numbers[i]);
        assert_int_equal(verify(log, log), GM_ERR_ARG);
        assert_non_null(strstr(error.text, "nothing to compare"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_that_differs_is_found_whatever_the_order),
        cmocka_unit_test(a_number_that_can_be_no_step_is_none),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
