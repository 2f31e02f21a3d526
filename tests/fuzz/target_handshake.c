/* Handshakes: one byte of flags (1: we call; 2: we have a secret; 4: the peer knows it), then chunks: u8 length, bytes. If the peer
 * knows the secret, his proof is put in where it belongs, so that what comes behind it is reached. */
#include <string.h>

#include "base/error.h"
#include "net/socket.h"
#include "rendezvous/handshake.h"
#include "tests/fuzz/targets.h"

enum { CALLS = 1, HAS_SECRET = 2, IS_KNOWN = 4 };

static gm_status judge(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    struct gmi_handshake *h = user;
    fuzz_check(h->is_proven && memchr(peer->job_id, '\0', sizeof peer->job_id) != NULL && why_bytes > 2);
    memcpy(why, "no", 3);
    return peer->rank == 7 ? GM_ERR_REFUSED : GM_OK;
}

static gm_status judge_caller(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    struct gmi_handshake *h = user; /* one that calls judges also who cannot prove himself: he may look again */
    bool was_proven = h->is_proven;
    h->is_proven = true;
    gm_status status = judge(h, peer, why, why_bytes);
    h->is_proven = was_proven;
    return status;
}

/* What the peer must send as his proof. He has heard our hello. */
static void send_proof(struct gmi_handshake *h, int fd)
{
    uint8_t proof[GMI_PROOF_BYTES];
    if (gmi_secret_prove(h->secret, !h->is_caller, &h->hellos, proof)) fuzz_send(fd, proof, sizeof proof);
}

void fuzz_handshake(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input    in = { bytes, n_bytes };
    uint8_t              flags = fuzz_u8(&in);
    struct gmi_secret    secret = { .is_set = flags & HAS_SECRET, .key = { 9 } };
    struct gmi_hello     own = { .channel = GMI_CHANNEL_CONTROL, .rank = 0, .target = 1, .world_size = 2, .job_id = "job" };
    struct gmi_handshake h;
    gm_error             error;
    int                  ends[2];
    bool                 has_proven = !(flags & IS_KNOWN);
    fuzz_socket_pair(ends);
    gmi_error_clear(&error);
    gmi_handshake_init(&h, ends[1], flags & CALLS, &own, &secret, flags & CALLS ? judge_caller : judge, &h, 60000);
    gm_status status = gmi_handshake_progress(&h, &error);
    while (status == GM_AGAIN && in.left_bytes > 0) {
        size_t n;
        if (h.state == GMI_SHAKE_RECEIVING_PROOF && !has_proven) {
            send_proof(&h, ends[0]);
            has_proven = true;
        } else {
            const uint8_t *at = fuzz_take(&in, fuzz_u8(&in), &n);
            fuzz_send(ends[0], at, n);
        }
        status = gmi_handshake_progress(&h, &error);
        fuzz_drain(ends[0]);
    }
    if (status == GM_OK) {
        fuzz_check(h.is_proven && (flags & (HAS_SECRET | IS_KNOWN)) != HAS_SECRET);
    } else if (status != GM_AGAIN) {
        fuzz_check(error.status == status && h.fd == -1);
    }
    gmi_handshake_fini(&h);
    gmi_socket_close(&ends[0]);
}

void fuzz_handshake_seed(fuzz_keep_fn keep, void *user)
{
    struct gmi_hello hello = { .version = GMI_PROTOCOL_VERSION, .channel = GMI_CHANNEL_CONTROL, .rank = 1, .target = 0,
                               .world_size = 2, .job_id = "job" };
    for (uint8_t flags = 0; flags < 8; flags++) {
        uint8_t w[2 + GMI_HELLO_BYTES + 1 + GMI_VERDICT_BYTES + 3] = { flags, GMI_HELLO_BYTES };
        size_t  n = 2 + GMI_HELLO_BYTES;
        hello.flags = flags & HAS_SECRET ? GMI_HELLO_HAS_SECRET : 0;
        gmi_hello_encode(&hello, w + 2);
        w[n++] = GMI_VERDICT_BYTES + 3;
        w[n] = flags & CALLS ? GM_ERR_REFUSED : GM_OK;
        w[n + 2] = flags & CALLS ? 3 : 0;
        memcpy(w + n + GMI_VERDICT_BYTES, "why", 3);
        keep(user, w, sizeof w);
    }
}
