/* Checked blocks on a data link: chunks of what comes over the wire, kind, and by kind
 *     0   u8 length, bytes as they come
 *     1   u8 length: a right block of so many bytes
 *     2   u16 length: the same, of some size of 256 or more
 *     3   u8 length, u8 where, u8 bits: a block in which something has changed
 * and before each, u8: how the receiver takes what is there (0: it borrows; else so many bytes at a time). What it gets must be
 * what the right blocks held, and nothing behind the first that is not right. */
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "tests/fuzz/targets.h"
#include "transport/link.h"

enum { HEAD_BYTES = 16, BLOCK_BYTES = 64 * 1024, WIRE_BYTES = 5 << 15, N_KINDS = 4 };

/* All that was put on the wire, and what a receiver may have of it. */
struct wire {
    struct gmi_link *far;
    uint8_t          sent[WIRE_BYTES], payload[WIRE_BYTES];
    size_t           n_sent, n_looked, n_payload, n_got;
};

static void put(struct wire *w, const uint8_t *bytes, size_t n_bytes)
{
    struct iovec part = { (void *)(uintptr_t)bytes, n_bytes };
    size_t       moved;
    if (n_bytes == 0 || gmi_link_send_some(w->far, &part, 1, &moved) != GM_OK) return;
    memcpy(w->sent + w->n_sent, bytes, moved);
    w->n_sent += moved;
}

static void put_block(struct wire *w, size_t n_bytes, size_t changed_at, uint8_t changed_bits)
{
    static uint8_t block[HEAD_BYTES + 65536];
    for (size_t i = 0; i < n_bytes; i++) block[HEAD_BYTES + i] = (uint8_t)(i * 7 + n_bytes);
    gmi_put_u32(block, (uint32_t)n_bytes);
    gmi_put_u32(block + 4, gmi_crc32c(0, block, 4));
    gmi_put_u32(block + 8, gmi_crc32c(0, block + HEAD_BYTES, n_bytes));
    gmi_put_u32(block + 12, 0);
    block[changed_at % (HEAD_BYTES + n_bytes)] ^= changed_bits;
    put(w, block, HEAD_BYTES + n_bytes);
}

/* By the format alone: what stands in whole right blocks. True: what follows them can never be right. */
static bool find_payload(struct wire *w)
{
    while (w->n_sent - w->n_looked >= HEAD_BYTES) {
        const uint8_t *head = w->sent + w->n_looked;
        size_t         n = gmi_get_u32(head);
        if (gmi_crc32c(0, head, 4) != gmi_get_u32(head + 4) || gmi_get_u32(head + 12) != 0 || n == 0 || n > BLOCK_BYTES) return true;
        if (w->n_sent - w->n_looked < HEAD_BYTES + n) return false;
        if (gmi_crc32c(0, head + HEAD_BYTES, n) != gmi_get_u32(head + 8)) return true;
        memcpy(w->payload + w->n_payload, head + HEAD_BYTES, n);
        w->n_payload += n;
        w->n_looked += HEAD_BYTES + n;
    }
    return false;
}

static void check_got(struct wire *w, const uint8_t *bytes, size_t n_bytes)
{
    fuzz_check(n_bytes <= w->n_payload - w->n_got && memcmp(bytes, w->payload + w->n_got, n_bytes) == 0);
    w->n_got += n_bytes;
}

/* Takes all that is there. */
static gm_status take_all(struct wire *w, struct gmi_link *near, size_t at_a_time)
{
    uint8_t        bytes[300];
    const uint8_t *lent;
    struct iovec   parts[2] = { { bytes, at_a_time }, { bytes + at_a_time, 17 } };
    gm_status      status;
    size_t         n;
    while ((status = at_a_time == 0 ? gmi_link_peek(near, &lent, &n) : gmi_link_recv_some(near, parts, 2, &n)) == GM_OK) {
        fuzz_check(n > 0);
        check_got(w, at_a_time == 0 ? lent : bytes, n);
        if (at_a_time == 0) gmi_link_consume(near, n);
    }
    return status;
}

static void put_chunk(struct wire *w, struct fuzz_input *in)
{
    const uint8_t *bytes;
    size_t         n, at;
    switch (fuzz_u8(in) % N_KINDS) {
    case 0:
        bytes = fuzz_take(in, fuzz_u8(in), &n);
        put(w, bytes, n);
        break;
    case 1: put_block(w, 1 + (size_t)fuzz_u8(in), 0, 0); break;
    case 2: put_block(w, 256 + (size_t)fuzz_u16(in) % (BLOCK_BYTES - 255), 0, 0); break;
    default:
        n = 1 + (size_t)fuzz_u8(in);
        at = fuzz_u8(in);
        put_block(w, n, at, fuzz_u8(in));
    }
}

void fuzz_checked(const uint8_t *bytes, size_t n_bytes)
{
    static struct wire w;
    struct fuzz_input  in = { bytes, n_bytes };
    struct gmi_link   *pair[2];
    gm_status          status = GM_AGAIN;
    bool               is_over = false;
    w.n_sent = w.n_looked = w.n_payload = w.n_got = 0;
    fuzz_check(gmi_link_mem_pair(pair, WIRE_BYTES) == GM_OK);
    w.far = pair[1];
    struct gmi_link *near = gmi_link_checked_wrap(pair[0]);
    fuzz_check(near != NULL);
    while (in.left_bytes > 0 && w.n_sent < WIRE_BYTES - HEAD_BYTES - BLOCK_BYTES) {
        uint8_t at_a_time = fuzz_u8(&in);
        put_chunk(&w, &in);
        is_over = find_payload(&w);
        status = take_all(&w, near, at_a_time);
        fuzz_check(w.n_got == w.n_payload && status == (is_over ? GM_ERR_CORRUPT : GM_AGAIN));
    }
    gmi_link_close(w.far);
    fuzz_check(take_all(&w, near, 5) == (is_over ? GM_ERR_CORRUPT : GM_ERR_PEER_LOST));
    gmi_link_close(near);
}

void fuzz_checked_seed(fuzz_keep_fn keep, void *user)
{
    uint8_t whole[2 + 1 + HEAD_BYTES + 3] = { 9, 0, HEAD_BYTES + 3, 3 };
    gmi_put_u32(whole + 3 + 4, gmi_crc32c(0, whole + 3, 4));
    memcpy(whole + 3 + HEAD_BYTES, "abc", 3);
    gmi_put_u32(whole + 3 + 8, gmi_crc32c(0, "abc", 3));
    keep(user, whole, sizeof whole);
    keep(user, (const uint8_t *)"\0\1\5\7\1\xff\0\1\0", 9);
    keep(user, (const uint8_t *)"\0\2\0\0\xff\2\xff\xff\1\2\xff\xfe\0\1\1", 15);
    keep(user, (const uint8_t *)"\0\1\5\0\3\x20\x02\x40\1\1\1", 11);
    keep(user, (const uint8_t *)"\3\3\x20\x08\1\1\1\1", 8);
}
