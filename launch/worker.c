#include "launch/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "launch/hunt.h"
#include "launch/launcher.h"

extern char **environ;

/* ---- the environment ------------------------------------------------------------------------- */

enum { N_OWN_MAX = 13, OWN_BYTES = 640 };

struct environment {
    char **entries; /* ends with NULL */
    size_t n_entries;
    char own[N_OWN_MAX][OWN_BYTES]; /* the text of our own variables */
};

/* The length of the name in "NAME=VALUE", with the '='. */
static size_t name_bytes(const char *entry)
{
    return strcspn(entry, "=") + 1;
}

/* Adds the entry, in the place of one with the same name. There is room. */
static void set_entry(struct environment *env, char *entry)
{
    size_t n = name_bytes(entry);
    for (size_t i = 0; i < env->n_entries; i++) {
        if (strncmp(env->entries[i], entry, n) != 0) continue;
        env->entries[i] = entry;
        return;
    }
    env->entries[env->n_entries++] = entry;
    env->entries[env->n_entries] = NULL;
}

static void set_own(struct environment *env, int slot, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void set_own(struct environment *env, int slot, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(env->own[slot], OWN_BYTES, format, args);
    va_end(args);
    set_entry(env, env->own[slot]);
}

static void set_own_all(struct environment *env, const struct launch_spawn *spawn, int rank)
{
    const char *outer_id = getenv(LAUNCH_ENV_JOB_ID), *outer_jobs = getenv(LAUNCH_ENV_OUTER_JOBS);
    int slot = 0;
    set_own(env, slot++, "GRADMESH_RANK=%d", rank);
    set_own(env, slot++, "GRADMESH_WORLD_SIZE=%d", spawn->n_workers);
    set_own(env, slot++, "GRADMESH_LOCAL_RANK=%d", rank);
    set_own(env, slot++, "GRADMESH_STORE=127.0.0.1:%d", spawn->store_port);
    set_own(env, slot++, LAUNCH_ENV_JOB_ID "=%s", spawn->job_id);
    if (spawn->secret_path[0]) set_own(env, slot++, "GRADMESH_SECRET_FILE=%s", spawn->secret_path);
    set_own(env, slot++, "RANK=%d", rank);
    set_own(env, slot++, "WORLD_SIZE=%d", spawn->n_workers);
    set_own(env, slot++, "LOCAL_RANK=%d", rank);
    set_own(env, slot++, "LOCAL_WORLD_SIZE=%d", spawn->n_workers);
    set_own(env, slot++, "MASTER_ADDR=127.0.0.1");
    set_own(env, slot++, "MASTER_PORT=%d", spawn->master_port);
    /* A job within a job: the outer launcher must find these workers too. */
    if (outer_id != NULL && outer_id[0]) {
        set_own(env, slot, LAUNCH_ENV_OUTER_JOBS "=%s%s%s", outer_id, outer_jobs ? "," : "",
                outer_jobs ? outer_jobs : "");
    }
}

static struct environment *make_environment(const struct launch_spawn *spawn, int rank)
{
    size_t n_inherited = 0, n_extra = 0;
    while (environ != NULL && environ[n_inherited] != NULL) n_inherited++;
    while (spawn->extra_env != NULL && spawn->extra_env[n_extra] != NULL) n_extra++;
    struct environment *env = gmi_alloc(1, sizeof *env);
    if (env == NULL) return NULL;
    env->entries = gmi_alloc(n_inherited + n_extra + N_OWN_MAX + 1, sizeof *env->entries);
    if (env->entries == NULL) {
        gmi_free(env);
        return NULL;
    }
    for (size_t i = 0; i < n_inherited; i++) env->entries[env->n_entries++] = environ[i];
    set_own_all(env, spawn, rank);
    for (size_t i = 0; i < n_extra; i++) set_entry(env, (char *)(uintptr_t)spawn->extra_env[i]);
    return env;
}

static void free_environment(struct environment *env)
{
    if (env == NULL) return;
    gmi_free(env->entries);
    gmi_free(env);
}

/* ---- the child ------------------------------------------------------------------------------- */

struct pipes {
    int out[2], err[2];
    int news[2]; /* closes by itself when the program runs; carries errno when it cannot */
};

static void close_pipe(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) close(ends[i]);
        ends[i] = -1;
    }
}

static void close_pipes(struct pipes *p)
{
    close_pipe(p->out);
    close_pipe(p->err);
    close_pipe(p->news);
}

