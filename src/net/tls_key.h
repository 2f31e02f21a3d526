/* tls_key.h - the key of one direction of a TLS 1.3 connection, and what is done with it: records are sealed, or opened
 * (RFC 8446, sections 5.2, 5.3, 7.2 and 7.3; the cipher is AES-128-GCM, by OpenSSL). No sockets, no buffers of its own.
 *
 *     a record:   | 23 | 3 3 | length | content | type | tag |
 *                   1     2      2      n bytes    1     16        content and type are encrypted, the tag proves all
 *
 * 1. Content goes from where the caller has it into the record, and from the record to where he wants it: no copies.
 * 2. Content that was opened is good for nothing unless gmi_tls_open says so: the tag is behind it.
 * 3. The n-th record is sealed with the n-th nonce, and a key is never used again from 0. */
#ifndef GMI_TLS_KEY_H
#define GMI_TLS_KEY_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    GMI_TLS_SECRET_BYTES = 32,
    GMI_TLS_NONCE_BYTES = 12,
    GMI_TLS_HEADER_BYTES = 5,
    GMI_TLS_TAG_BYTES = 16,
    GMI_TLS_ADDED_BYTES = GMI_TLS_HEADER_BYTES + 1 + GMI_TLS_TAG_BYTES, /* by a record to its content */
    GMI_TLS_CONTENT_BYTES = 16384                                       /* the most that TLS allows */
};

/* Of what is in a record. */
enum { GMI_TLS_ALERT = 21, GMI_TLS_HANDSHAKE = 22, GMI_TLS_DATA = 23 };

/* A zeroed one is none. */
struct gmi_tls_key {
    EVP_CIPHER_CTX *cipher;
    uint8_t         secret[GMI_TLS_SECRET_BYTES]; /* of which key and nonces are made, and the next secret */
    uint8_t         nonce[GMI_TLS_NONCE_BYTES];   /* of record 0 */
    uint64_t        n_records;                    /* since this key is used */
    bool            is_sealing;
};

/* False: no memory. */
bool gmi_tls_key_init(struct gmi_tls_key *k, const uint8_t secret[GMI_TLS_SECRET_BYTES], bool is_sealing);
bool gmi_tls_key_next(struct gmi_tls_key *k); /* behind a KeyUpdate */
void gmi_tls_key_fini(struct gmi_tls_key *k);

/* Writes a record of all the parts, at most GMI_TLS_CONTENT_BYTES. Returns its bytes; 0: the cipher failed. */
size_t gmi_tls_seal(struct gmi_tls_key *k, uint8_t type, const struct iovec *parts, int n_parts, uint8_t *record);

/* How many bytes the record has that begins so, of at least GMI_TLS_HEADER_BYTES; 0: no record begins so. */
size_t gmi_tls_record_bytes(const uint8_t *header);

/* Opens a whole record. The parts have room for just its content, and may be that content in place. False: it is not
 * what a holder of the key has sealed. */
bool gmi_tls_open(struct gmi_tls_key *k, const uint8_t *record, const struct iovec *parts, int n_parts, uint8_t *type);

#endif
