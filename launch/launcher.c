/* The life of a job:
 *
 *     running --status 3--> settling --+                      (who failed first is not known yet)
 *        |                             |
 *        +-- failure, signal, time-out, closed output --> ending --> (TERM, KILL after a grace)
 *        |                                                   |
 *        +------ every worker has ended ---------------------+
 *                                                            v
 *                                 sweeping   what the workers left behind is ended
 *                                                            v
 *                                 draining   the rest of their output is passed on
 *                                                            v
 *                                 reporting  the last block is said  --> over
 *
 * 1. `state` changes in enter() alone, and only to the right.
 * 2. Why the job ends (`result->end`) is decided once; what comes later is a consequence.
 * 3. After sweeping nothing of the job is alive, so whatever was written lies in the pipes.
 * 4. Output is passed on in every state; the last words of the launcher come after all of it. */
#include "launch/launcher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "launch/deaths.h"
#include "launch/guardian.h"
#include "launch/hunt.h"
#include "launch/relay.h"
#include "launch/secret.h"
#include "launch/signals.h"
#include "launch/stopped.h"
#include "launch/worker.h"
#include "net/poller.h"
#include "rendezvous/store_server.h"

enum {
    SETTLE_MS = 60,          /* a victim may be reaped before the culprit, which is waited for */
    LAST_WORDS_MS = 700,     /* in which connected ranks find out, and say, who failed */
    FAILURE_GRACE_MS = 2000, /* between TERM and KILL, when a rank has failed */
    SIGNAL_GRACE_MS = 3000,  /* between the user's signal and KILL */
    SWEEP_GRACE_MS = 1000,   /* between TERM and KILL, for what a finished worker left behind */
    SWEEP_TICK_MS = 10,
    SWEEP_LIMIT_MS = 10000, /* one that cannot die (it hangs in the kernel) is left */
    DRAIN_LIMIT_MS = 2000,  /* for a reader that does not read, once the job was told to stop */
    TICK_MS = 1000,         /* the store wants a step that often */
    STOPPED_MS = 900,       /* a worker that is stopped may be why others fail */
    MAX_SPARED = 64,
    FD_RESERVE = 32,    /* descriptors beside those that grow with the workers */
    FDS_PER_WORKER = 4, /* two pipes, a pidfd, a connection to the store */
};

enum job_state { RUNNING, SETTLING, ENDING, SWEEPING, DRAINING, REPORTING, OVER };

struct job {
    const struct launch_options *options;
    struct launch_result *result;
    enum job_state state;
    int64_t start_ns, timeout_ns, noticed_ns, settle_ns, term_ns, kill_ns, give_up_ns, sweep_ns, look_ns;
    int n_alive, n_sweeps;
    bool was_killed;      /* KILL was sent: nobody is asked politely any more */
    bool gives_up_output; /* the reader is not waited for any longer */
    int sent_signal;      /* the last that went to the workers; 0: none */

    struct launch_signals signals;
    struct launch_guardian guardian;
    struct launch_deaths deaths;
    struct launch_relay *relay;
    struct gmi_poller poller;
    struct gmi_log log;
    struct launch_secret secret;
    struct gmi_store_server *store;
    int master_fd, master_port; /* a port kept free for the program's own use */
    int *cores;                 /* of the mask, for LAUNCH_BIND_CORES */
    int n_cores;
    struct rlimit descriptors; /* as it was before */
    bool is_in_charge;
    int was_subreaper;
    unsigned long long born_ticks;
    pid_t spared[MAX_SPARED]; /* children from before the job, and the guardian */
    size_t n_spared;
};

static void say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct job *job, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    launch_relay_say(job->relay, "gradmesh: %s", text);
}

