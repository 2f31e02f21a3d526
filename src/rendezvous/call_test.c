#include "rendezvous/call.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/socket.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 20000 };

/* ---- an answerer that is stepped by the test ------------------------------------------------------ */

struct answerer {
    struct gmi_address  bound;
    int                 listener, n_calls;
    struct gmi_handshake h;
    bool                is_shaking;
    gm_status           verdicts[8]; /* of the first, second, ... call; then GM_OK */
};

static gm_status judge(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    struct answerer *a = user;
    gm_status        verdict = a->n_calls < 8 ? a->verdicts[a->n_calls] : GM_OK;
    (void)peer;
    a->n_calls++;
    snprintf(why, why_bytes, "says the answerer");
    return verdict;
}

static void open_answerer(struct answerer *a)
{
    struct gmi_address_list list;
    *a = (struct answerer){ .listener = -1 };
    assert_ok(gmi_address_resolve(&list, "127.0.0.1", 0, NULL));
    assert_ok(gmi_socket_listen(&a->listener, &list.addresses[0], NULL));
    assert_ok(gmi_socket_own_address(a->listener, &a->bound));
}

static void step_answerer(struct answerer *a, int rank)
{
    struct gmi_hello own = { .channel = GMI_CHANNEL_CONTROL, .rank = rank, .world_size = 2, .group = 1, .job_id = "j" };
    int              fd, sys_errno;
    if (a->listener < 0) return;
    if (!a->is_shaking && gmi_socket_accept(a->listener, &fd, &sys_errno) == GM_OK) {
        gmi_handshake_init(&a->h, fd, false, &own, NULL, judge, a, PATIENCE_MS);
        a->is_shaking = true;
    }
    gm_error error = { .status = GM_OK };
    if (a->is_shaking && gmi_handshake_progress(&a->h, &error) != GM_AGAIN) {
        gmi_handshake_fini(&a->h);
        a->is_shaking = false;
    }
}

static void close_answerer(struct answerer *a)
{
    if (a->is_shaking) gmi_handshake_fini(&a->h);
    gmi_socket_close(&a->listener);
}

static void call_rank_0(struct gmi_call *c, int port)
{
    struct gmi_hello own = { .channel = GMI_CHANNEL_CONTROL, .rank = 1, .target = 0, .world_size = 2, .group = 1, .job_id = "j" };
    gmi_call_init(c, "127.0.0.1", port, &own, NULL, NULL);
}

