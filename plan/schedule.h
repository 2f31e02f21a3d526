/* schedule.h - the ways to an all-reduce by name: which rows of coll/algo.h run one after the other. */
#ifndef PLAN_SCHEDULE_H
#define PLAN_SCHEDULE_H

#include "coll/algo.h"
#include "plan/simulate.h"

enum { PLAN_MAX_STAGES = 3 };

struct plan_schedule {
    const char            *name, *summary;
    const struct gmi_algo *stages[PLAN_MAX_STAGES];
    int                    n_stages; /* 0: there is none of that name */
};

struct plan_schedule plan_schedule_find(const char *name);

/* The same behind a barrier, which the library would choose for these ranks and cores of one host. */
struct plan_schedule plan_schedule_behind_barrier(const struct plan_schedule *schedule, int n_ranks, int n_cores);

/* Elements of a bucket: buckets are as equal as can be. */
size_t plan_bucket_elems(const struct plan_simulation *s, int bucket);
static inline int plan_n_buckets(const struct plan_simulation *s) { return s->n_buckets > 0 ? s->n_buckets : 1; }

/* Of sums of `count_elems` numbers, in place at `memory` (which may be anything for a shape). */
struct gmi_request plan_request(const struct gmi_algo *row, const struct gmi_codec *codec, int rank, size_t count_elems,
                                void *memory);

/* Which ranks share a host. GM_ERR_NOMEM. */
gm_status plan_layout(struct gmi_layout *layout, int n_ranks, int ranks_per_host);

#endif
