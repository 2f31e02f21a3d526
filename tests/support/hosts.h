/* hosts.h - ranks on hosts of their own, as far as the kernel is concerned: each in a network namespace with one interface,
 * eth0, whose other end, vK for rank K, is a port of a bridge in the test's own network.
 *
 *     main:   has_network = hosts_make_network()
 *     test:   r = ranks_start(...); hosts_plug_in(r, n)      rank:   hosts_move_to_own(self, "ip addr ...") */
#ifndef TESTS_SUPPORT_HOSTS_H
#define TESTS_SUPPORT_HOSTS_H

#include <stdbool.h>

#include "tests/support/ranks.h"
#include "tests/support/relay.h"

/* The marks that hosts_move_to_own and hosts_plug_in use. */
enum { HOSTS_NAKED = RANKS_MARKS - 2, HOSTS_PLUGGED = RANKS_MARKS - 1 };

/* The caller moves into a network, and mounts, of its own, with a bridge br0. False: that is not allowed here. */
bool hosts_make_network(void);

/* A command of the shell, without its output; its exit status. */
int hosts_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The rank gets a network of its own, 10.77.0.RANK+1, once the test has plugged in the cable. */
void hosts_move_to_own(struct rank_self *self);
/* Of all `n` ranks, when they have moved. */
void hosts_plug_in(struct ranks *r, int n);
/* The same; the cable of rank `far` is a relay, a process that ends with the test. False: that may not be had here. */
bool hosts_plug_in_far(struct ranks *r, int n, int far, const struct relay_options *options);

/* The rank's own /etc/hosts and other files: `text` is at `path` from now on, for it alone. */
void hosts_have_file(struct rank_self *self, const char *path, const char *text);

#endif
