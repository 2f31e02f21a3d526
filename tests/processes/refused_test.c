/* refused_test.c - a machine that refuses one rank what it needs: sockets, connections, memory, threads. Either the rank does
 * without, or every rank that waits for it ends in bounded time with an error that names it. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/ranks.h"
#include "tests/support/refuse.h"
#include "tests/support/test.h"

enum { N = 5, VICTIM = 1, CONNECT_MS = 2500, BOUND_MS = 8000, COUNT = 40000 };

enum phase { CREATING, NEW_LINKS, MESSAGES, SPLITTING, MIDDLE_LEAVES, N_PHASES };
static const char *const phase_names[] = { "creating", "new links", "messages", "splitting", "the middle leaves" };

struct refusal {
    const char *name;
    int         calls[3], n_calls, sys_errno;
};

static const struct refusal refusals[] = {
    { "accept", { SYS_accept4, SYS_accept }, 2, EMFILE },
    { "socket", { SYS_socket }, 1, EMFILE },
    { "connect", { SYS_connect }, 1, EPERM },
    { "poll", { SYS_poll, SYS_ppoll }, 2, ENOMEM },
    { "memfd_create", { SYS_memfd_create }, 1, EPERM },
    { "eventfd", { SYS_eventfd2 }, 1, EMFILE },
    { "mmap", { SYS_mmap }, 1, ENOMEM },
    { "memory", { 0 }, 0, ENOMEM }, /* by a limit on the address space */
    { "threads", { SYS_clone, SYS_clone3 }, 2, EAGAIN },
    { "getsockopt", { SYS_getsockopt, SYS_setsockopt }, 2, ENOMEM },
};

struct plan {
    const struct refusal *refusal;
    enum phase            phase;
};

static bool refuse_memory(void)
{
    unsigned long pages = 0;
    FILE         *file = fopen("/proc/self/statm", "r");
    bool          is_read = file != NULL && fscanf(file, "%lu", &pages) == 1;
    if (file != NULL) fclose(file);
    rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE);
    return is_read && setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, bytes }) == 0;
}

static bool refuse(const struct refusal *r) { return r->n_calls == 0 ? refuse_memory() : refuse_calls(r->calls, r->n_calls, r->sys_errno); }

static void refuse_if_victim(struct rank_self *self, enum phase phase)
{
    const struct plan *p = self->user;
    rank_meet(self, (int)phase, N);
    if (p->phase != phase || self->rank != VICTIM) return;
    if (!refuse(p->refusal)) rank_say(self, "no filter here");
}

/* Large enough for memory of its own, and over links that nobody has yet. */
static gm_status exchange(gm_comm *comm)
{
    static float data[COUNT], all[N * COUNT];
    gm_status    status = gm_all_reduce(comm, data, data, COUNT, GM_F32, GM_SUM);
    return status == GM_OK ? gm_all_to_all(comm, all, all, 1000, GM_F32) : status;
}

static gm_status send_around(struct rank_self *self, int distance)
{
    static float out[COUNT], in[COUNT];
    return gm_sendrecv(self->comm, out, COUNT, (self->rank + distance) % N, 1, in, COUNT, (self->rank + N - distance) % N, 1, GM_F32);
}

static gm_status act(struct rank_self *self)
{
    const struct plan *p = self->user;
    gm_comm           *part = NULL;
    gm_status          status = GM_OK;
    if (p->phase == NEW_LINKS) return exchange(self->comm);
    if (p->phase == MESSAGES) {
        for (int distance = 1; distance < 3 && status == GM_OK; distance++) status = send_around(self, distance);
        return status;
    }
    if (p->phase == SPLITTING) {
        status = gm_comm_split(self->comm, self->rank == 0, 0, &part);
        if (status == GM_OK && part != NULL) status = exchange(part);
        if (part != NULL) gm_comm_destroy(part);
    }
    return status;
}

/* Rank 0, through which all others tell each other what happens, is done. */
static gm_status let_the_middle_leave(struct rank_self *self, gm_comm *part)
{
    gm_status status = GM_OK;
    if (self->rank == 0) return GM_OK;
    int64_t until_ns = gmi_deadline_after_ms(2500);
    for (int32_t goes_on = 1; status == GM_OK && goes_on;) {
        goes_on = !gmi_deadline_passed(until_ns);
        status = gm_broadcast(part, &goes_on, 1, GM_I32, N - 2); /* they end together */
    }
    return status;
}

