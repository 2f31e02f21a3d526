/* link_shm_test.c - links through shared memory between threads and between processes: nobody
 * sleeps through what he waits for, and nobody waits for the dead. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/poller.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "transport/link.h"
#include "transport/shm_segment.h"

enum { SMALL = GMI_SHM_MIN_CAPACITY_BYTES, FREELY = 1 << 30, MIB = 1 << 20 };
enum { LOST_MS = 5000, DEATH_MS = 1000 };

/* ---- making a pair --------------------------------------------------------------------------- */

/* What two processes would have after passing it on. */
struct parts {
    int memory_fd, bell_fds[2], lifeline_fds[2];
};

static struct parts make_parts(size_t capacity_bytes)
{
    struct parts           p;
    struct gmi_shm_segment segment;
    int                    sys_errno;
    assert_ok(gmi_shm_segment_create(&segment, capacity_bytes, &p.memory_fd, &sys_errno));
    gmi_shm_segment_unmap(&segment);
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p.lifeline_fds), 0);
    for (int i = 0; i < 2; i++)
        assert_true((p.bell_fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) >= 0);
    return p;
}

static struct gmi_link *make_end(const struct parts *p, size_t capacity_bytes, int side)
{
    struct gmi_shm_segment segment;
    const int              bells[2] = { dup(p->bell_fds[0]), dup(p->bell_fds[1]) };
    int                    sys_errno;
    assert_ok(gmi_shm_segment_map(&segment, capacity_bytes, p->memory_fd, &sys_errno));
    struct gmi_link *link = gmi_link_shm_create(dup(p->lifeline_fds[side]), &segment, side, bells);
    assert_non_null(link);
    return link;
}

static void close_parts(struct parts *p)
{
    close(p->memory_fd);
    for (int i = 0; i < 2; i++) {
        close(p->bell_fds[i]);
        close(p->lifeline_fds[i]);
    }
}

static void make_pair(struct gmi_link *ends[2], size_t capacity_bytes)
{
    struct parts p = make_parts(capacity_bytes);
    for (int i = 0; i < 2; i++) ends[i] = make_end(&p, capacity_bytes, i);
    close_parts(&p);
}

/* ---- moving, as a collective does ------------------------------------------------------------ */

/* One side of a test: sends and receives so many bytes of known streams, and sleeps when nothing
 * moves. */
struct mover {
    struct gmi_link *link;
    int              side;
    uint64_t         to_send, to_recv, sent, got;
    uint64_t         ahead_bytes; /* it sends so much more than it has got, at most */
    size_t           max_move_bytes;
    uint64_t         max_tries; /* before it sleeps */
    uint64_t         n_sleeps;
    const char      *trouble; /* NULL: none */
};

static uint8_t byte_of(int side, uint64_t i)
{
    return (uint8_t)(gmi_rng_u64((uint64_t)side, i >> 3) >> (8 * (i & 7)));
}

static uint64_t sendable(const struct mover *m)
{
    uint64_t limit = m->got + m->ahead_bytes;
    return (limit < m->to_send ? limit : m->to_send) - m->sent;
}

static bool move_out(struct mover *m, struct gmi_rng *rng)
{
    uint8_t bytes[4 * SMALL];
    size_t  n = 1 + gmi_rng_next_below(rng, m->max_move_bytes), moved = 0;
    if (n > sendable(m)) n = (size_t)sendable(m);
    if (n == 0) return false;
    for (size_t i = 0; i < n; i++) bytes[i] = byte_of(m->side, m->sent + i);
    struct iovec part = { bytes, n };
    gm_status    status = gmi_link_send_some(m->link, &part, 1, &moved);
    if (status != GM_OK && status != GM_AGAIN) m->trouble = "sending failed";
    m->sent += moved;
    return moved > 0;
}

