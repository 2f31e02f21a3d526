/* api.c - the collectives as the caller sees them: checks the arguments, describes the call, runs it. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "coll/algo.h"
#include "comm/comm.h"

/* One public call, before it becomes an op. */
struct call {
    gm_comm        *comm;
    struct gmi_request asked;
    size_t          send_elems, recv_elems; /* that the caller's buffers hold */
};

/* ---- mistakes of the caller: nothing is started, the communicator stays as it is ----------------- */

__attribute__((format(printf, 3, 4)))
static gm_status mistake(const struct call *c, gm_status status, const char *format, ...)
{
    gm_error *e = &c->comm->error;
    gmi_error_clear(e);
    e->rank = c->comm->rank;
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
    gm_status        status = gmi_request_choose_codec(asked);
    if (status == GM_ERR_ARG && gm_dtype_bytes(asked->dtype) == 0) {
        return mistake(c, status, "there is no dtype %d", (int)asked->dtype);
    }
    if (status == GM_ERR_ARG) return mistake(c, status, "there is no reduction %d", asked->redop);
    if (status == GM_ERR_UNSUPPORTED) {
        return mistake(c, status, "%s of %s is not offered: how should it round?",
                       gm_redop_name((gm_redop)asked->redop), gm_dtype_name(asked->dtype));
    }
    return GM_OK;
}

static gm_status check(struct call *c)
{
    const struct gmi_request *asked = &c->asked;
    bool                   is_broadcast = asked->which == GM_BROADCAST;
    gm_status              status = choose_codec(c);
    if (status == GM_OK) status = check_buffer(c, is_broadcast ? "buffer" : "send", asked->send, c->send_elems);
    if (status == GM_OK) status = check_buffer(c, "recv", asked->recv, c->recv_elems);
    if (status != GM_OK) return status;
    if (!gmi_request_is_in_place(asked) && overlap(c)) {
        return mistake(c, GM_ERR_ARG, "`send` and `recv` overlap; they may be the same, or apart");
    }
    if (is_broadcast && (asked->root < 0 || asked->root >= c->comm->n_ranks)) {
        return mistake(c, GM_ERR_ARG, "there is no root %d in a world of %d", asked->root, c->comm->n_ranks);
    }
    return GM_OK;
}

/* ---- a world of one ----------------------------------------------------------------------------- */

static void run_alone(gm_comm *comm, const struct gmi_request *r)
{
    size_t bytes = r->count_elems * r->codec.elem_bytes;
    if (!gmi_request_is_in_place(r) && bytes > 0) memcpy(r->recv, r->send, bytes);
    if (r->codec.canonicalize != NULL) r->codec.canonicalize(r->recv, r->count_elems);
    comm->traffic[r->which].calls++;
    comm->traffic[GM_COLLECTIVE_END].calls++;
    comm->done_seq = ++comm->seq;
}

/* ---- several ranks ------------------------------------------------------------------------------ */

/* The others are in this call already or will be, and must not wait for a rank that cannot follow. */
static gm_status no_memory(gm_comm *comm, size_t need_bytes)
{
    struct gmi_failure failure = { .status = GM_ERR_NOMEM, .culprit = comm->rank, .reporter = comm->rank,
                                   .op_seq = comm->seq + 1 };
    snprintf(failure.cause, sizeof failure.cause, "rank %d has no memory for %zu bytes of scratch", comm->rank,
             need_bytes);
    gmi_comm_fail(comm, &failure);
    return gmi_comm_report_failure(comm, false);
}

static gm_status grow_work(gm_comm *comm, const struct gmi_request *request, const struct gmi_algo *algo)
{
    size_t need_bytes = gmi_op_work_bytes(request, algo, comm->n_ranks);
    if (need_bytes <= comm->work_bytes) return GM_OK;
    uint8_t *work = gmi_alloc(need_bytes, 1);
    if (work == NULL) return no_memory(comm, need_bytes);
    gmi_free(comm->work);
    comm->work = work;
    comm->work_bytes = need_bytes;
    return GM_OK;
}

static gm_status run_together(gm_comm *comm, const struct gmi_request *request)
{
    if (comm->failure_record.status != GM_OK) return gmi_comm_report_failure(comm, false);
    struct gmi_op         *op = &comm->op;
    size_t                 total_bytes = request->count_elems * request->codec.elem_bytes;
    const struct gmi_algo *algo = gmi_algo_choose(comm->algorithm, request->which, comm->n_ranks, total_bytes);
    gm_status              status = grow_work(comm, request, algo);
    if (status == GM_OK) status = gmi_comm_need_links(comm, algo, request->root);
    if (status != GM_OK) return status;
    comm->group.id = comm->group_id;
    comm->group.epoch = comm->control.epoch;
    op->group = &comm->group;
    op->scratch = comm->scratch;
    op->work = comm->work;
    gmi_op_set_up(op, algo, request, ++comm->seq);
    gmi_op_begin(op);
    return gmi_comm_run(comm);
}

static gm_status run(struct call c)
{
    gm_comm *comm = c.comm;
    if (comm == NULL) return GM_ERR_ARG;
    if (atomic_exchange(&comm->is_in_call, true)) return GM_ERR_STATE; /* the other thread's record stays */
    gm_status status = check(&c);
    if (status == GM_OK && comm->n_ranks == 1) {
        if (atomic_load(&comm->is_alarmed)) {
            status = gmi_comm_report_failure(comm, false);
        } else {
            run_alone(comm, &c.asked);
        }
    } else if (status == GM_OK) {
        status = run_together(comm, &c.asked);
    }
    atomic_store(&comm->is_in_call, false);
    return status;
}

/* ---- the public calls --------------------------------------------------------------------------- */

void gm_chunk(size_t count, int world_size, int rank, size_t *first_elem, size_t *n_elems)
{
    *first_elem = gmi_chunk_first(count, world_size, rank);
    *n_elems = gmi_chunk_elems(count, world_size, rank);
}

gm_status gm_all_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop)
{
    struct gmi_request asked = { GM_ALL_REDUCE, send, recv, count, dtype, .redop = (int)redop, .root = -1 };
    return run((struct call){ .comm = comm, .asked = asked, .send_elems = count, .recv_elems = count });
}

static size_t own_elems(const gm_comm *comm, size_t count)
{
    return comm == NULL ? 0 : gmi_chunk_elems(count, comm->n_ranks, comm->rank);
}

gm_status gm_reduce_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop)
{
    struct gmi_request asked = { GM_REDUCE_SCATTER, send, recv, count, dtype, .redop = (int)redop, .root = -1 };
    size_t          recv_elems = send == recv ? count : own_elems(comm, count);
    return run((struct call){ .comm = comm, .asked = asked, .send_elems = count, .recv_elems = recv_elems });
}

gm_status gm_all_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    struct gmi_request asked = { GM_ALL_GATHER, send, recv, count, dtype, .redop = -1, .root = -1 };
    size_t          send_elems = send == recv ? count : own_elems(comm, count);
    return run((struct call){ .comm = comm, .asked = asked, .send_elems = send_elems, .recv_elems = count });
}

gm_status gm_broadcast(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root)
{
    struct gmi_request asked = { GM_BROADCAST, buffer, buffer, count, dtype, .redop = -1, .root = root };
    return run((struct call){ .comm = comm, .asked = asked, .send_elems = count, .recv_elems = count });
}

gm_status gm_barrier(gm_comm *comm)
{
    struct gmi_request asked = { GM_BARRIER, .redop = -1, .root = -1 };
    return run((struct call){ .comm = comm, .asked = asked });
}
