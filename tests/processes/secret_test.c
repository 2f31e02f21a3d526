/* A job with a secret: its ranks find each other on every channel, and whoever does not know it is told so, or
 * turned away, without the others noticing. Floods of strangers cost neither time nor memory. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "net/socket.h"
#include "tests/support/ranks.h"

enum { N = 3, STRANGER = N, MET = 0, COME = 1, OVER = 2, READY = 3, GO = 4 };

static const char right[] = "what the ranks of this job know", wrong[] = "what those of another job know";

/* ---- every channel ---------------------------------------------------------------------------------- */

static void use_every_channel(struct rank_self *self)
{
    gm_comm *half;
    double   one = 1;
    int      n = self->world_size, right_peer = (self->rank + 1) % n, left_peer = (self->rank + n - 1) % n, got = -1;
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == n);
    rank_ok(self, gm_sendrecv(self->comm, &self->rank, 1, right_peer, 5, &got, 1, left_peer, 5, GM_I32));
    rank_check(self, got == left_peer);
    rank_ok(self, gm_comm_split(self->comm, self->rank % 2, 0, &half));
    one = 1;
    rank_ok(self, gm_all_reduce(half, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == gm_comm_size(half));
    gm_comm_destroy(half);
    rank_destroy(self);
}

static void with_a_secret_all_channels_work_over_tcp_and_memory(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = use_every_channel, .secret = right, .transport = "tcp" };
    ranks_run(state, &job);
    job.transport = "shm";
    ranks_run(state, &job);
    job.is_hand_started = true;
    ranks_run(state, &job);
}

/* ---- encryption ------------------------------------------------------------------------------------- */

enum { COUNT = 300001 };

/* Sizes around records and buffers; every byte of payload, protocol and encryption is counted by the kernel. */
static void use_encrypted_links(struct rank_self *self)
{
    static float values[COUNT], got[COUNT];
    int          n = self->world_size, peer = n - 1 - self->rank;
    rank_create(self);
    for (size_t count = 1; count <= COUNT; count = count * 7 + 1) {
        for (size_t i = 0; i < count; i++) values[i] = (float)((i + 1) % 1000) * (float)(self->rank + 1);
        rank_ok(self, gm_all_reduce(self->comm, values, got, count, GM_F32, GM_SUM));
        for (size_t i = 0; i < count; i++) rank_check(self, got[i] == (float)((i + 1) % 1000) * (float)(n * (n + 1) / 2));
        if (peer != self->rank) {
            rank_ok(self, gm_sendrecv(self->comm, values, count, peer, 1, got, count, peer, 1, GM_F32));
            for (size_t i = 0; i < count; i++) rank_check(self, got[i] == (float)((i + 1) % 1000) * (float)(peer + 1));
        }
    }
    gm_traffic t;
    uint64_t   sent, recv;
    rank_ok(self, gm_barrier(self->comm));
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    rank_ok(self, gm_comm_kernel_traffic(self->comm, &sent, &recv));
    if (t.payload_sent_bytes + t.protocol_sent_bytes - t.memory_sent_bytes != sent ||
        t.payload_recv_bytes + t.protocol_recv_bytes - t.memory_recv_bytes != recv) {
        rank_fail(self, __FILE__, __LINE__, "counted %llu + %llu sent, the kernel %llu; %llu + %llu received, the kernel %llu",
                  (unsigned long long)t.payload_sent_bytes, (unsigned long long)t.protocol_sent_bytes, (unsigned long long)sent,
                  (unsigned long long)t.payload_recv_bytes, (unsigned long long)t.protocol_recv_bytes, (unsigned long long)recv);
    }
    rank_destroy(self);
}

static void encrypted_links_carry_everything_and_are_counted_to_the_byte(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = use_encrypted_links, .secret = right, .is_encrypted = true, .transport = "tcp" };
    ranks_run(state, &job);
    job.algorithm = "direct";
    ranks_run(state, &job);
    job.n_ranks = 2;
    job.body = use_every_channel;
    ranks_run(state, &job);
    job.is_hand_started = true;
    ranks_run(state, &job);
}

