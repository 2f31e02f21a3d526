/* checksum_test.c - one bit changes on its way between two processes, over TCP and in shared memory: with checksums every rank
 * says so, and names the sender; without them, that is what a wrong result looks like. */
#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/ranks.h"
#include "tests/support/test.h"

enum { N = 3, COUNT = 200000, VICTIM = 1, READY = 0, BEGUN = 1, FLIPPED = 2 };
static const uint32_t PATTERN = 0x4b4b4b4b; /* of 13,323,083.0f, in which each bit of the low byte counts */

struct plan {
    const char *checksum, *transport;
};

/* ---- TCP: the network card of this process ------------------------------------------------------- */

static atomic_bool is_card_broken;

/* In place of the C library's. Changes one bit of payload, once. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    size_t  left = got > 0 ? (size_t)got : 0;
    for (size_t i = 0; i < message->msg_iovlen && left > 0 && atomic_load(&is_card_broken); i++) {
        uint8_t *bytes = message->msg_iov[i].iov_base;
        size_t   n = message->msg_iov[i].iov_len < left ? message->msg_iov[i].iov_len : left;
        left -= n;
        for (size_t b = 0; b + 64 < n; b++) {
            if (memcmp(bytes + b, &PATTERN, 4) != 0) continue;
            bytes[b + 40] ^= 1;
            atomic_store(&is_card_broken, false);
            break;
        }
    }
    return got;
}

/* ---- memory: the module in which the rings lie ---------------------------------------------------- */

/* Changes one bit of payload that lies in a ring: behind what the barrier's last read may have taken along, and before what is
 * still being copied there. */
static bool flip_in_memory(void)
{
    enum { INTO_BYTES = 160 * 1024, FAR_BYTES = 208 * 1024 }; /* of a ring of 256 KiB */
    char  line[512];
    bool  is_flipped = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && !is_flipped && fgets(line, sizeof line, maps) != NULL) {
        unsigned long first, end;
        if (strstr(line, "memfd:") == NULL || sscanf(line, "%lx-%lx", &first, &end) != 2) continue;
        for (uint8_t *at = (uint8_t *)first; at + FAR_BYTES + 4 < (uint8_t *)end && !is_flipped; at += 4) { // NOLINT(performance-no-int-to-ptr)
            if (memcmp(at, &PATTERN, 4) != 0 || memcmp(at + INTO_BYTES, &PATTERN, 4) != 0 || memcmp(at + FAR_BYTES, &PATTERN, 4) != 0)
                continue;
            at[INTO_BYTES] ^= 1;
            is_flipped = true;
        }
    }
    if (maps != NULL) fclose(maps);
    return is_flipped;
}

/* ---- the job -------------------------------------------------------------------------------------- */

static float *make_values(void)
{
    float *values = malloc(COUNT * sizeof *values);
    for (size_t i = 0; values != NULL && i < COUNT; i++) memcpy(&values[i], &PATTERN, sizeof PATTERN);
    return values;
}

/* The victim comes later: what the others sent it lies in its rings, and in its sockets. */
static void gather_once(struct rank_self *self)
{
    const struct plan *p = self->user;
    self->options.checksum = p->checksum;
    rank_create(self);
    float   *values = make_values(), *all = calloc((size_t)N * COUNT, sizeof *all);
    gm_work *work = NULL;
    rank_check(self, values != NULL && all != NULL);
    rank_ok(self, gm_barrier(self->comm));
    if (self->rank == VICTIM) {
        rank_await(self, BEGUN, N - 1);
        if (strcmp(p->transport, "tcp") == 0) {
            atomic_store(&is_card_broken, true);
        } else {
            for (int tries = 0; tries < 5000 && !flip_in_memory(); tries++) usleep(1000);
        }
    }
    gm_status status = gm_all_gather_start(self->comm, values, all, (size_t)N * COUNT, GM_F32, &work);
    rank_mark(self, BEGUN);
    rank_ok(self, status);
    while ((status = gm_work_wait(work, 100)) == GM_AGAIN) {}
    gm_work_release(work);
    size_t n_wrong = 0;
    for (size_t i = 0; i < (size_t)N * COUNT; i++) n_wrong += memcmp(&all[i], &PATTERN, 4) != 0;
    self->record->numbers[0] = n_wrong;
    if (status == GM_OK) status = gm_barrier(self->comm); /* a rank may have all it needs before it hears of the flip */
    rank_record(self, status);
    free(values);
    free(all);
    rank_destroy(self);
}

