/* lean.c - all-reduce and reduce-scatter of f32 in a lean format: direct, and every number rounded twice at most.
 *
 *     reduce-scatter    rank r encodes chunk j of its buffer and sends it to rank j, for all j. The owner decodes
 *                       the N contributions to its chunk (its own was encoded too) and adds them up in f32, in the
 *                       order of ranks 0, 1, ..., N-1
 *     all-gather        the owner encodes the sum once and sends the same bytes to all; everybody, the owner too,
 *                       ends with what these bytes decode to: identical bits on all ranks
 *
 * A ring would encode each partial sum again, N - 1 times; here the error is that of two roundings whatever N. In
 * the end of a reduce-scatter the sum stays with its owner, so there it is one.
 *
 * Nothing waits for a whole chunk. Chunks are cut into slabs that fit into the second-level cache:
 *
 *     to peer p     [ slab being sent ]                               encoded when the one before has left
 *     from peer p   [ slab ][ slab ][ slab ][ slab ]                  a window: arrived, not yet settled
 *     own chunk     [ encoded sum, as far as it is settled ........ ] goes to all from there
 *
 *     1. A slab is settled (decoded, added, encoded) as soon as all N - 1 contributions to it are here.
 *     2. A peer may be ahead of the slowest by the window; what it sends beyond stays in the links.
 *     3. On each link all of our contribution goes first, then our part of the sum.
 *     4. In place, a slab of a finished chunk is written over our own values only after these were encoded: the
 *        sum contains them, so its owner had them.
 *
 * It cannot freeze: the slowest peer's window is never full, so its bytes can always be taken in, and settling is
 * local.
 *
 * The slabs of one rank are its own business: they are whole blocks of the format, so their encodings one behind
 * the other are the encoding of the chunk (reduce/wire.h).
 *
 * Cost: two latencies, N - 1 peers; what the direct algorithm sends, in the bytes of the format: the encodings of
 * all chunks but the own one, and N - 1 times that of the own one. */
#include "coll/lean.h"

#include "base/check.h"
#include "net/poller.h"

enum { SLAB_ELEMS = 32 * 1024, WINDOW_SLABS = 4, STRIP_ELEMS = 2048, ALIGNMENT = 64 };

enum phase { CONTRIBUTION, SUM, OVER };

/* One direction of the link to a peer: a contribution and then, in an all-reduce, a sum. */
struct way {
    enum phase phase;
    size_t     at_bytes; /* into the encoding of this phase */
    size_t     n_slabs;  /* in: that have come whole, of both phases. out: n of this phase that are encoded */
};

struct side {
    struct gmi_port *port;
    int              peer;
    struct way       out, in;
    uint8_t         *leaving; /* a slab */
    uint8_t         *window;  /* WINDOW_SLABS of them */
};

struct lean {
    struct gmi_op         *op;
    const struct gmi_wire *wire;
    struct side           *sides; /* by distance: [0] is the right neighbour */
    int                    n_sides;
    bool                   has_sum_phase; /* an all-reduce */
    size_t                 slab_elems, slab_bytes;
    size_t                 n_own_slabs, n_settled_slabs; /* of the own chunk */
    uint8_t               *own_slab, *own_sum; /* our contribution to a slab; the encoded sum of the own chunk */
    size_t                 own_sum_bytes;      /* as far as it is settled */
};
_Static_assert(sizeof(struct lean) <= GMI_OP_STATE_BYTES, "the state fits into an op");

static struct lean *lean_of(struct gmi_op *op) { return (struct lean *)op->state; }

/* ---- measures ------------------------------------------------------------------------------------ */

static size_t elems_of(const struct lean *l, int chunk) { return gmi_op_chunk_bytes(l->op, chunk) / sizeof(float); }
static size_t lean_bytes_of(const struct lean *l, int chunk) { return gmi_wire_bytes(l->wire, elems_of(l, chunk)); }
static size_t own_elems(const struct lean *l) { return elems_of(l, gmi_op_rank(l->op)); }

static const float *input_of(const struct lean *l, int chunk)
{
    return (const float *)(const void *)(l->op->input + gmi_op_chunk_at(l->op, chunk));
}

