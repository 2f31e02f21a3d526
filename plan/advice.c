#include "plan/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/bucket.h"

struct change {
    const char *name;
    char        text[160];
    struct plan_job     job;
    struct plan_machine *machine; /* NULL: as it is */
};

static double samples_per_ms(const struct plan_job *job, const struct plan_prediction *p)
{
    return p->step_ms > 0 ? (double)job->batch / p->step_ms : 0;
}

static int by_gain(const void *a, const void *b)
{
    double x = ((const struct plan_advice *)a)->gain, y = ((const struct plan_advice *)b)->gain;
    return (x < y) - (x > y);
}

static void weigh(const struct plan_machine *machine, const struct change *change, int workers, double now, struct plan_advice *advice,
                  int *n)
{
    struct plan_prediction then = plan_predict(machine, &change->job, workers);
    struct plan_advice    *a = &advice[*n];
    *a = (struct plan_advice){ .name = change->name, .gain = samples_per_ms(&change->job, &then) / now - 1,
                               .efficiency = then.efficiency };
    snprintf(a->text, sizeof a->text, "%s", change->text);
    if (a->gain >= 0.01) ++*n;
}

static void larger_batch(struct change *change, int times)
{
    change->name = "batch";
    change->job.batch *= (size_t)times;
    snprintf(change->text, sizeof change->text, "a batch of %zu instead of %zu: computing grows, the exchange does not",
             change->job.batch, change->job.batch / (size_t)times);
}

static void rarer_exchange(struct change *change, int steps)
{
    change->name = "accumulate";
    change->job.batch *= (size_t)steps;
    change->job.accumulate *= (size_t)steps;
    snprintf(change->text, sizeof change->text, "adding up the gradients of %d steps before they are exchanged (--batch %zu --accumulate %zu): "
             "the same memory, one update for %d", steps, change->job.batch, change->job.accumulate, steps);
}

static void leaner_wire(struct change *change, const char *wire, const char *saves)
{
    change->name = "wire";
    snprintf(change->text, sizeof change->text, "--wire %s: %s of the bytes, for a little accuracy", wire, saves);
    snprintf(change->job.wire, sizeof change->job.wire, "%s", wire);
}

static void overlapped(struct change *change)
{
    change->name = "overlap";
    snprintf(change->text, sizeof change->text, "--overlap on: the exchange begins while the backward pass goes on");
    change->job.overlaps = true;
    change->job.bucket_bytes = GMT_BUCKET_BYTES_AUTO;
}

static void faster_network(struct change *change)
{
    change->name = "network";
    snprintf(change->text, sizeof change->text, "a network of ten times the bandwidth");
    change->job.link.bandwidth_Bps *= 10;
}

static void bigger_hosts(struct change *change)
{
    change->name = "hosts";
    if (change->job.is_network) {
        snprintf(change->text, sizeof change->text, "hosts that compute twice as fast (more cores for each worker)");
    } else {
        snprintf(change->text, sizeof change->text, "a machine of twice the cores");
    }
}

/* Twice as fast where it computes; an exchange among cores has twice as many to it. */
static void weigh_bigger_hosts(const struct plan_machine *machine, const struct plan_job *job, int workers, double now,
                               struct plan_advice *advice, int *n)
{
    struct change       change = { .job = *job };
    struct plan_machine *bigger = malloc(sizeof *bigger);
    if (bigger == NULL) return;
    *bigger = *machine;
    bigger_hosts(&change);
    if (job->is_network) {
        bigger->flops *= 2;
        for (int i = 0; i < bigger->n_crews; i++)
            for (int s = 0; s < bigger->crews[i].n_speeds; s++) {
                bigger->crews[i].speeds[s].step_ms /= 2;
                bigger->crews[i].speeds[s].mean_ms /= 2;
            }
        for (int i = 0; i < bigger->n_crews; i++) bigger->crews[i].update_ms /= 2;
    } else {
        bigger->n_cores *= 2;
        for (int i = 0; i < bigger->n_crews; i++) { /* a crew of N is what 2 N will be there */
            struct plan_crew *crew = &bigger->crews[i];
            if (crew->threads == 1) crew->workers = crew->workers == 1 ? 1 : 2 * crew->workers;
        }
    }
    weigh(bigger, &change, workers, now, advice, n);
    free(bigger);
}

int plan_advise(const struct plan_machine *machine, const struct plan_job *job, int workers, struct plan_advice *advice)
{
    struct plan_prediction p = plan_predict(machine, job, workers);
    double                 now = samples_per_ms(job, &p);
    struct change          change;
    int                    n = 0;
    if (now <= 0 || workers < 2) return 0;
#define TRY(...)                                                                                                                   \
    do {                                                                                                                           \
        change = (struct change){ .job = *job };                                                                                   \
        __VA_ARGS__;                                                                                                               \
        weigh(machine, &change, workers, now, advice, &n);                                                                         \
    } while (0)
    TRY(larger_batch(&change, 4));
    TRY(rarer_exchange(&change, 4));
    if (strcmp(job->wire, "f32") == 0) TRY(leaner_wire(&change, "bf16", "half"));
    if (strcmp(job->wire, "int8") != 0) TRY(leaner_wire(&change, "int8", "about a quarter"));
    if (!job->overlaps && job->is_network) TRY(overlapped(&change));
    if (job->is_network) TRY(faster_network(&change));
    weigh_bigger_hosts(machine, job, workers, now, advice, &n);
#undef TRY
    qsort(advice, (size_t)n, sizeof *advice, by_gain);
    return n;
}
