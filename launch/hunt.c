#include "launch/hunt.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/process.h"

struct process {
    pid_t pid, parent, group, session;
    unsigned long long born_ticks;
    bool is_exiting;
    bool is_dead; /* a zombie: nothing to end, but it may still have children */
    bool is_ours;
};

struct census {
    struct process *all; /* by pid */
    size_t n, cap;
};

/* ---- reading /proc --------------------------------------------------------------------------- */

static size_t read_file(const char *path, char *bytes, size_t max_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    size_t n = 0;
    while (n < max_bytes) {
        ssize_t got = read(fd, bytes + n, max_bytes - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(fd);
    return n;
}

static bool read_process(const char *pid_text, struct process *p)
{
    enum { EXITING_FLAG = 4 }; /* PF_EXITING of the kernel, unchanged since there is a stat file */
    struct gmi_process_facts facts;
    if (!gmi_process_read((uint32_t)atol(pid_text), &facts)) return false;
    *p = (struct process){ .pid = (pid_t)atol(pid_text),
                           .parent = facts.parent,
                           .group = facts.group,
                           .session = facts.session,
                           .born_ticks = facts.born_ticks,
                           .is_exiting = (facts.flags & EXITING_FLAG) != 0,
                           .is_dead = facts.state == 'Z' || facts.state == 'X' };
    return true;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;
    return (x > y) - (x < y);
}

static bool grow(struct census *c)
{
    size_t cap = c->cap ? 2 * c->cap : 256;
    struct process *all = gmi_alloc(cap, sizeof *all);
    if (all == NULL) return false;
    if (c->n) memcpy(all, c->all, c->n * sizeof *all);
    gmi_free(c->all);
    c->all = all;
    c->cap = cap;
    return true;
}

static bool take_census(struct census *c)
{
    *c = (struct census){ 0 };
    DIR *proc = opendir("/proc");
    if (proc == NULL) return false;
    bool is_good = true;
    struct dirent *entry;
    while (is_good && (entry = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        if (c->n == c->cap) is_good = grow(c);
        if (is_good && read_process(entry->d_name, &c->all[c->n])) c->n++;
    }
    closedir(proc);
    if (!is_good) gmi_free(c->all);
    else if (c->n) qsort(c->all, c->n, sizeof *c->all, by_pid);
    return is_good;
}

/* ---- who belongs to the job ------------------------------------------------------------------ */

static bool list_has_word(const char *list, const char *word)
{
    size_t n_word = strlen(word);
    for (const char *at = list; *at; at += strspn(at, ",")) {
        size_t n = strcspn(at, ",");
        if (n == n_word && memcmp(at, word, n) == 0) return true;
        at += n;
    }
    return false;
}

/* `environment`: entries that end with a zero byte each; so does the whole. */
static bool environment_names_job(const char *environment, size_t n_bytes, const char *job_id)
{
    const size_t n_id = strlen(LAUNCH_ENV_JOB_ID "="), n_outer = strlen(LAUNCH_ENV_OUTER_JOBS "=");
    for (const char *at = environment; at < environment + n_bytes; at += strlen(at) + 1) {
        if (strncmp(at, LAUNCH_ENV_JOB_ID "=", n_id) == 0 && strcmp(at + n_id, job_id) == 0)
            return true;
        if (strncmp(at, LAUNCH_ENV_OUTER_JOBS "=", n_outer) == 0 &&
            list_has_word(at + n_outer, job_id)) {
            return true;
        }
    }
    return false;
}

/* An environment may be as long as the kernel lets it (some MiB); most fit the first try. */
static bool carries_job_id(pid_t pid, const char *job_id)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    for (size_t max_bytes = 16 << 10; max_bytes <= (8 << 20); max_bytes *= 8) {
        char *bytes = gmi_alloc(max_bytes + 1, 1);
        if (bytes == NULL) return false;
        size_t n = read_file(path, bytes, max_bytes);
        bytes[n] = '\0';
        bool is_found = environment_names_job(bytes, n, job_id);
        gmi_free(bytes);
        if (is_found || n < max_bytes) return is_found;
    }
    return false;
}

static bool is_among(const pid_t *pids, size_t n_pids, pid_t pid)
{
    for (size_t i = 0; i < n_pids; i++) {
        if (pids[i] == pid) return true;
    }
    return false;
}

static bool is_excluded(const struct launch_hunt *hunt, const struct process *p)
{
    return p->pid == getpid() || p->born_ticks < hunt->born_ticks ||
           is_among(hunt->spared, hunt->n_spared, p->pid);
}

static bool has_parent_in_job(const struct launch_hunt *hunt, const struct census *c,
                              const struct process *p)
{
    if (p->parent == hunt->ancestor) return hunt->ancestor != 0;
    struct process key = { .pid = p->parent };
    struct process *parent = bsearch(&key, c->all, c->n, sizeof *c->all, by_pid);
    return parent != NULL && parent->is_ours;
}

static void mark_offspring(const struct launch_hunt *hunt, struct census *c)
{
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t i = 0; i < c->n; i++) {
            struct process *p = &c->all[i];
            if (p->is_ours || is_excluded(hunt, p) || !has_parent_in_job(hunt, c, p)) continue;
            p->is_ours = has_changed = true;
        }
    }
}

static void mark_roots(const struct launch_hunt *hunt, struct census *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct process *p = &c->all[i];
        if (p->is_ours || is_excluded(hunt, p)) continue;
        p->is_ours =
            (p->session == hunt->session && is_among(hunt->groups, hunt->n_groups, p->group)) ||
            (!p->is_dead && carries_job_id(p->pid, hunt->job_id));
    }
}

int launch_hunt(const struct launch_hunt *hunt, int signal)
{
    struct census c;
    if (!take_census(&c)) return -1;
    mark_offspring(hunt, &c); /* first, because it is cheap and leaves fewer environments to read */
    mark_roots(hunt, &c);
    mark_offspring(hunt, &c);
    int n_found = 0;
    for (size_t i = 0; i < c.n; i++) {
        if (!c.all[i].is_ours || c.all[i].is_dead) continue;
        n_found++;
        if (signal) kill(c.all[i].pid, signal);
    }
    gmi_free(c.all);
    return n_found;
}

/* The kernel's own list, of the thread that has the children; -1 where it is not built in. */
static int read_children_list(pid_t *pids, size_t max_pids)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *list = fopen(path, "re");
    if (list == NULL) return -1;
    size_t n = 0;
    while (n < max_pids && fscanf(list, "%d", &pids[n]) == 1) n++;
    fclose(list);
    return (int)n;
}

size_t launch_list_children(pid_t *pids, size_t max_pids)
{
    int n_listed = read_children_list(pids, max_pids);
    if (n_listed >= 0) return (size_t)n_listed;
    struct census c;
    if (!take_census(&c)) return 0;
    size_t n = 0;
    for (size_t i = 0; i < c.n && n < max_pids; i++) {
        if (c.all[i].parent == getpid()) pids[n++] = c.all[i].pid;
    }
    gmi_free(c.all);
    return n;
}

static bool read_process_of(pid_t pid, struct process *p)
{
    char pid_text[16];
    snprintf(pid_text, sizeof pid_text, "%d", (int)pid);
    return read_process(pid_text, p);
}

bool launch_is_exiting(pid_t pid)
{
    struct process p;
    return read_process_of(pid, &p) && (p.is_exiting || p.is_dead);
}

unsigned long long launch_birth_ticks(void)
{
    struct process p;
    return read_process_of(getpid(), &p) ? p.born_ticks : 0;
}
