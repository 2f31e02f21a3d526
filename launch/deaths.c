#include "launch/deaths.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "launch/hunt.h"

struct launch_watched {
    pid_t pid; /* 0: handed out */
    int pid_fd;
};

bool launch_deaths_init(struct launch_deaths *deaths, size_t max_watched)
{
    *deaths = (struct launch_deaths){ .epoll_fd = -1, .max_watched = max_watched };
    deaths->watched = gmi_alloc(max_watched, sizeof *deaths->watched);
    deaths->ready = gmi_alloc(max_watched, sizeof *deaths->ready);
    if (deaths->watched == NULL || deaths->ready == NULL) {
        launch_deaths_fini(deaths);
        return false;
    }
    deaths->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return true;
}

void launch_deaths_fini(struct launch_deaths *deaths)
{
    for (size_t i = 0; deaths->watched != NULL && i < deaths->n_watched; i++) {
        if (deaths->watched[i].pid_fd >= 0) close(deaths->watched[i].pid_fd);
    }
    if (deaths->epoll_fd >= 0) close(deaths->epoll_fd);
    gmi_free(deaths->watched);
    gmi_free(deaths->ready);
    *deaths = (struct launch_deaths){ .epoll_fd = -1 };
}

static int open_pid_fd(pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0); /* it closes on exec by itself */
#else
    (void)pid;
    return -1;
#endif
}

void launch_deaths_watch(struct launch_deaths *deaths, pid_t child)
{
    if (deaths->n_watched == deaths->max_watched) return;
    struct launch_watched *w = &deaths->watched[deaths->n_watched];
    *w = (struct launch_watched){ .pid = child,
                                  .pid_fd = deaths->epoll_fd < 0 ? -1 : open_pid_fd(child) };
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = deaths->n_watched };
    if (w->pid_fd >= 0 && epoll_ctl(deaths->epoll_fd, EPOLL_CTL_ADD, w->pid_fd, &event) != 0) {
        close(w->pid_fd);
        w->pid_fd = -1;
    }
    deaths->n_watched++;
}

static bool hand_out(struct launch_watched *w, pid_t *pid, int *wait_status)
{
    if (w->pid == 0 || waitpid(w->pid, wait_status, WNOHANG) != w->pid) return false;
    *pid = w->pid;
    if (w->pid_fd >= 0) close(w->pid_fd);
    *w = (struct launch_watched){ .pid_fd = -1 };
    return true;
}

static bool next_in_order(struct launch_deaths *deaths, pid_t *pid, int *wait_status)
{
    if (deaths->epoll_fd < 0) return false;
    for (;;) {
        while (deaths->at_ready < deaths->n_ready) {
            size_t index = (size_t)deaths->ready[deaths->at_ready++].data.u64;
            if (hand_out(&deaths->watched[index], pid, wait_status)) return true;
        }
        int n = epoll_wait(deaths->epoll_fd, deaths->ready, (int)deaths->max_watched, 0);
        deaths->at_ready = 0;
        deaths->n_ready = n > 0 ? (size_t)n : 0;
        if (n <= 0) return false;
    }
}

static struct launch_watched *find_watched(struct launch_deaths *deaths, pid_t pid)
{
    for (size_t i = 0; i < deaths->n_watched; i++) {
        if (deaths->watched[i].pid == pid) return &deaths->watched[i];
    }
    return NULL;
}

bool launch_deaths_next(struct launch_deaths *deaths, pid_t *pid, int *wait_status)
{
    for (bool is_second_try = false;; is_second_try = true) {
        if (next_in_order(deaths, pid, wait_status)) return true;
        siginfo_t info = { 0 };
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return false;
        struct launch_watched *w = find_watched(deaths, info.si_pid);
        /* One that died just now is taken in its order after all. */
        if (w != NULL && w->pid_fd >= 0 && !is_second_try) continue;
        if (w != NULL) return hand_out(w, pid, wait_status);
        *pid = waitpid(info.si_pid, wait_status, WNOHANG);
        return *pid > 0;
    }
}

bool launch_deaths_has_dying(const struct launch_deaths *deaths)
{
    for (size_t i = 0; i < deaths->n_watched; i++) {
        if (deaths->watched[i].pid != 0 && launch_is_exiting(deaths->watched[i].pid)) return true;
    }
    return false;
}