static float *output_of(const struct lean *l, int chunk)
{
    bool is_own_apart = chunk == gmi_op_rank(l->op) && l->op->own_output != NULL;
    return (float *)(void *)(is_own_apart ? l->op->own_output : l->op->output + gmi_op_chunk_at(l->op, chunk));
}

/* Elements of a slab of a chunk of so many. */
static size_t slab_length(const struct lean *l, size_t chunk_elems, size_t slab)
{
    return gmi_min_size(l->slab_elems, chunk_elems - slab * l->slab_elems);
}

static size_t n_slabs_of(const struct lean *l, size_t chunk_elems) { return (chunk_elems + l->slab_elems - 1) / l->slab_elems; }

/* ---- memory -------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t longest_chunk(const struct gmi_shape *s)
{
    size_t longest = 0;
    for (int k = 0; k < s->n_ranks; k++) {
        size_t elems = gmi_shape_chunk_bytes(s, k) / s->elem_bytes;
        longest = elems > longest ? elems : longest;
    }
    return longest;
}

static size_t slab_elems_for(const struct gmi_wire *wire, size_t longest_chunk_elems)
{
    return gmi_min_size(SLAB_ELEMS, round_up(longest_chunk_elems + (longest_chunk_elems == 0), wire->block_elems));
}

static size_t slab_room(const struct gmi_wire *wire, size_t slab_elems)
{
    return round_up(gmi_wire_bytes(wire, slab_elems), ALIGNMENT);
}

/* sides | own sum | own slab | of each side: leaving, window */
static size_t work_bytes(const struct gmi_shape *s)
{
    size_t room = slab_room(s->wire, slab_elems_for(s->wire, longest_chunk(s)));
    size_t sides = round_up((size_t)(s->n_ranks - 1) * sizeof(struct side), ALIGNMENT);
    size_t own = round_up(gmi_wire_bytes(s->wire, gmi_shape_own_bytes(s) / s->elem_bytes), ALIGNMENT);
    return ALIGNMENT + sides + own + room + (size_t)(s->n_ranks - 1) * (1 + WINDOW_SLABS) * room;
}

static uint8_t *take(uint8_t **free_bytes, size_t n_bytes)
{
    uint8_t *taken = *free_bytes;
    *free_bytes += round_up(n_bytes, ALIGNMENT);
    return taken;
}

static void lay_out(struct lean *l)
{
    size_t   room = slab_room(l->wire, l->slab_elems);
    uint8_t *at = l->op->work + (ALIGNMENT - (uintptr_t)l->op->work % ALIGNMENT) % ALIGNMENT;
    l->sides = (struct side *)(void *)take(&at, (size_t)l->n_sides * sizeof *l->sides);
    l->own_sum = take(&at, lean_bytes_of(l, gmi_op_rank(l->op)));
    l->own_slab = take(&at, room);
    for (int i = 0; i < l->n_sides; i++) {
        l->sides[i] = (struct side){ .leaving = take(&at, room) };
        l->sides[i].window = take(&at, WINDOW_SLABS * room);
    }
}

/* ---- settling ------------------------------------------------------------------------------------ */

static uint8_t *window_slot(const struct lean *l, const struct side *side, size_t slab)
{
    return side->window + slab % WINDOW_SLABS * slab_room(l->wire, l->slab_elems);
}

/* The contribution of a rank to a slab of ours, encoded. */
static const uint8_t *contribution(const struct lean *l, int rank, size_t slab)
{
    int n = gmi_op_ranks(l->op), own = gmi_op_rank(l->op);
    return rank == own ? l->own_slab : window_slot(l, &l->sides[(rank - own + n) % n - 1], slab);
}

/* A strip of sums stays in the first-level cache while the contributions go by. */
static void sum_up(const struct lean *l, float *sum, size_t slab, size_t n_elems)
{
    for (size_t at = 0; at < n_elems; at += STRIP_ELEMS) {
        size_t here = gmi_min_size(STRIP_ELEMS, n_elems - at), at_bytes = gmi_wire_bytes(l->wire, at);
        l->wire->decode(sum + at, contribution(l, 0, slab) + at_bytes, here);
        for (int k = 1; k < gmi_op_ranks(l->op); k++) {
            l->wire->add(sum + at, contribution(l, k, slab) + at_bytes, here);
        }
    }
    if (l->op->codec.finish != NULL) l->op->codec.finish(sum, n_elems, gmi_op_ranks(l->op));
    if (!l->has_sum_phase) l->op->codec.canonicalize(sum, n_elems);
}

