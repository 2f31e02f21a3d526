#include "cli/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/process.h"
#include "net/local.h"
#include "net/poller.h"
#include "net/socket.h"

enum { MAX_ASKED = 2048, MAX_RANKS = 65536 };

/* One rank's socket. */
struct asked {
    struct cli_job_socket socket;
    int                   fd;
    bool                  is_others, is_answered;
    struct gmi_buffer     said;
};

/* What others have written goes to a terminal. */
static void make_printable(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') *c = '?';
    }
}

/* ---- finding ----------------------------------------------------------------------------------- */

/* "gradmesh-job-PID-RANK-GROUP-JOB" */
static bool take_apart(struct cli_job_socket *s)
{
    unsigned group;
    int      at = 0;
    if (sscanf(s->name, "gradmesh-job-%ld-%d-%8x-%n", &s->pid, &s->rank, &group, &at) < 3 || at == 0) return false;
    s->job_id = s->name + at;
    return s->pid > 0 && s->pid <= INT32_MAX && s->rank >= 0 && s->rank < MAX_RANKS;
}

/* Listening sockets have the flag SO_ACCEPTCON: "NUM: REFS PROTO FLAGS TYPE STATE INODE @NAME". */
bool cli_job_socket_read(struct cli_job_socket *s, const char *line)
{
    unsigned    flags;
    const char *name = strstr(line, "@gradmesh-job-");
    if (name == NULL || sscanf(line, "%*s %*s %*s %x", &flags) != 1 || !(flags & 0x10000)) return false;
    int length = snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(name + 1, "\n"), name + 1);
    return length < (int)sizeof s->name && take_apart(s);
}

static int find_sockets(struct asked *all, const char *id)
{
    char  line[512];
    int   n = 0;
    FILE *file = fopen("/proc/net/unix", "re");
    if (file == NULL) return -1;
    while (n < MAX_ASKED && fgets(line, sizeof line, file) != NULL) {
        struct asked *a = &all[n];
        *a = (struct asked){ .fd = -1 };
        if (cli_job_socket_read(&a->socket, line) && (id == NULL || strcmp(a->socket.job_id, id) == 0)) n++;
    }
    fclose(file);
    return n;
}

/* ---- asking ------------------------------------------------------------------------------------ */

/* True: there is more to come. */
static bool hear(struct asked *a)
{
    for (;;) {
        char         bytes[4096];
        struct iovec part = { bytes, sizeof bytes };
        size_t       moved;
        int          sys_errno;
        gm_status    status = gmi_socket_recv_some(a->fd, &part, 1, &moved, &sys_errno);
        if (status == GM_AGAIN) return true;
        if (status != GM_OK) break;
        gmi_buffer_append(&a->said, bytes, moved);
    }
    gmi_socket_close(&a->fd);
    a->is_answered = a->said.used_bytes > 0;
    gmi_buffer_append(&a->said, "", 1);
    return false;
}

static void ask(struct asked *all, int n, int within_ms, int *n_others)
{
    int64_t           deadline_ns = gmi_deadline_after_ms(within_ms);
    struct gmi_poller poller;
    int               n_open = 0, sys_errno;
    gmi_poller_init(&poller);
    for (int i = 0; i < n; i++) {
        if (gmi_local_connect_as(&all[i].fd, all[i].socket.name, &sys_errno) != GM_OK) continue;
        if (gmi_local_is_same_user(all[i].fd)) {
            n_open++;
        } else {
            gmi_socket_close(&all[i].fd);
            all[i].is_others = true;
            ++*n_others;
        }
    }
    while (n_open > 0 && !gmi_deadline_passed(deadline_ns)) {
        gmi_poller_clear(&poller);
        for (int i = 0; i < n; i++) {
            if (all[i].fd >= 0) gmi_poller_add(&poller, all[i].fd, GMI_READABLE);
        }
        gmi_poller_wait(&poller, deadline_ns);
        for (int i = 0; i < n; i++) {
            if (all[i].fd >= 0 && !hear(&all[i])) n_open--;
        }
    }
    for (int i = 0; i < n; i++) gmi_socket_close(&all[i].fd);
    gmi_poller_fini(&poller);
}

