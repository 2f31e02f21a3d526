#include "tests/support/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/address.h"
#include "rendezvous/store_server.h"

enum { LIMIT_MS = 30000, CONNECT_MS = 10000, STALL_MS = 60000, TURN_MS = 2 };

struct text {
    char   bytes[RANKS_TEXT_BYTES];
    size_t used_bytes;
};

struct member {
    pid_t pid;
    int   report_fd; /* -1: it has ended, or closed it */
    bool  has_ended;
    int   wait_status, expected_wait_status;
    bool  may_end_anyhow;
    struct text said;
};

struct ranks {
    struct ranks_job         job;
    struct ranks_shared     *shared;
    struct gmi_store_server *store; /* NULL: rank 0 serves it */
    struct gmi_log           log;
    struct text              store_said;
    struct gmi_poller        poller;
    struct gmi_secret        secret;
    char                     secret_path[64];
    int                      secret_fd; /* 0: none */
    int                      port;
    int64_t                  deadline_ns;
    struct member            members[RANKS_MAX];
};

bool ranks_are_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(GRADMESH_SLOW_TESTS)
    return true;
#else
    return false;
#endif
}

int ranks_slowness(void)
{
    const char *text = getenv("TEST_SLOWNESS");
    if (text != NULL && atoi(text) > 1) return atoi(text);
    return ranks_are_sanitized() ? 6 : 1;
}

static void append(struct text *t, const char *bytes, size_t n_bytes)
{
    size_t space = sizeof t->bytes - 1 - t->used_bytes;
    if (n_bytes > space) n_bytes = space;
    memcpy(t->bytes + t->used_bytes, bytes, n_bytes);
    t->used_bytes += n_bytes;
    t->bytes[t->used_bytes] = '\0';
}

/* ---- the ranks' side ----------------------------------------------------------------------------- */

static void write_all(int fd, const char *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n = write(fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        bytes += n;
        n_bytes -= (size_t)n;
    }
}

static void say_line(int fd, int rank, const char *format, va_list args)
{
    char line[1200];
    int  used = snprintf(line, sizeof line, "rank %d: ", rank);
    used += vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    if (used > (int)sizeof line - 2) used = (int)sizeof line - 2;
    line[used++] = '\n';
    write_all(fd, line, (size_t)used);
}

void rank_say(struct rank_self *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_line(self->report_fd, self->rank, format, args);
    va_end(args);
}

