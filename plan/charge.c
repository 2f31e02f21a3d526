#include "plan/charge.h"

static _Thread_local const struct plan_charge *current;

void plan_charge_to(const struct plan_charge *charge) { current = charge; }

static void charge(size_t count_elems, double byte_ps)
{
    *current->core_ps += (int64_t)((double)count_elems * sizeof(float) * byte_ps + 0.5);
}

static void cost(size_t count_elems)
{
    if (current != NULL) charge(count_elems, current->add_ps);
}

static void combine(void *out, const void *a, const void *b, size_t count_elems)
{
    (void)out, (void)b;
    if (current == NULL) return;
    const uint8_t *arrived = a;
    bool is_in_cache = arrived >= current->scratch && arrived < current->scratch + GMI_SCRATCH_BYTES;
    charge(count_elems, is_in_cache ? current->add_ps : current->add_kept_ps);
}

static void combine_all(void *out, const struct gmi_contributions *c, size_t count_elems)
{
    (void)out;
    if (current != NULL) charge(count_elems * (size_t)(c->n - 1), current->add_kept_ps);
}

static void encode(void *wire, const float *from, size_t count)
{
    (void)wire, (void)from;
    cost(count);
}

static void decode(float *to, const void *wire, size_t count)
{
    (void)to, (void)wire;
    cost(count);
}

static void add(float *sum, const void *wire, size_t count)
{
    (void)sum, (void)wire;
    cost(count);
}

static void canonicalize(void *values, size_t count_elems)
{
    (void)values, (void)count_elems;
}

struct gmi_codec plan_charging_codec(const struct gmi_wire *wire, struct gmi_wire *lean)
{
    struct gmi_codec codec = gmi_codec_mover(sizeof(float));
    codec.dtype = GM_F32;
    codec.needs = GMI_VIEW_PAIRS;
    codec.combine = combine;
    codec.combine_all = combine_all;
    codec.canonicalize = canonicalize;
    if (wire == NULL) return codec;
    *lean = *wire;
    lean->encode = encode;
    lean->decode = decode;
    lean->add = add;
    gmi_codec_make_lean(&codec, GM_SUM, lean);
    return codec;
}
