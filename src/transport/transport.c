/* transport.c - the table of transports. A new one is a file link_x.c and a row here. */
#include <string.h>

#include "transport/link.h"

static const struct gmi_transport transports[] = {
    { "tcp", "a TCP connection for each pair of neighbours", gmi_link_tcp_create },
};

const struct gmi_transport *gmi_transport_find(const char *name)
{
    if (strcmp(name, "auto") == 0) return &transports[0];
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        if (strcmp(name, transports[i].name) == 0) return &transports[i];
    }
    return NULL;
}
