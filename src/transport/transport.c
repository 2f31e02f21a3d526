/* transport.c - the table of transports. A new one is a file link_x.c, a row here, and the place in
 * comm/share.c where two connected ranks choose their link. */
#include <stdio.h>
#include <string.h>

#include "transport/link.h"

static const struct gmi_transport transports[] = {
    { "auto", "memory between ranks of one host, TCP between all others", .uses_memory = true, .uses_sockets = true },
    { "tcp", "a TCP connection for each pair of ranks", .uses_sockets = true },
    { "shm", "memory, and all ranks on one host", .uses_memory = true },
};
enum { N_TRANSPORTS = sizeof transports / sizeof transports[0] };

const struct gmi_transport *gmi_transport_find(const char *name)
{
    for (size_t i = 0; i < N_TRANSPORTS; i++) {
        if (strcmp(name, transports[i].name) == 0) return &transports[i];
    }
    return NULL;
}

const char *gmi_transport_names(char *text, size_t text_bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < N_TRANSPORTS && used < text_bytes; i++) {
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i > 0 ? ", " : "", transports[i].name);
    }
    return text;
}
