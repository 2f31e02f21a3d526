/* intake.h - a stream of elements that arrives at a port and is combined with our own.
 *
 *     link's memory, lent ------------------.
 *                                            >-- combine --> home        out = arrived (op) own
 *     link -- copy --> scratch, in the cache '
 *
 * Bytes come in any amounts; whole elements are combined at once, and what is left over of the last one is kept
 * here until the rest comes. Many intakes may share one scratch, since nothing stays in it between two calls. */
#ifndef GMI_INTAKE_H
#define GMI_INTAKE_H

#include "coll/op.h"

/* A zeroed one has nothing. */
struct gmi_intake {
    uint8_t held[8]; /* of an element: its first bytes */
    size_t  held_bytes;
};

/* Receives and combines: `into` = arrived (op) `own`, at most `space_bytes` (whole elements) of `transfer_left_bytes`
 * (what is not combined yet). Never blocks. GM_OK: *settled_bytes are combined, maybe 0; else the op has failed. */
gm_status gmi_intake_some(struct gmi_intake *intake, struct gmi_port *port, uint8_t *into, const uint8_t *own,
                          size_t space_bytes, size_t transfer_left_bytes, size_t *settled_bytes);

#endif
