/* schedule.h - the learning rate as a pure function of the step.
 *
 *     warm-up    base (step + 1) / (warmup_steps + 1)    for step < warmup_steps
 *     constant   base
 *     linear     base to final_fraction * base, in a straight line    p: progress after the
 *     cosine     the same along half a cosine                         warm-up, 0 <= p < 1
 *
 * No state: a resumed run goes on with the right rate. Cosines are computed here and not by the C
 * library, of which different versions may give different last bits on different hosts. */
#ifndef GMT_SCHEDULE_H
#define GMT_SCHEDULE_H

#include <stdint.h>

#include "gradmesh.h"

enum gmt_schedule_kind { GMT_CONSTANT, GMT_LINEAR, GMT_COSINE, GMT_SCHEDULE_END };

struct gmt_schedule {
    enum gmt_schedule_kind kind;
    double   base_rate;
    double   final_fraction; /* linear, cosine: of base_rate, at the end of the run; usually 0 */
    uint64_t warmup_steps;
    uint64_t total_steps;
};

/* "constant", "linear", "cosine"; "?" for a number that is none. Static. */
const char *gmt_schedule_name(enum gmt_schedule_kind kind);
/* The kind of that name; GM_ERR_ARG with the names that there are. */
GM_MUST_USE gm_status gmt_schedule_parse(enum gmt_schedule_kind *kind, const char *name,
                                         gm_error *error);

/* The rate of step number `step`, counted from 0. Steps at or beyond total_steps get the final
 * rate. */
double gmt_schedule_rate(const struct gmt_schedule *schedule, uint64_t step);

#endif
