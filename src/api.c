/* api.c - the collectives as the caller sees them: checks the arguments, describes the call, runs it. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "coll/algo.h"
#include "comm/comm.h"
#include "reduce/accumulator.h"

/* One public call, before it becomes an op. */
struct call {
    gm_comm           *comm;
    struct gmi_request asked;
    bool               has_counts; /* the caller gives the sizes of chunks */
    size_t             send_elems, recv_elems; /* that the caller's buffers hold, by measure() */
};

/* ---- mistakes of the caller: nothing is started, the communicator stays as it is ----------------- */

__attribute__((format(printf, 3, 4)))
static gm_status mistake(const struct call *c, gm_status status, const char *format, ...)
{
    gm_error *e = &c->comm->error;
    gmi_error_clear(e);
    e->rank = c->comm->root->rank;
    e->op = gm_collective_name(c->asked.which);
    va_list args;
    va_start(args, format);
    gmi_error_setv(e, status, format, args);
    va_end(args);
    return status;
}

static gm_status check_buffer(const struct call *c, const char *name, const void *buffer, size_t elems)
{
    size_t bytes, elem_bytes = c->asked.codec.elem_bytes;
    if (!gmi_mul_sizes(elems, elem_bytes, &bytes) || bytes > PTRDIFF_MAX) {
        return mistake(c, GM_ERR_ARG, "%zu elements of %zu bytes do not fit into memory", elems, elem_bytes);
    }
    if (buffer == NULL && elems > 0) return mistake(c, GM_ERR_ARG, "`%s` is NULL though it holds %zu elements", name, elems);
    if ((uintptr_t)buffer % elem_bytes != 0) {
        return mistake(c, GM_ERR_ARG, "`%s` is not aligned to its elements of %zu bytes", name, elem_bytes);
    }
    return GM_OK;
}

