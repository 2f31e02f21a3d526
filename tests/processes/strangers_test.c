/* Whoever else finds the ports: port scanners, web browsers, other versions, the silent and the hasty. They are
 * turned away with a word where they can read one, and disturb nobody. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "net/socket.h"
#include "rendezvous/hello.h"
#include "tests/support/ranks.h"

enum { N = 3, STRANGER = N, STORM = 0, OPEN = 1, OVER = 2, N_HALF_OPEN = 100, START_UP_MS = 2000 };

/* ---- a stranger's tools ---------------------------------------------------------------------------- */

static int connect_to(struct rank_self *self, int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval     limit = { .tv_sec = 10 };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    rank_check(self, fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

/* Sends the bytes and reads what comes until the end; the answer is a text. */
static size_t say(struct rank_self *self, int port, const void *bytes, size_t n_bytes, char *answer, size_t answer_bytes)
{
    int    fd = connect_to(self, port);
    size_t got = 0;
    if (n_bytes > 0) (void)!send(fd, bytes, n_bytes, MSG_NOSIGNAL);
    for (ssize_t n; got + 1 < answer_bytes && (n = recv(fd, answer + got, answer_bytes - 1 - got, 0)) > 0;) got += (size_t)n;
    answer[got] = '\0';
    close(fd);
    return got;
}

static void speak_http(struct rank_self *self, int port)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[256];
    say(self, port, request, sizeof request - 1, answer, sizeof answer);
    rank_check(self, strstr(answer, "this is a gradmesh port") != NULL);
}

static void speak_noise(struct rank_self *self, int port)
{
    for (int i = 0; i < 20; i++) {
        uint8_t noise[300];
        char    answer[256];
        for (size_t k = 0; k < sizeof noise; k++) noise[k] = (uint8_t)gmi_rng_u64((uint64_t)i, k);
        if (i % 4 == 0) memcpy(noise, "GRADMESH", 8); /* what looks right at first is judged too */
        say(self, port, noise, 1 + gmi_rng_below(5, (uint64_t)i, sizeof noise), answer, i % 4 == 0 ? 1 : sizeof answer);
    }
}

static void speak_another_version(struct rank_self *self, int port, int channel)
{
    struct gmi_hello hello = { .version = GMI_PROTOCOL_VERSION + 1, .channel = (uint8_t)channel, .rank = 1,
                               .world_size = N, .job_id = "test" };
    uint8_t wire[GMI_HELLO_BYTES];
    char    answer[600];
    gmi_hello_encode(&hello, wire);
    size_t got = say(self, port, wire, sizeof wire, answer, sizeof answer);
    rank_check(self, got > GMI_HELLO_BYTES + 4);
    rank_check(self, gmi_get_u16((const uint8_t *)answer + GMI_HELLO_BYTES) == GM_ERR_VERSION);
    rank_check(self, strstr(answer + GMI_HELLO_BYTES + 4, "protocol version 1 is needed here, not 2") != NULL);
}

static void come_and_go(struct rank_self *self, int port)
{
    for (int i = 0; i < 100; i++) close(connect_to(self, port));
}

/* ... and leaves them open until the process ends. */
static void open_and_be_silent(struct rank_self *self, int port)
{
    for (int i = 0; i < N_HALF_OPEN; i++) {
        int fd = connect_to(self, port);
        if (i % 2) (void)!send(fd, "GRAD", 4, MSG_NOSIGNAL); /* half a hello */
    }
}

static void be_every_stranger(struct rank_self *self, int port, int channel)
{
    open_and_be_silent(self, port);
    speak_http(self, port);
    speak_noise(self, port);
    speak_another_version(self, port, channel);
    come_and_go(self, port);
}

/* ---- at the store and at the ranks ------------------------------------------------------------------ */

static int own_port(const struct rank_self *self)
{
    struct gmi_address address;
    gmi_socket_own_address(self->comm->acceptor.listener_fd, &address);
    return gmi_address_port(&address);
}

static int store_port(const struct rank_self *self)
{
    const char *store = self->options.store;
    return store != NULL ? atoi(strrchr(store, ':') + 1) : self->options.master_port;
}

static void check_sum(struct rank_self *self)
{
    double one = 1;
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == N);
}

