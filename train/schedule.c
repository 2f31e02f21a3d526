#include "train/schedule.h"

#include <string.h>

#include "base/error.h"

static const char *const names[GMT_SCHEDULE_END] = {
    [GMT_CONSTANT] = "constant",
    [GMT_LINEAR] = "linear",
    [GMT_COSINE] = "cosine",
};

const char *gmt_schedule_name(enum gmt_schedule_kind kind)
{
    return (unsigned)kind < GMT_SCHEDULE_END ? names[kind] : "?";
}

gm_status gmt_schedule_parse(enum gmt_schedule_kind *kind, const char *name, gm_error *error)
{
    for (int k = 0; k < GMT_SCHEDULE_END; k++)
        if (strcmp(name, names[k]) == 0) {
            *kind = (enum gmt_schedule_kind)k;
            return GM_OK;
        }
    return gmi_error_set(error, GM_ERR_ARG,
                         "schedule \"%s\": expected constant, linear or cosine", name);
}

/* cos(pi p) for 0 <= p <= 1, from additions and multiplications alone: the Taylor series on a
 * quarter wave, where 12 terms leave less than 1e-16. */
static double cos_pi(double p)
{
    if (p > 0.5) return -cos_pi(1 - p);
    double x = 3.14159265358979323846 * p, square = x * x;
    double term = 1, sum = 1;
    for (int n = 1; n <= 12; n++) {
        term *= -square / (double)((2 * n - 1) * (2 * n));
        sum += term;
    }
    return sum;
}

double gmt_schedule_rate(const struct gmt_schedule *schedule, uint64_t step)
{
    double base = schedule->base_rate;
    uint64_t warmup = schedule->warmup_steps;
    if (step < warmup) return base * ((double)(step + 1) / ((double)warmup + 1));
    if (schedule->kind == GMT_CONSTANT) return base;

    double progress = 1;
    if (step < schedule->total_steps)
        progress = (double)(step - warmup) / (double)(schedule->total_steps - warmup);
    double left = schedule->kind == GMT_LINEAR ? 1 - progress : 0.5 * (1 + cos_pi(progress));
    double last = schedule->final_fraction;
    return base * (last + (1 - last) * left);
}
