#include "net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

static const struct sockaddr_in *v4(const struct gmi_address *a) { return (const void *)&a->storage; }
static const struct sockaddr_in6 *v6(const struct gmi_address *a) { return (const void *)&a->storage; }

/* Digits only: strtol alone would also take blanks and signs. */
static bool parse_port(const char *text, int *port)
{
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0 || n_digits > 5 || text[n_digits] != '\0') return false;
    *port = (int)strtol(text, NULL, 10);
    return *port >= 1 && *port <= 65535;
}

gm_status gmi_host_port_split(const char *text, char *host, size_t host_bytes, int *port,
                              gm_error *error)
{
    const char *colon = strchr(text, ':');
    const char *first = text, *end = colon;
    if (text[0] == '[') {
        first = text + 1;
        end = strchr(text, ']');
        colon = end != NULL && end[1] == ':' ? end + 1 : NULL;
    }
    /* An IPv6 address without brackets has a second colon, and so no port: which colon would end it? */
    if (colon == NULL || !parse_port(colon + 1, port) || end == first || (size_t)(end - first) >= host_bytes) {
        return gmi_error_set(error, GM_ERR_ARG,
                             "'%.100s' is not an address of the form host:port or [ipv6]:port", text);
    }
    memcpy(host, first, (size_t)(end - first));
    host[end - first] = '\0';
    return GM_OK;
}

static gm_status resolve(struct gmi_address_list *list, const char *host, int port, int flags,
                         gm_error *error)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags };
    struct addrinfo *found = NULL;
    list->n_addresses = 0;
    int code = getaddrinfo(host, NULL, &hints, &found);
    if (code != 0) {
        gm_status status = code == EAI_NONAME && (flags & AI_NUMERICHOST) ? GM_ERR_ARG : GM_AGAIN;
        return gmi_error_set(error, status, "cannot resolve host '%.100s': %s", host,
                             code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    }
    for (struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        if (list->n_addresses == (int)(sizeof list->addresses / sizeof list->addresses[0])) break;
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        struct gmi_address *to = &list->addresses[list->n_addresses++];
        memset(to, 0, sizeof *to);
        memcpy(&to->storage, a->ai_addr, a->ai_addrlen);
        to->used_bytes = a->ai_addrlen;
        gmi_address_set_port(to, port);
    }
    freeaddrinfo(found);
    if (list->n_addresses == 0) {
        return gmi_error_set(error, GM_ERR_ARG, "host '%.100s' has no IPv4 or IPv6 address", host);
    }
    return GM_OK;
}

gm_status gmi_address_resolve(struct gmi_address_list *list, const char *host, int port,
                              gm_error *error)
{
    gm_error ignored;
    gmi_error_clear(&ignored);
    gm_status status = resolve(list, host, port, AI_NUMERICHOST, &ignored);
    if (status != GM_OK) status = resolve(list, host, port, 0, error);
    for (int i = 0; i < list->n_addresses && status == GM_OK; i++) {
        const struct gmi_address *a = &list->addresses[i];
        if (!gmi_address_is_link_local(a) || v6(a)->sin6_scope_id != 0) continue;
        return gmi_error_set(error, GM_ERR_ARG, "'%.80s' is link-local and needs the interface: %.80s%%eth0", host, host);
    }
    return status;
}

gm_status gmi_address_parse_numeric(struct gmi_address *address, const char *text, gm_error *error)
{
    char host[GMI_ADDRESS_TEXT_BYTES];
    int  port = 0;
    gm_status status = gmi_host_port_split(text, host, sizeof host, &port, error);
    if (status != GM_OK) return status;
    struct gmi_address_list list;
    status = resolve(&list, host, port, AI_NUMERICHOST, error);
    if (status != GM_OK) return GM_ERR_ARG;
    *address = list.addresses[0];
    return GM_OK;
}

