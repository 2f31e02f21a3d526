/* rounds.h - algorithms that go round by round, for messages that are too small to be worth a pipeline.
 *
 * A round is a few transfers that run side by side: some to send, some to receive, each with one peer. It is
 * over when all are done; then the algorithm combines what has come and names the transfers of the next
 * round. That is all an algorithm must say; moving, waiting and the descriptors are done here. */
#ifndef GMI_ROUNDS_H
#define GMI_ROUNDS_H

#include "coll/algo.h"

enum { GMI_MAX_TRANSFERS = 15 }; /* of each direction in one round: all other ranks of a world of 16 */

/* A transfer in portions, of which each is known only when the one before has moved. `next` is called then, names the
 * next one (n_bytes 0: that was the last) and returns GM_OK, or why the op fails. */
struct gmi_stream {
    uint8_t *data;
    size_t   n_bytes;
    gm_status (*next)(struct gmi_op *op, struct gmi_stream *stream);
};

struct gmi_transfer {
    struct gmi_port *port;
    struct gmi_stream *stream; /* NULL: what is left is all */
    uint8_t         *data; /* sent from, or received into */
    size_t           total_bytes, moved_bytes;
};

struct gmi_rounds {
    int                 index; /* of the round that is running */
    int                 n_sends, n_recvs;
    struct gmi_transfer sends[GMI_MAX_TRANSFERS], recvs[GMI_MAX_TRANSFERS];
    bool                are_rounds_over;
    struct gmi_port    *right, *left; /* to be greeted; NULL: nobody */

    /* Uses what the round before `index` has brought (nothing before round 0) and adds the transfers of round
     * `index`. False: there is no such round, the collective is finished. What goes wrong goes into op->trouble. */
    bool (*prepare)(struct gmi_op *op, struct gmi_rounds *rounds, int index);
};

/* For an algorithm's begin: sets op->state up. */
void gmi_rounds_begin(struct gmi_op *op, int n_rounds,
                      bool (*prepare)(struct gmi_op *op, struct gmi_rounds *rounds, int index));

/* After gmi_rounds_begin, for algorithms in which ring neighbours do not exchange data anyway: the right one
 * gets our descriptor at once, and the collective is not finished before that of the left one has matched. The
 * rounds do not wait for it. So ranks that call different things find out, whatever the links of their rounds.
 * Counts as a step behind the last round. */
void gmi_rounds_greet_neighbours(struct gmi_op *op);

/* For prepare. The memory must stay as it is until the round is over. Of two transfers with one peer in one round
 * the later one waits for the earlier one. */
void gmi_rounds_send(struct gmi_op *op, struct gmi_rounds *r, int peer, const void *data, size_t n_bytes);
void gmi_rounds_recv(struct gmi_op *op, struct gmi_rounds *r, int peer, void *data, size_t n_bytes);

/* The same for a stream, whose first portion stands in it. */
void gmi_rounds_send_stream(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_stream *stream);
void gmi_rounds_recv_stream(struct gmi_op *op, struct gmi_rounds *r, int peer, struct gmi_stream *stream);

/* More peers than a round holds are served in batches: how many, and peer number first .. end - 1 (from 1) in each. */
static inline int gmi_n_batches(int n_peers) { return (n_peers + GMI_MAX_TRANSFERS - 1) / GMI_MAX_TRANSFERS; }
static inline int gmi_batch_first(int batch) { return 1 + batch * GMI_MAX_TRANSFERS; }
static inline int gmi_batch_end(int batch, int n_peers)
{
    int end = gmi_batch_first(batch + 1);
    return end < n_peers + 1 ? end : n_peers + 1;
}

/* The other two functions of the algorithm's row. */
gm_status gmi_rounds_progress(struct gmi_op *op);
void      gmi_rounds_interest(struct gmi_op *op, struct gmi_poller *poller);

#endif
