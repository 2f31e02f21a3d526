/* store_server_test.c - the store's server in a thread of its own, as a launcher would serve it, and its real
 * client; strangers and bad requests by hand. */
#include "rendezvous/store_server.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"
#include "rendezvous/call.h"
#include "rendezvous/store.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 20000 };

/* ---- a served store ------------------------------------------------------------------------------ */

struct served {
    struct gmi_store_server *server;
    struct gmi_log           log;
    pthread_mutex_t          lock; /* of the server and of what it has logged */
    char                     logged[8000];
    pthread_t                thread;
    atomic_bool              is_stopping;
    int                      wake[2], port;
};

static void note_line(void *user, gm_log_level level, const char *line)
{
    struct served *s = user; /* called with the lock held, by a step */
    size_t         used = strlen(s->logged);
    (void)level;
    snprintf(s->logged + used, sizeof s->logged - used, "%s\n", line);
}

static void *serve(void *user)
{
    struct served    *s = user;
    struct gmi_poller p;
    gmi_poller_init(&p);
    while (!atomic_load(&s->is_stopping)) {
        pthread_mutex_lock(&s->lock);
        gmi_store_server_step(s->server);
        gmi_poller_clear(&p);
        gmi_store_server_watch(s->server, &p);
        pthread_mutex_unlock(&s->lock);
        gmi_poller_add(&p, s->wake[0], GMI_READABLE);
        gmi_poller_wait(&p, gmi_deadline_after_ms(500));
    }
    gmi_poller_fini(&p);
    return NULL;
}

static void start(struct served *s)
{
    *s = (struct served){ .log = { .write = note_line, .user = s, .level = GM_LOG_DEBUG }, .lock = PTHREAD_MUTEX_INITIALIZER };
    assert_ok(gmi_store_server_create(&s->server, "127.0.0.1", 0, "job-7", NULL, &s->log, NULL));
    s->port = gmi_store_server_port(s->server);
    assert_in_range(s->port, 1, 65535);
    assert_int_equal(pipe(s->wake), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct served *s)
{
    atomic_store(&s->is_stopping, true);
    assert_int_equal(write(s->wake[1], "x", 1), 1);
    pthread_join(s->thread, NULL);
    gmi_store_server_destroy(s->server);
    close(s->wake[0]);
    close(s->wake[1]);
}

static struct gmi_hello hello_of(int rank, int world_size)
{
    return (struct gmi_hello){ .rank = rank, .world_size = world_size, .group = gmi_group_id("world"), .job_id = "job-7" };
}

static gm_status try_connect(struct gmi_store *store, const struct served *s, struct gmi_hello hello, gm_error *e)
{
    gmi_error_clear(e);
    return gmi_store_connect(store, "127.0.0.1", s->port, &hello, NULL, gmi_deadline_after_ms(PATIENCE_MS), NULL, e);
}

static void connect_rank(struct gmi_store *store, const struct served *s, int rank, int world_size)
{
    gm_error e;
    gm_status status = try_connect(store, s, hello_of(rank, world_size), &e);
    if (status != GM_OK) print_error("%s\n", e.text);
    assert_ok(status);
}

static gm_status claim(struct gmi_store *store, const char *key, const char *value, gm_error *e)
{
    gmi_error_clear(e);
    return gmi_store_claim(store, key, value, gmi_deadline_after_ms(PATIENCE_MS), e);
}

static gm_status await(struct gmi_store *store, const char *key, char *value, int timeout_ms)
{
    return gmi_store_wait(store, key, value, gmi_deadline_after_ms(timeout_ms), NULL);
}

static bool has_logged(struct served *s, const char *part)
{
    pthread_mutex_lock(&s->lock);
    bool has = strstr(s->logged, part) != NULL;
    pthread_mutex_unlock(&s->lock);
    return has;
}

/* The server's thread logs a refusal after its answer has gone out. */
static void check_log(struct served *s, const char *part)
{
    int64_t deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    while (!has_logged(s, part) && !gmi_deadline_passed(deadline_ns)) sched_yield();
    pthread_mutex_lock(&s->lock);
    assert_contains(s->logged, part);
    pthread_mutex_unlock(&s->lock);
}

/* ---- what it is for ------------------------------------------------------------------------------ */

static void a_claimed_key_is_found_by_others(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a, b;
    gm_error         e;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1];
    start(&s);
    connect_rank(&a, &s, 0, 2);
    connect_rank(&b, &s, 1, 2);
    assert_ok(claim(&a, "world/0", "10.0.0.7:4100", &e));
    assert_ok(await(&b, "world/0", value, PATIENCE_MS));
    assert_string_equal(value, "10.0.0.7:4100");
    assert_ok(await(&a, "world/0", value, PATIENCE_MS));
    gmi_store_close(&a);
    gmi_store_close(&b);
    stop(&s);
}

