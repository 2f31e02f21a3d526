/* api.c - the collectives as the caller sees them: checks the arguments, describes the call, runs it. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
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
    asked->user_op = gmi_comm_user_op(c->comm, asked->redop);
    gm_status status = gmi_request_choose_codec(asked);
    if (status == GM_ERR_ARG && gm_dtype_bytes(asked->dtype) == 0) {
        return mistake(c, status, "there is no dtype %d", (int)asked->dtype);
    }
    if (status == GM_ERR_ARG && asked->redop >= GM_REDOP_USER && asked->redop < GM_REDOP_USER_END) {
        return mistake(c, status, "the reduction user %d was not created, or is destroyed", asked->redop - GM_REDOP_USER);
    }
    if (status == GM_ERR_ARG) return mistake(c, status, "there is no reduction %d", asked->redop);
    if (status == GM_ERR_UNSUPPORTED) {
        return mistake(c, status, "%s of %s is not offered: bitwise reductions are for integers",
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

/* ---- running ------------------------------------------------------------------------------------ */

/* `work` NULL: to the end; else only starts. */
static gm_status run_or_start(struct call c, gm_work **work)
{
    gm_comm *comm = c.comm;
    if (comm == NULL) return GM_ERR_ARG;
    if (atomic_exchange(&comm->is_in_call, true)) return GM_ERR_STATE; /* the other thread's record stays */
    gm_status status = check(&c);
    if (status == GM_OK) {
        status = work == NULL ? gmi_engine_run(comm, &c.asked) : gmi_engine_start(comm, &c.asked, work);
    }
    atomic_store(&comm->is_in_call, false);
    return status;
}

static gm_status run(struct call c) { return run_or_start(c, NULL); }

static gm_status start(struct call c, gm_work **work)
{
    if (work == NULL) return GM_ERR_ARG;
    *work = NULL;
    return run_or_start(c, work);
}

/* ---- the public calls --------------------------------------------------------------------------- */

void gm_chunk(size_t count, int world_size, int rank, size_t *first_elem, size_t *n_elems)
{
    *first_elem = gmi_chunk_first(count, world_size, rank);
    *n_elems = gmi_chunk_elems(count, world_size, rank);
}

static struct call all_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop)
{
    struct gmi_request asked = { GM_ALL_REDUCE, send, recv, count, dtype, .redop = (int)redop, .root = -1 };
    return (struct call){ .comm = comm, .asked = asked, .send_elems = count, .recv_elems = count };
}

static size_t own_elems(const gm_comm *comm, size_t count)
{
    return comm == NULL ? 0 : gmi_chunk_elems(count, comm->n_ranks, comm->rank);
}

static struct call reduce_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                                  gm_redop redop)
{
    struct gmi_request asked = { GM_REDUCE_SCATTER, send, recv, count, dtype, .redop = (int)redop, .root = -1 };
    size_t             recv_elems = send == recv ? count : own_elems(comm, count);
    return (struct call){ .comm = comm, .asked = asked, .send_elems = count, .recv_elems = recv_elems };
}

static struct call all_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    struct gmi_request asked = { GM_ALL_GATHER, send, recv, count, dtype, .redop = -1, .root = -1 };
    size_t             send_elems = send == recv ? count : own_elems(comm, count);
    return (struct call){ .comm = comm, .asked = asked, .send_elems = send_elems, .recv_elems = count };
}

static struct call broadcast(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root)
{
    struct gmi_request asked = { GM_BROADCAST, buffer, buffer, count, dtype, .redop = -1, .root = root };
    return (struct call){ .comm = comm, .asked = asked, .send_elems = count, .recv_elems = count };
}

static struct call barrier(gm_comm *comm)
{
    return (struct call){ .comm = comm, .asked = { GM_BARRIER, .redop = -1, .root = -1 } };
}

gm_status gm_all_reduce(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop)
{
    return run(all_reduce(comm, send, recv, count, dtype, redop));
}
gm_status gm_reduce_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop)
{
    return run(reduce_scatter(comm, send, recv, count, dtype, redop));
}
gm_status gm_all_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    return run(all_gather(comm, send, recv, count, dtype));
}
gm_status gm_broadcast(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root)
{
    return run(broadcast(comm, buffer, count, dtype, root));
}
gm_status gm_barrier(gm_comm *comm) { return run(barrier(comm)); }

/* ---- asynchronous work --------------------------------------------------------------------------- */

gm_status gm_all_reduce_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop,
                              gm_work **work)
{
    return start(all_reduce(comm, send, recv, count, dtype, redop), work);
}
gm_status gm_reduce_scatter_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype,
                                  gm_redop redop, gm_work **work)
{
    return start(reduce_scatter(comm, send, recv, count, dtype, redop), work);
}
gm_status gm_all_gather_start(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_work **work)
{
    return start(all_gather(comm, send, recv, count, dtype), work);
}
gm_status gm_broadcast_start(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root, gm_work **work)
{
    return start(broadcast(comm, buffer, count, dtype, root), work);
}
gm_status gm_barrier_start(gm_comm *comm, gm_work **work) { return start(barrier(comm), work); }

gm_status gm_work_test(const gm_work *work)
{
    return work == NULL ? GM_ERR_ARG : (gm_status)atomic_load_explicit(&work->status, memory_order_acquire);
}

gm_status gm_work_wait(gm_work *work, int timeout_ms)
{
    if (work == NULL) return GM_ERR_ARG;
    gm_status status = gm_work_test(work);
    if (status == GM_AGAIN && timeout_ms != 0) {
        if (atomic_exchange(&work->comm->is_in_call, true)) return GM_ERR_STATE;
        gmi_engine_wait(work->comm, work, timeout_ms < 0 ? GMI_NEVER : gmi_deadline_after_ms(timeout_ms));
        atomic_store(&work->comm->is_in_call, false);
        status = gm_work_test(work);
    }
    if (status != GM_OK && status != GM_AGAIN) work->comm->error = work->error;
    return status;
}

const gm_error *gm_work_error(const gm_work *work) { return &work->error; }

void gm_work_release(gm_work *work)
{
    if (work != NULL) gmi_engine_release(work->comm, work);
}
