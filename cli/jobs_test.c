/* What `gradmesh status` makes of what ranks answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/jobs.h"

static void take(struct cli_jobs *jobs, const char *answer)
{
    char text[1024];
    assert_true(strlen(answer) < sizeof text);
    strcpy(text, answer);
    cli_jobs_take(jobs, text);
}

static void the_end_of_a_chain_of_waits_holds_up_the_others(void **state)
{
    (void)state;
    struct cli_jobs jobs = { 0 };
    take(&jobs, "job j\ngroup world\nself 0 of 3 middle 0 ready 1\n"
                "rank 0 pid 7 doing 2 entered 5 done 4 for_ms 900 peer 1 silent_ms 0 left 0 address -\ncall all_reduce #5\nsays it waits\n"
                "rank 2 pid 9 doing 1 entered 4 done 3 for_ms 9 peer -1 silent_ms 5 left 0 address -\n");
    take(&jobs, "job j\ngroup world\nself 1 of 3 middle 0 ready 1\n"
                "rank 1 pid 8 doing 2 entered 5 done 4 for_ms 800 peer 2 silent_ms 0 left 0 address -\n");
    cli_jobs_judge(&jobs);
    assert_int_equal(jobs.n_jobs, 1);
    assert_int_equal(jobs.jobs[0].straggler, 2);
    assert_string_equal(jobs.jobs[0].ranks[0].call, "all_reduce #5");
    assert_true(jobs.jobs[0].ranks[1].is_own_word && !jobs.jobs[0].ranks[2].is_own_word);
    cli_jobs_fini(&jobs);
}

static void nothing_that_moves_a_cursor_reaches_the_terminal(void **state)
{
    (void)state;
    struct cli_jobs       jobs = { 0 };
    struct cli_job_socket socket;
    assert_true(cli_job_socket_read(&socket, "0: 2 0 00010000 1 1 42 @gradmesh-job-999999999-0-0000002a-\033[2Jx\n"));
    cli_jobs_take_silence(&jobs, &socket);
    take(&jobs, "job a\033]0;b\ngroup g\nself 0 of 1 middle 0 ready 0\nfailure rank 1\tis gone\r\n");
    assert_int_equal(jobs.n_jobs, 2);
    assert_string_equal(jobs.jobs[0].id, "?[2Jx");
    assert_string_equal(jobs.jobs[1].id, "a?]0;b");
    assert_string_equal(jobs.jobs[1].failure, "rank 1?is gone?");
    cli_jobs_fini(&jobs);
}

static void an_answer_is_about_one_communicator(void **state)
{
    (void)state;
    struct cli_jobs jobs = { 0 };
    take(&jobs, "job j\ngroup g\nself 0 of 2 middle 0 ready 1\nself 0 of 65536 middle 0 ready 1\nself 0 of 65535 middle 0 ready 1\n");
    assert_int_equal(jobs.n_jobs, 1);
    assert_int_equal(jobs.jobs[0].n_ranks, 2);
    cli_jobs_fini(&jobs);
}

static void only_sockets_of_ranks_that_listen_are_asked(void **state)
{
    (void)state;
    static const char *const others[] = {
        "0: 2 0 00000000 1 1 42 @gradmesh-job-17-1-0000002a-j\n", "0: 2 0 00010000 1 1 42 /run/gradmesh-job-17-1-0000002a-j\n",
        "0: 2 0 00010000 1 1 42 @gradmesh-job-17-70000-0000002a-j\n", "0: 2 0 00010000 1 1 42 @gradmesh-job--4-0-0000002a-j\n",
        "0: 2 0 00010000 1 1 42 @gradmesh-job-17-1\n",
    };
    struct cli_job_socket socket;
    assert_true(cli_job_socket_read(&socket, "0: 2 0 00010000 1 1 42 @gradmesh-job-17-1-0000002a-a-b\n"));
    assert_int_equal(socket.pid, 17);
    assert_int_equal(socket.rank, 1);
    assert_string_equal(socket.job_id, "a-b");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) assert_false(cli_job_socket_read(&socket, others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_chain_of_waits_holds_up_the_others),
        cmocka_unit_test(nothing_that_moves_a_cursor_reaches_the_terminal),
        cmocka_unit_test(an_answer_is_about_one_communicator),
        cmocka_unit_test(only_sockets_of_ranks_that_listen_are_asked),
    };
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