struct waiter {
    struct gmi_store store;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1];
    gm_status        status;
};

static void *wait_in_thread(void *user)
{
    struct waiter *w = user;
    w->status = await(&w->store, "world/0", w->value, PATIENCE_MS);
    return NULL;
}

static void waiters_are_answered_when_the_key_comes(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a;
    struct waiter    waiters[5] = { 0 };
    pthread_t        threads[5];
    gm_error         e;
    start(&s);
    connect_rank(&a, &s, 0, 6);
    for (int i = 0; i < 5; i++) {
        connect_rank(&waiters[i].store, &s, i + 1, 6);
        assert_int_equal(pthread_create(&threads[i], NULL, wait_in_thread, &waiters[i]), 0);
    }
    assert_ok(claim(&a, "world/0", "here", &e));
    for (int i = 0; i < 5; i++) {
        pthread_join(threads[i], NULL);
        assert_ok(waiters[i].status);
        assert_string_equal(waiters[i].value, "here");
        gmi_store_close(&waiters[i].store);
    }
    gmi_store_close(&a);
    stop(&s);
}

static void a_wait_ends_at_its_deadline_and_can_be_repeated(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a, b;
    gm_error         e;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1], *keys;
    start(&s);
    connect_rank(&a, &s, 0, 2);
    connect_rank(&b, &s, 1, 2);
    for (int i = 0; i < 3; i++) {
        assert_status(await(&b, "world/0", value, 5), GM_AGAIN);
        assert_ok(gmi_store_list(&b, "", &keys, gmi_deadline_after_ms(PATIENCE_MS), NULL));
        assert_string_equal(keys, "");
        gmi_free(keys);
    }
    assert_status(await(&b, "world/0", value, 5), GM_AGAIN);
    assert_ok(claim(&a, "world/0", "now", &e)); /* is answered, though nobody reads it yet */
    assert_ok(gmi_store_list(&b, "world/", &keys, gmi_deadline_after_ms(PATIENCE_MS), NULL));
    assert_string_equal(keys, "world/0\n");
    gmi_free(keys);
    assert_ok(await(&b, "world/0", value, PATIENCE_MS));
    assert_string_equal(value, "now");
    gmi_store_close(&a);
    gmi_store_close(&b);
    stop(&s);
}

/* The server is held up while a client gives up on a list; its late answer is not taken for another one. */
static void an_answer_that_comes_too_late_is_passed_over(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a;
    gm_error         e;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1], *keys;
    start(&s);
    connect_rank(&a, &s, 0, 2);
    assert_ok(claim(&a, "world/0", "here", &e));
    pthread_mutex_lock(&s.lock);
    assert_status(gmi_store_list(&a, "", &keys, gmi_deadline_after_ms(5), NULL), GM_ERR_TIMEOUT);
    pthread_mutex_unlock(&s.lock);
    assert_ok(await(&a, "world/0", value, PATIENCE_MS));
    assert_string_equal(value, "here");
    gmi_store_close(&a);
    stop(&s);
}

