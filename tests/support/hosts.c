#include "tests/support/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

enum { MOST_FDS = 1024 };

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

/* Has nothing of the test's open, so that what ends there ends. */
static _Noreturn void be_the_relay(int near_fd, int far_fd, pid_t test_pid, const struct relay_options *options)
{
    struct relay_counts counts[2];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd = STDERR_FILENO + 1; fd < MOST_FDS; fd++) {
        if (fd != near_fd && fd != far_fd) close(fd);
    }
    if (getppid() == test_pid) relay_run(near_fd, far_fd, options, counts);
    _exit(0);
}

static bool plug_in_by_relay(struct ranks *r, int k, const struct relay_options *options)
{
    static pid_t pid; /* one at a time */
    pid_t        test_pid = getpid();
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        pid = 0;
    }
    int near_fd = relay_open("v-far"), far_fd = relay_open("w-far");
    if (near_fd < 0 || far_fd < 0 || hosts_run("ip link set v-far master br0 up") != 0 ||
        hosts_run("ip link set w-far netns %d name eth0", (int)ranks_pid(r, k)) != 0) {
        if (near_fd >= 0) close(near_fd);
        if (far_fd >= 0) close(far_fd);
        return false;
    }
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) be_the_relay(near_fd, far_fd, test_pid, options);
    close(near_fd);
    close(far_fd);
    return true;
}

bool hosts_plug_in_far(struct ranks *r, int n, int far, const struct relay_options *options)
{
    ranks_await(r, HOSTS_NAKED, n);
    for (int k = 0; k < n; k++) {
        if (k == far && !plug_in_by_relay(r, k, options)) return false;
        if (k == far) continue;
        hosts_run("ip link del v%d", k); /* of an earlier job whose ranks were killed */
        assert_int_equal(hosts_run("ip link add v%d type veth peer name eth0 netns %d && ip link set v%d master br0 up", k,
                                   (int)ranks_pid(r, k), k), 0);
    }
    atomic_store(&ranks_shared(r)->marks[HOSTS_PLUGGED], 1);
    return true;
}

void hosts_plug_in(struct ranks *r, int n) { (void)hosts_plug_in_far(r, n, -1, NULL); }

void hosts_have_file(struct rank_self *self, const char *path, const char *text)
{
    char temporary[] = "/tmp/gradmesh-host-XXXXXX";
    int  fd = mkstemp(temporary);
    rank_check(self, fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    rank_check(self, mount(temporary, path, "", MS_BIND, NULL) == 0);
    unlink(temporary);
}
