/* report.c - the failure of a communicator, and the error records that calls make from it.
 *
 * A failure is recorded once for the whole communicator (comm/control.h), and every rank, and every call,
 * makes its own sentence from it. */
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "coll/algo.h"
#include "comm/comm.h"

void gmi_comm_fail(struct gm_comm *comm, const struct gmi_failure *failure)
{
    pthread_mutex_lock(&comm->root->lock);
    gmi_control_fail(&comm->root->control, failure);
    pthread_mutex_unlock(&comm->root->lock);
    gmi_service_wake(comm);
}

bool gmi_comm_has_failed(struct gm_comm *comm, struct gmi_failure *failure)
{
    pthread_mutex_lock(&comm->root->lock);
    bool has_failure = comm->root->control.has_failure;
    *failure = comm->root->control.failure;
    pthread_mutex_unlock(&comm->root->lock);
    return has_failure;
}

/* Fills the record's sentence: who, doing what, where in it, what went wrong, how far, how long. */
static void write_sentence(gm_error *e, const struct gmi_op *op, const char *cause)
{
    char call[160] = "", where[48] = "", far[96] = "";
    if (op != NULL) {
        char text[128];
        snprintf(call, sizeof call, "%s%s", gmi_descriptor_format(&op->call, text, sizeof text),
                 e->n_steps > 0 ? ", " : ": ");
        if (e->n_steps > 0) snprintf(where, sizeof where, "step %d of %d: ", e->step, e->n_steps);
        snprintf(far, sizeof far, ", after %llu of %llu bytes, %lld ms after the start",
                 (unsigned long long)e->done_bytes, (unsigned long long)e->total_bytes,
                 (long long)(e->elapsed_ns / GMI_NS_PER_MS));
    }
    int wanted_bytes = snprintf(e->text, sizeof e->text, "rank %d: %s%s%s%s", e->rank, call, where, cause, far);
    (void)wanted_bytes; /* a long cause costs the sentence its end */
}

static void write_record(struct gm_comm *comm, const struct gmi_failure *failure, const struct gmi_op *op, gm_error *e)
{
    gmi_error_clear(e);
    e->status = failure->status;
    e->rank = comm->root->rank;
    e->culprit = failure->culprit;
    e->epoch = comm->root->control.epoch;
    e->sys_errno = failure->sys_errno;
    if (op != NULL) {
        e->op_seq = op->call.seq;
        e->op = gm_collective_name((gm_collective)op->call.collective);
        e->algorithm = op->algo->name;
        e->step = op->step;
        e->n_steps = op->n_steps;
        e->done_bytes = op->traffic.payload_recv_bytes;
        e->total_bytes = op->total_recv_bytes;
        e->elapsed_ns = gmi_now_ns() - op->begin_ns;
    }
    write_sentence(e, op, failure->cause);
}

gm_status gmi_comm_report_failure(struct gm_comm *comm, const struct gmi_op *op, gm_error *e)
{
    pthread_mutex_lock(&comm->root->lock);
    if (comm->failure_record.status == GM_OK) write_record(comm, &comm->root->control.failure, op, &comm->failure_record);
    *e = comm->failure_record; /* later calls have the record of the first one that failed */
    pthread_mutex_unlock(&comm->root->lock);
    return e->status;
}

/* ---- what this rank is doing ---------------------------------------------------------------------- */

bool gmi_comm_is_busy(const struct gm_comm *comm)
{
    bool is_busy_now = atomic_load(&comm->is_in_call);
    for (int lane = 0; lane < GMI_LANES; lane++) is_busy_now |= atomic_load(&comm->engines[lane].n_unfinished) > 0;
    return is_busy_now;
}

void gmi_comm_observe(void *user, struct gmi_progress *own)
{
    struct gm_comm *root = user, *comm = root;
    bool            is_any_busy = false;
    do is_any_busy |= gmi_comm_is_busy(comm);
    while ((comm = comm->next) != NULL);
    own->doing = is_any_busy ? GMI_IN_A_CALL : GMI_IN_USER_CODE;
    own->entered_seq = atomic_load_explicit(&root->entered_seq, memory_order_relaxed);
    own->done_seq = root->done_seq;
    own->since_ns = is_any_busy ? 0 : root->done_ns;
}
