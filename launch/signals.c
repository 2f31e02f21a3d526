#include "launch/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static const int caught[LAUNCH_N_SIGNALS] = { SIGINT,  SIGTERM, SIGHUP, SIGQUIT,
                                              SIGCHLD, SIGTSTP, SIGPIPE };

/* The one global that a handler cannot do without. */
static volatile int handler_fd = -1;

static void on_signal(int signal)
{
    int saved_errno = errno;
    unsigned char byte = (unsigned char)signal;
    ssize_t sent = write(handler_fd, &byte, 1); /* a full pipe holds the news already */
    (void)sent;
    errno = saved_errno;
}

bool launch_signals_catch(struct launch_signals *signals)
{
    *signals = (struct launch_signals){ .pipe_fds = { -1, -1 } };
    if (handler_fd >= 0) {
        errno = EBUSY;
        return false;
    }
    if (pipe2(signals->pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    handler_fd = signals->pipe_fds[1];
    for (int i = 0; i < LAUNCH_N_SIGNALS; i++) {
        struct sigaction action = { .sa_handler = caught[i] == SIGPIPE ? SIG_IGN : on_signal };
        sigfillset(&action.sa_mask);
        sigaction(caught[i], NULL, &signals->before[i]);
        bool stays_ignored = (caught[i] == SIGHUP || caught[i] == SIGTSTP) &&
                             signals->before[i].sa_handler == SIG_IGN;
        if (!stays_ignored) sigaction(caught[i], &action, NULL);
    }
    /* They must arrive, even if the caller has them blocked. */
    sigset_t wanted;
    sigemptyset(&wanted);
    for (int i = 0; i < LAUNCH_N_SIGNALS; i++) sigaddset(&wanted, caught[i]);
    sigprocmask(SIG_UNBLOCK, &wanted, &signals->mask_before);
    signals->is_caught = true;
    return true;
}

void launch_signals_release(struct launch_signals *signals)
{
    if (!signals->is_caught) return;
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
    for (int i = 0; i < LAUNCH_N_SIGNALS; i++) sigaction(caught[i], &signals->before[i], NULL);
    handler_fd = -1;
    close(signals->pipe_fds[0]);
    close(signals->pipe_fds[1]);
    signals->is_caught = false;
}

int launch_signals_next(struct launch_signals *signals)
{
    unsigned char byte;
    return read(signals->pipe_fds[0], &byte, 1) == 1 ? byte : 0;
}

void launch_signals_hold(struct launch_signals *signals)
{
    (void)signals;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

void launch_signals_resume(struct launch_signals *signals)
{
    sigset_t mask = signals->mask_before;
    for (int i = 0; i < LAUNCH_N_SIGNALS; i++) sigdelset(&mask, caught[i]);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

void launch_signals_restore_in_child(const struct launch_signals *signals)
{
    for (int i = 0; i < LAUNCH_N_SIGNALS; i++) {
        struct sigaction action = signals->before[i];
        /* exec would reset a handler anyway; until then it must not run here. */
        if (action.sa_handler != SIG_IGN || caught[i] == SIGINT || caught[i] == SIGQUIT) {
            action = (struct sigaction){ .sa_handler = SIG_DFL };
        }
        sigaction(caught[i], &action, NULL);
    }
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
}

const char *launch_signal_name(int signal, char *text, size_t text_bytes)
{
    /* clang-format off */
    static const struct {
        int         number;
        const char *name;
    } names[] = {
        { SIGHUP, "HUP" },   { SIGINT, "INT" },   { SIGQUIT, "QUIT" }, { SIGILL, "ILL" },
        { SIGTRAP, "TRAP" }, { SIGABRT, "ABRT" }, { SIGBUS, "BUS" },   { SIGFPE, "FPE" },
        { SIGKILL, "KILL" }, { SIGUSR1, "USR1" }, { SIGSEGV, "SEGV" }, { SIGUSR2, "USR2" },
        { SIGPIPE, "PIPE" }, { SIGALRM, "ALRM" }, { SIGTERM, "TERM" }, { SIGXCPU, "XCPU" },
        { SIGXFSZ, "XFSZ" }, { SIGSYS, "SYS" },
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number != signal) continue;
        snprintf(text, text_bytes, "SIG%s", names[i].name);
        return text;
    }
    snprintf(text, text_bytes, "signal %d", signal);
    return text;
}
