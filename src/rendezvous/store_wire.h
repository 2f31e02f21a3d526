/* store_wire.h - the store's messages, for its server and its client.
 *
 * After the handshake, in both directions: kind u8, zero u8, key_bytes u16, value_bytes u32, key, value. */
#ifndef GMI_STORE_WIRE_H
#define GMI_STORE_WIRE_H

#include "base/bytes.h"

enum gmi_store_kind {
    GMI_STORE_CLAIM = 1, /* set key to value unless it is taken; -> GRANTED or TAKEN */
    GMI_STORE_WAIT = 2,  /* -> VALUE, as soon as the key is set */
    GMI_STORE_LIST = 3,  /* -> LISTING: the keys that begin with key, a line each; ends a WAIT */
    GMI_STORE_GRANTED = 16,
    GMI_STORE_TAKEN = 17, /* value: by whom, a sentence */
    GMI_STORE_VALUE = 18,
    GMI_STORE_LISTING = 19,
};

enum { GMI_STORE_HEADER_BYTES = 8, GMI_STORE_MAX_KEY_BYTES = 63, GMI_STORE_MAX_VALUE_BYTES = 255,
       GMI_STORE_MAX_REPLY_BYTES = 1 << 20 };

static inline void gmi_store_header_encode(uint8_t *w, enum gmi_store_kind kind, size_t key_bytes,
                                           size_t value_bytes)
{
    w[0] = (uint8_t)kind;
    w[1] = 0;
    gmi_put_u16(w + 2, (uint16_t)key_bytes);
    gmi_put_u32(w + 4, (uint32_t)value_bytes);
}

#endif