static bool overlap(const struct call *c)
{
    uintptr_t a = (uintptr_t)c->asked.send, b = (uintptr_t)c->asked.recv;
    size_t    elem_bytes = c->asked.codec.elem_bytes;
    size_t    a_bytes = c->send_elems * elem_bytes, b_bytes = c->recv_elems * elem_bytes;
    return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

static gm_status choose_codec(struct call *c)
{
    struct gmi_request *asked = &c->asked;
    asked->user_op = gmi_comm_user_op(c->comm, asked->redop);
    asked->wire = c->comm->wire;
    gm_status status = gmi_request_choose_codec(asked);
    if (status == GM_ERR_ARG && gm_dtype_bytes(asked->dtype) == 0) {
        return mistake(c, status, "there is no dtype %d", (int)asked->dtype);
    }
    if (status == GM_ERR_ARG && asked->redop >= GM_REDOP_USER && asked->redop < GM_REDOP_USER_END) {
        return mistake(c, status, "the reduction user %d was not created, or is destroyed", asked->redop - GM_REDOP_USER);
    }
    if (status == GM_ERR_ARG) return mistake(c, status, "there is no reduction %d", asked->redop);
    if (status == GM_ERR_UNSUPPORTED && asked->redop == GM_SUM_EXACT) {
        return mistake(c, status, "%s of %s is not offered: it is for gm_all_reduce of f32", gm_redop_name(GM_SUM_EXACT),
                       gm_dtype_name(asked->dtype));
    }
    if (status == GM_ERR_UNSUPPORTED) {
        return mistake(c, status, "%s of %s is not offered: bitwise reductions are for integers",
                       gm_redop_name((gm_redop)asked->redop), gm_dtype_name(asked->dtype));
    }
    return GM_OK;
}

/* ---- how much the buffers hold ------------------------------------------------------------------- */

static gm_status too_many(const struct call *c) { return mistake(c, GM_ERR_ARG, "the counts add up to more than fits into memory"); }

static gm_status add_counts(const struct call *c, const char *name, const size_t *counts, size_t *sum)
{
    *sum = 0;
    if (counts == NULL) return mistake(c, GM_ERR_ARG, "`%s` is NULL; it must hold a count for each rank", name);
    for (int k = 0; k < c->comm->n_ranks; k++) {
        if (!gmi_add_sizes(*sum, counts[k], sum)) return too_many(c);
    }
    return GM_OK;
}

/* An all-to-all: a count for each pair of ranks, or one for all. */
static gm_status measure_all_to_all(struct call *c)
{
    struct gmi_request *asked = &c->asked;
    int                 rank = c->comm->rank;
    if (!c->has_counts) {
        if (!gmi_mul_sizes(asked->count_elems, (size_t)c->comm->n_ranks, &asked->count_elems)) return too_many(c);
        c->send_elems = c->recv_elems = asked->count_elems;
        return GM_OK;
    }
    gm_status status = add_counts(c, "send_counts", asked->counts, &c->send_elems);
    if (status == GM_OK) status = add_counts(c, "recv_counts", asked->recv_counts, &c->recv_elems);
    if (status != GM_OK) return status;
    asked->count_elems = c->send_elems;
    if (asked->counts[rank] == asked->recv_counts[rank]) return GM_OK;
    return mistake(c, GM_ERR_ARG, "this rank sends %zu elements to itself and wants %zu", asked->counts[rank],
                   asked->recv_counts[rank]);
}

static gm_status check_peer(const struct call *c, int peer, int tag)
{
    int n = c->comm->n_ranks;
    if (peer < 0 || peer >= n) return mistake(c, GM_ERR_ARG, "there is no rank %d in a world of %d", peer, n);
    if (tag < 0) return mistake(c, GM_ERR_ARG, "the tag %d is negative", tag);
    return GM_OK;
}

static gm_status measure_message(struct call *c)
{
    const struct gmi_message_call *m = &c->asked.message;
    int       rank = c->comm->rank;
    gm_status status = c->asked.which != GM_RECV ? check_peer(c, m->to, m->send_tag) : GM_OK;
    if (status == GM_OK && c->asked.which != GM_SEND) status = check_peer(c, m->from, m->recv_tag);
    if (status != GM_OK) return status;
    c->asked.count_elems = c->send_elems = m->send_elems;
    c->recv_elems = m->recv_elems;
    if (m->to != rank && m->from != rank) return GM_OK;
    bool fits = m->to == m->from && m->send_elems == m->recv_elems && m->send_tag == m->recv_tag;
    return fits ? GM_OK : mistake(c, GM_ERR_ARG, "a rank exchanges with itself, the same message both ways, or not at all");
}

/* Fills in what follows from the kind of call: the count of the whole buffer and what either buffer holds. What a
 * rank that is not the root has no use for becomes NULL. */
static gm_status measure(struct call *c)
{
    struct gmi_request *asked = &c->asked;
    if (gmi_is_message(asked->which)) return measure_message(c);
    if (asked->which == GM_ALL_TO_ALL) return measure_all_to_all(c);
    gm_status status = c->has_counts ? add_counts(c, "counts", asked->counts, &asked->count_elems) : GM_OK;
    if (status != GM_OK) return status;
    bool   is_root = c->comm->rank == asked->root;
    size_t all = asked->count_elems, own = gmi_chunk_elems_of(asked->counts, all, c->comm->n_ranks, c->comm->rank);
    bool   is_gather = asked->which == GM_GATHER || asked->which == GM_ALL_GATHER;
    bool   is_scatter = asked->which == GM_SCATTER || asked->which == GM_REDUCE_SCATTER;
    if (!is_root && (asked->which == GM_REDUCE || asked->which == GM_GATHER)) asked->recv = NULL;
    if (!is_root && asked->which == GM_SCATTER) asked->send = NULL;
    bool is_in_place = gmi_request_is_in_place(asked);
    c->send_elems = is_gather && !is_in_place ? own : all;
    c->recv_elems = is_scatter && !is_in_place ? own : all;
    if (!is_root && (asked->which == GM_REDUCE || asked->which == GM_GATHER)) c->recv_elems = 0;
    if (!is_root && asked->which == GM_SCATTER) c->send_elems = 0;
    return GM_OK;
}

/* May the accumulator be summed up, and can the sum be exact? */
static gm_status check_exact(struct call *c)
{
    gm_accumulator   *acc = c->asked.exact;
    struct gmi_shards complete;
    if (acc == NULL) {
        if (c->asked.count_elems > UINT32_MAX) return mistake(c, GM_ERR_UNSUPPORTED, "an exact sum has at most 2^32 - 1 elements");
        if (c->comm->n_ranks <= GM_MAX_SHARDS) return GM_OK;
        return mistake(c, GM_ERR_UNSUPPORTED, "%d contributions could overflow an exact sum; %d can not", c->comm->n_ranks, GM_MAX_SHARDS);
    }
    int incomplete = gmi_accumulator_shards(acc, &complete);
    if (atomic_load(&acc->is_in_call)) return mistake(c, GM_ERR_STATE, "the accumulator is in an all-reduce that is not done");
    if (acc->is_spoiled) return mistake(c, GM_ERR_NOMEM, "a number that did not fit into its lane is lost");
    if (incomplete >= 0) {
        return mistake(c, GM_ERR_STATE, "shard %d of %d is not complete: %zu of %zu elements have been added", incomplete,
                       acc->options.n_shards, atomic_load(&acc->added[incomplete]), acc->options.count);
    }
    int missing = c->comm->n_ranks > 1 ? -1 : gmi_shards_first_missing(&complete, acc->options.n_shards);
    if (missing < 0) return GM_OK;
    return mistake(c, GM_ERR_MISMATCH, "shard %d of %d has been added on no rank", missing, acc->options.n_shards);
}

static gm_status check(struct call *c)
{
    const struct gmi_request *asked = &c->asked;
    gm_status                 status = choose_codec(c);
    if (status != GM_OK) return status;
    if (gmi_has_root(asked->which) && (asked->root < 0 || asked->root >= c->comm->n_ranks)) {
        return mistake(c, GM_ERR_ARG, "there is no root %d in a world of %d", asked->root, c->comm->n_ranks);
    }
    status = measure(c);
    if (status == GM_OK) {
        status = check_buffer(c, asked->which == GM_BROADCAST ? "buffer" : "send", asked->send, c->send_elems);
    }
    if (status == GM_OK) status = check_buffer(c, "recv", asked->recv, c->recv_elems);
    if (status == GM_OK && asked->which == GM_SENDRECV && overlap(c)) {
        return mistake(c, GM_ERR_ARG, "`send` and `recv` overlap; they must be apart");
    }
    if (status == GM_OK && asked->redop == GM_SUM_EXACT && gmi_request_is_reduction(asked)) status = check_exact(c);
    if (status == GM_OK && !gmi_request_is_in_place(asked) && overlap(c)) {
        return mistake(c, GM_ERR_ARG, "`send` and `recv` overlap; they may be the same, or apart");
    }
    return status;
}

/* ---- running ------------------------------------------------------------------------------------ */

static gm_status forked(gm_comm *comm)
{
    gmi_error_clear(&comm->error);
    comm->error.rank = comm->root->rank;
    return gmi_error_set(&comm->error, GM_ERR_STATE, "this process was forked from rank %d, which created the communicator; "
                         "only that one may call it: create another one here", comm->rank);
}

/* `work` NULL: to the end; else only starts. */
static gm_status run_or_start(struct call c, gm_work **work)
{
    gm_comm *comm = c.comm;
    if (comm == NULL) return GM_ERR_ARG;
    struct gmi_engine *e = &comm->engines[gmi_is_message(c.asked.which) ? GMI_LANE_MESSAGES : GMI_LANE_DATA];
    if (!gmi_comm_is_ours(comm)) return forked(comm);
    if (atomic_exchange(&comm->is_in_call, true)) return GM_ERR_STATE; /* the other thread's record stays */
    gm_status status = check(&c);
    if (status == GM_OK) {
        status = work == NULL ? gmi_engine_run(e, &c.asked) : gmi_engine_start(e, &c.asked, work);
    }
    atomic_store(&comm->is_in_call, false);
    return status;
}

static gm_status run(struct call c) { return run_or_start(c, NULL); }

static gm_status start(struct call c, gm_work **work)
{
    if (work == NULL) return c.comm == NULL ? GM_ERR_ARG : mistake(&c, GM_ERR_ARG, "`work` is NULL: where should the handle go?");
    *work = NULL;
    return run_or_start(c, work);
}

/* ---- the public calls --------------------------------------------------------------------------- */

void gm_chunk(size_t count, int world_size, int rank, size_t *first_elem, size_t *n_elems)
{
    *first_elem = gmi_chunk_first(count, world_size, rank);
    *n_elems = gmi_chunk_elems(count, world_size, rank);
}

static struct call all_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                              gm_redop redop)
{
    struct gmi_request asked = { GM_ALL_REDUCE, send, recv, count, dtype, .redop = (int)redop, .root = -1 };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                          gm_redop redop, int root)
{
    struct gmi_request asked = { GM_REDUCE, send, recv, count, dtype, .redop = (int)redop, .root = root };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call reduce_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                                  gm_redop redop)
{
    struct gmi_request asked = { GM_REDUCE_SCATTER, send, recv, count, dtype, .redop = (int)redop, .root = -1 };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call reduce_scatterv(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                                   gm_dtype dtype, gm_redop redop)
{
    struct gmi_request asked = { GM_REDUCE_SCATTER, send, recv, 0, dtype, .redop = (int)redop, .root = -1, .counts = counts };
    return (struct call){ .comm = comm, .asked = asked, .has_counts = true };
}

static struct call all_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    struct gmi_request asked = { GM_ALL_GATHER, send, recv, count, dtype, .redop = -1, .root = -1 };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call all_gatherv(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                               gm_dtype dtype)
{
    struct gmi_request asked = { GM_ALL_GATHER, send, recv, 0, dtype, .redop = -1, .root = -1, .counts = counts };
    return (struct call){ .comm = comm, .asked = asked, .has_counts = true };
}

static struct call broadcast(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root)
{
    struct gmi_request asked = { GM_BROADCAST, buffer, buffer, count, dtype, .redop = -1, .root = root };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, int root)
{
    struct gmi_request asked = { GM_GATHER, send, recv, count, dtype, .redop = -1, .root = root };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call gatherv(gm_comm *comm, const void *send, void *recv, const size_t *counts, gm_dtype dtype,
                           int root)
{
    struct gmi_request asked = { GM_GATHER, send, recv, 0, dtype, .redop = -1, .root = root, .counts = counts };
    return (struct call){ .comm = comm, .asked = asked, .has_counts = true };
}

static struct call scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, int root)
{
    struct gmi_request asked = { GM_SCATTER, send, recv, count, dtype, .redop = -1, .root = root };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call scatterv(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                            gm_dtype dtype, int root)
{
    struct gmi_request asked = { GM_SCATTER, send, recv, 0, dtype, .redop = -1, .root = root, .counts = counts };
    return (struct call){ .comm = comm, .asked = asked, .has_counts = true };
}

static struct call all_to_all(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    struct gmi_request asked = { GM_ALL_TO_ALL, send, recv, count, dtype, .redop = -1, .root = -1 };
    return (struct call){ .comm = comm, .asked = asked };
}

static struct call all_to_allv(gm_comm *comm, const void *send, const size_t *send_counts, void *recv,
                               const size_t *recv_counts, gm_dtype dtype)
{
    struct gmi_request asked = { GM_ALL_TO_ALL, send, recv, 0, dtype, .redop = -1, .root = -1, .counts = send_counts,
                                 .recv_counts = recv_counts };
    return (struct call){ .comm = comm, .asked = asked, .has_counts = true };
}

static struct call barrier(gm_comm *comm)
{
    return (struct call){ .comm = comm, .asked = { GM_BARRIER, .redop = -1, .root = -1 } };
}

static struct call all_reduce_exact(gm_comm *comm, gm_accumulator *acc, float *sum)
{
    struct call c = all_reduce(comm, sum, sum, acc->options.count, GM_F32, GM_SUM_EXACT);
    c.asked.exact = acc;
    return c;
}

gm_status gm_all_reduce_exact(gm_comm *comm, gm_accumulator *acc, float *sum)
{
    return acc == NULL ? GM_ERR_ARG : run(all_reduce_exact(comm, acc, sum));
}
gm_status gm_all_reduce_exact_start(gm_comm *comm, gm_accumulator *acc, float *sum, gm_work **work)
{
    return acc == NULL ? GM_ERR_ARG : start(all_reduce_exact(comm, acc, sum), work);
}
gm_status gm_all_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                        gm_redop redop)
{
    return run(all_reduce(comm, send, recv, count, dtype, redop));
}
gm_status gm_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                    gm_redop redop, int root)
{
    return run(reduce(comm, send, recv, count, dtype, redop, root));
}
gm_status gm_reduce_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                            gm_redop redop)
{
    return run(reduce_scatter(comm, send, recv, count, dtype, redop));
}
gm_status gm_reduce_scatterv(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                             gm_dtype dtype, gm_redop redop)
{
    return run(reduce_scatterv(comm, send, recv, counts, dtype, redop));
}
gm_status gm_all_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    return run(all_gather(comm, send, recv, count, dtype));
}
gm_status gm_all_gatherv(gm_comm *comm, const void *send, void *recv, const size_t *counts, gm_dtype dtype)
{
    return run(all_gatherv(comm, send, recv, counts, dtype));
}
gm_status gm_broadcast(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root)
{
    return run(broadcast(comm, buffer, count, dtype, root));
}
gm_status gm_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, int root)
{
    return run(gather(comm, send, recv, count, dtype, root));
}
gm_status gm_gatherv(gm_comm *comm, const void *send, void *recv, const size_t *counts, gm_dtype dtype,
                     int root)
{
    return run(gatherv(comm, send, recv, counts, dtype, root));
}
gm_status gm_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, int root)
{
    return run(scatter(comm, send, recv, count, dtype, root));
}
gm_status gm_scatterv(gm_comm *comm, const void *send, void *recv, const size_t *counts, gm_dtype dtype,
                      int root)
{
    return run(scatterv(comm, send, recv, counts, dtype, root));
}
gm_status gm_all_to_all(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    return run(all_to_all(comm, send, recv, count, dtype));
}
gm_status gm_all_to_allv(gm_comm *comm, const void *send, const size_t *send_counts, void *recv,
                         const size_t *recv_counts, gm_dtype dtype)
{
    return run(all_to_allv(comm, send, send_counts, recv, recv_counts, dtype));
}
gm_status gm_barrier(gm_comm *comm)
{
    return run(barrier(comm));
}