void rank_fail(struct rank_self *self, const char *file, int line, const char *format, ...)
{
    char what[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    rank_say(self, "%s:%d: %s", file, line, what);
    _exit(1);
}

static void log_line(void *user, gm_log_level level, const char *line)
{
    struct rank_self *self = user;
    static const char *const names[] = { "error", "warn", "info", "debug" };
    rank_say(self, "[%s] %s", names[level], line);
}

void rank_create(struct rank_self *self)
{
    gm_error  error;
    gm_status status = gm_comm_create(&self->comm, &self->options, &error);
    if (status != GM_OK) {
        rank_fail(self, __FILE__, __LINE__, "gm_comm_create: %s: %s", gm_status_name(status), error.text);
    }
}

void rank_destroy(struct rank_self *self)
{
    gm_comm_destroy(self->comm);
    self->comm = NULL;
}

void rank_record(struct rank_self *self, gm_status status)
{
    self->record->at_ns = gmi_now_ns();
    self->record->status = status;
    if (self->comm != NULL) self->record->error = *gm_comm_error(self->comm);
}

static void moment(void)
{
    struct timespec t = { .tv_nsec = 200 * 1000 };
    nanosleep(&t, NULL);
}

void rank_mark(struct rank_self *self, int mark) { atomic_fetch_add(&self->shared->marks[mark], 1); }

void rank_await(struct rank_self *self, int mark, int at_least)
{
    int64_t deadline_ns = gmi_deadline_after_ms(20000 * ranks_slowness());
    while (atomic_load(&self->shared->marks[mark]) < at_least) {
        if (gmi_deadline_passed(deadline_ns)) {
            rank_fail(self, __FILE__, __LINE__, "mark %d is %d and never became %d", mark,
                      atomic_load(&self->shared->marks[mark]), at_least);
        }
        moment();
    }
}

void rank_meet(struct rank_self *self, int mark, int n)
{
    rank_mark(self, mark);
    rank_await(self, mark, n);
}

static _Noreturn void live(struct ranks *r, int rank, int report_fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before that */
    for (int k = 0; k < rank; k++) close(r->members[k].report_fd);
    char store[GMI_ADDRESS_TEXT_BYTES];
    bool is_six = strchr(r->job.host, ':') != NULL;
    snprintf(store, sizeof store, is_six ? "[%s]:%d" : "%s:%d", r->job.host, r->port);
    struct rank_self self = { .rank = rank, .world_size = r->job.n_ranks, .shared = r->shared,
                              .record = &r->shared->records[rank], .user = r->job.user, .report_fd = report_fd };
    gm_comm_options_default(&self.options);
    self.options.rank = rank;
    self.options.world_size = r->job.n_ranks;
    self.options.job_id = r->job.job_id;
    self.options.algorithm = r->job.algorithm;
    self.options.transport = r->job.transport;
    self.options.secret_file = r->job.secret != NULL ? r->secret_path : NULL;
    self.options.encrypt = r->job.is_encrypted;
    self.options.insecure = r->job.secret == NULL; /* tests in networks of their own */
    self.options.connect_timeout_ms = r->job.connect_timeout_ms;
    self.options.stall_limit_ms = r->job.stall_limit_ms;
    self.options.log = log_line;
    self.options.log_user = &self;
    if (r->job.is_hand_started) {
        self.options.master_addr = r->job.host;
        self.options.master_port = r->port;
    } else {
        self.options.store = store;
        gmi_store_server_destroy(r->store); /* our copy of the listener */
        r->store = NULL;
    }
    gmi_poller_fini(&r->poller);
    r->job.body(&self);
    fflush(NULL);
    exit(0); /* not _exit: the leak sanitizer looks then */
}

/* ---- starting ------------------------------------------------------------------------------------ */

static void store_line(void *user, gm_log_level level, const char *line)
{
    (void)level;
    append(user, line, strlen(line));
    append(user, "\n", 1);
}

/* A port that nobody listens on and that no outgoing connection will draw: below the ephemeral range. */
static int choose_port(const char *host)
{
    for (int i = 0; i < 1000; i++) {
        int port = 15000 + (int)(((unsigned)getpid() * 37u + (unsigned)i * 101u + (unsigned)gmi_now_ns() / 1000u) % 15000u);
        struct gmi_address_list list;
        if (gmi_address_resolve(&list, host, port, NULL) != GM_OK) return -1;
        int one = 1, fd = socket(list.addresses[0].storage.ss_family, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        int refused = bind(fd, (struct sockaddr *)&list.addresses[0].storage, list.addresses[0].used_bytes);
        close(fd);
        if (refused == 0) return port;
    }
    return -1;
}

static void fill_defaults(struct ranks_job *job)
{
    if (job->host == NULL) job->host = "127.0.0.1";
    if (job->job_id == NULL) job->job_id = "test";
    if (job->transport == NULL) job->transport = getenv("GRADMESH_TRANSPORT");
    if (job->transport == NULL) job->transport = "tcp";
    const char *encrypts = getenv("GRADMESH_ENCRYPT");
    if (encrypts != NULL && strcmp(encrypts, "1") == 0 && !job->is_plain) job->is_encrypted = true;
    if (job->is_encrypted && job->secret == NULL) job->secret = "what encrypts the jobs of a test";
    if (job->connect_timeout_ms == 0) job->connect_timeout_ms = CONNECT_MS * ranks_slowness();
    if (job->stall_limit_ms == 0) job->stall_limit_ms = STALL_MS * ranks_slowness();
    if (job->limit_ms == 0) job->limit_ms = LIMIT_MS;
    job->limit_ms *= ranks_slowness();
}

/* As a launcher does it. */
static void keep_secret(struct ranks *r)
{
    r->secret.lets_anybody_in = r->job.secret == NULL;
    if (r->job.secret == NULL) return;
    int    fd = memfd_create("secret", MFD_CLOEXEC);
    size_t n = strlen(r->job.secret);
    assert_true(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, r->job.secret, n) == (ssize_t)n);
    snprintf(r->secret_path, sizeof r->secret_path, "/proc/self/fd/%d", fd); /* ranks inherit it, also into a PID namespace */
    assert_int_equal(gmi_secret_load(&r->secret, r->secret_path, NULL), GM_OK);
    r->secret_fd = fd;
}

static void find_a_meeting_point(struct ranks *r)
{
    if (r->job.is_hand_started) {
        r->port = r->job.port != 0 ? r->job.port : choose_port(r->job.host);
        assert_true(r->port > 0);
        return;
    }
    gm_error error = { 0 };
    r->log = (struct gmi_log){ .write = store_line, .user = &r->store_said, .level = GM_LOG_INFO };
    if (gmi_store_server_create(&r->store, r->job.host, 0, r->job.job_id, &r->secret,
                                &r->log, &error) != GM_OK) {
        fail_msg("no store: %s", error.text);
    }
    r->port = gmi_store_server_port(r->store);
}

static void start_rank(struct ranks *r, int rank)
{
    int   ends[2];
    pid_t parent = getpid();
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        live(r, rank, ends[1], parent);
    }
    close(ends[1]);
    r->members[rank].pid = pid;
    r->members[rank].report_fd = ends[0];
}

