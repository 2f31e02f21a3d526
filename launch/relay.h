/* relay.h - passes the workers' output on: nothing is lost, lines stay whole, nobody waits for
 * ever.
 *
 *     worker 0 stdout --pipe--> stream: the unfinished line --\
 *     worker 1 stdout --pipe--> stream ------------------------> sink: whole lines --> standard
 * output
 *     worker 0 stderr --pipe--> stream --\
 *     the launcher's own messages --------> sink ----------------------------------> standard error
 *
 * 1. Only whole lines enter a sink, so lines of different ranks cannot mix. When standard output
 * and standard error are one file they share one sink, for the same reason.
 * 2. A sink that is full enough stops its streams from being read: a slow reader slows the workers
 * and costs no memory.
 * 3. The user's descriptors are never made non-blocking, since others hold them too. What may be
 * written without blocking is known from poll(), for a pipe one page at a time.
 * 4. A sink that cannot be written any more drops what it gets; its owner is told, and decides.
 * 5. A line that outgrows LAUNCH_LINE_MAX_BYTES is passed on in parts, which another rank's line
 * may then divide. */
#ifndef LAUNCH_RELAY_H
#define LAUNCH_RELAY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "gradmesh.h"
#include "net/poller.h"

#define LAUNCH_LINE_MAX_BYTES (8u << 20)

enum launch_stream { LAUNCH_STDOUT, LAUNCH_STDERR };

struct launch_relay;

struct launch_relay_options {
    int n_workers;
    int fds[2];         /* where the two kinds of streams go; normally 1 and 2 */
    bool has_prefix[2]; /* per kind of stream */
    bool has_colour[2];
    bool stdout_to_stderr;
};

/* NULL: no memory. */
struct launch_relay *launch_relay_create(const struct launch_relay_options *options);
void launch_relay_destroy(struct launch_relay *relay);

/* Takes over the reading end of a worker's pipe. */
void launch_relay_attach(struct launch_relay *relay, int rank, enum launch_stream kind, int fd);

/* A line of the launcher itself, on standard error. */
void launch_relay_say(struct launch_relay *relay, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void launch_relay_sayv(struct launch_relay *relay, const char *format, va_list args);

void launch_relay_watch(struct launch_relay *relay, struct gmi_poller *poller);

/* Moves what can be moved after a wait. Never blocks. */
void launch_relay_step(struct launch_relay *relay, const struct gmi_poller *poller);

/* No worker is left that could write: a stream with nothing in it is at its end. */
void launch_relay_finish(struct launch_relay *relay);

/* Everything that came has been written (or dropped by a broken sink). */
bool launch_relay_is_idle(const struct launch_relay *relay);

/* The errno with which writing to the output of that kind failed (EPIPE: the reader has gone); 0:
 * none. */
int launch_relay_broken(const struct launch_relay *relay, enum launch_stream kind);

/* Calls `line` for each of the last few lines that the rank wrote to standard error; returns how
 * many. */
int launch_relay_last_lines(const struct launch_relay *relay, int rank,
                            void (*line)(void *user, const char *text, int n_bytes), void *user);

#endif
