/* hierarchical.c - all-reduce where several ranks share a host: inside the hosts first, then between them.
 *
 * The buffer is cut into L slices, L the number of ranks of the host that has fewest. On each host the rank whose place
 * is l owns slice l: it adds up what its host has to say to it, goes around a ring with the owners of slice l on the
 * other hosts, and tells its host the result. So every byte crosses the network as few times as can be, and all owners
 * carry equal parts. Ranks whose place is L or higher own nothing.
 *
 *        host 0: ranks 0 1               host 1: ranks 2 3 4          L = 2
 *
 *        0 <------ 1   slice 0           2 <--- 3, 4              give: every rank, to every owner on its host
 *        0 <------------ its ring -----> 2                        as in ring.c, over the hosts
 *        0 ------> 1                     2 ---> 3, 4              tell: every owner, to every rank on its host
 *                              (and slice 1 the same way, with 1 and 3 as owners, at the same time)
 *
 * A slice is cut into H blocks, one for each host. On host h they go through everything in the order of ring.c's
 * chunks: at position p of its *walk* stands block (h - 1 - p) mod H.
 *
 *     position     0 ... H-2   H-1             H ... 2H-2
 *     give, take   our host's partial sums
 *     ring, in          the hosts' partial sums  finished blocks
 *     ring, out    0 ................ 2H-3
 *     tell, hear               finished blocks: from H-1
 *
 * Nothing waits for the end of a phase: every stream has a cursor, and a byte may go on as soon as the cursor before
 * it has passed. In an owner (m other ranks on its host):
 *
 *     input -> take[0] -> take[1] -> ... -> take[m-1] -> ring in -> tell[0], ..., tell[m-1]
 *                                                 \-> ring out (position 0)  \-> ring out (others)
 *
 *     1. take[k] adds to what take[k-1] has settled, and the ring to what take[m-1] has settled: so the order of a sum
 *        is fixed. It is computed by one rank and copied to the others: all have the same bits.
 *     2. On each link our contribution to the slice of its other end comes first, then what we tell of ours.
 *     3. In place, a finished value is written over our own only after that was sent: it contains it.
 *
 * It cannot freeze: contributions depend on nothing, so they all flow, and then each slice is a ring, and what is told
 * is taken at any time.
 *
 * Neighbours in the ring of all ranks greet each other, as in rounds.h.
 *
 * Cost: with a slice of D/L bytes an owner sends D - D/L (give) + m D/L (tell) inside its host and 2 (H-1)/H D/L to the
 * next host. So a host sends 2 D (H-1)/H over the network, however many ranks it has; the flat ring sends 2 D (N-1)/N
 * at best, and as many times that as its ranks have neighbours on other hosts. */
#include "coll/hierarchical.h"

#include <limits.h>

#include "base/check.h"
#include "coll/intake.h"
#include "coll/ring.h"
#include "net/poller.h"

static const double NEVER_US = 1e12, SMALL_BYTES = 32 * 1024;

/* Bytes of the buffer. */
struct range {
    size_t at_bytes, n_bytes;
};

struct cursor {
    int          position; /* in the walk */
    size_t       at_bytes; /* into the block there ... */
    struct range block;    /* ... which is this one; none at the end of the walk */
};

/* Another rank of our host, and the four streams between us. */
struct member {
    struct gmi_port  *port;
    int               slice; /* that it owns; not below n_slices: none */
    struct cursor     give, hear; /* of its slice: our contribution, the result */
    struct cursor     take, tell; /* of ours: its contribution, the result */
    struct gmi_intake intake;
};

struct hierarchy {
    struct gmi_op    *op;
    int               n_hosts, host;
    int               n_slices, slice; /* ours; not below n_slices: none */
    struct member    *members;       /* with whom we exchange anything, by place; in op->work */
    int               n_members;
    struct gmi_port  *next, *previous; /* the owners of our slice on the hosts beside ours; NULL: none */
    struct cursor     out, in;         /* of the ring */
    struct gmi_intake intake;
    struct gmi_port  *right, *left;    /* whom we greet, and who greets us */
};
_Static_assert(sizeof(struct hierarchy) <= GMI_OP_STATE_BYTES, "the state fits into an op");

