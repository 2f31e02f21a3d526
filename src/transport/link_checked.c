/* link_checked.c - wraps any link: what travels over it is cut into blocks, each with its CRC32C.
 *
 *     | length 4 | its CRC32C 4 | CRC32C of the bytes 4 | 0 4 | length bytes |   | length ...
 *
 *     send_some: payload -> one block -> inner link           recv_some: inner link -> some blocks -> payload
 *
 * 1. No byte of a block is handed on before the whole block has come and its checksum was right. Whatever part of a stream
 *    has changed on its way, descriptors and lengths too, is GM_ERR_CORRUPT, for good.
 * 2. Bytes count as sent when the inner link has taken the whole block that holds them: who was told so need not come back
 *    to have it flushed. Until then the caller offers them again, as with a TLS link.
 * 3. Checked bytes are lent from here (peek), whether or not the inner link lends.
 * 4. What was read and not handed on wakes whoever wants to receive (gmi_poller_skip): no descriptor shows it.
 *
 * The kernel's own checksum of TCP has 16 bits, is left to the card by many, and is none at all over loopback or in memory. */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "net/poller.h"
#include "transport/link.h"

enum { HEAD_BYTES = 16, BLOCK_BYTES = 64 * 1024, WHOLE_BYTES = HEAD_BYTES + BLOCK_BYTES, IN_BYTES = 2 * WHOLE_BYTES };

struct checked_link {
    struct gmi_link  base;
    struct gmi_link *inner;
    uint8_t         *out; /* one block; what of it is from out_first to out_end is to be sent */
    size_t           out_first, out_end;
    size_t           sealed_bytes;  /* payload in that block */
    size_t           flushed_bytes; /* payload in blocks that are out, not reported as sent */
    uint8_t         *in; /* from in_first to in_end: what has come; first what is checked ... */
    size_t           in_first, in_end;
    size_t           checked_bytes; /* ... so much */
    gm_status        fate;          /* GM_OK, or how it ended */
    _Atomic uint64_t n_sent, n_got, payload_sent, payload_recv;
};

static struct checked_link *checked_of(struct gmi_link *link) { return (struct checked_link *)link; }

static gm_status end_with(struct checked_link *c, gm_status status)
{
    c->fate = status;
    c->base.sys_errno = status == GM_ERR_CORRUPT ? 0 : c->inner->sys_errno;
    return status;
}

/* The length has a checksum of its own: a receiver that believed a longer one would wait for bytes that nobody sends. */
static void put_head(uint8_t *block, size_t n_bytes)
{
    gmi_put_u32(block, (uint32_t)n_bytes);
    gmi_put_u32(block + 4, gmi_crc32c(0, block, 4));
    gmi_put_u32(block + 8, gmi_crc32c(0, block + HEAD_BYTES, n_bytes));
    gmi_put_u32(block + 12, 0);
}

static bool is_head_right(const uint8_t *block)
{
    size_t n_bytes = gmi_get_u32(block);
    return gmi_crc32c(0, block, 4) == gmi_get_u32(block + 4) && gmi_get_u32(block + 12) == 0 && n_bytes >= 1 && n_bytes <= BLOCK_BYTES;
}

/* ---- sending --------------------------------------------------------------------------------------- */

static void seal(struct checked_link *c, const struct iovec *parts, int n_parts, size_t skip_bytes)
{
    size_t n = 0;
    for (int i = 0; i < n_parts && n < BLOCK_BYTES; i++) {
        size_t skipped = gmi_min_size(skip_bytes, parts[i].iov_len);
        size_t take = gmi_min_size(parts[i].iov_len - skipped, BLOCK_BYTES - n);
        skip_bytes -= skipped;
        if (take > 0) memcpy(c->out + HEAD_BYTES + n, (const uint8_t *)parts[i].iov_base + skipped, take);
        n += take;
    }
    put_head(c->out, n);
    c->out_first = 0;
    c->out_end = HEAD_BYTES + n;
    c->sealed_bytes = n;
}

/* GM_OK: the block is out, or there was none. */
static gm_status flush(struct checked_link *c)
{
    while (c->out_first < c->out_end) {
        struct iovec part = { c->out + c->out_first, c->out_end - c->out_first };
        size_t       moved;
        gm_status    status = gmi_link_send_some(c->inner, &part, 1, &moved);
        if (status != GM_OK) return status == GM_AGAIN ? status : end_with(c, status);
        c->out_first += moved;
        c->n_sent += moved;
    }
    c->flushed_bytes += c->sealed_bytes;
    c->sealed_bytes = c->out_first = c->out_end = 0;
    return GM_OK;
}

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct checked_link *c = checked_of(link);
    size_t               offered_bytes = 0;
    for (int i = 0; i < n_parts; i++) offered_bytes += parts[i].iov_len;
    *moved_bytes = 0;
    gm_status status = c->fate != GM_OK ? c->fate : flush(c);
    while (status == GM_OK) {
        size_t reported = gmi_min_size(c->flushed_bytes, offered_bytes - *moved_bytes);
        c->flushed_bytes -= reported;
        c->payload_sent += reported;
        *moved_bytes += reported;
        if (*moved_bytes == offered_bytes) return GM_OK;
        seal(c, parts, n_parts, *moved_bytes);
        status = flush(c);
    }
    return *moved_bytes > 0 ? GM_OK : status;
}

/* ---- receiving ------------------------------------------------------------------------------------- */

/* Of the block at in_first; 0: its head is not there yet. */
static size_t block_bytes(const struct checked_link *c)
{
    return c->in_end - c->in_first < HEAD_BYTES ? 0 : HEAD_BYTES + (size_t)gmi_get_u32(c->in + c->in_first);
}

