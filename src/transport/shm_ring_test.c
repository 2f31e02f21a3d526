/* shm_ring_test.c - a ring in one process: order, wrapping around, its capacity, a mad peer, two
 * threads. */
#include "transport/shm_ring.h"

#include <pthread.h>
#include <sched.h>

#include "base/rng.h"
#include "net/poller.h"
#include "tests/support/guard.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

/* Large enough for copies that look ahead. */
enum { CAPACITY = 16384, STREAM_BYTES = 1 << 22 };

struct pair {
    struct gmi_shm_words words;
    struct guard         memory; /* ends where the readable memory ends */
    struct gmi_shm_end   sender, receiver;
};

/* Both positions begin at `at`, near a place where they wrap around. */
static void make_pair(struct pair *p, uint64_t at)
{
    memset(p, 0, sizeof *p);
    guard_make(&p->memory, CAPACITY);
    atomic_store(&p->words.written, at);
    atomic_store(&p->words.taken, at);
    p->sender = p->receiver = (struct gmi_shm_end){ .words = &p->words,
                                                    .bytes = p->memory.bytes,
                                                    .capacity_bytes = CAPACITY,
                                                    .own = at,
                                                    .seen = at };
}

static void free_pair(struct pair *p)
{
    guard_check(&p->memory);
    guard_fini(&p->memory);
}

static uint8_t byte_at(uint64_t i) { return (uint8_t)gmi_rng_u64(5, i); }

/* Puts the stream's next bytes, up to n_bytes of them in two parts. */
static size_t put(struct gmi_shm_end *sender, uint64_t from, size_t n_bytes, size_t limit_bytes)
{
    uint8_t      bytes[2 * CAPACITY];
    size_t       moved, first = n_bytes / 3;
    struct iovec parts[2] = { { bytes, first }, { bytes + first, n_bytes - first } };
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = byte_at(from + i);
    gm_status status = first ? gmi_shm_put(sender, parts, 2, limit_bytes, &moved)
                             : gmi_shm_put(sender, parts + 1, 1, limit_bytes, &moved);
    assert_true(status == GM_OK ? moved > 0 : status == GM_AGAIN && moved == 0);
    return moved;
}

static bool are_next(const uint8_t *bytes, uint64_t from, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] != byte_at(from + i)) return false;
    }
    return true;
}

/* Is lent what is there, up to the edge of the ring, and consumes up to n_bytes of it; false as below. */
static bool take_lent(struct gmi_shm_end *receiver, uint64_t from, size_t n_bytes, size_t limit_bytes,
                      size_t *moved)
{
    const uint8_t *lent;
    gm_status      status = gmi_shm_peek(receiver, &lent, moved);
    if (status != GM_OK) return status == GM_AGAIN && *moved == 0;
    assert_true(lent >= receiver->bytes && lent + *moved <= receiver->bytes + CAPACITY);
    if (*moved > n_bytes) *moved = n_bytes;
    if (*moved > limit_bytes) *moved = limit_bytes;
    bool is_right = are_next(lent, from, *moved);
    gmi_shm_consume(receiver, *moved);
    return is_right && *moved > 0;
}

/* Takes up to n_bytes, lent or in two parts; false: other bytes than the stream's next ones. */
static bool take(struct gmi_shm_end *receiver, uint64_t from, size_t n_bytes, size_t limit_bytes,
                 size_t *moved)
{
    uint8_t      bytes[2 * CAPACITY];
    size_t       first = n_bytes / 2;
    struct iovec parts[2] = { { bytes, first }, { bytes + first, n_bytes - first } };
    if (n_bytes % 3 == 1) return take_lent(receiver, from, n_bytes, limit_bytes, moved);
    gm_status    status = first ? gmi_shm_take(receiver, parts, 2, limit_bytes, moved)
                                : gmi_shm_take(receiver, parts + 1, 1, limit_bytes, moved);
    if (status != GM_OK) return status == GM_AGAIN && *moved == 0;
    return are_next(bytes, from, *moved) && *moved > 0;
}