static void keys_are_listed_by_prefix(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a;
    gm_error         e;
    char            *keys;
    start(&s);
    connect_rank(&a, &s, 0, 2);
    assert_ok(claim(&a, "world/0", "x", &e));
    assert_ok(claim(&a, "other/0", "y", &e));
    assert_ok(gmi_store_list(&a, "other/", &keys, gmi_deadline_after_ms(PATIENCE_MS), NULL));
    assert_string_equal(keys, "other/0\n");
    gmi_free(keys);
    assert_ok(gmi_store_list(&a, "", &keys, gmi_deadline_after_ms(PATIENCE_MS), NULL));
    assert_contains(keys, "world/0\n");
    assert_contains(keys, "other/0\n");
    gmi_free(keys);
    gmi_store_close(&a);
    stop(&s);
}

static void names_that_are_too_long_are_not_sent(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a;
    gm_error         e;
    char             longest[GMI_STORE_MAX_VALUE_BYTES + 1], value[GMI_STORE_MAX_VALUE_BYTES + 1], key[GMI_STORE_MAX_KEY_BYTES + 2];
    start(&s);
    connect_rank(&a, &s, 0, 2);
    memset(longest, 'v', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    assert_status(claim(&a, key, "x", &e), GM_ERR_ARG);
    key[GMI_STORE_MAX_KEY_BYTES] = '\0';
    assert_ok(claim(&a, key, longest, &e));
    assert_ok(await(&a, key, value, PATIENCE_MS));
    assert_string_equal(value, longest);
    gmi_store_close(&a);
    stop(&s);
}

/* ---- a rank is taken once ------------------------------------------------------------------------ */

static void a_second_copy_of_a_rank_is_refused_and_the_first_goes_on(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store first, second;
    gm_error         e;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1];
    start(&s);
    connect_rank(&first, &s, 1, 2);
    connect_rank(&second, &s, 1, 2);
    assert_ok(claim(&first, "world/1", "one", &e));
    assert_status(claim(&second, "world/1", "two", &e), GM_ERR_REFUSED);
    assert_contains(e.text, "rank 1 is already taken by the process at 127.0.0.1:");
    check_log(&s, "a second process that calls itself rank 1 was refused");
    assert_ok(await(&first, "world/1", value, PATIENCE_MS));
    assert_string_equal(value, "one");
    gmi_store_close(&second);
    gmi_store_close(&first);
    stop(&s);
}

static void a_successor_takes_the_place_of_the_dead(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store other, member;
    gm_error         e;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1];
    start(&s);
    connect_rank(&other, &s, 1, 2);
    for (int life = 0; life < 20; life++) {
        char name[32];
        snprintf(name, sizeof name, "life %d", life);
        connect_rank(&member, &s, 0, 2);
        assert_ok(claim(&member, "world/0", name, &e)); /* at once, whether the end of the last was seen or not */
        assert_ok(await(&other, "world/0", value, PATIENCE_MS));
        assert_string_equal(value, name);
        gmi_store_close(&member);
    }
    gmi_store_close(&other);
    stop(&s);
}

static void ranks_that_have_been_here_are_counted_once(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store store;
    gm_error         e;
    start(&s);
    for (int i = 0; i < 6; i++) {
        char key[32];
        snprintf(key, sizeof key, "world/%d", i % 3);
        connect_rank(&store, &s, i % 3, 4);
        assert_ok(claim(&store, key, "x", &e));
        gmi_store_close(&store);
    }
    pthread_mutex_lock(&s.lock);
    assert_int_equal(gmi_store_server_ranks_seen(s.server), 3);
    pthread_mutex_unlock(&s.lock);
    stop(&s);
}

/* ---- who is turned away -------------------------------------------------------------------------- */

static void check_refusal(struct served *s, struct gmi_hello hello, const char *part_here, const char *part_there)
{
    struct gmi_store store;
    gm_error         e;
    assert_status(try_connect(&store, s, hello, &e), GM_ERR_REFUSED);
    assert_contains(e.text, part_here);
    check_log(s, part_there);
}