static void on_store_log(void *user, gm_log_level level, const char *line)
{
    (void)level;
    say(user, "%s", line);
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *launch_describe_end(const struct launch_rank *rank, char *text, size_t text_bytes)
{
    char name[32];
    if (rank->was_stopped) {
        snprintf(text, text_bytes,
                 "was stopped (SIGSTOP or job control) and did not go on, so the others gave up");
    } else if (!rank->has_ended) {
        snprintf(text, text_bytes, "has not ended");
    } else if (rank->signal == SIGKILL && !rank->was_ended_by_us) {
        snprintf(text, text_bytes,
                 "was killed by SIGKILL (sent by somebody, or by the kernel for lack of memory)");
    } else if (rank->signal != 0) {
        snprintf(text, text_bytes, "was killed by %s (%s)",
                 launch_signal_name(rank->signal, name, sizeof name), strsignal(rank->signal));
    } else {
        snprintf(text, text_bytes, "exited with status %d", rank->exit_status);
    }
    return text;
}

/* "rank 3", or "ranks 0, 1, 4-7": those whose wanted[] is set. Returns how many. */
static int list_ranks(const bool *wanted, int n_ranks, char *text, size_t text_bytes)
{
    size_t used = 0;
    int n = 0;
    text[0] = '\0';
    for (int r = 0; r < n_ranks; r++) {
        if (!wanted[r]) continue;
        int last = r;
        while (last + 1 < n_ranks && wanted[last + 1]) last++;
        if (last == r + 1) last = r; /* "1, 2" reads better than "1-2" */
        char piece[32];
        if (last > r) snprintf(piece, sizeof piece, "%d-%d", r, last);
        else snprintf(piece, sizeof piece, "%d", r);
        if (used + strlen(piece) + 8 < text_bytes) {
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", n ? ", " : "", piece);
        }
        n += last - r + 1;
        r = last;
    }
    return n;
}

/* ---- preparation ----------------------------------------------------------------------------- */

static gm_status make_job_id(char *job_id, gm_error *error)
{
    unsigned char bytes[12];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        return gmi_error_set_errno(error, errno, "no random job id");
    }
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(job_id + 2 * i, 3, "%02x", bytes[i]);
    return GM_OK;
}

/* A closed standard descriptor would be the next pipe's number. */
static void open_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            int null_fd = open("/dev/null", O_RDWR);
            (void)null_fd; /* the lowest free number: fd */
        }
    }
}

static gm_status raise_descriptor_limit(struct job *job, gm_error *error)
{
    rlim_t needed = (rlim_t)FDS_PER_WORKER * (rlim_t)job->options->n_workers + FD_RESERVE;
    if (getrlimit(RLIMIT_NOFILE, &job->descriptors) != 0) {
        return gmi_error_set_errno(error, errno, "cannot read the limit on open descriptors");
    }
    struct rlimit raised = job->descriptors;
    if (raised.rlim_max < needed) {
        return gmi_error_set(error, GM_ERR_SYSTEM,
                             "%d workers need %llu open descriptors in the launcher, but the limit "
                             "is %llu (ulimit -n)",
                             job->options->n_workers, (unsigned long long)needed,
                             (unsigned long long)raised.rlim_max);
    }
    if (raised.rlim_cur < needed) {
        raised.rlim_cur = needed;
        setrlimit(RLIMIT_NOFILE, &raised);
    }
    return GM_OK;
}

/* A second port, for programs that serve a store of their own at MASTER_PORT. Bound, so that nobody
 * is given it by chance; not listening and with SO_REUSEADDR, so that a worker that asks for the
 * same can bind and listen there. */
static gm_status reserve_master_port(struct job *job, gm_error *error)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n_bytes = sizeof address;
    int one = 1;
    job->master_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job->master_fd < 0 ||
        setsockopt(job->master_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(job->master_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(job->master_fd, (struct sockaddr *)&address, &n_bytes) != 0) {
        return gmi_error_set_errno(error, errno, "no port on 127.0.0.1 for MASTER_PORT");
    }
    job->master_port = ntohs(address.sin_port);
    return GM_OK;
}

static gm_status list_cores(struct job *job, gm_error *error)
{
    enum { MOST_CORES = 8192 };
    cpu_set_t *set = CPU_ALLOC(MOST_CORES);
    size_t n_bytes = CPU_ALLOC_SIZE(MOST_CORES);
    job->cores = gmi_alloc(MOST_CORES, sizeof *job->cores);
    gm_status status = GM_OK;
    if (set == NULL || job->cores == NULL)
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for the list of cores");
    else if (sched_getaffinity(0, n_bytes, set) != 0)
        status = gmi_error_set_errno(error, errno, "cannot read the mask of cores");
    else
        for (int core = 0; core < MOST_CORES; core++) {
            if (CPU_ISSET_S((size_t)core, n_bytes, set)) job->cores[job->n_cores++] = core;
        }
    if (set != NULL) CPU_FREE(set);
    return status;
}

/* A mask that was set further out (taskset, a batch system, a container) is kept, and easily overlooked. */
static void say_if_few_cores(struct job *job)
{
    long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    int n = job->options->n_workers;
    if (n < 2 || job->n_cores == 0 || job->n_cores >= n || job->n_cores >= n_online) return;
    if (job->n_cores == 1) {
        say(job, "warning: all %d workers share core %d: this process may use no other of the %ld (its affinity mask, as "
            "set by taskset, a batch system or a container)", n, job->cores[0], n_online);
    } else {
        say(job, "warning: %d workers share %d cores: this process may use no others of the %ld (its affinity mask)", n, job->n_cores,
            n_online);
    }
}

