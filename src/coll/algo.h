/* algo.h - the table of algorithms. A new one is a file with three functions and a row in algo.c. */
#ifndef GMI_ALGO_H
#define GMI_ALGO_H

#include "coll/cost.h"
#include "coll/op.h"

/* Numbers of algorithms on the wire; never reused. */
enum {
    GMI_ALGO_RING = 1,
    GMI_ALGO_NAIVE = 2,
    GMI_ALGO_DOUBLING = 3,
    GMI_ALGO_EXCHANGE = 4,
    GMI_ALGO_DIRECT = 5,
    GMI_ALGO_TREE = 6,
    GMI_ALGO_DISSEMINATION = 7,
    GMI_ALGO_HALVING = 8,
    GMI_ALGO_PAIRWISE = 9,
    GMI_ALGO_BRUCK = 10,
    GMI_ALGO_MESSAGE = 11,
    GMI_ALGO_LEAN = 12,
    GMI_ALGO_HIERARCHICAL = 13,
};

typedef void (*gmi_need_fn)(void *user, int peer);

struct gmi_algo {
    uint8_t       id;
    const char   *name; /* as the user says it */
    gm_collective collective;
    const char   *summary;
    int           max_ranks; /* 0: any number */
    enum gmi_view shows;     /* to the arithmetic; all-gather and the like: nothing, GMI_VIEW_PAIRS */

    /* What traces call its transfers: those that are added to what is there, and those that take its place. NULL: as the
     * collective is called, of reductions as the two halves of the ring. */
    const char   *adding_phase, *placing_phase;

    /* Sets op->state up and begins the ports that it uses. */
    void (*begin)(struct gmi_op *op);

    /* Moves all that can move and returns: GM_OK finished, GM_AGAIN wait, else failed (op->trouble).
     * Never blocks. */
    gm_status (*progress)(struct gmi_op *op);

    /* Calls gmi_port_watch for what must happen before progress can do more. */
    void (*interest)(struct gmi_op *op, struct gmi_poller *poller);

    /* Judges a descriptor that has arrived; sets port->is_descriptor_matched when what follows it may be read, or
     * listens for the next. NULL: it must be the same as ours (gmi_op_call_from). */
    gm_status (*hear)(struct gmi_op *op, struct gmi_port *port, const struct gmi_descriptor *theirs);

    /* Calls need() for each peer that it must have a link to. NULL: the neighbours in the ring. */
    void (*peers)(const struct gmi_shape *s, gmi_need_fn need, void *user);

    /* Exactly how many payload bytes the rank of the shape sends. */
    uint64_t (*payload_sent_bytes)(const struct gmi_shape *shape);

    /* What a call on `bytes` of the whole buffer, in chunks as equal as can be, makes the busiest rank do. By this
     * "auto" chooses. */
    struct gmi_effort (*effort)(int n_ranks, double bytes);

    /* In place of that, for what moves over links of two kinds at once: microseconds. NULL: by the effort. */
    double (*us)(const struct gmi_costs *costs, double bytes);

    /* Memory that it needs besides scratch. NULL: none. */
    size_t (*work_bytes)(const struct gmi_shape *shape);
};

/* May it run what needs that view? What is encoded needs algorithms that are made for it, and they run nothing else. */
static inline bool gmi_algo_serves(const struct gmi_algo *algo, enum gmi_view needs)
{
    return needs >= GMI_VIEW_LEAN || algo->shows >= GMI_VIEW_LEAN ? algo->shows == needs : algo->shows >= needs;
}

/* The row for a collective under the user's choice, a name or "auto": the one that was measured to be fastest, if the
 * profile in `costs` says so and it may run here; else the one that takes the least time by its effort and `costs`. A name that has no row for this collective, or none for so many ranks or for this reduction, falls back to
 * "auto", so that a forced algorithm does not forbid the others. `needs` is the codec's. The same on all ranks: it
 * depends on the arguments only. */
const struct gmi_algo *gmi_algo_choose(const char *name, gm_collective which, const struct gmi_costs *costs,
                                       size_t total_bytes, enum gmi_view needs);

/* What the choice is made by where nothing was measured: microseconds that a row will take. */
double gmi_algo_us(const struct gmi_algo *algo, const struct gmi_costs *costs, size_t total_bytes);

/* All rows, for tests: index from 0; NULL behind the last. */
const struct gmi_algo *gmi_algo_row(size_t index);

/* For rows: all other ranks; the neighbours in the ring. */
void gmi_all_peers(const struct gmi_shape *s, gmi_need_fn need, void *user);
void gmi_ring_peers(const struct gmi_shape *s, gmi_need_fn need, void *user);

bool        gmi_algo_is_name(const char *name); /* "auto" included */
const char *gmi_algo_name(uint8_t id);          /* "?" for a number that is none */
const char *gmi_algo_names(char *text, size_t text_bytes); /* "auto, ring, naive, ..." */

#endif
