/* state_hash.h - the training state as a list of named arrays, and one number that stands for
 * its bits.
 *
 * The state is everything that the next step depends on and that training changes: the
 * parameters and the optimizer's moments, always in the same order, the file order. A
 * checkpoint's data part is exactly these values, little-endian, without gaps; so the hash
 * printed by `train`, `eval` and `parity` is the SHA-256 of the data part of a checkpoint saved
 * at that moment, and anybody can recompute it. */
#ifndef GMT_STATE_HASH_H
#define GMT_STATE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/optimizer.h"
#include "train/params.h"

#define GMT_HASH_HEX_BYTES 65 /* 64 hexadecimal digits and the zero */
#define GMT_STATE_NAME_BYTES 64
#define GMT_STATE_MAX_TENSORS (3 * GMT_MAX_TENSORS) /* weights, and up to two moments of each */

/* One named array. The values belong to whoever made the list. */
struct gmt_state_tensor {
    char   name[GMT_STATE_NAME_BYTES]; /* "layers.0.weight", "optimizer.momentum.layers.0.weight" */
    int    n_dims;                     /* 2: (n_rows, n_cols); 1: (n_rows) */
    size_t n_rows, n_cols;
    size_t n_elems;
    float *values; /* (n_elems) */
};

struct gmt_state {
    struct gmt_state_tensor tensors[GMT_STATE_MAX_TENSORS]; /* in file order */
    size_t                  n_tensors;
    size_t                  n_elems; /* of all of them */
};

/* Lists the parameters and after them each moment of the optimizer (NULL: none), which must have
 * as many elements. The values stay theirs. */
void gmt_state_list(struct gmt_state *state, const struct gmt_params *params,
                    const struct gmt_optimizer *optimizer);

/* Copies count values as little-endian bytes, whatever the machine's order, and back. */
void gmt_floats_to_bytes(uint8_t *bytes, const float *values, size_t count_elems);
void gmt_floats_from_bytes(float *values, const uint8_t *bytes, size_t count_elems);

/* SHA-256 in hexadecimal of some bytes given in pieces. A hash that cannot be made (no memory in
 * the crypto library) makes gmt_sha256_end fail; the calls between need no checks. */
struct gmt_sha256 {
    void *context; /* EVP_MD_CTX */
    int   failed;
};
void      gmt_sha256_begin(struct gmt_sha256 *sha);
void      gmt_sha256_add(struct gmt_sha256 *sha, const void *bytes, size_t size_bytes);
void      gmt_sha256_add_floats(struct gmt_sha256 *sha, const float *values, size_t count_elems);
gm_status gmt_sha256_end(struct gmt_sha256 *sha, char hex[GMT_HASH_HEX_BYTES], gm_error *error)
    GM_MUST_USE;

/* The hash of the whole state, in file order. GM_OK, GM_ERR_NOMEM. */
gm_status gmt_state_hash(const struct gmt_state *state, char hex[GMT_HASH_HEX_BYTES],
                         gm_error *error) GM_MUST_USE;

/* The same, and of each tensor alone the first half of its own SHA-256: enough to say which ones two states
 * differ in. */
#define GMT_SHORT_HASH_BYTES 33
struct gmt_state_digest {
    char   state[GMT_HASH_HEX_BYTES];
    size_t n_tensors;
    struct {
        const char *name; /* the state's */
        char        hash[GMT_SHORT_HASH_BYTES];
    } tensors[GMT_STATE_MAX_TENSORS];
};
gm_status gmt_state_digest(const struct gmt_state *state, struct gmt_state_digest *digest,
                           gm_error *error) GM_MUST_USE;

#endif