static void live_among_strangers(struct rank_self *self)
{
    if (self->rank == STRANGER) {
        if (self->options.store == NULL) rank_await(self, OPEN, 1); /* rank 0 serves the store: it must be there */
        be_every_stranger(self, store_port(self), GMI_CHANNEL_STORE);
        rank_mark(self, STORM);
        rank_await(self, OPEN, N);
        for (int k = 0; k < N; k++) be_every_stranger(self, (int)self->shared->records[k].numbers[0], GMI_CHANNEL_DATA);
        rank_mark(self, OVER);
        return;
    }
    self->options.world_size = N;
    if (self->options.store != NULL) rank_await(self, STORM, 1);
    int64_t begin_ns = gmi_now_ns();
    rank_create(self);
    rank_check(self, gmi_now_ns() - begin_ns < START_UP_MS * GMI_NS_PER_MS * ranks_slowness());
    self->record->numbers[0] = (uint64_t)own_port(self);
    check_sum(self);
    rank_mark(self, OPEN);
    double over; /* agreed upon, so that all leave after the same round */
    do {
        check_sum(self);
        over = atomic_load(&self->shared->marks[OVER]);
        rank_ok(self, gm_all_reduce(self->comm, &over, &over, 1, GM_F64, GM_MIN));
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    } while (over == 0);
    rank_destroy(self);
}

static void strangers_at_the_store_and_at_the_ranks_disturb_nobody(void **state)
{
    struct ranks_job job = { .n_ranks = N + 1, .body = live_among_strangers };
    struct ranks *r = ranks_run(state, &job);
    const char   *log = ranks_store_said(r);
    assert_non_null(strstr(log, "does not speak gradmesh's protocol"));
    assert_non_null(strstr(log, "protocol version 1 is needed here, not 2"));
    assert_non_null(strstr(ranks_said(r, 1), "does not speak gradmesh's protocol"));
}

static void a_store_served_by_rank_0_bears_strangers_as_well(void **state)
{
    struct ranks_job job = { .n_ranks = N + 1, .body = live_among_strangers, .is_hand_started = true };
    ranks_run(state, &job);
}

/* ---- a server that is no store ---------------------------------------------------------------------- */

static void meet_a_web_server(struct rank_self *self)
{
    struct gm_comm *comm;
    gm_error        error;
    if (self->rank == 1) { /* the web server */
        struct gmi_address_list list;
        struct gmi_address      bound;
        int                     listener, fd, ignored;
        rank_ok(self, gmi_address_resolve(&list, "127.0.0.1", 0, NULL));
        rank_ok(self, gmi_socket_listen(&listener, &list.addresses[0], NULL));
        gmi_socket_own_address(listener, &bound);
        self->record->numbers[0] = (uint64_t)gmi_address_port(&bound);
        rank_mark(self, OPEN);
        while (gmi_socket_accept(listener, &fd, &ignored) == GM_AGAIN) {
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
        static const char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        (void)!send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
        rank_await(self, OVER, 1);
        return;
    }
    rank_await(self, OPEN, 1);
    char store[64];
    snprintf(store, sizeof store, "127.0.0.1:%d", (int)self->shared->records[1].numbers[0]);
    self->options.store = store;
    rank_expect(self, GM_ERR_PROTOCOL, gm_comm_create(&comm, &self->options, &error));
    rank_check(self, strstr(error.text, "does not speak gradmesh's protocol") != NULL && strstr(error.text, store) != NULL);
    rank_mark(self, OVER);
}

static void a_web_server_in_the_place_of_the_store_is_found_out(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = meet_a_web_server };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(strangers_at_the_store_and_at_the_ranks_disturb_nobody),
        TEST(a_store_served_by_rank_0_bears_strangers_as_well),
        TEST(a_web_server_in_the_place_of_the_store_is_found_out),
    };
    return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}
