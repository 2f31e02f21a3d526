#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "net/poller.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 10000 };

static void wait_for(int fd, unsigned interest)
{
    struct gmi_poller p;
    gmi_poller_init(&p);
    gmi_poller_add(&p, fd, interest);
    assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
    gmi_poller_fini(&p);
}

static int listen_locally(const char *host, struct gmi_address *bound)
{
    struct gmi_address_list list;
    int                     fd;
    assert_ok(gmi_address_resolve(&list, host, 0, NULL));
    assert_ok(gmi_socket_listen(&fd, &list.addresses[0], NULL));
    assert_ok(gmi_socket_own_address(fd, bound));
    assert_true(gmi_address_port(bound) > 0);
    return fd;
}

static gm_status connect_fully(int *fd, const struct gmi_address *to, const struct gmi_address *source, int *sys_errno)
{
    gm_status status = gmi_socket_connect_start(fd, to, source, sys_errno);
    while (status == GM_AGAIN) {
        wait_for(*fd, GMI_WRITABLE);
        status = gmi_socket_connect_finish(*fd, sys_errno);
    }
    return status;
}

static int accept_one(int listener)
{
    int fd, sys_errno = 0;
    wait_for(listener, GMI_READABLE);
    assert_ok(gmi_socket_accept(listener, &fd, &sys_errno));
    return fd;
}

static void make_connection(const char *host, int fds[2])
{
    struct gmi_address bound;
    int                listener = listen_locally(host, &bound), sys_errno = 0;
    assert_ok(connect_fully(&fds[0], &bound, NULL, &sys_errno));
    fds[1] = accept_one(listener);
    gmi_socket_close(&listener);
}

/* ---- making connections -------------------------------------------------------------------------- */

static void check_connection(const char *host)
{
    int                fds[2], sys_errno = 0;
    uint8_t            out[3] = { 1, 2, 3 }, in[5] = { 0 };
    struct iovec       send_parts[2] = { { out, 1 }, { out + 1, 2 } }, recv_parts[2] = { { in, 2 }, { in + 2, 3 } };
    size_t             moved;
    struct gmi_address own, peer;
    make_connection(host, fds);
    for (int i = 0; i < 2; i++) {
        assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        assert_false(gmi_socket_is_self_connected(fds[i]));
    }
    assert_ok(gmi_socket_own_address(fds[0], &own));
    assert_ok(gmi_socket_peer_address(fds[1], &peer));
    assert_true(gmi_address_equal(&own, &peer));
    assert_status(gmi_socket_recv_some(fds[1], recv_parts, 2, &moved, &sys_errno), GM_AGAIN);
    assert_int_equal(moved, 0);
    assert_ok(gmi_socket_send_some(fds[0], send_parts, 2, &moved, &sys_errno));
    assert_int_equal(moved, 3);
    wait_for(fds[1], GMI_READABLE);
    assert_ok(gmi_socket_recv_some(fds[1], recv_parts, 2, &moved, &sys_errno));
    assert_int_equal(moved, 3);
    assert_memory_equal(in, out, 3);
    for (int i = 0; i < 2; i++) gmi_socket_close(&fds[i]);
}

static bool has_ipv6(void)
{
    struct gmi_address_list list;
    int                     fd;
    if (gmi_address_resolve(&list, "::1", 0, NULL) != GM_OK) return false;
    if (gmi_socket_listen(&fd, &list.addresses[0], NULL) != GM_OK) return false;
    gmi_socket_close(&fd);
    return true;
}

static void connects_over_ipv4(void **state)
{
    (void)state;
    check_connection("127.0.0.1");
}

static void connects_over_ipv6(void **state)
{
    (void)state;
    if (!has_ipv6()) skip();
    check_connection("::1");
}

static void nobody_there_is_a_refusal_and_leaves_no_descriptor(void **state)
{
    (void)state;
    struct gmi_address bound;
    int                listener = listen_locally("127.0.0.1", &bound), fd, sys_errno = 0;
    gmi_socket_close(&listener);
    assert_int_equal(listener, -1);
    gmi_socket_close(&listener);
    assert_status(connect_fully(&fd, &bound, NULL, &sys_errno), GM_ERR_PEER_LOST);
    assert_int_equal(sys_errno, ECONNREFUSED);
    gmi_socket_close(&fd);
}

