#include "coll/op.h"

#include "coll/algo.h"

struct gmi_port *gmi_op_neighbour(const struct gmi_op *op, int distance)
{
    int n = op->group->n_ranks;
    int peer = (op->group->rank + distance) % n;
    return &op->group->ports[peer < 0 ? peer + n : peer];
}

void gmi_op_begin(struct gmi_op *op)
{
    op->step = -1;
    op->n_steps = 0;
    op->moved_bytes = op->total_recv_bytes = 0;
    op->traffic = (gm_traffic){ .calls = 1 };
    op->waits_for_recv = op->waits_for_send = -1;
    op->trouble = (struct gmi_trouble){ .status = GM_OK, .peer = -1 };
    op->algo->begin(op);
}

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
