/* move.c - calls the rank that is next in the middle of the control connections (control_move.c). */
#include <errno.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/comm.h"

void gmi_move_fini(struct gm_comm *root)
{
    if (root->move_call == NULL) return;
    gmi_call_fini(root->move_call);
    gmi_free(root->move_call);
    root->move_call = NULL;
}

static void begin(struct gm_comm *root)
{
    struct gmi_control *c = &root->control;
    struct gmi_hello    hello = gmi_comm_hello(root, GMI_CHANNEL_CONTROL, c->hub);
    struct gmi_call    *call = gmi_alloc(1, sizeof *call);
    char host[256];
    int  port;
    hello.session = c->session;
    if (call == NULL) {
        struct gmi_failure f = { .status = GM_ERR_NOMEM, .culprit = c->rank, .reporter = c->rank };
        snprintf(f.cause, sizeof f.cause, "rank %d has no memory for its control connection to rank %d", c->rank, c->hub);
        gmi_control_fail(c, &f);
        return;
    }
    if (gmi_host_port_split(c->members[c->hub].address, host, sizeof host, &port, NULL) != GM_OK) {
        gmi_free(call);
        return; /* it will miss us */
    }
    gmi_call_init(call, host, port, &hello, &root->secret, NULL);
    root->move_call = call;
    root->move_to = c->hub;
}

/* Our own machine refuses what a call needs. */
static void refused(struct gm_comm *root)
{
    struct gmi_control *c = &root->control;
    struct gmi_failure  f = { .status = GM_ERR_SYSTEM, .culprit = c->rank, .reporter = c->rank };
    snprintf(f.cause, sizeof f.cause, "rank %d cannot connect to rank %d: %.220s", c->rank, c->hub, root->move_call->error.text);
    gmi_control_fail(c, &f);
}

/* Nobody listens there any more, or we are not wanted: unless its goodbye comes in a moment, it is lost. */
static void lost(struct gm_comm *root)
{
    struct gmi_control *c = &root->control;
    struct gmi_failure  f = { .status = GM_ERR_PEER_LOST, .culprit = c->hub, .reporter = c->rank };
    snprintf(f.cause, sizeof f.cause, "rank %d (%s) is gone: %.200s", c->hub, c->members[c->hub].address,
             root->move_call->error.text);
    if (c->has_failure) gmi_control_cannot_move(c); /* nobody is left there to be told of it */
    else gmi_control_fail_soon(c, &f);
}

void gmi_move_step(struct gm_comm *root)
{
    struct gmi_control *c = &root->control;
    if (root->move_call != NULL && (!c->is_moving || root->move_to != c->hub)) gmi_move_fini(root);
    if (!c->is_moving) return;
    if (root->move_call == NULL && gmi_deadline_passed(c->move_ns)) begin(root);
    if (root->move_call == NULL) return;
    gm_status status = gmi_call_progress(root->move_call);
    if (status == GM_AGAIN && root->move_call->error.sys_errno != ECONNREFUSED) return;
    struct gmi_stream stream;
    if (status == GM_OK) status = gmi_call_take_stream(root->move_call, &stream);
    if (status == GM_OK) {
        gmi_control_moved(c, stream);
    } else if (status == GM_ERR_SYSTEM) {
        refused(root);
        c->move_ns = GMI_NEVER;
    } else {
        lost(root);
        if (status == GM_AGAIN) return;
        c->move_ns = GMI_NEVER;
    }
    gmi_move_fini(root);
}

void gmi_move_watch(const struct gm_comm *root, struct gmi_poller *poller)
{
    if (root->move_call != NULL) gmi_call_watch(root->move_call, poller);
}

int64_t gmi_move_next_ns(const struct gm_comm *root)
{
    if (root->move_call != NULL) return gmi_call_next_ns(root->move_call);
    return root->control.is_moving ? root->control.move_ns : GMI_NEVER;
}