/* Sometimes by way of what the link lends. */
static gm_status receive(struct gmi_link *link, uint8_t *bytes, size_t n_bytes, struct gmi_rng *rng, size_t *moved)
{
    struct iovec   part = { bytes, n_bytes };
    const uint8_t *lent;
    if (gmi_rng_next_below(rng, 2)) return gmi_link_recv_some(link, &part, 1, moved);
    gm_status status = gmi_link_peek(link, &lent, moved);
    if (status != GM_OK) return status;
    if (*moved > n_bytes) *moved = n_bytes;
    memcpy(bytes, lent, *moved);
    gmi_link_consume(link, *moved);
    return GM_OK;
}

static bool move_in(struct mover *m, struct gmi_rng *rng)
{
    uint8_t bytes[4 * SMALL];
    size_t  n = 1 + gmi_rng_next_below(rng, m->max_move_bytes), moved = 0;
    if (n > m->to_recv - m->got) n = (size_t)(m->to_recv - m->got);
    if (n == 0) return false;
    gm_status status = receive(m->link, bytes, n, rng, &moved);
    if (status != GM_OK && status != GM_AGAIN) m->trouble = "receiving failed";
    for (size_t i = 0; i < moved; i++) {
        if (bytes[i] != byte_of(1 - m->side, m->got + i))
            m->trouble = "other bytes arrived than were sent";
    }
    m->got += moved;
    return moved > 0;
}

static bool is_done(const struct mover *m)
{
    return m->trouble != NULL || (m->sent == m->to_send && m->got == m->to_recv);
}

/* A wait that outlasts the limit was for what had come already, or would have: the other side never
 * stops. */
static void sleep_until_ready(struct mover *m, struct gmi_poller *poller)
{
    unsigned interest =
        (m->got < m->to_recv ? GMI_READABLE : 0u) | (sendable(m) > 0 ? GMI_WRITABLE : 0u);
    gmi_poller_clear(poller);
    gmi_link_watch(m->link, poller, interest);
    m->n_sleeps++;
    if (gmi_poller_wait(poller, gmi_deadline_after_ms(LOST_MS * ranks_slowness())) == GM_AGAIN)
        m->trouble = "slept for ever";
}

static void *move_all(void *user)
{
    struct mover     *m = user;
    struct gmi_rng    rng = { .key = (uint64_t)m->side + 10 };
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    while (!is_done(m)) {
        uint64_t tries = 1 + gmi_rng_next_below(&rng, m->max_tries);
        bool     has_moved = false;
        for (uint64_t i = 0; i < tries && !has_moved; i++) {
            has_moved = move_out(m, &rng);
            has_moved = move_in(m, &rng) || has_moved;
        }
        if (!has_moved && !is_done(m)) sleep_until_ready(m, &poller);
    }
    gmi_poller_fini(&poller);
    return NULL;
}

/* ---- nobody sleeps for ever ------------------------------------------------------------------ */

struct traffic {
    const char *name;
    uint64_t    bytes[2], ahead_bytes[2]; /* that each side sends, and may be ahead */
    size_t      max_move_bytes[2];
    uint64_t    max_tries;
};

static const struct traffic traffics[] = {
    { "ping-pong of one byte, asleep in between", { 3000, 3000 }, { 1, 0 }, { 1, 1 }, 1 },
    { "ping-pong of one byte, sometimes awake", { 10000, 10000 }, { 1, 0 }, { 1, 1 }, 200 },
    { "both ways at once", { MIB, MIB }, { FREELY, FREELY }, { 3000, 3000 }, 1 },
    { "both ways at once, sometimes awake", { MIB, MIB }, { FREELY, FREELY }, { 3000, 3000 }, 50 },
    { "a full ring, emptied in bites", { MIB / 2, 0 }, { FREELY, FREELY }, { 4 * SMALL, 200 }, 1 },
    { "an empty ring, filled in bites", { MIB / 2, 0 }, { FREELY, FREELY }, { 200, 4 * SMALL }, 1 },
    { "full and empty in turns", { MIB, MIB }, { SMALL, SMALL / 2 }, { 4 * SMALL, 4 * SMALL }, 3 },
};

