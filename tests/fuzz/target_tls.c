/* Records on an encrypted connection whose peer has the key and sends what it likes, behind a right handshake. Chunks: how much
 * the receiver takes at a time (u8; 0: nothing now), kind, and by kind
 *     0   u8 length, bytes as they come
 *     1   u16 length: a record of data
 *     2   u8 type, u8 length, content: a record that is sealed well
 *     3   u8 length, u16 where, u8 bits: a record of data in which something has changed
 *     4   u8: a change of the key; odd: it wants one in return
 * The receiver gets what the records of data held, and nothing behind the first that no peer of ours sends. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "net/tls_handshake.h"
#include "net/tls_key.h"
#include "tests/fuzz/targets.h"

enum { N_KINDS = 5, CAP_BYTES = 8192, PAYLOAD_BYTES = 128 * 1024, KEY_UPDATE = 24, ROUNDS = 10 };

static const uint8_t key[GMI_TLS_KEY_BYTES] = "both have this";

struct pair {
    int                fds[2]; /* near, far */
    struct gmi_tls    *near;
    struct gmi_tls_key far;
    uint8_t            payload[PAYLOAD_BYTES];
    size_t             n_payload, n_got;
    bool               is_spoiled; /* what follows can never be right */
};

/* The far end's half, by hand, as its keys are wanted. */
static void shake_far(struct pair *p, struct gmi_tls_handshake *h, struct gmi_tls_buffer *in, struct gmi_tls_buffer *out)
{
    gm_status near = GM_AGAIN, far = GM_AGAIN;
    for (int i = 0; i < ROUNDS && (near != GM_OK || far != GM_OK); i++) {
        int     sys_errno = 0;
        ssize_t n = recv(p->fds[1], in->bytes + in->end, in->cap_bytes - in->end, MSG_DONTWAIT);
        if (n > 0) in->end += (size_t)n;
        if (far == GM_AGAIN) far = gmi_tls_handshake_step(h);
        size_t left = out->end - out->first;
        if (left > 0) fuzz_check(send(p->fds[1], out->bytes + out->first, left, MSG_NOSIGNAL) == (ssize_t)left);
        out->first = out->end;
        near = gmi_tls_shake(p->near, &sys_errno);
    }
    fuzz_check(near == GM_OK && far == GM_OK);
}

static void meet(struct pair *p, bool is_client)
{
    static uint8_t             in_bytes[CAP_BYTES], out_bytes[CAP_BYTES];
    struct gmi_tls_buffer      in = { in_bytes, 0, 0, CAP_BYTES }, out = { out_bytes, 0, 0, CAP_BYTES };
    struct gmi_tls_handshake  *h = gmi_tls_handshake_create(!is_client, key, &in, &out);
    p->n_payload = p->n_got = 0;
    p->is_spoiled = false;
    fuzz_socket_pair(p->fds);
    p->near = gmi_tls_create(p->fds[0], is_client, key, 2);
    fuzz_check(p->near != NULL && h != NULL);
    shake_far(p, h, &in, &out);
    fuzz_check(gmi_tls_key_init(&p->far, gmi_tls_handshake_secret(h, true), true));
    gmi_tls_handshake_destroy(h);
}

static void put(struct pair *p, const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes > 0 && send(p->fds[1], bytes, n_bytes, MSG_NOSIGNAL) != (ssize_t)n_bytes) p->is_spoiled = true; /* no room */
}

static void put_record(struct pair *p, uint8_t type, const uint8_t *content, size_t n_bytes, size_t changed_at, uint8_t changed_bits)
{
    static uint8_t record[GMI_TLS_CONTENT_BYTES + GMI_TLS_ADDED_BYTES];
    struct iovec   part = { (void *)(uintptr_t)content, n_bytes };
    size_t         n = gmi_tls_seal(&p->far, type, &part, 1, record);
    fuzz_check(n == n_bytes + GMI_TLS_ADDED_BYTES);
    record[changed_at % n] ^= changed_bits;
    bool was_spoiled = p->is_spoiled || changed_bits != 0;
    put(p, record, n);
    p->is_spoiled |= was_spoiled;
    if (p->is_spoiled || type != GMI_TLS_DATA) return;
    memcpy(p->payload + p->n_payload, content, n_bytes);
    p->n_payload += n_bytes;
}

static void put_data(struct pair *p, size_t n_bytes, size_t changed_at, uint8_t changed_bits)
{
    static uint8_t content[GMI_TLS_CONTENT_BYTES];
    for (size_t i = 0; i < n_bytes; i++) content[i] = (uint8_t)(i * 7 + n_bytes);
    put_record(p, GMI_TLS_DATA, content, n_bytes, changed_at, changed_bits);
}

