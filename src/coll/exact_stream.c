#include "coll/exact_stream.h"

#include <string.h>

#include "base/bytes.h"

#define MAGIC UINT32_C(0x31584d47) /* "GMX1" */

static size_t slabs_of(struct gmi_blocks range) { return (range.n + GMI_SLAB_BLOCKS - 1) / GMI_SLAB_BLOCKS; }

static size_t slab_blocks(struct gmi_blocks range, size_t slab)
{
    return gmi_min_size(GMI_SLAB_BLOCKS, range.n - slab * GMI_SLAB_BLOCKS);
}

static size_t slab_first_elem(struct gmi_blocks range, size_t slab)
{
    return (range.first + slab * GMI_SLAB_BLOCKS) * GMI_EXACT_BLOCK;
}

static size_t head_bytes(const gm_accumulator *acc) { return 24 + 8 * (size_t)gmi_shards_words(acc->options.n_shards); }

/* ---- sending ------------------------------------------------------------------------------------- */

/* Packs a slab into its buffer; its head goes to `head`. */
static void pack_slab(struct gmi_exact_out *out, size_t slab, uint8_t *head)
{
    size_t n_blocks = slab_blocks(out->range, slab);
    size_t end_elem = slab_first_elem(out->range, slab) + n_blocks * GMI_EXACT_BLOCK, end = out->spills_at;
    out->lane_bytes = gmi_exact_pack(out->buffers[slab % 2], out->lanes + slab * GMI_SLAB_BLOCKS * GMI_EXACT_BLOCK, n_blocks,
                                     out->acc->options.is_wire_raw != 0);
    while (end < out->n_spills && gmi_spill_index(out->spills[end]) < end_elem) end++;
    out->spills_end = end;
    gmi_put_u32(head, (uint32_t)out->lane_bytes);
    gmi_put_u32(head + 4, (uint32_t)(end - out->spills_at));
    out->acc->sent_lane_bytes += out->lane_bytes;
    out->acc->sent_spill_bytes += 8 * (end - out->spills_at);
}

static uint8_t *put_spills(struct gmi_exact_out *out, uint8_t *to)
{
    size_t first_elem = slab_first_elem(out->range, out->slab);
    size_t n = gmi_min_size(GMI_PORTION_SPILLS, out->spills_end - out->spills_at);
    for (size_t i = 0; i < n; i++, to += 8) {
        uint64_t spill = out->spills[out->spills_at++];
        gmi_put_u32(to, (uint32_t)(gmi_spill_index(spill) - first_elem));
        gmi_put_u32(to + 4, (uint32_t)spill);
    }
    return to;
}

static gm_status next_out(struct gmi_op *op, struct gmi_stream *stream)
{
    (void)op;
    struct gmi_exact_out *out = (struct gmi_exact_out *)stream;
    stream->n_bytes = 0;
    if (out->slab == out->n_slabs) return GM_OK;
    uint8_t *portion = out->buffers[out->slab % 2], *end = put_spills(out, portion + out->lane_bytes);
    out->lane_bytes = 0;
    if (out->spills_at == out->spills_end && ++out->slab < out->n_slabs) {
        pack_slab(out, out->slab, end);
        end += GMI_SLAB_HEAD_BYTES;
    }
    stream->data = portion;
    stream->n_bytes = (size_t)(end - portion);
    return GM_OK;
}

void gmi_exact_send(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_exact_out *out,
                    const struct gmi_partial *from, const uint64_t *lanes, struct gmi_blocks range)
{
    out->stream = (struct gmi_stream){ .next = next_out };
    if (range.n == 0) {
        gmi_rounds_send(op, r, peer, NULL, 0);
        return;
    }
    gmi_spills_sort(from->spills);
    out->acc = op->exact;
    out->lanes = lanes;
    out->range = range;
    out->slab = 0;
    out->n_slabs = slabs_of(range);
    out->spills = from->spills->at;
    out->spills_at = gmi_spills_find(from->spills, range.first * GMI_EXACT_BLOCK);
    out->n_spills = from->spills->n;
    size_t n_bytes = head_bytes(out->acc);
    gmi_put_u32(out->head, MAGIC);
    gmi_put_u32(out->head + 4, (uint32_t)gmi_shards_count(&from->shards));
    gmi_put_u64(out->head + 8, range.first);
    gmi_put_u64(out->head + 16, range.n);
    for (size_t at = 24; at < n_bytes; at += 8) gmi_put_u64(out->head + at, from->shards.words[(at - 24) / 8]);
    pack_slab(out, 0, out->head + n_bytes);
    out->stream.data = out->head;
    out->stream.n_bytes = n_bytes + GMI_SLAB_HEAD_BYTES;
    gmi_rounds_send_stream(op, r, peer, &out->stream);
}

/* ---- receiving ----------------------------------------------------------------------------------- */

static gm_status bad(struct gmi_op *op, const struct gmi_exact_in *in, const char *what)
{
    return gmi_op_bad_bytes(op, gmi_group_port(op->group, in->peer), what);
}

/* How long the next portion is. */
static void expect_portion(struct gmi_exact_in *in)
{
    size_t n_spills = gmi_min_size(in->n_spills, GMI_PORTION_SPILLS);
    bool   has_next_head = n_spills == in->n_spills && in->slab + 1 < in->n_slabs;
    in->stream.n_bytes = in->lane_bytes + 8 * n_spills + (has_next_head ? GMI_SLAB_HEAD_BYTES : 0);
}

