/* limits_pair.c - two connected sockets: over loopback TCP as the limit wants them, or Unix
   sockets. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/limits_parts.h"

/* Before the connection exists, since its window is settled at the start. Buffers smaller than
 * asked for are not an error: what the system allows is what there is. */
static int tune(int fd, const struct bench_limit *limit)
{
    int bytes = limit->channel == BENCH_UNIX ? 4 << 20 : limit->buffer_bytes;
    if (bytes > 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    if (limit->channel != BENCH_TCP || limit->congestion[0] == '\0') return 0;
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, limit->congestion,
                      (socklen_t)strlen(limit->congestion));
}

/* A call that waits gives up when nothing moves. */
static void bound_waits(int fd)
{
    struct timeval t = { .tv_sec = BENCH_STALL_MS / 1000 };
    int            one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int open_tcp(struct bench_pair *pair, const struct bench_limit *limit, int listener)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          address_bytes = sizeof address;
    if (listener < 0 || tune(listener, limit) != 0) return -1;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0)
        return -1;
    if (getsockname(listener, (struct sockaddr *)&address, &address_bytes) != 0) return -1;
    pair->fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pair->fds[0] < 0 || tune(pair->fds[0], limit) != 0) return -1;
    if (connect(pair->fds[0], (struct sockaddr *)&address, sizeof address) != 0) return -1;
    pair->fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return pair->fds[1] < 0 ? -1 : 0;
}

static int open_unix(struct bench_pair *pair, const struct bench_limit *limit)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair->fds) != 0) return -1;
    return tune(pair->fds[0], limit) != 0 || tune(pair->fds[1], limit) != 0 ? -1 : 0;
}

gm_status bench_pair_open(struct bench_pair *pair, const struct bench_limit *limit, gm_error *error)
{
    *pair = (struct bench_pair){ { -1, -1 } };
    int listener =
        limit->channel == BENCH_TCP ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    int failed =
        limit->channel == BENCH_TCP ? open_tcp(pair, limit, listener) : open_unix(pair, limit);
    int sys_errno = errno;
    if (listener >= 0) close(listener);
    if (failed) {
        bench_pair_close(pair);
        return gmi_error_set_errno(error, sys_errno, "cannot connect two %s sockets%s%s",
                                   bench_channel_name(limit->channel),
                                   limit->congestion[0] ? " with " : "", limit->congestion);
    }
    for (int i = 0; i < 2; i++) bound_waits(pair->fds[i]);
    return GM_OK;
}

void bench_pair_close(struct bench_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (pair->fds[i] >= 0) close(pair->fds[i]);
        pair->fds[i] = -1;
    }
}