static void put_any(struct pair *p, uint8_t type, const uint8_t *content, size_t n_bytes)
{
    static const uint8_t update[] = { KEY_UPDATE, 0, 0, 1 };
    put_record(p, type, content, n_bytes, 0, 0);
    if (type == GMI_TLS_DATA) return;
    bool is_update = type == GMI_TLS_HANDSHAKE && n_bytes == 5 && memcmp(content, update, 4) == 0 && content[4] <= 1;
    if (is_update) fuzz_check(gmi_tls_key_next(&p->far));
    else p->is_spoiled = true;
}

static void put_chunk(struct pair *p, struct fuzz_input *in)
{
    const uint8_t *bytes;
    size_t         n, at;
    uint8_t        type;
    switch (fuzz_u8(in) % N_KINDS) {
    case 0:
        bytes = fuzz_take(in, fuzz_u8(in), &n);
        put(p, bytes, n);
        p->is_spoiled |= n > 0;
        break;
    case 1: put_data(p, fuzz_u16(in) % (GMI_TLS_CONTENT_BYTES + 1), 0, 0); break;
    case 2:
        type = fuzz_u8(in);
        bytes = fuzz_take(in, fuzz_u8(in), &n);
        put_any(p, type, bytes, n);
        break;
    case 3:
        n = fuzz_u8(in);
        at = fuzz_u16(in);
        put_data(p, n, at, fuzz_u8(in));
        break;
    default: put_any(p, GMI_TLS_HANDSHAKE, (const uint8_t[]){ KEY_UPDATE, 0, 0, 1, fuzz_u8(in) & 1 }, 5);
    }
}

/* Takes all that has come. */
static gm_status take_all(struct pair *p, size_t at_a_time)
{
    uint8_t      bytes[4096];
    struct iovec parts[2] = { { bytes, at_a_time * 8 }, { bytes + at_a_time * 8, 1100 } };
    gm_status    status;
    size_t       n;
    int          sys_errno = 0;
    while ((status = gmi_tls_recv_some(p->near, parts, 2, &n, &sys_errno)) == GM_OK) {
        fuzz_check(n > 0 && n <= p->n_payload - p->n_got && memcmp(bytes, p->payload + p->n_got, n) == 0);
        p->n_got += n;
    }
    return status;
}

void fuzz_tls(const uint8_t *bytes, size_t n_bytes)
{
    static struct pair p;
    struct fuzz_input  in = { bytes, n_bytes };
    gm_status          status;
    meet(&p, fuzz_u8(&in) & 1);
    while (in.left_bytes > 0 && p.n_payload <= PAYLOAD_BYTES - GMI_TLS_CONTENT_BYTES) {
        uint8_t at_a_time = fuzz_u8(&in);
        put_chunk(&p, &in);
        if (at_a_time == 0) continue;
        status = take_all(&p, at_a_time);
        if (!p.is_spoiled) fuzz_check(status == GM_AGAIN && p.n_got == p.n_payload);
        else fuzz_check(status == GM_AGAIN || status == GM_ERR_PROTOCOL);
    }
    close(p.fds[1]);
    status = take_all(&p, 5);
    fuzz_check(p.n_got == p.n_payload && (status == GM_ERR_PEER_LOST || (p.is_spoiled && status == GM_ERR_PROTOCOL)));
    gmi_tls_destroy(p.near);
    gmi_tls_key_fini(&p.far);
    close(p.fds[0]);
}

void fuzz_tls_seed(fuzz_keep_fn keep, void *user)
{
    keep(user, (const uint8_t *)"\0\1\1\x10\0\0\1\xff\x3f\2\1\0\x40\2\1\5\0", 17);
    keep(user, (const uint8_t *)"\1\1\4\1\1\1\7\0\0\4\0\1\1\7\4", 15);
    keep(user, (const uint8_t *)"\0\0\1\5\0\1\3\x20\x09\0\4\1\1\7\0", 15);
    keep(user, (const uint8_t *)"\1\1\2\x15\2\1\0\1\1\7\0", 11);
    keep(user, (const uint8_t *)"\0\1\2\x17\3" "abc" "\1\0\6\x17\3\3\0\1\0\1", 18);
    keep(user, (const uint8_t *)"\0\1\2\x16\5\x18\0\0\1\1\1\1\7\0", 14);
}
