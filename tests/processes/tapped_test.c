/* What somebody sees who records all that the processes of a job send over TCP: this test stands in for sendmsg(), the one
 * call by which gradmesh sends, and looks for what only members may know. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "tests/support/ranks.h"

enum { N = 3, COUNT = 5000, TAP_BYTES = 4 << 20, MET = 0, LEFT = 1 };

static const char secret[] = "what nobody on the wire knows", group[] = "tapped-group", fingerprint[] = "learning rate=0.03125\n",
                  reason[] = "the loss is not a number";

/* Of each rank, and of the process that serves the store: all that it sent, one after the other. */
struct tap {
    size_t  n_bytes;
    bool    is_full;
    uint8_t bytes[TAP_BYTES];
};

static struct tap      *taps, *tap; /* shared; that of this process */
static pthread_mutex_t  tap_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_internet(int fd)
{
    int       domain = 0;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && (domain == AF_INET || domain == AF_INET6);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
    if (sent <= 0 || tap == NULL || !is_internet(fd)) return sent;
    size_t left_bytes = (size_t)sent;
    pthread_mutex_lock(&tap_lock); /* the caller and the service thread both send */
    for (size_t i = 0; i < message->msg_iovlen && left_bytes > 0; i++) {
        size_t n = gmi_min_size(message->msg_iov[i].iov_len, left_bytes);
        left_bytes -= n;
        if (tap->is_full || n > TAP_BYTES - tap->n_bytes) {
            tap->is_full = true;
            break;
        }
        memcpy(tap->bytes + tap->n_bytes, message->msg_iov[i].iov_base, n);
        tap->n_bytes += n;
    }
    pthread_mutex_unlock(&tap_lock);
    return sent;
}

static float number_of(int rank, size_t i) { return (float)(rank + 1) * 1000.0f + (float)i * 0.25f; }

/* Joins, broadcasts; then either one fails all with a reason, or rank 0 leaves and the others send messages. */
static void say_everything(struct rank_self *self)
{
    static float values[COUNT];
    const bool  *fails = self->user;
    tap = &taps[self->rank];
    self->options.group = group;
    self->options.fingerprint = fingerprint;
    for (size_t i = 0; i < COUNT; i++) values[i] = number_of(self->rank, i);
    rank_create(self);
    rank_ok(self, gm_broadcast(self->comm, values, COUNT, GM_F32, 1));
    rank_meet(self, MET, N);
    if (*fails) {
        if (self->rank == 2) rank_ok(self, gm_comm_abort(self->comm, reason));
        rank_expect(self, GM_ERR_ABORTED, gm_barrier(self->comm));
        rank_check(self, strstr(gm_comm_error(self->comm)->text, reason) != NULL);
    }
    rank_destroy(self);
}

static void leave_first(struct rank_self *self)
{
    static float values[COUNT];
    tap = &taps[self->rank];
    for (size_t i = 0; i < COUNT; i++) values[i] = number_of(self->rank, i);
    rank_create(self);
    if (self->rank > 0) {
        rank_await(self, LEFT, 1);
        if (self->rank == 1) rank_ok(self, gm_send(self->comm, values, COUNT, GM_F32, 2, 7));
        if (self->rank == 2) rank_ok(self, gm_recv(self->comm, values, COUNT, GM_F32, 1, 7));
        rank_check(self, values[7] == number_of(1, 7));
    }
    rank_destroy(self);
    rank_mark(self, LEFT);
}

static bool was_seen(const void *bytes, size_t n_bytes)
{
    for (int k = 0; k <= N; k++) {
        if (memmem(taps[k].bytes, taps[k].n_bytes, bytes, n_bytes) != NULL) return true;
    }
    return false;
}

static bool was_text_seen(const char *text) { return was_seen(text, strlen(text)); }

static void listen_to(void **state, void (*body)(struct rank_self *), bool fails, bool is_encrypted)
{
    struct ranks_job job = { .n_ranks = N, .body = body, .user = &fails, .secret = secret, .is_encrypted = is_encrypted, .is_plain = !is_encrypted, .transport = "tcp" };
    for (int k = 0; k <= N; k++) taps[k].n_bytes = 0;
    tap = &taps[N];
    ranks_run(state, &job);
    ranks_teardown(state);
    tap = NULL;
    for (int k = 0; k <= N; k++) assert_true(taps[k].n_bytes > 0 && !taps[k].is_full);
}

static bool was_payload_seen(void)
{
    for (size_t i = 0; i + 4 <= COUNT; i += 4) {
        float payload[4];
        for (size_t k = 0; k < 4; k++) payload[k] = number_of(1, i + k);
        if (was_seen(payload, sizeof payload)) return true;
    }
    return false;
}

/* Keys in the store, addresses, a line of the settings, the reason of a failure, the payload. */
static void without_encryption_the_tap_sees_it_all(void **state)
{
    listen_to(state, say_everything, true, false);
    assert_true(was_text_seen("tapped-group/0") && was_text_seen("127.0.0.1:") && was_text_seen("learning rate"));
    assert_true(was_text_seen(reason) && was_payload_seen());
    assert_false(was_text_seen(secret));
    listen_to(state, leave_first, false, false);
    assert_true(was_payload_seen());
}

static void with_encryption_nothing_that_is_said_can_be_read_on_the_wire(void **state)
{
    for (int fails = 0; fails <= 1; fails++) {
        listen_to(state, say_everything, fails, true);
        assert_false(was_text_seen("tapped-group") || was_text_seen("127.0.0.1:") || was_text_seen("learning rate"));
        assert_false(was_text_seen("encryption=") || was_text_seen(reason) || was_text_seen(secret) || was_payload_seen());
        assert_true(was_text_seen("GRADMESH")); /* the hellos can */
    }
    listen_to(state, leave_first, false, true);
    assert_false(was_text_seen("127.0.0.1:") || was_text_seen("world") || was_payload_seen());
}

static int make_taps(void **state)
{
    (void)state;
    taps = mmap(NULL, (N + 1) * sizeof *taps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return taps == MAP_FAILED;
}

#define TEST(f) cmocka_unit_test_teardown(f, ranks_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_encryption_the_tap_sees_it_all),
        TEST(with_encryption_nothing_that_is_said_can_be_read_on_the_wire),
    };
    return cmocka_run_group_tests_name("tapped", tests, make_taps, NULL);
}
