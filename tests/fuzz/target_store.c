/* The store: one byte that chooses, then
 *     even  to its server from two ranks, chunks: whose, length, bytes
 *     odd   to its client, which waits for a key and lists them: the replies */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/socket.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server.h"
#include "tests/fuzz/targets.h"

enum { N_CLIENTS = 2, WAIT_MS = 1000 };

static void serve(struct fuzz_input *in)
{
    static struct gmi_store_server *server; /* one, which is empty again after each input */
    int ends[N_CLIENTS][2];
    if (server == NULL) fuzz_check(gmi_store_server_create(&server, "127.0.0.1", 0, "job", NULL, NULL, NULL) == GM_OK);
    for (int k = 0; k < N_CLIENTS; k++) {
        struct gmi_hello hello = { .channel = GMI_CHANNEL_STORE, .rank = k, .world_size = N_CLIENTS, .group = 1 };
        fuzz_socket_pair(ends[k]);
        gmi_store_server_admit(server, gmi_stream_plain(ends[k][1]), &hello);
    }
    while (in->left_bytes > 0) {
        int            who = fuzz_u8(in) % N_CLIENTS;
        size_t         n;
        const uint8_t *at = fuzz_take(in, fuzz_u8(in), &n);
        fuzz_send(ends[who][0], at, n);
        gmi_store_server_step(server);
    }
    for (int k = 0; k < N_CLIENTS; k++) {
        fuzz_drain(ends[k][0]);
        gmi_socket_close(&ends[k][0]);
    }
    gmi_store_server_step(server);
    fuzz_check(gmi_store_server_clients(server) == 0);
}

static void hear_replies(struct fuzz_input *in)
{
    int  ends[2];
    char value[GMI_STORE_MAX_VALUE_BYTES + 1], *keys = NULL;
    fuzz_socket_pair(ends);
    fuzz_send(ends[0], in->bytes, in->left_bytes);
    gmi_socket_finish_sending(ends[0]);
    struct gmi_store store = { .stream = gmi_stream_plain(ends[1]) };
    int64_t          deadline_ns = gmi_deadline_after_ms(WAIT_MS);
    if (gmi_store_claim(&store, "world/1", "127.0.0.1:7", deadline_ns, NULL) == GM_OK &&
        gmi_store_wait(&store, "world/0", value, deadline_ns, NULL) == GM_OK) {
        fuzz_check(strlen(value) <= GMI_STORE_MAX_VALUE_BYTES);
        if (gmi_store_list(&store, "world/", &keys, deadline_ns, NULL) == GM_OK) gmi_free(keys);
    }
    gmi_store_close(&store);
    gmi_socket_close(&ends[0]);
}

void fuzz_store(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input in = { bytes, n_bytes };
    if (fuzz_u8(&in) % 2 == 0) {
        serve(&in);
    } else {
        hear_replies(&in);
    }
}

/* ---- seeds --------------------------------------------------------------------------------------- */

static size_t put_request(uint8_t *w, int who, enum gmi_store_kind kind, const char *key, const char *value)
{
    size_t key_bytes = strlen(key), value_bytes = strlen(value);
    w[0] = (uint8_t)who;
    w[1] = (uint8_t)(GMI_STORE_HEADER_BYTES + key_bytes + value_bytes);
    gmi_store_header_encode(w + 2, kind, key_bytes, value_bytes);
    memcpy(w + 2 + GMI_STORE_HEADER_BYTES, key, key_bytes);
    memcpy(w + 2 + GMI_STORE_HEADER_BYTES + key_bytes, value, value_bytes);
    return (size_t)2 + w[1];
}

static size_t put_reply(uint8_t *w, enum gmi_store_kind kind, const char *value)
{
    gmi_store_header_encode(w, kind, 0, strlen(value));
    memcpy(w + GMI_STORE_HEADER_BYTES, value, strlen(value));
    return GMI_STORE_HEADER_BYTES + strlen(value);
}

void fuzz_store_seed(fuzz_keep_fn keep, void *user)
{
    uint8_t w[512] = { 0 };
    size_t  n = 1;
    n += put_request(w + n, 1, GMI_STORE_WAIT, "world/0", "");
    n += put_request(w + n, 0, GMI_STORE_CLAIM, "world/0", "127.0.0.1:5");
    n += put_request(w + n, 1, GMI_STORE_CLAIM, "world/0", "127.0.0.1:6");
    n += put_request(w + n, 1, GMI_STORE_WAIT, "world/9", "");
    n += put_request(w + n, 1, GMI_STORE_LIST, "world/", "");
    keep(user, w, n);
    w[0] = 1;
    n = 1 + put_reply(w + 1, GMI_STORE_GRANTED, "");
    n += put_reply(w + n, GMI_STORE_LISTING, "old\n");
    n += put_reply(w + n, GMI_STORE_VALUE, "127.0.0.1:5");
    n += put_reply(w + n, GMI_STORE_VALUE, "late");
    n += put_reply(w + n, GMI_STORE_LISTING, "world/0\nworld/1\n");
    keep(user, w, n);
    n = 1 + put_reply(w + 1, GMI_STORE_TAKEN, "rank 1 is already taken");
    keep(user, w, n);
}
