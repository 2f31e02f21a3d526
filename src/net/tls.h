/* tls.h - an encrypted byte stream over a connected socket: TLS 1.3, with a key that both ends have and that was never
 * used before.
 *
 * The results are those of net/socket.h, and one more, GM_ERR_PROTOCOL: bytes that nobody sends who has the key. The
 * handshake goes on with whatever is called first, and until it is done that answers GM_AGAIN. Nothing blocks. The
 * end of a connection means what it means without encryption: there is no goodbye of TLS's own, since the peer may have
 * stopped counting, and what a goodbye means is said in the messages above. */
#ifndef GMI_TLS_H
#define GMI_TLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gradmesh.h"

enum { GMI_TLS_KEY_BYTES = 32 };

struct gmi_poller;
struct gmi_tls;

/* `fd` stays the caller's and must outlive it. Buffers hold n_records of 16 KiB each way. NULL: no memory. */
struct gmi_tls *gmi_tls_create(int fd, bool is_client, const uint8_t key[GMI_TLS_KEY_BYTES], int n_records);
void            gmi_tls_destroy(struct gmi_tls *t); /* NULL is fine */

/* The handshake alone. GM_OK: done. */
gm_status gmi_tls_shake(struct gmi_tls *t, int *sys_errno);
gm_status gmi_tls_send_some(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno);
gm_status gmi_tls_recv_some(struct gmi_tls *t, const struct iovec *parts, int n_parts, size_t *moved_bytes, int *sys_errno);

/* What must happen before these can move more, or the handshake. */
void gmi_tls_watch(const struct gmi_tls *t, struct gmi_poller *poller, unsigned interest);

/* How many bytes so far went over the wire beside those that were moved. */
void gmi_tls_overhead(const struct gmi_tls *t, uint64_t *sent_bytes, uint64_t *recv_bytes);

#endif