static void those_who_do_not_belong_are_refused_on_both_sides(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store member;
    gm_error         e;
    start(&s);
    connect_rank(&member, &s, 0, 2);
    assert_ok(claim(&member, "world/0", "x", &e));
    struct gmi_hello stale = hello_of(1, 2);
    snprintf(stale.job_id, sizeof stale.job_id, "job-6");
    static const char *const size_differs = "world size differs: rank 1 says 3, rank 0 says 2";
    static const char *const no_rank = "there is no rank 2 in a world of 2";
    check_refusal(&s, stale, "this is job 'job-6', the store serves job 'job-7'",
                  "this is job 'job-6', the store serves job 'job-7'");
    check_refusal(&s, hello_of(1, 3), size_differs, size_differs);
    check_refusal(&s, hello_of(2, 2), no_rank, no_rank);
    check_refusal(&s, hello_of(-1, 2), "there is no rank -1", "there is no rank -1 in a world of 2");
    struct gmi_hello other_group = hello_of(1, 3); /* a communicator of its own may have its own size */
    other_group.group = gmi_group_id("evaluators");
    struct gmi_store store;
    assert_ok(try_connect(&store, &s, other_group, &e));
    gmi_store_close(&store);
    gmi_store_close(&member);
    assert_ok(try_connect(&store, &s, hello_of(1, 3), &e)); /* the one who said 2 is gone */
    gmi_store_close(&store);
    stop(&s);
}

/* After the handshake by the real client, bytes by hand. */
static void send_raw(struct gmi_store *store, const void *bytes, size_t n_bytes)
{
    assert_int_equal(send(store->stream.fd, bytes, n_bytes, MSG_NOSIGNAL), n_bytes);
}

static void check_is_disconnected(struct gmi_store *store)
{
    struct gmi_poller p;
    char              byte;
    gmi_poller_init(&p);
    gmi_poller_add(&p, store->stream.fd, GMI_READABLE);
    assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
    assert_true(recv(store->stream.fd, &byte, 1, 0) <= 0);
    gmi_poller_fini(&p);
    gmi_store_close(store);
}

static void impossible_requests_end_that_connection_only(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store member, bad;
    gm_error         e;
    char             value[GMI_STORE_MAX_VALUE_BYTES + 1];
    uint8_t          wire[GMI_STORE_HEADER_BYTES];
    start(&s);
    connect_rank(&member, &s, 0, 3);
    assert_ok(claim(&member, "world/0", "x", &e));
    connect_rank(&bad, &s, 1, 3);
    assert_ok(claim(&bad, "world/1", "y", &e));
    gmi_store_header_encode(wire, GMI_STORE_CLAIM, GMI_STORE_MAX_KEY_BYTES + 1, 0);
    send_raw(&bad, wire, sizeof wire);
    check_is_disconnected(&bad);
    connect_rank(&bad, &s, 1, 3);
    gmi_store_header_encode(wire, GMI_STORE_CLAIM, 1, UINT32_MAX);
    send_raw(&bad, wire, sizeof wire);
    check_is_disconnected(&bad);
    connect_rank(&bad, &s, 1, 3);
    gmi_store_header_encode(wire, (enum gmi_store_kind)99, 0, 0);
    send_raw(&bad, wire, sizeof wire);
    check_is_disconnected(&bad);
    check_log(&s, "rank 1 sent an impossible request");
    assert_ok(await(&member, "world/0", value, PATIENCE_MS));
    assert_status(await(&member, "world/1", value, 5), GM_AGAIN); /* went with its connection */
    gmi_store_close(&member);
    stop(&s);
}

