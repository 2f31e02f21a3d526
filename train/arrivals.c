#include "train/arrivals.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

gm_status gmt_arrivals_init(struct gmt_arrivals *arrivals, gm_comm *comm, size_t n_per_step, size_t max_steps, gm_error *error)
{
    *arrivals = (struct gmt_arrivals){ .n_ranks = comm == NULL ? 1 : gm_comm_size(comm),
                                       .rank = comm == NULL ? 0 : gm_comm_rank(comm),
                                       .n_per_step = n_per_step,
                                       .max_steps = max_steps };
    if (arrivals->n_ranks == 1) return GM_OK;
    size_t n_ranks = (size_t)arrivals->n_ranks, n_passages, n_all;
    bool   fits = gmi_mul_sizes(max_steps, n_per_step, &n_passages) && gmi_mul_sizes(n_passages, n_ranks, &n_all);
    if (fits) {
        arrivals->own = gmi_alloc(n_passages, sizeof *arrivals->own);
        arrivals->all = gmi_alloc(n_all, sizeof *arrivals->all);
        arrivals->waits_ns = gmi_alloc(max_steps, sizeof *arrivals->waits_ns);
        arrivals->costs_ns = gmi_alloc(2 * n_ranks, sizeof *arrivals->costs_ns);
        arrivals->n_last = gmi_alloc(2 * n_ranks, sizeof *arrivals->n_last);
        arrivals->errors_ns = gmi_alloc(2 * n_ranks, sizeof *arrivals->errors_ns);
    }
    if (arrivals->own != NULL && arrivals->all != NULL && arrivals->waits_ns != NULL && arrivals->costs_ns != NULL &&
        arrivals->n_last != NULL && arrivals->errors_ns != NULL)
        return GM_OK;
    gmt_arrivals_fini(arrivals);
    return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the arrival times of %zu ranks", n_ranks);
}

void gmt_arrivals_fini(struct gmt_arrivals *arrivals)
{
    gmi_free(arrivals->own);
    gmi_free(arrivals->all);
    gmi_free(arrivals->waits_ns);
    gmi_free(arrivals->costs_ns);
    gmi_free(arrivals->n_last);
    gmi_free(arrivals->errors_ns);
    *arrivals = (struct gmt_arrivals){ 0 };
}

/* A number that stands for the clock of this process: of the boot of its machine, and of its time namespace. */
static int64_t own_clock(void)
{
    char     text[200] = "";
    size_t   n = 0;
    FILE    *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    if (file != NULL) n = fread(text, 1, 64, file);
    if (file != NULL) fclose(file);
    ssize_t more = readlink("/proc/self/ns/time", text + n, sizeof text - n);
    if (more > 0) n += (size_t)more;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(hash >> 1);
}

gm_status gmt_arrivals_compare_clocks(struct gmt_arrivals *arrivals, gm_comm *comm, size_t *n_gathered)
{
    int64_t *clocks = arrivals->costs_ns; /* not in use yet */
    int      n = arrivals->n_ranks;
    *n_gathered = 0;
    if (n == 1) return GM_OK;
    clocks[arrivals->rank] = own_clock();
    *n_gathered = (size_t)n;
    gm_status status = gm_all_gather(comm, clocks, clocks, (size_t)n, GM_I64);
    if (status != GM_OK) return status;
    for (int r = 1; r < n; r++) arrivals->has_many_clocks |= clocks[r] != clocks[0];
    memset(clocks, 0, (size_t)n * sizeof *clocks);
    return GM_OK;
}

