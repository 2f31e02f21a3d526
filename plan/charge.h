/* charge.h - a codec that computes nothing: its kernels look at no memory and cost time instead. */
#ifndef PLAN_CHARGE_H
#define PLAN_CHARGE_H

#include "coll/op.h"
#include "reduce/codec.h"

struct plan_charge {
    int64_t *core_ps; /* the clock that goes on */
    double   add_ps;  /* for a byte of two values that become one */
    double   add_kept_ps;    /* ... of which the one that has come was kept elsewhere than in the scratch */
    const uint8_t *scratch;  /* GMI_SCRATCH_BYTES that stay in a cache */
};

/* Whom the kernels charge in this thread from now on; NULL: nobody. They have no argument for it. */
void plan_charge_to(const struct plan_charge *charge);

/* The codec of sums of f32; and of those that travel in this format, of which `lean` becomes a copy with such kernels (it
 * must outlive the codec). wire NULL: as they are. */
struct gmi_codec plan_charging_codec(const struct gmi_wire *wire, struct gmi_wire *lean);

#endif
