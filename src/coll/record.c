#include "coll/record.h"

#include "base/clock.h"
#include "coll/algo.h"
#include "coll/op.h"
#include "trace/trace.h"

/* ---- where it belongs ---------------------------------------------------------------------------- */

static const struct gmi_place nowhere = GMI_NOWHERE;

static bool lies_in(const uint8_t *at, const uint8_t *buffer, size_t n_bytes)
{
    return buffer != NULL && (uintptr_t)at >= (uintptr_t)buffer && (uintptr_t)at < (uintptr_t)buffer + n_bytes;
}

/* What is not the root's holds the own chunk only (op.h). */
static bool holds_own_chunk_only(const struct gmi_op *op, bool is_input)
{
    bool is_root = gmi_op_rank(op) == op->call.root;
    return !is_root && op->call.collective == (is_input ? GM_GATHER : GM_SCATTER);
}

/* Bytes into the whole buffer; -1: it is not part of it. */
static int64_t offset_in(const struct gmi_op *op, const uint8_t *at, bool is_input)
{
    const uint8_t *buffer = is_input ? op->input : op->output;
    int            rank = gmi_op_rank(op);
    size_t         first = 0, n_bytes = gmi_op_bytes(op);
    if (holds_own_chunk_only(op, is_input)) {
        first = gmi_op_chunk_at(op, rank);
        n_bytes = gmi_op_chunk_bytes(op, rank);
    }
    return lies_in(at, buffer, n_bytes) ? (int64_t)(first + (size_t)(at - buffer)) : -1;
}

static int64_t offset_of(const struct gmi_op *op, const uint8_t *at)
{
    int     rank = gmi_op_rank(op);
    int64_t offset = offset_in(op, at, true);
    if (offset < 0) offset = offset_in(op, at, false);
    if (offset < 0 && op->own_output != NULL && lies_in(at, op->own_output, gmi_op_chunk_bytes(op, rank))) {
        offset = (int64_t)gmi_op_chunk_at(op, rank) + (at - op->own_output);
    }
    return offset;
}

/* The chunk that holds these elements; -1: they belong to several. */
static int chunk_of(const struct gmi_op *op, int64_t first_elem, int64_t n_elems)
{
    size_t first = (size_t)first_elem, n_ranks = (size_t)gmi_op_ranks(op);
    size_t base = op->count_elems / n_ranks, longer = op->count_elems % n_ranks * (base + 1);
    size_t chunk = 0;
    if (op->counts == NULL) { /* gmi_chunk_first, turned round */
        chunk = first < longer ? first / (base + 1) : base > 0 ? op->count_elems % n_ranks + (first - longer) / base : 0;
    } else {
        while (chunk + 1 < n_ranks && gmi_op_chunk_at(op, (int)chunk + 1) <= first * op->codec.elem_bytes) chunk++;
    }
    size_t end_bytes = (size_t)(first_elem + n_elems) * op->codec.elem_bytes;
    bool   is_one = end_bytes <= gmi_op_chunk_at(op, (int)chunk) + gmi_op_chunk_bytes(op, (int)chunk);
    return is_one ? (int)chunk : -1;
}

/* Where all ranks lay the buffer out alike. */
static bool has_chunks(const struct gmi_op *op)
{
    return op->call.collective != GM_ALL_TO_ALL || op->call.counts_hash != GMI_COUNTS_BY_PAIR;
}

static bool has_places(const struct gmi_op *op)
{
    return op->call.collective != GM_BARRIER && !gmi_is_message((gm_collective)op->call.collective);
}

/* In a reduce-scatter the output is memory of the algorithm, which may use it for something else. */
static bool is_in_result(const struct gmi_op *op, const uint8_t *at)
{
    return op->call.collective != GM_REDUCE_SCATTER && offset_in(op, at, false) >= 0;
}

static bool is_reduction(const struct gmi_op *op)
{
    gm_collective which = (gm_collective)op->call.collective;
    return which == GM_ALL_REDUCE || which == GM_REDUCE_SCATTER || which == GM_REDUCE;
}

static struct gmi_place place_of(const struct gmi_op *op, enum gmi_direction direction, const uint8_t *memory,
                                 const uint8_t *home)
{
    struct gmi_place place = nowhere;
    const uint8_t   *at = home != NULL ? home : memory;
    place.step = op->step > 0 ? op->step : 0;
    if (!has_places(op)) return place;
    if (direction == GMI_IN && home == NULL && op->call.collective == GM_REDUCE_SCATTER) return place;
    int64_t offset = offset_of(op, at);
    if (offset >= 0) place.first_elem = offset / (int64_t)op->codec.elem_bytes;
    return place;
}

/* ---- transfers ----------------------------------------------------------------------------------- */

static void open_flow(struct gmi_flow *flow, const struct gmi_port *port, enum gmi_direction direction, const void *memory,
                      const void *home, int64_t try_ns)
{
    const struct gmi_op *op = port->op;
    if (flow->seq != port->seq) { /* another call */
        flow->seq = port->seq;
        flow->number = 0;
    }
    flow->begin_ns = try_ns;
    flow->place = place_of(op, direction, memory, home);
    flow->is_added = !is_reduction(op) ? 0 : direction == GMI_OUT ? -1 : home != NULL || !is_in_result(op, memory);
}

static void use_note(struct gmi_flow *flow)
{
    const struct gmi_place *note = &flow->note;
    if (!flow->has_note) return;
    if (note->step >= 0) flow->place.step = note->step;
    if (note->chunk >= 0) flow->place.chunk = note->chunk;
    if (note->first_elem >= 0) flow->place.first_elem = note->first_elem;
    if (note->n_elems >= 0) flow->place.n_elems = note->n_elems;
    if (note->is_added >= 0) flow->is_added = note->is_added;
}

