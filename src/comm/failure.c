#include "comm/failure.h"

#include <stdio.h>

void gmi_failure_encode(const struct gmi_failure *f, struct gmi_buffer *b)
{
    gmi_buffer_put_u32(b, (uint32_t)f->status);
    gmi_buffer_put_u32(b, (uint32_t)f->culprit);
    gmi_buffer_put_u32(b, (uint32_t)f->reporter);
    gmi_buffer_put_u32(b, (uint32_t)f->sys_errno);
    gmi_buffer_put_u64(b, f->op_seq);
    gmi_buffer_put_text(b, f->cause);
}

void gmi_failure_make_one_line(struct gmi_failure *f)
{
    for (char *c = f->cause; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') *c = ' ';
    }
}

bool gmi_failure_decode(struct gmi_failure *f, struct gmi_reader *r)
{
    uint32_t status = gmi_reader_u32(r);
    f->culprit = (int)gmi_reader_u32(r);
    f->reporter = (int)gmi_reader_u32(r);
    f->sys_errno = (int)gmi_reader_u32(r);
    f->op_seq = gmi_reader_u64(r);
    gmi_reader_text(r, f->cause, sizeof f->cause);
    f->status = (gm_status)status;
    gmi_failure_make_one_line(f);
    return !r->is_short && status > GM_AGAIN && status <= GM_ERR_CORRUPT;
}

struct gmi_failure gmi_failure_of_mismatch(int reporter, const struct gmi_descriptor *theirs,
                                           const struct gmi_descriptor *ours)
{
    char their_text[128], our_text[128];
    struct gmi_failure f = { .status = GM_ERR_MISMATCH, .culprit = theirs->rank, .reporter = reporter,
                             .op_seq = ours->seq };
    snprintf(f.cause, sizeof f.cause, "ranks call different things: rank %d calls %s, rank %d calls %s",
             (int)theirs->rank, gmi_descriptor_format(theirs, their_text, sizeof their_text), (int)ours->rank,
             gmi_descriptor_format(ours, our_text, sizeof our_text));
    return f;
}

const char *gmi_hint_at_packet_size(const struct gmi_socket_fare *fare, char text[GMI_HINT_BYTES])
{
    enum { SMALL_BYTES = 536 }; /* what every path carries */
    text[0] = '\0';
    if (fare->acked_bytes == 0 || fare->delivered_packets == 0 || fare->unacked_bytes <= SMALL_BYTES) return text;
    if (fare->acked_bytes >= fare->payload_bytes && fare->acked_bytes / fare->delivered_packets >= fare->payload_bytes / 2) return text;
    snprintf(text, GMI_HINT_BYTES, "; small packets came through before, but hardly one with %u bytes: does the path carry them (MTU)?",
             fare->payload_bytes);
    return text;
}
