/* The launcher as a library: what it returns, what it leaves behind in its caller, and the two
 * parts that know about processes (deaths, hunt). What a user sees is tested by
 * tests/cli/run_*_test.sh.
 *
 * The program is its own worker: with arguments it plays one of the roles at the end of the file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/deaths.h"
#include "launch/hunt.h"
#include "launch/launcher.h"

static char self[PATH_MAX]; /* this program, by its name: under valgrind /proc/self/exe is valgrind */

/* ---- support --------------------------------------------------------------------------------- */

/* Runs the job with both outputs in a file, and gives their text. */
static gm_status run(const struct launch_options *options, struct launch_result *result,
                     gm_error *error, char *said, size_t said_bytes)
{
    FILE *file = tmpfile();
    int saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    gm_status status = launch_run(options, result, error);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(saved_out);
    close(saved_err);
    rewind(file);
    said[fread(said, 1, said_bytes - 1, file)] = '\0';
    fclose(file);
    return status;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(folder) != NULL) n++;
    closedir(folder);
    return n;
}

static struct launch_options role(char **argv, int n_workers)
{
    return (struct launch_options){ .n_workers = n_workers,
                                    .argv = argv,
                                    .timeout_ms = 60000,
                                    .prefix_stdout = true,
                                    .prefix_stderr = true };
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static void a_good_job_is_reported_and_leaves_no_trace_in_the_caller(void **state)
{
    (void)state;
    char *argv[] = { self, (char[]){ "succeed" }, NULL }, said[4096];
    struct launch_options options = role(argv, 3);
    struct launch_result result;
    gm_error error;
    struct sigaction before, after;
    sigaction(SIGINT, NULL, &before);
    int n_descriptors = count_descriptors();

    assert_int_equal(run(&options, &result, &error, said, sizeof said), GM_OK);
    assert_int_equal(result.exit_status, 0);
    assert_int_equal(result.end, LAUNCH_END_DONE);
    assert_int_equal(result.first_failed, -1);
    assert_int_equal(result.n_ranks_joined, 0);
    assert_int_equal(result.n_ranks, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(result.ranks[r].was_started && result.ranks[r].has_ended &&
                    !result.ranks[r].was_ended_by_us);
        assert_true(result.ranks[r].elapsed_ns > 0);
    }
    launch_result_fini(&result);

    int is_subreaper = -1;
    sigaction(SIGINT, NULL, &after);
    prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper);
    assert_ptr_equal(before.sa_handler, after.sa_handler);
    assert_int_equal(is_subreaper, 0);
    assert_int_equal(count_descriptors(), n_descriptors);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void extra_environment_reaches_the_workers_and_wins(void **state)
{
    (void)state;
    char *argv[] = { self, (char[]){ "print" }, (char[]){ "EXTRA" }, (char[]){ "WORLD_SIZE" },
                     NULL },
         said[4096];
    const char *const extra[] = { "EXTRA=a=b", "WORLD_SIZE=77", NULL };
    struct launch_options options = role(argv, 1);
    struct launch_result result;
    gm_error error;
    options.extra_env = extra;
    assert_int_equal(run(&options, &result, &error, said, sizeof said), GM_OK);
    assert_non_null(strstr(said, "[0] a=b 77\n"));
    launch_result_fini(&result);
}

static void the_first_failure_is_in_the_result(void **state)
{
    (void)state;
    char *argv[] = { self, (char[]){ "rank-1-fails" }, NULL }, said[4096];
    struct launch_options options = role(argv, 3);
    struct launch_result result;
    gm_error error;
    assert_int_equal(run(&options, &result, &error, said, sizeof said), GM_OK);
    assert_int_equal(result.end, LAUNCH_END_FAILURE);
    assert_int_equal(result.first_failed, 1);
    assert_int_equal(result.exit_status, 9);
    assert_int_equal(result.ranks[1].exit_status, 9);
    assert_false(result.ranks[1].was_ended_by_us);
    assert_true(result.ranks[0].was_ended_by_us && result.ranks[2].was_ended_by_us);
    assert_int_equal(result.ranks[2].signal, SIGTERM);
    assert_non_null(strstr(said, "gradmesh:   | rank 1 gives up\n"));
    launch_result_fini(&result);
}

static void rank_0_can_serve_at_the_reserved_port(void **state)
{
    (void)state;
    char *argv[] = { self, (char[]){ "serve-at-master-port" }, NULL }, said[4096];
    struct launch_options options = role(argv, 2);
    struct launch_result result;
    gm_error error;
    assert_int_equal(run(&options, &result, &error, said, sizeof said), GM_OK);
    assert_int_equal(result.exit_status, 0);
    assert_non_null(strstr(said, "[1] hello\n"));
    launch_result_fini(&result);
}

static void a_program_that_is_not_there_is_an_error_with_127(void **state)
{
    (void)state;
    char *argv[] = { (char[]){ "/no/such/program" }, NULL }, said[4096];
    struct launch_options options = role(argv, 3);
    struct launch_result result;
    gm_error error;
    assert_int_equal(run(&options, &result, &error, said, sizeof said), GM_ERR_SYSTEM);
    assert_int_equal(result.exit_status, 127);
    assert_int_equal(result.end, LAUNCH_END_START);
    assert_int_equal(error.sys_errno, ENOENT);
    assert_string_equal(error.text, "cannot run /no/such/program: No such file or directory");
    launch_result_fini(&result);
}

static void children_from_before_the_job_are_left_alone(void **state)
{
    (void)state;
    pid_t older = fork();
    if (older == 0) {
        for (;;) pause();
    }
    char *argv[] = { self, (char[]){ "succeed" }, NULL }, said[4096];
    struct launch_options options = role(argv, 2);
    struct launch_result result;
    gm_error error;
    assert_int_equal(run(&options, &result, &error, said, sizeof said), GM_OK);
    assert_int_equal(result.exit_status, 0);
    assert_int_equal(waitpid(older, NULL, WNOHANG), 0); /* alive */
    kill(older, SIGKILL);
    assert_int_equal(waitpid(older, NULL, 0), older);
    launch_result_fini(&result);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static pid_t start_sleeper(void)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    for (;;) pause();
}

static void deaths_come_in_their_order_however_late_they_are_read(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int order[N] = { 3, 0, 5, 1, 4, 2 };
    struct launch_deaths deaths;
    pid_t pids[N], pid;
    int wait_status;
    assert_true(launch_deaths_init(&deaths, N));
    for (int i = 0; i < N; i++) {
        pids[i] = start_sleeper();
        launch_deaths_watch(&deaths, pids[i]);
    }
    assert_false(launch_deaths_next(&deaths, &pid, &wait_status));
    assert_false(launch_deaths_has_dying(&deaths));
    for (int i = 0; i < N; i++) {
        siginfo_t info;
        kill(pids[order[i]], SIGKILL);
        assert_int_equal(waitid(P_PID, (id_t)pids[order[i]], &info, WEXITED | WNOWAIT),
                         0); /* dead, not reaped */
    }
    assert_true(launch_deaths_has_dying(&deaths));
    if (deaths.epoll_fd < 0) skip();
    for (int i = 0; i < N; i++) {
        assert_true(launch_deaths_next(&deaths, &pid, &wait_status));
        assert_int_equal(pid, pids[order[i]]);
        assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
    }
    assert_false(launch_deaths_next(&deaths, &pid, &wait_status));
    launch_deaths_fini(&deaths);
}

static void deaths_of_others_are_told_too(void **state)
{
    (void)state;
    struct launch_deaths deaths;
    pid_t pid, watched, other;
    int wait_status, n_seen = 0;
    assert_true(launch_deaths_init(&deaths, 1));
    watched = start_sleeper();
    other = start_sleeper();
    launch_deaths_watch(&deaths, watched);
    kill(other, SIGKILL);
    kill(watched, SIGTERM);
    siginfo_t info;
    waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT);
    waitid(P_PID, (id_t)watched, &info, WEXITED | WNOWAIT);
    while (launch_deaths_next(&deaths, &pid, &wait_status)) {
        assert_int_equal(WTERMSIG(wait_status), pid == other ? SIGKILL : SIGTERM);
        n_seen++;
    }
    assert_int_equal(n_seen, 2);
    launch_deaths_fini(&deaths);
}