static const char *phase_of(const struct gmi_op *op, const struct gmi_flow *flow)
{
    gm_collective which = (gm_collective)op->call.collective;
    const char   *adding = op->algo->adding_phase, *placing = op->algo->placing_phase;
    if (adding == NULL) adding = which == GM_REDUCE ? "reduce" : "reduce-scatter";
    if (placing == NULL) placing = which == GM_REDUCE ? "gather" : "all-gather";
    switch (which) {
    case GM_ALL_REDUCE:
    case GM_REDUCE:
        if (flow->is_added < 0 && adding != placing) return gm_collective_name(which);
        return flow->is_added > 0 ? adding : placing;
    case GM_REDUCE_SCATTER: return "reduce-scatter";
    case GM_ALL_GATHER: return "all-gather";
    case GM_ALL_TO_ALL: return "all-to-all";
    case GM_SEND:
    case GM_RECV:
    case GM_SENDRECV: return "message";
    default: return gm_collective_name(which);
    }
}

static void close_flow(struct gmi_flow *flow, const struct gmi_port *port, enum gmi_direction direction)
{
    const struct gmi_op *op = port->op;
    use_note(flow);
    struct gmi_place p = flow->place;
    if (has_places(op) && p.first_elem >= 0) {
        if (p.n_elems < 0) p.n_elems = (int64_t)(flow->bytes / op->codec.elem_bytes);
        bool is_within = (size_t)(p.first_elem + p.n_elems) <= op->count_elems;
        if (p.chunk < 0 && has_chunks(op) && is_within) p.chunk = chunk_of(op, p.first_elem, p.n_elems);
    }
    gm_trace_event event = { .kind = direction == GMI_OUT ? GM_TRACE_SEND : GM_TRACE_RECEIVE,
                             .begin_ns = flow->begin_ns,
                             .end_ns = gmi_now_ns(),
                             .name = phase_of(op, flow),
                             .category = op->algo->name,
                             .number = flow->number++,
                             .seq = op->call.seq,
                             .collective = (gm_collective)op->call.collective,
                             .bytes = flow->bytes,
                             .peer = port->peer,
                             .step = p.step,
                             .is_added = flow->is_added > 0,
                             .chunk = p.chunk,
                             .first_elem = p.first_elem,
                             .n_elems = p.n_elems };
    flow->bytes = 0;
    flow->has_note = false;
    gmi_trace_add(op->trace, &event);
}

void gmi_record_moved(struct gmi_port *port, enum gmi_direction direction, const void *memory, const void *home,
                      size_t moved_bytes, size_t left_bytes, int64_t try_ns)
{
    struct gmi_flow *flow = direction == GMI_OUT ? &port->out_flow : &port->in_flow;
    if (flow->bytes == 0 || flow->seq != port->seq) {
        flow->bytes = 0;
        open_flow(flow, port, direction, memory, home, try_ns);
    }
    flow->bytes += moved_bytes;
    if (moved_bytes == left_bytes) close_flow(flow, port, direction);
}

/* ---- calls --------------------------------------------------------------------------------------- */

/* Of those that this rank has heard from in this call, and itself. */
static void find_last(const struct gmi_op *op, gm_trace_event *event)
{
    event->last_rank = gmi_op_rank(op);
    event->last_ns = op->begin_ns;
    for (int k = 0; k < gmi_op_ranks(op); k++) {
        const struct gmi_port *port = &op->group->ports[k];
        if (port->op != op || port->seq != op->call.seq || !port->is_descriptor_matched) continue;
        if (port->peer_arrival_ns <= event->last_ns) continue;
        event->last_rank = k;
        event->last_ns = port->peer_arrival_ns;
    }
}

void gmi_record_call(const struct gmi_op *op, gm_status status)
{
    bool           has_dtype = op->call.collective != GM_BARRIER;
    gm_trace_event event = { .kind = GM_TRACE_CALL,
                             .begin_ns = op->begin_ns,
                             .end_ns = gmi_now_ns(),
                             .name = gm_collective_name((gm_collective)op->call.collective),
                             .category = op->algo->name,
                             .seq = op->call.seq,
                             .collective = (gm_collective)op->call.collective,
                             .bytes = has_dtype ? gmi_op_bytes(op) : 0,
                             .status = status,
                             .dtype = has_dtype ? (gm_dtype)op->call.dtype : GM_DTYPE_END,
                             .count = has_dtype ? op->count_elems : 0,
                             .sent_bytes = op->traffic.payload_sent_bytes,
                             .number = -1 };
    find_last(op, &event);
    gmi_trace_add(op->trace, &event);
}

void gmi_record_alone(struct gmi_trace *trace, const struct gmi_request *r, const struct gmi_algo *algo, int rank,
                      uint64_t seq, int64_t begin_ns)
{
    bool           has_dtype = r->which != GM_BARRIER;
    gm_trace_event event = { .kind = GM_TRACE_CALL,
                             .begin_ns = begin_ns,
                             .end_ns = gmi_now_ns(),
                             .name = gm_collective_name(r->which),
                             .category = algo->name,
                             .seq = seq,
                             .collective = r->which,
                             .bytes = r->count_elems * r->codec.elem_bytes,
                             .status = GM_OK,
                             .dtype = has_dtype ? r->dtype : GM_DTYPE_END,
                             .count = has_dtype ? r->count_elems : 0,
                             .last_rank = rank,
                             .last_ns = begin_ns,
                             .number = -1 };
    if (trace != NULL) gmi_trace_add(trace, &event);
}
