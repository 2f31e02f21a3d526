/* secret.h - the secret of a job, and how its workers get it.
 *
 * A new one for each job lies in memory of the launcher (a sealed memfd) and is gone with it. Workers are told a path,
 * /proc/LAUNCHER/fd/N, which the kernel opens for processes of the same user only; so it stands in no command line, no
 * environment, no file system and no log, passes through whatever shells and wrappers stand between, and needs no
 * descriptor to be inherited. A user who has set GRADMESH_SECRET_FILE has his own secret used and handed on. */
#ifndef LAUNCH_SECRET_H
#define LAUNCH_SECRET_H

#include "rendezvous/secret.h"

struct launch_secret {
    struct gmi_secret secret;
    int               fd;       /* -1: it is the user's file */
    char              path[64]; /* for GRADMESH_SECRET_FILE; "": as the user has set it */
};

/* GM_OK; GM_ERR_ARG, GM_ERR_SYSTEM, GM_ERR_NOMEM: *error says why. */
gm_status launch_secret_init(struct launch_secret *secret, gm_error *error);
void      launch_secret_fini(struct launch_secret *secret);

#endif
