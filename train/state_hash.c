#include "train/state_hash.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

/* The tensors of one flat array that is laid out as the parameters. */
static void list_array(struct gmt_state *state, const struct gmt_params *params, const char *prefix,
                       float *values)
{
    for (int i = 0; i < params->n_tensors; i++) {
        const struct gmt_tensor *tensor = &params->tensors[i];
        GMI_CHECK(state->n_tensors < GMT_STATE_MAX_TENSORS);
        struct gmt_state_tensor *entry = &state->tensors[state->n_tensors++];
        *entry = (struct gmt_state_tensor){ .n_dims = tensor->n_dims,
                                            .n_rows = tensor->n_rows,
                                            .n_cols = tensor->n_cols,
                                            .n_elems = tensor->n_elems,
                                            .values = values + tensor->first_elem };
        snprintf(entry->name, sizeof entry->name, "%s%s", prefix, tensor->name);
        state->n_elems += tensor->n_elems;
    }
}

void gmt_state_list(struct gmt_state *state, const struct gmt_params *params,
                    const struct gmt_optimizer *optimizer)
{
    state->n_tensors = 0;
    state->n_elems = 0;
    list_array(state, params, "", params->weights);
    if (optimizer == NULL) return;
    GMI_CHECK(optimizer->n_elems == params->n_elems);
    for (int i = 0; i < optimizer->n_states; i++) {
        char prefix[GMT_STATE_NAME_BYTES / 2];
        snprintf(prefix, sizeof prefix, "optimizer.%s.", optimizer->states[i].name);
        list_array(state, params, prefix, optimizer->states[i].values);
    }
}

void gmt_floats_to_bytes(uint8_t *bytes, const float *values, size_t count_elems)
{
    for (size_t i = 0; i < count_elems; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        gmi_put_u32(bytes + 4 * i, bits);
    }
}

void gmt_floats_from_bytes(float *values, const uint8_t *bytes, size_t count_elems)
{
    for (size_t i = 0; i < count_elems; i++) {
        uint32_t bits = gmi_get_u32(bytes + 4 * i);
        memcpy(&values[i], &bits, sizeof bits);
    }
}

void gmt_sha256_begin(struct gmt_sha256 *sha)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    sha->context = context;
    sha->failed = context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1;
}

void gmt_sha256_add(struct gmt_sha256 *sha, const void *bytes, size_t size_bytes)
{
    if (sha->failed || size_bytes == 0) return;
    sha->failed = EVP_DigestUpdate(sha->context, bytes, size_bytes) != 1;
}

void gmt_sha256_add_floats(struct gmt_sha256 *sha, const float *values, size_t count_elems)
{
    uint8_t block[16384];
    for (size_t done = 0; done < count_elems;) {
        size_t count = gmi_min_size(count_elems - done, sizeof block / 4);
        gmt_floats_to_bytes(block, values + done, count);
        gmt_sha256_add(sha, block, 4 * count);
        done += count;
    }
}

gm_status gmt_sha256_end(struct gmt_sha256 *sha, char hex[GMT_HASH_HEX_BYTES], gm_error *error)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int  digest_bytes = 0;
    if (!sha->failed)
        sha->failed = EVP_DigestFinal_ex(sha->context, digest, &digest_bytes) != 1;
    EVP_MD_CTX_free(sha->context);
    sha->context = NULL;
    hex[0] = '\0';
    if (sha->failed || digest_bytes != 32)
        return gmi_error_set(error, GM_ERR_NOMEM, "the SHA-256 of the state could not be computed");
    for (unsigned int i = 0; i < digest_bytes; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex[64] = '\0';
    return GM_OK;
}

gm_status gmt_state_hash(const struct gmt_state *state, char hex[GMT_HASH_HEX_BYTES],
                         gm_error *error)
{
    struct gmt_sha256 sha;
    gmt_sha256_begin(&sha);
    for (size_t i = 0; i < state->n_tensors; i++)
        gmt_sha256_add_floats(&sha, state->tensors[i].values, state->tensors[i].n_elems);
    return gmt_sha256_end(&sha, hex, error);
}

gm_status gmt_state_digest(const struct gmt_state *state, struct gmt_state_digest *digest,
                           gm_error *error)
{
    char      hex[GMT_HASH_HEX_BYTES];
    gm_status status = gmt_state_hash(state, digest->state, error);
    digest->n_tensors = state->n_tensors;
    for (size_t i = 0; i < state->n_tensors && status == GM_OK; i++) {
        struct gmt_sha256 sha;
        gmt_sha256_begin(&sha);
        gmt_sha256_add_floats(&sha, state->tensors[i].values, state->tensors[i].n_elems);
        status = gmt_sha256_end(&sha, hex, error);
        digest->tensors[i].name = state->tensors[i].name;
        snprintf(digest->tensors[i].hash, sizeof digest->tensors[i].hash, "%.32s", hex);
    }
    return status;
}
