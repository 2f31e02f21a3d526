/* op.h - one running collective: what was called, on which memory, over which ports, and how far it is.
 *
 * An op is a value that an algorithm advances. It blocks nowhere, so the same op is run to its end by the
 * calling thread, by a queue of many ops, or step by step with all ranks in one thread. */
#ifndef GMI_OP_H
#define GMI_OP_H

#include "base/bytes.h"
#include "coll/cost.h"
#include "coll/port.h"
#include "coll/shape.h"
#include "reduce/codec.h"

struct gmi_algo;

/* One receive's worth of memory: small enough to stay in a core's cache while it is summed. */
enum { GMI_SCRATCH_BYTES = 256 * 1024, GMI_PIECE_BYTES = 1024 * 1024, GMI_OP_STATE_BYTES = 1280 };

/* What the ring sends of a chunk before it turns to the next one: gmi_part_bytes. */
enum { GMI_PART_BYTES = 128 * 1024, GMI_PAIR_PART_BYTES = 256 * 1024, GMI_SOCKET_PART_BYTES = 512 * 1024 };

/* The ranks and the ports to them. A port without a link is not connected. */
struct gmi_group {
    int              rank, n_ranks;
    uint32_t         id, epoch; /* as in descriptors: which communicator, in which life */
    struct gmi_port *ports;     /* by rank; the own one unused */
    struct gmi_port *(*find_port)(const struct gmi_group *group, int peer); /* NULL: in `ports`; else it stands for them */
    struct gmi_layout layout;   /* who shares a host with whom */
    enum gmi_link_kind kind;    /* of the worst link between two of them: all know the same one */
    bool is_encrypted;          /* what goes over sockets; all agree */
    struct gmi_trace *trace;    /* NULL: none */
};

/* A message, or one each way, as its caller asked for it. */
struct gmi_message_call {
    int    to, from; /* -1: nobody */
    int    send_tag, recv_tag;
    size_t send_elems, recv_elems;
};

/* A collective as its caller asked for it. What is not needed is 0; redop and root are -1 where there is
 * none. In place means send == recv; a broadcast is always in place. */
struct gmi_request {
    gm_collective    which;
    const void      *send;
    void            *recv;
    size_t           count_elems; /* of the whole buffer */
    gm_dtype         dtype;
    int              redop; /* gm_redop */
    int              root;
    const size_t    *counts;      /* by rank: the sizes of the chunks; NULL: equal ones. Stays the caller's, and ... */
    const size_t    *recv_counts; /* of what comes in an all-to-all ... as it is until the op is over */
    struct gmi_user_op user_op;   /* what `redop` is, if it is the caller's own */
    struct gmi_message_call message;   /* of GM_SEND, GM_RECV and GM_SENDRECV */
    const struct gmi_wire *wire;  /* how sums of f32 travel; NULL: as they are */
    struct gm_accumulator *exact; /* what GM_SUM_EXACT sums up; NULL: that of the engine, with `send` in it */
    struct gmi_codec codec; /* by gmi_request_choose_codec */
};

static inline bool gmi_has_root(gm_collective which)
{
    return which == GM_BROADCAST || which == GM_REDUCE || which == GM_GATHER || which == GM_SCATTER;
}
static inline bool gmi_request_is_in_place(const struct gmi_request *r) { return r->send == r->recv; }
static inline bool gmi_request_is_reduction(const struct gmi_request *r)
{
    return r->which == GM_ALL_REDUCE || r->which == GM_REDUCE_SCATTER || r->which == GM_REDUCE;
}

/* GM_OK; GM_ERR_ARG: no such dtype or reduction; GM_ERR_UNSUPPORTED: the two do not go together. */
gm_status gmi_request_choose_codec(struct gmi_request *request);

/* What stopped an op, as far as this rank can tell. */
struct gmi_trouble {
    gm_status status;
    int       peer;      /* whose link, or who differs */
    int       sys_errno; /* of a broken link; 0: closed */
    bool      has_theirs;
    struct gmi_descriptor theirs, ours; /* of a mismatch */
    const char *what;    /* "closed the connection", ...; static; NULL: `sentence` is all there is to say */
    char      sentence[96];
};

struct gmi_op {
    struct gmi_descriptor    call;
    const struct gmi_algo   *algo;
    const struct gmi_group  *group;
    struct gmi_codec         codec;

    /* Memory. `input` and `output` are laid out as all chunks in rank order; they may be the same. But of ranks
     * that are not the root, `output` is NULL in a reduce or gather, `input` is NULL in a scatter, and the other one
     * holds the own chunk only in a gather or scatter. What is the root's own in those two, and a rank's own in
     * an all-gather or all-to-all, is in its place before the algorithm begins. */
    const uint8_t *input;
    uint8_t       *output;
    uint8_t       *own_output; /* reduce-scatter out of place: where the own chunk goes; else NULL */
    size_t         count_elems;
    const size_t  *counts, *recv_counts; /* as in the request ... */
    struct gmi_message_call message;          /* ... of messages */
    struct gm_accumulator *exact;             /* ... of exact sums */
    uint8_t       *scratch; /* GMI_SCRATCH_BYTES */
    uint8_t       *work;    /* algo->work_bytes */
    size_t         part_bytes; /* gmi_part_bytes; the same on all ranks */

