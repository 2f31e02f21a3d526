/* hello.h - the first bytes on every connection: who I am, which job, which version.
 *
 * A fixed size, 96 bytes: all that is read from somebody who has not shown yet that he belongs here.
 * Field by field: docs/protocol.md. */
#ifndef GMI_HELLO_H
#define GMI_HELLO_H

#include <stdbool.h>

#include "gradmesh.h"

enum { GMI_HELLO_BYTES = 96, GMI_PROTOCOL_VERSION = 1, GMI_JOB_ID_BYTES = 32, GMI_NONCE_BYTES = 16 };

/* What a connection is for. */
enum gmi_channel { GMI_CHANNEL_STORE = 1, GMI_CHANNEL_CONTROL = 2, GMI_CHANNEL_DATA = 3, GMI_CHANNEL_MESSAGES = 4 };

enum { GMI_HELLO_HAS_SECRET = 1,  /* and will prove it */
       GMI_HELLO_ENCRYPTS = 2 };  /* wants what follows the handshake encrypted */

enum { GMI_NO_RANK = -1 }; /* a store's own, or any */

struct gmi_hello {
    uint16_t version;
    uint8_t  channel;
    uint8_t  flags;      /* GMI_HELLO_... */
    int32_t  rank;       /* of the sender */
    int32_t  target;     /* whom the sender means to speak to */
    int32_t  world_size; /* 0: does not know (a store) */
    uint32_t epoch;
    uint32_t group;      /* gmi_group_id of the communicator's name */
    char     job_id[GMI_JOB_ID_BYTES]; /* zero-terminated */
    uint8_t  nonce[GMI_NONCE_BYTES];   /* fresh for each connection */
    uint64_t session;    /* of this run of the communicator, once known; 0 before. A store: gmi_process_number */
};

void gmi_hello_encode(const struct gmi_hello *hello, uint8_t wire[GMI_HELLO_BYTES]);

enum gmi_hello_verdict { GMI_HELLO_GOOD, GMI_HELLO_STRANGER, GMI_HELLO_OTHER_VERSION };

/* Judges the first `n_bytes` already: bytes that cannot become a hello are a stranger's at once. Decodes
 * when all are there and they are good. */
enum gmi_hello_verdict gmi_hello_decode(struct gmi_hello *hello, const uint8_t *wire, size_t n_bytes);

/* The number of a communicator's name in descriptors and hellos. */
uint32_t gmi_group_id(const char *name);

/* Tells this process from others on this host; a store puts it into its hello's `session`. */
uint64_t gmi_process_number(void);

/* Random bytes from the kernel. */
void gmi_random_bytes(void *bytes, size_t n_bytes);

#endif
