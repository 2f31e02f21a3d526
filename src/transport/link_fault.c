/* link_fault.c - wraps a link and makes its I/O partial, delayed or cut, as a function of a seed.
 *
 * Partial: a call moves only the first few bytes of what it could. Delayed: it answers "later" though
 * it could go on. Cut: after so many bytes the connection is over, for both ends. */
#include <errno.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "transport/link.h"

enum { MAX_PARTS = 8 };

struct fault_link {
    struct gmi_link       base;
    struct gmi_link      *inner; /* NULL once cut */
    struct gmi_fault_plan plan;
    struct gmi_rng        rng;
    uint64_t              sent_bytes, recv_bytes;
};

typedef gm_status (*move_fn)(struct gmi_link *, const struct iovec *, int, size_t *);

static gm_status cut(struct fault_link *f)
{
    gmi_link_close(f->inner);
    f->inner = NULL;
    f->base.sys_errno = ECONNRESET;
    return GM_ERR_PEER_LOST;
}

/* The same parts, but only the first `limit_bytes` of them. */
static int shorten(const struct iovec *parts, int n_parts, size_t limit_bytes, struct iovec *out)
{
    int n = 0;
    for (int i = 0; i < n_parts && i < MAX_PARTS && limit_bytes > 0; i++) {
        if (parts[i].iov_len == 0) continue;
        out[n] = parts[i];
        out[n].iov_len = gmi_min_size(parts[i].iov_len, limit_bytes);
        limit_bytes -= out[n++].iov_len;
    }
    return n;
}

/* Before a move: may it happen, and of how many bytes at most? */
static gm_status before_move(struct fault_link *f, uint64_t cut_after, uint64_t total, size_t *limit)
{
    if (f->inner == NULL || (cut_after != 0 && total >= cut_after)) return f->inner ? cut(f) : GM_ERR_PEER_LOST;
    if (gmi_rng_next_unit(&f->rng) < f->plan.delay_probability) return GM_AGAIN;
    *limit = SIZE_MAX;
    if (f->plan.max_move_bytes > 0) *limit = 1 + (size_t)gmi_rng_next_below(&f->rng, f->plan.max_move_bytes);
    if (cut_after != 0) *limit = gmi_min_size(*limit, (size_t)(cut_after - total));
    return GM_OK;
}

static gm_status move_some(struct fault_link *f, move_fn move, const struct iovec *parts, int n_parts,
                           uint64_t cut_after, uint64_t *total, size_t *moved_bytes)
{
    size_t    limit;
    gm_status may = before_move(f, cut_after, *total, &limit);
    *moved_bytes = 0;
    if (may != GM_OK) return may;
    struct iovec shorter[MAX_PARTS];
    int          n = shorten(parts, n_parts, limit, shorter);
    gm_status    status = move(f->inner, shorter, n, moved_bytes);
    *total += *moved_bytes;
    f->base.sys_errno = f->inner->sys_errno;
    return status;
}

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct fault_link *f = (struct fault_link *)link;
    if (f->plan.refused_after_sent_bytes != 0 && f->sent_bytes >= f->plan.refused_after_sent_bytes && f->inner != NULL) {
        *moved_bytes = 0;
        f->base.sys_errno = ENOBUFS;
        return GM_ERR_PEER_LOST;
    }
    return move_some(f, gmi_link_send_some, parts, n_parts, f->plan.cut_after_sent_bytes, &f->sent_bytes,
                     moved_bytes);
}

/* Of the bytes that have just been moved, the one at this place. */
static uint8_t *byte_at(const struct iovec *parts, uint64_t at)
{
    for (; at >= parts->iov_len; parts++) at -= parts->iov_len;
    return (uint8_t *)parts->iov_base + at;
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct fault_link *f = (struct fault_link *)link;
    uint64_t           before = f->recv_bytes, bit = f->plan.flipped_recv_bit;
    gm_status          status = move_some(f, gmi_link_recv_some, parts, n_parts, f->plan.cut_after_recv_bytes, &f->recv_bytes,
                                          moved_bytes);
    if (bit > before * 8 && bit <= f->recv_bytes * 8) {
        *byte_at(parts, (bit - 1) / 8 - before) ^= (uint8_t)(1u << (bit - 1) % 8);
    }
    return status;
}

static gm_status peek(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes)
{
    struct fault_link *f = (struct fault_link *)link;
    size_t    limit;
    gm_status may = before_move(f, f->plan.cut_after_recv_bytes, f->recv_bytes, &limit);
    *n_bytes = 0;
    if (may != GM_OK) return may;
    gm_status status = gmi_link_peek(f->inner, bytes, n_bytes);
    *n_bytes = gmi_min_size(*n_bytes, limit);
    f->base.sys_errno = f->inner->sys_errno;
    return status;
}

static void consume(struct gmi_link *link, size_t n_bytes)
{
    struct fault_link *f = (struct fault_link *)link;
    gmi_link_consume(f->inner, n_bytes);
    f->recv_bytes += n_bytes;
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    struct fault_link *f = (struct fault_link *)link;
    if (f->inner != NULL) gmi_link_watch(f->inner, poller, interest);
}

static void finish(struct gmi_link *link)
{
    struct fault_link *f = (struct fault_link *)link;
    if (f->inner != NULL) gmi_link_finish(f->inner);
}

static void close_link(struct gmi_link *link)
{
    gmi_link_close(((struct fault_link *)link)->inner);
    gmi_free(link);
}

#define FAULT_OPS                                                                                  \
    .name = "fault", .send_some = send_some, .recv_some = recv_some, .watch = watch, .finish = finish, .close = close_link

static const struct gmi_link_ops fault_ops = { FAULT_OPS };
static const struct gmi_link_ops lending_fault_ops = { FAULT_OPS, .peek = peek, .consume = consume };

void gmi_link_fault_cut(struct gmi_link *link) { (void)cut((struct fault_link *)link); }

struct gmi_link *gmi_link_fault_wrap(struct gmi_link *inner, const struct gmi_fault_plan *plan)
{
    struct fault_link *f = gmi_alloc(1, sizeof *f);
    if (f == NULL) {
        gmi_link_close(inner);
        return NULL;
    }
    bool lends = gmi_link_lends(inner) && !plan->never_lends && plan->flipped_recv_bit == 0;
    *f = (struct fault_link){ .base = { .ops = lends ? &lending_fault_ops : &fault_ops, .is_shared_memory = inner->is_shared_memory }, .inner = inner, .plan = *plan, .rng.key = plan->seed };
    return &f->base;
}