static void bytes_come_out_as_they_went_in_at_every_place_of_the_ring(void **state)
{
    (void)state;
    const uint64_t begins[] = { 0, CAPACITY - 1,
                                UINT64_MAX - 3 * CAPACITY }; /* the last one: positions overflow */
    for (size_t b = 0; b < TEST_COUNT(begins); b++) {
        struct pair    p;
        struct gmi_rng rng = { .key = b };
        uint64_t       in = 0, out = 0;
        make_pair(&p, begins[b]);
        while (out < 40 * CAPACITY) {
            size_t n = 1 +
                       gmi_rng_next_below(&rng, gmi_rng_next_below(&rng, 2) ? 7 : 2 * CAPACITY - 1),
                   moved;
            size_t limit = 1 + gmi_rng_next_below(&rng, 2 * CAPACITY);
            if (gmi_rng_next_below(&rng, 2)) {
                moved = put(&p.sender, in, n, limit);
                in += moved;
                assert_true(moved > 0 || in - out == CAPACITY);
            } else {
                assert_true(take(&p.receiver, out, n, limit, &moved));
                out += moved;
            }
            assert_true(moved <= limit && moved <= n && in - out <= CAPACITY);
            assert_int_equal(gmi_shm_can_put(&p.sender), in - out < CAPACITY);
            assert_int_equal(gmi_shm_can_take(&p.receiver), in > out);
        }
        free_pair(&p);
    }
}

static void the_ring_takes_its_capacity_and_no_more(void **state)
{
    (void)state;
    for (size_t first = 0; first < CAPACITY; first += 509) {
        struct pair p;
        size_t      moved;
        make_pair(&p, first);
        assert_int_equal(put(&p.sender, 0, 2 * CAPACITY, SIZE_MAX), CAPACITY);
        assert_int_equal(put(&p.sender, CAPACITY, 1, SIZE_MAX), 0);
        assert_true(take(&p.receiver, 0, 2 * CAPACITY, SIZE_MAX, &moved));
        assert_int_equal(moved, CAPACITY);
        assert_true(take(&p.receiver, CAPACITY, 1, SIZE_MAX, &moved));
        assert_int_equal(moved, 0);
        free_pair(&p);
    }
}

static void the_end_comes_after_the_last_byte(void **state)
{
    (void)state;
    struct pair p;
    size_t      moved;
    make_pair(&p, 0);
    put(&p.sender, 0, 10, SIZE_MAX);
    assert_false(gmi_shm_is_finished(&p.receiver));
    gmi_shm_finish(&p.sender);
    assert_true(gmi_shm_is_finished(&p.receiver));
    assert_true(take(&p.receiver, 0, 10, SIZE_MAX, &moved));
    assert_int_equal(moved, 10);
    assert_true(gmi_shm_can_take(&p.receiver)); /* nobody sleeps at the end of a stream */
    assert_false(gmi_shm_is_left(&p.sender));
    gmi_shm_leave(&p.receiver);
    assert_true(gmi_shm_is_left(&p.sender));
    free_pair(&p);
}

/* ---- a mad peer ------------------------------------------------------------------------------ */

/* With `under_way` bytes in the ring, the other side's position becomes `at + offset`. */
static gm_status put_when_taken_is(uint64_t at, size_t under_way, uint64_t offset)
{
    struct pair  p;
    uint8_t      bytes[2 * CAPACITY] = { 0 };
    struct iovec part = { bytes, sizeof bytes };
    size_t       moved = 99;
    make_pair(&p, at);
    if (under_way > 0) put(&p.sender, 0, under_way, SIZE_MAX);
    atomic_store(&p.words.taken, at + offset);
    gm_status status = gmi_shm_put(&p.sender, &part, 1, SIZE_MAX, &moved);
    assert_true(status == GM_OK || moved == 0);
    free_pair(&p);
    return status;
}

static gm_status take_when_written_is(uint64_t at, size_t under_way, uint64_t offset)
{
    struct pair  p;
    uint8_t      bytes[2 * CAPACITY] = { 0 };
    struct iovec part = { bytes, sizeof bytes };
    size_t       moved = 99;
    make_pair(&p, at);
    if (under_way > 0) { /* of which one byte is taken: the receiver knows of the others */
        struct iovec one = { bytes, 1 };
        put(&p.sender, 0, under_way, SIZE_MAX);
        assert_ok(gmi_shm_take(&p.receiver, &one, 1, SIZE_MAX, &moved));
    }
    atomic_store(&p.words.written, at + offset);
    gm_status status = gmi_shm_take(&p.receiver, &part, 1, SIZE_MAX, &moved);
    assert_true(status == GM_OK || moved == 0);
    free_pair(&p);
    return status;
}

