/* passing_test.c - descriptors go from one end of a connection to the other, or both ends learn why
 * not; and the connection is as good as before. Both ends are stepped by one thread. */
#include "rendezvous/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

enum { N_FDS = 3, NOTE = 4711, TIMEOUT_MS = 5000, STEPS = 20 };

struct job {
    int                ends[2]; /* of the connection */
    int                pipes[2], given[N_FDS];
    struct gmi_passing giver, taker;
    gm_status          giver_status, taker_status;
    bool               is_usable; /* to the taker */
    int                n_tried;
};

static bool try_fds(void *user, int *fds, int n_fds, uint32_t note, int *sys_errno)
{
    struct job *j = user;
    j->n_tried++;
    assert_int_equal(n_fds, N_FDS);
    assert_int_equal(note, NOTE);
    for (int i = 0; i < n_fds; i++)
        assert_int_equal(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    *sys_errno = ENOMEM;
    if (!j->is_usable) return false;
    assert_int_equal(write(fds[1], "x", 1), 1); /* into our pipe */
    close(fds[2]);
    fds[2] = -1; /* kept, and the others are closed by the passing */
    return true;
}

static void make_job(struct job *j, int64_t timeout_ms)
{
    *j = (struct job){ .is_usable = true, .giver_status = GM_AGAIN, .taker_status = GM_AGAIN };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, j->ends),
                     0);
    assert_int_equal(pipe2(j->pipes, O_NONBLOCK | O_CLOEXEC), 0);
    j->given[0] = j->pipes[0];
    j->given[1] = j->given[2] = j->pipes[1];
    gmi_passing_take(&j->taker, j->ends[1], N_FDS, try_fds, j, timeout_ms);
}

static void give(struct job *j)
{
    gmi_passing_give(&j->giver, j->ends[0], j->given, N_FDS, NOTE, 0);
}

static void step_giver(struct job *j)
{
    if (j->giver_status == GM_AGAIN) j->giver_status = gmi_passing_progress(&j->giver);
}

static void step_taker(struct job *j)
{
    if (j->taker_status == GM_AGAIN) j->taker_status = gmi_passing_progress(&j->taker);
}

static void step_both(struct job *j)
{
    for (int i = 0; i < STEPS; i++) {
        step_giver(j);
        step_taker(j);
    }
}

/* The connection has carried the passing and nothing else, and goes on. */
static void check_connection(struct job *j)
{
    char byte;
    assert_int_equal(j->giver.total_sent_bytes, j->taker.total_recv_bytes);
    assert_int_equal(j->taker.total_sent_bytes, j->giver.total_recv_bytes);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(recv(j->ends[i], &byte, 1, MSG_DONTWAIT), -1);
        assert_int_equal(write(j->ends[i], "y", 1), 1);
        assert_int_equal(read(j->ends[1 - i], &byte, 1), 1);
    }
}

static void free_job(struct job *j)
{
    gmi_passing_fini(&j->giver);
    gmi_passing_fini(&j->taker);
    for (int i = 0; i < 2; i++) {
        close(j->ends[i]);
        close(j->pipes[i]);
    }
}

static void check_trouble(struct job *j, enum gmi_passing_trouble trouble, int sys_errno,
                          bool is_of_giver)
{
    char why[160];
    assert_ok(j->giver_status);
    assert_ok(j->taker_status);
    assert_int_equal(j->giver.trouble, trouble);
    assert_int_equal(j->taker.trouble, trouble);
    assert_int_equal(j->giver.trouble_errno, sys_errno);
    assert_int_equal(j->taker.trouble_errno, sys_errno);
    assert_int_equal(j->giver.is_trouble_ours, is_of_giver);
    assert_int_equal(j->taker.is_trouble_ours, !is_of_giver);
    gmi_passing_why(&j->giver, why, sizeof why);
    if (sys_errno != 0) assert_contains(why, strerror(sys_errno));
    check_connection(j);
}

/* ---- it works -------------------------------------------------------------------------------- */

static void descriptors_arrive_and_both_know_it(void **state)
{
    (void)state;
    struct job j;
    char       byte;
    int        before = ranks_open_descriptors();
    make_job(&j, TIMEOUT_MS);
    give(&j);
    step_both(&j);
    check_trouble(&j, GMI_PASSING_FINE, 0, false);
    assert_int_equal(j.n_tried, 1);
    assert_int_equal(read(j.pipes[0], &byte, 1), 1);
    assert_int_equal(j.giver.total_sent_bytes, GMI_OFFER_BYTES);
    assert_int_equal(j.taker.total_sent_bytes, GMI_ANSWER_BYTES);
    free_job(&j);
    assert_int_equal(ranks_open_descriptors(), before);
}