static struct mover mover_of(const struct traffic *t, struct gmi_link *link, int side)
{
    uint64_t part = (uint64_t)ranks_slowness();
    return (struct mover){ .link = link,
                           .side = side,
                           .to_send = t->bytes[side] / part,
                           .to_recv = t->bytes[1 - side] / part,
                           .ahead_bytes = t->ahead_bytes[side],
                           .max_move_bytes = t->max_move_bytes[side],
                           .max_tries = t->max_tries };
}

static void check_mover(const struct traffic *t, const struct mover *m)
{
    if (m->trouble == NULL) return;
    fail_msg("%s: side %d, after %llu of %llu bytes sent and %llu of %llu received: %s", t->name,
             m->side, (unsigned long long)m->sent, (unsigned long long)m->to_send,
             (unsigned long long)m->got, (unsigned long long)m->to_recv, m->trouble);
}

static void between_threads_all_arrives_whoever_sleeps_when(void **state)
{
    (void)state;
    uint64_t n_sleeps = 0;
    for (size_t i = 0; i < TEST_COUNT(traffics); i++) {
        const struct traffic *t = &traffics[i];
        struct gmi_link      *ends[2];
        pthread_t             other;
        make_pair(ends, SMALL);
        struct mover movers[2] = { mover_of(t, ends[0], 0), mover_of(t, ends[1], 1) };
        assert_int_equal(pthread_create(&other, NULL, move_all, &movers[1]), 0);
        move_all(&movers[0]);
        pthread_join(other, NULL);
        for (int k = 0; k < 2; k++) {
            check_mover(t, &movers[k]);
            n_sleeps += movers[k].n_sleeps;
            gmi_link_close(ends[k]);
        }
    }
    assert_true(n_sleeps > 500); /* else this has tested nothing */
}

/* A child that dies with this process, and does so after its work: status 0 when all went well. */
typedef void (*work_fn)(struct gmi_link *link, void *user);

static pid_t start_child(struct parts *parts, size_t capacity_bytes, work_fn work, void *user)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct gmi_link *link = make_end(parts, capacity_bytes, 1);
    close_parts(parts); /* the other side's lifeline would keep it alive */
    work(link, user);
    _exit(0);
}

static void move_in_child(struct gmi_link *link, void *user)
{
    struct mover m = mover_of(user, link, 1);
    move_all(&m);
    gmi_link_close(link);
    if (m.trouble != NULL) fprintf(stderr, "the other process: %s\n", m.trouble);
    _exit(m.trouble != NULL);
}

static void between_processes_all_arrives_whoever_sleeps_when(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(traffics); i++) {
        const struct traffic *t = &traffics[i];
        struct parts          parts = make_parts(SMALL);
        struct gmi_link      *link = make_end(&parts, SMALL, 0);
        pid_t                 pid = start_child(&parts, SMALL, move_in_child, (void *)t);
        int                   wait_status = 1;
        close_parts(&parts);
        struct mover m = mover_of(t, link, 0);
        move_all(&m);
        gmi_link_close(link);
        if (m.trouble != NULL) kill(pid, SIGKILL);
        waitpid(pid, &wait_status, 0);
        check_mover(t, &m);
        assert_int_equal(wait_status, 0);
    }
}

