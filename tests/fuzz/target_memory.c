/* Shared memory: one byte that chooses, then
 *     0   to who is offered memory: the offer, and what follows
 *     1   to who has offered it: the answer
 *     2   a segment that somebody hands over: u8 capacity, u8 seals, u16 size
 *     3   a peer that writes anything into the segment: u16 where, u8 length, bytes, and each time we move some */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "net/socket.h"
#include "rendezvous/passing.h"
#include "tests/fuzz/targets.h"
#include "transport/shm_segment.h"

enum { HEAD_BYTES = 4096, CAPACITY = GMI_SHM_MIN_CAPACITY_BYTES };

static bool refuse(void *user, int *fds, int n_fds, uint32_t note, int *sys_errno)
{
    (void)user, (void)fds, (void)n_fds, (void)note;
    *sys_errno = 0;
    return false;
}

static void pass(struct fuzz_input *in, bool is_giver)
{
    struct gmi_passing p;
    int                ends[2];
    char               why[160];
    fuzz_socket_pair(ends);
    if (is_giver) gmi_passing_give(&p, ends[1], &ends[0], 1, 4096, 0);
    else gmi_passing_take(&p, ends[1], 3, refuse, NULL, 0);
    fuzz_send(ends[0], in->bytes, in->left_bytes);
    gmi_socket_finish_sending(ends[0]);
    gm_status status = GM_AGAIN;
    for (int i = 0; i < 4 && status == GM_AGAIN; i++) status = gmi_passing_progress(&p);
    if (status == GM_OK) fuzz_check(strlen(gmi_passing_why(&p, why, sizeof why)) > 0);
    gmi_passing_fini(&p);
    gmi_socket_close(&ends[0]);
    gmi_socket_close(&ends[1]);
}

static void map_segment(struct fuzz_input *in)
{
    static const int seals[] = { 0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW };
    struct gmi_shm_segment s;
    int    sys_errno, fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t capacity = (size_t)1 << fuzz_u8(in) % 64, seal = fuzz_u8(in) % 4, size_bytes = fuzz_u16(in);
    if (seal == 3 && fuzz_u8(in) % 2) size_bytes = HEAD_BYTES + 2 * gmi_min_size(capacity, 1 << 20);
    fuzz_check(fd >= 0 && ftruncate(fd, (off_t)size_bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals[seal]) == 0);
    if (gmi_shm_segment_map(&s, capacity, fd, &sys_errno) == GM_OK) {
        fuzz_check(s.size_bytes == size_bytes);
        s.memory[size_bytes - 1] = 1;
        gmi_shm_segment_unmap(&s);
    }
    close(fd);
}

/* What lies outside our two rings and their page must stay as it is. */
static void be_cheated(struct fuzz_input *in)
{
    static struct gmi_shm_segment s; /* one for all inputs */
    static int                    fd;
    int                           sys_errno;
    if (s.memory == NULL) fuzz_check(gmi_shm_segment_create(&s, CAPACITY, &fd, &sys_errno) == GM_OK);
    memset(s.memory, 0, s.size_bytes);
    struct gmi_shm_end sender = gmi_shm_segment_sender(&s, 0), receiver = gmi_shm_segment_receiver(&s, 0);
    while (in->left_bytes > 0) {
        size_t         at = fuzz_u16(in) % 1024, n, moved = 0;
        const uint8_t *bytes = fuzz_take(in, fuzz_u8(in), &n);
        memcpy(s.memory + at, bytes, n);
        uint8_t     *buffer = calloc(300, 1);
        struct iovec parts[2] = { { buffer, 100 }, { buffer + 100, 200 } };
        fuzz_check(buffer != NULL);
        gm_status status = at % 2 ? gmi_shm_put(&sender, parts, 2, 300, &moved) : gmi_shm_take(&receiver, parts, 2, 300, &moved);
        fuzz_check(moved <= 300 && (status == GM_OK) == (moved > 0));
        fuzz_check(sender.own - sender.seen <= CAPACITY && receiver.seen - receiver.own <= CAPACITY);
        (void)gmi_shm_must_ring(gmi_shm_segment_asleep(&s, 1), 3);
        free(buffer);
    }
}

void fuzz_memory(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input in = { bytes, n_bytes };
    uint8_t           choice = fuzz_u8(&in) % 4;
    if (choice <= 1) {
        pass(&in, choice == 1);
    } else if (choice == 2) {
        map_segment(&in);
    } else {
        be_cheated(&in);
    }
}

void fuzz_memory_seed(fuzz_keep_fn keep, void *user)
{
    uint8_t offer[1 + GMI_OFFER_BYTES] = { 0 };
    gmi_put_u32(offer + 9, 4096);
    keep(user, offer, sizeof offer);
    offer[1] = GMI_PASSING_NO_SOCKET;
    keep(user, offer, sizeof offer);
    for (uint8_t trouble = 0; trouble <= GMI_PASSING_TROUBLE_END; trouble += 3) {
        const uint8_t answer[1 + GMI_ANSWER_BYTES] = { 1, trouble, 0, 0, 0, 24 };
        keep(user, answer, sizeof answer);
    }
    keep(user, (const uint8_t *)"\2\x0c\3\0\0\1", 6);
    keep(user, (const uint8_t *)"\2\x3f\3\0\0\1", 6);
    keep(user, (const uint8_t *)"\2\x0c\1\0\x30", 5);
    /* positions of direction 0: written at 0, taken at 128; of direction 1 behind them */
    keep(user, (const uint8_t *)"\3\x80\0\x02\x05\0\0\2\x08\1\1\x81\0\1\xff\0\1\0", 18);
    keep(user, (const uint8_t *)"\3\0\1\x08\xff\xff\xff\xff\xff\xff\xff\xff\0\1\x08\0\x10\0\0\0\0\0\0", 23);
}