const char *gmi_address_format(const struct gmi_address *address, char *text)
{
    char host[GMI_ADDRESS_TEXT_BYTES - 10];
    if (getnameinfo((const struct sockaddr *)&address->storage, address->used_bytes, host, sizeof host,
                    NULL, 0, NI_NUMERICHOST) != 0) {
        snprintf(host, sizeof host, "?");
    }
    bool six = address->storage.ss_family == AF_INET6;
    snprintf(text, GMI_ADDRESS_TEXT_BYTES, "%s%s%s:%d", six ? "[" : "", host, six ? "]" : "",
             gmi_address_port(address));
    return text;
}

bool gmi_host_is_known_to_others(const char *host)
{
    static const char *const local[] = { "localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost",
                                         "ip6-loopback" };
    struct gmi_address_list  list;
    gm_error                 ignored;
    gmi_error_clear(&ignored);
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (strcasecmp(host, local[i]) == 0) return false;
    }
    return resolve(&list, host, 1, AI_NUMERICHOST, &ignored) != GM_OK;
}

void gmi_address_set_any(struct gmi_address *a)
{
    if (a->storage.ss_family == AF_INET) ((struct sockaddr_in *)&a->storage)->sin_addr.s_addr = htonl(INADDR_ANY);
    else ((struct sockaddr_in6 *)&a->storage)->sin6_addr = in6addr_any;
}

void gmi_address_localize(char text[GMI_ADDRESS_TEXT_BYTES], const struct gmi_address *meeting)
{
    struct gmi_address a;
    gm_error           ignored;
    char               bare[GMI_ADDRESS_TEXT_BYTES];
    gmi_error_clear(&ignored);
    /* The zone of another host need not exist here. */
    size_t n = strcspn(text, "%"), rest = n + strcspn(text + n, "]");
    snprintf(bare, sizeof bare, "%.*s%s", (int)n, text, text + rest);
    if (gmi_address_parse_numeric(&a, bare, &ignored) != GM_OK) return;
    if (gmi_address_is_any(&a)) {
        int port = gmi_address_port(&a);
        a = *meeting;
        gmi_address_set_port(&a, port);
    } else if (gmi_address_is_link_local(&a) && gmi_address_is_link_local(meeting)) {
        ((struct sockaddr_in6 *)&a.storage)->sin6_scope_id = ((const struct sockaddr_in6 *)&meeting->storage)->sin6_scope_id;
    } else {
        return;
    }
    gmi_address_format(&a, text);
}

bool gmi_address_equal(const struct gmi_address *a, const struct gmi_address *b)
{
    if (a->storage.ss_family != b->storage.ss_family) return false;
    if (a->storage.ss_family == AF_INET) {
        return v4(a)->sin_port == v4(b)->sin_port && v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr;
    }
    return v6(a)->sin6_port == v6(b)->sin6_port && v6(a)->sin6_scope_id == v6(b)->sin6_scope_id &&
           memcmp(&v6(a)->sin6_addr, &v6(b)->sin6_addr, sizeof v6(a)->sin6_addr) == 0;
}

bool gmi_address_is_any(const struct gmi_address *a)
{
    return a->storage.ss_family == AF_INET ? v4(a)->sin_addr.s_addr == htonl(INADDR_ANY) : IN6_IS_ADDR_UNSPECIFIED(&v6(a)->sin6_addr);
}

bool gmi_address_is_loopback(const struct gmi_address *a)
{
    if (a->storage.ss_family == AF_INET) return ntohl(v4(a)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &v6(a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

bool gmi_address_is_link_local(const struct gmi_address *a)
{
    return a->storage.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(a)->sin6_addr);
}

int gmi_address_port(const struct gmi_address *a)
{
    return ntohs(a->storage.ss_family == AF_INET ? v4(a)->sin_port : v6(a)->sin6_port);
}

void gmi_address_set_port(struct gmi_address *a, int port)
{
    if (a->storage.ss_family == AF_INET) {
        ((struct sockaddr_in *)&a->storage)->sin_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in6 *)&a->storage)->sin6_port = htons((uint16_t)port);
    }
}