static void settle_slab(struct lean *l, size_t slab)
{
    int    own = gmi_op_rank(l->op);
    size_t n_elems = slab_length(l, own_elems(l), slab);
    float *sum = output_of(l, own) + slab * l->slab_elems;
    l->wire->encode(l->own_slab, input_of(l, own) + slab * l->slab_elems, n_elems);
    sum_up(l, sum, slab, n_elems);
    if (!l->has_sum_phase) return;
    uint8_t *encoded = l->own_sum + slab * l->slab_bytes;
    l->wire->encode(encoded, sum, n_elems);
    l->wire->decode(sum, encoded, n_elems);
    l->own_sum_bytes = slab * l->slab_bytes + gmi_wire_bytes(l->wire, n_elems);
}

static bool has_come_from_all(const struct lean *l, size_t slab)
{
    for (int i = 0; i < l->n_sides; i++) {
        if (l->sides[i].in.n_slabs <= slab) return false;
    }
    return true;
}

static void settle_what_is_complete(struct lean *l)
{
    while (l->n_settled_slabs < l->n_own_slabs && has_come_from_all(l, l->n_settled_slabs)) {
        settle_slab(l, l->n_settled_slabs++);
    }
}

/* For the trace: what is encoded does not show where it belongs. */
static void note(const struct lean *l, struct gmi_flow *flow, int phase, int chunk)
{
    struct gmi_place place = { .step = phase == SUM, .chunk = chunk, .is_added = phase == CONTRIBUTION };
    place.first_elem = (int64_t)(gmi_op_chunk_at(l->op, chunk) / l->op->codec.elem_bytes);
    place.n_elems = (int64_t)elems_of(l, chunk);
    gmi_record_note(flow, place);
}

/* ---- sending ------------------------------------------------------------------------------------- */

static size_t leaving_bytes(const struct lean *l, const struct side *side)
{
    if (side->out.phase == OVER) return 0;
    return lean_bytes_of(l, side->out.phase == CONTRIBUTION ? side->peer : gmi_op_rank(l->op)) - side->out.at_bytes;
}

/* Moves on when a phase is done; also over those that have nothing. */
static void end_phases_out(const struct lean *l, struct side *side)
{
    while (side->out.phase != OVER && leaving_bytes(l, side) == 0) {
        side->out.phase = side->out.phase == CONTRIBUTION && l->has_sum_phase ? SUM : OVER;
        side->out.at_bytes = 0;
    }
}

static void encode_next_slab(const struct lean *l, struct side *side)
{
    size_t slab = side->out.n_slabs++;
    l->wire->encode(side->leaving, input_of(l, side->peer) + slab * l->slab_elems,
                    slab_length(l, elems_of(l, side->peer), slab));
}

/* What can leave now. */
static size_t ready_bytes(const struct lean *l, const struct side *side)
{
    if (side->out.phase == OVER) return 0;
    if (side->out.phase == SUM) return l->own_sum_bytes - side->out.at_bytes;
    return gmi_min_size(leaving_bytes(l, side), l->slab_bytes - side->out.at_bytes % l->slab_bytes);
}

static bool wants_to_send(const struct lean *l, const struct side *side)
{
    return ready_bytes(l, side) > 0 || !side->port->is_descriptor_sent;
}

static gm_status send_some(struct lean *l, struct side *side)
{
    const uint8_t *from = l->own_sum + side->out.at_bytes;
    size_t         sent_bytes, in_slab_bytes = side->out.at_bytes % l->slab_bytes;
    if (side->out.phase == CONTRIBUTION) {
        if (side->out.at_bytes / l->slab_bytes == side->out.n_slabs) encode_next_slab(l, side);
        from = side->leaving + in_slab_bytes;
    }
    if (l->op->trace != NULL && side->out.phase != OVER)
        note(l, &side->port->out_flow, side->out.phase, side->out.phase == CONTRIBUTION ? side->peer : gmi_op_rank(l->op));
    gm_status status = gmi_port_send_some(side->port, from, ready_bytes(l, side), leaving_bytes(l, side), &sent_bytes);
    side->out.at_bytes += sent_bytes;
    end_phases_out(l, side);
    return status;
}

