/* redop.c - the caller's own reductions: a table of functions by number, on each rank for itself. */
#include "base/error.h"
#include "comm/comm.h"

enum { N_USER_OPS = GM_REDOP_USER_END - GM_REDOP_USER };

struct gmi_user_op gmi_comm_user_op(const struct gm_comm *comm, int redop)
{
    if (redop < GM_REDOP_USER || redop >= GM_REDOP_USER_END) return (struct gmi_user_op){ 0 };
    return comm->user_ops[redop - GM_REDOP_USER];
}

static gm_status take_free_number(struct gm_comm *comm, struct gmi_user_op op, gm_redop *redop)
{
    for (int i = 0; i < N_USER_OPS; i++) {
        if (comm->user_ops[i].fn != NULL) continue;
        comm->user_ops[i] = op;
        *redop = (gm_redop)(GM_REDOP_USER + i);
        return GM_OK;
    }
    gmi_error_clear(&comm->error);
    comm->error.rank = comm->root->rank;
    return gmi_error_set(&comm->error, GM_ERR_UNSUPPORTED,
                         "all %d reductions of a communicator are taken; gm_redop_destroy frees one", N_USER_OPS);
}

/* The table is the caller's thread's: a collective that runs has its own copy of what it needs. */
gm_status gm_redop_create(gm_comm *comm, gm_combine_fn fn, void *user, gm_redop *redop)
{
    if (comm == NULL || fn == NULL || redop == NULL) return GM_ERR_ARG;
    if (atomic_exchange(&comm->is_in_call, true)) return GM_ERR_STATE;
    gm_status status = take_free_number(comm, (struct gmi_user_op){ fn, user }, redop);
    atomic_store(&comm->is_in_call, false);
    return status;
}

gm_status gm_redop_destroy(gm_comm *comm, gm_redop redop)
{
    if (comm == NULL) return GM_ERR_ARG;
    if (atomic_exchange(&comm->is_in_call, true)) return GM_ERR_STATE;
    gm_status status = GM_ERR_ARG;
    if (gmi_comm_user_op(comm, (int)redop).fn != NULL) {
        comm->user_ops[redop - GM_REDOP_USER] = (struct gmi_user_op){ 0 };
        status = GM_OK;
    }
    atomic_store(&comm->is_in_call, false);
    return status;
}