/* All are told, also who agrees with the most. */
static void differ_in_encryption(struct rank_self *self)
{
    const int *who = self->user;
    gm_error   error;
    char       has_it[32], has_it_not[32];
    self->options.encrypt = self->rank == *who;
    rank_expect(self, GM_ERR_MISMATCH, gm_comm_create(&self->comm, &self->options, &error));
    snprintf(has_it, sizeof has_it, "rank %d has 'on'", *who);
    snprintf(has_it_not, sizeof has_it_not, "rank %d has 'off'", *who == 0 ? error.culprit : 0);
    rank_check(self, strstr(error.text, "'encryption' differs") != NULL && strstr(error.text, has_it) != NULL);
    rank_check(self, strstr(error.text, has_it_not) != NULL);
}

static void ranks_that_differ_in_encryption_are_a_mismatch(void **state)
{
    for (int who = 0; who < 3; who++) {
        struct ranks_job job = { .n_ranks = 3, .body = differ_in_encryption, .user = &who, .secret = right };
        ranks_run(state, &job);
        ranks_teardown(state);
    }
}

/* ---- who does not know it --------------------------------------------------------------------------- */

static void check_sum(struct rank_self *self)
{
    double one = 1;
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == N);
}

/* A file of this process with the text; "" is none. */
static const char *file_with(struct rank_self *self, const char *text, mode_t mode)
{
    static char path[64];
    if (text[0] == '\0') return NULL;
    int fd = memfd_create("secret", MFD_CLOEXEC);
    rank_check(self, fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

struct intruder {
    const char *secret, *is_told;
};

static void be_among(struct rank_self *self)
{
    const struct intruder *i = self->user;
    if (self->rank == STRANGER) {
        gm_error error;
        rank_await(self, MET, N);
        self->options.rank = 2;
        self->options.world_size = N;
        self->options.secret_file = file_with(self, i->secret, 0600);
        int64_t begin_ns = gmi_now_ns();
        rank_expect(self, GM_ERR_REFUSED, gm_comm_create(&self->comm, &self->options, &error));
        rank_check(self, gmi_now_ns() - begin_ns < 2000 * GMI_NS_PER_MS * ranks_slowness());
        if (strstr(error.text, i->is_told) == NULL) rank_fail(self, __FILE__, __LINE__, "was told: %s", error.text);
        rank_mark(self, OVER);
        return;
    }
    self->options.world_size = N;
    rank_create(self);
    check_sum(self);
    rank_mark(self, MET);
    rank_await(self, OVER, 1);
    check_sum(self);
    rank_destroy(self);
}

static void who_does_not_know_the_secret_is_told_so_and_the_job_goes_on(void **state)
{
    static const struct intruder intruders[] = { { wrong, "does not know this job's secret" },
                                                 { "", "its job has a secret, and there is none here: set GRADMESH_SECRET_FILE" } };
    static const char *const     store_says[] = { "does not know this job's secret", "it has no secret, and this job has one" };
    for (int i = 0; i < 2; i++) {
        struct ranks_job job = { .n_ranks = N + 1, .body = be_among, .user = &intruders[i], .secret = right,
                                 .is_plain = i == 1 /* who is to encrypt without a secret does not get so far */ };
        struct ranks    *r = ranks_run(state, &job);
        assert_non_null(strstr(ranks_store_said(r), store_says[i]));
        for (int k = 0; k < N; k++) assert_null(strstr(ranks_said(r, k), "refused"));
    }
}

static void fail_by_options(struct rank_self *self)
{
    gm_error error;
    char     store[64];
    self->options.secret_file = file_with(self, right, 0640);
    rank_expect(self, GM_ERR_ARG, gm_comm_create(&self->comm, &self->options, &error));
    rank_check(self, strstr(error.text, "may be used by others") != NULL);
    self->options.secret_file = NULL;
    self->options.encrypt = 1;
    rank_expect(self, GM_ERR_ARG, gm_comm_create(&self->comm, &self->options, &error));
    rank_check(self, strstr(error.text, "encryption needs a secret") != NULL);
    self->options.encrypt = 0;
    self->options.insecure = 0;
    snprintf(store, sizeof store, "192.0.2.1:29500"); /* an address that is nobody's */
    self->options.store = store;
    rank_expect(self, GM_ERR_ARG, gm_comm_create(&self->comm, &self->options, &error));
    rank_check(self, strstr(error.text, "this job has no secret") != NULL);
    self->options.store = NULL;
    self->options.master_addr = "0.0.0.0";
    self->options.master_port = 29500;
    self->options.rank = 0;
    rank_expect(self, GM_ERR_ARG, gm_comm_create(&self->comm, &self->options, &error));
    rank_check(self, strstr(error.text, "this job has no secret") != NULL);
}

static void a_readable_file_and_a_world_beyond_loopback_without_a_secret_are_refused(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = fail_by_options };
    ranks_run(state, &job);
}

/* ---- floods ----------------------------------------------------------------------------------------- */

enum { FLOOD_SLOTS = 400, START_UP_MS = 1000 };

static int start_connection(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) (void)!connect(fd, (struct sockaddr *)&to, sizeof to);
    return fd;
}

