/* address.h - "host:port" in, socket addresses out, and back to numbers for messages.
 *
 * Names are resolved when asked for; addresses are never looked up in reverse (that can take minutes on a
 * network without reverse DNS, for nothing but a log line). */
#ifndef GMI_ADDRESS_H
#define GMI_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "gradmesh.h"

#define GMI_ADDRESS_TEXT_BYTES 80 /* "[v6%scope]:port" with room to spare */

struct gmi_address {
    struct sockaddr_storage storage;
    socklen_t               used_bytes;
};

/* What a name resolved to, in the resolver's order. */
struct gmi_address_list {
    struct gmi_address addresses[8];
    int                n_addresses;
};

/* Cuts "host:port" or "[v6]:port" in two. GM_OK, GM_ERR_ARG. */
gm_status gmi_host_port_split(const char *text, char *host, size_t host_bytes, int *port,
                              gm_error *error);

/* Resolves a name or a literal address. May block in the resolver. GM_OK; GM_AGAIN: the name does not
 * resolve now (it may later); GM_ERR_ARG: it never will. Both of these set *error. */
gm_status gmi_address_resolve(struct gmi_address_list *list, const char *host, int port,
                              gm_error *error);

/* Parses a numeric "ip:port" that another rank has published. GM_OK, GM_ERR_ARG. */
gm_status gmi_address_parse_numeric(struct gmi_address *address, const char *text, gm_error *error);

/* "10.0.0.7:4100", "[fe80::1%eth0]:4100"; needs GMI_ADDRESS_TEXT_BYTES. Returns `text`. */
const char *gmi_address_format(const struct gmi_address *address, char *text);

/* Does the name of a host mean more to others than to the host itself? There its own name often leads to loopback
 * (127.0.1.1 in /etc/hosts), elsewhere to another address. Not so of numbers and "localhost". */
bool gmi_host_is_known_to_others(const char *host);

/* The address of any interface, of the same family and port: listening there, one is reached by all. */
void gmi_address_set_any(struct gmi_address *address);
bool gmi_address_is_any(const struct gmi_address *address);

/* An address that another rank has published, as it is to be called from here. "0.0.0.0:port" is on the host at `meeting`,
 * where the store is as we see it; a link-local one has the zone through which we see that. Others stay as they are. */
void gmi_address_localize(char text[GMI_ADDRESS_TEXT_BYTES], const struct gmi_address *meeting);

bool gmi_address_equal(const struct gmi_address *a, const struct gmi_address *b); /* with port */
bool gmi_address_is_loopback(const struct gmi_address *address);
bool gmi_address_is_link_local(const struct gmi_address *address); /* IPv6 only */
int  gmi_address_port(const struct gmi_address *address);
void gmi_address_set_port(struct gmi_address *address, int port);

#endif
