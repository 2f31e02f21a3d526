/* interface.h - choosing one of this host's addresses by the user's list. */
#ifndef GMI_INTERFACE_H
#define GMI_INTERFACE_H

#include <ifaddrs.h>

#include "net/address.h"

struct gmi_interface_choice {
    struct gmi_address address;    /* port 0 */
    char               name[32];
    char               others[128]; /* "eth1, ib0": a list that names interfaces fits these too, and they are not used; "" */
};

/* The first address of this host that the list allows: "eth,en" (prefixes of names), "=eth0,eth1" (exact),
 * "^docker,lo" (all but these), or networks "10.0.0.0/8,fd00::/8". Of several, one of `family` (AF_INET or
 * AF_INET6) is preferred, one that is not link-local even more, and an excluding list still does not choose
 * loopback.
 * GM_OK; GM_ERR_ARG: nothing fits; the sentence lists what there is. GM_ERR_SYSTEM. */
gm_status gmi_interface_choose(struct gmi_interface_choice *choice, const char *list, int family, gm_error *error);

/* The same among given interfaces. */
gm_status gmi_interface_pick(struct gmi_interface_choice *choice, const struct ifaddrs *all, const char *list, int family,
                             gm_error *error);

#endif
