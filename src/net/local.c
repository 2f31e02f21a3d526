#include "net/local.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* Only one process is expected; strangers who knock are let in and sent away one by one. */
enum { BACKLOG = 8 };

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* An abstract name begins with a zero byte and has no terminator. */
static socklen_t fill_address(struct sockaddr_un *a, const char *text)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    size_t used = strlen(text);
    if (used > sizeof a->sun_path - 1) used = sizeof a->sun_path - 1;
    memcpy(a->sun_path + 1, text, used);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used);
}

static const char *text_of_name(const uint8_t name[GMI_LOCAL_NAME_BYTES], char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "gradmesh-");
    for (int i = 0; i < GMI_LOCAL_NAME_BYTES; i++) {
        used += (size_t)snprintf(text + used, text_bytes - used, "%02x", name[i]);
    }
    return text;
}

gm_status gmi_local_listen_as(int *fd, const char *text, int *sys_errno)
{
    struct sockaddr_un address;
    socklen_t          bytes = fill_address(&address, text);
    *fd = new_socket();
    if (*fd >= 0 && bind(*fd, (struct sockaddr *)&address, bytes) == 0 && listen(*fd, BACKLOG) == 0)
        return GM_OK;
    *sys_errno = errno;
    gmi_socket_close(fd);
    return GM_ERR_SYSTEM;
}

gm_status gmi_local_listen(int *fd, const uint8_t name[GMI_LOCAL_NAME_BYTES], int *sys_errno)
{
    char text[64];
    return gmi_local_listen_as(fd, text_of_name(name, text, sizeof text), sys_errno);
}

gm_status gmi_local_connect(int *fd, const uint8_t name[GMI_LOCAL_NAME_BYTES], int *sys_errno)
{
    char text[64];
    return gmi_local_connect_as(fd, text_of_name(name, text, sizeof text), sys_errno);
}

gm_status gmi_local_connect_as(int *fd, const char *text, int *sys_errno)
{
    struct sockaddr_un address;
    socklen_t          bytes = fill_address(&address, text);
    *fd = new_socket();
    if (*fd >= 0 && connect(*fd, (struct sockaddr *)&address, bytes) == 0) return GM_OK;
    *sys_errno = errno;
    gmi_socket_close(fd);
    return GM_ERR_PEER_LOST;
}

bool gmi_local_is_same_user(int fd)
{
    struct ucred peer;
    socklen_t    bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* Room for control messages, aligned as they want it. */
union control {
    struct cmsghdr header;
    char           bytes[CMSG_SPACE(GMI_LOCAL_MAX_FDS * sizeof(int))];
};

static bool is_later(int sys_errno)
{
    return sys_errno == EAGAIN || sys_errno == EWOULDBLOCK || sys_errno == EINTR;
}

gm_status gmi_local_send_fds(int fd, const int *fds, int n_fds, int *sys_errno)
{
    char           byte = 0;
    struct iovec   part = { &byte, 1 };
    union control  control = { .bytes = { 0 } };
    struct msghdr  message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                               .msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int)) };
    struct cmsghdr *c = &control.header;
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
    memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return GM_OK;
    if (is_later(errno)) return GM_AGAIN;
    *sys_errno = errno;
    return GM_ERR_PEER_LOST;
}

/* Takes the descriptors out of a message; too many are closed. */
static int take_fds(struct msghdr *message, int *fds, int n_fds)
{
    int taken = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
            if (taken < n_fds) {
                fds[taken++] = one;
            } else {
                close(one);
            }
        }
    }
    return taken;
}

gm_status gmi_local_recv_fds(int fd, int *fds, int n_fds, int *sys_errno)
{
    char          byte;
    struct iovec  part = { &byte, 1 };
    union control control;
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && is_later(errno)) return GM_AGAIN;
    *sys_errno = got < 0 ? errno : 0;
    if (got <= 0) return GM_ERR_PEER_LOST;
    int taken = take_fds(&message, fds, n_fds);
    if (taken == n_fds && !(message.msg_flags & MSG_CTRUNC)) return GM_OK;
    while (taken > 0) close(fds[--taken]);
    *sys_errno = message.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
    return GM_ERR_SYSTEM;
}
