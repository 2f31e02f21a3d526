/* split.c - communicators made from others: who belongs to which, and how they come about.
 *
 *     1. all ranks of the parent tell each other their colour and key (an all-gather of it);
 *     2. each makes the communicator of its colour and enters it in the root's list, under a number
 *        that
 *        follows from the parent's, the number of that all-gather and the colour, so it is the same
 *        on all members;
 *     3. a barrier of the parent: from here on every member may be called for links, which are made
 *        when needed.
 *
 * A rank that cannot follow fails the parent, so that nobody waits for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "comm/comm.h"
#include "trace/trace.h"

struct member {
    int64_t colour, key;
    int     rank; /* in the parent */
};

static int by_key_then_rank(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

/* Those of our colour, in their new order. */
static int choose_members(const int64_t *told, int n_ranks, int64_t colour, struct member *members)
{
    int n = 0;
    for (int k = 0; k < n_ranks; k++) {
        if (told[2 * k] == colour)
            members[n++] = (struct member){ told[2 * k], told[2 * k + 1], k };
    }
    qsort(members, (size_t)n, sizeof *members, by_key_then_rank);
    return n;
}

static uint32_t number_of(const struct gm_comm *parent, uint64_t seq, int64_t colour)
{
    char name[64];
    snprintf(name, sizeof name, "%u/%llu/%lld", (unsigned)parent->group_id, (unsigned long long)seq,
             (long long)colour);
    return gmi_group_id(name);
}

static gm_status out_of_memory(struct gm_comm *parent)
{
    struct gmi_failure f = { .status = GM_ERR_NOMEM,
                             .culprit = parent->root->rank,
                             .reporter = parent->root->rank };
    snprintf(f.cause, sizeof f.cause,
             "rank %d has no memory or descriptors for another communicator", parent->root->rank);
    if (parent->root->n_ranks > 1) {
        gmi_comm_fail(parent, &f);
        return gmi_comm_report_failure(parent, NULL, &parent->error);
    }
    gmi_error_clear(&parent->error);
    return gmi_error_set(&parent->error, f.status, "%s", f.cause);
}

static void enter_in_list(struct gm_comm *comm)
{
    struct gm_comm *root = comm->root;
    pthread_mutex_lock(&root->roster_lock);
    pthread_mutex_lock(&root->lock);
    comm->next = root->next;
    root->next = comm;
    root->n_users++;
    /* What has happened so far is news to it. */
    if (root->control.has_failure || root->control.n_left > 0)
        atomic_store(&comm->is_alarmed, true);
    pthread_mutex_unlock(&root->lock);
    pthread_mutex_unlock(&root->roster_lock);
}

static struct gm_comm *make(struct gm_comm *parent, const struct member *members, int n_members,
                            uint64_t seq)
{
    int             rank = 0;
    struct gm_comm *comm = gmi_alloc(1, sizeof *comm);
    if (comm == NULL) return NULL;
    while (members[rank].rank != parent->rank) rank++;
    comm->root = parent->root;
    comm->stall_limit_ms = atomic_load(&parent->stall_limit_ms);
    comm->call_limit_ms = atomic_load(&parent->call_limit_ms);
    comm->try_ns = parent->try_ns;
    comm->placement = parent->placement;
    comm->wire = parent->wire;
    comm->group_id = number_of(parent, seq, members[0].colour);
    memcpy(comm->algorithm, parent->algorithm, sizeof comm->algorithm);
    memcpy(comm->user_ops, parent->user_ops, sizeof comm->user_ops);
    snprintf(comm->group_name, sizeof comm->group_name, "%08x", comm->group_id);
    size_t    n_trace_events = parent->trace != NULL ? parent->trace->n_places : 0;
    gm_status status = gmi_comm_set_up(comm, rank, n_members, n_trace_events, NULL);
    comm->world_ranks = gmi_alloc((size_t)n_members, sizeof *comm->world_ranks);
    if (comm->world_ranks == NULL) status = GM_ERR_NOMEM;
    for (int k = 0; comm->world_ranks != NULL && k < n_members; k++) {
        comm->world_ranks[k] = gmi_world_rank(parent, members[k].rank);
    }
    if (status == GM_OK && n_members > 1) status = gmi_comm_weigh(comm);
    if (status == GM_OK && n_members > 1) status = gmi_comm_lay_out(comm);
    if (status == GM_OK && parent->root->n_ranks > 1) status = gmi_caller_start(comm, NULL);
    if (status != GM_OK) {
        gmi_comm_tear_down(comm);
        return NULL;
    }
    enter_in_list(comm);
    return comm;
}

gm_status gm_comm_split(gm_comm *parent, int colour, int key, gm_comm **out)
{
    if (parent == NULL || out == NULL) return GM_ERR_ARG;
    *out = NULL;
    size_t          n = (size_t)parent->n_ranks;
    int64_t        *told = gmi_alloc(2 * n, sizeof *told);
    struct member  *members = gmi_alloc(n, sizeof *members);
    struct gm_comm *comm = NULL;
    gm_status       status = told != NULL && members != NULL ? GM_OK : out_of_memory(parent);
    if (status == GM_OK) {
        told[2 * parent->rank] = colour;
        told[2 * parent->rank + 1] = key;
        status = gm_all_gather(parent, told, told, 2 * n, GM_I64);
    }
    if (status == GM_OK && colour >= 0) {
        int n_members = choose_members(told, parent->n_ranks, colour, members);
        comm = make(parent, members, n_members, parent->seq);
        if (comm == NULL) status = out_of_memory(parent);
    }
    gmi_free(told);
    gmi_free(members);
    if (status == GM_OK) status = gm_barrier(parent);
    if (status != GM_OK) {
        gm_comm_destroy(comm);
        return status;
    }
    *out = comm;
    return GM_OK;
}