static void the_offer_may_lie_there_before_the_taker_comes(void **state)
{
    (void)state;
    struct job j;
    make_job(&j, TIMEOUT_MS);
    give(&j);
    for (int i = 0; i < STEPS; i++) step_giver(&j);
    assert_status(j.giver_status, GM_AGAIN);
    step_both(&j);
    check_trouble(&j, GMI_PASSING_FINE, 0, false);
    free_job(&j);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int knock(const struct gmi_passing *giver)
{
    int fd, sys_errno = 0;
    assert_ok(gmi_local_connect(&fd, giver->name, &sys_errno));
    return fd;
}

static void strangers_get_nothing_and_hold_up_nobody(void **state)
{
    (void)state;
    struct job j;
    char       bytes[64] = "not the secret at all, but long enough";
    int        strangers[5];
    make_job(&j, TIMEOUT_MS);
    give(&j);
    step_giver(&j);
    for (int i = 0; i < 5; i++) { /* silent, too short, wrong, gone */
        strangers[i] = knock(&j.giver);
        if (i == 1) assert_int_equal(write(strangers[i], bytes, 3), 3);
        if (i == 2) assert_int_equal(write(strangers[i], bytes, 32), 32);
        if (i == 3) shutdown(strangers[i], SHUT_WR);
        step_giver(&j);
    }
    step_both(&j);
    check_trouble(&j, GMI_PASSING_FINE, 0, false);
    for (int i = 0; i < 5; i++) {
        int fds[N_FDS], sys_errno;
        assert_status(gmi_local_recv_fds(strangers[i], fds, N_FDS, &sys_errno), GM_ERR_PEER_LOST);
        close(strangers[i]);
    }
    free_job(&j);
}

static void another_user_gets_nothing_though_he_knows_the_secret(void **state)
{
    (void)state;
    if (geteuid() != 0) skip(); /* only root can be another user */
    struct job j;
    int        fds[N_FDS], sys_errno = 0, ends[2], wait_status;
    char       byte;
    make_job(&j, TIMEOUT_MS);
    give(&j);
    step_giver(&j);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd;
        alarm(10);
        if (setresuid(65534, 65534, 65534) != 0 ||
            gmi_local_connect(&fd, j.giver.name, &sys_errno) != GM_OK)
            _exit(1);
        if (gmi_local_is_same_user(fd)) _exit(2);
        if (write(fd, j.giver.secret, GMI_PASSING_SECRET_BYTES) != GMI_PASSING_SECRET_BYTES ||
            write(ends[1], "x", 1) != 1)
            _exit(3);
        struct gmi_poller poller;
        gmi_poller_init(&poller);
        gmi_poller_add(&poller, fd, GMI_READABLE);
        (void)gmi_poller_wait(&poller, gmi_deadline_after_ms(TIMEOUT_MS));
        _exit(gmi_local_recv_fds(fd, fds, N_FDS, &sys_errno) == GM_ERR_PEER_LOST ? 0 : 4);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    step_giver(&j);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
    step_both(&j);
    check_trouble(&j, GMI_PASSING_FINE, 0, false);
    free_job(&j);
    close(ends[0]);
    close(ends[1]);
}

/* ---- it does not work ------------------------------------------------------------------------ */

static void a_giver_without_anything_says_so(void **state)
{
    (void)state;
    struct job j;
    make_job(&j, TIMEOUT_MS);
    gmi_passing_give(&j.giver, j.ends[0], NULL, 0, NOTE, EPERM);
    step_both(&j);
    check_trouble(&j, GMI_PASSING_NOTHING_TO_GIVE, EPERM, true);
    free_job(&j);
}

static void nobody_under_the_name(void **state)
{
    (void)state;
    struct job j;
    make_job(&j, TIMEOUT_MS);
    give(&j);
    step_giver(&j);
    gmi_socket_close(&j.giver.listener_fd); /* as from another network namespace */
    step_both(&j);
    check_trouble(&j, GMI_PASSING_NOT_REACHED, ECONNREFUSED, false);
    free_job(&j);
}

static void a_taker_that_cannot_use_it(void **state)
{
    (void)state;
    struct job j;
    int        before = ranks_open_descriptors();
    make_job(&j, TIMEOUT_MS);
    j.is_usable = false;
    give(&j);
    step_both(&j);
    check_trouble(&j, GMI_PASSING_UNUSABLE, ENOMEM, false);
    free_job(&j);
    assert_int_equal(ranks_open_descriptors(), before);
}

static void a_giver_that_is_too_slow(void **state)
{
    (void)state;
    struct job j;
    make_job(&j, 20);
    give(&j);
    step_giver(&j);
    int64_t begin_ns = gmi_now_ns();
    while (j.taker.state != GMI_PASSING_OVER &&
           gmi_now_ns() - begin_ns < TIMEOUT_MS * GMI_NS_PER_MS) {
        struct gmi_poller poller;
        gmi_poller_init(&poller);
        step_taker(&j);
        gmi_passing_watch(&j.taker, &poller);
        if (j.taker.state == GMI_PASSING_RECEIVING)
            (void)gmi_poller_wait(&poller, gmi_passing_next_ns(&j.taker));
        gmi_poller_fini(&poller);
    }
    assert_true(gmi_now_ns() - begin_ns >= 19 * GMI_NS_PER_MS);
    step_both(&j);
    check_trouble(&j, GMI_PASSING_TOO_SLOW, 0, false);
    assert_int_equal(j.n_tried, 0);
    free_job(&j);
}

/* ---- no descriptors left --------------------------------------------------------------------- */

static void without_descriptors_both_learn_it(void **state)
{
    (void)state;
    if (getenv("TEST_VALGRIND") != NULL) skip(); /* it has descriptors among ours: how many are left is not known */
    /* The giver's listener, the taker's end, the giver's end; and when the giver has closed his two, the three. */
    for (int room = 0; room < 6; room++) {
        struct job j;
        char       why[160];
        make_job(&j, TIMEOUT_MS);
        struct rlimit before = ranks_leave_room_for(room);
        give(&j);
        step_both(&j);
        setrlimit(RLIMIT_NOFILE, &before);
        if (room >= 4) {
            check_trouble(&j, GMI_PASSING_FINE, 0, false);
        } else if (room == 1 || room == 2) { /* the giver cannot let the taker in */
            assert_true(j.giver_status == GM_OK && j.taker_status == GM_OK);
            assert_int_equal(j.giver.trouble, GMI_PASSING_NOT_SENT);
            assert_true(j.taker.trouble == GMI_PASSING_NOT_REACHED ||
                        j.taker.trouble == GMI_PASSING_NOT_SENT);
            assert_contains(gmi_passing_why(&j.giver, why, sizeof why), strerror(EMFILE));
            check_connection(&j);
        } else {
            check_trouble(&j, room == 0 ? GMI_PASSING_NO_SOCKET : GMI_PASSING_NOT_RECEIVED, EMFILE,
                          room == 0);
        }
        free_job(&j);
    }
}

/* ---- a connection that breaks, or carries something else ------------------------------------- */

static void a_lost_connection_is_lost_at_every_stage(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j;
        make_job(&j, TIMEOUT_MS);
        give(&j);
        if (stage >= 1) step_giver(&j);
        if (stage >= 2) step_taker(&j);
        if (stage >= 3) step_giver(&j);
        shutdown(j.ends[0], SHUT_RDWR);
        gmi_passing_fini(&j.giver);
        for (int i = 0; i < STEPS; i++) step_taker(&j);
        assert_status(j.taker_status, GM_ERR_PEER_LOST);
        free_job(&j);

        make_job(&j, TIMEOUT_MS);
        give(&j);
        if (stage >= 1) step_giver(&j);
        if (stage >= 2) step_taker(&j);
        shutdown(j.ends[1], SHUT_RDWR);
        gmi_passing_fini(&j.taker);
        for (int i = 0; i < STEPS; i++) step_giver(&j);
        assert_status(j.giver_status, GM_ERR_PEER_LOST);
        free_job(&j);
    }
}