/* Steps both until the call has ended or has begun `n_pauses` pauses. */
static gm_status run(struct gmi_call *c, struct answerer *a, int answering_rank, int n_pauses)
{
    int64_t   deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    gm_status status = GM_AGAIN;
    while (status == GM_AGAIN && n_pauses > 0 && !gmi_deadline_passed(deadline_ns)) {
        enum gmi_call_state before = c->state;
        status = gmi_call_progress(c);
        if (c->state == GMI_CALL_PAUSED && before != GMI_CALL_PAUSED) n_pauses--;
        if (status == GM_AGAIN) assert_true(gmi_call_next_ns(c) != GMI_NEVER);
        step_answerer(a, answering_rank);
    }
    return status;
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void one_who_comes_later_is_reached(void **state)
{
    (void)state;
    struct answerer a;
    struct gmi_call c;
    open_answerer(&a);
    struct gmi_address where = a.bound;
    gmi_socket_close(&a.listener);
    call_rank_0(&c, gmi_address_port(&where));
    assert_status(run(&c, &a, 0, 2), GM_AGAIN); /* nobody there */
    assert_contains(c.error.text, "Connection refused");
    assert_ok(gmi_socket_listen(&a.listener, &where, NULL));
    assert_ok(run(&c, &a, 0, 1000));
    assert_true(gmi_call_next_ns(&c) == GMI_NEVER);
    assert_int_equal(c.sent_bytes, GMI_HELLO_BYTES + GMI_PROOF_BYTES + 4);
    assert_int_equal(c.recv_bytes, GMI_HELLO_BYTES + GMI_PROOF_BYTES + 4);
    int fd = gmi_call_take_fd(&c);
    assert_true(fd >= 0);
    gmi_socket_close(&fd);
    gmi_call_fini(&c);
    close_answerer(&a);
}

static void come_again_is_followed(void **state)
{
    (void)state;
    struct answerer a;
    struct gmi_call c;
    open_answerer(&a);
    a.verdicts[0] = a.verdicts[1] = a.verdicts[2] = GM_ERR_STATE;
    call_rank_0(&c, gmi_address_port(&a.bound));
    assert_ok(run(&c, &a, 0, 1000));
    assert_int_equal(a.n_calls, 4);
    gmi_call_fini(&c);
    close_answerer(&a);
}

static void a_refusal_is_final(void **state)
{
    (void)state;
    struct answerer a;
    struct gmi_call c;
    open_answerer(&a);
    a.verdicts[0] = GM_ERR_REFUSED;
    call_rank_0(&c, gmi_address_port(&a.bound));
    assert_status(run(&c, &a, 0, 1000), GM_ERR_REFUSED);
    assert_status(gmi_call_progress(&c), GM_ERR_REFUSED); /* it stays */
    assert_contains(c.error.text, "says the answerer");
    assert_true(gmi_call_next_ns(&c) == GMI_NEVER);
    gmi_call_fini(&c);
    close_answerer(&a);
}

static void another_rank_at_an_old_address_is_not_taken_for_the_one(void **state)
{
    (void)state;
    struct answerer a;
    struct gmi_call c;
    open_answerer(&a);
    call_rank_0(&c, gmi_address_port(&a.bound));
    assert_status(run(&c, &a, 5, 2), GM_AGAIN);
    assert_contains(c.error.text, "expected rank 0 of job 'j' here, found rank 5");
    assert_ok(run(&c, &a, 0, 1000));
    gmi_call_fini(&c);
    close_answerer(&a);
}

/* A port that nobody has, called from that very port: TCP connects it to itself. */
static void a_call_that_reaches_itself_is_tried_again(void **state)
{
    (void)state;
    struct answerer a;
    struct gmi_call c;
    open_answerer(&a);
    struct gmi_address where = a.bound;
    gmi_socket_close(&a.listener);
    call_rank_0(&c, gmi_address_port(&where));
    c.source = &where;
    assert_status(run(&c, &a, 0, 1), GM_AGAIN);
    assert_contains(c.error.text, "Connection refused");
    gmi_call_fini(&c);
}

static void an_answer_that_is_nonsense_ends_it(void **state)
{
    (void)state;
    struct answerer a;
    struct gmi_call c;
    int             fd = -1, sys_errno;
    char            heard[GMI_HELLO_BYTES];
    open_answerer(&a);
    call_rank_0(&c, gmi_address_port(&a.bound));
    int64_t   deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    gm_status status = GM_AGAIN;
    while (status == GM_AGAIN && !gmi_deadline_passed(deadline_ns)) {
        status = gmi_call_progress(&c);
        if (fd < 0 && gmi_socket_accept(a.listener, &fd, &sys_errno) == GM_OK) {
            assert_int_equal(send(fd, "220 mail.example ESMTP\r\n", 24, MSG_NOSIGNAL), 24);
        }
    }
    assert_status(status, GM_ERR_PROTOCOL);
    assert_contains(c.error.text, "does not speak gradmesh's protocol");
    (void)recv(fd, heard, sizeof heard, MSG_DONTWAIT);
    gmi_call_fini(&c);
    close(fd);
    close_answerer(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_who_comes_later_is_reached),
        cmocka_unit_test(come_again_is_followed),
        cmocka_unit_test(a_refusal_is_final),
        cmocka_unit_test(another_rank_at_an_old_address_is_not_taken_for_the_one),
        cmocka_unit_test(a_call_that_reaches_itself_is_tried_again),
        cmocka_unit_test(an_answer_that_is_nonsense_ends_it),
    };
    return cmocka_run_group_tests_name("call", tests, NULL, NULL);
}
