#include "base/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int of_a_child(const uint32_t *mark)
{
    int   status = 0;
    pid_t child = fork();
    if (child == 0) _exit((int)*mark);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_mark_is_gone_in_a_forked_child_and_stays_with_its_maker(void **state)
{
    (void)state;
    const uint32_t *mark = gmi_process_mark();
    if (mark == NULL) skip();
    assert_int_equal(*mark, 1);
    assert_int_equal(of_a_child(mark), 0);
    assert_int_equal(*mark, 1);
    gmi_process_unmark(mark);
}

static void no_mark_is_nothing_to_give_back(void **state)
{
    (void)state;
    gmi_process_unmark(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_is_gone_in_a_forked_child_and_stays_with_its_maker),
        cmocka_unit_test(no_mark_is_nothing_to_give_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
