#include "tests/support/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/support/test.h"

int hosts_run(const char *format, ...)
{
    char    command[400];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    strcat(command, " >/dev/null 2>&1");
    return system(command);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd >= 0) (void)!write(fd, text, strlen(text));
    if (fd >= 0) close(fd);
}

bool hosts_make_network(void)
{
    char uid_map[40], gid_map[40];
    snprintf(uid_map, sizeof uid_map, "0 %d 1", (int)getuid());
    snprintf(gid_map, sizeof gid_map, "0 %d 1", (int)getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", uid_map);
    write_file("/proc/self/gid_map", gid_map);
    return hosts_run("ip link add br0 type bridge && ip link set br0 up && ip link set lo up") == 0;
}

void hosts_move_to_own(struct rank_self *self)
{
    rank_check(self, unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) == 0);
    rank_mark(self, HOSTS_NAKED);
    rank_await(self, HOSTS_PLUGGED, 1);
    rank_check(self, hosts_run("ip link set lo up && ip addr add 10.77.0.%d/24 dev eth0 && ip link set eth0 up", self->rank + 1) == 0);
}

void hosts_plug_in(struct ranks *r, int n)
{
    ranks_await(r, HOSTS_NAKED, n);
    for (int k = 0; k < n; k++) {
        hosts_run("ip link del v%d", k); /* of an earlier job whose ranks were killed */
        assert_int_equal(hosts_run("ip link add v%d type veth peer name eth0 netns %d && ip link set v%d master br0 up", k,
                                   (int)ranks_pid(r, k), k), 0);
    }
    atomic_store(&ranks_shared(r)->marks[HOSTS_PLUGGED], 1);
}

void hosts_have_file(struct rank_self *self, const char *path, const char *text)
{
    char temporary[] = "/tmp/gradmesh-host-XXXXXX";
    int  fd = mkstemp(temporary);
    rank_check(self, fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    rank_check(self, mount(temporary, path, "", MS_BIND, NULL) == 0);
    unlink(temporary);
}
