/* safetensors.h - the header of a safetensors file: read with suspicion, written canonically.
 *
 * A file is: u64 little-endian length of the header; the header, a JSON object padded with
 * spaces; the data part. The header maps each tensor's name to {"dtype", "shape",
 * "data_offsets": [begin, end)}, offsets relative to the data part, and "__metadata__" to an
 * object of strings. This module knows neither files nor models: bytes in, table out, and the
 * other way round. */
#ifndef GMT_SAFETENSORS_H
#define GMT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

/* The format allows 100,000,000 bytes. Ours need some hundred bytes for each tensor; what is
 * larger is refused before memory is taken for it. */
#define GMT_ST_HEADER_MAX_BYTES ((uint64_t)16 << 20)
#define GMT_ST_MAX_DIMS 8
#define GMT_ST_MAX_TENSORS 65536

struct gmt_st_tensor {
    const char *name;
    const char *dtype; /* "F32" */
    size_t      n_dims;
    uint64_t    shape[GMT_ST_MAX_DIMS];
    uint64_t    begin, end; /* bytes in the data part */
};

struct gmt_st_pair {
    const char *key, *value;
};

/* A header taken apart. The strings live in `json`. */
struct gmt_st_header {
    void                 *json;     /* cJSON */
    struct gmt_st_tensor *tensors;  /* in the order of the data part */
    size_t                n_tensors;
    struct gmt_st_pair   *metadata; /* as written */
    size_t                n_metadata;
};

/* Takes the header's text apart and checks all that the format promises: an object, each key
 * once, known dtypes, shapes that fit the offsets, tensors that fill data_bytes without a hole
 * or an overlap. `file` is for the error's sentence. On failure *header is empty.
 * GM_OK, GM_ERR_ARG (the sentence says what is wrong), GM_ERR_NOMEM. */
gm_status gmt_st_parse(struct gmt_st_header *header, const char *text, size_t text_bytes,
                       uint64_t data_bytes, const char *file, gm_error *error) GM_MUST_USE;
void      gmt_st_free(struct gmt_st_header *header);

/* The value of a metadata key, NULL if there is none. */
const char *gmt_st_metadata(const struct gmt_st_header *header, const char *key);

/* The bytes of the header, with length in front and padding behind so that the data part begins
 * at a multiple of 8. Offsets are computed from the shapes, all of dtype F32, in the order
 * given. *bytes is freed with gmi_free. GM_OK, GM_ERR_NOMEM. */
gm_status gmt_st_format(uint8_t **bytes, size_t *size_bytes, const struct gmt_st_tensor *tensors,
                        size_t n_tensors, const struct gmt_st_pair *metadata, size_t n_metadata,
                        gm_error *error) GM_MUST_USE;

#endif
