#include "reduce/codec.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

struct gmi_codec gmi_codec_mover(size_t elem_bytes)
{
    return (struct gmi_codec){ .id = GMI_CODEC_IDENTITY, .elem_bytes = elem_bytes };
}

struct gmi_codec gmi_codec_exact(void)
{
    return (struct gmi_codec){ .id = GMI_CODEC_EXACT, .dtype = GM_F32, .elem_bytes = sizeof(float), .needs = GMI_VIEW_EXACT };
}

gm_status gmi_codec_find_user(struct gmi_codec *codec, gm_dtype dtype, const struct gmi_user_op *user_op)
{
    if ((unsigned)dtype >= GM_DTYPE_END || user_op->fn == NULL) return GM_ERR_ARG;
    *codec = gmi_codec_mover(gm_dtype_bytes(dtype));
    codec->dtype = dtype;
    codec->user_op = *user_op;
    codec->needs = GMI_VIEW_ONCE;
    return GM_OK;
}

gm_status gmi_codec_find(struct gmi_codec *codec, gm_dtype dtype, gm_redop redop)
{
    if ((unsigned)dtype >= GM_DTYPE_END || (unsigned)redop >= GM_REDOP_END) return GM_ERR_ARG;
    *codec = gmi_codec_mover(gm_dtype_bytes(dtype));
    codec->dtype = dtype;
    const struct gmi_kernels *kernels = gmi_kernels_of(dtype);
    codec->combine = kernels->combine[redop];
    codec->combine_all = kernels->combine_all[redop];
    codec->needs = codec->combine_all != NULL ? GMI_VIEW_ALL : GMI_VIEW_PAIRS;
    codec->canonicalize = kernels->canonicalize;
    if (redop == GM_AVG && codec->combine != NULL) codec->finish = kernels->divide;
    return codec->combine != NULL || codec->combine_all != NULL ? GM_OK : GM_ERR_UNSUPPORTED;
}

void gmi_codec_make_lean(struct gmi_codec *codec, gm_redop redop, const struct gmi_wire *wire)
{
    if (wire == NULL || codec->dtype != GM_F32 || (redop != GM_SUM && redop != GM_AVG)) return;
    codec->id = wire->id;
    codec->wire = wire;
    codec->needs = GMI_VIEW_LEAN;
}

/* ---- two operands ------------------------------------------------------------------------------ */

static void combine_by_user(const struct gmi_codec *codec, void *out, const void *arrived, const void *own, size_t count)
{
    if (out != arrived && out != own) memcpy(out, own, count * codec->elem_bytes);
    codec->user_op.fn(out == arrived ? own : arrived, out, count, codec->dtype, codec->user_op.user);
}

void gmi_codec_combine(const struct gmi_codec *codec, void *out, const void *arrived, const void *own, size_t count_elems)
{
    if (count_elems == 0) return;
    if (codec->user_op.fn != NULL) {
        combine_by_user(codec, out, arrived, own, count_elems);
        return;
    }
    GMI_CHECK(codec->combine != NULL);
    codec->combine(out, arrived, own, count_elems);
}

/* ---- all contributions ------------------------------------------------------------------------- */

enum { BLOCK_BYTES = 16 * 1024 };

static void settle_one(const struct gmi_codec *codec, void *out, const void *only, size_t count)
{
    if (out != only) memcpy(out, only, count * codec->elem_bytes);
    if (codec->canonicalize != NULL) codec->canonicalize(out, count);
}

/* Two by two, with the sums of a block kept here: `out` may be a contribution that comes last. */
static void settle_block(const struct gmi_codec *codec, void *out, const struct gmi_contributions *c, size_t at_bytes,
                         size_t count)
{
    _Alignas(64) uint8_t sums[BLOCK_BYTES];
    const void          *sum = gmi_contribution(c, 0, at_bytes);
    for (int k = 1; k < c->n; k++) {
        void *to = k == c->n - 1 ? out : sums;
        codec->combine(to, sum, gmi_contribution(c, k, at_bytes), count);
        sum = to;
    }
}

/* The same operands in the same roles whatever `out` is, so that all ranks get the same bits. */
static void settle_block_by_user(const struct gmi_codec *codec, void *out, const struct gmi_contributions *c, size_t at_bytes,
                                 size_t count)
{
    _Alignas(64) uint8_t sums[BLOCK_BYTES];
    memcpy(sums, gmi_contribution(c, 0, at_bytes), count * codec->elem_bytes);
    for (int k = 1; k < c->n; k++) {
        codec->user_op.fn(gmi_contribution(c, k, at_bytes), sums, count, codec->dtype, codec->user_op.user);
    }
    memcpy(out, sums, count * codec->elem_bytes);
}

void gmi_codec_settle(const struct gmi_codec *codec, void *out, const struct gmi_contributions *c, size_t count_elems)
{
    if (count_elems == 0) return;
    if (codec->combine_all != NULL) {
        codec->combine_all(out, c, count_elems);
        return;
    }
    if (c->n == 1) settle_one(codec, out, gmi_contribution(c, 0, 0), count_elems);
    size_t block_elems = BLOCK_BYTES / codec->elem_bytes;
    for (size_t at = 0; c->n > 1 && at < count_elems; at += block_elems) {
        size_t here = gmi_min_size(block_elems, count_elems - at), at_bytes = at * codec->elem_bytes;
        void  *to = (uint8_t *)out + at_bytes;
        if (codec->user_op.fn != NULL) {
            settle_block_by_user(codec, to, c, at_bytes, here);
        } else {
            settle_block(codec, to, c, at_bytes, here);
        }
    }
    if (codec->finish != NULL) codec->finish(out, count_elems, c->n);
}