/* ---- hunt ------------------------------------------------------------------------------------ */

static bool is_alive(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == 0;
}

/* A process of its own session that has `entry` in its environment, or nothing. */
static pid_t start_named(const char *entry)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = { self, (char[]){ "sleep" }, NULL };
        char *environment[] = { (char *)(uintptr_t)entry, NULL };
        setsid();
        execve(self, argv, environment);
        _exit(1);
    }
    /* The pipe closes when exec has happened: from then on its environment is what we gave it. */
    char byte;
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void the_hunt_goes_by_the_job_id_and_by_nothing_else(void **state)
{
    (void)state;
    pid_t ours = start_named("GRADMESH_JOB_ID=0123456789abcdef");
    pid_t inner = start_named("GRADMESH_OUTER_JOBS=fff,0123456789abcdef");
    pid_t longer = start_named("GRADMESH_JOB_ID=0123456789abcdef0");
    pid_t other = start_named("XGRADMESH_JOB_ID=0123456789abcdef");
    struct launch_hunt hunt = { .job_id = "0123456789abcdef", .born_ticks = launch_birth_ticks() };
    assert_int_equal(launch_hunt(&hunt, 0), 2);
    assert_int_equal(launch_hunt(&hunt, SIGKILL), 2);
    assert_int_equal(waitpid(ours, NULL, 0), ours);
    assert_int_equal(waitpid(inner, NULL, 0), inner);
    assert_int_equal(launch_hunt(&hunt, SIGKILL), 0);
    assert_true(is_alive(longer) && is_alive(other));
    end(longer);
    end(other);
}

