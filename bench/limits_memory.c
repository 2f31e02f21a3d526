/* limits_memory.c - how fast one core copies, and how fast the library's float sums and a cipher run: out
   of cache and in it. */
#include <openssl/evp.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "bench/limits_parts.h"
#include "reduce/codec.h"

enum { RECORD_BYTES = 16384 };

/* Keeps the compiler from leaving out what nobody reads. */
static void touch(const void *memory) { __asm__ volatile("" : : "r"(memory) : "memory"); }

/* Seals the array in records as TLS makes them, each into the same place. */
static void seal(EVP_CIPHER_CTX *context, uint8_t *out, const uint8_t *in, size_t n_bytes)
{
    uint8_t nonce[12] = { 0 }, tag[16];
    int     got;
    for (size_t at = 0; at < n_bytes; at += RECORD_BYTES) {
        int part_bytes = (int)(n_bytes - at < RECORD_BYTES ? n_bytes - at : RECORD_BYTES);
        memcpy(nonce, &at, sizeof at);
        EVP_EncryptInit_ex(context, NULL, NULL, NULL, nonce);
        EVP_EncryptUpdate(context, out, &got, in + at, part_bytes);
        EVP_EncryptFinal_ex(context, out + got, &got);
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, sizeof tag, tag);
    }
}

static gm_status measure_cipher(const struct bench_limit *limit, uint8_t *out, const uint8_t *in, size_t n_rounds,
                                double *gbps, gm_error *error)
{
    static const uint8_t key[16] = "a key of no use";
    EVP_CIPHER_CTX      *context = EVP_CIPHER_CTX_new();
    bool                 is_ready = context != NULL && EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), NULL, key, NULL) == 1;
    if (is_ready) {
        seal(context, out, in, limit->array_bytes);
        double begin_s = bench_now_s();
        for (size_t i = 0; i < n_rounds; i++) seal(context, out, in, limit->array_bytes);
        *gbps = (double)n_rounds * (double)limit->array_bytes / (bench_now_s() - begin_s) / 1e9;
    }
    EVP_CIPHER_CTX_free(context);
    return is_ready ? GM_OK : gmi_error_set(error, GM_ERR_NOMEM, "no memory for a cipher");
}

/* Magnitudes as gradients have them, of both signs. */
static void fill_gradients(float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) values[i] = (float)((int)(i * 2654435761u % 2000003u) - 1000001) * 0x1p-30f;
}

static gm_status add_exactly(gm_accumulator *acc, const float *values, size_t n_rounds)
{
    gm_status status = gm_accumulator_reset(acc);
    for (size_t i = 0; i < n_rounds && status == GM_OK; i++) {
        if (i > 0 && i % GM_MAX_SHARDS == 0) status = gm_accumulator_reset(acc);
        if (status == GM_OK) status = gm_accumulator_add(acc, (int)(i % GM_MAX_SHARDS), values);
    }
    return status;
}

static gm_status measure_exact(const struct bench_limit *limit, const float *values, size_t n_rounds, double *gbps, gm_error *error)
{
    gm_accumulator        *acc;
    gm_accumulator_options options;
    gm_accumulator_options_default(&options);
    options.count = limit->array_bytes / sizeof *values;
    options.n_shards = GM_MAX_SHARDS;
    gm_status status = gm_accumulator_create(&acc, &options, error);
    if (status != GM_OK) return status;
    status = add_exactly(acc, values, 1);
    double begin_s = bench_now_s();
    if (status == GM_OK) status = add_exactly(acc, values, n_rounds);
    *gbps = (double)n_rounds * (double)limit->array_bytes / (bench_now_s() - begin_s) / 1e9;
    if (status != GM_OK && error != NULL) *error = *gm_accumulator_error(acc);
    gm_accumulator_destroy(acc);
    return status;
}

static void walk(const struct bench_limit *limit, const struct gmi_codec *codec, uint8_t *out,
                 const uint8_t *in, size_t n_rounds)
{
    for (size_t i = 0; i < n_rounds; i++) {
        if (limit->kind == BENCH_COPY) memcpy(out, in, limit->array_bytes);
        else codec->combine(out, in, out, limit->array_bytes / codec->elem_bytes);
        touch(out);
    }
}

gm_status bench_measure_memory(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                               gm_error *error)
{
    struct gmi_codec codec;
    gm_status        status = gmi_codec_find(&codec, GM_F32, GM_SUM);
    if (status != GM_OK) return gmi_error_set(error, status, "there is no float sum");
    uint8_t *out = gmi_alloc(limit->array_bytes, 1), *in = gmi_alloc(limit->array_bytes, 1);
    size_t   n_rounds = amount_bytes / limit->array_bytes + 1;
    if (out != NULL && in != NULL && limit->kind == BENCH_CIPHER) {
        status = measure_cipher(limit, out, in, n_rounds, gbps, error);
    } else if (out != NULL && in != NULL && limit->kind == BENCH_EXACT) {
        fill_gradients((float *)(void *)in, limit->array_bytes / sizeof(float));
        status = measure_exact(limit, (const float *)(const void *)in, n_rounds, gbps, error);
    } else if (out != NULL && in != NULL) {
        walk(limit, &codec, out, in, 1);
        double begin_s = bench_now_s();
        walk(limit, &codec, out, in, n_rounds);
        *gbps = (double)n_rounds * (double)limit->array_bytes / (bench_now_s() - begin_s) / 1e9;
    } else {
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for two arrays of %zu bytes",
                               limit->array_bytes);
    }
    gmi_free(in);
    gmi_free(out);
    return status;
}