static gm_status create_relay(struct job *job, gm_error *error)
{
    const struct launch_options *o = job->options;
    const struct launch_relay_options relay = {
        .n_workers = o->n_workers,
        .fds = { STDOUT_FILENO, STDERR_FILENO },
        .has_prefix = { o->prefix_stdout, o->prefix_stderr },
        .has_colour = { o->colour_stdout, o->colour_stderr },
        .stdout_to_stderr = o->stdout_to_stderr,
    };
    job->relay = launch_relay_create(&relay);
    if (job->relay == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the output of %d workers",
                             o->n_workers);
    return GM_OK;
}

/* Everything that a job needs before its first worker. */
static gm_status prepare(struct job *job, gm_error *error)
{
    const struct launch_options *o = job->options;
    gm_status status = make_job_id(job->result->job_id, error);
    if (status == GM_OK) status = raise_descriptor_limit(job, error);
    if (status == GM_OK) status = create_relay(job, error);
    if (status == GM_OK) status = list_cores(job, error);
    if (status == GM_OK && !launch_deaths_init(&job->deaths, (size_t)o->n_workers)) {
        status = gmi_error_set_errno(error, ENOMEM, "cannot watch %d workers", o->n_workers);
    }
    if (status == GM_OK && !launch_signals_catch(&job->signals)) {
        status = gmi_error_set_errno(error, errno, "cannot catch signals");
    }
    if (status != GM_OK) return status;
    job->log = (struct gmi_log){ .write = on_store_log,
                                 .user = job,
                                 .level = o->is_verbose ? GM_LOG_INFO : GM_LOG_WARN };
    status = launch_secret_init(&job->secret, error);
    if (status == GM_OK)
        status = gmi_store_server_create(&job->store, "127.0.0.1", o->port, job->result->job_id,
                                         &job->secret.secret, &job->log, error);
    if (status == GM_OK) status = reserve_master_port(job, error);
    return status;
}