static struct hierarchy *hierarchy_of(struct gmi_op *op) { return (struct hierarchy *)op->state; }

/* ---- slices and blocks -------------------------------------------------------------------------- */

static struct range slice_range(size_t count_elems, size_t elem_bytes, int n_slices, int slice)
{
    return (struct range){ gmi_chunk_first(count_elems, n_slices, slice) * elem_bytes,
                           gmi_chunk_elems(count_elems, n_slices, slice) * elem_bytes };
}

static struct range block_range(struct range slice, size_t elem_bytes, int n_hosts, int block)
{
    size_t elems = slice.n_bytes / elem_bytes;
    return (struct range){ slice.at_bytes + gmi_chunk_first(elems, n_hosts, block) * elem_bytes,
                           gmi_chunk_elems(elems, n_hosts, block) * elem_bytes };
}

/* The block at a position of a slice's walk on our host. Divisions: a cursor remembers it, since streams are looked at often. */
static struct range block_at(const struct hierarchy *h, int slice, int position)
{
    size_t       elem_bytes = h->op->codec.elem_bytes;
    struct range whole = slice_range(h->op->count_elems, elem_bytes, h->n_slices, slice);
    return block_range(whole, elem_bytes, h->n_hosts, gmi_ring_chunk(h->host, h->n_hosts, position));
}

static size_t slice_bytes(const struct hierarchy *h, int slice)
{
    return slice_range(h->op->count_elems, h->op->codec.elem_bytes, h->n_slices, slice).n_bytes;
}

static bool owns_slice(const struct hierarchy *h) { return h->slice < h->n_slices; }
static bool is_owner(const struct hierarchy *h, const struct member *m) { return m->slice < h->n_slices; }
static bool has_ring(const struct hierarchy *h) { return h->next != NULL; }

/* ---- cursors: where streams end, and what is settled ------------------------------------------- */

static int end_of_sums(const struct hierarchy *h) { return h->n_hosts; }
static int end_of_walk(const struct hierarchy *h) { return 2 * h->n_hosts - 1; }
static int end_of_out(const struct hierarchy *h) { return 2 * h->n_hosts - 2; }
static int first_finished(const struct hierarchy *h) { return h->n_hosts - 1; }

static void go_to(const struct hierarchy *h, struct cursor *c, int slice, int position)
{
    *c = (struct cursor){ .position = position };
    if (position < end_of_walk(h)) c->block = block_at(h, slice, position);
}

/* Also over empty blocks. */
static void advance(const struct hierarchy *h, struct cursor *c, int slice, int end, size_t moved_bytes)
{
    c->at_bytes += moved_bytes;
    while (c->position < end && c->at_bytes == c->block.n_bytes) go_to(h, c, slice, c->position + 1);
}

static void start(const struct hierarchy *h, struct cursor *c, int slice, int position, int end)
{
    go_to(h, c, slice, position);
    advance(h, c, slice, end, 0);
}

static size_t left_bytes(const struct cursor *c, int end) { return c->position == end ? 0 : c->block.n_bytes - c->at_bytes; }

/* How much of the block at `behind` a stream has settled that `behind` has not passed yet. */
static size_t settled_bytes(const struct cursor *ahead, const struct cursor *behind)
{
    if (ahead->position > behind->position) return behind->block.n_bytes - behind->at_bytes;
    return ahead->position == behind->position ? ahead->at_bytes - behind->at_bytes : 0;
}

/* Our host's sums. A host of one rank has them from the start. */
static const struct cursor *sums(const struct hierarchy *h)
{
    static const struct cursor all = { .position = INT_MAX };
    return h->n_members > 0 ? &h->members[h->n_members - 1].take : &all;
}

static const struct cursor *results(const struct hierarchy *h) { return has_ring(h) ? &h->in : sums(h); }