/* What a stranger sends: nothing, HTTP, noise, half a hello, a whole one with a proof that is none, or that one byte by byte. */
static void send_something(int fd, unsigned kind, const uint8_t *recorded, size_t recorded_bytes)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", noise[] = "\x16\x03\x01\x02\x00\x01\x00\x01";
    switch (kind % 6) {
    case 1: (void)!send(fd, http, sizeof http - 1, MSG_NOSIGNAL); break;
    case 2: (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL); break;
    case 3: (void)!send(fd, recorded, GMI_HELLO_BYTES / 2, MSG_NOSIGNAL); break;
    case 4: (void)!send(fd, recorded, recorded_bytes, MSG_NOSIGNAL); break;
    case 5: (void)!send(fd, recorded, 1 + kind % GMI_HELLO_BYTES, MSG_NOSIGNAL); break;
    default: break;
    }
}

/* Keeps FLOOD_SLOTS connections of all kinds open to each port in turn, replacing the oldest without end. */
static uint64_t flood(struct rank_self *self, const int *ports, int n_ports, int until_mark, int at_least)
{
    static int       fds[FLOOD_SLOTS];
    struct gmi_hello hello = { .version = GMI_PROTOCOL_VERSION, .flags = GMI_HELLO_HAS_SECRET, .channel = GMI_CHANNEL_STORE,
                               .rank = 1, .target = -1, .world_size = N, .group = gmi_group_id("world"), .job_id = "test" };
    uint8_t  recorded[GMI_HELLO_BYTES + GMI_PROOF_BYTES + GMI_VERDICT_BYTES] = { 0 };
    uint64_t n = 0;
    gmi_hello_encode(&hello, recorded);
    memset(fds, -1, sizeof fds);
    while (atomic_load(&self->shared->marks[until_mark]) < at_least) {
        int *fd = &fds[n % FLOOD_SLOTS];
        if (*fd >= 0) {
            send_something(*fd, (unsigned)(n / 7), recorded, sizeof recorded); /* a last word */
            close(*fd);
        }
        *fd = start_connection(ports[n % (uint64_t)n_ports]);
        if (*fd >= 0) send_something(*fd, (unsigned)(n / (uint64_t)n_ports), recorded, sizeof recorded);
        n++;
        if (n % 16 == 0) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); /* 2 cores: some is left to the others */
    }
    for (int i = 0; i < FLOOD_SLOTS; i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
    return n;
}

static long resident_kb(struct rank_self *self)
{
    char  line[128];
    long  kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    rank_check(self, f != NULL);
    while (fgets(line, sizeof line, f) != NULL) (void)!sscanf(line, "VmRSS: %ld", &kb);
    fclose(f);
    return kb;
}