static gm_status take_slab_head(struct gmi_op *op, struct gmi_exact_in *in, const uint8_t *head)
{
    size_t n_blocks = slab_blocks(in->range, in->slab);
    size_t most_spills = n_blocks * GMI_EXACT_BLOCK * (size_t)in->n_shards_arriving;
    in->lane_bytes = gmi_get_u32(head);
    in->n_spills = gmi_get_u32(head + 4);
    if (in->lane_bytes < n_blocks || in->lane_bytes > gmi_exact_packed_room(n_blocks)) {
        return bad(op, in, "sent a part of an exact sum whose lanes have an impossible length");
    }
    if (in->n_spills > most_spills) return bad(op, in, "sent a part of an exact sum with more spilled numbers than were added");
    return GM_OK;
}

static gm_status take_sum_head(struct gmi_op *op, struct gmi_exact_in *in)
{
    const uint8_t    *head = in->buffer;
    size_t            n_bytes = head_bytes(in->acc);
    int               n_shards = in->acc->options.n_shards;
    struct gmi_shards arriving = { { 0 } };
    for (size_t at = 24; at < n_bytes; at += 8) arriving.words[(at - 24) / 8] = gmi_get_u64(head + at);
    in->n_shards_arriving = gmi_shards_count(&arriving);
    if (gmi_get_u32(head) != MAGIC || gmi_get_u64(head + 8) != in->range.first || gmi_get_u64(head + 16) != in->range.n ||
        gmi_get_u32(head + 4) != (uint32_t)in->n_shards_arriving ||
        (n_shards % 64 != 0 && arriving.words[n_shards / 64] >> (n_shards % 64) != 0)) {
        return bad(op, in, "sent bytes that are no part of this exact sum");
    }
    int twice = gmi_shards_first_common(&arriving, &in->to->shards);
    if (twice >= 0) return gmi_op_wrong_shard(op, in->peer, twice, n_shards, "has been added on two ranks");
    gmi_shards_join(&in->to->shards, &arriving);
    in->has_head = true;
    return take_slab_head(op, in, head + n_bytes);
}

static gm_status take_lanes(struct gmi_op *op, struct gmi_exact_in *in)
{
    size_t at = in->slab * GMI_SLAB_BLOCKS * GMI_EXACT_BLOCK, n_blocks = slab_blocks(in->range, in->slab);
    if (!gmi_exact_is_packed(in->buffer, in->lane_bytes, n_blocks)) {
        return bad(op, in, "sent lanes of an exact sum that are not as long as they say");
    }
    gmi_exact_unpack_add(in->lanes + at, in->base + at, in->buffer, n_blocks);
    return GM_OK;
}

static gm_status take_spills(struct gmi_op *op, struct gmi_exact_in *in, const uint8_t *from, size_t n)
{
    uint64_t spills[256];
    size_t   first_elem = slab_first_elem(in->range, in->slab);
    size_t   end_elem = gmi_min_size(in->acc->options.count,
                                     first_elem + slab_blocks(in->range, in->slab) * GMI_EXACT_BLOCK);
    while (n > 0) {
        size_t here = gmi_min_size(n, sizeof spills / sizeof *spills);
        for (size_t i = 0; i < here; i++, from += 8) {
            size_t elem = first_elem + gmi_get_u32(from);
            if (elem >= end_elem) return bad(op, in, "sent a spilled number of an element that is not there");
            spills[i] = gmi_spill((uint32_t)elem, gmi_get_u32(from + 4));
        }
        if (!gmi_spills_append(in->to->spills, spills, here)) return gmi_op_no_memory(op);
        n -= here;
    }
    return GM_OK;
}

/* A portion has come whole. */
static gm_status next_in(struct gmi_op *op, struct gmi_stream *stream)
{
    struct gmi_exact_in *in = (struct gmi_exact_in *)stream;
    size_t               lane_bytes = in->lane_bytes, n_spills = gmi_min_size(in->n_spills, GMI_PORTION_SPILLS);
    gm_status            status = GM_OK;
    stream->n_bytes = 0;
    if (!in->has_head) {
        status = take_sum_head(op, in);
    } else {
        if (lane_bytes > 0) status = take_lanes(op, in);
        if (status == GM_OK) status = take_spills(op, in, in->buffer + lane_bytes, n_spills);
        in->lane_bytes = 0;
        in->n_spills -= n_spills;
        if (status == GM_OK && in->n_spills == 0) {
            if (++in->slab == in->n_slabs) return GM_OK;
            status = take_slab_head(op, in, in->buffer + lane_bytes + 8 * n_spills);
        }
    }
    if (status == GM_OK) expect_portion(in);
    return status;
}

void gmi_exact_recv(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_exact_in *in, struct gmi_partial *to,
                    uint64_t *lanes, const uint64_t *base, struct gmi_blocks range)
{
    if (range.n == 0) {
        gmi_rounds_recv(op, r, peer, NULL, 0);
        return;
    }
    in->stream = (struct gmi_stream){ .next = next_in, .data = in->buffer };
    in->acc = op->exact;
    in->to = to;
    in->lanes = lanes;
    in->base = base;
    in->range = range;
    in->peer = peer;
    in->slab = 0;
    in->n_slabs = slabs_of(range);
    in->has_head = false;
    in->lane_bytes = in->n_spills = 0;
    in->stream.n_bytes = head_bytes(in->acc) + GMI_SLAB_HEAD_BYTES;
    gmi_rounds_recv_stream(op, r, peer, &in->stream);
}