/* ---- putting together -------------------------------------------------------------------------- */

static struct cli_job *job_of(struct cli_jobs *jobs, const char *id, const char *group, int n_ranks)
{
    for (int i = 0; i < jobs->n_jobs; i++) {
        struct cli_job *job = &jobs->jobs[i];
        if (strcmp(job->id, id) == 0 && strcmp(job->group, group) == 0 && job->n_ranks == n_ranks) return job;
    }
    if (jobs->n_jobs == CLI_JOBS_MAX) return NULL;
    struct cli_job *job = &jobs->jobs[jobs->n_jobs];
    *job = (struct cli_job){ .n_ranks = n_ranks, .straggler = -1, .links = { .busiest = -1 } };
    snprintf(job->id, sizeof job->id, "%s", id);
    snprintf(job->group, sizeof job->group, "%s", group);
    job->ranks = gmi_alloc((size_t)n_ranks, sizeof *job->ranks);
    if (job->ranks == NULL) return NULL;
    for (int k = 0; k < n_ranks; k++) job->ranks[k] = (struct cli_job_rank){ .peer = -1, .for_ms = -1, .silent_ms = -1, .waiting_share = -1 };
    jobs->n_jobs++;
    return job;
}

static enum cli_rank_state state_of(int doing, bool has_left)
{
    if (has_left) return CLI_RANK_LEFT;
    return doing == 2 ? CLI_RANK_WAITING : doing == 1 ? CLI_RANK_IN_CALL : CLI_RANK_USER_CODE;
}

/* "rank 2 pid 17 doing 2 entered 5 ...", as the rank `self` says it. Returns whom the next lines are about. */
static struct cli_job_rank *take_rank(struct cli_job *job, const char *line, int self)
{
    int                 rank, doing, has_left;
    unsigned long long  entered, done;
    struct cli_job_rank r = { .is_here = false, .waiting_share = -1 };
    if (sscanf(line, "rank %d pid %ld doing %d entered %llu done %llu for_ms %lld peer %d silent_ms %lld left %d address %79s", &rank,
               &r.pid, &doing, &entered, &done, &r.for_ms, &r.peer, &r.silent_ms, &has_left, r.address) != 10 ||
        rank < 0 || rank >= job->n_ranks) {
        return NULL;
    }
    struct cli_job_rank *into = &job->ranks[rank];
    if (into->is_own_word) return NULL;
    make_printable(r.address);
    r.is_own_word = rank == self;
    r.is_here = into->is_here || r.is_own_word;
    r.state = state_of(doing, has_left);
    r.entered_seq = entered;
    r.done_seq = done;
    r.has_spent = into->has_spent;
    r.now_ns = into->now_ns;
    r.waiting_ns = into->waiting_ns;
    r.n_calls = into->n_calls;
    *into = r;
    return into;
}

static void copy_after(const char *line, const char *word, char *into, size_t into_bytes)
{
    size_t n = strlen(word);
    if (strncmp(line, word, n) == 0 && line[n] == ' ') {
        snprintf(into, into_bytes, "%s", line + n + 1);
        make_printable(into);
    }
}

static void take_spent(struct cli_job *job, const char *line, int self)
{
    long long          now_ns, waiting_ns;
    unsigned long long n_calls;
    if (self < 0 || self >= job->n_ranks ||
        sscanf(line, "spent now_ns %lld calls %llu waiting_ns %lld", &now_ns, &n_calls, &waiting_ns) != 3 ||
        now_ns < 0 || waiting_ns < 0) {
        return;
    }
    struct cli_job_rank *own = &job->ranks[self];
    own->has_spent = true;
    own->now_ns = now_ns;
    own->n_calls = n_calls;
    own->waiting_ns = waiting_ns;
}

