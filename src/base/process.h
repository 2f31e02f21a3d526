/* process.h - is a process of this machine running, stopped, or gone? By /proc.
 *
 * A pid means something only among processes that share a pid namespace, and only as long as the process
 * lives: so an identity says in which space it counts, and when the process was born, which each time namespace counts
 * from a start of its own. */
#ifndef GMI_PROCESS_H
#define GMI_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gmi_process {
    uint64_t space;      /* machine, pid and time namespace; 0: not known */
    uint64_t born_ticks; /* since the machine was started */
    uint32_t pid;
};

/* As /proc has it: 'T' stopped, 't' stopped by a debugger, 'R', 'S', 'D' alive. */
enum { GMI_PROCESS_UNKNOWN = 0, GMI_PROCESS_STOPPED = 'T', GMI_PROCESS_TRACED = 't', GMI_PROCESS_GONE = 'X' };

/* What "/proc/PID/stat" tells. False: there is no such process, or it cannot be read. */
struct gmi_process_facts {
    char     state;
    int      parent, group, session;
    unsigned flags;
    unsigned long long born_ticks;
};
bool gmi_process_read(uint32_t pid, struct gmi_process_facts *facts);

struct gmi_process gmi_process_self(void);

/* One of the letters above; GMI_PROCESS_UNKNOWN if it cannot be told from here. */
char gmi_process_state(const struct gmi_process *p);

/* A word that is 1 in this process and 0 in every child that is forked from it: it tells them apart without asking the
 * kernel. NULL: there is no such memory here. */
const uint32_t *gmi_process_mark(void);
void            gmi_process_unmark(const uint32_t *mark);

/* Do we see processes of the same space? */
bool gmi_process_is_near(const struct gmi_process *a, const struct gmi_process *b);

/* "stopped (by SIGSTOP)", "running", ... */
const char *gmi_process_state_name(char state);

#endif
