/* network.h - links over which nothing moves but the clock: a transport whose bytes are counted, not copied.
 *
 *     rank a                host of a             host of b                rank b
 *     send_some -> leaving -> [ card, out ] ~ latency ~ [ card, in ] -> arrived -> recv_some
 *     send_some -> [ a lane of its own ] ----------------------------> arrived -> recv_some     (within a host)
 *
 * What one call of send_some takes, up to a grain, is a parcel. It becomes readable as a whole when its last byte is there,
 * so a grain is what a receiver sees arrive at a time.
 *
 *     1. A card works both ways at once. Out, it serves the links that have something in turn, a parcel each; in,
 *        parcels in the order of their first bytes, as the last switch on the way hands them on. So links that share a
 *        card get equal parts of it, to a grain.
 *     2. The card at the other end begins to take a parcel in when its first byte is there: alone, a parcel of b bytes is
 *        readable latency + b / bandwidth after it began to leave.
 *     3. Parcels of one link arrive in the order in which they were sent.
 *     4. A card that is limited by a token bucket sends what it has saved up at once: its clock may lag behind by a burst.
 *     5. A link takes no more than `buffer_bytes` that its receiver has not read.
 *
 * Headers (what the ports put in front of payload) are carried, since the other side compares them; payload has a length only,
 * and no memory of a caller is looked at. An end is made when an algorithm first asks for the port to a peer.
 *
 * The calls of a link cost the rank that runs time on its core, which stands in `core_ps`. */
#ifndef PLAN_NETWORK_H
#define PLAN_NETWORK_H

#include "coll/port.h"
#include "plan/event_queue.h"
#include "plan/turns.h"

enum { PLAN_HEAD_BYTES = GMI_DESCRIPTOR_BYTES + GMI_PIECE_HEADER_BYTES };

/* Picoseconds, and picoseconds for a byte. */
struct plan_network_costs {
    int64_t latency_ps, local_latency_ps;
    double  byte_ps, local_byte_ps;
    int64_t call_ps;   /* of the core, for each call that moves something */
    double  copy_ps;   /* of the core, for each byte that is sent or received */
    size_t  grain_bytes, buffer_bytes;
    const struct plan_turns *turns; /* NULL: the two above; else what calls within a host take by measurement */
    const uint8_t *scratch; /* GMI_SCRATCH_BYTES from here on stay in a cache */
    size_t  burst_bytes; /* that a card may be ahead of its bandwidth, each way, after it was idle */
};

struct plan_parcel {
    struct plan_parcel *next;
    size_t              body_bytes;
    uint32_t            n_head_bytes, head_at;
    size_t              message_bytes; /* of the call that it is a part of */
    uint8_t             head[PLAN_HEAD_BYTES];
};

struct plan_parcels {
    struct plan_parcel *first, *last;
};

struct plan_network;

struct plan_end {
    struct gmi_link      link;
    struct plan_network *network;
    struct plan_end     *other;
    int                  rank;
    bool                 on_one_core; /* its two ranks share one */
    bool                 has_sent;
    uint32_t             number; /* as a target of events */

    /* A call that wants to send more than a grain is carried on by the next ones, from where it has come to. */
    const uint8_t *message_at;
    size_t         message_bytes, message_left_bytes;

    struct plan_parcels incoming; /* the first n_arrived of them can be read */
    uint32_t            n_arrived;
    uint64_t            unread_bytes; /* sent to us, by the other end */

    struct plan_parcels leaving; /* for the network: the first n_ready of them have left the core of the rank */
    uint32_t            n_ready;
    struct plan_end    *next_in_line; /* of those that wait for a card */
    bool                is_in_line, wants_room;
    int64_t             lane_free_ps;
    int64_t             waited_ps; /* by its rank, for the other one */

    struct gmi_port port; /* of the collective that runs */
};

/* A host's way to the others. */
struct plan_card {
    int64_t          out_free_ps, in_free_ps;
    int64_t          out_busy_ps, in_busy_ps;
    uint64_t         out_bytes, in_bytes;
    struct plan_end *first_in_line, *last_in_line;
};

struct plan_network {
    struct plan_network_costs costs;
    struct plan_event_queue  *events;
    const int                *host; /* by rank */
    struct plan_card         *cards; /* by host */
    int64_t                   now_ps, core_ps; /* of the event; of the rank that runs, which may be ahead */
    int64_t                   slice_end_ps;    /* for that rank: then it shall return to the others ... */
    bool                      is_slice_over;   /* ... and that was so, though more could move */
    double                    slowness;        /* of that rank: 1 is as the others */
    int                       n_misses;        /* calls of that rank since something moved */
    bool                      is_out_of_memory;
    uint64_t                  n_parcels;

    struct plan_end   **blocks; /* of ends */
    uint32_t            n_ends, n_blocks;
    struct plan_parcel *spare;
    void               *parcel_memory; /* a list */
    uint64_t            memory_bytes;
};

/* host and cards stay the caller's. */
void plan_network_init(struct plan_network *n, const struct plan_network_costs *costs, struct plan_event_queue *events,
                       const int *host, struct plan_card *cards);
void plan_network_fini(struct plan_network *n);

/* Both ends of a link between two ranks: ends[0] is a's. False: no memory. */
bool plan_network_connect(struct plan_network *n, int a, int b, struct plan_end *ends[2]);

struct plan_end *plan_network_end(const struct plan_network *n, uint32_t number);

/* What an event of the network does, at n->now_ps. The rank that has something to do now, or -1. */
int plan_network_happens(struct plan_network *n, const struct plan_event *event);

#endif