void cli_jobs_take(struct cli_jobs *jobs, char *answer)
{
    char                 id[40] = "", group[40] = "";
    int                  self = -1, n_ranks = 0, middle, is_ready = 0;
    struct cli_job      *job = NULL;
    struct cli_job_rank *rank = NULL;
    for (char *rest = answer, *line; (line = strsep(&rest, "\n")) != NULL;) {
        copy_after(line, "job", id, sizeof id);
        copy_after(line, "group", group, sizeof group);
        if (job == NULL && sscanf(line, "self %d of %d middle %d ready %d", &self, &n_ranks, &middle, &is_ready) == 4 &&
            n_ranks > 0 && n_ranks <= MAX_RANKS) {
            job = job_of(jobs, id, group, n_ranks);
            if (job == NULL) return;
            job->is_ready |= is_ready;
        }
        if (job == NULL) continue;
        copy_after(line, "failure", job->failure, sizeof job->failure);
        copy_after(line, "missing", job->missing, sizeof job->missing);
        if (strncmp(line, "rank ", 5) == 0) rank = take_rank(job, line, self);
        take_spent(job, line, self);
        cli_links_take(&job->links, line, self);
        if (rank == NULL) continue;
        copy_after(line, "call", rank->call, sizeof rank->call);
        copy_after(line, "says", rank->says, sizeof rank->says);
    }
}

/* One that is there and says nothing: of which job, others tell; a job of which nobody answers has one line each. */
void cli_jobs_take_silence(struct cli_jobs *jobs, const struct cli_job_socket *a)
{
    struct gmi_process_facts facts;
    struct cli_job          *job = NULL;
    char                     id[40];
    snprintf(id, sizeof id, "%s", a->job_id);
    make_printable(id);
    for (int i = 0; i < jobs->n_jobs && job == NULL; i++) {
        struct cli_job *each = &jobs->jobs[i];
        if (strcmp(each->id, id) == 0 && a->rank < each->n_ranks) job = each;
    }
    if (job == NULL) job = job_of(jobs, id, "?", a->rank + 1);
    if (job == NULL) return;
    struct cli_job_rank *r = &job->ranks[a->rank];
    r->state = CLI_RANK_NO_ANSWER;
    r->is_here = true;
    r->pid = a->pid;
    r->process_state = gmi_process_read((uint32_t)a->pid, &facts) ? facts.state : GMI_PROCESS_GONE;
    r->peer = -1;
    r->says[0] = '\0';
}

/* ---- who holds up the others --------------------------------------------------------------------- */

static int end_of_chain(const struct cli_job *job, int from)
{
    int at = from;
    for (int steps = 0; steps <= job->n_ranks; steps++) {
        const struct cli_job_rank *r = &job->ranks[at];
        if (r->state != CLI_RANK_WAITING || r->peer < 0 || r->peer >= job->n_ranks) return at;
        at = r->peer;
    }
    return -1; /* a circle */
}

static void find_straggler(struct cli_job *job)
{
    long long longest_ms = -1;
    for (int k = 0; k < job->n_ranks; k++) {
        const struct cli_job_rank *r = &job->ranks[k];
        if (r->state != CLI_RANK_WAITING || r->for_ms <= longest_ms) continue;
        int last = end_of_chain(job, k);
        if (last < 0) continue;
        longest_ms = r->for_ms;
        job->straggler = last;
    }
    for (int k = 0; k < job->n_ranks && job->straggler < 0; k++) {
        if (job->ranks[k].state == CLI_RANK_NO_ANSWER) job->straggler = k;
    }
}

/* ---- over some time ------------------------------------------------------------------------------ */

/* Waiting less than the others by this share of the time makes a straggler. */
#define STRAGGLER_SHARE 0.05

