#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t read_file(const char *path, char *text, size_t text_bytes)
{
    size_t n = 0;
    int    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        text[0] = '\0';
        return 0;
    }
    for (ssize_t got = 1; n + 1 < text_bytes && got > 0; n += got > 0 ? (size_t)got : 0) {
        got = read(fd, text + n, text_bytes - 1 - n);
    }
    close(fd);
    text[n] = '\0';
    return n;
}

/* "PID (name, which may hold anything) STATE PPID PGRP SESSION ... STARTTIME(22nd)" */
bool gmi_process_read(uint32_t pid, struct gmi_process_facts *f)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    read_file(path, text, sizeof text);
    const char *after_name = strrchr(text, ')');
    memset(f, 0, sizeof *f);
    return after_name != NULL &&
           sscanf(after_name + 1, " %c %d %d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &f->state, &f->parent, &f->group, &f->session, &f->flags, &f->born_ticks) == 6;
}

static uint64_t own_space(void)
{
    char        text[96];
    struct stat pids, times;
    uint64_t    h = UINT64_C(14695981039346656037); /* FNV-1a */
    size_t      n = read_file("/proc/sys/kernel/random/boot_id", text, 64);
    if (n < 36 || stat("/proc/self/ns/pid", &pids) != 0) return 0;
    if (stat("/proc/self/ns/time", &times) != 0) times.st_ino = 0; /* a kernel before 5.6: all have one */
    snprintf(text + 36, sizeof text - 36, " %llu %llu", (unsigned long long)pids.st_ino, (unsigned long long)times.st_ino);
    for (const char *c = text; *c != '\0'; c++) h = (h ^ (uint8_t)*c) * UINT64_C(1099511628211);
    return h | 1;
}

/* In a container that was given its host's /proc, the pids there are not ours. */
static bool is_proc_ours(void)
{
    char text[64];
    read_file("/proc/self/stat", text, sizeof text);
    return strtol(text, NULL, 10) == (long)getpid();
}

struct gmi_process gmi_process_self(void)
{
    struct gmi_process       self = { .space = own_space(), .pid = (uint32_t)getpid() };
    struct gmi_process_facts facts;
    if (!gmi_process_read(self.pid, &facts) || !is_proc_ours()) self.space = 0; /* or there is none */
    self.born_ticks = facts.born_ticks;
    return self;
}

char gmi_process_state(const struct gmi_process *p)
{
    struct gmi_process_facts facts;
    if (p->space == 0 || p->space != own_space()) return GMI_PROCESS_UNKNOWN;
    if (!gmi_process_read(p->pid, &facts)) {
        char path[32];
        snprintf(path, sizeof path, "/proc/%u", p->pid);
        return access(path, F_OK) == 0 ? GMI_PROCESS_UNKNOWN : GMI_PROCESS_GONE;
    }
    if (facts.born_ticks != p->born_ticks || facts.state == 'Z' || facts.state == 'x') return GMI_PROCESS_GONE;
    return facts.state;
}

#ifdef MADV_WIPEONFORK

static size_t mark_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

const uint32_t *gmi_process_mark(void)
{
    uint32_t *mark = mmap(NULL, mark_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mark == MAP_FAILED) return NULL;
    if (madvise(mark, mark_bytes(), MADV_WIPEONFORK) == 0) { /* Linux 4.14 */
        *mark = 1;
        return mark;
    }
    munmap(mark, mark_bytes());
    return NULL;
}

void gmi_process_unmark(const uint32_t *mark)
{
    if (mark != NULL) munmap((void *)mark, mark_bytes());
}

#else

const uint32_t *gmi_process_mark(void) { return NULL; }
void            gmi_process_unmark(const uint32_t *mark) { (void)mark; }

#endif

bool gmi_process_is_near(const struct gmi_process *a, const struct gmi_process *b)
{
    return a->space != 0 && a->space == b->space;
}

const char *gmi_process_state_name(char state)
{
    switch (state) {
    case GMI_PROCESS_STOPPED: return "stopped (SIGSTOP or job control)";
    case GMI_PROCESS_TRACED: return "stopped by a debugger";
    case GMI_PROCESS_GONE: return "gone";
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "waiting for a disk";
    case 'I': return "idle";
    default: return "in an unknown state";
    }
}
