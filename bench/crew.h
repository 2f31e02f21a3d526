/* crew.h - a few processes that measure something together: started, let go at the same moment,
 * and seen to their end.
 *
 * Processes and not threads, since ranks are processes: threads would share page tables and
 * descriptors, and show other costs. What they find out goes into memory that all share. */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

enum { BENCH_MAX_CREW = 16, BENCH_STALL_MS = 10000 };

struct bench_crew {
    _Atomic int n_ready;
    int         n_members;
    double      elapsed_s[BENCH_MAX_CREW]; /* filled by the members */
    int         sys_errno[BENCH_MAX_CREW];

    /* For members that talk through memory; each on a cache line of its own. */
    _Alignas(128) _Atomic int64_t there;
    _Alignas(128) _Atomic int64_t back;
};

/* What a member does. Returns 0, or the errno of what went wrong. */
typedef int (*bench_member_fn)(struct bench_crew *crew, int member, void *job);

/* Forks n_members processes of this one that run `work` and end; `job` is as it was when they
 * were forked. Blocks until all have ended; they bound their own waits by BENCH_STALL_MS, and
 * one that fails takes the others with it. On GM_OK *crew holds what the members wrote,
 * elapsed_s above all. GM_ERR_SYSTEM: *error says what. */
gm_status bench_crew_run(struct bench_crew *crew, int n_members, bench_member_fn work, void *job,
                         gm_error *error);

/* By a member: returns when all have come here. False: they do not come. */
bool bench_crew_meet(struct bench_crew *crew);

/* The slowest member's. */
double bench_crew_elapsed_s(const struct bench_crew *crew);

/* Memory that the members will share; NULL: none left. */
void *bench_shared_alloc(size_t size_bytes);
void  bench_shared_free(void *memory, size_t size_bytes);

double bench_now_s(void);

#endif
