/* simulate_result.c - what came of a simulation: times, who was waited for, what was busiest. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/simulate_state.h"

static const double PS_PER_MS = 1e9, STRAGGLER_SHARE = 0.02; /* of the step, from which on a late rank is named */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t whole_ps(const struct sim_rank *r) { return r->begin_ps + r->compute_ps + r->stolen_ps; }

static void add_rank(const struct sim_rank *r, struct plan_simulated_rank *to)
{
    int64_t whole = whole_ps(r);
    *to = (struct plan_simulated_rank){ .compute_ms = (double)whole / PS_PER_MS,
                                        .finish_ms = (double)(r->finish_ps > whole ? r->finish_ps : whole) / PS_PER_MS,
                                        .idle_ms = (double)r->idle_ps / PS_PER_MS,
                                        .core_ms = (double)r->core_ps / PS_PER_MS, .waits_for = -1,
                                        .payload_sent_bytes = r->traffic.payload_sent_bytes,
                                        .protocol_sent_bytes = r->traffic.protocol_sent_bytes };
    for (uint32_t i = 0; i < r->n_slots; i++) {
        const struct plan_end *end = r->ends[i];
        if (end == NULL || (double)end->waited_ps / PS_PER_MS <= to->waits_for_ms) continue;
        to->waits_for = end->port.peer;
        to->waits_for_ms = (double)end->waited_ps / PS_PER_MS;
    }
}

static void add_times(struct plan_simulation_result *result, double *whole)
{
    int    n = result->n_ranks, last = 0;
    double most = 0;
    for (int rank = 0; rank < n; rank++) {
        const struct plan_simulated_rank *r = &result->ranks[rank];
        whole[rank] = r->compute_ms;
        if (r->compute_ms > result->ranks[last].compute_ms) last = rank;
        if (r->finish_ms > most) most = r->finish_ms;
    }
    qsort(whole, (size_t)n, sizeof *whole, by_value);
    double median = n % 2 == 1 ? whole[n / 2] : (whole[n / 2 - 1] + whole[n / 2]) / 2;
    result->step_ms = most;
    result->compute_ms = median;
    result->wait_ms = whole[n - 1] - median;
    result->exchange_ms = most - whole[n - 1];
    result->straggler = -1;
    if (n < 2 || whole[n - 1] - whole[n - 2] < STRAGGLER_SHARE * most) return;
    result->straggler = last;
    result->straggler_costs_ms = whole[n - 1] - whole[n - 2];
}

/* The median round in place of all of them. */
static void add_rounds(const struct sim *sim, struct plan_simulation_result *result)
{
    int    n = sim->simulation->n_rounds;
    double ms[SIM_MAX_ROUNDS];
    if (n == 0) return;
    for (int i = 0; i < n; i++) ms[i] = (double)sim->rounds_ps[i] / PS_PER_MS;
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    result->exchange_ms = ms[n / 2];
    result->step_ms = result->compute_ms + result->wait_ms + result->exchange_ms;
}

static void add_cards(const struct sim *sim, struct plan_simulation_result *result)
{
    int64_t most_ps = -1;
    result->busiest_host = -1;
    for (int host = 0; host < sim->layout.n_hosts; host++) {
        const struct plan_card *card = &sim->cards[host];
        bool    is_out = card->out_busy_ps >= card->in_busy_ps;
        int64_t busy_ps = is_out ? card->out_busy_ps : card->in_busy_ps;
        if (card->out_bytes + card->in_bytes == 0 || busy_ps <= most_ps) continue;
        most_ps = busy_ps;
        result->busiest_host = host;
        result->is_busiest_out = is_out;
        result->busiest_bytes = is_out ? card->out_bytes : card->in_bytes;
    }
    if (result->busiest_host >= 0 && result->exchange_ms > 0) {
        result->busiest_share = (double)most_ps / PS_PER_MS / result->exchange_ms;
    }
}

gm_status sim_result(const struct sim *sim, struct plan_simulation_result *result, gm_error *error)
{
    double *whole = gmi_alloc((size_t)sim->n_ranks, sizeof *whole);
    result->n_ranks = sim->n_ranks;
    result->ranks = gmi_alloc((size_t)sim->n_ranks, sizeof *result->ranks);
    if (result->ranks == NULL || whole == NULL) {
        gmi_free(whole);
        plan_simulation_free(result);
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the results of %d workers", sim->n_ranks);
    }
    for (int rank = 0; rank < sim->n_ranks; rank++) {
        struct plan_simulated_rank *r = &result->ranks[rank];
        add_rank(&sim->ranks[rank], r);
        result->payload_bytes += r->payload_sent_bytes;
        result->protocol_bytes += r->protocol_sent_bytes;
        if (r->payload_sent_bytes > result->most_payload_bytes) result->most_payload_bytes = r->payload_sent_bytes;
    }
    add_times(result, whole);
    add_cards(sim, result);
    add_rounds(sim, result);
    result->grain_bytes = sim->network.costs.grain_bytes;
    result->n_transfers = sim->network.n_parcels;
    result->n_events = sim->events.n_added;
    result->memory_bytes = sim->network.memory_bytes + (size_t)sim->n_ranks * sizeof *sim->ranks +
                           sim->events.capacity * sizeof *sim->events.heap;
    gmi_free(whole);
    return GM_OK;
}

void plan_simulation_free(struct plan_simulation_result *result)
{
    gmi_free(result->ranks);
    result->ranks = NULL;
}