static void check_all_name(struct ranks *r, int sender)
{
    char whom[32];
    snprintf(whom, sizeof whom, "what rank %d (", sender);
    for (int k = 0; k < N; k++) {
        const struct rank_record *rec = &ranks_shared(r)->records[k];
        if (rec->status != GM_ERR_CORRUPT || rec->error.culprit != sender || strstr(rec->error.text, whom) == NULL ||
            strstr(rec->error.text, "arrived changed") == NULL)
            fail_msg("rank %d, %s: %s", k, gm_status_name(rec->status), rec->error.text);
    }
}

static void run_with(void **state, const char *checksum, const char *transport)
{
    struct plan      p = { checksum, transport };
    struct ranks_job job = { .n_ranks = N, .body = gather_once, .user = &p, .transport = transport, .algorithm = "ring",
                             .is_plain = true /* an encrypted link notices by itself */ };
    struct ranks    *r = ranks_run(state, &job);
    if (checksum != NULL) {
        check_all_name(r, VICTIM - 1);
    } else {
        assert_int_equal(ranks_shared(r)->records[VICTIM].status, GM_OK);
        assert_true(ranks_shared(r)->records[VICTIM].numbers[0] > 0); /* nobody can know */
    }
}

static void a_bit_flipped_on_the_wire_is_named_by_all(void **state) { run_with(state, "crc32c", "tcp"); }
static void a_bit_flipped_in_shared_memory_is_named_by_all(void **state) { run_with(state, "crc32c", "shm"); }
static void without_checksums_it_goes_unnoticed(void **state) { run_with(state, NULL, "tcp"); }

/* ---- everything else as before --------------------------------------------------------------------- */

static void use_it_all(struct rank_self *self)
{
    static double x[30000], y[N * 30000];
    const struct plan *p = self->user;
    gm_traffic         all;
    self->options.checksum = p->checksum;
    rank_create(self);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 30000; i++) x[i] = i + self->rank;
        rank_ok(self, gm_all_reduce(self->comm, x, x, 30000, GM_F64, GM_SUM));
        for (int i = 0; i < 30000; i++) rank_check(self, x[i] == 3.0 * i + 3);
        rank_ok(self, gm_all_gather(self->comm, x, y, 1000, GM_F64));
        rank_ok(self, gm_sendrecv(self->comm, x, 100, (self->rank + 1) % N, 7, y, 100, (self->rank + 2) % N, 7, GM_F64));
        for (int i = 0; i < 100; i++) rank_check(self, y[i] == x[i]);
        rank_ok(self, gm_barrier(self->comm));
    }
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &all));
    bool is_memory = strcmp(p->transport, "shm") == 0;
    rank_check(self, !is_memory || all.memory_sent_bytes <= all.payload_sent_bytes + all.protocol_sent_bytes);
    rank_check(self, !is_memory || all.memory_sent_bytes > all.payload_sent_bytes);
    rank_destroy(self);
}

static void all_calls_work_with_checksums(void **state)
{
    static const char *const transports[] = { "tcp", "shm" }, *const algorithms[] = { "auto", "ring", "direct", "tree" };
    for (size_t i = 0; i < TEST_COUNT(transports); i++) {
        for (size_t k = 0; k < TEST_COUNT(algorithms); k++) {
            struct plan      p = { "crc32c", transports[i] };
            struct ranks_job job = { .n_ranks = N, .body = use_it_all, .user = &p, .transport = transports[i], .algorithm = algorithms[k] };
            ranks_run(state, &job);
            ranks_teardown(state);
        }
    }
}

static void want_it_alone(struct rank_self *self)
{
    gm_error error;
    if (self->rank == 2) self->options.checksum = "crc32c";
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    rank_check(self, status == GM_ERR_MISMATCH);
    rank_check(self, strstr(error.text, "checksum") != NULL && strstr(error.text, "crc32c") != NULL && strstr(error.text, "off") != NULL);
}

static void ranks_that_differ_are_told(void **state)
{
    struct ranks_job job = { .n_ranks = N, .body = want_it_alone };
    ranks_run(state, &job);
}

static void an_unknown_one_is_refused(void **state)
{
    gm_comm_options options;
    gm_comm        *comm;
    gm_error        error;
    (void)state;
    gm_comm_options_default(&options);
    options.rank = 0;
    options.world_size = 1;
    options.checksum = "md5";
    assert_status(gm_comm_create(&comm, &options, &error), GM_ERR_UNSUPPORTED);
    assert_string_equal(error.text, "there is no checksum 'md5'; there are: off, crc32c");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_bit_flipped_on_the_wire_is_named_by_all), TEST(a_bit_flipped_in_shared_memory_is_named_by_all),
        TEST(without_checksums_it_goes_unnoticed),       TEST(all_calls_work_with_checksums),
        TEST(ranks_that_differ_are_told),                TEST(an_unknown_one_is_refused),
    };
    return cmocka_run_group_tests_name("checksum", tests, NULL, NULL);
}
