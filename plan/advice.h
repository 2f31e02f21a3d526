/* advice.h - what to change first: each change is predicted like everything else, and ranked by what it gives. */
#ifndef PLAN_ADVICE_H
#define PLAN_ADVICE_H

#include "plan/model.h"

enum { PLAN_MAX_ADVICE = 8 };

struct plan_advice {
    const char *name;      /* "batch", "wire", ... */
    char        text[160]; /* a sentence without its end */
    double      gain;      /* samples per second, in shares of now: 0.25 is a quarter more */
    double      efficiency; /* then */
};

/* The changes that give at least a hundredth, the best first; returns how many. */
int plan_advise(const struct plan_machine *machine, const struct plan_job *job, int workers, struct plan_advice *advice);

#endif