static void live(struct rank_self *self)
{
    const struct plan *p = self->user;
    gm_comm           *part = NULL;
    refuse_if_victim(self, CREATING);
    int64_t   begin_ns = gmi_now_ns();
    gm_status status = gm_comm_create(&self->comm, &self->options, &self->record->error);
    if (status == GM_OK) {
        if (p->phase == MIDDLE_LEAVES) status = gm_comm_split(self->comm, self->rank == 0, 0, &part);
        for (enum phase k = NEW_LINKS; k < N_PHASES && p->phase != CREATING; k++) {
            if (k == p->phase) refuse_if_victim(self, k);
        }
        begin_ns = gmi_now_ns();
        if (status == GM_OK) status = p->phase == MIDDLE_LEAVES ? let_the_middle_leave(self, part) : act(self);
        if (status != GM_OK) self->record->error = *gm_comm_error(part != NULL ? part : self->comm);
        if (part != NULL) gm_comm_destroy(part);
    }
    self->record->status = status;
    self->record->at_ns = gmi_now_ns() - begin_ns;
    rank_say(self, "%s: %s", gm_status_name(status), status == GM_OK ? "" : self->record->error.text);
    if (self->comm != NULL) gm_comm_destroy(self->comm);
}

static void check(struct ranks *r, const struct plan *p, const char *transport)
{
    char victim[] = { 'r', 'a', 'n', 'k', ' ', '0' + VICTIM, '\0' }, missing[] = { '(', 's', ')', ' ', '0' + VICTIM, '\0' };
    for (int k = 0; k < N; k++) {
        const struct rank_record *rec = &ranks_shared(r)->records[k];
        if (rec->status == GM_OK) continue;
        bool is_named = rec->error.culprit == VICTIM || k == VICTIM || strstr(rec->error.text, victim) || strstr(rec->error.text, missing);
        bool is_bounded = rec->at_ns < BOUND_MS * GMI_NS_PER_MS * ranks_slowness();
        if (is_named && is_bounded) continue;
        fail_msg("%s refused while %s, %s: rank %d after %lld ms: %s\n%s", p->refusal->name, phase_names[p->phase], transport, k,
                 (long long)(rec->at_ns / GMI_NS_PER_MS), rec->error.text, ranks_said(r, VICTIM));
    }
}

static void run(void **state, const struct refusal *refusal, enum phase phase, const char *transport)
{
    struct plan      p = { refusal, phase };
    print_message("# %s refused, %s, %s\n", refusal->name, phase_names[phase], transport);
    struct ranks_job job = { .n_ranks = N, .body = live, .user = &p, .transport = transport, .algorithm = "direct",
                             .connect_timeout_ms = CONNECT_MS * ranks_slowness(), .stall_limit_ms = 300000 };
    struct ranks    *r = ranks_start(state, &job);
    for (int k = 0; k < N; k++) ranks_accept_any_end(r, k);
    ranks_finish(r);
    check(r, &p, transport);
    ranks_teardown(state);
}

/* In the short form only what once waited for ever. */
static bool is_chosen(const struct refusal *r, enum phase phase)
{
    if (test_is_long()) return true;
    if (strcmp(r->name, "accept") == 0) return phase == NEW_LINKS || phase == MIDDLE_LEAVES;
    return strcmp(r->name, "socket") == 0 ? phase == NEW_LINKS : strcmp(r->name, "memory") == 0 && phase == MESSAGES;
}

static void run_phase(void **state, enum phase phase)
{
    if (ranks_slowness() > 1) skip(); /* sanitizers need what is refused */
    for (size_t i = 0; i < TEST_COUNT(refusals); i++) {
        if (!is_chosen(&refusals[i], phase)) continue;
        run(state, &refusals[i], phase, "tcp");
        if (test_is_long()) run(state, &refusals[i], phase, "auto");
    }
}

static void while_a_communicator_is_made(void **state) { run_phase(state, CREATING); }
static void where_links_are_needed_that_are_not_there(void **state) { run_phase(state, NEW_LINKS); }
static void where_the_first_message_is_sent(void **state) { run_phase(state, MESSAGES); }
static void where_a_communicator_is_split(void **state) { run_phase(state, SPLITTING); }
static void where_the_control_connections_move(void **state) { run_phase(state, MIDDLE_LEAVES); }

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(while_a_communicator_is_made), TEST(where_links_are_needed_that_are_not_there), TEST(where_the_first_message_is_sent),
        TEST(where_a_communicator_is_split), TEST(where_the_control_connections_move),
    };
    return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
