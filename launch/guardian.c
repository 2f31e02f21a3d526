#include "launch/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "launch/hunt.h"
#include "launch/launcher.h"

struct message {
    int32_t is_added;
    int32_t group;
};

/* ---- inside the guardian --------------------------------------------------------------------- */

static void close_all_but(int kept_fd)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++) dup2(null_fd, fd);
    struct rlimit limit;
    unsigned end = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (unsigned)limit.rlim_cur : 1024;
#ifdef SYS_close_range
    bool is_done = (kept_fd == 3 || syscall(SYS_close_range, 3u, (unsigned)kept_fd - 1, 0u) == 0) &&
                   syscall(SYS_close_range, (unsigned)kept_fd + 1, ~0u, 0u) == 0;
    if (is_done) return;
#endif
    for (unsigned fd = 3; fd < end; fd++) {
        if ((int)fd != kept_fd) close((int)fd);
    }
}

/* Process lists show the guardian under a name of its own, and whoever kills the launcher by its
 * command line does not hit it. The kernel says where the words of the command line lie. */
static void rename_process(const char *job_id)
{
    prctl(PR_SET_NAME, "gradmesh-guard");
    char text[2048];
    FILE *stat = fopen("/proc/self/stat", "re");
    if (stat == NULL) return;
    size_t n = fread(text, 1, sizeof text - 1, stat);
    fclose(stat);
    text[n] = '\0';
    char *field = strrchr(text, ')');
    for (int i = 2; field != NULL && i < 48; i++) { /* the name, which ')' ends, is the 2nd field */
        field = strchr(field + 1, ' ');
    }
    unsigned long long start, end;
    if (field == NULL || sscanf(field, " %llu %llu", &start, &end) != 2 || start == 0 ||
        end <= start)
        return;
    char *words = (char *)(uintptr_t)start;
    size_t n_words = (size_t)(end - start);
    memset(words, 0, n_words);
    snprintf(words, n_words, "gradmesh-guard %s", job_id);
}

static void nap_ms(int ms)
{
    struct timespec t = { .tv_nsec = ms * 1000000L };
    nanosleep(&t, NULL);
}

static void hunt_down(struct launch_hunt *hunt)
{
    enum { LONGEST_MS = 60000 };
    int64_t give_up_ns = gmi_deadline_after_ms(LONGEST_MS);
    int n_clean = 0, pause_ms = 5;
    /* A process that was being forked during one look is seen by the next: two empty looks are
     * wanted. */
    while (n_clean < 2 && !gmi_deadline_passed(give_up_ns)) {
        n_clean = launch_hunt(hunt, SIGKILL) == 0 ? n_clean + 1 : 0;
        nap_ms(pause_ms);
        if (pause_ms < 100) pause_ms *= 2;
    }
}

static _Noreturn void guard(int pipe_fd, const char *job_id, pid_t session,
                            unsigned long long born_ticks)
{
    static const int ignored[] = { SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                   SIGTSTP, SIGPIPE, SIGUSR1, SIGUSR2 };
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    close_all_but(pipe_fd);
    if (chdir("/") != 0) _exit(1);
    rename_process(job_id);

    pid_t groups[LAUNCH_MAX_WORKERS];
    size_t n_groups = 0;
    for (;;) {
        struct message m;
        ssize_t got = read(pipe_fd, &m, sizeof m);
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)sizeof m) break;
        if (m.is_added && n_groups < LAUNCH_MAX_WORKERS) groups[n_groups++] = m.group;
        for (size_t i = 0; !m.is_added && i < n_groups; i++) {
            if (groups[i] == m.group) groups[i--] = groups[--n_groups];
        }
    }
    struct launch_hunt hunt = { .job_id = job_id,
                                .groups = groups,
                                .n_groups = n_groups,
                                .session = session,
                                .born_ticks = born_ticks };
    hunt_down(&hunt);
    _exit(0);
}

/* ---- on the launcher's side ------------------------------------------------------------------ */

bool launch_guardian_start(struct launch_guardian *guardian, const char *job_id)
{
    *guardian = (struct launch_guardian){ .pipe_fd = -1 };
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    pid_t session = getsid(0);
    unsigned long long born_ticks = launch_birth_ticks();
    pid_t pid = fork();
    if (pid == 0) guard(ends[0], job_id, session, born_ticks);
    int saved_errno = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        errno = saved_errno;
        return false;
    }
    /* Never wait for a guardian that somebody has stopped. */
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    *guardian = (struct launch_guardian){ .pid = pid, .pipe_fd = ends[1] };
    return true;
}

static void tell(struct launch_guardian *guardian, struct message m)
{
    if (guardian->pid == 0) return;
    /* A message that does not arrive costs little: the guardian also goes by environments. */
    ssize_t sent = write(guardian->pipe_fd, &m, sizeof m);
    (void)sent;
}

void launch_guardian_add(struct launch_guardian *guardian, pid_t group)
{
    tell(guardian, (struct message){ .is_added = 1, .group = group });
}

void launch_guardian_forget(struct launch_guardian *guardian, pid_t group)
{
    tell(guardian, (struct message){ .is_added = 0, .group = group });
}

void launch_guardian_dismiss(struct launch_guardian *guardian)
{
    if (guardian->pid > 0) {
        kill(guardian->pid, SIGKILL);
        while (waitpid(guardian->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    if (guardian->pipe_fd >= 0) close(guardian->pipe_fd);
    *guardian = (struct launch_guardian){ .pipe_fd = -1 };
}
