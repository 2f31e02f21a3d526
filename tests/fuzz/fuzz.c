#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"

const uint8_t *fuzz_take(struct fuzz_input *in, size_t want_bytes, size_t *n_bytes)
{
    const uint8_t *at = in->bytes;
    *n_bytes = gmi_min_size(want_bytes, in->left_bytes);
    in->bytes += *n_bytes;
    in->left_bytes -= *n_bytes;
    return at;
}

uint8_t fuzz_u8(struct fuzz_input *in)
{
    size_t         n;
    const uint8_t *at = fuzz_take(in, 1, &n);
    return n == 1 ? *at : 0;
}

uint16_t fuzz_u16(struct fuzz_input *in)
{
    uint8_t low = fuzz_u8(in);
    return (uint16_t)(low | fuzz_u8(in) << 8);
}

bool fuzz_line(struct fuzz_input *in, char *text, size_t text_bytes)
{
    size_t used = 0;
    if (in->left_bytes == 0) return false;
    while (in->left_bytes > 0) {
        char c = (char)fuzz_u8(in);
        if (c == '\n') break;
        if (c != '\0' && used + 1 < text_bytes) text[used++] = c;
    }
    text[used] = '\0';
    return true;
}

void fuzz_socket_pair(int ends[2])
{
    fuzz_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
}

void fuzz_send(int fd, const void *bytes, size_t n_bytes)
{
    (void)!send(fd, bytes, n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

size_t fuzz_drain(int fd)
{
    char    bytes[65536];
    size_t  total = 0;
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) total += (size_t)got;
    return total;
}

void fuzz_file(int slot, const uint8_t *bytes, size_t n_bytes, char path[FUZZ_PATH_BYTES])
{
    static int fds[FUZZ_FILES]; /* never 0 */
    if (fds[slot] == 0) fds[slot] = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_check(fds[slot] > 0 && ftruncate(fds[slot], 0) == 0);
    fuzz_check(n_bytes == 0 || pwrite(fds[slot], bytes, n_bytes, 0) == (ssize_t)n_bytes);
    snprintf(path, FUZZ_PATH_BYTES, "/proc/self/fd/%d", fds[slot]);
}