static void requests_may_come_in_bits_or_in_bulk(void **state)
{
    (void)state;
    struct served    s;
    struct gmi_store a;
    uint8_t          wire[2 * (GMI_STORE_HEADER_BYTES + 8)];
    char            *keys;
    start(&s);
    connect_rank(&a, &s, 0, 2);
    for (int i = 0; i < 2; i++) {
        uint8_t *at = wire + (size_t)i * sizeof wire / 2;
        gmi_store_header_encode(at, GMI_STORE_CLAIM, 4, 4);
        memcpy(at + GMI_STORE_HEADER_BYTES, i == 0 ? "key0val0" : "key1val1", 8);
    }
    for (size_t i = 0; i < sizeof wire / 2; i++) send_raw(&a, wire + i, 1);
    send_raw(&a, wire + sizeof wire / 2, sizeof wire / 2);
    for (int i = 0; i < 2; i++) { /* two grants */
        uint8_t header[GMI_STORE_HEADER_BYTES];
        for (size_t got = 0; got < sizeof header;) {
            struct gmi_poller p;
            gmi_poller_init(&p);
            gmi_poller_add(&p, a.stream.fd, GMI_READABLE);
            assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
            gmi_poller_fini(&p);
            ssize_t n = recv(a.stream.fd, header + got, sizeof header - got, 0);
            assert_true(n > 0);
            got += (size_t)n;
        }
        assert_int_equal(header[0], GMI_STORE_GRANTED);
    }
    assert_ok(gmi_store_list(&a, "key", &keys, gmi_deadline_after_ms(PATIENCE_MS), NULL));
    assert_contains(keys, "key0\n");
    assert_contains(keys, "key1\n");
    gmi_free(keys);
    gmi_store_close(&a);
    stop(&s);
}

/* ---- crowds -------------------------------------------------------------------------------------- */

static int raw_connection(const struct served *s)
{
    struct gmi_address_list list;
    assert_ok(gmi_address_resolve(&list, "127.0.0.1", s->port, NULL));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&list.addresses[0].storage, list.addresses[0].used_bytes), 0);
    return fd;
}

static void silent_strangers_do_not_keep_a_good_one_out(void **state)
{
    (void)state;
    enum { STRANGERS = 300 };
    struct served    s;
    struct gmi_store member;
    gm_error         e;
    int              fds[STRANGERS];
    start(&s);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = raw_connection(&s);
        if (i % 3 == 1) assert_int_equal(send(fds[i], "GRADM", 5, MSG_NOSIGNAL), 5); /* begins well, and stops */
        if (i % 3 == 2) assert_true(send(fds[i], "GET /", 5, MSG_NOSIGNAL) != 0);
    }
    int64_t from_ns = gmi_now_ns();
    connect_rank(&member, &s, 0, 2);
    assert_ok(claim(&member, "world/0", "x", &e));
    assert_true(gmi_now_ns() - from_ns < 4 * GMI_NS_PER_S); /* before the strangers' own time is over */
    for (int i = 0; i < STRANGERS; i++) close(fds[i]);
    gmi_store_close(&member);
    stop(&s);
}

static int count_in_log(struct served *s, const char *part)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (const char *at = s->logged; (at = strstr(at, part)) != NULL; at++) n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void strangers_that_come_again_and_again_do_not_flood_the_log(void **state)
{
    enum { VISITS = 50, TOLD = 8 };
    char          page[200];
    struct served s;
    (void)state;
    start(&s);
    memset(page, 'G', sizeof page);
    for (int i = 0; i < VISITS; i++) {
        char answer[100];
        int  fd = raw_connection(&s);
        assert_int_equal(send(fd, page, sizeof page, MSG_NOSIGNAL), sizeof page);
        while (recv(fd, answer, sizeof answer, 0) > 0) {}
        close(fd);
    }
    assert_in_range(count_in_log(&s, "does not speak gradmesh's protocol"), 1, TOLD);
    gm_error         e;
    struct gmi_store other;
    struct gmi_hello hello = hello_of(0, 3);
    strcpy(hello.job_id, "job-8"); /* who speaks it is told of nevertheless */
    assert_status(try_connect(&other, &s, hello, &e), GM_ERR_REFUSED);
    check_log(&s, "the store serves job 'job-7'");
    stop(&s);
}

static gm_status anybody(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    (void)user, (void)peer, (void)why, (void)why_bytes;
    return GM_OK;
}

