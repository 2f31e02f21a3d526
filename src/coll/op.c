#include "coll/op.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coll/algo.h"

/* ---- from a request to an op -------------------------------------------------------------------- */

enum { NONE_ON_THE_WIRE = 0xff };

gm_status gmi_request_choose_codec(struct gmi_request *r)
{
    if (r->which == GM_BARRIER) {
        r->codec = gmi_codec_mover(1);
        return GM_OK;
    }
    if (gmi_request_is_reduction(r) && r->user_op.fn != NULL) return gmi_codec_find_user(&r->codec, r->dtype, &r->user_op);
    if (gmi_request_is_reduction(r)) return gmi_codec_find(&r->codec, r->dtype, (gm_redop)r->redop);
    if (gm_dtype_bytes(r->dtype) == 0) return GM_ERR_ARG;
    r->codec = gmi_codec_mover(gm_dtype_bytes(r->dtype));
    return GM_OK;
}

size_t gmi_op_work_bytes(const struct gmi_request *r, const struct gmi_algo *algo, int n_ranks)
{
    if (algo->work_bytes == NULL) return 0;
    return algo->work_bytes(n_ranks, r->count_elems, r->codec.elem_bytes, gmi_request_is_in_place(r));
}

static void describe(struct gmi_op *op, const struct gmi_request *r, uint64_t seq)
{
    op->call = (struct gmi_descriptor){
        .collective = (uint8_t)r->which,
        .algorithm = op->algo->id,
        .dtype = r->which == GM_BARRIER ? NONE_ON_THE_WIRE : (uint8_t)r->dtype,
        .redop = gmi_request_is_reduction(r) ? (uint8_t)r->redop : NONE_ON_THE_WIRE,
        .codec = r->codec.id,
        .root = r->root,
        .epoch = op->group->epoch,
        .group = op->group->id,
        .seq = seq,
        .count_elems = r->count_elems,
        .piece_bytes = GMI_PIECE_BYTES,
        .rank = op->group->rank,
        .arrival_ns = op->begin_ns,
    };
}

/* The caller's buffers as the algorithms see them: all chunks in rank order. */
static void place_buffers(struct gmi_op *op, const struct gmi_request *r)
{
    op->input = r->send;
    op->output = r->recv;
    op->own_output = NULL;
    if (gmi_request_is_in_place(r)) return;
    if (r->which == GM_REDUCE_SCATTER) {
        op->output = op->work;
        op->own_output = r->recv;
    }
    if (r->which == GM_ALL_GATHER) {
        size_t own_bytes = gmi_op_chunk_bytes(op, gmi_op_rank(op));
        if (own_bytes > 0) memcpy(op->output + gmi_op_chunk_at(op, gmi_op_rank(op)), r->send, own_bytes);
    }
}

void gmi_op_describe(struct gmi_op *op, const struct gmi_algo *algo, const struct gmi_request *request,
                     uint64_t seq)
{
    GMI_CHECK(gmi_algo_serves(algo, request->codec.needs));
    op->begin_ns = gmi_now_ns();
    op->algo = algo;
    op->codec = request->codec;
    op->count_elems = request->count_elems;
    op->step = -1;
    op->n_steps = 0;
    op->moved_bytes = op->total_recv_bytes = 0;
    op->traffic = (gm_traffic){ .calls = 1 };
    op->waits_for_recv = op->waits_for_send = -1;
    op->trouble = (struct gmi_trouble){ .status = GM_OK, .peer = -1 };
    describe(op, request, seq);
}

void gmi_op_set_up(struct gmi_op *op, const struct gmi_algo *algo, const struct gmi_request *request,
                   uint64_t seq)
{
    gmi_op_describe(op, algo, request, seq);
    place_buffers(op, request);
}

/* ---- the life of an op -------------------------------------------------------------------------- */

struct gmi_port *gmi_op_neighbour(const struct gmi_op *op, int distance)
{
    int n = op->group->n_ranks;
    int peer = (op->group->rank + distance) % n;
    return &op->group->ports[peer < 0 ? peer + n : peer];
}

void gmi_op_begin(struct gmi_op *op) { op->algo->begin(op); }

gm_status gmi_op_progress(struct gmi_op *op) { return op->algo->progress(op); }

void gmi_op_interest(struct gmi_op *op, struct gmi_poller *poller)
{
    op->waits_for_recv = op->waits_for_send = -1;
    op->algo->interest(op, poller);
}

int gmi_op_waits_for(const struct gmi_op *op)
{
    return op->waits_for_recv >= 0 ? op->waits_for_recv : op->waits_for_send;
}

/* ---- what stops it ------------------------------------------------------------------------------ */

static gm_status keep_first(struct gmi_op *op, struct gmi_trouble trouble)
{
    if (op->trouble.status == GM_OK) op->trouble = trouble;
    return op->trouble.status;
}

gm_status gmi_op_link_broke(struct gmi_op *op, const struct gmi_port *port)
{
    return keep_first(op, (struct gmi_trouble){ .status = GM_ERR_PEER_LOST,
                                                .peer = port->peer,
                                                .sys_errno = port->link->sys_errno,
                                                .what = "closed the connection" });
}

gm_status gmi_op_bad_bytes(struct gmi_op *op, const struct gmi_port *port, const char *what)
{
    return keep_first(op, (struct gmi_trouble){ .status = GM_ERR_PROTOCOL, .peer = port->peer, .what = what });
}

gm_status gmi_op_mismatch(struct gmi_op *op, const struct gmi_port *port,
                          const struct gmi_descriptor *theirs)
{
    return keep_first(op, (struct gmi_trouble){ .status = GM_ERR_MISMATCH,
                                                .peer = port->peer,
                                                .has_theirs = true,
                                                .theirs = *theirs,
                                                .what = "calls something else" });
}