/* ---- lean formats -------------------------------------------------------------------------------- */

/* Chunk by chunk, as they travel: blocks begin where chunks do. */
gm_status gm_wire_round_trip(const gm_comm *comm, const float *send, float *seen, size_t count)
{
    if (comm == NULL || ((send == NULL || seen == NULL) && count > 0)) return GM_ERR_ARG;
    if (comm->wire == NULL || comm->n_ranks == 1) {
        if (count > 0 && seen != send) memcpy(seen, send, count * sizeof *seen);
        return GM_OK;
    }
    for (int k = 0; k < comm->n_ranks; k++) {
        size_t first = gmi_chunk_first(count, comm->n_ranks, k);
        gmi_wire_round_trip(comm->wire, seen + first, send + first, gmi_chunk_elems(count, comm->n_ranks, k));
    }
    return GM_OK;
}

/* ---- messages ------------------------------------------------------------------------------------ */

gm_status gm_send(gm_comm *comm, const void *buffer, size_t count, gm_dtype dtype, int to, int tag)
{
    struct gmi_request asked = { GM_SEND, buffer, NULL, 0, dtype, .redop = -1, .root = -1 };
    asked.message = (struct gmi_message_call){ .to = to, .from = -1, .send_tag = tag, .send_elems = count };
    return run((struct call){ .comm = comm, .asked = asked });
}