struct ranks *ranks_start(void **state, const struct ranks_job *job)
{
    assert_true(job->n_ranks >= 1 && job->n_ranks <= RANKS_MAX);
    ranks_teardown(state); /* of an earlier job of the same test */
    struct ranks *r = calloc(1, sizeof *r);
    assert_non_null(r);
    *state = r;
    for (int k = 0; k < RANKS_MAX; k++) r->members[k] = (struct member){ .report_fd = -1 };
    r->job = *job;
    fill_defaults(&r->job);
    gmi_poller_init(&r->poller);
    r->shared = mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->shared != MAP_FAILED);
    keep_secret(r);
    find_a_meeting_point(r);
    fflush(NULL); /* what is buffered would be printed by every rank */
    for (int k = 0; k < job->n_ranks; k++) start_rank(r, k);
    r->deadline_ns = gmi_deadline_after_ms(r->job.limit_ms);
    return r;
}

/* ---- watching ------------------------------------------------------------------------------------ */

static void hear(struct member *m)
{
    char    bytes[2048];
    ssize_t n = read(m->report_fd, bytes, sizeof bytes);
    if (n > 0) {
        append(&m->said, bytes, (size_t)n);
    } else if (n == 0) {
        close(m->report_fd);
        m->report_fd = -1;
    }
}

static void reap(struct member *m)
{
    if (m->has_ended || m->pid <= 0) return;
    m->has_ended = waitpid(m->pid, &m->wait_status, WNOHANG) == m->pid;
}

static void turn(struct ranks *r)
{
    gmi_poller_clear(&r->poller);
    for (int k = 0; k < r->job.n_ranks; k++) {
        if (r->members[k].report_fd >= 0) gmi_poller_add(&r->poller, r->members[k].report_fd, GMI_READABLE);
    }
    if (r->store != NULL) gmi_store_server_watch(r->store, &r->poller);
    gmi_poller_wait(&r->poller, gmi_deadline_after_ms(TURN_MS));
    if (r->store != NULL) gmi_store_server_step(r->store);
    for (int k = 0; k < r->job.n_ranks; k++) {
        struct member *m = &r->members[k];
        if (m->report_fd >= 0 && gmi_poller_ready(&r->poller, m->report_fd)) hear(m);
        reap(m);
    }
}

static void show_all(struct ranks *r)
{
    for (int k = 0; k < r->job.n_ranks; k++) {
        const struct member *m = &r->members[k];
        if (!m->has_ended) {
            fprintf(stderr, "rank %d still runs", k);
        } else if (WIFSIGNALED(m->wait_status)) {
            fprintf(stderr, "rank %d was ended by signal %d", k, WTERMSIG(m->wait_status));
        } else {
            fprintf(stderr, "rank %d ended with status %d", k, WEXITSTATUS(m->wait_status));
        }
        fprintf(stderr, "; it said:\n%s", m->said.used_bytes ? m->said.bytes : "nothing\n");
    }
    fprintf(stderr, "the store said:\n%s\n", r->store_said.used_bytes ? r->store_said.bytes : "nothing");
}

static void check_the_limit(struct ranks *r, const char *what)
{
    if (!gmi_deadline_passed(r->deadline_ns)) return;
    show_all(r);
    fail_msg("%s within %d ms", what, r->job.limit_ms);
}

/* Has a rank ended otherwise than it should? */
static void check_the_ends(struct ranks *r)
{
    for (int k = 0; k < r->job.n_ranks; k++) {
        struct member *m = &r->members[k];
        if (!m->has_ended || m->may_end_anyhow || m->wait_status == m->expected_wait_status) continue;
        while (m->report_fd >= 0) hear(m);
        for (int i = 0; i < 20; i++) turn(r); /* what the others have to say about it */
        show_all(r);
        fail_msg("rank %d did not end as expected", k);
    }
}