static void a_watch_on_what_is_there_already_does_not_sleep(void **state)
{
    (void)state;
    struct gmi_link  *ends[2];
    struct gmi_poller poller;
    uint8_t           byte = 1;
    struct iovec      part = { &byte, 1 };
    size_t            moved;
    make_pair(ends, SMALL);
    gmi_poller_init(&poller);
    gmi_link_watch(ends[0], &poller, GMI_READABLE);
    assert_status(gmi_poller_wait(&poller, gmi_deadline_after_ms(1)), GM_AGAIN); /* nothing there */
    gmi_poller_clear(&poller);
    gmi_link_watch(ends[0], &poller, GMI_WRITABLE);
    assert_ok(gmi_poller_wait(&poller, GMI_NEVER));
    assert_ok(gmi_link_send_some(ends[1], &part, 1, &moved));
    gmi_poller_clear(&poller);
    gmi_link_watch(ends[0], &poller, GMI_READABLE);
    assert_ok(gmi_poller_wait(&poller, GMI_NEVER));
    assert_ok(gmi_link_recv_some(ends[0], &part, 1, &moved));
    for (int i = 0; i < 3; i++) { /* no old ring keeps anybody awake */
        assert_status(gmi_link_recv_some(ends[0], &part, 1, &moved), GM_AGAIN);
        gmi_poller_clear(&poller);
        gmi_link_watch(ends[0], &poller, GMI_READABLE);
        assert_status(gmi_poller_wait(&poller, gmi_deadline_after_ms(1)), GM_AGAIN);
    }
    gmi_poller_fini(&poller);
    for (int i = 0; i < 2; i++) gmi_link_close(ends[i]);
}

/* ---- a peer that dies ------------------------------------------------------------------------ */

static void send_a_little_and_wait(struct gmi_link *link, void *user)
{
    uint8_t      bytes[100];
    struct iovec part = { bytes, sizeof bytes };
    size_t       moved;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = byte_of(1, i);
    if (gmi_link_send_some(link, &part, 1, &moved) != GM_OK || moved != sizeof bytes) _exit(1);
    atomic_store((atomic_bool *)user, true);
    for (;;) pause();
}

/* What this process is doing when the other one is killed. */
enum waiting { FOR_BYTES, FOR_ROOM, FOR_BOTH, NOT_YET };

/* Until the link says that the peer is lost; milliseconds, or -1. */
static int ms_until_lost(struct gmi_link *link, enum waiting waiting, pid_t victim)
{
    static uint8_t    bytes[2 * SMALL];
    struct iovec      out = { bytes, sizeof bytes };
    struct gmi_poller poller;
    int64_t killed_ns = 0, deadline_ns = gmi_deadline_after_ms(10 * DEATH_MS * ranks_slowness());
    gm_status         status = GM_AGAIN;
    uint64_t          got = 0;
    gmi_poller_init(&poller);
    while (status != GM_ERR_PEER_LOST && !gmi_deadline_passed(deadline_ns)) {
        uint8_t      arrived[64];
        struct iovec in = { arrived, sizeof arrived };
        size_t       moved;
        status = GM_AGAIN;
        if (waiting != FOR_ROOM) {
            status = gmi_link_recv_some(link, &in, 1, &moved);
            for (size_t i = 0; i < moved; i++) assert_int_equal(arrived[i], byte_of(1, got + i));
            got += moved;
        }
        if (status == GM_AGAIN && (waiting == FOR_ROOM || waiting == FOR_BOTH)) {
            status = gmi_link_send_some(link, &out, 1, &moved);
        }
        assert_true(status == GM_OK || status == GM_AGAIN || status == GM_ERR_PEER_LOST);
        if (status != GM_AGAIN) continue;
        if (killed_ns == 0 && waiting == NOT_YET) {
            kill(victim, SIGKILL);
            waitpid(victim, NULL, 0);
            killed_ns = gmi_now_ns();
        }
        gmi_poller_clear(&poller);
        gmi_link_watch(link, &poller,
                       waiting == FOR_ROOM   ? GMI_WRITABLE
                       : waiting == FOR_BOTH ? GMI_READABLE | GMI_WRITABLE
                                             : GMI_READABLE);
        if (killed_ns == 0) { /* asleep by then, as far as the segment shows */
            killed_ns = gmi_now_ns();
            kill(victim, SIGKILL);
        }
        (void)gmi_poller_wait(&poller, deadline_ns);
    }
    gmi_poller_fini(&poller);
    if (waiting != FOR_ROOM && status == GM_ERR_PEER_LOST)
        assert_int_equal(got, 100); /* all it had sent */
    return status == GM_ERR_PEER_LOST ? (int)((gmi_now_ns() - killed_ns) / GMI_NS_PER_MS) : -1;
}