static void the_hunt_finds_offspring_but_spares_the_spared(void **state)
{
    (void)state;
    pid_t found = start_named(NULL), spared = start_named(NULL);
    struct launch_hunt hunt = { .job_id = "0123456789abcdef",
                                .ancestor = getpid(),
                                .spared = &spared,
                                .n_spared = 1,
                                .born_ticks = launch_birth_ticks() };
    assert_int_equal(launch_hunt(&hunt, SIGKILL), 1);
    assert_int_equal(waitpid(found, NULL, 0), found);
    assert_true(is_alive(spared));
    end(spared);
}

static void the_hunt_finds_process_groups(void **state)
{
    (void)state;
    pid_t pid = start_sleeper();
    setpgid(pid, pid);
    struct launch_hunt hunt = {
        .job_id = "0123456789abcdef", .groups = &pid, .n_groups = 1, .session = getsid(0)
    };
    assert_int_equal(launch_hunt(&hunt, SIGKILL), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- the roles of a worker ------------------------------------------------------------------- */

/* Rank 0 listens where MASTER_PORT says and greets; rank 1 connects and prints what it hears. */
static int serve_at_master_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT"))) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(getenv("RANK"), "0") == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 1) != 0) return 1;
        int peer = accept(fd, NULL, NULL);
        return write(peer, "hello", 5) == 5 ? 0 : 1;
    }
    int64_t deadline_ns = gmi_deadline_after_ms(20000);
    while (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) { /* until rank 0 listens */
        if (errno != ECONNREFUSED || gmi_deadline_passed(deadline_ns)) return 1;
        close(fd);
        usleep(1000);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    char text[8] = "";
    if (recv(fd, text, 5, MSG_WAITALL) != 5) return 1;
    puts(text);
    return 0;
}

static int play(int argc, char **argv)
{
    if (strcmp(argv[1], "succeed") == 0) return 0;
    if (strcmp(argv[1], "serve-at-master-port") == 0) return serve_at_master_port();
    if (strcmp(argv[1], "print") == 0) {
        for (int i = 2; i < argc; i++) printf("%s%c", getenv(argv[i]), i + 1 < argc ? ' ' : '\n');
        return 0;
    }
    if (strcmp(argv[1], "rank-1-fails") == 0 && strcmp(getenv("RANK"), "1") == 0) {
        fprintf(stderr, "rank 1 gives up\n");
        return 9;
    }
    for (;;) pause();
}

int main(int argc, char **argv)
{
    if (argc > 1) return play(argc, argv);
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return 1; /* self is zero behind it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_job_is_reported_and_leaves_no_trace_in_the_caller),
        cmocka_unit_test(extra_environment_reaches_the_workers_and_wins),
        cmocka_unit_test(the_first_failure_is_in_the_result),
        cmocka_unit_test(rank_0_can_serve_at_the_reserved_port),
        cmocka_unit_test(a_program_that_is_not_there_is_an_error_with_127),
        cmocka_unit_test(children_from_before_the_job_are_left_alone),
        cmocka_unit_test(deaths_come_in_their_order_however_late_they_are_read),
        cmocka_unit_test(deaths_of_others_are_told_too),
        cmocka_unit_test(the_hunt_goes_by_the_job_id_and_by_nothing_else),
        cmocka_unit_test(the_hunt_finds_offspring_but_spares_the_spared),
        cmocka_unit_test(the_hunt_finds_process_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
