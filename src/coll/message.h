/* message.h - a message from one rank to another, or one each way.
 *
 *     sender                                 receiver
 *       SEND: "I have this for you"  ----->
 *                                    <-----    RECV: "I want this from you"
 *       payload in pieces            ----->
 *
 * Each of the two says its descriptor as soon as it is called. The payload follows when the
 * receiver's has come, and so never waits in anybody's memory: what was not asked for stays with
 * its sender. A send is over when its payload is on the way to a receiver that has asked for it.
 *
 * Messages have links of their own, so they do not disturb the order of collectives. In each
 * direction a link carries call after call; of one call first its RECV, if it has one for this
 * peer, then its SEND with the payload:
 *
 *     | RECV | SEND payload | RECV | SEND payload | SEND payload ...
 *
 * A caller is in one call at a time. So when two that face each other do not fit together, another
 * tag or count, or both sending, no later call can help, and the first descriptor tells:
 * GM_ERR_MISMATCH. Only a RECV may come before its time: from a peer that sends to us and receives
 * from us in one call, while we have only received so far. It is kept in the port; there can be no
 * second one.
 *
 * Invariants:
 *   1. No payload is sent before the peer's RECV has matched, none is read before its SEND has.
 *   2. Behind a SEND nothing is read before its payload.
 *   3. Between two calls nothing is half-read and nothing is half-sent. */
#ifndef GMI_MESSAGE_H
#define GMI_MESSAGE_H

#include "coll/algo.h"

/* Not in the table: nobody chooses it. */
extern const struct gmi_algo gmi_message_algo;

/* Makes op->call of op->message; for gmi_op_describe. */
void gmi_message_describe(struct gmi_op *op);

#endif
