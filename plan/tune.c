#include "plan/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rng.h"
#include "coll/algo.h"

/* A change of the algorithm must win at least so much, added up over sizes: else noise would make many. */
static const double CHANGE_MUST_WIN = 0.2;

bool plan_timing_name(struct plan_timing *timing, const char *collective, const char *algorithm)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (strcmp(gm_collective_name(row->collective), collective) != 0 || strcmp(row->name, algorithm) != 0) continue;
        timing->collective = (uint8_t)row->collective;
        timing->algorithm = row->id;
        return true;
    }
    return false;
}

/* ---- contests ------------------------------------------------------------------------------------ */

static int compare_contests(const struct plan_timing *a, const struct plan_timing *b)
{
    const int x[] = { a->site.kind, a->site.n_hosts, a->site.n_ranks, a->site.n_cores, a->collective };
    const int y[] = { b->site.kind, b->site.n_hosts, b->site.n_ranks, b->site.n_cores, b->collective };
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        if (x[i] != y[i]) return x[i] - y[i];
    }
    return 0;
}

static int compare_cells(const struct plan_timing *a, const struct plan_timing *b)
{
    int order = compare_contests(a, b);
    if (order != 0) return order;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return (int)a->algorithm - (int)b->algorithm;
}

static int compare_timings(const void *left, const void *right)
{
    const struct plan_timing *a = left, *b = right;
    int                       order = compare_cells(a, b);
    return order != 0 ? order : (a->us > b->us) - (a->us < b->us);
}

static int find_algo(struct plan_contest *c, uint8_t id)
{
    int i = 0;
    while (i < c->n_algos && c->algos[i] != id) i++;
    if (i == c->n_algos && i < PLAN_TUNE_MAX_ALGOS) c->algos[c->n_algos++] = id;
    return i;
}

/* The median of n timings of one thing goes into its cell. */
static bool add_cell(struct plan_contest *c, const struct plan_timing *timings, size_t n)
{
    int algo = find_algo(c, timings[0].algorithm);
    if (c->n_sizes == 0 || c->bytes[c->n_sizes - 1] != timings[0].bytes) {
        if (c->n_sizes == PLAN_TUNE_MAX_SIZES) return false;
        c->bytes[c->n_sizes++] = timings[0].bytes;
    }
    if (algo == PLAN_TUNE_MAX_ALGOS) return false;
    c->us[c->n_sizes - 1][algo] = (timings[(n - 1) / 2].us + timings[n / 2].us) / 2;
    return true;
}

static bool fill_contests(const struct plan_timing *timings, size_t n_timings, struct plan_contest *contests, size_t *n_contests)
{
    for (size_t i = 0, n; i < n_timings; i += n) {
        for (n = 1; i + n < n_timings && compare_cells(&timings[i], &timings[i + n]) == 0;) n++;
        if (i == 0 || compare_contests(&timings[i - 1], &timings[i]) != 0) {
            contests[*n_contests].site = timings[i].site;
            contests[(*n_contests)++].collective = timings[i].collective;
        }
        if (!add_cell(&contests[*n_contests - 1], &timings[i], n)) return false;
    }
    return true;
}

gm_status plan_tune_contests(struct plan_timing *timings, size_t n_timings, struct plan_contest **contests, size_t *n_contests,
                             gm_error *error)
{
    size_t n = 0;
    if (n_timings > 0) qsort(timings, n_timings, sizeof *timings, compare_timings); /* without any there is no array */
    for (size_t i = 0; i < n_timings; i++) n += i == 0 || compare_contests(&timings[i - 1], &timings[i]) != 0;
    *n_contests = 0;
    *contests = gmi_alloc(n + 1, sizeof **contests);
    if (*contests == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the timings");
    if (fill_contests(timings, n_timings, *contests, n_contests)) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "more than %d sizes or %d algorithms of one collective were timed", PLAN_TUNE_MAX_SIZES,
                         PLAN_TUNE_MAX_ALGOS);
}

const char *plan_tune_algorithm(const struct plan_contest *contest, int index) { return gmi_algo_name(contest->algos[index]); }