static void connects_from_the_address_that_is_asked_for(void **state)
{
    (void)state;
    struct gmi_address bound, own, source;
    int                listener = listen_locally("127.0.0.1", &bound), fd, sys_errno = 0;
    assert_ok(gmi_address_parse_numeric(&source, "127.0.0.2:1", NULL));
    gmi_address_set_port(&source, 0);
    assert_ok(connect_fully(&fd, &bound, &source, &sys_errno));
    assert_ok(gmi_socket_own_address(fd, &own));
    gmi_address_set_port(&own, 0);
    assert_true(gmi_address_equal(&own, &source));
    gmi_socket_close(&fd);
    assert_ok(gmi_address_parse_numeric(&source, "192.0.2.77:1", NULL)); /* documentation's, not this host's */
    assert_status(connect_fully(&fd, &bound, &source, &sys_errno), GM_ERR_PEER_LOST);
    assert_int_equal(sys_errno, EADDRNOTAVAIL);
    assert_int_equal(fd, -1);
    gmi_socket_close(&listener);
}

/* ---- a connection to oneself --------------------------------------------------------------------- */

/* A socket bound to a port that connects to that very port: TCP's simultaneous open with itself. */
static int connect_to_itself(const char *host, struct gmi_address *own)
{
    struct gmi_address_list list;
    assert_ok(gmi_address_resolve(&list, host, 0, NULL));
    int fd = socket(list.addresses[0].storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&list.addresses[0].storage, list.addresses[0].used_bytes), 0);
    assert_ok(gmi_socket_own_address(fd, own));
    int code = connect(fd, (struct sockaddr *)&own->storage, own->used_bytes);
    assert_true(code == 0 || errno == EINPROGRESS);
    wait_for(fd, GMI_WRITABLE);
    return fd;
}

static void check_self_connection(const char *host)
{
    struct gmi_address own, peer;
    int                fd = connect_to_itself(host, &own), sys_errno = 0;
    assert_ok(gmi_socket_peer_address(fd, &peer)); /* it is connected indeed */
    assert_true(gmi_address_equal(&own, &peer));
    assert_true(gmi_socket_is_self_connected(fd));
    assert_status(gmi_socket_connect_finish(fd, &sys_errno), GM_ERR_PEER_LOST);
    assert_int_equal(sys_errno, ECONNREFUSED);
    gmi_socket_close(&fd);
}

/* The same by our own functions: from an address to itself. */
static void check_dialling_oneself(const char *host)
{
    struct gmi_address own;
    int                fd, listener = listen_locally(host, &own), sys_errno = 0;
    gmi_socket_close(&listener); /* a port that nobody has */
    assert_status(connect_fully(&fd, &own, &own, &sys_errno), GM_ERR_PEER_LOST);
    assert_int_equal(sys_errno, ECONNREFUSED);
    gmi_socket_close(&fd);
}

static void a_connection_to_oneself_is_none(void **state)
{
    (void)state;
    check_self_connection("127.0.0.1");
    check_dialling_oneself("127.0.0.1");
    if (!has_ipv6()) return;
    check_self_connection("::1");
    check_dialling_oneself("::1");
}

/* ---- listening ----------------------------------------------------------------------------------- */

static void a_taken_port_is_named(void **state)
{
    (void)state;
    struct gmi_address bound;
    char               text[GMI_ADDRESS_TEXT_BYTES];
    gm_error           e;
    int                listener = listen_locally("127.0.0.1", &bound), second;
    gmi_error_clear(&e);
    assert_status(gmi_socket_listen(&second, &bound, &e), GM_ERR_SYSTEM);
    assert_int_equal(second, -1);
    assert_int_equal(e.sys_errno, EADDRINUSE);
    assert_contains(e.text, gmi_address_format(&bound, text));
    assert_contains(e.text, "Address already in use");
    gmi_socket_close(&listener);
}

static void an_address_of_another_host_is_named(void **state)
{
    (void)state;
    struct gmi_address address;
    gm_error           e;
    int                fd;
    gmi_error_clear(&e);
    assert_ok(gmi_address_parse_numeric(&address, "192.0.2.77:4100", NULL));
    assert_status(gmi_socket_listen(&fd, &address, &e), GM_ERR_SYSTEM);
    assert_contains(e.text, "192.0.2.77:4100");
}

static void a_port_can_be_had_again_at_once(void **state)
{
    (void)state;
    struct gmi_address bound;
    int                listener = listen_locally("127.0.0.1", &bound), fd, accepted, sys_errno = 0;
    assert_ok(connect_fully(&fd, &bound, NULL, &sys_errno));
    accepted = accept_one(listener);
    gmi_socket_close(&accepted); /* the side that closes first is left in TIME_WAIT, at the listener's port */
    gmi_socket_close(&fd);
    gmi_socket_close(&listener);
    assert_ok(gmi_socket_listen(&listener, &bound, NULL));
    gmi_socket_close(&listener);
}