static void judge_waiting(struct cli_job *job, double n_calls, double elapsed_ms)
{
    double least = 2, sum = 0;
    int    who = -1;
    for (int k = 0; k < job->n_ranks; k++) {
        double share = job->ranks[k].waiting_share;
        if (share < 0) return; /* somebody is not of this host, or silent: who hardly waits may be that one */
        sum += share;
        if (share < least) {
            least = share;
            who = k;
        }
    }
    if (job->n_ranks < 2 || n_calls <= 0) return;
    job->is_moving = true;
    double others = (sum - least) / (job->n_ranks - 1);
    bool   stands_out = others - least > STRAGGLER_SHARE && least < others / 2;
    job->straggler = stands_out ? who : -1;
    job->straggler_share = stands_out ? others - least : 0;
    job->straggler_ms = job->straggler_share * elapsed_ms / n_calls;
}

static void compare_job(struct cli_job *job, const struct cli_job *before)
{
    double n_calls = 0, elapsed_ms = 0;
    for (int k = 0; k < job->n_ranks; k++) {
        struct cli_job_rank       *now = &job->ranks[k];
        const struct cli_job_rank *then = &before->ranks[k];
        if (!now->has_spent || !then->has_spent || now->pid != then->pid || now->now_ns <= then->now_ns) continue;
        double elapsed_ns = (double)(now->now_ns - then->now_ns), share = (double)(now->waiting_ns - then->waiting_ns) / elapsed_ns;
        now->waiting_share = share < 0 ? 0 : share > 1 ? 1 : share;
        n_calls = (double)(now->n_calls - then->n_calls);
        elapsed_ms = elapsed_ns / 1e6;
        cli_links_compare(&job->links, &before->links, k, elapsed_ns);
    }
    cli_links_find_busiest(&job->links);
    judge_waiting(job, n_calls, elapsed_ms);
}

void cli_jobs_compare(struct cli_jobs *jobs, const struct cli_jobs *before)
{
    for (int i = 0; i < jobs->n_jobs; i++) {
        struct cli_job *job = &jobs->jobs[i];
        for (int k = 0; k < before->n_jobs && job->failure[0] == '\0'; k++) {
            const struct cli_job *then = &before->jobs[k];
            if (strcmp(job->id, then->id) == 0 && strcmp(job->group, then->group) == 0 && job->n_ranks == then->n_ranks)
                compare_job(job, then);
        }
    }
}

void cli_jobs_judge(struct cli_jobs *jobs)
{
    for (int i = 0; i < jobs->n_jobs; i++) find_straggler(&jobs->jobs[i]);
}

bool cli_jobs_ask(struct cli_jobs *jobs, const char *id, int within_ms)
{
    *jobs = (struct cli_jobs){ 0 };
    struct asked *all = gmi_alloc(MAX_ASKED, sizeof *all);
    int           n = all != NULL ? find_sockets(all, id) : -1;
    if (n > 0) ask(all, n, within_ms, &jobs->n_others);
    for (int i = 0; i < n; i++) {
        if (all[i].is_answered) cli_jobs_take(jobs, (char *)all[i].said.bytes);
    }
    for (int i = 0; i < n; i++) {
        if (!all[i].is_answered && !all[i].is_others) cli_jobs_take_silence(jobs, &all[i].socket);
        gmi_buffer_fini(&all[i].said);
    }
    cli_jobs_judge(jobs);
    gmi_free(all);
    return n >= 0;
}

void cli_jobs_fini(struct cli_jobs *jobs)
{
    for (int i = 0; i < jobs->n_jobs; i++) {
        gmi_free(jobs->jobs[i].ranks);
        cli_links_fini(&jobs->jobs[i].links);
    }
    jobs->n_jobs = 0;
}

const char *cli_rank_state_name(enum cli_rank_state state)
{
    static const char *const names[] = { "unknown", "user code", "in a call", "waiting", "left", "no answer" };
    return names[state];
}