/* Where our host's sums are. */
static const uint8_t *sums_at(const struct hierarchy *h) { return h->n_members > 0 ? h->op->output : h->op->input; }

static void finish(const struct hierarchy *h, uint8_t *values, size_t n_bytes)
{
    const struct gmi_codec *codec = &h->op->codec;
    if (n_bytes > 0 && codec->finish != NULL) codec->finish(values, n_bytes / codec->elem_bytes, gmi_op_ranks(h->op));
}

/* ---- streams: what may move now ---------------------------------------------------------------- */

/* Bytes of one transfer, of which so many can move now. */
struct offer {
    struct cursor *cursor;
    int            slice, end;
    size_t         ready_bytes, left_bytes;
};

static struct offer offer_of(struct cursor *c, int slice, int end)
{
    size_t left = left_bytes(c, end);
    return (struct offer){ c, slice, end, left, left };
}

/* The same, as far as another stream of our slice has settled it. */
static struct offer offer_behind(const struct hierarchy *h, struct cursor *c, int end, const struct cursor *ahead)
{
    struct offer o = offer_of(c, h->slice, end);
    if (o.left_bytes > 0) o.ready_bytes = settled_bytes(ahead, c);
    return o;
}

static size_t place_of(const struct offer *o) { return o->cursor->block.at_bytes + o->cursor->at_bytes; }

static bool is_giving(const struct hierarchy *h, const struct member *m)
{
    return is_owner(h, m) && m->give.position < end_of_sums(h);
}
static bool is_taking(const struct hierarchy *h, const struct member *m)
{
    return owns_slice(h) && m->take.position < end_of_sums(h);
}

static struct offer to_member(const struct hierarchy *h, struct member *m)
{
    if (is_giving(h, m)) return offer_of(&m->give, m->slice, end_of_sums(h));
    if (!owns_slice(h)) return (struct offer){ 0 };
    return offer_behind(h, &m->tell, end_of_walk(h), results(h));
}

static struct offer from_member(const struct hierarchy *h, struct member *m)
{
    if (is_taking(h, m)) {
        bool is_first = m == h->members;
        return is_first ? offer_of(&m->take, h->slice, end_of_sums(h))
                        : offer_behind(h, &m->take, end_of_sums(h), &(m - 1)->take);
    }
    if (!is_owner(h, m)) return (struct offer){ 0 };
    return offer_of(&m->hear, m->slice, end_of_walk(h));
}

static struct offer to_next(struct hierarchy *h)
{
    return offer_behind(h, &h->out, end_of_out(h), h->out.position == 0 ? sums(h) : &h->in);
}

static bool is_ring_reducing(const struct hierarchy *h) { return h->in.position <= first_finished(h); }

static struct offer from_previous(struct hierarchy *h)
{
    if (is_ring_reducing(h)) return offer_behind(h, &h->in, end_of_walk(h), sums(h));
    return offer_of(&h->in, h->slice, end_of_walk(h));
}

static bool wants_to_send(const struct gmi_port *port, const struct offer *o)
{
    return o->ready_bytes > 0 || !port->is_descriptor_sent;
}
static bool wants_to_recv(const struct gmi_port *port, const struct offer *o)
{
    return o->ready_bytes > 0 || !port->is_descriptor_matched;
}

/* ---- moving; all of these return at once ------------------------------------------------------- */

static gm_status send_some(const struct hierarchy *h, struct gmi_port *port, struct offer o, const uint8_t *whole)
{
    size_t         sent;
    const uint8_t *from = o.ready_bytes > 0 ? whole + place_of(&o) : NULL;
    if (!wants_to_send(port, &o)) return GM_OK;
    gm_status status = gmi_port_send_some(port, from, o.ready_bytes, o.left_bytes, &sent);
    if (sent > 0) advance(h, o.cursor, o.slice, o.end, sent);
    return status;
}