static void nobody_knocks(void **state)
{
    (void)state;
    struct gmi_address bound;
    int                listener = listen_locally("127.0.0.1", &bound), fd, sys_errno = 0;
    assert_status(gmi_socket_accept(listener, &fd, &sys_errno), GM_AGAIN);
    assert_int_equal(fd, -1);
    gmi_socket_close(&listener);
    assert_status(gmi_socket_accept(-1, &fd, &sys_errno), GM_ERR_SYSTEM);
    assert_int_equal(sys_errno, EBADF);
}

/* ---- ends ---------------------------------------------------------------------------------------- */

static void an_end_is_seen_behind_the_last_byte(void **state)
{
    (void)state;
    int          fds[2], sys_errno = 99;
    uint8_t      byte = 5;
    struct iovec part = { &byte, 1 };
    size_t       moved;
    make_connection("127.0.0.1", fds);
    assert_false(gmi_socket_is_over(fds[1]));
    assert_ok(gmi_socket_send_some(fds[0], &part, 1, &moved, &sys_errno));
    gmi_socket_finish_sending(fds[0]);
    wait_for(fds[1], GMI_READABLE);
    assert_false(gmi_socket_is_over(fds[1])); /* something is left to be read */
    assert_ok(gmi_socket_recv_some(fds[1], &part, 1, &moved, &sys_errno));
    wait_for(fds[1], GMI_READABLE);
    assert_true(gmi_socket_is_over(fds[1]));
    assert_status(gmi_socket_recv_some(fds[1], &part, 1, &moved, &sys_errno), GM_ERR_PEER_LOST);
    assert_int_equal(sys_errno, 0);
    for (int i = 0; i < 2; i++) gmi_socket_close(&fds[i]);
}

static void a_reset_is_told_with_its_number_and_raises_no_signal(void **state)
{
    (void)state;
    int           fds[2], sys_errno = 0;
    uint8_t       byte = 5;
    struct iovec  part = { &byte, 1 };
    struct linger at_once = { .l_onoff = 1 };
    size_t        moved;
    make_connection("127.0.0.1", fds);
    setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    gmi_socket_close(&fds[0]);
    wait_for(fds[1], GMI_READABLE);
    gm_status status = gmi_socket_send_some(fds[1], &part, 1, &moved, &sys_errno);
    assert_status(status, GM_ERR_PEER_LOST);
    assert_true(sys_errno == ECONNRESET || sys_errno == EPIPE);
    gmi_socket_close(&fds[1]);
}

/* ---- what the kernel has counted ----------------------------------------------------------------- */

static void the_kernel_counts_both_directions(void **state)
{
    (void)state;
    int          fds[2], sys_errno = 0;
    uint8_t      bytes[777] = { 0 };
    struct iovec part = { bytes, sizeof bytes }, less = { bytes, 33 };
    size_t       moved;
    uint64_t     sent, recv;
    make_connection("127.0.0.1", fds);
    assert_ok(gmi_socket_send_some(fds[0], &part, 1, &moved, &sys_errno));
    assert_ok(gmi_socket_send_some(fds[1], &less, 1, &moved, &sys_errno));
    int64_t   deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    gm_status status;
    do {
        status = gmi_socket_kernel_counts(fds[0], &sent, &recv);
    } while (status == GM_AGAIN && !gmi_deadline_passed(deadline_ns));
    if (status == GM_ERR_UNSUPPORTED) skip();
    assert_ok(status);
    assert_int_equal(sent, 777);
    assert_int_equal(recv, 33);
    for (int i = 0; i < 2; i++) gmi_socket_close(&fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connects_over_ipv4),
        cmocka_unit_test(connects_over_ipv6),
        cmocka_unit_test(nobody_there_is_a_refusal_and_leaves_no_descriptor),
        cmocka_unit_test(connects_from_the_address_that_is_asked_for),
        cmocka_unit_test(a_connection_to_oneself_is_none),
        cmocka_unit_test(a_taken_port_is_named),
        cmocka_unit_test(an_address_of_another_host_is_named),
        cmocka_unit_test(a_port_can_be_had_again_at_once),
        cmocka_unit_test(nobody_knocks),
        cmocka_unit_test(an_end_is_seen_behind_the_last_byte),
        cmocka_unit_test(a_reset_is_told_with_its_number_and_raises_no_signal),
        cmocka_unit_test(the_kernel_counts_both_directions),
    };
    return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
