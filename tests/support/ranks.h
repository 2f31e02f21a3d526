/* ranks.h - several processes that run one function, for tests over real sockets.
 *
 *     test process                          rank 0 .. n-1, forked from it
 *       serves the store, as a launcher       body(self): creates a communicator, calls collectives,
 *       does; collects what ranks say         checks what it gets; a failed check ends the process with
 *       and how they end                      status 1 and a sentence
 *
 * Every wait has a limit, and no rank outlives its test: it is killed by ranks_teardown, or by the kernel
 * when the test process dies. The test process stays single-threaded (it serves the store while it waits),
 * so that forking is safe under the thread sanitizer too. Nothing here knows what a test is about. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "gradmesh.h"

enum { RANKS_MAX = 8, RANKS_MARKS = 32, RANKS_NUMBERS = 64, RANKS_TEXT_BYTES = 16384 };

/* What one rank hands to the test. */
struct rank_record {
    gm_status     status;
    gm_error      error;
    int64_t       at_ns; /* of the monotonic clock, which all processes share */
    uint64_t      numbers[RANKS_NUMBERS];
};

/* Memory that the test and all its ranks see; zero at the start. */
struct ranks_shared {
    atomic_int         marks[RANKS_MARKS];
    _Atomic int64_t    times_ns[RANKS_MARKS];
    struct rank_record records[RANKS_MAX];
};

/* A rank as its own process sees it. */
struct rank_self {
    int                  rank, world_size;
    gm_comm_options      options; /* complete for gm_comm_create */
    gm_comm             *comm;    /* by rank_create */
    struct ranks_shared *shared;
    struct rank_record  *record; /* its own, in `shared` */
    const void          *user;
    int                  report_fd;
};

struct ranks_job {
    int         n_ranks;
    void      (*body)(struct rank_self *self);
    const void *user;
    const char *host;            /* where they meet; NULL: "127.0.0.1" */
    bool        is_hand_started; /* rank 0 serves the store at a fixed port; else the test does */
    int         port;            /* that one; 0: one that is free */
    const char *job_id, *algorithm;
    const char *secret;          /* of at least 16 characters, in a file for all; NULL: none, or any if encrypted */
    bool        is_encrypted;    /* or GRADMESH_ENCRYPT is 1 */
    bool        is_plain;        /* whatever that says: for tests of what encryption would hide */
    const char *transport;       /* NULL: as GRADMESH_TRANSPORT says, else "tcp" */
    int         connect_timeout_ms, stall_limit_ms; /* 0: 10 s; 0: 60 s */
    int         limit_ms;                           /* of everything; 0: 30 s. Longer with sanitizers. */
};

struct ranks;

/* ---- for the test ------------------------------------------------------------------------------- */

/* Starts the job. `state` is cmocka's: the test needs ranks_teardown. */
struct ranks *ranks_start(void **state, const struct ranks_job *job);

/* Serves the store until the mark has this value at least; fails the test at the limit. */
void ranks_await(struct ranks *r, int mark, int at_least);
void ranks_serve(struct ranks *r, int for_ms);

void  ranks_signal(struct ranks *r, int rank, int signal_number);
pid_t ranks_pid(const struct ranks *r, int rank);

/* This rank will end so: by a signal, or with an exit status. Else 0 is expected. */
void ranks_expect_signal(struct ranks *r, int rank, int signal_number);
void ranks_accept_any_end(struct ranks *r, int rank);
void ranks_expect_exit(struct ranks *r, int rank, int status);

/* Waits until all have ended, as expected; else fails the test and shows what they said. */
void ranks_finish(struct ranks *r);

bool ranks_has_ended(const struct ranks *r, int rank);
int  ranks_wait_status(const struct ranks *r, int rank); /* of one that has ended */
bool ranks_are_over(const struct ranks *r); /* all have ended, and all that they said is here */

/* ranks_start and ranks_finish. */
struct ranks *ranks_run(void **state, const struct ranks_job *job);

struct ranks_shared *ranks_shared(struct ranks *r);
int                  ranks_port(const struct ranks *r);
int                  ranks_seen(const struct ranks *r); /* how many have come to the store so far */
const char          *ranks_said(const struct ranks *r, int rank); /* its log and its last words */
const char          *ranks_store_said(const struct ranks *r);     /* the log of the store */

/* Kills what is left and frees the job; a cmocka teardown. */
int ranks_teardown(void **state);

/* ---- for the ranks ------------------------------------------------------------------------------ */

/* gm_comm_create with self->options, which must succeed. */
void rank_create(struct rank_self *self);
void rank_destroy(struct rank_self *self);

/* Into self->record: status, error record of the communicator, time. */
void rank_record(struct rank_self *self, gm_status status);

/* Counts this rank at a mark and waits (bounded) until `n` have come, or only counts it. */
void rank_meet(struct rank_self *self, int mark, int n);
void rank_mark(struct rank_self *self, int mark);
void rank_await(struct rank_self *self, int mark, int at_least);

void rank_say(struct rank_self *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void rank_fail(struct rank_self *self, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define rank_check(self, condition)                                                                \
    do {                                                                                           \
        if (!(condition)) rank_fail(self, __FILE__, __LINE__, "not so: %s", #condition);           \
    } while (0)

/* The call returns this status; else the communicator's own sentence is shown. */
#define rank_expect(self, expected, call)                                                          \
    do {                                                                                           \
        gm_status got_ = (call);                                                                   \
        if (got_ != (expected)) {                                                                  \
            rank_fail(self, __FILE__, __LINE__, "%s returned %s, not %s: %s", #call,               \
                      gm_status_name(got_), gm_status_name(expected),                              \
                      (self)->comm ? gm_comm_error((self)->comm)->text : "no communicator");       \
        }                                                                                          \
    } while (0)
#define rank_ok(self, call) rank_expect(self, GM_OK, call)

/* How many descriptors and threads this process has. */
int ranks_open_descriptors(void);

/* From now on this process can open n_more descriptors and not one more, whatever its caller left open:
 * holes below its highest descriptor are filled, and stay so. Returns the limit before. */
struct rlimit ranks_leave_room_for(int n_more);
int ranks_threads(void);

/* 1, or how much slower everything may be under a sanitizer, or as TEST_SLOWNESS says. */
int ranks_slowness(void);
bool ranks_are_sanitized(void); /* built with a sanitizer, which makes signals and system calls its own */

#endif