    /* Progress, for the error record, the stall limit and the accounting. */
    int      step, n_steps; /* -1, 0: the algorithm has no steps */
    uint64_t moved_bytes, total_recv_bytes;
    int64_t  begin_ns;
    gm_traffic traffic;
    struct gmi_trace *trace; /* of the group, if this call is recorded; else NULL */
    int      waits_for_recv, waits_for_send; /* peers; -1: nobody */
    struct gmi_trouble trouble;

    _Alignas(16) uint8_t state[GMI_OP_STATE_BYTES]; /* the algorithm's */
};

static inline struct gmi_port *gmi_group_port(const struct gmi_group *group, int peer)
{
    return group->find_port != NULL ? group->find_port(group, peer) : &group->ports[peer];
}

/* Of what passes a kernel, fewer and larger parts are better. What a core copies or encrypts itself is better in parts of
 * which some fit into a cache together; two ranks have more of it each. docs/tuning.md */
static inline size_t gmi_part_bytes(const struct gmi_group *group)
{
    if (group->kind != GMI_KIND_MEMORY && !group->is_encrypted) return GMI_SOCKET_PART_BYTES;
    return group->n_ranks == 2 ? GMI_PAIR_PART_BYTES : GMI_PART_BYTES;
}

static inline int gmi_op_rank(const struct gmi_op *op) { return op->group->rank; }
static inline int gmi_op_ranks(const struct gmi_op *op) { return op->group->n_ranks; }

/* The port to the rank that is `distance` to the right (negative: to the left) around the ring. */
struct gmi_port *gmi_op_neighbour(const struct gmi_op *op, int distance);

/* Chunk k of the whole buffer, in bytes. */
static inline size_t gmi_op_chunk_bytes(const struct gmi_op *op, int chunk)
{
    return gmi_chunk_elems_of(op->counts, op->count_elems, op->group->n_ranks, chunk) * op->codec.elem_bytes;
}
static inline size_t gmi_op_chunk_at(const struct gmi_op *op, int chunk)
{
    return gmi_chunk_first_of(op->counts, op->count_elems, op->group->n_ranks, chunk) * op->codec.elem_bytes;
}
/* In an all-to-all: what comes from `peer`, in the output. */
static inline size_t gmi_op_arrival_bytes(const struct gmi_op *op, int peer)
{
    return gmi_chunk_elems_of(op->recv_counts, op->count_elems, op->group->n_ranks, peer) * op->codec.elem_bytes;
}
static inline size_t gmi_op_arrival_at(const struct gmi_op *op, int peer)
{
    return gmi_chunk_first_of(op->recv_counts, op->count_elems, op->group->n_ranks, peer) * op->codec.elem_bytes;
}
static inline size_t gmi_op_bytes(const struct gmi_op *op) { return op->count_elems * op->codec.elem_bytes; }

/* The measures of the request for the rank of the group. */
struct gmi_shape gmi_request_shape(const struct gmi_request *request, const struct gmi_group *group);

/* By which an algorithm is chosen: the bytes of the whole buffer, or what else all ranks know alike. */
size_t gmi_request_size_for_choice(const struct gmi_request *request);

/* How much memory op->work must have for it with this algorithm. */
size_t gmi_op_work_bytes(const struct gmi_request *request, const struct gmi_algo *algo, const struct gmi_group *group);

/* The descriptor that goes to a peer, and the one that must come from it. They differ only in an all-to-all, where
 * the count is that of the pair. */
struct gmi_descriptor gmi_op_call_to(const struct gmi_op *op, int peer);
struct gmi_descriptor gmi_op_call_from(const struct gmi_op *op, int peer);

/* Makes it call number `seq` of op->group (which must be set), with nothing done yet. */
void gmi_op_describe(struct gmi_op *op, const struct gmi_algo *algo, const struct gmi_request *request,
                     uint64_t seq);

/* Describes the call and lays its buffers out as the algorithms want them. op->group, scratch and work must be
 * set. */
void gmi_op_set_up(struct gmi_op *op, const struct gmi_algo *algo, const struct gmi_request *request,
                   uint64_t seq);

/* Readies the ports it will use and the algorithm's state; after gmi_op_set_up. */
void gmi_op_begin(struct gmi_op *op);
gm_status gmi_op_progress(struct gmi_op *op);

/* Tells the poller (NULL: nobody) what must happen for progress, and notes on whom this waits. */
void gmi_op_interest(struct gmi_op *op, struct gmi_poller *poller);

/* On whom the op waits, by its last gmi_op_interest; -1: nobody. */
int gmi_op_waits_for(const struct gmi_op *op);

/* For ports: what went wrong, kept in op->trouble; the first one stays. Return its status. */
gm_status gmi_op_link_broke(struct gmi_op *op, const struct gmi_port *port);
gm_status gmi_op_bad_bytes(struct gmi_op *op, const struct gmi_port *port, const char *what);
gm_status gmi_op_corrupt(struct gmi_op *op, const struct gmi_port *port);
gm_status gmi_op_no_memory(struct gmi_op *op);
/* "shard 3 of 8 has been added on two ranks"; peer -1: nobody in particular. */
gm_status gmi_op_wrong_shard(struct gmi_op *op, int peer, int shard, int n_shards, const char *what);
gm_status gmi_op_mismatch(struct gmi_op *op, const struct gmi_port *port, const struct gmi_descriptor *theirs,
                          const struct gmi_descriptor *ours);

#endif
