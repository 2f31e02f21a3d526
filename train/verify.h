/* verify.h - where do two runs part? Two checkpoints, two directories of them, or two logs, compared bit by bit. */
#ifndef GMT_VERIFY_H
#define GMT_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/state_hash.h"

enum gmt_verify_kind { GMT_VERIFY_CHECKPOINT, GMT_VERIFY_DIRECTORY, GMT_VERIFY_LOG };

/* One tensor that is not the same. Of logs only its name is known. */
struct gmt_tensor_difference {
    char     name[GMT_STATE_NAME_BYTES];
    uint64_t n_elems, n_different; /* 0, 0: not known */
    uint64_t first;                /* the first element that differs, as a flat index ... */
    size_t   n_dims;
    uint64_t shape[2];             /* ... of this shape; more dimensions are one */
    float    a, b;                 /* its values */
    double   max_abs_diff;         /* infinity where one is no number */
};

struct gmt_verdict {
    enum gmt_verify_kind kind;
    bool     are_same;
    uint64_t n_compared;       /* steps of which both have the state */
    uint64_t n_only_a, n_only_b; /* steps of which only one has */
    uint64_t step;             /* the first one that differs; of equal ones the last */
    char     reason[224];      /* why they differ when it is no tensor's doing; else "" */
    size_t   n_tensors;        /* that differ, in file order */
    struct gmt_tensor_difference tensors[GMT_STATE_MAX_TENSORS];
};

/* Compares what the two paths name, which must be of one kind. GM_OK: *verdict is filled. GM_ERR_ARG: they
 * cannot be compared, or a file is not what it should be; GM_ERR_SYSTEM; GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_verify(const char *a_path, const char *b_path, struct gmt_verdict *verdict,
                                 gm_error *error);

#endif