/* Finished values, straight into their place. */
static gm_status copy_some(const struct hierarchy *h, struct gmi_port *port, struct offer o)
{
    size_t   got;
    uint8_t *into = o.left_bytes > 0 ? h->op->output + place_of(&o) : NULL;
    if (!wants_to_recv(port, &o)) return GM_OK;
    gm_status status = gmi_port_recv_some(port, into, o.left_bytes, o.left_bytes, &got);
    if (got > 0) advance(h, o.cursor, o.slice, o.end, got);
    return status;
}

/* Added to our own, which is in `own`, laid out as the whole buffer. */
static gm_status add_some(const struct hierarchy *h, struct gmi_port *port, struct gmi_intake *intake, struct offer o,
                          const uint8_t *own, bool is_last)
{
    size_t settled, at = o.ready_bytes > 0 ? place_of(&o) : 0;
    if (!wants_to_recv(port, &o)) return GM_OK;
    uint8_t  *into = h->op->output + at;
    gm_status status = gmi_intake_some(intake, port, into, own + at, o.ready_bytes, o.left_bytes, &settled);
    if (is_last) finish(h, into, settled);
    if (settled > 0) advance(h, o.cursor, o.slice, o.end, settled);
    return status;
}

static gm_status move_ring(struct hierarchy *h)
{
    gm_status status = send_some(h, h->next, to_next(h), h->out.position == 0 ? sums_at(h) : h->op->output);
    if (status != GM_OK) return status;
    if (!is_ring_reducing(h)) return copy_some(h, h->previous, from_previous(h));
    return add_some(h, h->previous, &h->intake, from_previous(h), sums_at(h), h->in.position == first_finished(h));
}

static gm_status move_member(struct hierarchy *h, struct member *m)
{
    gm_status status = send_some(h, m->port, to_member(h, m), is_giving(h, m) ? h->op->input : h->op->output);
    if (status != GM_OK) return status;
    if (!is_taking(h, m)) return copy_some(h, m->port, from_member(h, m));
    bool is_first = m == h->members, is_last = m == &h->members[h->n_members - 1];
    return add_some(h, m->port, &m->intake, from_member(h, m), is_first ? h->op->input : h->op->output,
                    is_last && !has_ring(h));
}

static gm_status greet(struct hierarchy *h)
{
    const struct offer nothing = { 0 };
    gm_status          status = send_some(h, h->right, nothing, NULL);
    return status == GM_OK ? copy_some(h, h->left, nothing) : status;
}

/* ---- the machine ------------------------------------------------------------------------------- */

static bool is_sent(const struct gmi_port *port) { return port->is_descriptor_sent && gmi_port_is_flushed(port); }

static bool is_member_done(const struct hierarchy *h, struct member *m)
{
    return to_member(h, m).left_bytes == 0 && from_member(h, m).left_bytes == 0 && is_sent(m->port) &&
           m->port->is_descriptor_matched;
}

static bool is_finished(struct hierarchy *h)
{
    for (int i = 0; i < h->n_members; i++) {
        if (!is_member_done(h, &h->members[i])) return false;
    }
    if (has_ring(h) && (h->out.position < end_of_out(h) || h->in.position < end_of_walk(h) || !is_sent(h->next) ||
                        !h->previous->is_descriptor_matched)) {
        return false;
    }
    return is_sent(h->right) && h->left->is_descriptor_matched;
}

static gm_status progress(struct gmi_op *op)
{
    struct hierarchy *h = hierarchy_of(op);
    for (;;) {
        uint64_t  before_bytes = op->moved_bytes;
        gm_status status = has_ring(h) ? move_ring(h) : GM_OK;
        for (int i = 0; i < h->n_members && status == GM_OK; i++) status = move_member(h, &h->members[i]);
        if (status == GM_OK) status = greet(h);
        if (status != GM_OK) return status;
        if (is_finished(h)) return GM_OK;
        if (op->moved_bytes == before_bytes) return GM_AGAIN;
    }
}