gm_status gmt_arrivals_read_clocks(struct gmt_arrivals *arrivals, gm_comm *comm)
{
    if (arrivals->n_ranks == 1 || !arrivals->has_many_clocks) return GM_OK;
    size_t    n = (size_t)arrivals->n_ranks;
    int64_t  *errors_ns = arrivals->errors_ns, *last_ns = errors_ns + n;
    bool      is_first = arrivals->last.at_ns == 0;
    int64_t   offset_ns, error_ns;
    gm_status status = gm_comm_clock(comm, &offset_ns, &error_ns);
    if (status != GM_OK) return status;
    arrivals->first = arrivals->last;
    arrivals->last = (struct gmt_clock_reading){ .at_ns = gmi_now_ns(), .offset_ns = offset_ns };
    if (is_first) arrivals->first = arrivals->last;
    memcpy(errors_ns, last_ns, n * sizeof *errors_ns);
    last_ns[arrivals->rank] = error_ns;
    status = gm_all_gather(comm, last_ns, last_ns, n, GM_I64);
    for (size_t r = 0; r < n && status == GM_OK; r++)
        if (last_ns[r] > errors_ns[r]) errors_ns[r] = last_ns[r];
    return status;
}

void gmt_arrivals_add(struct gmt_arrivals *arrivals, const struct gmt_passage *passages)
{
    if (arrivals->n_ranks == 1 || arrivals->n_steps == arrivals->max_steps) return;
    memcpy(arrivals->own + arrivals->n_steps * arrivals->n_per_step, passages, arrivals->n_per_step * sizeof *passages);
    arrivals->n_steps++;
}

size_t gmt_arrivals_gathered(const struct gmt_arrivals *arrivals)
{
    return arrivals->n_ranks == 1 ? 0 : (size_t)arrivals->n_ranks * arrivals->n_steps * arrivals->n_per_step;
}

/* ---- judging ------------------------------------------------------------------------------------ */

/* What this rank's clock was ahead of rank 0's when it showed at_ns. */
static int64_t offset_at(const struct gmt_arrivals *arrivals, int64_t at_ns)
{
    const struct gmt_clock_reading *first = &arrivals->first, *last = &arrivals->last;
    if (last->at_ns == first->at_ns) return last->offset_ns;
    double share = (double)(at_ns - first->at_ns) / (double)(last->at_ns - first->at_ns);
    return first->offset_ns + (int64_t)(share * (double)(last->offset_ns - first->offset_ns));
}

static int64_t error_of(const struct gmt_arrivals *arrivals, int rank)
{
    return arrivals->has_many_clocks ? arrivals->errors_ns[rank] : 0;
}

static int64_t largest_error_ns(const struct gmt_arrivals *arrivals)
{
    int64_t most_ns = 0;
    for (int r = 0; r < arrivals->n_ranks; r++)
        if (error_of(arrivals, r) > most_ns) most_ns = error_of(arrivals, r);
    return most_ns;
}

struct order {
    int     last, before;       /* the last rank, and the one before it */
    int64_t last_ns, before_ns;
};

static struct order order_of(const struct gmt_arrivals *arrivals, size_t exchange)
{
    size_t       n = arrivals->n_steps * arrivals->n_per_step;
    struct order order = { .last = 0, .last_ns = arrivals->all[exchange], .before_ns = INT64_MIN };
    for (int r = 1; r < arrivals->n_ranks; r++) {
        int64_t at_ns = arrivals->all[(size_t)r * n + exchange];
        if (at_ns > order.last_ns) {
            order.before_ns = order.last_ns;
            order.before = order.last;
            order.last_ns = at_ns;
            order.last = r;
        } else if (at_ns > order.before_ns) {
            order.before_ns = at_ns;
            order.before = r;
        }
    }
    return order;
}

static int64_t wait_in(const struct gmt_arrivals *arrivals, const struct gmt_passage *passage, const struct order *order)
{
    int64_t last_ns = order->last_ns + offset_at(arrivals, passage->end_ns); /* by this rank's clock */
    int64_t until_ns = last_ns < passage->end_ns ? last_ns : passage->end_ns;
    return until_ns > passage->blocked_ns ? until_ns - passage->blocked_ns : 0;
}