/* Many more ranks at once than the table of pending handshakes holds: who loses his place calls again. */
static void a_crowd_of_good_ones_all_come_in(void **state)
{
    (void)state;
    enum { RANKS = 300 };
    struct served           s;
    static struct gmi_call  calls[RANKS];
    static bool             is_in[RANKS];
    struct gmi_poller       p;
    int                     n_in = 0;
    int64_t                 deadline_ns = gmi_deadline_after_ms(PATIENCE_MS);
    start(&s);
    gmi_poller_init(&p);
    for (int i = 0; i < RANKS; i++) {
        struct gmi_hello hello = hello_of(i, RANKS);
        hello.channel = GMI_CHANNEL_STORE;
        hello.target = GMI_NO_RANK;
        is_in[i] = false;
        gmi_call_init(&calls[i], "127.0.0.1", s.port, &hello, NULL, anybody);
    }
    while (n_in < RANKS && !gmi_deadline_passed(deadline_ns)) {
        int64_t next_ns = deadline_ns;
        gmi_poller_clear(&p);
        for (int i = 0; i < RANKS; i++) {
            if (is_in[i]) continue;
            is_in[i] = gmi_call_progress(&calls[i]) == GM_OK;
            n_in += is_in[i];
            gmi_call_watch(&calls[i], &p);
            if (gmi_call_next_ns(&calls[i]) < next_ns) next_ns = gmi_call_next_ns(&calls[i]);
        }
        if (n_in < RANKS) (void)gmi_poller_wait(&p, next_ns);
    }
    assert_int_equal(n_in, RANKS);
    for (int i = 0; i < RANKS; i++) {
        int fd = gmi_call_take_fd(&calls[i]);
        gmi_socket_close(&fd);
        gmi_call_fini(&calls[i]);
    }
    gmi_poller_fini(&p);
    stop(&s);
}

/* ---- where it serves ----------------------------------------------------------------------------- */

static void a_port_that_is_taken_is_named(void **state)
{
    (void)state;
    struct served            s;
    struct gmi_store_server *second;
    gm_error                 e;
    char                     text[64];
    start(&s);
    gmi_error_clear(&e);
    assert_status(gmi_store_server_create(&second, "127.0.0.1", s.port, "job-7", NULL, NULL, &e), GM_ERR_SYSTEM);
    assert_null(second);
    snprintf(text, sizeof text, "cannot listen on 127.0.0.1:%d: Address already in use", s.port);
    assert_contains(e.text, text);
    gmi_error_clear(&e);
    assert_status(gmi_store_server_create(&second, "no host of this name", 0, "job-7", NULL, NULL, &e), GM_ERR_ARG);
    assert_contains(e.text, "no host of this name");
    gmi_store_server_destroy(NULL);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claimed_key_is_found_by_others),
        cmocka_unit_test(waiters_are_answered_when_the_key_comes),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_can_be_repeated),
        cmocka_unit_test(an_answer_that_comes_too_late_is_passed_over),
        cmocka_unit_test(keys_are_listed_by_prefix),
        cmocka_unit_test(names_that_are_too_long_are_not_sent),
        cmocka_unit_test(a_second_copy_of_a_rank_is_refused_and_the_first_goes_on),
        cmocka_unit_test(a_successor_takes_the_place_of_the_dead),
        cmocka_unit_test(ranks_that_have_been_here_are_counted_once),
        cmocka_unit_test(those_who_do_not_belong_are_refused_on_both_sides),
        cmocka_unit_test(impossible_requests_end_that_connection_only),
        cmocka_unit_test(requests_may_come_in_bits_or_in_bulk),
        cmocka_unit_test(strangers_that_come_again_and_again_do_not_flood_the_log),
        cmocka_unit_test(silent_strangers_do_not_keep_a_good_one_out),
        cmocka_unit_test(a_crowd_of_good_ones_all_come_in),
        cmocka_unit_test(a_port_that_is_taken_is_named),
    };
    return cmocka_run_group_tests_name("store server", tests, NULL, NULL);
}