static double best_us(const struct plan_contest *c, int size)
{
    double best = 0;
    for (int a = 0; a < c->n_algos; a++) {
        if (c->us[size][a] > 0 && (best == 0 || c->us[size][a] < best)) best = c->us[size][a];
    }
    return best;
}

/* ---- choices ------------------------------------------------------------------------------------- */

/* Which algorithm for each size, so that what is lost to the best one plus what changes cost is least: the usual dynamic
 * programme over sizes, by logarithms of ratios. */
static void choose_for_sizes(const struct plan_contest *c, int chosen[PLAN_TUNE_MAX_SIZES])
{
    double lost[PLAN_TUNE_MAX_ALGOS] = { 0 };
    int    from[PLAN_TUNE_MAX_SIZES][PLAN_TUNE_MAX_ALGOS] = { 0 };
    for (int s = 0; s < c->n_sizes; s++) {
        int cheapest = 0;
        for (int a = 1; a < c->n_algos; a++) cheapest = lost[a] < lost[cheapest] ? a : cheapest;
        double change = lost[cheapest] + CHANGE_MUST_WIN;
        for (int a = 0; a < c->n_algos; a++) {
            bool does_change = s > 0 && change < lost[a];
            from[s][a] = does_change ? cheapest : a;
            lost[a] = (does_change ? change : lost[a]) + (c->us[s][a] > 0 ? log(c->us[s][a] / best_us(c, s)) : INFINITY);
        }
    }
    int at = 0;
    for (int a = 1; a < c->n_algos; a++) at = lost[a] < lost[at] ? a : at;
    for (int s = c->n_sizes - 1; s >= 0; s--) {
        chosen[s] = at;
        at = from[s][at];
    }
}

size_t plan_tune_choices(const struct plan_contest *c, struct gmi_choice *choices)
{
    int    chosen[PLAN_TUNE_MAX_SIZES] = { 0 };
    size_t n = 0;
    choose_for_sizes(c, chosen);
    for (int s = 0; s < c->n_sizes; s++) {
        bool is_last = s + 1 == c->n_sizes;
        if (!is_last && (chosen[s + 1] == chosen[s] || n + 1 == PLAN_TUNE_MAX_ALGOS)) continue;
        double edge = is_last ? 0 : sqrt((double)c->bytes[s] * (double)c->bytes[s + 1]); /* in the middle between two that were timed */
        choices[n++] = (struct gmi_choice){ .site = c->site, .collective = c->collective, .algorithm = c->algos[chosen[s]],
                                            .most_bytes = is_last ? UINT64_MAX : (uint64_t)edge };
    }
    return n;
}

/* ---- verdicts ------------------------------------------------------------------------------------ */

struct gmi_costs plan_site_costs(struct gmi_site site, const struct gmi_profile *profile)
{
    int most_on_a_host = (site.n_ranks + site.n_hosts - 1) / site.n_hosts;
    return (struct gmi_costs){ .n_ranks = site.n_ranks, .n_hosts = site.n_hosts, .most_on_a_host = most_on_a_host,
                               .n_cores = site.n_cores, .crowd = fmax(1, (double)most_on_a_host / site.n_cores),
                               .kind = site.kind, .kind_within = site.n_hosts > 1 ? GMI_KIND_MEMORY : site.kind,
                               .profile = *profile };
}

static double time_of(const struct plan_contest *c, int size, uint8_t algorithm)
{
    for (int a = 0; a < c->n_algos; a++) {
        if (c->algos[a] == algorithm) return c->us[size][a];
    }
    return 0;
}

static struct plan_verdict judge(const struct plan_contest *c, const struct gmi_costs *costs)
{
    struct plan_verdict v = { .worst = 0 };
    double              sum = 0;
    int                 n = 0;
    for (int s = 0; s < c->n_sizes; s++) {
        const struct gmi_algo *row = gmi_algo_choose("auto", c->collective, costs, c->bytes[s], GMI_VIEW_PAIRS);
        double                 us = row != NULL ? time_of(c, s, row->id) : 0, ratio = us / best_us(c, s);
        if (us == 0) continue; /* what it takes was not timed */
        sum += log(ratio);
        n++;
        v.n_within += ratio <= 1.1;
        if (ratio <= v.worst) continue;
        v.worst = ratio;
        v.worst_bytes = c->bytes[s];
    }
    v.mean = n > 0 ? exp(sum / n) : 0;
    return v;
}