static void judge_step(struct gmt_arrivals *arrivals, size_t step)
{
    int64_t most_ns = -1;
    int     last = 0;
    arrivals->waits_ns[step] = 0;
    for (size_t i = 0; i < arrivals->n_per_step; i++) {
        size_t                    exchange = step * arrivals->n_per_step + i;
        const struct gmt_passage *own = &arrivals->own[exchange];
        struct order              order = order_of(arrivals, exchange);
        arrivals->waits_ns[step] += wait_in(arrivals, own, &order);
        if (own->blocked_ns != own->arrival_ns) continue; /* nobody stood still when it began */
        int64_t cost_ns = order.last_ns - order.before_ns;
        if (cost_ns < error_of(arrivals, order.last) + error_of(arrivals, order.before)) continue; /* or the other way round */
        arrivals->costs_ns[order.last] += cost_ns;
        if (cost_ns > most_ns) {
            most_ns = cost_ns;
            last = order.last;
        }
    }
    if (most_ns >= 0) arrivals->n_last[last]++;
}

/* The rank that cost most, by the figures of each; nobody where none came last for certain. */
static void name_last(struct gmt_lateness *lateness, const int64_t *costs_ns, const uint64_t *n_last, int n_ranks)
{
    int worst = 0;
    for (int r = 1; r < n_ranks; r++)
        if (costs_ns[r] > costs_ns[worst]) worst = r;
    lateness->last_rank = n_last[worst] > 0 ? worst : -1; /* -1: clocks are not known well enough to say who */
    lateness->last_cost_ns = costs_ns[worst];
    lateness->n_last = n_last[worst];
}

void gmt_arrivals_judge(struct gmt_arrivals *arrivals, struct gmt_lateness *lateness)
{
    int n = arrivals->n_ranks;
    *lateness = (struct gmt_lateness){ .last_rank = -1, .n_steps = arrivals->n_steps, .clock_error_ns = largest_error_ns(arrivals) };
    if (n == 1 || arrivals->n_steps == 0) return;
    memset(arrivals->costs_ns, 0, (size_t)n * sizeof *arrivals->costs_ns);
    memset(arrivals->n_last, 0, (size_t)n * sizeof *arrivals->n_last);
    for (size_t step = 0; step < arrivals->n_steps; step++) {
        judge_step(arrivals, step);
        lateness->wait_ns += arrivals->waits_ns[step];
    }
    for (int r = 0; r < n; r++) {
        arrivals->costs_ns[n + r] += arrivals->costs_ns[r];
        arrivals->n_last[n + r] += arrivals->n_last[r];
    }
    arrivals->all_wait_ns += lateness->wait_ns;
    arrivals->n_all_steps += arrivals->n_steps;
    name_last(lateness, arrivals->costs_ns, arrivals->n_last, n);
}

void gmt_arrivals_total(const struct gmt_arrivals *arrivals, struct gmt_lateness *lateness)
{
    int n = arrivals->n_ranks;
    *lateness = (struct gmt_lateness){ .last_rank = -1,
                                       .n_steps = arrivals->n_all_steps,
                                       .wait_ns = arrivals->all_wait_ns,
                                       .clock_error_ns = largest_error_ns(arrivals) };
    if (n > 1 && arrivals->n_all_steps > 0) name_last(lateness, arrivals->costs_ns + n, arrivals->n_last + n, n);
}

bool gmt_lateness_has_straggler(const struct gmt_lateness *lateness, int64_t elapsed_ns)
{
    return lateness->last_rank >= 0 && 2 * lateness->n_last > lateness->n_steps && 20 * lateness->last_cost_ns > elapsed_ns;
}

gm_status gmt_arrivals_settle(struct gmt_arrivals *arrivals, gm_comm *comm, struct gmt_lateness *lateness)
{
    gm_status status = GM_OK;
    size_t    n = arrivals->n_steps * arrivals->n_per_step;
    if (arrivals->n_ranks > 1 && n > 0) {
        int64_t *own = arrivals->all + (size_t)arrivals->rank * n;
        for (size_t i = 0; i < n; i++) {
            int64_t at_ns = arrivals->own[i].arrival_ns;
            own[i] = at_ns - offset_at(arrivals, at_ns);
        }
        status = gm_all_gather(comm, arrivals->all, arrivals->all, gmt_arrivals_gathered(arrivals), GM_I64);
    }
    if (status == GM_OK) gmt_arrivals_judge(arrivals, lateness);
    else *lateness = (struct gmt_lateness){ .last_rank = -1 };
    arrivals->n_steps = 0;
    return status;
}
