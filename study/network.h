/* network.h - several machines on one: N network namespaces joined by a bridge, each link limited both ways.
 *
 *     [holder 0] eth0 10.77.0.1 ---v0 [ bridge ] v1--- 10.77.0.2 eth0 [holder 1]
 *
 * A namespace lives as long as a process is in it: each belongs to a holder, a child of ours that sleeps and dies with
 * us. So nothing is left of a network whatever ends us, a kill too. */
#ifndef STUDY_NETWORK_H
#define STUDY_NETWORK_H

#include <sys/types.h>

#include "gradmesh.h"
#include "study/point.h"

struct study_network {
    int   n_hosts;                /* 0: loopback, nothing was made */
    pid_t bridge;                 /* the holder of the namespace with the bridge */
    pid_t hosts[STUDY_MAX_RANKS]; /* the holder of each rank's; 0: none */
};

/* `rate` is "loopback", or 1kbit .. 100gbit as tc writes it. On failure nothing is left. GM_ERR_ARG: no such rate.
 * GM_ERR_UNSUPPORTED: this user may make no network, or a tool or part of the kernel is missing. */
GM_MUST_USE gm_status study_network_open(struct study_network *network, const char *rate, int n_hosts, gm_error *error);
void                  study_network_close(struct study_network *network);

/* Whether `rate` is one. */
bool study_network_is_rate(const char *rate);

/* What a link of that rate lets through at once after a pause, in KiB. */
int study_network_burst_kB(const char *rate);

#endif
