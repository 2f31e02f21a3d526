/* faults.c - what can happen to a rank, a row each. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/chaos/chaos.h"
#include "tests/support/refuse.h"

static void nap_us(int us)
{
    struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };
    nanosleep(&t, NULL);
}

/* ---- the process ---------------------------------------------------------------------------------- */

static void be_killed(struct chaos_scene *scene)
{
    (void)scene;
    kill(getpid(), SIGKILL);
}

static void exit_without_a_word(struct chaos_scene *scene)
{
    (void)scene;
    _exit(3);
}

static void crash(struct chaos_scene *scene)
{
    (void)scene;
    signal(SIGABRT, SIG_DFL);
    abort();
}

static void stop_for_good(struct chaos_scene *scene)
{
    (void)scene;
    kill(getpid(), SIGSTOP);
}

/* A child that holds none of our descriptors lets us go on. */
static void stop_for_a_while(struct chaos_scene *scene)
{
    int   us = 1000 + (int)gmi_rng_next_below(&scene->rng, 900000);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        syscall(SYS_close_range, 0, ~0U, 0);
        nap_us(us);
        kill(parent, SIGCONT);
        _exit(0);
    }
    if (child > 0) kill(parent, SIGSTOP);
}

static void dawdle(struct chaos_scene *scene) { nap_us(1000 + (int)gmi_rng_next_below(&scene->rng, 400000)); }

static void ignore(int signal_number) { (void)signal_number; }

/* Every system call that waits is interrupted, a thousand times a second, for half a second. */
static void be_interrupted(struct chaos_scene *scene)
{
    struct sigaction action = { .sa_handler = ignore };
    struct itimerval often = { { 0, 700 + (suseconds_t)gmi_rng_next_below(&scene->rng, 900) }, { 0, 500 } }, never = { 0 };
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 100; i++) nap_us(5000);
    setitimer(ITIMER_REAL, &never, NULL);
}

/* ---- its sockets ---------------------------------------------------------------------------------- */

typedef void (*each_socket)(int fd, void *user);

static int tcp_port(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in address;
    socklen_t          n = sizeof address;
    return name(fd, (struct sockaddr *)&address, &n) == 0 && address.sin_family == AF_INET ? ntohs(address.sin_port) : 0;
}

/* Connected ones, but for the one to the store. Returns how many. */
static int list_sockets(struct chaos_scene *scene, int *fds, int max)
{
    const char *colon = scene->self->options.store ? strrchr(scene->self->options.store, ':') : NULL;
    int         store_port = colon ? atoi(colon + 1) : 0, n = 0;
    DIR        *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        int fd = atoi(e->d_name), port = e->d_name[0] == '.' ? 0 : tcp_port(fd, getpeername);
        if (port != 0 && port != store_port && n < max) fds[n++] = fd;
    }
    if (dir != NULL) closedir(dir);
    return n;
}

/* The kernel's number of the socket at the other end of this one, which is on this host too; 0: not found. */
static unsigned long inode_of_other_end(int fd)
{
    unsigned      own = (unsigned)tcp_port(fd, getsockname), peer = (unsigned)tcp_port(fd, getpeername), from, to;
    unsigned long inode, found = 0;
    char          line[512];
    FILE         *file = fopen("/proc/net/tcp", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %*s %*s %*s %*s %*s %lu", &from, &to, &inode) == 3 && from == peer && to == own)
            found = inode;
    }
    if (file != NULL) fclose(file);
    return found;
}

static bool has_socket(uint64_t pid, unsigned long inode)
{
    char path[64], wanted[64], target[64];
    bool is_found = false;
    snprintf(path, sizeof path, "/proc/%llu/fd", (unsigned long long)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        if (n > 0 && (target[n] = '\0', strcmp(target, wanted) == 0)) is_found = true;
    }
    if (dir != NULL) closedir(dir);
    return is_found;
}

static int pick_socket(struct chaos_scene *scene)
{
    int fds[64], n = list_sockets(scene, fds, 64);
    if (n == 0) return -1;
    int           fd = fds[gmi_rng_next_below(&scene->rng, (uint64_t)n)];
    unsigned long inode = inode_of_other_end(fd);
    for (int k = 0; inode != 0 && k < scene->self->world_size; k++) {
        uint64_t pid = scene->self->shared->records[k].numbers[CHAOS_PID];
        if (k != scene->self->rank && pid != 0 && has_socket(pid, inode)) scene->self->record->numbers[CHAOS_OTHER_END] = (uint64_t)k + 1;
    }
    return fd;
}

static void cut_a_connection(struct chaos_scene *scene)
{
    int fd = pick_socket(scene);
    if (fd >= 0) shutdown(fd, SHUT_RDWR);
}

/* One direction: we are silent to the peer for ever, though we hear it. */
static void cut_one_direction(struct chaos_scene *scene)
{
    int fd = pick_socket(scene);
    if (fd >= 0) shutdown(fd, SHUT_WR);
}

static void reset_a_connection(struct chaos_scene *scene)
{
    struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
    int             fd = pick_socket(scene);
    if (fd >= 0) connect(fd, &nowhere, sizeof nowhere); /* sends RST */
}

/* From now on the kernel takes and gives little at a time. (Less than a loopback packet would not be partial I/O any more
 * but the persist timer's pace, five packets a second.) */
static void shrink_buffers(struct chaos_scene *scene)
{
    int fds[64], n = list_sockets(scene, fds, 64), tiny = 70000;
    for (int i = 0; i < n; i++) {
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int));
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &tiny, sizeof tiny);
    }
}

