#include "tests/chaos/chaos.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

static const struct chaos_fault *draw_fault(struct gmi_rng *rng)
{
    const struct chaos_fault *row;
    int                       total = 0;
    for (size_t i = 0; (row = chaos_fault_row(i)) != NULL; i++) total += row->weight;
    int ticket = (int)gmi_rng_next_below(rng, (uint64_t)total);
    for (size_t i = 0; (row = chaos_fault_row(i)) != NULL; i++) {
        if ((ticket -= row->weight) < 0) return row;
    }
    return chaos_fault_row(0);
}

static enum chaos_phase draw_phase(struct gmi_rng *rng, const struct chaos_fault *fault)
{
    uint64_t ticket = gmi_rng_next_below(rng, 20);
    if (fault->only_calling || ticket < 16) return CHAOS_CALLING;
    return ticket < 18 ? CHAOS_CREATING : CHAOS_DESTROYING;
}

struct chaos_plan chaos_plan_draw(uint64_t seed, const struct chaos_fault *fault)
{
    static const char *const algorithms[] = { "auto", "ring", "direct", "tree", "doubling", "halving", "naive" };
    struct gmi_rng           rng = { .key = gmi_rng_key(seed, 0xC4A05) };
    struct chaos_plan        p = { .seed = seed, .second_victim = -1 };
    p.fault = fault != NULL ? fault : draw_fault(&rng);
    p.n_ranks = 2 + (int)gmi_rng_next_below(&rng, 5);
    if (p.fault->has_two_victims && p.n_ranks < 4) p.n_ranks = 4;
    p.n_calls = 2 + (int)gmi_rng_next_below(&rng, CHAOS_MAX_CALLS - 1);
    p.transport = !p.fault->needs_tcp && gmi_rng_next_below(&rng, 3) == 0 ? "auto" : "tcp";
    p.algorithm = algorithms[gmi_rng_next_below(&rng, TEST_COUNT(algorithms))];
    p.is_asynchronous = gmi_rng_next_below(&rng, 3) == 0;
    p.victim = (int)gmi_rng_next_below(&rng, (uint64_t)p.n_ranks);
    if (p.fault->has_two_victims)
        p.second_victim = (p.victim + 1 + (int)gmi_rng_next_below(&rng, (uint64_t)p.n_ranks - 1)) % p.n_ranks;
    p.phase = draw_phase(&rng, p.fault);
    p.at_call = (int)gmi_rng_next_below(&rng, (uint64_t)p.n_calls);
    if (!p.fault->is_in_call && gmi_rng_next_below(&rng, 4) != 0) p.delay_us = 1 + (int)gmi_rng_next_below(&rng, 4000);
    return p;
}

const char *chaos_plan_text(const struct chaos_plan *p)
{
    static char text[300];
    char        second[32] = "", where[48] = "while creating", when[48] = "";
    if (p->second_victim >= 0) snprintf(second, sizeof second, " and %d", p->second_victim);
    if (p->phase == CHAOS_CALLING) snprintf(where, sizeof where, "at call %d of %d", p->at_call + 1, p->n_calls);
    if (p->phase == CHAOS_DESTROYING) snprintf(where, sizeof where, "while destroying");
    if (p->delay_us > 0) snprintf(when, sizeof when, ", %d us in", p->delay_us);
    snprintf(text, sizeof text, "seed %llu: %s of rank %d%s %s%s; %d ranks, %s, %s%s", (unsigned long long)p->seed,
             p->fault->name, p->victim, second, where, when, p->n_ranks, p->transport, p->algorithm,
             p->is_asynchronous ? ", asynchronous" : "");
    return text;
}