/* From here on orphans of the job come to us, and somebody watches over us. */
static gm_status take_charge(struct job *job, gm_error *error)
{
    job->is_in_charge = true;
    job->born_ticks = launch_birth_ticks();
    prctl(PR_GET_CHILD_SUBREAPER, &job->was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    job->n_spared = launch_list_children(job->spared, MAX_SPARED - 1);
    launch_signals_hold(&job->signals);
    bool is_guarded = launch_guardian_start(&job->guardian, job->result->job_id);
    int reason = errno;
    launch_signals_resume(&job->signals);
    if (!is_guarded) return gmi_error_set_errno(error, reason, "cannot start the guardian process");
    job->spared[job->n_spared++] = job->guardian.pid;
    return GM_OK;
}

static gm_status start_workers(struct job *job, gm_error *error)
{
    const struct launch_options *o = job->options;
    const struct launch_spawn spawn = {
        .n_workers = o->n_workers,
        .argv = o->argv,
        .extra_env = o->extra_env,
        .job_id = job->result->job_id,
        .secret_path = job->secret.path,
        .store_port = gmi_store_server_port(job->store),
        .master_port = job->master_port,
        .signals = &job->signals,
        .descriptors = job->descriptors,
    };
    for (int rank = 0; rank < o->n_workers; rank++) {
        bool is_bound = o->bind != LAUNCH_BIND_NONE && job->n_cores > 0;
        int core = is_bound ? job->cores[rank % job->n_cores] : -1;
        struct launch_worker worker;
        launch_signals_hold(&job->signals);
        gm_status status =
            launch_worker_start(&spawn, rank, core, &worker, &job->result->exit_status, error);
        launch_signals_resume(&job->signals);
        if (status != GM_OK) return status;
        job->result->ranks[rank] = (struct launch_rank){ .pid = worker.pid, .was_started = true };
        job->n_alive++;
        launch_guardian_add(&job->guardian, worker.pid);
        launch_deaths_watch(&job->deaths, worker.pid);
        launch_relay_attach(job->relay, rank, LAUNCH_STDOUT, worker.stdout_fd);
        launch_relay_attach(job->relay, rank, LAUNCH_STDERR, worker.stderr_fd);
        if (!o->hides_pids) launch_relay_say(job->relay, "rank %d pid %d", rank, (int)worker.pid);
        if (o->is_verbose && core >= 0) say(job, "rank %d is bound to core %d", rank, core);
    }
    return GM_OK;
}

/* ---- who failed first ------------------------------------------------------------------------ */

enum blame { INNOCENT, REPORTS_ANOTHER, FAILED, WAS_KILLED };

/* A signal that we did not send cannot be a consequence of a lost connection; an exit status other
 * than 3 seldom says "another rank failed"; status 3 says just that. */
static enum blame blame_of(const struct launch_rank *rank)
{
    if (!rank->has_ended || rank->was_ended_by_us) return INNOCENT;
    if (rank->signal != 0) return WAS_KILLED;
    if (rank->exit_status == 0) return INNOCENT;
    return rank->exit_status == LAUNCH_EXIT_PEER_FAILED ? REPORTS_ANOTHER : FAILED;
}

/* ---- the last block -------------------------------------------------------------------------- */

static void say_last_line(void *user, const char *text, int n_bytes)
{
    enum { MOST_BYTES = 1000 };
    say(user, "  | %.*s", n_bytes < MOST_BYTES ? n_bytes : MOST_BYTES, text);
}

static bool have_same_end(const struct launch_rank *a, const struct launch_rank *b)
{
    return a->has_ended == b->has_ended && a->was_ended_by_us == b->was_ended_by_us &&
           a->signal == b->signal && a->exit_status == b->exit_status;
}

/* "were ended by the launcher (SIGTERM)", for the rank or ranks that share this end. */
static const char *describe_ends(const struct launch_rank *rank, int n_ranks, char *text,
                                 size_t text_bytes)
{
    char name[32], how[160];
    const char *was = n_ranks > 1 ? "were" : "was";
    launch_describe_end(rank, how, sizeof how);
    if (rank->was_ended_by_us) {
        snprintf(text, text_bytes, "%s ended by the launcher (%s)", was,
                 launch_signal_name(rank->signal, name, sizeof name));
    } else if (rank->signal != 0) {
        snprintf(text, text_bytes, "%s%s", was, how + strlen("was"));
    } else {
        snprintf(text, text_bytes, "%s", how);
    }
    return text;
}

/* One line for each way in which ranks other than the first ended. */
static void say_the_others(struct job *job, int first)
{
    const struct launch_result *result = job->result;
    bool is_told[LAUNCH_MAX_WORKERS] = { false };
    for (int r = 0; r < result->n_ranks; r++) {
        if (r == first || is_told[r]) continue;
        bool is_alike[LAUNCH_MAX_WORKERS] = { false };
        for (int s = r; s < result->n_ranks; s++) {
            if (s != first && have_same_end(&result->ranks[r], &result->ranks[s]))
                is_alike[s] = is_told[s] = true;
        }
        char who[512], how[200];
        int n = list_ranks(is_alike, result->n_ranks, who, sizeof who);
        bool is_unharmed =
            blame_of(&result->ranks[r]) == INNOCENT && !result->ranks[r].was_ended_by_us;
        const char *cause = is_unharmed ? "" : "as a consequence, ";
        say(job, "  %s%s %s %s", cause, n > 1 ? "ranks" : "rank", who,
            describe_ends(&result->ranks[r], n, how, sizeof how));
    }
}

static void say_failure(struct job *job)
{
    int first = job->result->first_failed;
    const struct launch_rank *rank = &job->result->ranks[first];
    char how[160];
    say(job, "rank %d failed first: it %s, %.3f s after the start", first,
        launch_describe_end(rank, how, sizeof how),
        (double)rank->elapsed_ns / (double)GMI_NS_PER_S);
    if (blame_of(rank) == REPORTS_ANOTHER && !rank->was_stopped) {
        say(job, "  (status 3 means that another rank failed, but no other has)");
    }
    if (launch_relay_last_lines(job->relay, first, say_last_line, job) == 0) {
        say(job, "  it wrote nothing to standard error");
    }
    say_the_others(job, first);
}

static void say_signal(struct job *job)
{
    char name[32];
    launch_signal_name(job->result->signal, name, sizeof name);
    say(job,
        job->was_killed ? "stopped by %s; what did not end by itself was killed" : "stopped by %s",
        name);
}

static void say_timeout(struct job *job)
{
    char who[512];
    bool was_running[LAUNCH_MAX_WORKERS] = { false };
    for (int r = 0; r < job->result->n_ranks; r++) {
        was_running[r] =
            job->result->ranks[r].elapsed_ns >= job->options->timeout_ms * GMI_NS_PER_MS;
    }
    int n = list_ranks(was_running, job->result->n_ranks, who, sizeof who);
    say(job, "the time limit of %g s has passed; the job was ended while %s %s still ran",
        (double)job->options->timeout_ms / 1000.0, n > 1 ? "ranks" : "rank", who);
}

static void say_output(struct job *job)
{
    int reason = launch_relay_broken(job->relay, LAUNCH_STDOUT);
    bool is_stdout = reason != 0;
    if (!is_stdout) reason = launch_relay_broken(job->relay, LAUNCH_STDERR);
    if (reason == EPIPE)
        say(job, "the reader of standard %s has gone, so the job was ended",
            is_stdout ? "output" : "error");
    else
        say(job, "cannot write standard %s, so the job was ended: %s",
            is_stdout ? "output" : "error", strerror(reason));
}

/* Ranks that never met train alone, and nothing else shows it. */
static void say_who_joined(struct job *job)
{
    int n_joined = job->result->n_ranks_joined, n = job->options->n_workers;
    if (job->options->has_small_worlds) return;
    if (n_joined > 0 && n_joined < n) {
        say(job, "warning: only %d of %d ranks joined the job; the others ran by themselves",
            n_joined, n);
    } else if (n_joined == 0 && n > 1) {
        say(job, "warning: no rank joined the job; %d programs ran side by side, each by itself (do they use gradmesh?)", n);
    }
}

static void say_last_words(struct job *job)
{
    switch (job->result->end) {
    case LAUNCH_END_DONE:
        say_who_joined(job);
        break;
    case LAUNCH_END_FAILURE:
        say_failure(job);
        break;
    case LAUNCH_END_SIGNAL:
        say_signal(job);
        break;
    case LAUNCH_END_TIMEOUT:
        say_timeout(job);
        break;
    case LAUNCH_END_OUTPUT:
        say_output(job);
        break;
    case LAUNCH_END_START:
        break;
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void signal_workers(struct job *job, int signal)
{
    for (int r = 0; r < job->result->n_ranks; r++) {
        const struct launch_rank *rank = &job->result->ranks[r];
        if (!rank->was_started || rank->has_ended) continue;
        kill(-rank->pid, signal);
        kill(-rank->pid, SIGCONT); /* a stopped one would never hear of it */
    }
    job->sent_signal = signal;
    job->was_killed = job->was_killed || signal == SIGKILL;
}

static void enter(struct job *job, enum job_state state)
{
    GMI_CHECK(state > job->state);
    job->state = state;
    switch (state) {
    case SETTLING: {
        /* Who says by status 3 that another rank failed is believed; that one may be slow to die.
         */
        bool is_report =
            blame_of(&job->result->ranks[job->result->first_failed]) == REPORTS_ANOTHER;
        job->noticed_ns = gmi_now_ns();
        job->settle_ns = gmi_deadline_after_ms(is_report ? LAST_WORDS_MS : SETTLE_MS);
        break;
    }
    case SWEEPING:
        job->kill_ns = gmi_deadline_after_ms(SWEEP_GRACE_MS);
        job->give_up_ns = gmi_deadline_after_ms(SWEEP_LIMIT_MS);
        job->sweep_ns = gmi_now_ns();
        break;
    case DRAINING:
        launch_relay_finish(job->relay);
        job->give_up_ns = gmi_deadline_after_ms(DRAIN_LIMIT_MS);
        break;
    case REPORTING:
        job->result->n_ranks_joined = gmi_store_server_ranks_seen(job->store);
        say_last_words(job);
        break;
    default:
        break;
    }
}

/* Why the job ends is settled here; how it is ended too: `signal` first, KILL after the grace. */
static void end_job(struct job *job, enum launch_end why, int signal, int64_t grace_ms)
{
    job->result->end = why;
    enter(job, ENDING);
    job->term_ns = GMI_NEVER;
    job->kill_ns = gmi_deadline_after_ms(grace_ms);
    signal_workers(job, signal);
}

/* A rank that was stopped is the cause of what others report, though it has not ended. */
static int blame_who_is_stopped(struct job *job, int rank)
{
    struct launch_rank *ranks = job->result->ranks;
    enum blame blame = blame_of(&ranks[rank]);
    if (blame != REPORTS_ANOTHER && blame != FAILED) return rank;
    launch_stopped_look(ranks, job->result->n_ranks);
    int stopped =
        launch_stopped_find(ranks, job->result->n_ranks, blame == FAILED ? STOPPED_MS : 0);
    if (stopped < 0) return rank;
    ranks[stopped].was_stopped = true;
    ranks[stopped].elapsed_ns = ranks[stopped].stopped_ns - job->start_ns;
    return stopped;
}

/* Ranks that have met will notice the failure, name it and exit by themselves; a TERM at once would
 * take the word from them. The others, which may not even know gradmesh, are ended right away. */
static void end_for_failure(struct job *job, int rank)
{
    bool have_met = gmi_store_server_ranks_seen(job->store) >= job->result->n_ranks;
    rank = blame_who_is_stopped(job, rank);
    job->result->first_failed = rank;
    if (!have_met) {
        end_job(job, LAUNCH_END_FAILURE, SIGTERM, FAILURE_GRACE_MS);
        return;
    }
    job->result->end = LAUNCH_END_FAILURE;
    job->term_ns =
        (job->state == SETTLING ? job->noticed_ns : gmi_now_ns()) + LAST_WORDS_MS * GMI_NS_PER_MS;
    job->kill_ns = job->term_ns + FAILURE_GRACE_MS * GMI_NS_PER_MS;
    enter(job, ENDING);
}

static void end_politely(struct job *job)
{
    job->term_ns = GMI_NEVER;
    signal_workers(job, SIGTERM);
}

static void end_now(struct job *job)
{
    job->kill_ns = gmi_now_ns();
    if (job->state == ENDING) signal_workers(job, SIGKILL);
    job->was_killed = true;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static int find_pid(const struct job *job, pid_t pid)
{
    for (int r = 0; r < job->result->n_ranks; r++) {
        const struct launch_rank *rank = &job->result->ranks[r];
        if (rank->was_started && !rank->has_ended && rank->pid == pid) return r;
    }
    return -1;
}

static void record_death(struct job *job, int r, int wait_status)
{
    struct launch_rank *rank = &job->result->ranks[r];
    rank->has_ended = true;
    if (!rank->was_stopped) rank->elapsed_ns = gmi_now_ns() - job->start_ns;
    rank->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    rank->exit_status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
    rank->was_ended_by_us = rank->signal != 0 && (rank->signal == job->sent_signal ||
                                                  (rank->signal == SIGKILL && job->was_killed));
    job->n_alive--;
    if (kill(-rank->pid, 0) != 0 && errno == ESRCH)
        launch_guardian_forget(&job->guardian, rank->pid);
    if (job->options->is_verbose) {
        char how[160];
        say(job, "rank %d %s after %.3f s", r, launch_describe_end(rank, how, sizeof how),
            (double)rank->elapsed_ns / (double)GMI_NS_PER_S);
    }
}

/* Reaps everybody who is dead and, while the job runs, decides whether one of them ends it. */
static void reap(struct job *job)
{
    pid_t pid;
    int wait_status;
    while (launch_deaths_next(&job->deaths, &pid, &wait_status)) {
        if (pid == job->guardian.pid) job->guardian.pid = 0;
        int r = find_pid(job, pid);
        if (r < 0) continue; /* an orphan that we had adopted */
        record_death(job, r, wait_status);
        if (job->state > SETTLING) continue;
        /* Deaths come in their order. One that weighs more than the suspect takes its place. */
        const struct launch_rank *ranks = job->result->ranks;
        int suspect = job->result->first_failed;
        if (blame_of(&ranks[r]) > (suspect < 0 ? INNOCENT : blame_of(&ranks[suspect])))
            job->result->first_failed = r;
    }
    int suspect = job->result->first_failed;
    if (job->state > SETTLING || suspect < 0) return;
    /* Somebody else may be the cause and only be slower to die: one that reports another is
     * believed, and one that has begun to die is waited for. Not for long. */
    bool may_be_another = blame_of(&job->result->ranks[suspect]) == REPORTS_ANOTHER ||
                          launch_deaths_has_dying(&job->deaths);
    if (job->n_alive == 0 || !may_be_another) end_for_failure(job, suspect);
    else if (job->state == RUNNING) enter(job, SETTLING);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void stop_like_the_user_wants(struct job *job)
{
    /* Ctrl-Z: the workers stand in other process groups, so the terminal did not tell them. */
    for (int r = 0; r < job->result->n_ranks; r++) {
        if (!job->result->ranks[r].has_ended) kill(-job->result->ranks[r].pid, SIGTSTP);
    }
    raise(SIGSTOP);
    for (int r = 0; r < job->result->n_ranks; r++) {
        if (!job->result->ranks[r].has_ended) kill(-job->result->ranks[r].pid, SIGCONT);
    }
}

static void take_signals(struct job *job)
{
    int signal;
    while ((signal = launch_signals_next(&job->signals)) != 0) {
        if (signal == SIGCHLD) continue; /* reap() looks anyway */
        if (signal == SIGTSTP) {
            stop_like_the_user_wants(job);
        } else if (job->state == RUNNING) {
            job->result->signal = signal;
            end_job(job, LAUNCH_END_SIGNAL, signal, SIGNAL_GRACE_MS);
        } else {
            /* The second one, or a job that is ending anyway: the user wants it gone. */
            if (job->state == SETTLING) end_for_failure(job, job->result->first_failed);
            end_now(job);
            if (job->state >= DRAINING) job->gives_up_output = true;
        }
    }
}

static void check_output(struct job *job)
{
    bool is_broken = launch_relay_broken(job->relay, LAUNCH_STDOUT) ||
                     launch_relay_broken(job->relay, LAUNCH_STDERR);
    if (is_broken && job->state == RUNNING)
        end_job(job, LAUNCH_END_OUTPUT, SIGTERM, FAILURE_GRACE_MS);
}

/* Whoever descends from a worker has a child of ours among its ancestors, or is one, since orphans
 * are handed to us. So no child (but those that are spared) means that nobody is left. */
static bool has_offspring(const struct job *job)
{
    pid_t children[MAX_SPARED + 1];
    size_t n = launch_list_children(children, MAX_SPARED + 1);
    for (size_t i = 0; i < n; i++) {
        bool is_spared = false;
        for (size_t j = 0; j < job->n_spared; j++)
            is_spared = is_spared || job->spared[j] == children[i];
        if (!is_spared) return true;
    }
    return false;
}

static void sweep(struct job *job)
{
    bool is_deadly = job->was_killed || gmi_deadline_passed(job->kill_ns);
    const struct launch_hunt hunt = { .job_id = job->result->job_id,
                                      .ancestor = getpid(),
                                      .spared = job->spared,
                                      .n_spared = job->n_spared,
                                      .born_ticks = job->born_ticks };
    bool is_polite = job->n_sweeps++ == 0;
    int n_left = has_offspring(job) ? launch_hunt(&hunt, is_deadly   ? SIGKILL
                                                         : is_polite ? SIGTERM
                                                                     : 0)
                                    : 0;
    job->sweep_ns = gmi_deadline_after_ms(SWEEP_TICK_MS);
    if (n_left > 0 && gmi_deadline_passed(job->give_up_ns)) {
        say(job, "%d processes of the job cannot be ended; the kernel does not let go of them",
            n_left);
        n_left = 0;
    }
    if (n_left <= 0) enter(job, DRAINING);
}

/* A slow reader is waited for as long as it takes, unless somebody wants the job to stop. */
static bool is_output_done(const struct job *job)
{
    bool was_told_to_stop =
        job->result->end == LAUNCH_END_SIGNAL || job->result->end == LAUNCH_END_TIMEOUT;
    return launch_relay_is_idle(job->relay) || job->gives_up_output ||
           (was_told_to_stop && gmi_deadline_passed(job->give_up_ns));
}

/* Lets time and the deaths of workers take their effect. */
static void advance(struct job *job)
{
    if (job->state == RUNNING && gmi_deadline_passed(job->timeout_ns)) {
        end_job(job, LAUNCH_END_TIMEOUT, SIGTERM, FAILURE_GRACE_MS);
    }
    if (job->state == SETTLING && gmi_deadline_passed(job->settle_ns))
        end_for_failure(job, job->result->first_failed);
    if (job->state == ENDING && !job->was_killed && gmi_deadline_passed(job->term_ns))
        end_politely(job);
    if (job->state == ENDING && !job->was_killed && gmi_deadline_passed(job->kill_ns))
        signal_workers(job, SIGKILL);
    if (job->state < SWEEPING && job->n_alive == 0) enter(job, SWEEPING);
    if (job->state == SWEEPING && gmi_deadline_passed(job->sweep_ns)) sweep(job);
    if (job->state == DRAINING && is_output_done(job)) enter(job, REPORTING);
    if (job->state == REPORTING && is_output_done(job)) enter(job, OVER);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_deadline(const struct job *job)
{
    int64_t at = gmi_deadline_after_ms(TICK_MS);
    switch (job->state) {
    case RUNNING:
        return earlier(at, job->timeout_ns);
    case SETTLING:
        return earlier(at, job->settle_ns);
    case ENDING:
        return job->was_killed ? at : earlier(at, earlier(job->term_ns, job->kill_ns));
    case SWEEPING:
        return job->sweep_ns;
    case DRAINING:
    case REPORTING:
        return gmi_deadline_passed(job->give_up_ns) ? at : earlier(at, job->give_up_ns);
    case OVER:
        break;
    }
    return at;
}

static void look_for_stopped(struct job *job)
{
    if (job->state != RUNNING || !gmi_deadline_passed(job->look_ns)) return;
    launch_stopped_look(job->result->ranks, job->result->n_ranks);
    job->look_ns = gmi_deadline_after_ms(TICK_MS);
}

static void see_to_its_end(struct job *job)
{
    while (job->state != OVER) {
        gmi_poller_clear(&job->poller);
        gmi_poller_add(&job->poller, job->signals.pipe_fds[0], GMI_READABLE);
        if (job->deaths.epoll_fd >= 0)
            gmi_poller_add(&job->poller, job->deaths.epoll_fd, GMI_READABLE);
        gmi_store_server_watch(job->store, &job->poller);
        launch_relay_watch(job->relay, &job->poller);
        /* Without memory for the poller nothing can be watched; a short sleep keeps the job in
         * sight. */
        if (gmi_poller_wait(&job->poller, next_deadline(job)) == GM_ERR_NOMEM) usleep(10000);
        look_for_stopped(job);
        take_signals(job);
        reap(job);
        gmi_store_server_step(job->store);
        launch_relay_step(job->relay, &job->poller);
        check_output(job);
        advance(job);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int exit_status_of(const struct job *job)
{
    const struct launch_result *result = job->result;
    switch (result->end) {
    case LAUNCH_END_DONE:
        return 0;
    case LAUNCH_END_FAILURE: {
        const struct launch_rank *rank = &result->ranks[result->first_failed];
        if (rank->was_stopped) return LAUNCH_EXIT_SIGNAL + SIGSTOP;
        return rank->signal ? LAUNCH_EXIT_SIGNAL + rank->signal : rank->exit_status;
    }
    case LAUNCH_END_SIGNAL:
        return LAUNCH_EXIT_SIGNAL + result->signal;
    case LAUNCH_END_TIMEOUT:
        return LAUNCH_EXIT_TIMEOUT;
    case LAUNCH_END_OUTPUT: {
        int reason = launch_relay_broken(job->relay, LAUNCH_STDOUT);
        if (reason == 0) reason = launch_relay_broken(job->relay, LAUNCH_STDERR);
        return reason == EPIPE ? LAUNCH_EXIT_SIGNAL + SIGPIPE : LAUNCH_EXIT_SYSTEM;
    }
    case LAUNCH_END_START:
        break;
    }
    return result->exit_status;
}

static void release(struct job *job)
{
    launch_guardian_dismiss(&job->guardian);
    if (job->is_in_charge) prctl(PR_SET_CHILD_SUBREAPER, job->was_subreaper);
    gmi_store_server_destroy(job->store);
    launch_secret_fini(&job->secret);
    if (job->master_fd >= 0) close(job->master_fd);
    launch_signals_release(&job->signals);
    launch_deaths_fini(&job->deaths);
    launch_relay_destroy(job->relay);
    gmi_poller_fini(&job->poller);
    gmi_free(job->cores);
    setrlimit(RLIMIT_NOFILE, &job->descriptors);
}

static void say_where(struct job *job)
{
    say_if_few_cores(job);
    if (!job->options->is_verbose) return;
    say(job, "job %s, store at 127.0.0.1:%d, MASTER_PORT %d, guardian pid %d", job->result->job_id,
        gmi_store_server_port(job->store), job->master_port, (int)job->guardian.pid);
}

/* The start failed half-way: those that run already are killed, and their output shown. */
static void give_up(struct job *job)
{
    job->result->end = LAUNCH_END_START;
    enter(job, ENDING);
    signal_workers(job, SIGKILL);
    see_to_its_end(job);
}

gm_status launch_run(const struct launch_options *options, struct launch_result *result,
                     gm_error *error)
{
    GMI_CHECK(options->n_workers >= 1 && options->n_workers <= LAUNCH_MAX_WORKERS);
    gm_error own_error;
    if (error == NULL) error = &own_error;
    gmi_error_clear(error);
    *result = (struct launch_result){ .exit_status = LAUNCH_EXIT_SYSTEM,
                                      .end = LAUNCH_END_START,
                                      .first_failed = -1 };
    open_standard_descriptors();
    struct job job = { .options = options,
                       .result = result,
                       .master_fd = -1,
                       .secret = { .fd = -1 },
                       .start_ns = gmi_now_ns(),
                       .guardian = { .pipe_fd = -1 },
                       .deaths = { .epoll_fd = -1 },
                       .timeout_ns = GMI_NEVER };
    getrlimit(RLIMIT_NOFILE, &job.descriptors);
    gmi_poller_init(&job.poller);
    result->ranks = gmi_alloc((size_t)options->n_workers, sizeof *result->ranks);
    if (result->ranks == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %d workers", options->n_workers);
    result->n_ranks = options->n_workers;

    gm_status status = prepare(&job, error);
    if (status == GM_OK) status = take_charge(&job, error);
    if (status == GM_OK) {
        say_where(&job);
        job.start_ns = gmi_now_ns();
        job.timeout_ns = gmi_deadline_after_ms(options->timeout_ms);
        status = start_workers(&job, error);
        if (status == GM_OK) {
            result->end = LAUNCH_END_DONE;
            see_to_its_end(&job);
        } else {
            give_up(&job);
        }
        result->elapsed_ns = gmi_now_ns() - job.start_ns;
        result->exit_status = exit_status_of(&job);
    }
    release(&job);
    return status;
}

void launch_result_fini(struct launch_result *result)
{
    gmi_free(result->ranks);
    result->ranks = NULL;
    result->n_ranks = 0;
}
