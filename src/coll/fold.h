/* fold.h - N ranks as a power of two, for algorithms in which ranks pair up by the bits of their
 * numbers.
 *
 * Let P be the largest power of two that is not above N, and R = N - P. The first 2R ranks form
 * pairs (0,1), (2,3), ...: the even one gives its values to the odd one and rests. The odd ones and
 * all others, P in all, work under new numbers 0 .. P-1. */
#ifndef GMI_FOLD_H
#define GMI_FOLD_H

#include <stdbool.h>

/* What one rank does. */
struct gmi_fold {
    int  n_exchanges; /* log2 P */
    int  n_pairs;     /* R */
    bool is_resting;  /* gives its values away and gets the result */
    bool has_partner; /* works for a resting rank, the one below it */
    int  number;      /* among those that work */
};

static inline struct gmi_fold gmi_fold_of(int n_ranks, int rank)
{
    struct gmi_fold f = { 0 };
    while (2 << f.n_exchanges <= n_ranks) f.n_exchanges++;
    f.n_pairs = n_ranks - (1 << f.n_exchanges);
    bool is_paired = rank < 2 * f.n_pairs;
    f.is_resting = is_paired && rank % 2 == 0;
    f.has_partner = is_paired && rank % 2 == 1;
    f.number = is_paired ? rank / 2 : rank - f.n_pairs;
    return f;
}

static inline int gmi_fold_rank(const struct gmi_fold *f, int number)
{
    return number < f->n_pairs ? 2 * number + 1 : number + f->n_pairs;
}

/* The rank whose number differs in one bit, 1 << exchange. */
static inline int gmi_fold_partner(const struct gmi_fold *f, int exchange)
{
    return gmi_fold_rank(f, f->number ^ (1 << exchange));
}

#endif
