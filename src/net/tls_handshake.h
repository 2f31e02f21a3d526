/* tls_handshake.h - the handshake of TLS 1.3 with a pre-shared key, by OpenSSL, between two buffers.
 *
 *     the peer's records -> in -> OpenSSL -> out -> ours            in the end: two secrets, one for each direction
 *
 * OpenSSL sees no socket, takes from `in` the records of the handshake and no byte more, and is needed no more once the
 * secrets are known. A Diffie-Hellman exchange makes what is recorded today useless to who learns the key tomorrow; no
 * certificate is accepted in the key's place, and there are no tickets: so nothing but data and changes of keys follows. */
#ifndef GMI_TLS_HANDSHAKE_H
#define GMI_TLS_HANDSHAKE_H

#include "net/tls.h"

/* Of the bytes, those from `first` to `end` wait. */
struct gmi_tls_buffer {
    uint8_t *bytes;
    size_t   first, end, cap_bytes;
};

struct gmi_tls_handshake;

/* The buffers outlive it. NULL: no memory. */
struct gmi_tls_handshake *gmi_tls_handshake_create(bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES],
                                                   struct gmi_tls_buffer *in, struct gmi_tls_buffer *out);
void                      gmi_tls_handshake_destroy(struct gmi_tls_handshake *h); /* NULL is fine */

/* Goes on. GM_OK: done, once `out` is sent. GM_AGAIN: with more in `in`. GM_ERR_PROTOCOL: no peer of ours with this key;
 * `out` may have an alert that says so. GM_ERR_NOMEM: not the peer's fault. */
gm_status gmi_tls_handshake_step(struct gmi_tls_handshake *h);

/* Once done: of what this side sends, or what the other one does. GMI_TLS_SECRET_BYTES (net/tls_key.h). */
const uint8_t *gmi_tls_handshake_secret(const struct gmi_tls_handshake *h, bool is_sending);

#endif
