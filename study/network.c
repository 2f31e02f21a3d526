#include "study/network.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

/* ---- rates -------------------------------------------------------------------------------------- */

/* In kbit/s; 0: it is none. */
static double read_rate(const char *rate)
{
    static const struct {
        const char *unit;
        double      kbits;
    } units[] = { { "kbit", 1 }, { "mbit", 1e3 }, { "gbit", 1e6 } };
    char  *end;
    double value = strtod(rate, &end);
    if (end == rate || rate[0] < '0' || rate[0] > '9') return 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].unit) == 0 && value > 0 && value * units[i].kbits <= 1e8) return value * units[i].kbits;
    return 0;
}

bool study_network_is_rate(const char *rate) { return strcmp(rate, "loopback") == 0 || read_rate(rate) >= 1; }

/* A bucket must hold what arrives between two ticks, or the rate is not reached. */
int study_network_burst_kB(const char *rate)
{
    double gbits = read_rate(rate) / 1e6;
    return gbits < 1 ? 32 : gbits < 4 ? 128 : (int)(32 * gbits);
}

/* ---- holders ------------------------------------------------------------------------------------ */

/* A child in a network namespace of its own; 0: that may not be. */
static pid_t start_holder(void)
{
    int   ready[2];
    pid_t parent = getpid();
    if (pipe(ready) != 0) return 0;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0); /* Ctrl-C is the parent's to act on */
        if (getppid() != parent || unshare(CLONE_NEWNET) != 0 || write(ready[1], "", 1) != 1) _exit(1);
        close(ready[0]);
        close(ready[1]);
        for (;;) pause();
    }
    close(ready[1]);
    char    byte;
    ssize_t got;
    do got = read(ready[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    close(ready[0]);
    if (pid > 0 && got != 1) waitpid(pid, NULL, 0);
    return got == 1 ? pid : 0;
}

static void stop_holder(pid_t pid)
{
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Runs a shell command in the namespace of a holder. */
static bool run_in(pid_t holder, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool run_in(pid_t holder, const char *format, ...)
{
    char    command[600], path[64];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)holder);
    pid_t pid = fork();
    if (pid == 0) {
        FILE *space = fopen(path, "re");
        if (space == NULL || setns(fileno(space), CLONE_NEWNET) != 0) _exit(1);
        if (freopen("/dev/null", "w", stderr) == NULL || freopen("/dev/null", "w", stdout) == NULL) _exit(1);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(1);
    }
    int wait_status = 1;
    while (pid > 0 && waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) continue;
    return pid > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

/* ---- the network -------------------------------------------------------------------------------- */

#define PATHS "PATH=$PATH:/usr/sbin:/sbin; "

static bool limit(pid_t holder, const char *interface, const char *rate)
{
    return run_in(holder, PATHS "tc qdisc add dev %s root tbf rate %s burst %dkb latency 50ms", interface, rate, study_network_burst_kB(rate));
}

static bool connect_host(const struct study_network *network, int r, const char *rate)
{
    char  port[16];
    pid_t host = network->hosts[r], bridge = network->bridge;
    snprintf(port, sizeof port, "v%d", r);
    return run_in(bridge, PATHS "ip link add %s type veth peer name eth0 netns %d && ip link set %s master br0 up", port,
                  (int)host, port) &&
           run_in(host, PATHS "ip addr add 10.77.0.%d/24 dev eth0 && ip link set lo up && ip link set eth0 up", r + 1) &&
           limit(host, "eth0", rate) && limit(bridge, port, rate);
}

static bool start_holders(struct study_network *network, int n_hosts)
{
    network->bridge = start_holder();
    for (int r = 0; network->bridge != 0 && r < n_hosts; r++) {
        network->hosts[r] = start_holder();
        if (network->hosts[r] == 0) return false;
        network->n_hosts++;
    }
    return network->bridge != 0;
}

gm_status study_network_open(struct study_network *network, const char *rate, int n_hosts, gm_error *error)
{
    *network = (struct study_network){ .n_hosts = 0 };
    if (!study_network_is_rate(rate))
        return gmi_error_set(error, GM_ERR_ARG, "network \"%s\": expected loopback, or a rate such as 100mbit, 1gbit or 10gbit",
                             rate);
    if (strcmp(rate, "loopback") == 0) return GM_OK;
    if (!start_holders(network, n_hosts)) {
        study_network_close(network);
        return gmi_error_set(error, GM_ERR_UNSUPPORTED,
                             "a network of %s is made of network namespaces, which this user may not make: run it as root, "
                             "or take --network loopback", rate);
    }
    bool is_made = run_in(network->bridge, PATHS "ip link add br0 type bridge && ip link set br0 up && ip link set lo up");
    for (int r = 0; is_made && r < n_hosts; r++) is_made = connect_host(network, r, rate);
    if (is_made) return GM_OK;
    study_network_close(network);
    return gmi_error_set(error, GM_ERR_UNSUPPORTED,
                         "cannot make a network of %s: it needs ip and tc (package iproute2) and veth, bridge and sch_tbf in "
                         "the kernel", rate);
}

void study_network_close(struct study_network *network)
{
    for (int r = 0; r < network->n_hosts; r++) stop_holder(network->hosts[r]);
    stop_holder(network->bridge);
    *network = (struct study_network){ .n_hosts = 0 };
}