static void impossible_positions_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    const uint64_t begins[] = { 0, 1000, UINT64_MAX - 10 };
    for (size_t b = 0; b < TEST_COUNT(begins); b++) {
        uint64_t at = begins[b];
        /* Taken: from nothing to all of what is under way. */
        assert_status(put_when_taken_is(at, 100, 0), GM_OK);
        assert_status(put_when_taken_is(at, 100, 100), GM_OK);
        assert_status(put_when_taken_is(at, 100, 101), GM_ERR_PROTOCOL);
        assert_status(put_when_taken_is(at, 100, UINT64_MAX), GM_ERR_PROTOCOL);
        assert_status(put_when_taken_is(at, 100, UINT64_C(1) << 63), GM_ERR_PROTOCOL);
        assert_status(put_when_taken_is(at, CAPACITY, 0), GM_AGAIN);
        assert_status(put_when_taken_is(at, CAPACITY, CAPACITY + 1), GM_ERR_PROTOCOL);
        /* Written: what the receiver knows of, and up to what the ring holds. */
        assert_status(take_when_written_is(at, 0, 0), GM_AGAIN);
        assert_status(take_when_written_is(at, 0, CAPACITY), GM_OK);
        assert_status(take_when_written_is(at, 0, CAPACITY + 1), GM_ERR_PROTOCOL);
        assert_status(take_when_written_is(at, 0, UINT64_MAX), GM_ERR_PROTOCOL);
        assert_status(take_when_written_is(at, 100, 100), GM_OK);
        assert_status(take_when_written_is(at, 100, 99), GM_ERR_PROTOCOL);
        assert_status(take_when_written_is(at, 100, CAPACITY + 1),
                      GM_OK); /* one of them was taken */
        assert_status(take_when_written_is(at, 100, CAPACITY + 2), GM_ERR_PROTOCOL);
        assert_status(take_when_written_is(at, 100, UINT64_C(1) << 63), GM_ERR_PROTOCOL);
    }
}

/* Whatever it writes, again and again, while we go on: nothing outside the ring. */
static void random_positions_never_lead_outside(void **state)
{
    (void)state;
    struct gmi_rng rng = { .key = 77 };
    for (int round = 0; round < 300; round++) {
        struct pair  p;
        uint8_t      bytes[2 * CAPACITY];
        size_t       moved;
        make_pair(&p, 0);
        for (int i = 0; i < 50; i++) {
            struct iovec part = { bytes, 1 + gmi_rng_next_below(&rng, sizeof bytes) };
            uint64_t     near = p.sender.own + gmi_rng_next_below(&rng, 3 * CAPACITY) - CAPACITY;
            uint64_t     position = gmi_rng_next_below(&rng, 4) ? near : gmi_rng_next(&rng);
            const uint8_t *lent;
            int            what = (int)gmi_rng_next_below(&rng, 3);
            if (what == 0) {
                atomic_store(&p.words.taken, position);
                (void)gmi_shm_put(&p.sender, &part, 1, SIZE_MAX, &moved);
            } else if (what == 1) {
                atomic_store(&p.words.written, position);
                (void)gmi_shm_take(&p.receiver, &part, 1, SIZE_MAX, &moved);
            } else {
                atomic_store(&p.words.written, position);
                if (gmi_shm_peek(&p.receiver, &lent, &moved) != GM_OK) continue;
                assert_true(lent >= p.memory.bytes && lent + moved <= p.memory.bytes + CAPACITY);
                if (moved > part.iov_len) moved = part.iov_len;
                gmi_shm_consume(&p.receiver, moved);
            }
            assert_true(moved <= part.iov_len && moved <= CAPACITY);
        }
        free_pair(&p);
    }
}

/* ---- who sleeps ------------------------------------------------------------------------------ */

static void only_who_sleeps_for_it_is_rung_for_and_once(void **state)
{
    (void)state;
    struct gmi_shm_asleep asleep = { .interest = 0 };
    assert_false(gmi_shm_must_ring(&asleep, GMI_READABLE));
    gmi_shm_say_asleep(&asleep, GMI_WRITABLE);
    assert_false(gmi_shm_must_ring(&asleep, GMI_READABLE));
    assert_true(gmi_shm_must_ring(&asleep, GMI_WRITABLE));
    assert_false(gmi_shm_must_ring(&asleep, GMI_WRITABLE));
    assert_false(gmi_shm_say_awake(&asleep)); /* somebody has rung */
    gmi_shm_say_asleep(&asleep, GMI_WRITABLE);
    gmi_shm_say_asleep(&asleep, GMI_READABLE);
    assert_true(gmi_shm_must_ring(&asleep, GMI_READABLE));
    gmi_shm_say_asleep(&asleep, GMI_READABLE);
    assert_true(gmi_shm_say_awake(&asleep));
    assert_false(gmi_shm_must_ring(&asleep, GMI_READABLE));
}

/* Two threads go into each round at the same moment; in it, one moves a byte and looks whether to
 * ring, the other says that it sleeps and looks once more. */
struct duel {
    struct pair           pair;
    struct gmi_shm_asleep asleep;
    atomic_int            n_arrived;
    int                   n_rounds;
    bool                  must_ring;
};

