#include "coll/intake.h"

#include <string.h>

#include "base/ahead.h"

/* While a block is combined, the next one comes near: the link's memory is read as fast as ours. */
enum { BLOCK_BYTES = 4096 };

static void expect_block(const uint8_t *into, const uint8_t *own, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at += GMI_LINE_BYTES) {
        gmi_expect_write(into + at);
        if (own != into) gmi_expect_read(own + at);
    }
}

static void combine_blocks(const struct gmi_codec *codec, uint8_t *into, const uint8_t *lent, const uint8_t *own, size_t n_bytes)
{
    for (size_t at = 0, end; at < n_bytes; at = end) {
        end = at + gmi_min_size(BLOCK_BYTES, n_bytes - at);
        expect_block(into + end, own + end, gmi_min_size(BLOCK_BYTES, n_bytes - end));
        gmi_codec_combine(codec, into + at, lent + at, own + at, (end - at) / codec->elem_bytes);
    }
}

/* Straight from the link's memory, if whole elements lie there as the arithmetic wants them. */
static gm_status combine_lent(struct gmi_port *port, uint8_t *into, const uint8_t *own, size_t space_bytes,
                              size_t left_bytes, size_t *settled_bytes)
{
    const struct gmi_codec *codec = &port->op->codec;
    const uint8_t          *lent;
    size_t                  n_bytes;
    gm_status               status = gmi_port_peek(port, left_bytes, &lent, &n_bytes);
    if (n_bytes == 0 || (uintptr_t)lent % codec->elem_bytes != 0) return status;
    size_t elems = gmi_min_size(n_bytes, space_bytes) / codec->elem_bytes;
    if (elems == 0) return GM_OK;
    *settled_bytes = elems * codec->elem_bytes;
    if (codec->user_op.fn == NULL) {
        combine_blocks(codec, into, lent, own, *settled_bytes);
    } else {
        gmi_codec_combine(codec, into, lent, own, elems);
    }
    gmi_port_consume(port, *settled_bytes);
    return GM_OK;
}

static gm_status combine_copied(struct gmi_intake *in, struct gmi_port *port, uint8_t *into, const uint8_t *own,
                                size_t space_bytes, size_t left_bytes, size_t *settled_bytes)
{
    const struct gmi_op *op = port->op;
    size_t               got_bytes, held_bytes = in->held_bytes, elem_bytes = op->codec.elem_bytes;
    size_t               room_bytes = gmi_min_size(space_bytes, GMI_SCRATCH_BYTES);
    gm_status status = gmi_port_recv_some(port, op->scratch + held_bytes, room_bytes - gmi_min_size(room_bytes, held_bytes),
                                          left_bytes - held_bytes, &got_bytes);
    if (got_bytes == 0) return status;
    memcpy(op->scratch, in->held, held_bytes);
    size_t here_bytes = held_bytes + got_bytes, elems = here_bytes / elem_bytes;
    gmi_codec_combine(&op->codec, into, op->scratch, own, elems);
    *settled_bytes = elems * elem_bytes;
    in->held_bytes = here_bytes - *settled_bytes;
    memcpy(in->held, op->scratch + *settled_bytes, in->held_bytes);
    return status;
}

gm_status gmi_intake_some(struct gmi_intake *in, struct gmi_port *port, uint8_t *into, const uint8_t *own,
                          size_t space_bytes, size_t left_bytes, size_t *settled_bytes)
{
    *settled_bytes = 0;
    port->home = own;
    if (in->held_bytes == 0 && space_bytes > 0) {
        gm_status status = combine_lent(port, into, own, space_bytes, left_bytes, settled_bytes);
        if (status != GM_OK || *settled_bytes > 0) {
            port->home = NULL;
            return status;
        }
    }
    gm_status status = combine_copied(in, port, into, own, space_bytes, left_bytes, settled_bytes);
    port->home = NULL;
    return status;
}
