#include "transport/shm_ring.h"

#include <string.h>

#include "base/ahead.h"
#include "base/bytes.h"
#include "base/simd.h"

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "a lock would be in one process only");

/* ---- copying --------------------------------------------------------------------------------- */

/* The other core has had one side of such a copy last, and of the other side little may be in a near cache. So both are asked
 * for well ahead of the copy. Small copies are over before that helps. */
enum { AHEAD_BYTES = 2048, LARGE_BYTES = 4096 };

GMI_SIMD static void copy_large(uint8_t *to, const uint8_t *from, size_t n_bytes)
{
    size_t at = 0;
    for (; at + AHEAD_BYTES + GMI_LINE_BYTES <= n_bytes; at += GMI_LINE_BYTES) {
        gmi_expect_write(to + at + AHEAD_BYTES);
        gmi_expect_read(from + at + AHEAD_BYTES);
        memcpy(to + at, from + at, GMI_LINE_BYTES);
    }
    memcpy(to + at, from + at, n_bytes - at);
}

static void copy(uint8_t *to, const uint8_t *from, size_t n_bytes)
{
    if (n_bytes < LARGE_BYTES) {
        memcpy(to, from, n_bytes);
    } else {
        copy_large(to, from, n_bytes);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint8_t *place(const struct gmi_shm_end *e, uint64_t position)
{
    return e->bytes + (position & (e->capacity_bytes - 1));
}

/* How many bytes lie in one piece from a position on. */
static size_t until_edge(const struct gmi_shm_end *e, uint64_t position)
{
    return e->capacity_bytes - (size_t)(position & (e->capacity_bytes - 1));
}

static void copy_in(const struct gmi_shm_end *e, uint64_t position, const uint8_t *from,
                    size_t n_bytes)
{
    size_t first = gmi_min_size(n_bytes, until_edge(e, position));
    copy(place(e, position), from, first);
    if (n_bytes > first) copy(e->bytes, from + first, n_bytes - first);
}

static void copy_out(const struct gmi_shm_end *e, uint64_t position, uint8_t *to, size_t n_bytes)
{
    size_t first = gmi_min_size(n_bytes, until_edge(e, position));
    copy(to, place(e, position), first);
    if (n_bytes > first) copy(to + first, e->bytes, n_bytes - first);
}

static size_t total_bytes(const struct iovec *parts, int n_parts, size_t limit_bytes)
{
    size_t total = 0;
    for (int i = 0; i < n_parts && total < limit_bytes; i++) {
        total += gmi_min_size(parts[i].iov_len, limit_bytes - total);
    }
    return total;
}

/* ---- the sender ------------------------------------------------------------------------------ */

static size_t room_bytes(const struct gmi_shm_end *e)
{
    return e->capacity_bytes - (size_t)(e->own - e->seen);
}

/* What the receiver has taken can only have grown, and not beyond what was written. */
static bool look_at_taken(struct gmi_shm_end *e)
{
    uint64_t taken = atomic_load_explicit(&e->words->taken, memory_order_acquire);
    if (e->own - taken > e->own - e->seen) return false;
    e->seen = taken;
    return true;
}

gm_status gmi_shm_put(struct gmi_shm_end *e, const struct iovec *parts, int n_parts,
                      size_t limit_bytes, size_t *moved_bytes)
{
    size_t want = total_bytes(parts, n_parts, limit_bytes), moved = 0;
    *moved_bytes = 0;
    if (room_bytes(e) < want && !look_at_taken(e)) return GM_ERR_PROTOCOL;
    want = gmi_min_size(want, room_bytes(e));
    if (want == 0) return GM_AGAIN;
    for (int i = 0; moved < want; i++) {
        size_t n = gmi_min_size(parts[i].iov_len, want - moved);
        copy_in(e, e->own + moved, parts[i].iov_base, n);
        moved += n;
    }
    e->own += moved;
    atomic_store(&e->words->written,
                 e->own); /* sequentially consistent: must_ring comes after it */
    *moved_bytes = moved;
    return GM_OK;
}

bool gmi_shm_can_put(const struct gmi_shm_end *e)
{
    return e->own - atomic_load(&e->words->taken) != e->capacity_bytes || gmi_shm_is_left(e);
}

void gmi_shm_finish(struct gmi_shm_end *e) { atomic_store(&e->words->is_finished, 1); }

bool gmi_shm_is_left(const struct gmi_shm_end *e) { return atomic_load(&e->words->is_left) != 0; }

/* ---- the receiver ---------------------------------------------------------------------------- */

static size_t there_bytes(const struct gmi_shm_end *e) { return (size_t)(e->seen - e->own); }

/* What the sender has written can only have grown, and not beyond what the ring holds. */
static bool look_at_written(struct gmi_shm_end *e)
{
    uint64_t written = atomic_load_explicit(&e->words->written, memory_order_acquire);
    if (written - e->own > e->capacity_bytes || written - e->own < there_bytes(e)) return false;
    e->seen = written;
    return true;
}

gm_status gmi_shm_take(struct gmi_shm_end *e, const struct iovec *parts, int n_parts,
                       size_t limit_bytes, size_t *moved_bytes)
{
    size_t want = total_bytes(parts, n_parts, limit_bytes), moved = 0;
    *moved_bytes = 0;
    if (there_bytes(e) < want && !look_at_written(e)) return GM_ERR_PROTOCOL;
    want = gmi_min_size(want, there_bytes(e));
    if (want == 0) return GM_AGAIN;
    for (int i = 0; moved < want; i++) {
        size_t n = gmi_min_size(parts[i].iov_len, want - moved);
        copy_out(e, e->own + moved, parts[i].iov_base, n);
        moved += n;
    }
    e->own += moved;
    atomic_store(&e->words->taken, e->own); /* as above */
    *moved_bytes = moved;
    return GM_OK;
}

gm_status gmi_shm_peek(struct gmi_shm_end *e, const uint8_t **bytes, size_t *n_bytes)
{
    *bytes = place(e, e->own);
    *n_bytes = 0;
    if (!look_at_written(e)) return GM_ERR_PROTOCOL;
    *n_bytes = gmi_min_size(there_bytes(e), until_edge(e, e->own));
    return *n_bytes > 0 ? GM_OK : GM_AGAIN;
}

void gmi_shm_consume(struct gmi_shm_end *e, size_t n_bytes)
{
    e->own += n_bytes;
    atomic_store(&e->words->taken, e->own); /* as above */
}

bool gmi_shm_can_take(const struct gmi_shm_end *e)
{
    return atomic_load(&e->words->written) != e->own || gmi_shm_is_finished(e);
}

bool gmi_shm_is_finished(const struct gmi_shm_end *e)
{
    return atomic_load(&e->words->is_finished) != 0;
}

void gmi_shm_leave(struct gmi_shm_end *e) { atomic_store(&e->words->is_left, 1); }

/* ---- sleeping -------------------------------------------------------------------------------- */

void gmi_shm_say_asleep(struct gmi_shm_asleep *own, unsigned interest)
{
    atomic_fetch_or(&own->interest, interest);
}

bool gmi_shm_say_awake(struct gmi_shm_asleep *own)
{
    return atomic_exchange(&own->interest, 0) != 0;
}

bool gmi_shm_must_ring(struct gmi_shm_asleep *other, unsigned interest)
{
    return (atomic_load(&other->interest) & interest) != 0 &&
           atomic_exchange(&other->interest, 0) != 0;
}
