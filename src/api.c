/* api.c - the collectives as the caller sees them: checks the arguments, describes the call, runs it. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "coll/algo.h"
#include "comm/comm.h"

/* One public call, before it becomes an op. */
struct call {
    gm_comm      *comm;
    gm_collective which;
    const void   *send;
    void         *recv;
    size_t        count_elems;               /* of the whole buffer */
    size_t        send_elems, recv_elems;    /* that the caller's buffers hold */
    gm_dtype      dtype;
    int           redop; /* gm_redop; -1: none */
    int           root;  /* -1: none */
    struct gmi_codec codec;
};

static bool is_in_place(const struct call *c) { return c->send == c->recv; }

/* ---- mistakes of the caller: nothing is started, the communicator stays as it is ----------------- */

__attribute__((format(printf, 3, 4)))
static gm_status mistake(const struct call *c, gm_status status, const char *format, ...)
{
    gm_error *e = &c->comm->error;
    gmi_error_clear(e);
    e->rank = c->comm->rank;
    e->op = gm_collective_name(c->which);
    va_list args;
    va_start(args, format);
    gmi_error_setv(e, status, format, args);
    va_end(args);
    return status;
}

static gm_status check_buffer(const struct call *c, const char *name, const void *buffer, size_t elems)
{
    size_t bytes, elem_bytes = c->codec.elem_bytes;
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
    uintptr_t a = (uintptr_t)c->send, b = (uintptr_t)c->recv;
    size_t    a_bytes = c->send_elems * c->codec.elem_bytes, b_bytes = c->recv_elems * c->codec.elem_bytes;
    return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

static gm_status choose_codec(struct call *c)
{
    if (c->which == GM_BARRIER) {
        c->codec = gmi_codec_mover(1);
        return GM_OK;
    }
    if (gm_dtype_bytes(c->dtype) == 0) return mistake(c, GM_ERR_ARG, "there is no dtype %d", (int)c->dtype);
    if (c->redop < 0) {
        c->codec = gmi_codec_mover(gm_dtype_bytes(c->dtype));
        return GM_OK;
    }
    gm_status status = gmi_codec_find(&c->codec, c->dtype, (gm_redop)c->redop);
    if (status == GM_ERR_ARG) return mistake(c, status, "there is no reduction %d", c->redop);
    if (status == GM_ERR_UNSUPPORTED) {
        return mistake(c, status, "%s of %s is not offered: how should it round?", gm_redop_name((gm_redop)c->redop),
                       gm_dtype_name(c->dtype));
    }
    return GM_OK;
}

static gm_status check(struct call *c)
{
    gm_status status = choose_codec(c);
    if (status == GM_OK) status = check_buffer(c, c->which == GM_BROADCAST ? "buffer" : "send", c->send, c->send_elems);
    if (status == GM_OK) status = check_buffer(c, "recv", c->recv, c->recv_elems);
    if (status != GM_OK) return status;
    if (!is_in_place(c) && overlap(c)) return mistake(c, GM_ERR_ARG, "`send` and `recv` overlap; they may be the same, or apart");
    if (c->which == GM_BROADCAST && (c->root < 0 || c->root >= c->comm->n_ranks)) {
        return mistake(c, GM_ERR_ARG, "there is no root %d in a world of %d", c->root, c->comm->n_ranks);
    }
    return GM_OK;
}

/* ---- a world of one ----------------------------------------------------------------------------- */

static void run_alone(const struct call *c)
{
    size_t bytes = c->count_elems * c->codec.elem_bytes;
    if (!is_in_place(c) && bytes > 0) memcpy(c->recv, c->send, bytes);
    if (c->redop >= 0 && c->codec.canonicalize != NULL) c->codec.canonicalize(c->recv, c->count_elems);
    gm_traffic *own = &c->comm->traffic[c->which], *all = &c->comm->traffic[GM_COLLECTIVE_END];
    own->calls++;
    all->calls++;
    c->comm->done_seq = ++c->comm->seq;
}

/* ---- several ranks ------------------------------------------------------------------------------ */

static gm_status grow_work(const struct call *c, const struct gmi_algo *algo)
{
    gm_comm *comm = c->comm;
    size_t   need_bytes = 0;
    if (algo->work_bytes != NULL) {
        need_bytes = algo->work_bytes(comm->n_ranks, c->count_elems, c->codec.elem_bytes, is_in_place(c));
    }
    if (need_bytes <= comm->work_bytes) return GM_OK;
    uint8_t *work = gmi_alloc(need_bytes, 1);
    if (work == NULL) return mistake(c, GM_ERR_NOMEM, "no memory for %zu bytes of scratch", need_bytes);
    gmi_free(comm->work);
    comm->work = work;
    comm->work_bytes = need_bytes;
    return GM_OK;
}

static void describe(const struct call *c, const struct gmi_algo *algo)
{
    gm_comm *comm = c->comm;
    comm->op.call = (struct gmi_descriptor){
        .collective = (uint8_t)c->which,
        .algorithm = algo->id,
        .dtype = c->which == GM_BARRIER ? 0xff : (uint8_t)c->dtype,
        .redop = c->redop < 0 ? 0xff : (uint8_t)c->redop,
        .codec = c->codec.id,
        .root = c->root,
        .epoch = comm->control.epoch,
        .group = comm->group_id,
        .seq = ++comm->seq,
        .count_elems = c->count_elems,
        .piece_bytes = GMI_PIECE_BYTES,
        .rank = comm->rank,
        .arrival_ns = comm->op.begin_ns,
    };
}

/* Lays the caller's buffers out as the algorithms want them: all chunks in rank order. */
static void place_buffers(const struct call *c)
{
    gm_comm       *comm = c->comm;
    struct gmi_op *op = &comm->op;
    op->input = c->send;
    op->output = c->recv;
    op->own_output = NULL;
    if (c->which == GM_REDUCE_SCATTER && !is_in_place(c)) {
        op->output = comm->work;
        op->own_output = c->recv;
    }
    if (c->which == GM_ALL_GATHER && !is_in_place(c) && c->send_elems > 0) {
        size_t at = gmi_chunk_first(c->count_elems, comm->n_ranks, comm->rank) * c->codec.elem_bytes;
        memcpy((uint8_t *)c->recv + at, c->send, c->send_elems * c->codec.elem_bytes);
    }
}

static gm_status run_together(struct call *c)
{
    gm_comm               *comm = c->comm;
    struct gmi_op         *op = &comm->op;
    const struct gmi_algo *algo = gmi_algo_choose(comm->algorithm, c->which);
    gm_status              status = grow_work(c, algo);
    if (status != GM_OK) return status;
    op->begin_ns = gmi_now_ns();
    op->algo = algo;
    op->group = &comm->group;
    op->codec = c->codec;
    op->count_elems = c->count_elems;
    op->scratch = comm->scratch;
    op->work = comm->work;
    describe(c, algo);
    place_buffers(c);
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
            run_alone(&c);
        }
    } else if (status == GM_OK) {
        status = run_together(&c);
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
    return run((struct call){ .comm = comm, .which = GM_ALL_REDUCE, .send = send, .recv = recv, .count_elems = count,
                              .send_elems = count, .recv_elems = count, .dtype = dtype, .redop = (int)redop, .root = -1 });
}