static void a_killed_peer_is_noticed_whatever_we_wait_for(void **state)
{
    (void)state;
    for (enum waiting waiting = FOR_BYTES; waiting <= NOT_YET; waiting++) {
        atomic_bool *has_sent =
            mmap(NULL, sizeof *has_sent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct parts     parts = make_parts(SMALL);
        struct gmi_link *link = make_end(&parts, SMALL, 0);
        pid_t            pid = start_child(&parts, SMALL, send_a_little_and_wait, has_sent);
        close_parts(&parts);
        int64_t deadline_ns = gmi_deadline_after_ms(LOST_MS * ranks_slowness());
        while (!atomic_load(has_sent) && !gmi_deadline_passed(deadline_ns)) usleep(100);
        int took_ms = ms_until_lost(link, waiting, pid);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (took_ms < 0 || took_ms >= DEATH_MS)
            fail_msg("waiting %d: lost after %d ms", (int)waiting, took_ms);
        assert_int_equal(link->sys_errno, 0);
        uint8_t      byte = 0;
        struct iovec part = { &byte, 1 };
        size_t       moved;
        assert_status(gmi_link_send_some(link, &part, 1, &moved),
                      GM_ERR_PEER_LOST); /* and stays so */
        assert_status(gmi_link_recv_some(link, &part, 1, &moved),
                      waiting == FOR_ROOM ? GM_OK : GM_ERR_PEER_LOST);
        gmi_link_close(link);
        munmap(has_sent, sizeof *has_sent);
    }
}

/* ---- a peer that is mad ---------------------------------------------------------------------- */

static void impossible_positions_end_the_link(void **state)
{
    (void)state;
    for (int is_sending = 0; is_sending < 2; is_sending++) {
        struct parts           parts = make_parts(SMALL);
        struct gmi_link       *link = make_end(&parts, SMALL, 0);
        struct gmi_shm_segment segment;
        uint8_t                bytes[2 * SMALL] = { 0 };
        struct iovec           part = { bytes, sizeof bytes };
        struct gmi_poller      poller;
        size_t                 moved;
        int                    sys_errno;
        gmi_poller_init(&poller);
        assert_ok(gmi_shm_segment_map(&segment, SMALL, parts.memory_fd, &sys_errno));
        struct gmi_shm_end sender = gmi_shm_segment_sender(&segment, 1),
                           receiver = gmi_shm_segment_receiver(&segment, 1);
        atomic_store(is_sending ? &receiver.words->taken : &sender.words->written, UINT64_C(1)
                                                                                       << 40);
        gmi_link_watch(link, &poller, is_sending ? GMI_WRITABLE : GMI_READABLE);
        assert_ok(gmi_poller_wait(&poller, GMI_NEVER)); /* not slept through */
        for (int i = 0; i < 2; i++) {
            gm_status status = is_sending ? gmi_link_send_some(link, &part, 1, &moved)
                                          : gmi_link_recv_some(link, &part, 1, &moved);
            assert_status(status, GM_ERR_PROTOCOL);
            assert_int_equal(moved, 0);
        }
        assert_status(gmi_link_recv_some(link, &part, 1, &moved), GM_ERR_PROTOCOL);
        gmi_poller_fini(&poller);
        gmi_shm_segment_unmap(&segment);
        gmi_link_close(link);
        close_parts(&parts);
    }
}

static void bytes_on_the_lifeline_end_the_link(void **state)
{
    (void)state;
    struct parts      parts = make_parts(SMALL);
    struct gmi_link  *link = make_end(&parts, SMALL, 0);
    struct gmi_poller poller;
    uint8_t           byte;
    struct iovec      part = { &byte, 1 };
    size_t            moved;
    gmi_poller_init(&poller);
    assert_int_equal(write(parts.lifeline_fds[1], "x", 1), 1);
    gmi_link_watch(link, &poller, GMI_READABLE);
    assert_ok(gmi_poller_wait(&poller, GMI_NEVER));
    assert_status(gmi_link_recv_some(link, &part, 1, &moved), GM_ERR_PROTOCOL);
    gmi_poller_fini(&poller);
    gmi_link_close(link);
    close_parts(&parts);
}

/* ---- the segment ----------------------------------------------------------------------------- */

static void a_segment_has_no_name_and_a_fixed_size(void **state)
{
    (void)state;
    struct gmi_shm_segment segment;
    struct stat            found;
    int                    fd, sys_errno;
    assert_ok(gmi_shm_segment_create(&segment, SMALL, &fd, &sys_errno));
    assert_int_equal(fstat(fd, &found), 0);
    assert_int_equal(found.st_nlink, 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 1 << 24), -1);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_true(found.st_blocks * 512 <= 4096); /* pages come when they are touched */
    gmi_shm_segment_unmap(&segment);
    close(fd);
}