static int own_port(const struct rank_self *self)
{
    struct gmi_address address;
    gmi_socket_own_address(self->comm->acceptor.listener_fd, &address);
    return gmi_address_port(&address);
}

static void live_through_floods(struct rank_self *self)
{
    if (self->rank == STRANGER) {
        int ports[N + 1] = { atoi(strrchr(self->options.store, ':') + 1) };
        rank_mark(self, READY);
        self->record->numbers[0] = flood(self, ports, 1, MET, N); /* the store, while they start */
        for (int k = 0; k < N; k++) ports[1 + k] = (int)self->shared->records[k].numbers[0];
        rank_mark(self, GO);
        self->record->numbers[1] = flood(self, ports, N + 1, OVER, 1); /* control and data listeners, while they work */
        return;
    }
    self->options.world_size = N;
    rank_await(self, READY, 1);
    int64_t begin_ns = gmi_now_ns();
    rank_create(self);
    self->record->numbers[1] = (uint64_t)((gmi_now_ns() - begin_ns) / GMI_NS_PER_MS);
    rank_check(self, gmi_now_ns() - begin_ns < START_UP_MS * GMI_NS_PER_MS * ranks_slowness());
    check_sum(self);
    self->record->numbers[0] = (uint64_t)own_port(self);
    rank_mark(self, MET);
    rank_await(self, GO, 1);
    int64_t until_ns = 0;
    long    before_kb = 0;
    double  over;
    do {
        check_sum(self);
        if (until_ns == 0 && gmi_now_ns() - begin_ns > 300 * GMI_NS_PER_MS) { /* when the table of pending ones has filled */
            before_kb = resident_kb(self);
            until_ns = gmi_deadline_after_ms(1200);
        }
        over = until_ns != 0 && gmi_deadline_passed(until_ns);
        rank_ok(self, gm_all_reduce(self->comm, &over, &over, 1, GM_F64, GM_MIN));
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    } while (over == 0);
    int n_fds = ranks_open_descriptors();
    long growth_kb = resident_kb(self) - before_kb;
    rank_mark(self, OVER);
    if (growth_kb > 1024 * ranks_slowness()) rank_fail(self, __FILE__, __LINE__, "grew by %ld kB", growth_kb);
    if (n_fds > 40 + GMI_MAX_PENDING) rank_fail(self, __FILE__, __LINE__, "has %d descriptors", n_fds);
    rank_destroy(self);
}

static int count_lines(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) n++;
    return n;
}

static void floods_of_strangers_delay_nobody_and_cost_no_memory(void **state)
{
    struct ranks_job job = { .n_ranks = N + 1, .body = live_through_floods, .secret = right };
    struct ranks    *r = ranks_run(state, &job);
    struct ranks_shared *shared = ranks_shared(r);
    print_message("# %llu connections to the store while %llu, %llu, %llu ms passed; %llu to all listeners afterwards\n",
                  (unsigned long long)shared->records[STRANGER].numbers[0], (unsigned long long)shared->records[0].numbers[1],
                  (unsigned long long)shared->records[1].numbers[1], (unsigned long long)shared->records[2].numbers[1],
                  (unsigned long long)shared->records[STRANGER].numbers[1]);
    assert_true(shared->records[STRANGER].numbers[1] > 200);
    for (int k = 0; k < N; k++) {
        const char *said = ranks_said(r, k);
        assert_true(count_lines(said, "does not speak gradmesh's protocol") >= 1);
        assert_true(count_lines(said, "does not know this job's secret") >= 1);
        assert_true(count_lines(said, "\n") < 60); /* of a thousand visitors */
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(with_a_secret_all_channels_work_over_tcp_and_memory),
        TEST(encrypted_links_carry_everything_and_are_counted_to_the_byte),
        TEST(ranks_that_differ_in_encryption_are_a_mismatch),
        TEST(who_does_not_know_the_secret_is_told_so_and_the_job_goes_on),
        TEST(a_readable_file_and_a_world_beyond_loopback_without_a_secret_are_refused),
        TEST(floods_of_strangers_delay_nobody_and_cost_no_memory),
    };
    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
