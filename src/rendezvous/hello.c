#include "rendezvous/hello.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"

static const uint8_t magic[8] = { 'G', 'R', 'A', 'D', 'M', 'E', 'S', 'H' };

void gmi_hello_encode(const struct gmi_hello *h, uint8_t w[GMI_HELLO_BYTES])
{
    memset(w, 0, GMI_HELLO_BYTES);
    memcpy(w, magic, sizeof magic);
    gmi_put_u16(w + 8, h->version);
    w[10] = h->channel;
    w[11] = h->flags;
    gmi_put_u32(w + 12, (uint32_t)h->rank);
    gmi_put_u32(w + 16, (uint32_t)h->target);
    gmi_put_u32(w + 20, (uint32_t)h->world_size);
    gmi_put_u32(w + 24, h->epoch);
    gmi_put_u32(w + 28, h->group);
    memcpy(w + 32, h->job_id, GMI_JOB_ID_BYTES);
    memcpy(w + 64, h->nonce, GMI_NONCE_BYTES);
    gmi_put_u64(w + 80, h->session);
}

enum gmi_hello_verdict gmi_hello_decode(struct gmi_hello *h, const uint8_t *w, size_t n_bytes)
{
    if (memcmp(w, magic, gmi_min_size(n_bytes, sizeof magic)) != 0) return GMI_HELLO_STRANGER;
    if (n_bytes >= 10 && gmi_get_u16(w + 8) != GMI_PROTOCOL_VERSION) {
        h->version = gmi_get_u16(w + 8);
        return GMI_HELLO_OTHER_VERSION;
    }
    if (n_bytes < GMI_HELLO_BYTES) return GMI_HELLO_GOOD;
    *h = (struct gmi_hello){
        .version = gmi_get_u16(w + 8),
        .channel = w[10],
        .flags = w[11],
        .rank = (int32_t)gmi_get_u32(w + 12),
        .target = (int32_t)gmi_get_u32(w + 16),
        .world_size = (int32_t)gmi_get_u32(w + 20),
        .epoch = gmi_get_u32(w + 24),
        .group = gmi_get_u32(w + 28),
        .session = gmi_get_u64(w + 80),
    };
    memcpy(h->job_id, w + 32, GMI_JOB_ID_BYTES);
    h->job_id[GMI_JOB_ID_BYTES - 1] = '\0';
    for (char *c = h->job_id; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') *c = '?'; /* it goes into messages */
    }
    memcpy(h->nonce, w + 64, GMI_NONCE_BYTES);
    return GMI_HELLO_GOOD;
}

uint32_t gmi_group_id(const char *name)
{
    uint32_t h = UINT32_C(2166136261);
    for (const char *c = name; *c != '\0'; c++) h = (h ^ (uint8_t)*c) * UINT32_C(16777619);
    return h;
}

uint64_t gmi_process_number(void)
{
    /* Processes in two containers may have the same id; where they were loaded differs. */
    return gmi_mix64((uint64_t)getpid() ^ gmi_mix64((uintptr_t)&gmi_process_number));
}

void gmi_random_bytes(void *bytes, size_t n_bytes)
{
    if (getrandom(bytes, n_bytes, 0) == (ssize_t)n_bytes) return;
    /* Never seen on Linux for so few bytes; a nonce must only differ from others then. */
    uint64_t key = (uint64_t)gmi_now_ns() ^ (uintptr_t)bytes;
    for (size_t i = 0; i < n_bytes; i++) ((uint8_t *)bytes)[i] = (uint8_t)gmi_rng_u64(key, i);
}
