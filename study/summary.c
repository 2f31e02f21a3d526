#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/shared.h"

/* ---- medians ------------------------------------------------------------------------------------ */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_ms(const struct study_account *account)
{
    int64_t times[STUDY_MAX_STEPS];
    int     n = account->n_steps;
    if (n == 0) return 0;
    for (int i = 0; i < n; i++) times[i] = account->steps[i].elapsed_ns;
    qsort(times, (size_t)n, sizeof *times, compare_times);
    int64_t below = times[(n - 1) / 2], above = times[n / 2];
    return (double)(below + above) / 2e6;
}

/* ---- the middle half of the steps ----------------------------------------------------------------- */

struct ranked {
    int64_t length_ns; /* of the rank that took longest */
    int     step;
};

static int compare_ranked(const void *a, const void *b)
{
    int64_t x = ((const struct ranked *)a)->length_ns, y = ((const struct ranked *)b)->length_ns;
    return (x > y) - (x < y);
}

/* Which steps count: chosen[i] for the i-th; returns how many. What an interrupt or a first touch made long says nothing
 * of where an ordinary step spends its time. */
static int choose_steps(const struct study_job *job, int chosen[STUDY_MAX_STEPS])
{
    struct ranked all[STUDY_MAX_STEPS];
    int           n = job->accounts[0].n_steps;
    for (int i = 0; i < n; i++) {
        int64_t longest_ns = 0;
        for (int r = 0; r < job->point.world_size; r++) {
            if (job->accounts[r].steps[i].elapsed_ns > longest_ns) longest_ns = job->accounts[r].steps[i].elapsed_ns;
        }
        all[i] = (struct ranked){ longest_ns, i };
    }
    qsort(all, (size_t)n, sizeof *all, compare_ranked);
    int n_chosen = 0;
    for (int i = n / 4; i < n - n / 4; i++) chosen[n_chosen++] = all[i].step;
    return n_chosen;
}

static void add_rank(struct study_result *result, const struct study_account *account, int rank, const int *chosen, int n_chosen)
{
    struct study_rank *r = &result->ranks[rank];
    *r = (struct study_rank){ .cpu = account->cpu, .median_ms = median_ms(account) };
    for (int i = 0; i < n_chosen; i++) {
        const struct study_step *step = &account->steps[chosen[i]];
        r->compute_ms += (double)step->compute_ns / n_chosen / 1e6;
        r->comm_exposed_ms += (double)step->comm_exposed_ns / n_chosen / 1e6;
        r->comm_hidden_ms += (double)step->comm_hidden_ns / n_chosen / 1e6;
        r->wait_ms += (double)step->wait_ns / n_chosen / 1e6;
    }
}

/* ---- the whole ------------------------------------------------------------------------------------ */

static void name_transport(const struct study_job *job, struct study_result *result)
{
    bool uses_memory = false, uses_tcp = false;
    for (int r = 0; r < job->point.world_size; r++) {
        uses_memory |= job->accounts[r].uses_memory;
        uses_tcp |= job->accounts[r].uses_tcp;
    }
    snprintf(result->transport, sizeof result->transport, "%s",
             uses_memory && uses_tcp ? "shm+tcp" : uses_memory ? "shm" : uses_tcp ? "tcp" : "none");
}

void study_summarize(const struct study_job *job, struct study_result *result)
{
    int n = job->point.world_size, chosen[STUDY_MAX_STEPS];
    int n_chosen = choose_steps(job, chosen);
    *result = (struct study_result){ .n_steps = job->accounts[0].n_steps,
                                     .n_threads = job->n_threads,
                                     .is_overlapping = job->accounts[0].is_overlapping,
                                     .is_pinned = true,
                                     .are_identical = true };
    for (int r = 0; r < n; r++) {
        const struct study_account *account = &job->accounts[r];
        add_rank(result, account, r, chosen, n_chosen);
        const struct study_rank *rank = &result->ranks[r];
        if (rank->median_ms > result->median_ms) result->median_ms = rank->median_ms;
        result->compute_ms += rank->compute_ms / n;
        result->comm_exposed_ms += rank->comm_exposed_ms / n;
        result->comm_hidden_ms += rank->comm_hidden_ms / n;
        result->wait_ms += rank->wait_ms / n;
        result->cpu_s += (double)account->cpu_ns / 1e9 / account->n_steps;
        result->payload_bytes += account->payload_bytes / (uint64_t)account->n_steps;
        result->is_pinned &= account->cpu >= 0;
        if (!job->point.is_zero_comm) result->are_identical &= strcmp(account->state_hash, job->accounts[0].state_hash) == 0;
    }
    name_transport(job, result);
    const struct study_account *first = &job->accounts[0];
    bool                        is_alone = n == 1 || job->point.is_zero_comm;
    result->last_rank = is_alone ? -1 : first->last_rank;
    result->last_cost_ms = is_alone ? 0 : (double)first->last_cost_ns / 1e6;
    result->last_share = is_alone ? 0 : first->last_share;
    result->clock_error_us = is_alone ? 0 : (double)first->clock_error_ns / 1e3;
}