static bool open_pipes(struct pipes *p)
{
    *p = (struct pipes){ { -1, -1 }, { -1, -1 }, { -1, -1 } };
    if (pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
        pipe2(p->news, O_CLOEXEC) == 0)
        return true;
    int saved_errno = errno;
    close_pipes(p);
    errno = saved_errno;
    return false;
}

/* Rank 0 reads what the user feeds the job. Nobody reads the terminal: a worker stands in a process
 * group in the background, and would be stopped for trying. */
static void set_standard_input(int rank)
{
    if (rank == 0 && isatty(STDIN_FILENO) == 0) return;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
}

static void bind_to_core(int core)
{
    size_t n_bytes = CPU_ALLOC_SIZE((size_t)core + 1);
    cpu_set_t *set = CPU_ALLOC((size_t)core + 1);
    if (set == NULL) return;
    CPU_ZERO_S(n_bytes, set);
    CPU_SET_S((size_t)core, n_bytes, set);
    sched_setaffinity(0, n_bytes, set);
    CPU_FREE(set);
}

static _Noreturn void become_program(const struct launch_spawn *spawn, int rank, int core,
                                     const struct pipes *p, char **environment, pid_t launcher)
{
    setpgid(0, 0);
    /* Dies with the launcher; if that is gone already, the signal will not come any more. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(LAUNCH_EXIT_SYSTEM);
    launch_signals_restore_in_child(spawn->signals);
    setrlimit(RLIMIT_NOFILE, &spawn->descriptors);
    if (core >= 0) bind_to_core(core);
    set_standard_input(rank);
    dup2(p->out[1], STDOUT_FILENO);
    dup2(p->err[1], STDERR_FILENO);
    execvpe(spawn->argv[0], spawn->argv, environment);
    int reason = errno;
    ssize_t sent = write(p->news[1], &reason, sizeof reason);
    (void)sent;
    _exit(LAUNCH_EXIT_NOT_EXECUTABLE);
}

/* ---- on the launcher's side ------------------------------------------------------------------ */

static gm_status say_why(const char *program, int reason, int *exit_status, gm_error *error)
{
    bool is_path = strchr(program, '/') != NULL;
    *exit_status = LAUNCH_EXIT_NOT_EXECUTABLE;
    if (reason == ENOENT && is_path && access(program, F_OK) == 0) {
        return gmi_error_set(
            error, GM_ERR_SYSTEM,
            "cannot run %s: the interpreter that its first line names does not exist", program);
    }
    if (reason == ENOENT) *exit_status = LAUNCH_EXIT_NOT_FOUND;
    if (reason == ENOENT && !is_path) {
        return gmi_error_set(error, GM_ERR_SYSTEM, "cannot run %s: no such program in PATH",
                             program);
    }
    return gmi_error_set_errno(error, reason, "cannot run %s", program);
}

static int read_news(int fd)
{
    int reason = 0;
    ssize_t got;
    do {
        got = read(fd, &reason, sizeof reason);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof reason ? reason : 0;
}

gm_status launch_worker_start(const struct launch_spawn *spawn, int rank, int core,
                              struct launch_worker *worker, int *exit_status, gm_error *error)
{
    *worker = (struct launch_worker){ .stdout_fd = -1, .stderr_fd = -1 };
    *exit_status = LAUNCH_EXIT_SYSTEM;
    struct pipes pipes;
    struct environment *env = make_environment(spawn, rank);
    if (env == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the environment of rank %d", rank);
    if (!open_pipes(&pipes)) {
        int reason = errno;
        free_environment(env);
        return gmi_error_set_errno(error, reason, "no pipe for the output of rank %d", rank);
    }
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0) become_program(spawn, rank, core, &pipes, env->entries, launcher);
    int fork_errno = errno;
    free_environment(env);
    if (pid < 0) {
        close_pipes(&pipes);
        return gmi_error_set_errno(error, fork_errno, "cannot start rank %d", rank);
    }
    setpgid(pid, pid); /* whoever of the two comes first */
    close(pipes.news[1]);
    pipes.news[1] = -1;
    int reason = read_news(pipes.news[0]);
    if (reason != 0) {
        close_pipes(&pipes);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
        return say_why(spawn->argv[0], reason, exit_status, error);
    }
    *worker =
        (struct launch_worker){ .pid = pid, .stdout_fd = pipes.out[0], .stderr_fd = pipes.err[0] };
    pipes.out[0] = pipes.err[0] = -1;
    close_pipes(&pipes);
    *exit_status = 0;
    return GM_OK;
}
