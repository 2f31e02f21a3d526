/* store_server.h - the small key-value store through which ranks find each other.
 *
 * Served by the launcher, or by rank 0 of a hand-started job. It is an object that is stepped: its owner
 * polls it together with whatever else it waits for. Keys live as long as the connection that set them,
 * so a rank that died is not found by its successors. Protocol: docs/protocol.md. */
#ifndef GMI_STORE_SERVER_H
#define GMI_STORE_SERVER_H

#include "base/log.h"
#include "net/poller.h"
#include "net/stream.h"
#include "rendezvous/secret.h"

struct gmi_store_server;

/* Listens on host:port (port 0: any free one; the socket stays bound for the server's life).
 * GM_OK, GM_ERR_ARG (host; beyond loopback without a secret), GM_ERR_SYSTEM (the port is taken: the sentence has
 * address and port), GM_ERR_NOMEM. `secret` and `log` (both may be NULL) must outlive the server. */
gm_status gmi_store_server_create(struct gmi_store_server **server, const char *host, int port, const char *job_id,
                                  const struct gmi_secret *secret, const struct gmi_log *log, gm_error *error);
void gmi_store_server_destroy(struct gmi_store_server *server);

int gmi_store_server_port(const struct gmi_store_server *server);

/* How many different ranks have ever joined a group through this server. */
int gmi_store_server_ranks_seen(const struct gmi_store_server *server);

/* Takes over a connection from a rank that has proven itself. */
void gmi_store_server_admit(struct gmi_store_server *server, struct gmi_stream stream, const struct gmi_hello *hello);
/* How many of these there are now. */
int gmi_store_server_clients(const struct gmi_store_server *server);

/* Adds what the server waits for. */
void gmi_store_server_watch(struct gmi_store_server *server, struct gmi_poller *poller);

/* Does everything that can be done now; never blocks. Call after each wait, and at least once a second
 * (silent strangers are closed after a few seconds). */
void gmi_store_server_step(struct gmi_store_server *server);

#endif