static bool has_whole_block(const struct checked_link *c)
{
    size_t n = block_bytes(c);
    return n > 0 && c->in_end - c->in_first >= n;
}

static gm_status read_more(struct checked_link *c)
{
    size_t here = c->in_end - c->in_first, want = block_bytes(c);
    size_t room = want > 0 ? want - here : IN_BYTES;
    if (here == 0 || c->in_first + WHOLE_BYTES > IN_BYTES) {
        memmove(c->in, c->in + c->in_first, here);
        c->in_first = 0;
        c->in_end = here;
    }
    struct iovec part = { c->in + c->in_end, gmi_min_size(room, IN_BYTES - c->in_end) };
    size_t       moved;
    gm_status    status = gmi_link_recv_some(c->inner, &part, 1, &moved);
    c->in_end += moved;
    c->n_got += moved;
    if (status != GM_OK) c->base.sys_errno = c->inner->sys_errno;
    return status;
}

/* Until something is checked. */
static gm_status check_more(struct checked_link *c)
{
    while (c->checked_bytes == 0) {
        if (c->fate == GM_ERR_CORRUPT) return c->fate;
        size_t         n = block_bytes(c);
        const uint8_t *block = c->in + c->in_first;
        if (n > 0 && !is_head_right(block)) return end_with(c, GM_ERR_CORRUPT);
        if (has_whole_block(c)) {
            if (gmi_crc32c(0, block + HEAD_BYTES, n - HEAD_BYTES) != gmi_get_u32(block + 8)) return end_with(c, GM_ERR_CORRUPT);
            c->in_first += HEAD_BYTES;
            c->checked_bytes = n - HEAD_BYTES;
            break;
        }
        gm_status status = read_more(c);
        if (status != GM_OK) return status;
    }
    return GM_OK;
}

static void hand_on(struct checked_link *c, size_t n_bytes)
{
    c->in_first += n_bytes;
    c->checked_bytes -= n_bytes;
    c->payload_recv += n_bytes;
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct checked_link *c = checked_of(link);
    *moved_bytes = 0;
    for (int i = 0; i < n_parts; i++) {
        for (size_t done = 0; done < parts[i].iov_len;) {
            gm_status status = check_more(c);
            if (status != GM_OK) return *moved_bytes > 0 ? GM_OK : status; /* it is seen again next time */
            size_t n = gmi_min_size(c->checked_bytes, parts[i].iov_len - done);
            memcpy((uint8_t *)parts[i].iov_base + done, c->in + c->in_first, n);
            hand_on(c, n);
            done += n;
            *moved_bytes += n;
        }
    }
    return GM_OK;
}

static gm_status peek(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes)
{
    struct checked_link *c = checked_of(link);
    gm_status            status = check_more(c);
    *bytes = c->in + c->in_first;
    *n_bytes = c->checked_bytes;
    return status;
}

static void consume(struct gmi_link *link, size_t n_bytes) { hand_on(checked_of(link), n_bytes); }

/* ---- the rest of the table -------------------------------------------------------------------------- */

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    struct checked_link *c = checked_of(link);
    bool                 has_come = interest & GMI_READABLE && (c->checked_bytes > 0 || has_whole_block(c));
    if (has_come || (interest & GMI_WRITABLE && c->flushed_bytes > 0)) gmi_poller_skip(poller);
    gmi_link_watch(c->inner, poller, interest);
}

static void finish(struct gmi_link *link) { gmi_link_finish(checked_of(link)->inner); }

static void close_link(struct gmi_link *link)
{
    struct checked_link *c = checked_of(link);
    gmi_link_close(c->inner);
    gmi_free(c->out);
    gmi_free(c->in);
    gmi_free(c);
}

static gm_status kernel_counts(struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    struct gmi_link *inner = checked_of(link)->inner;
    return inner->ops->kernel_counts == NULL ? GM_ERR_UNSUPPORTED : inner->ops->kernel_counts(inner, sent_bytes, recv_bytes);
}

static bool fare(const struct gmi_link *link, struct gmi_socket_fare *fare)
{
    return gmi_link_fare(((const struct checked_link *)link)->inner, fare);
}

static bool is_unanswered(struct gmi_link *link, int for_ms) { return gmi_link_is_unanswered(checked_of(link)->inner, for_ms); }

static void overhead(const struct gmi_link *link, uint64_t *sent_bytes, uint64_t *recv_bytes)
{
    const struct checked_link *c = (const struct checked_link *)link;
    *sent_bytes = c->n_sent - c->payload_sent;
    *recv_bytes = c->n_got - c->payload_recv;
}

static const struct gmi_link_ops checked_ops = {
    .name = "checked blocks",
    .send_some = send_some,
    .recv_some = recv_some,
    .peek = peek,
    .consume = consume,
    .watch = watch,
    .finish = finish,
    .close = close_link,
    .kernel_counts = kernel_counts,
    .is_unanswered = is_unanswered,
    .fare = fare,
    .overhead = overhead,
};

struct gmi_link *gmi_link_checked_wrap(struct gmi_link *inner)
{
    struct checked_link *c = inner != NULL ? gmi_alloc(1, sizeof *c) : NULL;
    if (c != NULL) {
        *c = (struct checked_link){ .base = { .ops = &checked_ops, .is_shared_memory = inner->is_shared_memory },
                                    .inner = inner, .out = gmi_alloc(WHOLE_BYTES, 1), .in = gmi_alloc(IN_BYTES, 1) };
        if (c->out != NULL && c->in != NULL) return &c->base;
        close_link(&c->base);
        return NULL;
    }
    gmi_link_close(inner);
    return NULL;
}
