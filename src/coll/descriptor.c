#include "coll/descriptor.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "coll/algo.h"
#include "reduce/wire.h"

#define MAGIC UINT32_C(0x31444d47) /* "GMD1" */

/* FNV-1a: enough to tell a descriptor from other bytes; not a defence against anyone. */
static uint32_t sum_of(const uint8_t *bytes, size_t n)
{
    uint32_t h = UINT32_C(2166136261);
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT32_C(16777619);
    return h;
}

void gmi_descriptor_encode(const struct gmi_descriptor *d, uint8_t w[GMI_DESCRIPTOR_BYTES])
{
    memset(w, 0, GMI_DESCRIPTOR_BYTES);
    gmi_put_u32(w, MAGIC);
    w[4] = d->collective;
    w[5] = d->algorithm;
    w[6] = d->dtype;
    w[7] = d->redop;
    w[8] = d->codec;
    w[9] = (uint8_t)d->quantum_exponent;
    gmi_put_u16(w + 10, d->n_shards);
    gmi_put_u32(w + 12, (uint32_t)d->root);
    gmi_put_u32(w + 16, d->epoch);
    gmi_put_u32(w + 20, d->group);
    gmi_put_u64(w + 24, d->seq);
    gmi_put_u64(w + 32, d->count_elems);
    gmi_put_u64(w + 40, (uint64_t)d->arrival_ns);
    gmi_put_u16(w + 48, (uint16_t)d->rank);
    gmi_put_u16(w + 50, d->core);
    gmi_put_u32(w + 52, d->piece_bytes);
    gmi_put_u32(w + 56, d->counts_hash);
    gmi_put_u32(w + 60, sum_of(w, 60));
}

bool gmi_descriptor_decode(struct gmi_descriptor *d, const uint8_t w[GMI_DESCRIPTOR_BYTES])
{
    if (gmi_get_u32(w) != MAGIC || gmi_get_u32(w + 60) != sum_of(w, 60)) return false;
    *d = (struct gmi_descriptor){
        .collective = w[4],
        .algorithm = w[5],
        .dtype = w[6],
        .redop = w[7],
        .codec = w[8],
        .quantum_exponent = (int8_t)w[9],
        .n_shards = gmi_get_u16(w + 10),
        .root = (int32_t)gmi_get_u32(w + 12),
        .epoch = gmi_get_u32(w + 16),
        .group = gmi_get_u32(w + 20),
        .seq = gmi_get_u64(w + 24),
        .count_elems = gmi_get_u64(w + 32),
        .arrival_ns = (int64_t)gmi_get_u64(w + 40),
        .rank = gmi_get_u16(w + 48),
        .core = gmi_get_u16(w + 50),
        .piece_bytes = gmi_get_u32(w + 52),
        .counts_hash = gmi_get_u32(w + 56),
    };
    return true;
}

bool gmi_descriptor_same(const struct gmi_descriptor *a, const struct gmi_descriptor *b)
{
    return a->collective == b->collective && a->algorithm == b->algorithm && a->dtype == b->dtype &&
           a->redop == b->redop && a->codec == b->codec && a->root == b->root && a->epoch == b->epoch &&
           a->group == b->group && a->seq == b->seq && a->count_elems == b->count_elems &&
           a->quantum_exponent == b->quantum_exponent && a->n_shards == b->n_shards && a->piece_bytes == b->piece_bytes && a->counts_hash == b->counts_hash;
}

static void format_message(const struct gmi_descriptor *d, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s %s rank %u (tag %d, %s, %llu elems)", gm_collective_name((gm_collective)d->collective),
             d->collective == GM_RECV ? "from" : "to", (unsigned)(d->counts_hash & ~GMI_AND_SENDS), (int)d->root,
             gm_dtype_name((gm_dtype)d->dtype), (unsigned long long)d->count_elems);
}

const char *gmi_descriptor_format(const struct gmi_descriptor *d, char *text, size_t text_bytes)
{
    if (gmi_is_message((gm_collective)d->collective)) {
        format_message(d, text, text_bytes);
        return text;
    }
    char redop[24] = "", root[24] = "", count[72] = "", counts[32] = "", lean[48] = "";
    if (d->redop != 0xff) snprintf(redop, sizeof redop, ", %s", gm_redop_name((gm_redop)d->redop));
    if (d->redop != 0xff && d->redop >= GM_REDOP_USER) snprintf(redop, sizeof redop, ", user %d", d->redop - GM_REDOP_USER);
    if (d->root >= 0) snprintf(root, sizeof root, ", root %d", (int)d->root);
    if (d->dtype != 0xff) {
        snprintf(count, sizeof count, ", %s%s, %llu elems", gm_dtype_name((gm_dtype)d->dtype), redop,
                 (unsigned long long)d->count_elems);
    }
    /* Their sum may be the same; the number shows at least that they are not. */
    if (d->counts_hash > GMI_COUNTS_BY_PAIR) snprintf(counts, sizeof counts, ", counts %08x", d->counts_hash);
    if (d->n_shards != 0) {
        snprintf(lean, sizeof lean, ", %u shards, quanta of 2^%d", (unsigned)d->n_shards, (int)d->quantum_exponent);
    } else if (d->codec != 0) snprintf(lean, sizeof lean, ", as %s", gmi_wire_name_of(d->codec));
    snprintf(text, text_bytes, "%s #%llu (%s%s%s%s%s)", gm_collective_name((gm_collective)d->collective),
             (unsigned long long)d->seq, gmi_algo_name(d->algorithm), count, counts, lean, root);
    return text;
}