/* ---- receiving ----------------------------------------------------------------------------------- */

static int arriving_chunk(const struct lean *l, const struct side *side)
{
    return side->in.phase == CONTRIBUTION ? gmi_op_rank(l->op) : side->peer;
}

static size_t arriving_bytes(const struct lean *l, const struct side *side)
{
    return side->in.phase == OVER ? 0 : lean_bytes_of(l, arriving_chunk(l, side)) - side->in.at_bytes;
}

static void end_phases_in(const struct lean *l, struct side *side)
{
    while (side->in.phase != OVER && arriving_bytes(l, side) == 0) {
        side->in.phase = side->in.phase == CONTRIBUTION && l->has_sum_phase ? SUM : OVER;
        side->in.at_bytes = 0;
    }
}

/* Is there a slot for the slab that comes next? Those of contributions that are not settled are taken. */
static bool has_room(const struct lean *l, const struct side *side)
{
    return l->n_settled_slabs == l->n_own_slabs || side->in.n_slabs < l->n_settled_slabs + WINDOW_SLABS;
}

static bool wants_to_recv(const struct lean *l, const struct side *side)
{
    return !side->port->is_descriptor_matched || (arriving_bytes(l, side) > 0 && has_room(l, side));
}

/* A slab has come whole: it waits for the others, or it is part of the result. */
static void take_slab(struct lean *l, struct side *side, size_t slab)
{
    if (side->in.phase == SUM) {
        l->wire->decode(output_of(l, side->peer) + slab * l->slab_elems, window_slot(l, side, side->in.n_slabs),
                        slab_length(l, elems_of(l, side->peer), slab));
    }
    side->in.n_slabs++;
}

static gm_status recv_some(struct lean *l, struct side *side)
{
    size_t at_bytes = side->in.at_bytes, left_bytes = arriving_bytes(l, side), got_bytes;
    size_t in_slab_bytes = at_bytes % l->slab_bytes;
    size_t space_bytes = gmi_min_size(left_bytes, l->slab_bytes - in_slab_bytes);
    uint8_t  *into = window_slot(l, side, side->in.n_slabs) + in_slab_bytes;
    if (l->op->trace != NULL && side->in.phase != OVER) note(l, &side->port->in_flow, side->in.phase, arriving_chunk(l, side));
    gm_status status = gmi_port_recv_some(side->port, into, space_bytes, left_bytes, &got_bytes);
    if (got_bytes == 0) return status;
    side->in.at_bytes += got_bytes;
    if (got_bytes == space_bytes) {
        take_slab(l, side, at_bytes / l->slab_bytes);
        end_phases_in(l, side);
        settle_what_is_complete(l);
    }
    return status;
}

/* ---- the machine --------------------------------------------------------------------------------- */

static void begin_side(struct lean *l, int index)
{
    struct side *side = &l->sides[index];
    side->port = gmi_op_neighbour(l->op, index + 1);
    side->peer = side->port->peer;
    gmi_port_begin(side->port, l->op);
    l->op->total_recv_bytes += lean_bytes_of(l, gmi_op_rank(l->op));
    if (l->has_sum_phase) l->op->total_recv_bytes += lean_bytes_of(l, side->peer);
    end_phases_out(l, side);
    end_phases_in(l, side);
}

static void begin(struct gmi_op *op)
{
    struct lean *l = lean_of(op);
    GMI_CHECK(op->codec.wire != NULL);
    *l = (struct lean){ .op = op,
                        .wire = op->codec.wire,
                        .n_sides = gmi_op_ranks(op) - 1,
                        .has_sum_phase = op->call.collective == GM_ALL_REDUCE };
    struct gmi_shape shape = { .n_ranks = gmi_op_ranks(op), .count_elems = op->count_elems,
                               .elem_bytes = op->codec.elem_bytes, .counts = op->counts };
    l->slab_elems = slab_elems_for(l->wire, longest_chunk(&shape));
    l->slab_bytes = gmi_wire_bytes(l->wire, l->slab_elems);
    l->n_own_slabs = n_slabs_of(l, own_elems(l));
    lay_out(l);
    op->n_steps = l->has_sum_phase ? 2 : 1;
    op->step = 0;
    for (int i = 0; i < l->n_sides; i++) begin_side(l, i);
}

