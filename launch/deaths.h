/* deaths.h - which children have died, in the order in which they did.
 *
 * waitpid() hands out dead children in the order of their birth. Who reads a row of deaths so,
 * takes a victim for the cause whenever the launcher was asleep for a moment. A pidfd becomes
 * readable at the death, and epoll keeps its ready descriptors in the order in which they became
 * so; hence one epoll set of pidfds is the record of who died first. Where the kernel has no pidfds
 * (Linux before 5.3), it is waitpid's order. */
#ifndef LAUNCH_DEATHS_H
#define LAUNCH_DEATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct epoll_event;
struct launch_watched;

struct launch_deaths {
    int epoll_fd; /* readable when a watched child has died; -1: rely on SIGCHLD */
    struct launch_watched *watched;
    size_t n_watched, max_watched;
    struct epoll_event *ready; /* taken from the kernel, not yet handed out */
    size_t n_ready, at_ready;
};

/* For up to `max_watched` children. False: no memory. */
bool launch_deaths_init(struct launch_deaths *deaths, size_t max_watched);
void launch_deaths_fini(struct launch_deaths *deaths);

void launch_deaths_watch(struct launch_deaths *deaths, pid_t child);

/* Reaps the next dead child and gives its pid and wait status: the watched ones in the order of
 * their deaths, and any others (adopted orphans) as they come. False: nobody else is dead. Never
 * blocks. */
bool launch_deaths_next(struct launch_deaths *deaths, pid_t *pid, int *wait_status);

/* Is a watched child about to die? The kernel closes the files of a dying process before it is
 * dead, so its peers may learn of it, fail, and even be dead themselves while it is still at it. */
bool launch_deaths_has_dying(const struct launch_deaths *deaths);

#endif