static void watch(struct gmi_poller *poller, struct gmi_port *to, struct offer out, struct gmi_port *from,
                  struct offer in)
{
    if (wants_to_send(to, &out)) gmi_port_watch(to, poller, GMI_WRITABLE);
    if (wants_to_recv(from, &in)) gmi_port_watch(from, poller, GMI_READABLE);
}

static void interest(struct gmi_op *op, struct gmi_poller *poller)
{
    struct hierarchy  *h = hierarchy_of(op);
    const struct offer nothing = { 0 };
    watch(poller, h->right, nothing, h->left, nothing);
    if (has_ring(h)) watch(poller, h->next, to_next(h), h->previous, from_previous(h));
    for (int i = 0; i < h->n_members; i++) { /* on these we wait first of all */
        struct member *m = &h->members[i];
        watch(poller, m->port, to_member(h, m), m->port, from_member(h, m));
    }
}

/* ---- the beginning ----------------------------------------------------------------------------- */

static struct gmi_port *use_port(struct gmi_op *op, int peer)
{
    struct gmi_port *port = gmi_group_port(op->group, peer);
    if (port->op != op || port->seq != op->call.seq) gmi_port_begin(port, op);
    return port;
}

static void add_member(struct hierarchy *h, int rank, int place)
{
    struct member *m = &h->members[h->n_members++];
    *m = (struct member){ .port = use_port(h->op, rank), .slice = place };
    if (is_owner(h, m)) {
        start(h, &m->give, m->slice, 0, end_of_sums(h));
        start(h, &m->hear, m->slice, first_finished(h), end_of_walk(h));
        h->op->total_recv_bytes += slice_bytes(h, m->slice);
    }
    if (owns_slice(h)) {
        start(h, &m->take, h->slice, 0, end_of_sums(h));
        start(h, &m->tell, h->slice, first_finished(h), end_of_walk(h));
        h->op->total_recv_bytes += slice_bytes(h, h->slice);
    }
}

static void begin_ring(struct hierarchy *h, const struct gmi_layout *l)
{
    h->next = use_port(h->op, gmi_layout_rank(l, (h->host + 1) % h->n_hosts, h->slice));
    h->previous = use_port(h->op, gmi_layout_rank(l, (h->host + h->n_hosts - 1) % h->n_hosts, h->slice));
    start(h, &h->out, h->slice, 0, end_of_out(h));
    start(h, &h->in, h->slice, 1, end_of_walk(h));
    for (int p = 1; p < end_of_walk(h); p++) h->op->total_recv_bytes += block_at(h, h->slice, p).n_bytes;
}

/* The ranks of our host with which we exchange anything, by place: owners with all, others with owners. */
static bool is_member(const struct gmi_layout *l, int own_place, int place)
{
    return place != own_place && (place < l->least_on_a_host || own_place < l->least_on_a_host);
}

static void begin(struct gmi_op *op)
{
    struct hierarchy        *h = hierarchy_of(op);
    const struct gmi_layout *l = &op->group->layout;
    int                      rank = gmi_op_rank(op);
    GMI_CHECK(l->n_hosts > 0);
    *h = (struct hierarchy){ .op = op, .n_hosts = l->n_hosts, .host = l->host[rank], .n_slices = l->least_on_a_host,
                             .slice = l->place[rank], .members = (struct member *)(void *)op->work };
    for (int place = 0; place < gmi_layout_host_ranks(l, h->host); place++) {
        if (is_member(l, h->slice, place)) add_member(h, gmi_layout_rank(l, h->host, place), place);
    }
    if (h->n_hosts > 1 && owns_slice(h)) begin_ring(h, l);
    h->right = use_port(op, gmi_op_neighbour(op, +1)->peer);
    h->left = use_port(op, gmi_op_neighbour(op, -1)->peer);
}