static void garbage_is_a_protocol_error(void **state)
{
    (void)state;
    struct job j;
    char       garbage[GMI_OFFER_BYTES];
    memset(garbage, 0xee, sizeof garbage);
    make_job(&j, TIMEOUT_MS);
    give(&j);
    assert_int_equal(write(j.ends[0], garbage, sizeof garbage), sizeof garbage);
    step_taker(&j);
    assert_status(j.taker_status, GM_ERR_PROTOCOL);
    assert_int_equal(write(j.ends[1], garbage, GMI_ANSWER_BYTES), GMI_ANSWER_BYTES);
    step_giver(&j);
    assert_status(j.giver_status, GM_ERR_PROTOCOL);
    free_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_arrive_and_both_know_it),
        cmocka_unit_test(the_offer_may_lie_there_before_the_taker_comes),
        cmocka_unit_test(strangers_get_nothing_and_hold_up_nobody),
        cmocka_unit_test(another_user_gets_nothing_though_he_knows_the_secret),
        cmocka_unit_test(a_giver_without_anything_says_so),
        cmocka_unit_test(nobody_under_the_name),
        cmocka_unit_test(a_taker_that_cannot_use_it),
        cmocka_unit_test(a_giver_that_is_too_slow),
        cmocka_unit_test(without_descriptors_both_learn_it),
        cmocka_unit_test(a_lost_connection_is_lost_at_every_stage),
        cmocka_unit_test(garbage_is_a_protocol_error),
    };
    return cmocka_run_group_tests_name("passing descriptors", tests, NULL, NULL);
}
