/* signals.h - signals as bytes in a pipe, for the launcher's one poll loop.
 *
 * Handlers rather than a signalfd, because libraries in the process may have threads that do not
 * block the signals, and the kernel would let one of those die of them. */
#ifndef LAUNCH_SIGNALS_H
#define LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum { LAUNCH_N_SIGNALS = 7 };

struct launch_signals {
    int pipe_fds[2]; /* both non-blocking; read from [0] */
    struct sigaction before[LAUNCH_N_SIGNALS];
    sigset_t mask_before;
    bool is_caught;
};

/* Catches INT, TERM, HUP, QUIT, CHLD and TSTP and ignores PIPE. A HUP or TSTP that was ignored
 * stays so (nohup). One set at a time. False: no pipe (errno). */
bool launch_signals_catch(struct launch_signals *signals);
void launch_signals_release(struct launch_signals *signals);

/* The next signal that came, or 0. */
int launch_signals_next(struct launch_signals *signals);

/* Around a fork: nothing is delivered to the child before it has given up the launcher's handlers.
 */
void launch_signals_hold(struct launch_signals *signals);
void launch_signals_resume(struct launch_signals *signals);

/* In the child: everything as the launcher's caller had it, except that INT and QUIT act (a shell
 * ignores them in background jobs; here the launcher stands between and passes them on). */
void launch_signals_restore_in_child(const struct launch_signals *signals);

/* "SIGSEGV"; "signal 40" for one without a name. */
const char *launch_signal_name(int signal, char *text, size_t text_bytes);

#endif