static void peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    const struct gmi_layout *l = s->layout;
    int                      host = l->host[s->rank], own_place = l->place[s->rank];
    gmi_ring_peers(s, need, user);
    for (int place = 0; place < gmi_layout_host_ranks(l, host); place++) {
        if (is_member(l, own_place, place)) need(user, gmi_layout_rank(l, host, place));
    }
    if (l->n_hosts == 1 || own_place >= l->least_on_a_host) return;
    need(user, gmi_layout_rank(l, (host + 1) % l->n_hosts, own_place));
    need(user, gmi_layout_rank(l, (host + l->n_hosts - 1) % l->n_hosts, own_place));
}

/* Inside the host: our contribution to all slices but our own, and our slice's result to all others. */
static uint64_t bytes_inside(const struct gmi_shape *s, size_t own_bytes)
{
    int n_here = gmi_layout_host_ranks(s->layout, s->layout->host[s->rank]);
    return gmi_shape_bytes(s) - own_bytes + (uint64_t)(n_here - 1) * own_bytes;
}

/* Between hosts: the slice goes around as in ring.c. */
static uint64_t bytes_between(const struct gmi_shape *s, struct range slice)
{
    int n_hosts = s->layout->n_hosts, host = s->layout->host[s->rank];
    if (n_hosts == 1) return 0;
    return 2 * slice.n_bytes - block_range(slice, s->elem_bytes, n_hosts, host).n_bytes -
           block_range(slice, s->elem_bytes, n_hosts, (host + 1) % n_hosts).n_bytes;
}

static uint64_t payload_sent_bytes(const struct gmi_shape *s)
{
    int n_slices = s->layout->least_on_a_host, place = s->layout->place[s->rank];
    if (place >= n_slices) return gmi_shape_bytes(s);
    struct range slice = slice_range(s->count_elems, s->elem_bytes, n_slices, place);
    return bytes_inside(s, slice.n_bytes) + bytes_between(s, slice);
}

static size_t work_bytes(const struct gmi_shape *s)
{
    return (size_t)gmi_layout_host_ranks(s->layout, s->layout->host[s->rank]) * sizeof(struct member);
}

/* Inside and between hosts at the same time, since everything streams: the longer of the two. Where ranks share no host, or all share
 * one, it has nothing to offer; and small buffers are a matter of turns, which the model counts as if all of them went
 * between hosts, so that others would look too slow there. */
static double us(const struct gmi_costs *c, double bytes)
{
    double n_hosts = c->n_hosts, n_here = c->most_on_a_host;
    if (c->n_hosts == 1 || c->n_hosts == c->n_ranks || bytes <= SMALL_BYTES) return NEVER_US;
    double here = 2 * bytes * (n_here - 1) / n_here, there = 2 * bytes / n_here * (n_hosts - 1) / n_hosts;
    struct gmi_effort inside = { .turns = 2, .messages = 2 * (n_here - 1), .all_messages = 2 * (n_here - 1) * c->n_ranks,
                                 .sent_bytes = here, .recv_bytes = here, .all_bytes = here * n_here,
                                 .reduced_bytes = here / 2 };
    struct gmi_effort between = { .turns = 2 * (n_hosts - 1), .messages = 2 * (n_hosts - 1),
                                  .all_messages = 2 * (n_hosts - 1) * c->n_ranks, .sent_bytes = there, .recv_bytes = there,
                                  .all_bytes = there * n_here * n_hosts, .reduced_bytes = there / 2 };
    double inside_us = gmi_cost_us(c, c->kind_within, &inside), between_us = gmi_cost_us(c, c->kind, &between);
    return inside_us > between_us ? inside_us : between_us;
}

const struct gmi_algo gmi_hierarchical_all_reduce = {
    .id = GMI_ALGO_HIERARCHICAL,
    .name = "hierarchical",
    .collective = GM_ALL_REDUCE,
    .summary = "inside the hosts first, then between them: a host of H sends 2 D (H-1)/H bytes to others",
    .shows = GMI_VIEW_ONCE,
    .begin = begin,
    .progress = progress,
    .interest = interest,
    .peers = peers,
    .payload_sent_bytes = payload_sent_bytes,
    .us = us,
    .work_bytes = work_bytes,
};
