#include "train/feedback.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/error.h"

gm_status gmt_feedback_init(struct gmt_feedback *feedback, gm_comm *comm, size_t n_elems, gm_error *error)
{
    *feedback = (struct gmt_feedback){ .comm = comm, .n_elems = n_elems };
    if (comm == NULL || gm_comm_size(comm) == 1 || strcmp(gm_comm_wire(comm), "int8") != 0) return GM_OK;
    feedback->residual = gmi_alloc(n_elems, sizeof *feedback->residual); /* zeros */
    if (feedback->residual != NULL) return GM_OK;
    return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the error feedback of %zu parameters", n_elems);
}

void gmt_feedback_fini(struct gmt_feedback *feedback)
{
    gmi_free(feedback->residual);
    *feedback = (struct gmt_feedback){ 0 };
}

void gmt_feedback_apply(struct gmt_feedback *feedback, float *values, size_t first_elem, size_t n_elems)
{
    if (feedback->residual == NULL) return;
    GMI_CHECK(first_elem <= feedback->n_elems && n_elems <= feedback->n_elems - first_elem);
    float *residual = feedback->residual + first_elem;
    for (size_t i = 0; i < n_elems; i++) values[i] += residual[i];
    gm_status status = gm_wire_round_trip(feedback->comm, values, residual, n_elems); /* what comes out, for now */
    GMI_CHECK(status == GM_OK);
    for (size_t i = 0; i < n_elems; i++) residual[i] = values[i] - residual[i];
}

void gmt_feedback_forget(struct gmt_feedback *feedback)
{
    if (feedback->residual != NULL) memset(feedback->residual, 0, feedback->n_elems * sizeof *feedback->residual);
}