/* ---- system calls that are refused ------------------------------------------------------------------ */

static void refuse_to_send(struct chaos_scene *scene)
{
    static const int calls[] = { SYS_sendmsg, SYS_sendto, SYS_writev, SYS_sendmmsg };
    static const int errors[] = { ENOBUFS, ENOMEM, EPERM, EIO };
    refuse_calls(calls, 4, errors[gmi_rng_next_below(&scene->rng, 4)]);
}

static void refuse_to_receive(struct chaos_scene *scene)
{
    static const int calls[] = { SYS_recvmsg, SYS_recvfrom, SYS_readv, SYS_recvmmsg };
    static const int errors[] = { ENOMEM, EPERM, EIO };
    refuse_calls(calls, 4, errors[gmi_rng_next_below(&scene->rng, 3)]);
}

/* No new memory to share, sockets, or pages: what is needed later must be had by other means, or be missed in words. */
static void refuse_resources(struct chaos_scene *scene)
{
    static const int calls[] = { SYS_memfd_create, SYS_socket, SYS_accept4, SYS_eventfd2, SYS_setsockopt, SYS_mmap };
    static const int errors[] = { ENOMEM, EMFILE, EPERM };
    int              which = (int)gmi_rng_next_below(&scene->rng, sizeof calls / sizeof *calls);
    refuse_calls(&calls[which], 1, errors[gmi_rng_next_below(&scene->rng, 3)]);
}

/* ---- strangers ------------------------------------------------------------------------------------- */

static int call_on(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) connect(fd, (struct sockaddr *)&to, sizeof to);
    return fd;
}

/* Whoever listens gets callers that say nothing, nonsense, or what another protocol says. */
static void let_strangers_call(struct chaos_scene *scene)
{
    const char *colon = scene->self->options.store ? strrchr(scene->self->options.store, ':') : NULL;
    int         fds[64], n = 0;
    for (int round = 0; round < 6; round++) {
        for (int k = 0; k <= scene->self->world_size && n < 64; k++) {
            int port = k < scene->self->world_size ? (int)scene->self->shared->records[k].numbers[CHAOS_LISTENS_AT]
                                                   : (colon ? atoi(colon + 1) : 0);
            if (port != 0) fds[n++] = call_on(port);
        }
        nap_us(1000);
        for (int i = 0; i < n; i++) {
            char     bytes[200];
            unsigned mood = (unsigned)gmi_rng_next_below(&scene->rng, 4);
            for (size_t b = 0; b < sizeof bytes; b++) bytes[b] = (char)gmi_rng_next(&scene->rng);
            if (mood == 1) memcpy(bytes, "GET / HTTP/1.1\r\nHost: gradmesh\r\n\r\n", 35);
            if (mood == 2) memcpy(bytes, "GRADMESH", 8);
            if (mood != 0) send(fds[i], bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    nap_us(20000);
    for (int i = 0; i < n; i++) close(fds[i]);
}

/* ---- the table -------------------------------------------------------------------------------------- */

static const struct chaos_fault rows[] = {
    { "kill", CHAOS_LOSS, 20, 200, .act = be_killed },
    { "double kill", CHAOS_LOSS, 6, 200, .has_two_victims = true, .act = be_killed },
    { "exit", CHAOS_LOSS, 6, 200, .act = exit_without_a_word },
    { "crash", CHAOS_LOSS, 4, 200, .act = crash, .not_with_sanitizers = true },
    { "stop", CHAOS_LOSS, 2, 3000, .only_calling = true, .act = stop_for_good },
    { "pause", CHAOS_HARMLESS, 4, 0, .only_calling = true, .act = stop_for_a_while },
    { "delay", CHAOS_HARMLESS, 4, 0, .only_calling = true, .act = dawdle },
    { "interrupts", CHAOS_HARMLESS, 4, 0, .only_calling = true, .act = be_interrupted },
    { "cut", CHAOS_CUT, 14, 200, .needs_tcp = true, .only_calling = true, .act = cut_a_connection },
    { "half cut", CHAOS_CUT, 8, 200, .needs_tcp = true, .only_calling = true, .act = cut_one_direction },
    { "reset", CHAOS_CUT, 14, 200, .needs_tcp = true, .only_calling = true, .act = reset_a_connection },
    { "tiny buffers", CHAOS_HARMLESS, 6, 0, .needs_tcp = true, .only_calling = true, .act = shrink_buffers },
    { "refused send", CHAOS_CUT, 6, 200, .only_calling = true, .needs_tcp = true, .not_with_sanitizers = true, .act = refuse_to_send },
    { "refused receive", CHAOS_CUT, 6, 200, .only_calling = true, .needs_tcp = true, .not_with_sanitizers = true,
      .act = refuse_to_receive },
    { "refused resource", CHAOS_CUT, 6, 2500, .only_calling = true, .not_with_sanitizers = true, .act = refuse_resources },
    { "strangers", CHAOS_HARMLESS, 6, 0, .only_calling = true, .act = let_strangers_call },
    { "other count", CHAOS_MISMATCH, 5, 600, .only_calling = true, .is_in_call = true },
    { "skipped call", CHAOS_MISMATCH, 5, 600, .only_calling = true, .is_in_call = true },
};

const struct chaos_fault *chaos_fault_row(size_t i) { return i < sizeof rows / sizeof *rows ? &rows[i] : NULL; }
