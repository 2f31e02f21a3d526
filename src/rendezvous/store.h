/* store.h - the client's side of the store. Blocks, each call up to a deadline; used during creation. */
#ifndef GMI_STORE_H
#define GMI_STORE_H

#include "base/log.h"
#include "net/stream.h"
#include "rendezvous/secret.h"
#include "rendezvous/store_wire.h"

struct gmi_store {
    struct gmi_stream stream; /* fd -1: not connected. Keys that were claimed live until it is closed. */
};

/* With own->session gmi_process_number() it must be a store that this very process serves.
 * GM_OK, GM_ERR_TIMEOUT, GM_ERR_REFUSED, GM_ERR_VERSION, GM_ERR_PROTOCOL. */
gm_status gmi_store_connect(struct gmi_store *store, const char *host, int port, const struct gmi_hello *own,
                            const struct gmi_secret *secret, int64_t deadline_ns, const struct gmi_log *log, gm_error *error);
void gmi_store_close(struct gmi_store *store);

/* GM_OK; GM_ERR_REFUSED: taken, says by whom. */
gm_status gmi_store_claim(struct gmi_store *store, const char *key, const char *value, int64_t deadline_ns,
                          gm_error *error);

/* Waits for a key; `value` holds GMI_STORE_MAX_VALUE_BYTES + 1. GM_AGAIN: not there at the deadline. */
gm_status gmi_store_wait(struct gmi_store *store, const char *key, char *value, int64_t deadline_ns,
                         gm_error *error);

/* The keys with a prefix, a line each; *text is freed with gmi_free. Ends a wait that returned GM_AGAIN. */
gm_status gmi_store_list(struct gmi_store *store, const char *prefix, char **text, int64_t deadline_ns,
                         gm_error *error);

#endif
