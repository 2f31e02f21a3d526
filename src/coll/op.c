#include "coll/op.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coll/algo.h"
#include "coll/message.h"
#include "reduce/accumulator.h"
#include "trace/trace.h"

/* ---- from a request to an op -------------------------------------------------------------------- */

enum { NONE_ON_THE_WIRE = 0xff };

gm_status gmi_request_choose_codec(struct gmi_request *r)
{
    if (r->which == GM_BARRIER) {
        r->codec = gmi_codec_mover(1);
        return GM_OK;
    }
    if (gmi_request_is_reduction(r) && r->redop == GM_SUM_EXACT) {
        if (r->which != GM_ALL_REDUCE || r->dtype != GM_F32) return GM_ERR_UNSUPPORTED;
        r->codec = gmi_codec_exact();
        return GM_OK;
    }
    if (gmi_request_is_reduction(r) && r->user_op.fn != NULL) return gmi_codec_find_user(&r->codec, r->dtype, &r->user_op);
    if (gmi_request_is_reduction(r)) {
        gm_status status = gmi_codec_find(&r->codec, r->dtype, (gm_redop)r->redop);
        if (status == GM_OK && r->which != GM_REDUCE) gmi_codec_make_lean(&r->codec, (gm_redop)r->redop, r->wire);
        return status;
    }
    if (gm_dtype_bytes(r->dtype) == 0) return GM_ERR_ARG;
    r->codec = gmi_codec_mover(gm_dtype_bytes(r->dtype));
    return GM_OK;
}

struct gmi_shape gmi_request_shape(const struct gmi_request *r, const struct gmi_group *group)
{
    return (struct gmi_shape){ .rank = group->rank, .n_ranks = group->n_ranks, .layout = &group->layout, .root = r->root, .count_elems = r->count_elems,
                               .elem_bytes = r->codec.elem_bytes, .counts = r->counts,
                               .is_in_place = gmi_request_is_in_place(r), .wire = r->codec.wire };
}

size_t gmi_op_work_bytes(const struct gmi_request *r, const struct gmi_algo *algo, const struct gmi_group *group)
{
    struct gmi_shape shape = gmi_request_shape(r, group);
    return algo->work_bytes == NULL ? 0 : algo->work_bytes(&shape);
}

/* FNV-1a over the sizes; no number that means something else. */
static uint32_t hash_counts(const size_t *counts, int n_ranks)
{
    uint32_t h = UINT32_C(2166136261);
    for (int k = 0; k < n_ranks; k++) {
        uint8_t bytes[8];
        gmi_put_u64(bytes, counts[k]);
        for (size_t i = 0; i < sizeof bytes; i++) h = (h ^ bytes[i]) * UINT32_C(16777619);
    }
    return h > GMI_COUNTS_BY_PAIR ? h : h + 2;
}

/* In an all-to-all each pair of ranks has a count of its own, or all have the same one. */
static bool has_counts_by_pair(const struct gmi_request *r) { return r->which == GM_ALL_TO_ALL && r->counts != NULL; }

size_t gmi_request_size_for_choice(const struct gmi_request *r)
{
    return has_counts_by_pair(r) ? SIZE_MAX : r->count_elems * r->codec.elem_bytes; /* others' counts are not known here */
}

static uint64_t count_for_all(const struct gmi_request *r, int n_ranks)
{
    if (has_counts_by_pair(r)) return 0;
    return r->which == GM_ALL_TO_ALL ? r->count_elems / (size_t)n_ranks : r->count_elems;
}

static uint32_t counts_for_all(const struct gmi_request *r, int n_ranks)
{
    if (has_counts_by_pair(r)) return GMI_COUNTS_BY_PAIR;
    return r->counts != NULL ? hash_counts(r->counts, n_ranks) : 0;
}

/* Accumulators that differ in these cannot be added up. */
static void describe_exact(struct gmi_op *op, const struct gmi_request *r)
{
    op->call.n_shards = (uint16_t)(r->exact != NULL ? r->exact->options.n_shards : gmi_op_ranks(op));
    op->call.quantum_exponent = (int8_t)(r->exact != NULL ? r->exact->options.quantum_exponent : GMI_DEFAULT_QUANTUM);
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
        .count_elems = count_for_all(r, gmi_op_ranks(op)),
        .counts_hash = counts_for_all(r, gmi_op_ranks(op)),
        .piece_bytes = GMI_PIECE_BYTES,
        .rank = op->group->rank,
        .arrival_ns = op->begin_ns,
    };
    if (r->codec.id == GMI_CODEC_EXACT) describe_exact(op, r);
}

