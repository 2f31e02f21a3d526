/* link_mem.c - both ends of a stream inside one process, for stepping many ranks in one thread.
 *
 * A pair is two byte queues that both ends share; the last end that closes frees them. Not for use from
 * two threads. */
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "transport/link.h"

struct queue {
    uint8_t *bytes;
    size_t   cap_bytes, first, used_bytes;
    bool     is_finished; /* the writer sends no more */
    bool     is_broken;   /* the reader is gone */
};

struct pair {
    struct queue queues[2]; /* queues[i]: written by end i */
    int          n_open;
};

struct mem_link {
    struct gmi_link base;
    struct pair    *pair;
    int             end;
};

static struct queue *outgoing(struct mem_link *m) { return &m->pair->queues[m->end]; }
static struct queue *incoming(struct mem_link *m) { return &m->pair->queues[1 - m->end]; }

static size_t push(struct queue *q, const uint8_t *from, size_t want_bytes)
{
    size_t moved = 0;
    while (moved < want_bytes && q->used_bytes < q->cap_bytes) {
        size_t at = (q->first + q->used_bytes) % q->cap_bytes;
        size_t run = gmi_min_size(q->cap_bytes - at, q->cap_bytes - q->used_bytes);
        run = gmi_min_size(run, want_bytes - moved);
        memcpy(q->bytes + at, from + moved, run);
        q->used_bytes += run;
        moved += run;
    }
    return moved;
}

static size_t pull(struct queue *q, uint8_t *to, size_t want_bytes)
{
    size_t moved = 0;
    while (moved < want_bytes && q->used_bytes > 0) {
        size_t run = gmi_min_size(gmi_min_size(q->cap_bytes - q->first, q->used_bytes), want_bytes - moved);
        memcpy(to + moved, q->bytes + q->first, run);
        q->first = (q->first + run) % q->cap_bytes;
        q->used_bytes -= run;
        moved += run;
    }
    return moved;
}

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct queue *q = outgoing((struct mem_link *)link);
    *moved_bytes = 0;
    if (q->is_broken || q->is_finished) return GM_ERR_PEER_LOST;
    for (int i = 0; i < n_parts; i++) *moved_bytes += push(q, parts[i].iov_base, parts[i].iov_len);
    return *moved_bytes > 0 ? GM_OK : GM_AGAIN;
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts,
                           size_t *moved_bytes)
{
    struct queue *q = incoming((struct mem_link *)link);
    *moved_bytes = 0;
    for (int i = 0; i < n_parts; i++) *moved_bytes += pull(q, parts[i].iov_base, parts[i].iov_len);
    if (*moved_bytes > 0) return GM_OK;
    return q->is_finished ? GM_ERR_PEER_LOST : GM_AGAIN;
}

static gm_status peek(struct gmi_link *link, const uint8_t **bytes, size_t *n_bytes)
{
    struct queue *q = incoming((struct mem_link *)link);
    *bytes = q->bytes + q->first;
    *n_bytes = gmi_min_size(q->cap_bytes - q->first, q->used_bytes);
    if (*n_bytes > 0) return GM_OK;
    return q->is_finished ? GM_ERR_PEER_LOST : GM_AGAIN;
}

static void consume(struct gmi_link *link, size_t n_bytes)
{
    struct queue *q = incoming((struct mem_link *)link);
    q->first = (q->first + n_bytes) % q->cap_bytes;
    q->used_bytes -= n_bytes;
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    (void)link, (void)poller, (void)interest; /* whoever steps the ranks simply tries again */
}

static void finish(struct gmi_link *link) { outgoing((struct mem_link *)link)->is_finished = true; }

static void close_link(struct gmi_link *link)
{
    struct mem_link *m = (struct mem_link *)link;
    outgoing(m)->is_finished = true;
    incoming(m)->is_broken = true;
    if (--m->pair->n_open == 0) {
        gmi_free(m->pair->queues[0].bytes);
        gmi_free(m->pair->queues[1].bytes);
        gmi_free(m->pair);
    }
    gmi_free(m);
}

static const struct gmi_link_ops mem_ops = {
    .name = "mem",
    .send_some = send_some,
    .recv_some = recv_some,
    .peek = peek,
    .consume = consume,
    .watch = watch,
    .finish = finish,
    .close = close_link,
};

gm_status gmi_link_mem_pair(struct gmi_link *ends[2], size_t capacity_bytes)
{
    struct pair     *pair = gmi_alloc(1, sizeof *pair);
    struct mem_link *links[2] = { gmi_alloc(1, sizeof **links), gmi_alloc(1, sizeof **links) };
    uint8_t *bytes[2] = { gmi_alloc(capacity_bytes, 1), gmi_alloc(capacity_bytes, 1) };
    if (pair == NULL || links[0] == NULL || links[1] == NULL || bytes[0] == NULL || bytes[1] == NULL) {
        gmi_free(pair);
        for (int i = 0; i < 2; i++) {
            gmi_free(links[i]);
            gmi_free(bytes[i]);
        }
        return GM_ERR_NOMEM;
    }
    pair->n_open = 2;
    for (int i = 0; i < 2; i++) {
        pair->queues[i] = (struct queue){ .bytes = bytes[i], .cap_bytes = capacity_bytes };
        *links[i] = (struct mem_link){ .base.ops = &mem_ops, .pair = pair, .end = i };
        ends[i] = &links[i]->base;
    }
    return GM_OK;
}