static bool is_over(const struct side *side)
{
    return side->out.phase == OVER && side->in.phase == OVER && side->port->is_descriptor_sent &&
           side->port->is_descriptor_matched && gmi_port_is_flushed(side->port);
}

static gm_status move_side(struct lean *l, struct side *side)
{
    gm_status status = wants_to_send(l, side) ? send_some(l, side) : GM_OK;
    return status == GM_OK && wants_to_recv(l, side) ? recv_some(l, side) : status;
}

static gm_status progress(struct gmi_op *op)
{
    struct lean *l = lean_of(op);
    for (;;) {
        uint64_t before_bytes = op->moved_bytes;
        bool     are_all_over = l->n_settled_slabs == l->n_own_slabs;
        for (int i = 0; i < l->n_sides; i++) {
            gm_status status = move_side(l, &l->sides[i]);
            if (status != GM_OK) return status;
            are_all_over = are_all_over && is_over(&l->sides[i]);
        }
        if (l->n_settled_slabs == l->n_own_slabs) op->step = op->n_steps - 1;
        if (are_all_over) return GM_OK;
        if (op->moved_bytes == before_bytes) return GM_AGAIN;
    }
}

static void interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct lean *l = lean_of(op);
    for (int i = l->n_sides - 1; i >= 0; i--) { /* the first one that is missing is who we wait for */
        struct side *side = &l->sides[i];
        if (wants_to_send(l, side)) gmi_port_watch(side->port, poller, GMI_WRITABLE);
        if (wants_to_recv(l, side)) gmi_port_watch(side->port, poller, GMI_READABLE);
    }
}

/* ---- the rows ------------------------------------------------------------------------------------ */

static uint64_t lean_chunk_bytes(const struct gmi_shape *s, int chunk)
{
    return gmi_wire_bytes(s->wire, gmi_shape_chunk_bytes(s, chunk) / s->elem_bytes);
}

static uint64_t reduce_scatter_bytes(const struct gmi_shape *s)
{
    uint64_t bytes = 0;
    for (int k = 0; k < s->n_ranks; k++) {
        if (k != s->rank) bytes += lean_chunk_bytes(s, k);
    }
    return bytes;
}

static uint64_t all_reduce_bytes(const struct gmi_shape *s)
{
    return reduce_scatter_bytes(s) + lean_chunk_bytes(s, s->rank) * (uint64_t)(s->n_ranks - 1);
}

/* Bytes are those of the format, about half; every number is encoded and decoded besides. */
static struct gmi_effort once(int n_ranks, double bytes)
{
    double moved = bytes / 2 * (n_ranks - 1) / n_ranks;
    return (struct gmi_effort){ .turns = 1, .messages = n_ranks - 1, .all_messages = n_ranks * (n_ranks - 1),
                                .sent_bytes = moved, .recv_bytes = moved, .all_bytes = moved * n_ranks,
                                .reduced_bytes = 2 * moved };
}

static struct gmi_effort reduce_scatter_effort(int n_ranks, double bytes) { return once(n_ranks, bytes); }
static struct gmi_effort all_reduce_effort(int n_ranks, double bytes)
{
    return gmi_effort_sum(once(n_ranks, bytes), once(n_ranks, bytes));
}

#define LEAN_ROW                                                                                   \
    .id = GMI_ALGO_LEAN, .name = "lean", .shows = GMI_VIEW_LEAN, .begin = begin, .progress = progress, \
    .interest = interest, .peers = gmi_all_peers, .work_bytes = work_bytes

const struct gmi_algo gmi_lean_all_reduce = {
    LEAN_ROW,
    .collective = GM_ALL_REDUCE,
    .summary = "for lean wire formats: chunks straight to their owners, sums straight to all, each encoded once",
    .payload_sent_bytes = all_reduce_bytes,
    .effort = all_reduce_effort,
};
const struct gmi_algo gmi_lean_reduce_scatter = {
    LEAN_ROW,
    .collective = GM_REDUCE_SCATTER,
    .summary = "for lean wire formats: chunks straight to their owners, encoded",
    .payload_sent_bytes = reduce_scatter_bytes,
    .effort = reduce_scatter_effort,
};