static void what_is_no_such_segment_is_not_mapped(void **state)
{
    (void)state;
    struct gmi_shm_segment good, other;
    int                    fd, sys_errno;
    assert_ok(gmi_shm_segment_create(&good, SMALL, &fd, &sys_errno));
    assert_status(gmi_shm_segment_map(&other, 2 * SMALL, fd, &sys_errno), GM_ERR_PROTOCOL);
    assert_status(gmi_shm_segment_map(&other, SMALL - 1, fd, &sys_errno), GM_ERR_PROTOCOL);
    assert_status(gmi_shm_segment_map(&other, 0, fd, &sys_errno), GM_ERR_PROTOCOL);
    assert_null(other.memory);
    close(fd);
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, (off_t)good.size_bytes), 0);
    assert_status(gmi_shm_segment_map(&other, SMALL, unsealed, &sys_errno), GM_ERR_PROTOCOL);
    close(unsealed);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_status(gmi_shm_segment_map(&other, SMALL, ends[0], &sys_errno), GM_ERR_PROTOCOL);
    close(ends[0]);
    close(ends[1]);
    assert_status(gmi_shm_segment_create(&other, 5000, &fd, &sys_errno), GM_ERR_SYSTEM);
    assert_int_equal(fd, -1);
    gmi_shm_segment_unmap(&good);
}

static void a_closed_link_leaves_no_descriptor_and_no_mapping(void **state)
{
    (void)state;
    int before = ranks_open_descriptors();
    struct gmi_link *ends[2];
    make_pair(ends, SMALL);
    assert_true(ranks_open_descriptors() > before);
    for (int i = 0; i < 2; i++) gmi_link_close(ends[i]);
    assert_int_equal(ranks_open_descriptors(), before);
    FILE *maps = fopen("/proc/self/maps", "r");
    char  line[512];
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) assert_null(strstr(line, "gradmesh (deleted)"));
    fclose(maps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_threads_all_arrives_whoever_sleeps_when),
        cmocka_unit_test(between_processes_all_arrives_whoever_sleeps_when),
        cmocka_unit_test(a_watch_on_what_is_there_already_does_not_sleep),
        cmocka_unit_test(a_killed_peer_is_noticed_whatever_we_wait_for),
        cmocka_unit_test(impossible_positions_end_the_link),
        cmocka_unit_test(bytes_on_the_lifeline_end_the_link),
        cmocka_unit_test(a_segment_has_no_name_and_a_fixed_size),
        cmocka_unit_test(what_is_no_such_segment_is_not_mapped),
        cmocka_unit_test(a_closed_link_leaves_no_descriptor_and_no_mapping),
    };
    return cmocka_run_group_tests_name("shared memory link", tests, NULL, NULL);
}
