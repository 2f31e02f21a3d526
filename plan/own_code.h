/* own_code.h - what the library's own code takes of a core, beside the system calls that it makes: of a call, and of a try.
 *
 * Two ranks in one thread, over links in memory: descriptors, schedules and headers are those of any collective, and hardly
 * anything is moved. bench/turns.h measures the rest, without that code. */
#ifndef PLAN_OWN_CODE_H
#define PLAN_OWN_CODE_H

#include "bench/turns.h"

/* Fills in call_us and try_us. Takes some milliseconds. GM_OK, GM_ERR_NOMEM. */
GM_MUST_USE gm_status plan_measure_own_code(struct bench_turns *turns, gm_error *error);

#endif
