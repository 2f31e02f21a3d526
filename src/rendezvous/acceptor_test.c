/* acceptor_test.c - many who belong here knock in one moment, and some go again. */
#include "rendezvous/acceptor.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"
#include "tests/support/test.h"

enum { N_CALLERS = 256, PATIENCE_MS = 30000, SLACK = 10000 };

struct gate {
    struct gmi_acceptor acceptor;
    bool                has_come[N_CALLERS];
    int                 n_come, n_lines;
};

static gm_status welcome(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    (void)user, (void)peer, (void)why, (void)why_bytes;
    return GM_OK;
}

static void admit(void *user, int fd, const struct gmi_handshake *finished)
{
    struct gate *g = user;
    assert_in_range(finished->peer.rank, 0, N_CALLERS - 1);
    assert_false(g->has_come[finished->peer.rank]);
    g->has_come[finished->peer.rank] = true;
    g->n_come++;
    gmi_socket_close(&fd);
}

static void count_line(void *user, gm_log_level level, const char *line)
{
    (void)level, (void)line;
    ((struct gate *)user)->n_lines++;
}

static struct gmi_hello hello_of(int rank, int target)
{
    return (struct gmi_hello){ .channel = GMI_CHANNEL_CONTROL, .rank = rank, .target = target, .world_size = N_CALLERS + 1,
                               .group = 0, .job_id = "j1" };
}

static void knock(struct gmi_handshake *h, const struct gmi_address *to, int rank)
{
    struct gmi_hello own = hello_of(rank, N_CALLERS);
    int              fd, sys_errno = 0;
    assert_int_not_equal(gmi_socket_connect_start(&fd, to, NULL, &sys_errno), GM_ERR_PEER_LOST);
    gmi_handshake_init(h, fd, true, &own, NULL, welcome, NULL, PATIENCE_MS);
}

static void a_whole_job_that_calls_in_one_moment_comes_in_and_nobody_is_pushed_out(void **state)
{
    struct gate           g = { .n_come = 0 };
    struct gmi_log        log = { .write = count_line, .user = &g, .level = GM_LOG_WARN };
    struct gmi_hello      own = hello_of(N_CALLERS, 0);
    struct gmi_handshake *callers = gmi_alloc(N_CALLERS, sizeof *callers);
    gm_status             status[N_CALLERS];
    struct gmi_address_list list;
    struct gmi_address      address;
    (void)state;
    assert_non_null(callers);
    assert_int_equal(gmi_address_resolve(&list, "127.0.0.1", 0, NULL), GM_OK);
    assert_int_equal(gmi_acceptor_init(&g.acceptor, &list.addresses[0], &own, NULL, welcome, admit, &g, &log, "gate", NULL), GM_OK);
    assert_int_equal(gmi_socket_own_address(g.acceptor.listener_fd, &address), GM_OK);
    for (int k = 0; k < N_CALLERS; k++) {
        knock(&callers[k], &address, k);
        status[k] = GM_AGAIN;
    }
    /* All are there, and none has said a word, before the first does. */
    for (int i = 0; i < SLACK && g.acceptor.n_pending < N_CALLERS; i++) gmi_acceptor_step(&g.acceptor);
    assert_int_equal(g.acceptor.n_pending, N_CALLERS);
    for (int i = 0, n_done = 0; i < SLACK && (n_done < N_CALLERS || g.n_come < N_CALLERS); i++) {
        gm_error error;
        gmi_error_clear(&error);
        n_done = 0;
        for (int k = 0; k < N_CALLERS; k++) {
            if (status[k] == GM_AGAIN) status[k] = gmi_handshake_progress(&callers[k], &error);
            if (status[k] == GM_OK) n_done++;
            assert_true(status[k] == GM_OK || status[k] == GM_AGAIN);
        }
        gmi_acceptor_step(&g.acceptor);
    }
    assert_int_equal(g.n_come, N_CALLERS);
    for (int k = 0; k < N_CALLERS; k++) {
        assert_int_equal(status[k], GM_OK);
        int fd = gmi_handshake_take_fd(&callers[k]);
        gmi_socket_close(&fd);
        gmi_handshake_fini(&callers[k]);
    }
    gmi_acceptor_fini(&g.acceptor);
    assert_int_equal(g.n_lines, 0);
    gmi_free(callers);
}

/* One caller that goes before it has said a word; how many warnings are there of it? */
static int warnings_of_a_cut_call(bool is_ending)
{
    struct gate             g = { .n_come = 0 };
    struct gmi_log          log = { .write = count_line, .user = &g, .level = GM_LOG_WARN };
    struct gmi_hello        own = hello_of(N_CALLERS, 0);
    struct gmi_handshake    caller;
    struct gmi_address_list list;
    struct gmi_address      address;
    assert_int_equal(gmi_address_resolve(&list, "127.0.0.1", 0, NULL), GM_OK);
    assert_int_equal(gmi_acceptor_init(&g.acceptor, &list.addresses[0], &own, NULL, welcome, admit, &g, &log, "gate", NULL), GM_OK);
    assert_int_equal(gmi_socket_own_address(g.acceptor.listener_fd, &address), GM_OK);
    g.acceptor.is_ending = is_ending;
    knock(&caller, &address, 0);
    for (int i = 0; i < SLACK && g.acceptor.n_pending == 0; i++) gmi_acceptor_step(&g.acceptor);
    assert_int_equal(g.acceptor.n_pending, 1);
    gmi_handshake_fini(&caller);
    for (int i = 0; i < SLACK && g.acceptor.n_pending > 0; i++) gmi_acceptor_step(&g.acceptor);
    assert_int_equal(g.acceptor.n_pending, 0);
    gmi_acceptor_fini(&g.acceptor);
    return g.n_lines;
}

static void a_call_that_is_cut_is_warned_of_unless_members_are_leaving(void **state)
{
    (void)state;
    assert_int_equal(warnings_of_a_cut_call(false), 1);
    assert_int_equal(warnings_of_a_cut_call(true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_job_that_calls_in_one_moment_comes_in_and_nobody_is_pushed_out),
        cmocka_unit_test(a_call_that_is_cut_is_warned_of_unless_members_are_leaving),
    };
    return cmocka_run_group_tests_name("acceptor", tests, NULL, NULL);
}