gm_status gm_recv(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int from, int tag)
{
    struct gmi_request asked = { GM_RECV, NULL, buffer, 0, dtype, .redop = -1, .root = -1 };
    asked.message = (struct gmi_message_call){ .to = -1, .from = from, .recv_tag = tag, .recv_elems = count };
    return run((struct call){ .comm = comm, .asked = asked });
}

gm_status gm_sendrecv(gm_comm *comm, const void *send, size_t send_count, int to, int send_tag, void *recv,
                      size_t recv_count, int from, int recv_tag, gm_dtype dtype)
{
    struct gmi_request asked = { GM_SENDRECV, send, recv, 0, dtype, .redop = -1, .root = -1 };
    asked.message = (struct gmi_message_call){ to, from, send_tag, recv_tag, send_count, recv_count };
    return run((struct call){ .comm = comm, .asked = asked });
}

/* ---- asynchronous work --------------------------------------------------------------------------- */

gm_status gm_all_reduce_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                              gm_redop redop, gm_work **work)
{
    return start(all_reduce(comm, send, recv, count, dtype, redop), work);
}
gm_status gm_reduce_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                          gm_redop redop, int root, gm_work **work)
{
    return start(reduce(comm, send, recv, count, dtype, redop, root), work);
}
gm_status gm_reduce_scatter_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                                  gm_redop redop, gm_work **work)
{
    return start(reduce_scatter(comm, send, recv, count, dtype, redop), work);
}
gm_status gm_reduce_scatterv_start(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                                   gm_dtype dtype, gm_redop redop, gm_work **work)
{
    return start(reduce_scatterv(comm, send, recv, counts, dtype, redop), work);
}
gm_status gm_all_gather_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                              gm_work **work)
{
    return start(all_gather(comm, send, recv, count, dtype), work);
}
gm_status gm_all_gatherv_start(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                               gm_dtype dtype, gm_work **work)
{
    return start(all_gatherv(comm, send, recv, counts, dtype), work);
}
gm_status gm_broadcast_start(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root,
                             gm_work **work)
{
    return start(broadcast(comm, buffer, count, dtype, root), work);
}
gm_status gm_gather_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                          int root, gm_work **work)
{
    return start(gather(comm, send, recv, count, dtype, root), work);
}
gm_status gm_gatherv_start(gm_comm *comm, const void *send, void *recv, const size_t *counts, gm_dtype dtype,
                           int root, gm_work **work)
{
    return start(gatherv(comm, send, recv, counts, dtype, root), work);
}
gm_status gm_scatter_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                           int root, gm_work **work)
{
    return start(scatter(comm, send, recv, count, dtype, root), work);
}
gm_status gm_scatterv_start(gm_comm *comm, const void *send, void *recv, const size_t *counts,
                            gm_dtype dtype, int root, gm_work **work)
{
    return start(scatterv(comm, send, recv, counts, dtype, root), work);
}
gm_status gm_all_to_all_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                              gm_work **work)
{
    return start(all_to_all(comm, send, recv, count, dtype), work);
}
gm_status gm_all_to_allv_start(gm_comm *comm, const void *send, const size_t *send_counts, void *recv,
                               const size_t *recv_counts, gm_dtype dtype, gm_work **work)
{
    return start(all_to_allv(comm, send, send_counts, recv, recv_counts, dtype), work);
}
gm_status gm_barrier_start(gm_comm *comm, gm_work **work)
{
    return start(barrier(comm), work);
}

gm_status gm_work_test(const gm_work *work)
{
    return work == NULL ? GM_ERR_ARG : (gm_status)atomic_load_explicit(&work->status, memory_order_acquire);
}

gm_status gm_work_wait(gm_work *work, int timeout_ms)
{
    if (work == NULL) return GM_ERR_ARG;
    gm_status status = gm_work_test(work);
    if (status == GM_AGAIN && timeout_ms != 0) {
        if (!gmi_comm_is_ours(work->comm)) return forked(work->comm);
        if (atomic_exchange(&work->comm->is_in_call, true)) return GM_ERR_STATE;
        gmi_engine_wait(&work->comm->engines[GMI_LANE_DATA], work, timeout_ms < 0 ? GMI_NEVER : gmi_deadline_after_ms(timeout_ms));
        atomic_store(&work->comm->is_in_call, false);
        status = gm_work_test(work);
    }
    if (status != GM_OK && status != GM_AGAIN) work->comm->error = work->error;
    return status;
}

const gm_error *gm_work_error(const gm_work *work) { return &work->error; }

void gm_work_release(gm_work *work)
{
    if (work != NULL) gmi_engine_release(&work->comm->engines[GMI_LANE_DATA], work);
}
