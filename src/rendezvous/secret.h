/* secret.h - what all members of a job know and nobody else: it is never sent, only proven.
 *
 * The proof of one side of a connection is the HMAC-SHA-256, under the secret, of who proves (the caller or
 * the answerer) and of both hellos. These hold ranks, channel, job and a nonce from each side, so a proof is good for
 * one connection, one direction and one purpose. A job without a secret proves with a key that everybody knows:
 * that is for one host, whose loopback nobody else reaches. */
#ifndef GMI_SECRET_H
#define GMI_SECRET_H

#include <stdbool.h>

#include "net/address.h"
#include "rendezvous/hello.h"

enum { GMI_SECRET_BYTES = 32, GMI_PROOF_BYTES = 32, GMI_LINK_KEY_BYTES = 32 };

struct gmi_secret {
    bool    is_set;
    bool    lets_anybody_in; /* the user said so: without a secret beyond loopback */
    bool    encrypts;        /* the user said so: connections are encrypted with keys made from it */
    uint8_t key[GMI_SECRET_BYTES];
};

/* Reads it from a file that nobody but its owner may read. GM_OK; GM_ERR_ARG, GM_ERR_SYSTEM: the sentence names the
 * file, what is wrong and what to do. */
gm_status gmi_secret_load(struct gmi_secret *secret, const char *path, gm_error *error);
/* The same from bytes in memory. GM_OK, GM_ERR_NOMEM. */
gm_status gmi_secret_set(struct gmi_secret *secret, const void *bytes, size_t n_bytes);
void      gmi_secret_wipe(struct gmi_secret *secret);

/* May a connection come from, or go to, such an address? GM_OK; GM_ERR_ARG: beyond loopback, without a secret.
 * `secret` may be NULL: there is none. */
gm_status gmi_secret_allows(const struct gmi_secret *secret, const struct gmi_address *address, gm_error *error);

/* The two hellos of a connection, as they were sent. */
struct gmi_hellos {
    uint8_t caller[GMI_HELLO_BYTES], answerer[GMI_HELLO_BYTES];
};

/* False: no memory. `secret` may be NULL. */
bool gmi_secret_prove(const struct gmi_secret *secret, bool is_caller, const struct gmi_hellos *hellos,
                      uint8_t proof[GMI_PROOF_BYTES]);
/* In a time that does not depend on the bytes. */
bool gmi_secret_check(const struct gmi_secret *secret, bool is_caller, const struct gmi_hellos *hellos,
                      const uint8_t proof[GMI_PROOF_BYTES]);
/* A key for this connection alone, known to both its ends. */
bool gmi_secret_link_key(const struct gmi_secret *secret, const struct gmi_hellos *hellos, uint8_t key[GMI_LINK_KEY_BYTES]);

#endif
