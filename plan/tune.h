/* tune.h - from timings of all algorithms to a profile by which "auto" chooses (coll/profile.h).
 *
 * For every site and collective that was timed: which algorithm is fastest up to which size; and for every kind of link
 * the constants with which the cost model comes nearest to what was timed. The same timings give the same profile. */
#ifndef PLAN_TUNE_H
#define PLAN_TUNE_H

#include "coll/profile.h"
#include "gradmesh.h"

enum { PLAN_TUNE_MAX_SIZES = 64, PLAN_TUNE_MAX_ALGOS = 16 };

/* One algorithm (gmi_algo.id), timed once with a buffer of this size. */
struct plan_timing {
    struct gmi_site site;
    uint8_t         collective, algorithm;
    uint64_t        bytes;
    double          us;
};

/* All sizes and algorithms of one collective at one site: the median time of each. */
struct plan_contest {
    struct gmi_site site;
    uint8_t         collective;
    int             n_sizes, n_algos;
    uint64_t        bytes[PLAN_TUNE_MAX_SIZES]; /* rising */
    uint8_t         algos[PLAN_TUNE_MAX_ALGOS];
    double          us[PLAN_TUNE_MAX_SIZES][PLAN_TUNE_MAX_ALGOS]; /* 0: was not timed */
};

/* How far a choice is behind the best algorithm. */
struct plan_verdict {
    double   mean, worst;  /* its time over the best one's: geometric mean over the sizes; the largest */
    uint64_t worst_bytes;
    int      n_within;     /* sizes at which it is at most 1.1 */
};

/* Fills in collective and algorithm by their names. False: there is no such algorithm. */
bool plan_timing_name(struct plan_timing *timing, const char *collective, const char *algorithm);

/* Cuts the timings, which it sorts, into contests: *contests is freed by gmi_free. GM_ERR_NOMEM; GM_ERR_ARG: more sizes or
 * algorithms of one collective than are foreseen. */
GM_MUST_USE gm_status plan_tune_contests(struct plan_timing *timings, size_t n_timings, struct plan_contest **contests,
                                         size_t *n_contests, gm_error *error);

const char *plan_tune_algorithm(const struct plan_contest *contest, int index); /* a name */

/* What is fastest where: at most PLAN_TUNE_MAX_ALGOS stretches, of which each is worth a change. Returns how many. */
size_t plan_tune_choices(const struct plan_contest *contest, struct gmi_choice *choices);

/* Fits the constants of a kind of link to the contests of that kind, from those that are there; they stay if others choose no
 * better. */
void plan_tune_constants(const struct plan_contest *contests, size_t n_contests, enum gmi_link_kind kind,
                         struct gmi_link_costs *constants);

/* "auto" under a profile, held against the times of a contest. */
struct plan_verdict plan_tune_verdict(const struct plan_contest *contest, const struct gmi_profile *profile);

/* What the choice at a site depends on, as far as the site says it: the hosts of as many ranks as can be. */
struct gmi_costs plan_site_costs(struct gmi_site site, const struct gmi_profile *profile);

#endif
