/* host.h - which host is this process on, as a number that can be compared across processes. */
#ifndef GMI_HOST_H
#define GMI_HOST_H

#include <stdint.h>

/* From a name that somebody gave the host; or, for NULL or "", from the kernel's boot id and the
 * process's network namespace: containers of one machine that cannot reach each other's sockets are
 * different hosts. 0: this cannot be found out. */
uint64_t gmi_host_id(const char *name);

/* On how many cores this process may run. 0: on one of several, to which somebody has bound it. */
int gmi_host_own_cores(void);

#endif