void ranks_await(struct ranks *r, int mark, int at_least)
{
    while (atomic_load(&r->shared->marks[mark]) < at_least) {
        turn(r);
        check_the_ends(r);
        check_the_limit(r, "a mark was not reached");
    }
}

void ranks_serve(struct ranks *r, int for_ms)
{
    int64_t until_ns = gmi_now_ns() + for_ms * GMI_NS_PER_MS;
    while (gmi_now_ns() < until_ns) turn(r);
}

void ranks_signal(struct ranks *r, int rank, int signal_number)
{
    if (!r->members[rank].has_ended) kill(r->members[rank].pid, signal_number);
}

pid_t ranks_pid(const struct ranks *r, int rank) { return r->members[rank].pid; }

void ranks_expect_signal(struct ranks *r, int rank, int signal_number)
{
    r->members[rank].expected_wait_status = signal_number;
}

void ranks_accept_any_end(struct ranks *r, int rank) { r->members[rank].may_end_anyhow = true; }

void ranks_expect_exit(struct ranks *r, int rank, int status)
{
    r->members[rank].expected_wait_status = status << 8;
}

int  ranks_wait_status(const struct ranks *r, int rank) { return r->members[rank].wait_status; }
bool ranks_has_ended(const struct ranks *r, int rank) { return r->members[rank].has_ended; }

bool ranks_are_over(const struct ranks *r)
{
    for (int k = 0; k < r->job.n_ranks; k++) {
        if (!r->members[k].has_ended || r->members[k].report_fd >= 0) return false;
    }
    return true;
}

void ranks_finish(struct ranks *r)
{
    while (!ranks_are_over(r)) {
        turn(r);
        check_the_ends(r);
        check_the_limit(r, "the ranks did not end");
    }
    check_the_ends(r);
}

struct ranks *ranks_run(void **state, const struct ranks_job *job)
{
    struct ranks *r = ranks_start(state, job);
    ranks_finish(r);
    return r;
}

struct ranks_shared *ranks_shared(struct ranks *r) { return r->shared; }
int                  ranks_port(const struct ranks *r) { return r->port; }
int                  ranks_seen(const struct ranks *r) { return gmi_store_server_ranks_seen(r->store); }
const char *ranks_said(const struct ranks *r, int rank) { return r->members[rank].said.bytes; }
const char *ranks_store_said(const struct ranks *r) { return r->store_said.bytes; }

int ranks_teardown(void **state)
{
    struct ranks *r = *state;
    if (r == NULL) return 0;
    for (int k = 0; k < r->job.n_ranks; k++) {
        struct member *m = &r->members[k];
        if (m->pid > 0 && !m->has_ended) {
            kill(m->pid, SIGKILL);
            waitpid(m->pid, &m->wait_status, 0);
        }
        if (m->report_fd >= 0) close(m->report_fd);
    }
    gmi_store_server_destroy(r->store);
    if (r->secret_fd > 0) close(r->secret_fd);
    gmi_poller_fini(&r->poller);
    if (r->shared != MAP_FAILED && r->shared != NULL) munmap(r->shared, sizeof *r->shared);
    free(r);
    *state = NULL;
    return 0;
}

/* ---- counting ------------------------------------------------------------------------------------ */

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int  n = 0;
    if (dir == NULL) return -1;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

int ranks_open_descriptors(void) { return entries("/proc/self/fd") - 1; /* the folder's own */ }
int ranks_threads(void) { return entries("/proc/self/task"); }

static int highest_descriptor(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  highest = 2;
    if (dir == NULL) return highest;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        int fd = atoi(e->d_name);
        if (fd > highest && fd != dirfd(dir)) highest = fd;
    }
    closedir(dir);
    return highest;
}

struct rlimit ranks_leave_room_for(int n_more)
{
    struct rlimit before = { 0, 0 };
    int           highest = highest_descriptor(), filler = open("/dev/null", O_RDONLY | O_CLOEXEC);
    while (filler >= 0 && filler < highest) filler = fcntl(filler, F_DUPFD_CLOEXEC, 0);
    if (filler > highest) close(filler);
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit now = before;
    now.rlim_cur = (rlim_t)(highest + 1 + n_more);
    setrlimit(RLIMIT_NOFILE, &now);
    return before;
}
