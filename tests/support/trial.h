/* trial.h - one collective on all ranks of a simulation, with its buffers and what must come out.
 *
 * What must come out is what a plain serial loop over the ranks' values gives (oracle.h). Works for every row of the algorithm table, by its collective. */
#ifndef TRIAL_H
#define TRIAL_H

#include "tests/support/sim.h"

/* What the ranks contribute. All depend on rank and index, so that a wrong place or a value added twice is
 * seen. */
enum trial_values {
    TRIAL_EXACT,  /* small whole numbers in floats (sums are exact in any order); any bits in integers */
    TRIAL_ROUGH,  /* floats of many magnitudes: the order of a sum shows in its bits */
    TRIAL_SPECIAL /* see trial_shape.special */
};

/* In which order an oracle adds. */
enum trial_order {
    TRIAL_BY_RANK, /* 0, 1, ..., N-1 */
    TRIAL_BY_RING, /* chunk k: k+1, k+2, ..., k */
    TRIAL_TO_ROOT  /* root+1, root+2, ..., root */
};

struct trial_shape {
    const struct gmi_algo *algo;
    size_t                 count_elems; /* of the whole buffer; in an all-to-all for each pair of ranks */
    uint64_t               counts_seed; /* 0: equal chunks. Else their sizes are drawn from it, count_elems on average */
    gm_dtype               dtype;
    gm_redop               redop;
    bool                   is_in_place;
    int                    root;
    const struct gmi_wire *wire; /* of rows for lean formats; NULL: one by the seed */
    int                    more_shards, quantum; /* of rows for exact sums: beyond one each; 0: the default */
    uint64_t               seed; /* of the values */
    enum trial_values      values;
    enum trial_order       order;

    /* TRIAL_SPECIAL: all elements are `plain_bits`, but those of rank `special_rank` are `special_bits`. */
    uint64_t plain_bits, special_bits;
    int      special_rank;
};

struct trial {
    struct trial_shape shape;
    int                n_ranks;
    size_t             elem_bytes;
    size_t             counts[SIM_MAX_RANKS][SIM_MAX_RANKS + 1];      /* chunk k of rank r's buffer; one row for all but */
    size_t             recv_counts[SIM_MAX_RANKS][SIM_MAX_RANKS + 1]; /* all-to-all: what rank r gets from k */
    struct guard       send[SIM_MAX_RANKS], recv[SIM_MAX_RANKS]; /* in place: recv only */
    uint8_t           *values[SIM_MAX_RANKS];                    /* what each rank contributes, whole */
    gm_accumulator    *exact[SIM_MAX_RANKS];                     /* of a row for exact sums */
    float             *lean_result;                              /* of a row for lean formats, whole */
};

/* Is the row for lean formats only? It then runs sums and averages of f32, whatever the shape says. */
static inline bool trial_is_lean(const struct gmi_algo *row) { return row->shows == GMI_VIEW_LEAN; }

/* The same for exact sums. */
static inline bool trial_is_exact(const struct gmi_algo *row) { return row->shows == GMI_VIEW_EXACT; }

/* A zeroed trial may be prepared, and one that was prepared before; memory is reused. */
void trial_prepare(struct trial *t, int n_ranks, const struct trial_shape *shape);
void trial_fini(struct trial *t);

void trial_begin(struct trial *t, struct sim *sim, int rank);
/* Begins on all ranks, runs, and checks everything: the end, results, untouched inputs, counts. */
void trial_run(struct trial *t, struct sim *sim);

static inline bool trial_has_root(const struct gmi_algo *row) { return gmi_has_root(row->collective); }
static inline bool trial_is_reduction(const struct gmi_algo *row)
{
    return row->collective == GM_ALL_REDUCE || row->collective == GM_REDUCE_SCATTER || row->collective == GM_REDUCE;
}
/* Can it be called with sizes of chunks? */
static inline bool trial_has_counts(const struct gmi_algo *row)
{
    return row->collective == GM_REDUCE_SCATTER || row->collective == GM_ALL_GATHER || row->collective == GM_GATHER ||
           row->collective == GM_SCATTER || row->collective == GM_ALL_TO_ALL;
}

/* The result of a rank and what it must be; both fail the test with the difference. */
void trial_check_result(const struct trial *t, const struct sim *sim, int rank);
void trial_check_counts(const struct trial *t, const struct sim *sim);

/* Where the result of a rank is, and of which elements. */
const uint8_t *trial_result(const struct trial *t, int rank, size_t *first_elem, size_t *n_elems);

/* Is this combination one that the library offers, with this algorithm? */
bool trial_is_offered(const struct trial_shape *shape);
/* Is the row made for so many ranks? */
static inline bool trial_fits(const struct gmi_algo *row, int n_ranks)
{
    return row->max_ranks == 0 || n_ranks <= row->max_ranks;
}

#endif