struct plan_verdict plan_tune_verdict(const struct plan_contest *contest, const struct gmi_profile *profile)
{
    struct gmi_costs costs = plan_site_costs(contest->site, profile);
    return judge(contest, &costs);
}

/* ---- constants ----------------------------------------------------------------------------------- */

enum { N_TRIALS = 6000, SEED = 1 };

static const double LARGEST_CHANGE = 1, SMALLEST_CHANGE = 0.01; /* of logarithms */
static const double FARTHEST = 8, WORTH_NEW_CONSTANTS = 0.02;

static const struct gmi_algo *row_of(uint8_t collective, uint8_t id)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if ((uint8_t)row->collective == collective && row->id == id) return row;
    }
    return NULL;
}

/* What is wrong with the model: how far its times are off, on average, and, of more weight, what its choices lose. */
static double badness(const struct plan_contest *contests, size_t n_contests, const struct gmi_profile *profile, int kind,
                      double *lost_to_choices)
{
    double off = 0, lost = 0;
    int    n_cells = 0, n_chosen = 0;
    for (size_t i = 0; i < n_contests; i++) {
        const struct plan_contest *c = &contests[i];
        if (c->site.kind != kind) continue;
        struct gmi_costs costs = plan_site_costs(c->site, profile);
        for (int s = 0; s < c->n_sizes; s++) {
            for (int a = 0; a < c->n_algos; a++) {
                const struct gmi_algo *row = row_of(c->collective, c->algos[a]);
                if (row == NULL || c->us[s][a] == 0) continue;
                off += fabs(log(fmax(1e-3, gmi_algo_us(row, &costs, c->bytes[s])) / c->us[s][a]));
                n_cells++;
            }
        }
        lost += log(fmax(1, judge(c, &costs).mean));
        n_chosen++;
    }
    *lost_to_choices = n_chosen == 0 ? 0 : lost / n_chosen;
    return n_cells == 0 ? 0 : off / n_cells + 4 * *lost_to_choices;
}

/* Trial and error: all constants are changed a little at once, by smaller and smaller amounts, and what is better stays. One
 * constant at a time would get stuck, since what one explains too much another explains too little. None goes far from where
 * it began, since it must do for worlds that were not measured; and constants that choose no better than the old ones are
 * not worth new ones. */
void plan_tune_constants(const struct plan_contest *contests, size_t n_contests, enum gmi_link_kind kind,
                         struct gmi_link_costs *constants)
{
    struct gmi_profile    profile = { .n_choices = 0 };
    struct gmi_link_costs start = *constants;
    double                lost_before, lost_now, lost = 0;
    profile.kinds[kind] = start;
    double   least = badness(contests, n_contests, &profile, (int)kind, &lost_before);
    uint64_t draw = 0;
    lost = lost_before;
    for (int trial = 0; trial < N_TRIALS; trial++) {
        double range = LARGEST_CHANGE * pow(SMALLEST_CHANGE / LARGEST_CHANGE, (double)trial / N_TRIALS);
        for (int i = 0; gmi_link_constant(constants, i) != NULL; i++) {
            double value = *gmi_link_constant(constants, i) * exp(range * (2 * gmi_rng_unit(SEED, draw++) - 1));
            double first = *gmi_link_constant(&start, i), least_value = fmax(1, first / FARTHEST), most = fmax(1, first) * FARTHEST;
            *gmi_link_constant(&profile.kinds[kind], i) = (uint32_t)fmin(fmin(fmax(least_value, value), most), UINT32_MAX);
        }
        double now = badness(contests, n_contests, &profile, (int)kind, &lost_now);
        if (now >= least) continue;
        least = now;
        lost = lost_now;
        *constants = profile.kinds[kind];
    }
    if (lost > lost_before - WORTH_NEW_CONSTANTS) *constants = start;
}
