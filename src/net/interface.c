#include "net/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

static const void *raw_bytes(const struct sockaddr *a, size_t *n_bytes)
{
    if (a->sa_family == AF_INET) {
        *n_bytes = 4;
        return &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    }
    *n_bytes = 16;
    return &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
}

static bool is_in_network(const struct sockaddr *a, const char *network, const char *slash)
{
    char    text[INET6_ADDRSTRLEN];
    uint8_t wanted[16];
    size_t  n_bytes, text_bytes = (size_t)(slash - network);
    const uint8_t *have = raw_bytes(a, &n_bytes);
    if (text_bytes >= sizeof text) return false;
    memcpy(text, network, text_bytes);
    text[text_bytes] = '\0';
    if (inet_pton(a->sa_family, text, wanted) != 1) return false;
    size_t n_digits = strspn(slash + 1, "0123456789");
    if (n_digits == 0 || n_digits > 3 || slash[1 + n_digits] != '\0') return false; /* "/" is not "/0" */
    long bits = strtol(slash + 1, NULL, 10);
    if (bits > (long)(8 * n_bytes)) return false;
    for (size_t i = 0; i < n_bytes && bits > 0; i++, bits -= 8) {
        uint8_t mask = bits >= 8 ? 0xff : (uint8_t)(0xff00 >> bits);
        if ((have[i] ^ wanted[i]) & mask) return false;
    }
    return true;
}

/* Does one item of the list, [item, item + n), fit this interface address? */
static bool fits_item(const struct ifaddrs *i, const char *item, size_t n, bool is_exact)
{
    char text[128];
    if (n == 0 || n >= sizeof text) return false;
    memcpy(text, item, n);
    text[n] = '\0';
    const char *slash = strchr(text, '/');
    if (slash != NULL) return is_in_network(i->ifa_addr, text, slash);
    return is_exact ? strcmp(i->ifa_name, text) == 0 : strncmp(i->ifa_name, text, n) == 0;
}

static bool fits(const struct ifaddrs *i, const char *list)
{
    bool is_excluding = *list == '^', is_exact = false, is_listed = false;
    if (is_excluding) list++;
    if (*list == '=') {
        is_exact = true;
        list++;
    }
    for (const char *item = list; *item != '\0' && !is_listed;) {
        size_t n = strcspn(item, ",");
        is_listed = fits_item(i, item, n, is_exact);
        item += n + (item[n] == ',');
    }
    if (is_excluding && (i->ifa_flags & IFF_LOOPBACK)) return false;
    return is_listed != is_excluding;
}

static bool is_candidate(const struct ifaddrs *i)
{
    return i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) &&
           (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

static void set_address(struct gmi_address *to, const struct sockaddr *from)
{
    memset(to, 0, sizeof *to);
    to->used_bytes = from->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&to->storage, from, to->used_bytes);
    gmi_address_set_port(to, 0);
}

/* Is it one of the names in "eth0, ib0"? "eth0" is none of those in "veth0". */
static bool is_named(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += n) {
        if ((at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ',')) return true;
    }
    return false;
}

static void add_name(char *names, size_t names_bytes, const char *name)
{
    size_t used = strlen(names);
    if (used + IFNAMSIZ + 2 > names_bytes || is_named(names, name)) return;
    snprintf(names + used, names_bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

static gm_status nothing_fits(const struct ifaddrs *all, const char *list, gm_error *error)
{
    char names[256] = "";
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (is_candidate(i)) add_name(names, sizeof names, i->ifa_name);
    }
    return gmi_error_set(error, GM_ERR_ARG, "no interface of this host fits '%.100s'; there are: %s", list, names);
}

/* A link-local address needs a scope that means nothing on another host, so any other one is better; after
 * that the family decides, and then the order of the system. */
static int goodness(const struct ifaddrs *i, int family)
{
    struct gmi_address here;
    set_address(&here, i->ifa_addr);
    return (gmi_address_is_link_local(&here) ? 0 : 2) + (i->ifa_addr->sa_family == family ? 1 : 0);
}

gm_status gmi_interface_pick(struct gmi_interface_choice *choice, const struct ifaddrs *all, const char *list, int family,
                             gm_error *error)
{
    const struct ifaddrs *best = NULL;
    *choice = (struct gmi_interface_choice){ .name = "" };
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (!is_candidate(i) || !fits(i, list)) continue;
        if (best == NULL || goodness(i, family) > goodness(best, family)) best = i;
    }
    if (best == NULL) return nothing_fits(all, list, error);
    set_address(&choice->address, best->ifa_addr);
    snprintf(choice->name, sizeof choice->name, "%s", best->ifa_name);
    for (const struct ifaddrs *i = all; i != NULL && *list != '^'; i = i->ifa_next) {
        if (is_candidate(i) && fits(i, list) && strcmp(i->ifa_name, best->ifa_name) != 0)
            add_name(choice->others, sizeof choice->others, i->ifa_name);
    }
    return GM_OK;
}

gm_status gmi_interface_choose(struct gmi_interface_choice *choice, const char *list, int family, gm_error *error)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) return gmi_error_set_errno(error, errno, "cannot list the network interfaces");
    gm_status status = gmi_interface_pick(choice, all, list, family, error);
    freeifaddrs(all);
    return status;
}