static struct gmi_descriptor call_of_pair(const struct gmi_op *op, const size_t *counts, int peer)
{
    struct gmi_descriptor call = op->call;
    if (call.counts_hash == GMI_COUNTS_BY_PAIR) call.count_elems = counts[peer];
    return call;
}

struct gmi_descriptor gmi_op_call_to(const struct gmi_op *op, int peer) { return call_of_pair(op, op->counts, peer); }
struct gmi_descriptor gmi_op_call_from(const struct gmi_op *op, int peer)
{
    return call_of_pair(op, op->recv_counts, peer);
}

static void copy(void *to, const void *from, size_t n_bytes)
{
    if (n_bytes > 0) memcpy(to, from, n_bytes);
}

/* The caller's buffers as the algorithms see them; op.h. What a rank gives to itself is copied here. */
static void place_buffers(struct gmi_op *op, const struct gmi_request *r)
{
    int    rank = gmi_op_rank(op);
    bool   is_root = rank == r->root, is_in_place = gmi_request_is_in_place(r);
    size_t own_at = gmi_op_chunk_at(op, rank), own_bytes = gmi_op_chunk_bytes(op, rank);
    op->input = r->send;
    op->output = r->recv;
    op->own_output = NULL;
    if (r->which == GM_ALL_TO_ALL) {
        if (is_in_place) { /* what arrives must not overwrite what has not left */
            copy(op->work, r->send, gmi_op_bytes(op));
            op->input = op->work;
        }
        copy(op->output + gmi_op_arrival_at(op, rank), op->input + own_at, own_bytes);
    } else if (is_in_place) {
        return;
    } else if (r->which == GM_REDUCE_SCATTER) {
        op->output = op->work;
        op->own_output = r->recv;
    } else if (r->which == GM_ALL_GATHER || (r->which == GM_GATHER && is_root)) {
        copy(op->output + own_at, r->send, own_bytes);
    } else if (r->which == GM_SCATTER && is_root) {
        copy(r->recv, op->input + own_at, own_bytes);
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
    op->trace = gmi_trace_of(op->group->trace);
    op->waits_for_recv = op->waits_for_send = -1;
    op->trouble = (struct gmi_trouble){ .status = GM_OK, .peer = -1 };
    op->part_bytes = gmi_part_bytes(op->group);
    op->counts = request->counts;
    op->recv_counts = request->recv_counts;
    op->message = request->message;
    op->exact = request->exact;
    describe(op, request, seq);
    if (gmi_is_message(request->which)) gmi_message_describe(op);
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
    return gmi_group_port(op->group, peer < 0 ? peer + n : peer);
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

gm_status gmi_op_corrupt(struct gmi_op *op, const struct gmi_port *port)
{
    return keep_first(op, (struct gmi_trouble){ .status = GM_ERR_CORRUPT, .peer = port->peer, .what = "sent bytes that arrived changed" });
}

gm_status gmi_op_no_memory(struct gmi_op *op)
{
    struct gmi_trouble trouble = { .status = GM_ERR_NOMEM, .peer = gmi_op_rank(op), .what = "has no memory for what arrives" };
    return keep_first(op, trouble);
}

gm_status gmi_op_wrong_shard(struct gmi_op *op, int peer, int shard, int n_shards, const char *what)
{
    struct gmi_trouble trouble = { .status = GM_ERR_MISMATCH, .peer = peer };
    snprintf(trouble.sentence, sizeof trouble.sentence, "shard %d of %d %s", shard, n_shards, what);
    return keep_first(op, trouble);
}

gm_status gmi_op_mismatch(struct gmi_op *op, const struct gmi_port *port, const struct gmi_descriptor *theirs,
                          const struct gmi_descriptor *ours)
{
    return keep_first(op, (struct gmi_trouble){ .status = GM_ERR_MISMATCH,
                                                .peer = port->peer,
                                                .has_theirs = true,
                                                .theirs = *theirs,
                                                .ours = *ours,
                                                .what = "calls something else" });
}
