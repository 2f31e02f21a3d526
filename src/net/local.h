/* local.h - stream sockets between processes of one host, which can carry descriptors.
 *
 * Names are random and abstract: there is nothing in the file system, and they are gone with the
 * socket. Anybody of the same network namespace can connect to one, so both sides ask the kernel
 * who the other is. Connected sockets are non-blocking and move plain bytes by gmi_socket_send_some
 * and gmi_socket_recv_some. */
#ifndef GMI_LOCAL_H
#define GMI_LOCAL_H

#include "net/socket.h"

enum { GMI_LOCAL_NAME_BYTES = 16, GMI_LOCAL_MAX_FDS = 8 };

/* Accept with gmi_socket_accept. GM_OK; GM_ERR_SYSTEM: *sys_errno. */
gm_status gmi_local_listen(int *fd, const uint8_t name[GMI_LOCAL_NAME_BYTES], int *sys_errno);

/* GM_OK: connected. GM_ERR_PEER_LOST: *sys_errno. */
gm_status gmi_local_connect(int *fd, const uint8_t name[GMI_LOCAL_NAME_BYTES], int *sys_errno);

/* The same under a name that is known, of at most GMI_LOCAL_TEXT_BYTES. */
enum { GMI_LOCAL_TEXT_BYTES = 107 };
gm_status gmi_local_listen_as(int *fd, const char *text, int *sys_errno);
gm_status gmi_local_connect_as(int *fd, const char *text, int *sys_errno);

/* Does the process at the other end run as the same user? */
bool gmi_local_is_same_user(int fd);

/* Sends copies of the descriptors with one byte. GM_OK; GM_AGAIN; GM_ERR_PEER_LOST: *sys_errno. */
gm_status gmi_local_send_fds(int fd, const int *fds, int n_fds, int *sys_errno);

/* Receives exactly so many descriptors. GM_OK: fds, the caller's. GM_AGAIN. GM_ERR_PEER_LOST:
 * *sys_errno, 0 for an end of file. GM_ERR_SYSTEM: they were sent, but could not all be taken (no
 * free ones: EMFILE). */
gm_status gmi_local_recv_fds(int fd, int *fds, int n_fds, int *sys_errno);

#endif
