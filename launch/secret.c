#include "launch/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "net/socket.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };

static bool keep_in_memory(struct launch_secret *s, const uint8_t *bytes, size_t n_bytes)
{
    s->fd = memfd_create("gradmesh secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return s->fd >= 0 && fchmod(s->fd, S_IRUSR) == 0 && write(s->fd, bytes, n_bytes) == (ssize_t)n_bytes &&
           fcntl(s->fd, F_ADD_SEALS, SEALS) == 0;
}

static gm_status make(struct launch_secret *s, gm_error *error)
{
    uint8_t bytes[GMI_SECRET_BYTES];
    for (;;) {
        if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return gmi_error_set_errno(error, errno, "no random secret");
        /* A newline at the end of a file does not count, so there must be none. */
        if (bytes[sizeof bytes - 1] != '\n' && bytes[sizeof bytes - 1] != '\r') break;
    }
    if (!keep_in_memory(s, bytes, sizeof bytes)) {
        return gmi_error_set_errno(error, errno, "no memory that workers could read the secret from");
    }
    snprintf(s->path, sizeof s->path, "/proc/%d/fd/%d", (int)getpid(), s->fd);
    if (gmi_secret_set(&s->secret, bytes, sizeof bytes) == GM_OK) return GM_OK;
    return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the secret");
}

gm_status launch_secret_init(struct launch_secret *s, gm_error *error)
{
    const char *users = getenv("GRADMESH_SECRET_FILE");
    *s = (struct launch_secret){ .fd = -1 };
    if (users != NULL && users[0] != '\0') return gmi_secret_load(&s->secret, users, error);
    return make(s, error);
}

void launch_secret_fini(struct launch_secret *s)
{
    gmi_secret_wipe(&s->secret);
    gmi_socket_close(&s->fd);
}