static void meet(struct duel *d, int n)
{
    atomic_fetch_add(&d->n_arrived, 1);
    for (int i = 1; atomic_load(&d->n_arrived) < n; i++) {
        if (i % 1000 == 0) sched_yield(); /* the other one may need this core */
    }
}

/* So that in some rounds one is a little earlier, in some the other. */
static void linger(struct gmi_rng *rng)
{
    for (uint64_t n = gmi_rng_next_below(rng, 60); n > 0; n--)
        atomic_signal_fence(memory_order_seq_cst);
}

static void *move_and_look(void *user)
{
    struct duel   *d = user;
    struct gmi_rng rng = { .key = 3 };
    for (int i = 0; i < d->n_rounds; i++) {
        uint8_t      byte = 0;
        struct iovec part = { &byte, 1 };
        size_t       moved;
        meet(d, 4 * i + 2);
        linger(&rng);
        (void)gmi_shm_put(&d->pair.sender, &part, 1, 1, &moved);
        d->must_ring = gmi_shm_must_ring(&d->asleep, GMI_READABLE);
        meet(d, 4 * i + 4);
    }
    return NULL;
}

static void in_no_round_do_both_look_before_the_other_has_spoken(void **state)
{
    (void)state;
    static struct duel d;
    pthread_t          mover;
    int                n_missed = 0;
    struct gmi_rng     rng = { .key = 4 };
    d = (struct duel){ .n_rounds = 50000 / ranks_slowness() };
    make_pair(&d.pair, 0);
    assert_int_equal(pthread_create(&mover, NULL, move_and_look, &d), 0);
    for (int i = 0; i < d.n_rounds; i++) {
        uint8_t      byte;
        struct iovec part = { &byte, 1 };
        size_t       moved;
        meet(&d, 4 * i + 2);
        linger(&rng);
        gmi_shm_say_asleep(&d.asleep, GMI_READABLE);
        bool can_take = gmi_shm_can_take(&d.pair.receiver);
        meet(&d, 4 * i + 3); /* with the mover's 4th, both are through */
        while (atomic_load(&d.n_arrived) < 4 * i + 4) sched_yield();
        n_missed += !d.must_ring && !can_take;
        gmi_shm_say_awake(&d.asleep);
        assert_ok(gmi_shm_take(&d.pair.receiver, &part, 1, 1, &moved));
    }
    pthread_join(mover, NULL);
    free_pair(&d.pair);
    assert_int_equal(n_missed, 0);
}

/* ---- two threads ----------------------------------------------------------------------------- */

static void *send_stream(void *user)
{
    struct pair   *p = user;
    struct gmi_rng rng = { .key = 1 };
    for (uint64_t at = 0; at < STREAM_BYTES;) {
        size_t n =
            1 + gmi_rng_next_below(&rng, gmi_rng_next_below(&rng, 2) ? 100 : 2 * CAPACITY - 1);
        if (n > STREAM_BYTES - at) n = (size_t)(STREAM_BYTES - at);
        size_t moved = put(&p->sender, at, n, SIZE_MAX);
        at += moved;
        if (moved == 0) sched_yield();
    }
    gmi_shm_finish(&p->sender);
    return NULL;
}

static void one_thread_sends_and_another_one_receives(void **state)
{
    (void)state;
    struct pair    p;
    struct gmi_rng rng = { .key = 2 };
    uint64_t       at = 0;
    pthread_t      sender;
    make_pair(&p, UINT64_MAX - STREAM_BYTES / 2);
    assert_int_equal(pthread_create(&sender, NULL, send_stream, &p), 0);
    for (;;) {
        bool   is_finished = gmi_shm_is_finished(&p.receiver);
        size_t moved;
        assert_true(take(&p.receiver, at, 1 + gmi_rng_next_below(&rng, 2 * CAPACITY - 1), SIZE_MAX,
                         &moved));
        at += moved;
        if (moved == 0 && is_finished) break;
        if (moved == 0) sched_yield();
    }
    assert_int_equal(at, STREAM_BYTES);
    pthread_join(sender, NULL);
    free_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_as_they_went_in_at_every_place_of_the_ring),
        cmocka_unit_test(the_ring_takes_its_capacity_and_no_more),
        cmocka_unit_test(the_end_comes_after_the_last_byte),
        cmocka_unit_test(impossible_positions_are_refused_and_touch_nothing),
        cmocka_unit_test(random_positions_never_lead_outside),
        cmocka_unit_test(only_who_sleeps_for_it_is_rung_for_and_once),
        cmocka_unit_test(in_no_round_do_both_look_before_the_other_has_spoken),
        cmocka_unit_test(one_thread_sends_and_another_one_receives),
    };
    return cmocka_run_group_tests_name("shared memory ring", tests, NULL, NULL);
}