static size_t own_elems(const gm_comm *comm, size_t count)
{
    return comm == NULL ? 0 : gmi_chunk_elems(count, comm->n_ranks, comm->rank);
}

gm_status gm_reduce_scatter(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype, gm_redop redop)
{
    return run((struct call){ .comm = comm, .which = GM_REDUCE_SCATTER, .send = send, .recv = recv, .count_elems = count,
                              .send_elems = count, .recv_elems = send == recv ? count : own_elems(comm, count),
                              .dtype = dtype, .redop = (int)redop, .root = -1 });
}

gm_status gm_all_gather(gm_comm *comm, const void *send, void *recv, size_t count, gm_dtype dtype)
{
    return run((struct call){ .comm = comm, .which = GM_ALL_GATHER, .send = send, .recv = recv, .count_elems = count,
                              .send_elems = send == recv ? count : own_elems(comm, count), .recv_elems = count,
                              .dtype = dtype, .redop = -1, .root = -1 });
}

gm_status gm_broadcast(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int root)
{
    return run((struct call){ .comm = comm, .which = GM_BROADCAST, .send = buffer, .recv = buffer, .count_elems = count,
                              .send_elems = count, .recv_elems = count, .dtype = dtype, .redop = -1, .root = root });
}

gm_status gm_barrier(gm_comm *comm)
{
    struct call c = { .comm = comm, .which = GM_BARRIER, .dtype = GM_I32, .redop = -1, .root = -1 };
    return run(c);
}
